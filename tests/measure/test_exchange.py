from __future__ import annotations

import pytest

from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.measure.exchange import Exchange, PlannedRequest

MS = 1_000_000
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def exchange(asked: int = 2) -> Exchange:
    made = Exchange(
        7, PlannedRequest(row=4, due_ns=10 * MS, body=b"{}", prompt_asked=3, output_asked=asked)
    )
    made.sent_ns = 11 * MS
    return made


def take(one: Exchange, stamp_ns: int, data: bytes) -> bool:
    body = one.framing.feed(data)
    if body:
        one.parse(stamp_ns, 1, 9, body)
    return one.framing.over


def concluded(one: Exchange) -> RequestRecord:
    return one.conclude(repeat=1, trial=2)[1]


def chunk(*events: str) -> bytes:
    data = "".join(f"data: {event}\n\n" for event in events).encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


PIECE = '{"choices":[{"text":"x"}]}'
USAGE = '{"choices":[],"usage":{"completion_tokens":2,"prompt_tokens":3}}'


def test_a_whole_stream_becomes_a_record() -> None:
    one = exchange()
    assert not take(one, 20 * MS, HEAD + chunk(PIECE))
    assert not take(one, 30 * MS, chunk(PIECE, USAGE, "[DONE]"))
    assert take(one, 31 * MS, END)
    one.fate, one.end_ns = Status.OK, 31 * MS
    message, record = one.conclude(repeat=1, trial=2)
    assert (message, one.record) == ("", record)
    assert (record.repeat, record.trial, record.row, record.status) == (1, 2, 4, Status.OK)
    assert (record.due_ns, record.sent_ns) == (10 * MS, 11 * MS)
    assert (record.first_ns, record.last_ns, record.end_ns) == (20 * MS, 30 * MS, 31 * MS)
    assert (record.first_tokens, record.events, record.output_tokens) == (1, 2, 2)
    assert (record.prompt_tokens, record.uncertainty_ns) == (3, 1)


def test_a_snapshot_is_what_was_parsed_so_far_and_undecided() -> None:
    one = exchange()
    take(one, 20 * MS, HEAD + chunk(PIECE))
    snapshot = one.snapshot(1, 1, known_ns=30 * MS)
    assert (snapshot.status, snapshot.events) == (Status.CENSORED, 1)
    assert (snapshot.first_ns, snapshot.end_ns) == (20 * MS, 30 * MS)
    assert one.record is None


def test_what_was_sent_after_all_was_read_is_known_until_it_was_sent() -> None:
    one = exchange()
    one.sent_ns = 40 * MS
    assert one.snapshot(1, 1, known_ns=30 * MS).end_ns == 40 * MS


def test_a_connection_that_breaks_after_the_end_mark_takes_nothing_away() -> None:
    one = exchange()
    take(one, 20 * MS, HEAD + chunk(PIECE, USAGE, "[DONE]"))
    one.fate, one.end_ns = Status.DISCONNECTED, 21 * MS
    assert concluded(one).status is Status.OK


def test_an_error_in_the_stream_outweighs_how_the_connection_ended() -> None:
    one = exchange()
    take(one, 20 * MS, HEAD + chunk(PIECE, '{"error": {"message": "out of memory"}}'))
    one.fate, one.end_ns = Status.TIMED_OUT, 90 * MS
    message, record = one.conclude(1, 1)
    assert (message, record.status) == ("out of memory", Status.STREAM_ERROR)


def test_a_plain_answer_with_status_200_is_a_stream_error() -> None:
    one = exchange()
    body = b'{"error": {"message": "no stream here"}}'
    assert take(one, 20 * MS, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    one.fate, one.end_ns = Status.OK, 20 * MS
    message, record = one.conclude(1, 1)
    assert (message, record.status) == ("no stream here", Status.STREAM_ERROR)


def test_the_end_is_never_before_the_schedule_the_send_or_the_last_token() -> None:
    one = exchange()
    one.fate, one.end_ns = Status.DISCONNECTED, 5 * MS
    assert concluded(one).end_ns == 11 * MS
    take(one, 20 * MS, HEAD + chunk(PIECE))
    assert concluded(one).end_ns == 20 * MS
    unsent = exchange()
    unsent.sent_ns, unsent.fate, unsent.end_ns = None, Status.DISCONNECTED, 5 * MS
    assert concluded(unsent).end_ns == 10 * MS


def answered(status: int, headers: str, body: bytes) -> tuple[Status, str]:
    one = exchange()
    head = f"HTTP/1.1 {status} X\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    assert take(one, 20 * MS, head.encode() + body)
    one.fate, one.end_ns = Status.OK, 20 * MS
    message, record = one.conclude(1, 1)
    return record.status, message


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
    take(one, 20 * MS, HEAD + chunk(PIECE, PIECE, PIECE, USAGE, "[DONE]") + END)
    one.fate, one.end_ns = Status.OK, 21 * MS
    message, record = one.conclude(1, 1)
    assert message == "the engine counts 2 tokens in 3 events with tokens"
    assert (record.status, record.output_tokens) == (Status.OK, 2)


def test_an_answer_in_one_event_has_its_tokens_also_when_the_connection_then_breaks() -> None:
    one = exchange()
    take(one, 20 * MS, HEAD + chunk(PIECE, USAGE, "[DONE]"))
    one.fate, one.end_ns = Status.DISCONNECTED, 21 * MS
    assert concluded(one).first_tokens == 2


@pytest.mark.parametrize("fate", [Status.OK, Status.DISCONNECTED, Status.CENSORED])
def test_the_text_is_there_of_a_whole_answer_that_was_to_be_kept(fate: Status) -> None:
    for keeps in (True, False):
        planned = PlannedRequest(4, 0, b"{}", 3, 2, keep_text=keeps)
        one = Exchange(0, planned)
        end = [USAGE, "[DONE]"] if fate is Status.OK else []
        take(one, 20 * MS, HEAD + chunk(PIECE, PIECE, *end))
        assert one.text is None
        one.fate, one.end_ns = fate, 21 * MS
        assert concluded(one).status is fate
        assert one.text == ("xx" if keeps and fate is Status.OK else None)


def test_an_answer_that_is_short_has_no_text() -> None:
    one = Exchange(0, PlannedRequest(4, 0, b"{}", 3, 9, keep_text=True))
    take(one, 20 * MS, HEAD + chunk(PIECE, USAGE, "[DONE]"))
    one.fate, one.end_ns = Status.OK, 21 * MS
    assert (concluded(one).status, one.text) == (Status.SHORT_OUTPUT, None)
