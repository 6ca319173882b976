"""Tests of records: one line per request, and what is refused of one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence.power import PowerLog, encode_power
from tokenwatt_site.evidence.records import (
    RequestRecord,
    RequestWriter,
    Status,
    decode_requests,
    encode_requests,
)

times = st.integers(0, 2**50)
counts = st.integers(0, 10**6)


@st.composite
def request_records(draw: st.DrawFn) -> RequestRecord:
    dialled, first = draw(st.none() | times), draw(st.none() | times)
    return RequestRecord(
        repeat=draw(st.integers(1, 3)),
        trial=draw(st.integers(0, 3)),
        row=draw(counts),
        due_ns=draw(times),
        dialled_ns=dialled,
        connected_ns=None if dialled is None else draw(st.none() | times),
        sent_ns=draw(st.none() | times),
        first_ns=first,
        last_ns=None if first is None else draw(st.none() | times),
        end_ns=draw(times),
        prompt_asked=draw(counts),
        prompt_tokens=draw(st.none() | counts),
        cached_tokens=draw(st.none() | counts),
        output_asked=draw(counts),
        output_tokens=draw(st.none() | counts),
        first_tokens=draw(st.none() | counts),
        events=draw(counts),
        uncertainty_ns=draw(times),
        status=draw(st.sampled_from(Status)),
    )


ONE = RequestRecord(
    1, 0, 0, 5, None, None, 6, 7, 9, 10, 32, 32, 0, 3, 3, 1, 3, 100, Status.OK
)  # fmt: skip


@given(st.lists(request_records(), max_size=8))
def test_request_records_come_back_as_they_were(records: list[RequestRecord]) -> None:
    data = encode_requests(records)
    assert decode_requests(data, source="x") == tuple(records)
    assert data.count(b"\n") == len(records) + 1


@given(st.lists(request_records(), max_size=8), st.integers(0, 8))
def test_records_written_as_they_come_are_the_same_bytes(
    records: list[RequestRecord], cut: int
) -> None:
    writer = RequestWriter()
    parts = (writer.header(), writer.lines(records[:cut]), writer.lines(records[cut:]))
    assert b"".join(parts) == encode_requests(records)


@given(st.binary(max_size=60), st.integers(0, 400), st.integers(1, 255))
def test_damaged_records_are_refused_or_read_never_a_crash(tail: bytes, at: int, flip: int) -> None:
    raw = bytearray(encode_requests([ONE]))
    raw[at % len(raw)] ^= flip
    for data in (bytes(raw), encode_requests([ONE]) + tail, tail):
        try:
            decode_requests(data, source="x")
        except InputError:
            continue


def test_the_delta_of_the_due_time_starts_again_with_each_trial() -> None:
    second = RequestRecord(
        1, 1, 0, 4, 4, None, None, None, None, 9, 32, None, None, 3, None, None, 0, 0,
        Status.TIMED_OUT,
    )  # fmt: skip
    rows = [json.loads(line) for line in encode_requests([ONE, second]).splitlines()[1:]]
    assert [row[3] for row in rows] == [5, 4]


def changed(line: int, change: Any) -> bytes:
    """Encoded records with one line replaced by `change(old value)`."""
    lines = encode_requests([ONE, ONE]).split(b"\n")
    lines[line] = json.dumps(change(json.loads(lines[line]))).encode()
    return b"\n".join(lines)


BAD_RECORDS = {
    "empty": b"",
    "no_header": b"[1]\n",
    "cut": encode_requests([ONE])[:-1],
    "blank_line": encode_requests([ONE]) + b"\n",
    "power": encode_power(PowerLog("nvml", "gpu", 10**9, None, (), ())),
    "other_format": changed(0, lambda h: {**h, "format": "tokenwatt/requests/3"}),
    "other_columns": changed(0, lambda h: {**h, "columns": h["columns"][::-1]}),
    "more_in_the_header": changed(0, lambda h: {**h, "more": 1}),
    "column_missing": changed(1, lambda r: r[:-1]),
    "column_more": changed(1, lambda r: [*r, 0]),
    "float": changed(1, lambda r: [*r[:3], 5.5, *r[4:]]),
    "bool": changed(1, lambda r: [True, *r[1:]]),
    "text": changed(1, lambda r: ["1", *r[1:]]),
    "null_where_none_may_be": changed(1, lambda r: [None, *r[1:]]),
    "object": changed(1, lambda r: {"row": r}),
    "unknown_status": changed(2, lambda r: [*r[:-1], 9]),
    "last_without_first": changed(2, lambda r: [*r[:7], None, 2, *r[9:]]),
    "connected_without_dialled": changed(2, lambda r: [*r[:4], None, 2, *r[6:]]),
    "huge": changed(1, lambda r: [*r[:3], 2**53, *r[4:]]),
}


@pytest.mark.parametrize("data", BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_records_of_another_form_are_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        decode_requests(data, source="x")
