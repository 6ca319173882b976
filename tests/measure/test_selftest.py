"""The self-test with its real server, in a process of its own. Nothing here asserts a speed."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess

import pytest

from tests.support.runs import small_spec
from tokenwatt_site.errors import EnvironmentProblem
from tokenwatt_site.measure import selftest
from tokenwatt_site.measure.capacity import Shape, due_ns
from tokenwatt_site.measure.selftest import RunningEmitter, emitting, self_test
from tokenwatt_site.validity import Tolerances
from tokenwatt_site.workload import Realisation, workload_of

LOOSE = small_spec(
    setup__slo=[
        {"metric": "ttft", "quantile": 0.9, "limit_ms": 60_000.0},
        {"metric": "tpot", "quantile": 0.9, "limit_ms": 150.0},
    ],
    protocol__start_rate=1.0,
    protocol__max_rate=6.0,
)
"""Tolerances of 300 ms: any machine that runs the tests holds some 200 events/s."""


def drawn() -> Realisation:
    return workload_of(LOOSE.setup).realisation(1, lead_in=5, scored=20, tail=60)


def test_the_client_holds_a_low_rate_on_any_machine_and_what_is_told_is_consistent() -> None:
    found = self_test(LOOSE, drawn())
    assert found.limited_by == "asked"
    assert found.events_per_s >= 200
    assert found.events_per_s == found.requests_urps * 17 // 1_000_000
    limit_ns = Tolerances.of(LOOSE).lag_ns
    assert 0 < (found.first_token_error_p99_ns or 0) <= limit_ns
    assert 0 < (found.dispatch_lag_p99_ns or 0) <= limit_ns


def test_the_server_knows_of_every_answer_when_it_sent_it() -> None:
    shape = Shape(tokens=3, interval_ns=5_000_000, input_tokens=2000)
    tolerances = Tolerances.of(LOOSE)
    with emitting(shape) as emitter:
        for due in (due_ns(drawn(), 40_000_000), due_ns(drawn(), 20_000_000)):
            found = emitter.attempt(due, 40_000_000, tolerances)
            assert found.on_time == found.scored > 0
            assert found.held(tolerances)


def ask(port: int, row: int, tokens: int) -> bytes:
    """Send one request by hand, in two pieces, and return the whole answer."""
    body = b'{"row":%d,"tokens":%d,"prompt":"1"}' % (row, tokens)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:5])
        sock.sendall(body[5:])
        answer = b""
        while not answer.endswith(b"\r\n0\r\n\r\n"):
            answer += sock.recv(65536)
    return answer


def port_of(emitter: RunningEmitter) -> int:
    return emitter._target.port


def test_an_answer_is_a_stream_of_the_tokens_asked_for_with_usage_and_an_end() -> None:
    with emitting(Shape(tokens=4, interval_ns=1_000_000, input_tokens=1)) as emitter:
        answer = ask(port_of(emitter), 7, 4)
        lag_ns, rows = (truth := emitter._truth()).lag_p99_ns, truth.tokens_ns
        again = emitter._truth()
    events = [
        json.loads(line.removeprefix(b"data: "))
        for line in answer.split(b"\n")
        if line.startswith(b"data: {")
    ]
    assert [len(event["choices"]) for event in events] == [1, 1, 1, 1, 0]
    assert events[-1]["usage"]["completion_tokens"] == 4
    assert b"data: [DONE]" in answer
    assert list(rows) == [7]
    first_ns, last_ns = rows[7]
    assert last_ns - first_ns >= 3_000_000 - lag_ns
    assert again.tokens_ns == {}


def test_a_stranger_on_its_port_takes_nothing_from_the_others() -> None:
    with emitting(Shape(tokens=4, interval_ns=1_000_000, input_tokens=1)) as emitter:
        with socket.create_connection(("127.0.0.1", port_of(emitter)), timeout=30) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert sock.recv(1) == b""
        assert ask(port_of(emitter), 2, 4).startswith(b"HTTP/1.1 200 OK")


def test_a_client_that_goes_away_takes_nothing_from_the_others() -> None:
    with emitting(Shape(tokens=4, interval_ns=1_000_000, input_tokens=1)) as emitter:
        with contextlib.closing(socket.create_connection(("127.0.0.1", port_of(emitter)))) as sock:
            body = b'{"row":1,"tokens":1000000,"prompt":"1"}'
            sock.sendall(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            sock.recv(1)
        assert ask(port_of(emitter), 2, 4).startswith(b"HTTP/1.1 200 OK")
        assert list(emitter._truth().tokens_ns) == [2]


def test_the_server_ends_with_the_test_also_where_that_breaks_off() -> None:
    seen: list[subprocess.Popen[bytes]] = []

    def broken_off() -> None:
        with emitting(Shape(tokens=4, interval_ns=1_000_000, input_tokens=1)) as emitter:
            seen.append(emitter._process)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert seen[0].returncode == 0


def test_a_server_that_ends_too_early_is_the_machine_s_problem() -> None:
    with emitting(Shape(tokens=4, interval_ns=1_000_000, input_tokens=1)) as emitter:
        emitter._process.kill()
        emitter._process.wait()
        with pytest.raises(EnvironmentProblem, match="self-test ended; found exit code -9"):
            emitter.attempt(due_ns(drawn(), 10**9), 10**9, Tolerances.of(LOOSE))


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("false", "self-test ended; found exit code 1"),
        ("/no/such/program", r"did not start \(No such file"),
    ],
)
def test_a_server_that_does_not_start_is_the_machine_s_problem(
    monkeypatch: pytest.MonkeyPatch, program: str, words: str
) -> None:
    monkeypatch.setattr(selftest.sys, "executable", program)
    with (
        pytest.raises(EnvironmentProblem, match=words),
        emitting(Shape(tokens=4, interval_ns=1_000_000, input_tokens=1)),
    ):
        pass
