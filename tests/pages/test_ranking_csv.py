from __future__ import annotations

import csv
import io
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pages.conftest import Make
from tests.support.runs import small_spec
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.leaderboard import COLUMNS, rank
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages.ranking_csv import encode, pieces


def read(lines: Iterable[str]) -> list[list[str]]:
    return list(csv.reader(io.StringIO("".join(lines), newline="")))


FORMULAS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    ' =HYPERLINK("https://x")',
    "=cmd|' /C calc'!A0",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_f16_a_cell_that_begins_like_a_formula_is_a_text(text: str) -> None:
    assert read(encode([["a", text]])) == [["a", f"'{text}"]]


def test_f16_numbers_are_numbers_also_below_zero_and_what_is_missing_is_empty() -> None:
    assert [*encode([["x", -1.5, 3, None]])] == ['"x",-1.5,3,\r\n']


@given(st.lists(st.lists(st.text(), min_size=1, max_size=4), min_size=1, max_size=4))
def test_f16_no_cell_of_any_text_is_a_formula_and_every_reader_finds_the_same_cells(
    rows: list[list[str]],
) -> None:
    found = read(encode(rows))
    assert [len(row) for row in found] == [len(row) for row in rows]
    for row, texts in zip(found, rows, strict=True):
        for cell, text in zip(row, texts, strict=True):
            assert cell in {text, f"'{text}"}
            assert cell.lstrip(" ")[:1] not in {"=", "+", "-", "@", "\t", "\r", "\n"}


def test_every_row_is_there_with_its_numbers_and_its_reasons(
    demo: Configuration, make: Make
) -> None:
    hostile = make(spec=small_spec(title="=1+1", setup__host_kind="other"))
    board = rank([demo, hostile])
    urls = {c.id: f"reports/{c.id}.html" for c in (demo, hostile)}
    head, *rows = read(pieces(board, urls))
    listed = [row for section in board.sections for row in section.rows]
    assert len(rows) == len(listed) == 2
    for told, row in zip(
        (dict(zip(head, line, strict=True)) for line in rows), listed, strict=True
    ):
        assert told["Configuration"].removeprefix("'") == row.title
        assert told["Page"] == urls[row.configuration]
        assert told["Best rank"] == ""
        cell = row.cells[COLUMNS.index("goodput")]
        column = f"{METRICS['goodput'].label} ({METRICS['goodput'].unit})"
        assert told[column] == ("" if cell.value is None else repr(cell.value))
        assert all(why.text in told["Unranked because"] for why in row.excluded)
    assert "'=1+1" in {row[head.index("Configuration")] for row in rows}
