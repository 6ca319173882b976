from __future__ import annotations

import gc
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.support.sockets import accepting
from tests.support.tls import Authority, tls_before
from tokenwatt_site.errors import UsageError
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.measure import client as client_module
from tokenwatt_site.measure import connection as connection_module
from tokenwatt_site.measure import pool as pool_module
from tokenwatt_site.measure.client import Offered, PlannedRequest, Target, offer
from tokenwatt_site.measure.readlog import ReadLog
from tokenwatt_site.measure.watcher import Watch
from tokenwatt_site.simulate.desk import ScriptOf
from tokenwatt_site.simulate.script import Script, named
from tokenwatt_site.simulate.server import SimulatedServer
from tokenwatt_site.simulate.truth import Served

MS = 1_000_000
KEY = "k3y-0123456789abcdef"
QUICK = Script(ttft_ms=4, interval_ms=2)


def never(*_: object) -> bool:
    return False


def body(asked: int = 4, **more: Any) -> bytes:
    request = {
        "model": "simulated",
        "prompt": [1, 2, 3],
        "max_tokens": asked,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        **more,
    }
    return json.dumps(request).encode()


def planned(due_ms: Sequence[float], asked: int = 4, **more: Any) -> list[PlannedRequest]:
    return [
        PlannedRequest(row, round(due * MS), body(asked, **more), 3, asked)
        for row, due in enumerate(due_ms)
    ]


def send(
    plan: Sequence[PlannedRequest],
    url: str,
    *,
    api: Any = "completions",
    timeout_ms: int = 5_000,
    idle_timeout_ms: int = 5_000,
    key: str | None = None,
    watch: Watch = never,
) -> Offered:
    return offer(
        plan,
        Target.from_url(url, api, key),
        repeat=2,
        trial=7,
        request_timeout_ns=timeout_ms * MS,
        watch=watch,
        watch_every_ns=MS,
        idle_timeout_ns=idle_timeout_ms * MS,
    )


def serve(
    script: Script | ScriptOf | str, plan: Sequence[PlannedRequest], **options: Any
) -> tuple[Offered, list[Served]]:
    """Send `plan` to a server with `script`; return what was seen, and the truth."""
    with SimulatedServer(named(script, QUICK) if isinstance(script, str) else script) as server:
        offered = send(plan, server.url, **options)
    return offered, server.log


def statuses(offered: Offered) -> list[Status]:
    return [record.status for record in offered.records]


@contextmanager
def scripted_socket(answers: Callable[[socket.socket, int], None]) -> Iterator[str]:
    """A server whose every connection is handled by `answers`, for what real servers do not do."""
    with accepting(answers) as port:
        yield f"http://127.0.0.1:{port}"


def read_request(accepted: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += accepted.recv(65536) or b"\r\n\r\n"
    head, _, rest = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
    while len(rest) < length:
        rest += accepted.recv(65536)
    return rest


# Replicas.


def test_each_row_goes_to_its_replica_and_one_that_is_dead_loses_its_own_alone() -> None:
    with SimulatedServer(QUICK) as first, SimulatedServer(QUICK) as third:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
        offered = offer(
            planned([0, 1, 2, 3, 4, 5, 6]),
            Target.from_urls([first.url, dead, third.url], "completions"),
            repeat=1,
            trial=1,
            request_timeout_ns=5_000 * MS,
            watch=never,
        )
    assert [r.row for r in offered.records if r.status is Status.OK] == [0, 2, 3, 5, 6]
    assert {r.status for r in offered.records if r.row % 3 == 1} == {Status.DISCONNECTED}
    assert (len(first.log), len(third.log)) == (3, 2)


# What is seen is what happened.


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_every_stamp_lies_between_the_true_sending_and_the_next_event(api: str) -> None:
    messages = [{"role": "user", "content": "one two three"}]
    offered, truth = serve("", planned([0, 3, 5, 30], messages=messages), api=api)
    assert statuses(offered) == [Status.OK] * 4
    assert offered.errors == ()
    for record, served in zip(offered.records, truth, strict=True):
        first, last = (served.sent[i][0].monotonic_ns - offered.epoch_ns for i in (0, -1))
        assert record.due_ns <= (record.sent_ns or 0)
        assert (record.sent_ns or 0) <= served.received.monotonic_ns - offered.epoch_ns
        assert record.first_ns is not None
        assert record.last_ns is not None
        assert first - 1000 <= record.first_ns <= record.last_ns <= record.end_ns
        assert last - 1000 <= record.last_ns
        assert (record.repeat, record.trial, record.prompt_asked) == (2, 7, 3)
        assert (record.prompt_tokens, record.output_tokens) == (3, 4)
        assert (record.first_tokens, record.events) == (1, 4)


def test_the_kernels_stamps_are_used_where_there_are_any() -> None:
    offered, _ = serve("", planned([0, 1]))
    assert offered.stamps == ("kernel" if connection_module._KERNEL_STAMPS else "user space")


def test_without_kernel_stamps_each_time_is_bounded_by_the_poll_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "_KERNEL_STAMPS", False)
    offered, truth = serve("", planned([0, 1, 2]))
    assert offered.stamps == "user space"
    assert statuses(offered) == [Status.OK] * 3
    for record, served in zip(offered.records, truth, strict=True):
        sent_ns = served.sent[0][0].monotonic_ns - offered.epoch_ns
        assert record.uncertainty_ns > 0
        assert record.first_ns is not None
        assert sent_ns <= record.first_ns


@pytest.mark.parametrize(
    "script", ["fragment:1", "fragment:7", "crlf", "cr", "comments", "close", "no-end-mark"]
)
def test_no_way_of_writing_the_stream_changes_what_is_read(script: str) -> None:
    offered, _ = serve(script, planned([0, 1, 30]))
    assert statuses(offered) == [Status.OK] * 3
    assert [(r.events, r.output_tokens, r.first_tokens) for r in offered.records] == [(4, 4, 1)] * 3


def test_a1_an_early_role_chunk_starts_no_clock() -> None:
    offered, truth = serve(
        "role-early", planned([0], messages=[{"role": "user", "content": "a"}]), api="chat"
    )
    (record,) = offered.records
    assert record.first_ns is not None
    assert record.first_ns >= truth[0].sent[0][0].monotonic_ns - offered.epoch_ns - 1000
    assert record.first_ns - record.due_ns >= 4 * MS


def test_a2_an_answer_without_usage_or_tokens_is_a_failure() -> None:
    offered, _ = serve("no-usage", planned([0]))
    assert statuses(offered) == [Status.NO_USAGE]
    assert offered.errors == ("1 x the engine told no usage",)


def test_a3_the_first_interval_starts_at_the_first_token_and_not_before() -> None:
    offered, truth = serve(Script(ttft_ms=60, interval_ms=1), planned([0], 3))
    (record,) = offered.records
    assert record.first_ns is not None
    assert record.first_ns >= 60 * MS
    assert record.first_ns >= truth[0].sent[0][0].monotonic_ns - offered.epoch_ns - 1000


def test_a4_several_tokens_per_chunk_with_growing_usage() -> None:
    offered, truth = serve("multi:4,usage-every-chunk", planned([0], 10))
    (record,) = offered.records
    assert (record.first_tokens, record.events, record.output_tokens) == (4, 3, 10)
    assert [count for _, count in truth[0].sent] == [4, 4, 2]


def test_a5_tokens_without_text_arrive_with_usage() -> None:
    offered, truth = serve("silent", planned([0], 3))
    (record,) = offered.records
    assert (record.events, record.status) == (3, Status.OK)
    assert record.first_ns is not None
    assert record.first_ns >= truth[0].sent[0][0].monotonic_ns - offered.epoch_ns - 1000


@pytest.mark.parametrize("script", ["reasoning", "tool-calls"])
def test_a6_reasoning_and_tool_calls_count_as_tokens(script: str) -> None:
    plan = planned([0], messages=[{"role": "user", "content": "a"}])
    offered, _ = serve(script, plan, api="chat")
    assert [(r.events, r.status) for r in offered.records] == [(4, Status.OK)]


def test_a8_usage_in_the_last_chunk_and_more_tokens_than_chunks() -> None:
    offered, _ = serve("usage-last-chunk,multi:3", planned([0], 9))
    assert [(r.events, r.output_tokens, r.status) for r in offered.records] == [(3, 9, Status.OK)]


def test_cached_prompt_tokens_are_recorded() -> None:
    offered, _ = serve("cached:2", planned([0]))
    assert offered.records[0].cached_tokens == 2


# How a request may end.


@pytest.mark.parametrize(
    ("script", "status", "message"),
    [
        ("http:500", Status.HTTP_ERROR, "HTTP 500: the script says so"),
        ("error:2", Status.STREAM_ERROR, "the script says so"),
        ("drop:2", Status.DISCONNECTED, "closed the connection before the end"),
        ("short:3", Status.SHORT_OUTPUT, "shorter than asked (finish reason stop)"),
        ("ignores-ignore-eos", Status.SHORT_OUTPUT, "shorter than asked"),
        ("no-usage", Status.NO_USAGE, "told no usage"),
    ],
)
def test_each_failure_has_its_status_and_its_message(
    script: str, status: Status, message: str
) -> None:
    offered, _ = serve(script, planned([0, 1]))
    assert statuses(offered) == [status, status]
    assert offered.errors[0].startswith("2 x ")
    assert message in offered.errors[0]


def test_another_model_than_the_engine_has_is_an_http_error() -> None:
    offered, _ = serve("", planned([0], model="other"))
    assert statuses(offered) == [Status.HTTP_ERROR]
    assert "HTTP 404" in offered.errors[0]


@pytest.mark.parametrize(("script", "events"), [("hang:-1", 0), ("hang:0", 0), ("hang:2", 2)])
def test_a15_a_half_open_stream_ends_at_its_deadline(script: str, events: int) -> None:
    offered, _ = serve(script, planned([0, 10]), timeout_ms=120)
    assert statuses(offered) == [Status.TIMED_OUT] * 2
    for record in offered.records:
        assert record.events == events
        assert record.end_ns >= record.due_ns + 120 * MS


def test_a15_an_answer_that_stops_half_way_ends_at_the_idle_deadline() -> None:
    offered, _ = serve("hang:2", planned([0, 10]), idle_timeout_ms=60)
    assert statuses(offered) == [Status.TIMED_OUT] * 2
    assert offered.errors == ("2 x the answer stopped for 0.06 s",)
    assert [record.events for record in offered.records] == [2, 2]
    assert all(record.end_ns < 4_000 * MS for record in offered.records)


def test_a_request_that_waits_for_its_first_byte_is_not_idle() -> None:
    offered, _ = serve("hang:-1", planned([0]), timeout_ms=200, idle_timeout_ms=20)
    assert offered.errors == ("1 x no end within 0.2 s",)


def test_an_answer_whose_events_keep_coming_is_not_idle() -> None:
    script = Script(ttft_ms=4, interval_ms=15)
    offered, _ = serve(script, planned([0], 20), idle_timeout_ms=200)
    assert statuses(offered) == [Status.OK]


def test_nobody_listening_is_a_disconnection_with_a_message() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    offered = send(planned([0, 1]), url)
    assert statuses(offered) == [Status.DISCONNECTED] * 2
    assert offered.errors == ("2 x cannot connect: Connection refused",)
    assert [r.sent_ns for r in offered.records] == [None, None]
    assert [r.connected_ns for r in offered.records] == [None, None]
    assert None not in [r.dialled_ns for r in offered.records]


def test_without_a_descriptor_left_a_request_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(socket, "socket", exhausted)
    offered = send(planned([0]), "http://127.0.0.1:9")
    assert statuses(offered) == [Status.NOT_SENT]
    assert offered.errors == ("1 x cannot connect: Too many open files",)


def test_an_answer_that_is_no_http_is_a_stream_error() -> None:
    def answers(accepted: socket.socket, _: int) -> None:
        read_request(accepted)
        accepted.sendall(b"220 mail.example ESMTP\r\n")
        accepted.recv(1)

    with scripted_socket(answers) as url:
        offered = send(planned([0]), url)
    assert statuses(offered) == [Status.STREAM_ERROR]
    assert offered.errors == ("1 x this is no HTTP/1 response",)


def test_an_answer_before_the_request_is_whole_is_read() -> None:
    def answers(accepted: socket.socket, _: int) -> None:
        accepted.recv(10)
        accepted.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        while accepted.recv(1 << 20):
            pass

    plan = [PlannedRequest(0, 0, body() + b" " * (8 << 20), 3, 4)]
    with scripted_socket(answers) as url:
        offered = send(plan, url)
    assert statuses(offered) == [Status.HTTP_ERROR]


def test_a_request_larger_than_the_socket_takes_at_once_arrives_whole() -> None:
    large = body() + b" " * (4 << 20)
    with SimulatedServer(QUICK) as server:
        offered = send([PlannedRequest(0, 0, large, 3, 4)], server.url)
    assert statuses(offered) == [Status.OK]
    assert server.log[0].body == large


def test_a_connection_that_is_reset_is_a_disconnection() -> None:
    def answers(accepted: socket.socket, _: int) -> None:
        read_request(accepted)
        accepted.sendall(b"HTTP/1.1 200 OK\r\n")
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with scripted_socket(answers) as url:
        offered = send(planned([0]), url)
    assert statuses(offered) == [Status.DISCONNECTED]
    assert offered.errors == ("1 x Connection reset by peer",)


# Connections.


def test_a13_connections_are_kept_and_opened_before_they_are_needed() -> None:
    with SimulatedServer(QUICK) as server:
        offered = send(planned([0, 40, 80, 120, 160, 200]), server.url)
    assert statuses(offered) == [Status.OK] * 6
    assert server.connections == offered.connects == 2
    assert offered.redials == 0
    assert {(r.dialled_ns, r.connected_ns) for r in offered.records} == {(None, None)}


def test_a13_the_time_a_connection_takes_is_reported_apart() -> None:
    with SimulatedServer(QUICK) as server:
        offered = send(planned([0] * 8), server.url)
    assert statuses(offered) == [Status.OK] * 8
    dialled = [r for r in offered.records if r.dialled_ns is not None]
    assert dialled
    for record in dialled:
        assert record.connected_ns is not None
        assert record.sent_ns is not None
        assert record.due_ns <= record.dialled_ns < record.connected_ns <= record.sent_ns


def test_the_processor_time_of_a_trial_is_told() -> None:
    with SimulatedServer(QUICK) as server:
        offered = send(planned([0, 40]), server.url)
    assert 0 < offered.cpu_ns < offered.wall_ns


def test_idle_connections_do_not_fill_up_an_engine_with_few_threads() -> None:
    with SimulatedServer(Script(ttft_ms=30, interval_ms=1)) as server:
        ended: list[RequestRecord] = []

        def watch(_: int, new: Sequence[RequestRecord], __: Sequence[RequestRecord]) -> bool:
            ended.extend(new)
            return len(ended) == 20 and server.idle() <= 3

        offered = send(planned([0] * 20 + [20_000]), server.url, watch=watch)
    assert statuses(offered) == [Status.OK] * 20


def test_a_connection_on_which_bytes_come_unasked_is_not_used() -> None:
    def answers(accepted: socket.socket, number: int) -> None:
        if number == 0:
            accepted.sendall(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
            accepted.recv(1)
            return
        read_request(accepted)
        accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        accepted.recv(1)

    with scripted_socket(answers) as url:
        offered = send(planned([100]), url)
    assert statuses(offered) == [Status.NO_USAGE]
    assert offered.connects == 3  # that one, the one used, and one ahead


def test_a_kept_connection_that_the_server_closed_is_dialled_again_once() -> None:
    def answers(accepted: socket.socket, number: int) -> None:
        read_request(accepted)
        if number < 2:
            return  # closes the connection that was opened ahead, without a byte
        text = b'data: {"choices":[{"text":"x"}],"usage":{"completion_tokens":4}}\n\n'
        accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
        accepted.recv(1)

    with scripted_socket(answers) as url:
        offered = send(planned([0]), url)
    assert statuses(offered) == [Status.OK]
    assert offered.redials == 1


def test_a_connection_that_is_closed_twice_is_a_disconnection() -> None:
    def answers(accepted: socket.socket, _: int) -> None:
        read_request(accepted)

    with scripted_socket(answers) as url:
        offered = send(planned([0]), url)
    assert statuses(offered) == [Status.DISCONNECTED]
    assert offered.redials == 1


# TLS and keys.


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@contextmanager
def secure_server(
    script: str, authority: Authority, host: str = "127.0.0.1", *, polite: bool = True
) -> Iterator[tuple[SimulatedServer, str]]:
    with (
        SimulatedServer(named(script, QUICK)) as server,
        tls_before(server.url, authority.server_context(host), polite=polite) as url,
    ):
        yield server, url


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Authority:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    return authority


def test_over_tls_the_stamps_are_the_kernels_and_what_is_seen_is_what_happened(
    trusted: Authority,
) -> None:
    with secure_server("", trusted) as (server, url):
        plan = [
            PlannedRequest(row, due_ms * MS, body(4, seed=row), 3, 4)
            for row, due_ms in enumerate((0, 3, 5, 30))
        ]
        offered = send(plan, url)
    assert statuses(offered) == [Status.OK] * 4
    assert offered.errors == ()
    assert offered.stamps == ("kernel" if connection_module._KERNEL_STAMPS else "user space")
    truth = {served.body: served for served in server.log}
    for record in offered.records:
        served = truth[plan[record.row].body]
        first, last = (served.sent[i][0].monotonic_ns - offered.epoch_ns for i in (0, -1))
        assert (record.sent_ns or 0) <= served.received.monotonic_ns - offered.epoch_ns
        assert first - 1000 <= (record.first_ns or 0)
        assert last - 1000 <= (record.last_ns or 0)
        assert (record.events, record.output_tokens) == (4, 4)


@pytest.mark.parametrize("script", ["fragment:1", "close", "no-end-mark,close", "comments"])
@pytest.mark.parametrize("polite", [True, False])
def test_over_tls_no_way_of_writing_the_stream_changes_what_is_read(
    trusted: Authority, script: str, polite: bool
) -> None:
    with secure_server(script, trusted, polite=polite) as (_, url):
        offered = send(planned([0, 1, 30]), url)
    assert statuses(offered) == [Status.OK] * 3
    assert [(r.events, r.output_tokens, r.first_tokens) for r in offered.records] == [(4, 4, 1)] * 3


def test_a13_over_tls_connections_are_kept_and_their_handshakes_done_ahead(
    trusted: Authority,
) -> None:
    with secure_server("", trusted) as (server, url):
        offered = send(planned([40 * i for i in range(20)]), url)
    assert statuses(offered) == [Status.OK] * 20
    assert server.connections == offered.connects <= 20
    assert offered.redials == 0


def test_over_tls_a_large_request_arrives_whole(trusted: Authority) -> None:
    large = body() + b" " * (4 << 20)
    with secure_server("", trusted) as (server, url):
        offered = send([PlannedRequest(0, 0, large, 3, 4)], url)
    assert statuses(offered) == [Status.OK]
    assert server.log[0].body == large


def test_a_certificate_that_is_not_trusted_gets_no_request(authority: Authority) -> None:
    with secure_server("", authority) as (server, url):
        offered = send(planned([0]), url)
    assert statuses(offered) == [Status.DISCONNECTED]
    assert "cannot connect: the certificate is not accepted" in offered.errors[0]
    assert offered.records[0].sent_ns is None
    assert server.log == []


def test_a_certificate_of_another_host_gets_no_request(trusted: Authority) -> None:
    with secure_server("", trusted, "other.example") as (server, url):
        offered = send(planned([0]), url)
    assert statuses(offered) == [Status.DISCONNECTED]
    assert server.log == []


def test_tls_asked_of_a_server_without_it_is_a_disconnection() -> None:
    def answers(accepted: socket.socket, _: int) -> None:
        accepted.recv(65536)
        accepted.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        accepted.recv(1)

    with scripted_socket(answers) as url:
        offered = send(planned([0]), url.replace("http:", "https:"))
    assert statuses(offered) == [Status.DISCONNECTED]
    assert "TLS failed: " in offered.errors[0]


def test_a_server_that_leaves_in_the_handshake_is_a_disconnection() -> None:
    def answers(accepted: socket.socket, _: int) -> None:
        accepted.recv(65536)

    with scripted_socket(answers) as url:
        offered = send(planned([0]), url.replace("http:", "https:"))
    assert statuses(offered) == [Status.DISCONNECTED]
    assert "closed during the TLS handshake" in offered.errors[0]


def test_a_server_that_says_nothing_in_the_handshake_is_a_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answers(accepted: socket.socket, _: int) -> None:
        while accepted.recv(65536):
            pass

    monkeypatch.setattr(pool_module, "_PRECONNECT_NS", 0)
    with scripted_socket(answers) as url:
        offered = send(planned([0]), url.replace("http:", "https:"), timeout_ms=100)
    assert statuses(offered) == [Status.TIMED_OUT]
    assert offered.records[0].sent_ns is None


def test_a_key_is_sent_and_what_repeats_it_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", KEY)
    heads: list[bytes] = []

    def answers(accepted: socket.socket, _: int) -> None:
        heads.append(accepted.recv(65536))
        told = heads[-1].partition(b"Authorization: ")[2].partition(b"\r\n")[0]
        text = b'{"error": {"message": "wrong: %s"}}' % told
        accepted.sendall(b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
        accepted.recv(1)

    with scripted_socket(answers) as url:
        offered = send(planned([0]), url, key="ENGINE_KEY")
    assert b"\r\nAuthorization: Bearer %s\r\n" % KEY.encode() in heads[0]
    assert offered.errors == ("1 x HTTP 401: wrong: Bearer (key)",)
    assert KEY not in repr(offered)


def test_no_key_is_sent_where_none_is_named() -> None:
    heads: list[bytes] = []

    def answers(accepted: socket.socket, _: int) -> None:
        heads.append(accepted.recv(65536))

    with scripted_socket(answers) as url:
        send(planned([0]), url)
    assert b"authorization" not in heads[0].lower()


def test_a_variable_that_is_not_set_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENGINE_KEY", raising=False)
    with pytest.raises(UsageError, match="ENGINE_KEY"):
        send(planned([0]), "http://127.0.0.1:9", key="ENGINE_KEY")


# Open loop.


def test_a11_requests_are_sent_when_due_whatever_became_of_the_others() -> None:
    def script_of(number: int) -> Script:
        return named("hang:1" if number % 2 == 0 else "", QUICK)

    offered, truth = serve(script_of, planned([0, 5, 10, 15, 20, 25]), timeout_ms=400)
    by_row = dict(enumerate(statuses(offered)))
    assert sorted(by_row.values()) == [Status.OK] * 3 + [Status.TIMED_OUT] * 3
    hung_until = min(r.end_ns for r in offered.records if r.status is Status.TIMED_OUT)
    assert all((r.sent_ns or 0) < hung_until for r in offered.records)
    assert len(truth) == 6


def test_a11_times_count_from_when_a_request_was_due_and_not_from_when_it_was_sent() -> None:
    offered, _ = serve("", planned([0, 0, 0, 0]))
    assert all((r.sent_ns or -1) >= r.due_ns == 0 for r in offered.records)
    assert all(r.first_ns is not None and r.first_ns >= 4 * MS for r in offered.records)


def test_records_come_in_the_order_of_the_plan_whatever_order_it_was_given_in() -> None:
    plan = planned([0, 5, 10])
    offered, _ = serve("", plan[::-1])
    assert [record.row for record in offered.records] == [0, 1, 2]


def test_an_empty_plan_is_an_empty_trial() -> None:
    offered = send([], "http://127.0.0.1:9")
    assert offered.records == ()


# Watching and stopping.


def test_the_watcher_sees_each_record_once_and_what_is_open_is_known_until_its_end() -> None:
    ended: list[RequestRecord] = []
    seen: list[tuple[int, Sequence[RequestRecord]]] = []

    def watch(now_ns: int, new: Sequence[RequestRecord], still: Sequence[RequestRecord]) -> bool:
        ended.extend(new)
        seen.append((now_ns, still))
        assert not {r.row for r in ended} & {r.row for r in still}
        return len(ended) == 2 and bool(still)

    def script_of(number: int) -> Script:
        return QUICK if number < 2 else Script(ttft_ms=60_000)

    offered, _ = serve(script_of, planned([0, 20, 40], 8), watch=watch)
    final = {record.row: record for record in offered.records}
    assert len({record.row for record in ended}) == len(ended) == 2
    assert all(record == final[record.row] for record in ended)
    assert any(still for _, still in seen)
    for now_ns, still in seen:
        for record in still:
            assert record.status is Status.CENSORED
            assert record.due_ns <= record.end_ns <= now_ns
            if record.first_ns is None:
                # Nothing arrived before end_ns that the watcher was not told.
                first_ns = final[record.row].first_ns
                assert first_ns is None or first_ns >= record.end_ns


def test_the_watcher_sees_more_open_requests_than_one_pass_looks_at() -> None:
    most = [0]

    def watch(_: int, __: Sequence[RequestRecord], still: Sequence[RequestRecord]) -> bool:
        most[0] = max(most[0], len(still))
        return most[0] == 50

    offered, _ = serve(Script(ttft_ms=60_000), planned([0] * 50), watch=watch)
    assert most == [50]
    assert statuses(offered) == [Status.CENSORED] * 50


def test_a_watcher_that_stops_the_trial_censors_what_is_open_and_drops_what_is_not_due() -> None:
    def watch(_: int, __: Sequence[RequestRecord], still: Sequence[RequestRecord]) -> bool:
        return any(record.events >= 2 for record in still)

    plan = planned([0, 1, 100_000], asked=400)  # open until they are stopped
    offered, truth = serve(Script(ttft_ms=4, interval_ms=30), plan, watch=watch)
    assert [r.row for r in offered.records] == [0, 1]
    assert statuses(offered) == [Status.CENSORED] * 2
    assert offered.records[0].first_ns is not None
    assert [served.ended for served in truth] == ["client gone"] * 2


def test_what_came_while_the_watcher_looked_is_not_taken_for_late() -> None:
    with SimulatedServer(Script(ttft_ms=30, interval_ms=1)) as server:

        def watch(*_: object) -> bool:
            while not (server.log and server.log[0].sent):
                pass  # a token comes, and waits in the socket
            return True

        offered = send(planned([0]), server.url, watch=watch)
        (served,) = server.log
    (record,) = offered.records
    assert (record.status, record.first_ns) == (Status.CENSORED, None)
    assert record.end_ns <= served.sent[0][0].monotonic_ns - offered.epoch_ns


def test_what_waits_long_to_be_parsed_is_parsed_though_sockets_have_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    poll = client_module._Trial._poll
    monkeypatch.setattr(client_module._Trial, "_poll", lambda trial: poll(trial) or True)
    monkeypatch.setattr(client_module, "_PARSE_LATEST_NS", 0)
    ended: list[RequestRecord] = []

    def watch(_: int, new: Sequence[RequestRecord], __: Sequence[RequestRecord]) -> bool:
        ended.extend(new)
        return False

    serve("", planned([0, 100]), watch=watch)
    assert [record.row for record in ended] == [0]


def test_what_is_read_faster_than_it_is_parsed_goes_through_a_file_and_is_all_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "_PARSE_NS", -1)  # nothing is parsed before the end
    monkeypatch.setattr(client_module, "ReadLog", partial(ReadLog, memory_reads=3))
    offered, truth = serve("", planned([0, 2, 4, 6], 30))
    assert statuses(offered) == [Status.OK] * 4
    assert [record.events for record in offered.records] == [30] * 4
    assert len(truth) == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interruption_closes_every_connection_and_goes_on(error: type[BaseException]) -> None:
    def watch(*_: object) -> bool:
        raise error

    with SimulatedServer(named("hang:1", QUICK)) as server:
        with pytest.raises(error):
            send(planned([0, 1, 2]), server.url, watch=watch)
        server.wait_until_unused()
    assert gc.isenabled()
    assert {served.ended for served in server.log} <= {"client gone"}


def test_a_clock_that_is_set_during_the_trial_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    if not connection_module._KERNEL_STAMPS:
        pytest.skip("no kernel stamps here")
    shift = [0]

    def watch(*_: object) -> bool:
        shift[0] = 5 * MS
        return False

    true_time = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: true_time() + shift[0])
    offered, _ = serve("", planned([0]), watch=watch)
    assert abs(offered.clock_step_ns - 5 * MS) < MS


def test_a_clock_that_nobody_sets_has_no_step() -> None:
    offered, _ = serve("", planned([0]))
    assert offered.clock_step_ns < MS


def test_a_host_without_an_address_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="has no address"):
        send(planned([0]), "http://host.invalid:1")
