from __future__ import annotations

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
