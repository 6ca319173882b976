"""All rows of the ranking as a CSV file, in which no cell is a formula."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from tokenwatt_site.leaderboard import COLUMNS, Leaderboard, Row
from tokenwatt_site.metrics import METRICS

NAME = "ranking.csv"

Cell: TypeAlias = str | float | None

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def encode(rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    """Yield the lines of a CSV file (RFC 4180); texts are quoted, numbers are not, None is empty.

    A spreadsheet takes a text that begins like a formula for one and runs it; an apostrophe before
    it keeps it a text. Blanks before it do not.
    """
    return (f"{','.join(map(_cell, row))}\r\n" for row in rows)


def _cell(value: Cell) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value)
    text = f"'{value}" if value.lstrip(" ").startswith(_FORMULA) else value
    return '"{}"'.format(text.replace('"', '""'))


def pieces(leaderboard: Leaderboard, urls: Mapping[str, str]) -> Iterator[str]:
    """Yield a line of every row of every section, ranked or not, with its reasons.

    Args:
        leaderboard: the sections, their rows in order.
        urls: configuration id -> its page.
    """
    return encode(_lines(leaderboard, urls))


def _lines(leaderboard: Leaderboard, urls: Mapping[str, str]) -> Iterator[Sequence[Cell]]:
    heads = [
        f"{METRICS[key].label}{of} ({METRICS[key].unit})"
        for key in COLUMNS
        for of in ("", ", low", ", high")
    ]
    yield (
        "Workload",
        "SLO",
        "Power scope",
        "Configuration",
        "Page",
        "Best rank",
        "Worst rank",
        *heads,
        "Launches",
        "Simulated",
        "Unranked because",
    )
    for section in leaderboard.sections:
        question = (section.workload, "; ".join(section.slo), section.power_scope)
        for row in section.rows:
            yield *question, *_row(row, urls[row.configuration])


def _row(row: Row, url: str) -> Iterator[Cell]:
    yield row.title
    yield url
    yield None if row.rank is None else row.rank.best
    yield None if row.rank is None else row.rank.worst
    for cell in row.cells:
        yield from (cell.value, cell.low, cell.high)
    yield row.cells[0].n
    yield "yes" if row.simulated else "no"
    yield "; ".join(why.text for why in row.excluded)
