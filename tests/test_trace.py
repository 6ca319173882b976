"""A trace is read exactly or refused with line, field, found and expected."""

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import a_trace
from tokenwatt_site import trace as module
from tokenwatt_site.errors import InputError
from tokenwatt_site.trace import MAX_TRACE_BYTES, TraceLine, encode, parse

requests = st.lists(
    st.tuples(st.integers(0, 10**12), st.integers(1, 10_000_000), st.integers(1, 10_000_000)),
    min_size=1,
    max_size=30,
).map(
    lambda steps: [
        TraceLine(sum(gap for gap, _, _ in steps[: i + 1]) - steps[0][0], given, asked)
        for i, (_, given, asked) in enumerate(steps)
    ]
)


def several(found):
    """At least two lines, the last later than the first."""
    return [*found, found[-1]._replace(arrival_ns=found[-1].arrival_ns + 1)]


@given(requests.map(several))
def test_what_is_encoded_reads_back_equal_to_the_nanosecond(found):
    read = parse(encode(found), source="t")
    assert list(read.requests) == found
    assert encode(read.requests) == read.data


@given(requests.map(several), st.integers(1, 31), st.integers(0, 30))
def test_gaps_are_the_differences_of_exact_scaled_arrivals_in_any_part(found, count, start):
    read = parse(encode(found), source="t")
    first, last = sorted((start % len(found), count % len(found)))
    span = found[last].arrival_ns - found[first].arrival_ns
    assert (read.pace(range(first, last + 1)) is None) == (span == 0)
    if span == 0:
        return
    mean = Fraction(span, last - first)
    assert read.pace(range(first, last + 1)) == Fraction(read.duration_ns, len(found) - 1) / mean
    naive, before = [], 0
    for request in found:
        at = math.floor(Fraction(request.arrival_ns) / mean * 1000)
        naive.append(at - before)
        before = at
    part = range(len(found))[min(start, len(found) - 1) :][: max(1, count)]
    gaps = read.gaps(1000, part, range(first, last + 1))
    assert list(gaps) == [0, *(naive[line] for line in part[1:])]
    within = sum(naive[first + 1 : last + 1])
    assert abs(within - 1000 * (last - first)) <= 1


@given(requests.map(several))
def test_lengths_are_order_statistics_of_all_lines(found):
    read = parse(encode(found), source="t")
    for field in ("input_tokens", "output_tokens"):
        values = sorted(getattr(request, field) for request in found)
        told = read.lengths(field)
        assert told.median == values[math.ceil(Fraction(1, 2) * len(values)) - 1]
        assert told.p90 == values[math.ceil(Fraction(9, 10) * len(values)) - 1]
        assert (told.min, told.max) == (values[0], values[-1])


def test_the_mean_rate_is_that_of_the_gaps():
    found = parse(
        encode([TraceLine(0, 1, 1), TraceLine(1, 1, 1), TraceLine(4 * 10**9, 1, 1)]), source="t"
    )
    assert found.mean_rate == 0.5


def line(**changes):
    value = {"arrival_s": 0, "input_tokens": 5, "output_tokens": 6} | changes
    return (
        json.dumps({key: item for key, item in value.items() if item is not ...}).encode() + b"\n"
    )


REFUSED = {
    "empty": (b"", "does not end with a line feed"),
    "one line": (line(), "another number of lines"),
    "cut": (line() + line(arrival_s=1)[:-1], "does not end with a line feed"),
    "blank line": (line() + b"\n" + line(arrival_s=1), "2: is not valid JSON"),
    "no JSON": (line() + b"{]\n", "t:2: is not valid JSON"),
    "an array": (line() + b"[1,2,3]\n", "2: does not have the fields of a trace; found list"),
    "a field too few": (
        line() + line(output_tokens=...),
        "found arrival_s, input_tokens; expected",
    ),
    "a field too many": (line() + line(hash_ids=[1]), "does not have the fields"),
    "a key twice": (line() + b'{"arrival_s":1,"arrival_s":2}\n', "twice"),
    "NaN": (line() + b'{"arrival_s":NaN,"input_tokens":1,"output_tokens":1}\n', "NaN"),
    "infinite": (line() + b'{"arrival_s":1e999,"input_tokens":1,"output_tokens":1}\n', "number"),
    "huge": (line() + line(arrival_s=10**15), "t:2: arrival_s: is no time of arrival"),
    "beyond integers": (line() + line(arrival_s=2**53), "expected |integer| < 2^53"),
    "negative": (line(arrival_s=-1) + line(), "arrival_s: is no time of arrival; found -1"),
    "minus zero": (line() + b'{"arrival_s":-0,"input_tokens":1,"output_tokens":1}\n', "-0"),
    "text": (line() + line(arrival_s="1"), "arrival_s: is no time of arrival; found '1'"),
    "true": (line() + line(arrival_s=True), "arrival_s: is no time of arrival; found True"),
    "null": (line() + line(arrival_s=None), "arrival_s: is no time of arrival; found None"),
    "no tokens": (line() + line(arrival_s=1, input_tokens=0), "2: input_tokens: is no number"),
    "half a token": (line() + line(arrival_s=1, output_tokens=1.5), "output_tokens: is no number"),
    "tokens without end": (line() + line(arrival_s=1, output_tokens=10**9), "1 to 10,000,000"),
    "a true token": (line() + line(arrival_s=1, input_tokens=True), "found True"),
    "starts late": (line(arrival_s=3) + line(arrival_s=4), "t:1: arrival_s: is not the start"),
    "goes back": (
        line() + line(arrival_s=2) + line(arrival_s=1.5),
        "t:3: arrival_s: is before the line above; found 1.5; expected at least 2",
    ),
    "takes no time": (line() + line(), "no two arrivals apart"),
    "nested": (line() + b"[" * 500 + b"\n", "nested too deeply"),
    "long line": (line() + b" " * 2000 + b"\n", "too large"),
    "not UTF-8": (line() + b"\xff\n", "not UTF-8"),
    "too large": (b"x" * (MAX_TRACE_BYTES + 1), "too large; expected at most"),
    "too many lines": (b"\n" * 60_000, "found 60,000; expected 2 to 50,000"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_trace_is_refused_with_where_and_why(case):
    data, words = REFUSED[case]
    with pytest.raises(InputError) as caught:
        parse(data, source="t")
    assert words in str(caught.value)
    assert str(caught.value).startswith("t:")


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
objects = st.dictionaries(st.sampled_from(["arrival_s", "input_tokens", "output_tokens"]), values)


@given(
    st.binary(max_size=200)
    | st.lists(objects, max_size=5).map(
        lambda found: b"".join(json.dumps(item).encode() + b"\n" for item in found)
    )
)
def test_any_bytes_are_read_or_refused_and_nothing_else_happens(data):
    try:
        read = parse(data, source="t")
    except InputError:
        return
    assert read.duration_ns > 0
    assert all(request.input_tokens >= 1 for request in read.requests)


@given(st.integers(0, 10**9), st.integers(0, 255))
def test_a_flipped_byte_is_read_as_another_trace_or_refused(place, byte):
    data = bytearray(a_trace(6).data)
    data[place % len(data)] = byte
    try:
        read = parse(bytes(data), source="t")
    except InputError:
        return
    assert (read.sha256 == a_trace(6).sha256) == (bytes(data) == a_trace(6).data)


@given(st.integers(0, 10**15), st.integers(0, 3))
def test_every_nanosecond_up_to_the_cap_has_one_way_to_be_written(ns, zeros):
    text = f"{ns // 10**9}.{ns % 10**9:09d}{'0' * zeros}"
    data = line() + b'{"arrival_s":%s,"input_tokens":1,"output_tokens":1}\n' % text.encode()
    if ns == 0:
        return
    read = parse(data, source="t")
    assert read.requests[1].arrival_ns == ns
    assert parse(encode(read.requests), source="t").requests == read.requests


def test_another_byte_is_another_trace():
    one = a_trace(10)
    spaced = parse(one.data.replace(b",", b", "), source="t")
    assert spaced.requests == one.requests
    assert spaced.sha256 != one.sha256


def test_the_cap_on_lines_is_that_of_a_realisation():
    assert module.MAX_ROWS == 50_000
