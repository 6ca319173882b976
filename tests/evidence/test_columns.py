"""Tests of columns: a header and rows of integers, as every file of evidence is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence import columns
from tokenwatt_site.evidence.columns import checked, decode, encode, expect, line_of

values = st.none() | st.integers(-(2**53) + 1, 2**53 - 1)


@given(st.lists(st.lists(values, max_size=6), max_size=6))
def test_header_and_rows_come_back_with_the_number_of_their_line(
    rows: list[list[int | None]],
) -> None:
    header, found = decode(encode({"format": "x"}, rows), "x")
    assert header == {"format": "x"}
    assert list(found) == list(enumerate(rows, start=2))


@given(st.binary(max_size=80))
def test_any_bytes_are_refused_or_read_never_a_crash(data: bytes) -> None:
    try:
        list(decode(data, "x")[1])
    except InputError:
        return


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]\n", b"1\n", b"\n"])
def test_what_has_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        decode(data, "x")


@pytest.mark.parametrize("row", [[1], [1, 2, 3], {"a": 1}, 5, [1, True], [1, 2.0], [None, 2]])
def test_a_row_of_another_form_is_refused_with_its_line(row: JsonValue) -> None:
    with pytest.raises(InputError, match="x:7: "):
        list(checked([(6, [1, 2]), (7, row)], 2, {1}, "x"))


def test_null_is_read_only_where_a_value_may_be_missing() -> None:
    rows = [(7, [1, None]), (8, [1, 2]), (9, [3, None])]
    assert list(checked(rows, 2, {1}, "x")) == rows


def test_a_row_is_written_without_spaces() -> None:
    assert line_of([1, None, -3]) == b"[1,null,-3]\n"


def test_another_header_is_refused_with_both() -> None:
    expect({"a": 1}, {"a": 1}, "x")
    with pytest.raises(InputError, match="another format; found"):
        expect({"a": 2}, {"a": 1}, "x")


def test_rows_in_bulk_and_rows_one_by_one_are_the_same() -> None:
    plain = [[n, None, -n] for n in range(20_000)]
    data = encode({}, plain)
    assert [row for _, row in decode(data, "x")[1]] == plain
    spaced = data.replace(b",", b", ")  # what a strict reader also takes, line by line
    assert list(decode(spaced, "x")[1]) == list(decode(data, "x")[1])


@pytest.mark.parametrize("bad", [b"[-0]", b"[01]", b"[1.0]", b"[1e3]", b"[9007199254740992]", b""])
@pytest.mark.parametrize("before", [0, 30_000])
def test_a_row_of_another_spelling_is_refused_with_its_line_wherever_it_stands(
    bad: bytes, before: int
) -> None:
    data = encode({}, [[1]] * before) + bad + b"\n"

    with pytest.raises(InputError, match=f"x:{before + 2}"):
        list(checked(decode(data, "x")[1], 1, set(), "x"))


def test_more_rows_than_are_read_are_refused_before_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columns, "MAX_ROWS", 3)
    decode(encode({}, [[1]] * 3), "x")
    with pytest.raises(InputError, match="has more rows than are read; found 4"):
        decode(encode({}, [[1]] * 4), "x")
