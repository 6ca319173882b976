"""What one number costs in another: the rows of a section that no other beats in both.

The page draws them with a script, by the same rule; what stands here is read without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tokenwatt_site.pages.unranked import GATE_WORDS

X_AXES = ("interactivity", "ttft", "tpot")
Y_AXES = (
    "tokens_per_joule",
    "goodput_per_card",
    "measured_goodput_per_card",
    "long_run_goodput",
    "goodput",
)
"""Columns of the catalogue that may be an axis, the one to begin with first."""

_NEVER = frozenset({"unpublished", "withdrawn", "superseded", "physics"})
FAILED = GATE_WORDS["failed"]
"""The tag of a row whose answers are wrong."""

RowData: TypeAlias = Mapping[str, Any]


def axes(rows: Sequence[RowData]) -> tuple[str, str] | None:
    """Return the columns to begin with; None: no row has two.

    They are the first two that at least half of the rows have, else the two that the most have.
    """
    half = (len(rows) + 1) // 2

    def placed(pair: tuple[str, str]) -> int:
        return min(half, sum(_has(row, *pair) for row in rows))

    pair = max(((x, y) for x in X_AXES for y in Y_AXES), key=placed)
    return pair if placed(pair) else None


def frontier(
    rows: Sequence[RowData], x: str, y: str, better: Mapping[str, str]
) -> tuple[RowData, ...]:
    """Return the rows that no other beats in one number without being beaten in the other.

    Where a row ranks, only those that do are asked. Else those are left out that were taken back,
    that physics forbids or whose answers are wrong. The best in `x` comes first.

    Args:
        rows: what is shown, of one section.
        x: a column.
        y: another.
        better: column -> "higher" or "lower".
    """
    asked = [row for row in rows if _has(row, x, y)]
    if any(row["rank"] for row in rows):
        asked = [row for row in asked if row["rank"]]
    else:
        asked = [row for row in asked if not _stands_against(row)]
    signs = [1 if better[key] == "higher" else -1 for key in (x, y)]

    def place(row: RowData) -> tuple[float, float]:
        a, b = (sign * row["cells"][key]["value"] for sign, key in zip(signs, (x, y), strict=True))
        return a, b

    found: list[RowData] = []
    best, last = float("-inf"), None
    for row in sorted(asked, key=lambda row: [-number for number in place(row)]):
        here = place(row)
        if here[1] > best or here == last:
            found.append(row)
            best, last = here[1], here
    return tuple(found)


def _has(row: RowData, x: str, y: str) -> bool:
    return all(row["cells"][key]["value"] is not None for key in (x, y))


def _stands_against(row: RowData) -> bool:
    return any(code in _NEVER or tag == FAILED for code, _, tag in row["excluded"])
