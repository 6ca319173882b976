"""The self-test with its real server, in processes of its own. Nothing here asserts a speed."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.runs import small_spec
from tokenwatt_site.errors import EnvironmentProblem
from tokenwatt_site.measure import capacity, selftest
from tokenwatt_site.measure.capacity import AnswerShape, due_ns
from tokenwatt_site.measure.selftest import RunningEmitter, Senders, emitting, self_test
from tokenwatt_site.validity import Tolerances
from tokenwatt_site.workload import Realisation, workload_of

LOOSE = small_spec(
    setup__slo=[
        {"metric": "ttft", "quantile": 0.9, "limit_ms": 2_000_000.0},
        {"metric": "tpot", "quantile": 0.9, "limit_ms": 150.0},
    ],
    protocol__start_rate=1.0,
    protocol__max_rate=6.0,
)
"""Tolerances of 10 s: a busy machine is late, and holds some 200 events/s nevertheless."""


@pytest.fixture
def however_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of the test may be late too."""
    monkeypatch.setattr(capacity, "EMITTER_LAG_NS", 10_000_000_000)


SHAPE = AnswerShape(tokens=4, interval_ns=1_000_000, input_tokens=1)


def drawn() -> Realisation:
    return workload_of(LOOSE.setup).realisation(1, lead_in=5, scored=20, tail=60)


@pytest.mark.usefixtures("however_late")
def test_the_client_holds_a_low_rate_on_any_machine_and_what_is_told_is_consistent() -> None:
    found = self_test(LOOSE, drawn(), LOOSE.protocol.max_urps)
    assert found.limited_by == "asked"
    assert found.events_per_s >= 200
    assert found.events_per_s == found.requests_urps * 17 // 1_000_000
    limit_ns = Tolerances.of(LOOSE).lag_ns
    assert 0 < (found.first_token_error_p99_ns or 0) <= limit_ns
    assert 0 < (found.dispatch_lag_p99_ns or 0) <= limit_ns


@pytest.mark.usefixtures("however_late")
@pytest.mark.parametrize("servers", [1, 2])
def test_the_server_knows_of_every_answer_when_it_sent_it(servers: int) -> None:
    shape = AnswerShape(tokens=3, interval_ns=5_000_000, input_tokens=2000)
    tolerances = Tolerances.of(LOOSE)
    with emitting(shape, servers) as emitter:
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
    with emitting(SHAPE, 1) as emitter:
        answer = ask(port_of(emitter), 7, 4)
        [truth], [again] = emitter._truths(), emitter._truths()
    lag_ns, rows = truth.lag_p99_ns, truth.tokens_ns
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
    with emitting(SHAPE, 1) as emitter:
        with socket.create_connection(("127.0.0.1", port_of(emitter)), timeout=30) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert sock.recv(1) == b""
        assert ask(port_of(emitter), 2, 4).startswith(b"HTTP/1.1 200 OK")


def test_a_client_that_goes_away_takes_nothing_from_the_others() -> None:
    with emitting(SHAPE, 1) as emitter:
        with contextlib.closing(socket.create_connection(("127.0.0.1", port_of(emitter)))) as sock:
            body = b'{"row":1,"tokens":1000000,"prompt":"1"}'
            sock.sendall(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            sock.recv(1)
        assert ask(port_of(emitter), 2, 4).startswith(b"HTTP/1.1 200 OK")
        [truth] = emitter._truths()
        assert list(truth.tokens_ns) == [2]


def test_two_processes_serve_one_port_and_each_row_is_told_by_one_of_them() -> None:
    with emitting(SHAPE, 2) as emitter:
        for row in range(32):  # that all go to one process: once in 2^31
            assert ask(port_of(emitter), row, 1).startswith(b"HTTP/1.1 200 OK")
        told = [list(truth.tokens_ns) for truth in emitter._truths()]
    assert [] not in told
    assert sorted(told[0] + told[1]) == list(range(32))


def test_the_server_ends_with_the_test_also_where_that_breaks_off() -> None:
    seen: list[subprocess.Popen[bytes]] = []

    def broken_off() -> None:
        with emitting(SHAPE, 2) as emitter:
            seen.extend(emitter._processes)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert [process.returncode for process in seen] == [0, 0]


@pytest.mark.parametrize("which", [0, 1])
def test_a_process_that_ends_too_early_is_the_machine_s_problem_and_the_other_ends(
    which: int,
) -> None:
    with emitting(SHAPE, 2) as emitter:
        dead, other = emitter._processes[which], emitter._processes[1 - which]
        dead.kill()
        dead.wait()
        with pytest.raises(EnvironmentProblem, match="self-test ended; found exit code -9"):
            emitter.attempt(due_ns(drawn(), 10**9), 10**9, Tolerances.of(LOOSE))
    assert other.returncode == 0


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
        emitting(SHAPE, 2),
    ):
        pass


def test_a_process_that_does_not_start_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def one_only(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        if started:
            raise OSError(errno.EAGAIN, "no process left")
        started.append(popen(*args, **kwargs))
        return started[0]

    monkeypatch.setattr(selftest.subprocess, "Popen", one_only)
    with (
        pytest.raises(EnvironmentProblem, match=r"did not start \(no process left"),
        emitting(SHAPE, 2),
    ):
        pass
    assert started[0].returncode == 0


def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(selftest.socket, "SO_REUSEPORT")


def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two is, so that the first must go."""
    create, shared = socket.create_server, []

    def one_only(*args: Any, reuse_port: bool = False, **kwargs: Any) -> socket.socket:
        if reuse_port and shared:
            raise OSError(errno.EADDRINUSE, "address in use")
        listener = create(*args, reuse_port=reuse_port, **kwargs)
        shared.append(listener)
        return listener

    monkeypatch.setattr(selftest.socket, "create_server", one_only)


@pytest.mark.parametrize("lacking", [without, refused])
def test_one_process_serves_where_the_kernel_cannot_spread_connections(
    monkeypatch: pytest.MonkeyPatch, lacking: Callable[[pytest.MonkeyPatch], None]
) -> None:
    lacking(monkeypatch)
    with emitting(SHAPE, 3) as emitter:
        assert len(emitter._processes) == 1
        for row in range(4):
            assert ask(port_of(emitter), row, 1).startswith(b"HTTP/1.1 200 OK")
        [truth] = emitter._truths()
    assert list(truth.tokens_ns) == [0, 1, 2, 3]


def test_a_loopback_without_a_port_is_the_machine_s_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_port(*_: Any, **__: Any) -> socket.socket:
        raise OSError(errno.EACCES, "not permitted")

    monkeypatch.setattr(selftest.socket, "create_server", no_port)
    with (
        pytest.raises(EnvironmentProblem, match=r"did not start \(not permitted"),
        emitting(SHAPE, 2),
    ):
        pass


@pytest.mark.parametrize(("processors", "servers"), [(1, 1), (2, 1), (3, 2), (5, 4), (64, 4)])
def test_a_processor_is_left_to_the_client_of_those_that_it_may_use(
    monkeypatch: pytest.MonkeyPatch, processors: int, servers: int
) -> None:
    monkeypatch.setattr(
        selftest.os, "sched_getaffinity", lambda _: set(range(processors)), raising=False
    )
    assert selftest._servers(Senders()) == servers
    monkeypatch.delattr(selftest.os, "sched_getaffinity")
    monkeypatch.setattr(selftest.os, "cpu_count", lambda: processors)
    assert selftest._servers(Senders()) == servers
