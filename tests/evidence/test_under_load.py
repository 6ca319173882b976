"""Tests of under_load_log: what is compared comes back, and nobody chooses it."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.canonical import canonical_bytes, load_json
from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence import under_load as under_load_log
from tokenwatt_site.evidence.under_load import (
    SAMPLES,
    Compared,
    UnderLoadLog,
    decode_under_load,
    encode_under_load,
    sampled_rows,
)

SHA = st.integers(0, 2**256 - 1).map(lambda n: f"{n:064x}")
ONE = Compared(
    repeat=1,
    trial=2,
    row=3,
    loaded="1" * 64,
    alone="2" * 64,
    again="2" * 64,
    same_chars=40,
    chars=100,
    cached_tokens=0,
)


@st.composite
def compared(draw: st.DrawFn, repeat: int, trial: int, row: int) -> Compared:
    loaded, alone, again = (draw(st.none() | SHA) for _ in range(3))
    loaded = draw(st.sampled_from([loaded, alone]))
    chars = 0 if alone is None else draw(st.integers(0, 2**40))
    same = draw(st.integers(0, chars)) if loaded is not None and alone is not None else 0
    return Compared(
        repeat=repeat,
        trial=trial,
        row=row,
        loaded=loaded,
        alone=alone,
        again=again,
        same_chars=chars if loaded == alone and alone is not None else same,
        chars=chars,
        cached_tokens=None if alone is None else draw(st.none() | st.integers(0, 2**40)),
    )


@st.composite
def logs(draw: st.DrawFn) -> UnderLoadLog:
    number = st.integers(1, 4)
    places = draw(st.sets(st.tuples(number, number, st.integers(0, 9)), max_size=6))
    return UnderLoadLog(tuple(draw(compared(*place)) for place in sorted(places)))


@given(logs())
def test_logs_come_back_as_they_were_from_canonical_lines(log: UnderLoadLog) -> None:
    data = encode_under_load(log)
    assert decode_under_load(data, "x") == log
    for line in data.split(b"\n")[:-1]:
        assert canonical_bytes(load_json(line, source="x")) == line


HEAD = encode_under_load(UnderLoadLog(()))


def line_of(**changes: Any) -> bytes:
    return canonical_bytes(ONE.to_json() | changes) + b"\n"


WRONG = {
    "an unknown field": {"more": 1},
    "a repeat 0": {"repeat": 0},
    "a number as text": {"row": "3"},
    "no digest": {"alone": "x"},
    "more alike than there is": {"same_chars": 101},
    "alike with nothing": {"loaded": None},
    "characters of nothing": {"alone": None, "same_chars": 0},
    "cached for nothing": {"alone": None, "same_chars": 0, "chars": 0},
    "equal digests, yet not alike": {"loaded": "2" * 64},
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_what_cannot_be_so_is_refused_with_its_line(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"^x:2: "):
        decode_under_load(HEAD + line_of(**changes), "x")


@pytest.mark.parametrize(
    "line",
    [
        line_of().replace(b'"row":3', b'"row":3,"row":4'),
        line_of().replace(b'"row":3', b'"row": 3'),
        line_of().replace(b'"row":3', b'"row":NaN'),
        b"[]\n",
        b"\n",
    ],
)
def test_a_line_with_two_readings_is_refused(line: bytes) -> None:
    with pytest.raises(InputError, match=r"^x:2:"):
        decode_under_load(HEAD + line, "x")


@pytest.mark.parametrize("second", [{}, {"row": 2}, {"trial": 1, "row": 9}])
def test_lines_are_in_the_order_of_repeat_trial_and_row(second: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"^x:3: row: is not in the order"):
        decode_under_load(HEAD + line_of() + line_of(**second), "x")


def test_headers_of_another_form_and_cut_files_are_refused() -> None:
    for data in (b"", HEAD[:-1], b"{}\n", HEAD.replace(b"/1", b"/2"), b"[1]\n", b"x\n"):
        with pytest.raises(InputError):
            decode_under_load(data, "x")


def test_more_than_is_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_load_log, "MAX_COMPARED", 1)
    with pytest.raises(InputError, match="more lines than are read"):
        decode_under_load(HEAD + line_of() + line_of(row=4), "x")


@given(
    st.text("0123456789abcdef", min_size=64, max_size=64), st.integers(1, 5),
    st.integers(0, 90), st.integers(0, 90), st.sampled_from(["demo", "quick", "full"]),
)  # fmt: skip
def test_the_rows_are_those_whose_digests_come_first(
    nonce: str, repeat: int, start: int, count: int, mode: Any
) -> None:
    rows = sampled_rows(nonce, repeat, range(start, start + count), mode)
    assert len(rows) == min(SAMPLES[mode], count)
    drawn = {
        row: hashlib.sha256(f"{nonce}|{repeat}|under load|{row}".encode()).hexdigest()
        for row in range(start, start + count)
    }
    others = [drawn[row] for row in drawn if row not in rows]
    assert list(rows) == sorted(rows)
    assert all(drawn[row] < other for row in rows for other in others)
