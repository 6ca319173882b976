from __future__ import annotations

import pytest

from tokenwatt_site.evidence import Status
from tokenwatt_site.measure.exchange import Exchange, PlannedRequest

MS = 1_000_000
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def exchange(asked: int = 2) -> Exchange:
    made = Exchange(
        PlannedRequest(row=4, due_ns=10 * MS, body=b"{}", prompt_asked=3, output_asked=asked)
    )
    made.sent_ns = 11 * MS
    return made


def chunk(*events: str) -> bytes:
    data = "".join(f"data: {event}\n\n" for event in events).encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


PIECE = '{"choices":[{"text":"x"}]}'
USAGE = '{"choices":[],"usage":{"completion_tokens":2,"prompt_tokens":3}}'


def test_a_whole_stream_becomes_a_record() -> None:
    one = exchange()
    assert not one.take(20 * MS, 1, 9, HEAD + chunk(PIECE))
    assert not one.take(30 * MS, 1, 9, chunk(PIECE, USAGE, "[DONE]"))
    assert one.take(31 * MS, 1, 9, END)
    one.fate, one.end_ns = Status.OK, 31 * MS
    assert one.parse(99)
    assert one.conclude(repeat=1, trial=2) == ""
    record = one.snapshot(1, 2, now_ns=0)
    assert (record.repeat, record.trial, record.row, record.status) == (1, 2, 4, Status.OK)
    assert (record.due_ns, record.sent_ns) == (10 * MS, 11 * MS)
    assert (record.first_ns, record.last_ns, record.end_ns) == (20 * MS, 30 * MS, 31 * MS)
    assert (record.first_tokens, record.events, record.output_tokens) == (1, 2, 2)
    assert (record.prompt_tokens, record.uncertainty_ns) == (3, 1)


def test_parsing_in_slices_gives_the_same_as_at_once() -> None:
    one = exchange()
    one.take(20 * MS, 1, 9, HEAD + chunk(PIECE))
    one.take(30 * MS, 1, 9, chunk(PIECE))
    assert not one.parse(1)
    assert one.parse(1)
    assert one.snapshot(1, 1, now_ns=40 * MS).last_ns == 30 * MS


def test_a_snapshot_is_known_only_until_the_first_read_that_waits_to_be_parsed() -> None:
    one = exchange()
    one.take(20 * MS, 1, 9, HEAD + chunk(PIECE))
    one.take(30 * MS, 1, 9, chunk(PIECE))
    one.parse(1)
    snapshot = one.snapshot(1, 1, now_ns=50 * MS)
    assert (snapshot.status, snapshot.events) == (Status.CENSORED, 1)
    assert snapshot.end_ns == 30 * MS
    one.parse(1)
    assert one.snapshot(1, 1, now_ns=50 * MS).end_ns == 50 * MS


def test_a_connection_that_breaks_after_the_end_mark_takes_nothing_away() -> None:
    one = exchange()
    one.take(20 * MS, 1, 9, HEAD + chunk(PIECE, USAGE, "[DONE]"))
    one.fate, one.end_ns = Status.DISCONNECTED, 21 * MS
    one.parse(99)
    one.conclude(1, 1)
    assert one.snapshot(1, 1, 0).status is Status.OK


def test_an_error_in_the_stream_outweighs_how_the_connection_ended() -> None:
    one = exchange()
    one.take(20 * MS, 1, 9, HEAD + chunk(PIECE, '{"error": {"message": "out of memory"}}'))
    one.fate, one.end_ns = Status.TIMED_OUT, 90 * MS
    one.parse(99)
    assert one.conclude(1, 1) == "out of memory"
    assert one.snapshot(1, 1, 0).status is Status.STREAM_ERROR


def test_a_plain_answer_with_status_200_is_a_stream_error() -> None:
    one = exchange()
    body = b'{"error": {"message": "no stream here"}}'
    assert one.take(
        20 * MS, 1, 9, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    one.fate, one.end_ns = Status.OK, 20 * MS
    one.parse(99)
    assert one.conclude(1, 1) == "no stream here"
    assert one.snapshot(1, 1, 0).status is Status.STREAM_ERROR


def test_the_end_is_never_before_the_last_token_or_the_schedule() -> None:
    one = exchange()
    one.fate, one.end_ns = Status.DISCONNECTED, 5 * MS
    one.conclude(1, 1)
    assert one.snapshot(1, 1, 0).end_ns == 10 * MS


def answered(status: int, headers: str, body: bytes) -> tuple[Status, str]:
    one = exchange()
    head = f"HTTP/1.1 {status} X\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    assert one.take(20 * MS, 1, 9, head.encode() + body)
    one.fate, one.end_ns = Status.OK, 20 * MS
    one.parse(99)
    message = one.conclude(1, 1)
    return one.snapshot(1, 1, 0).status, message


@pytest.mark.parametrize(
    ("status", "headers", "body", "message"),
    [
        (429, "Retry-After: 7\r\n", b'{"error": "busy"}', "HTTP 429: busy: retry after 7 s"),
        (503, "retry-after: soon\r\n", b"", "HTTP 503: retry after soon"),
        (503, "", b"<html>", "HTTP 503"),
        (422, "", b'{"detail": "no such field"}', "HTTP 422: no such field"),
    ],
)
def test_a_refusal_says_what_the_engine_said_and_when_to_come_back(
    status: int, headers: str, body: bytes, message: str
) -> None:
    assert answered(status, headers, body) == (Status.HTTP_ERROR, message)


def test_a8_more_events_with_tokens_than_tokens_counted_are_flagged() -> None:
    one = exchange()
    one.take(20 * MS, 1, 9, HEAD + chunk(PIECE, PIECE, PIECE, USAGE, "[DONE]") + END)
    one.fate, one.end_ns = Status.OK, 21 * MS
    one.parse(99)
    assert one.conclude(1, 1) == "the engine counts 2 tokens in 3 events with tokens"
    record = one.snapshot(1, 1, 0)
    assert (record.status, record.output_tokens) == (Status.OK, 2)


def test_an_answer_in_one_event_has_its_tokens_also_when_the_connection_then_breaks() -> None:
    one = exchange()
    one.take(20 * MS, 1, 9, HEAD + chunk(PIECE, USAGE, "[DONE]"))
    one.fate, one.end_ns = Status.DISCONNECTED, 21 * MS
    one.parse(99)
    one.conclude(1, 1)
    assert one.snapshot(1, 1, 0).first_tokens == 2
