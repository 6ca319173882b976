"""A figure: a chart with its words, and its data as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tokenwatt_site.pages.drawing import Chart

Table: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]
"""(column names, rows)"""


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with its words and its data, or the reason why there is none.

    Exactly one of `chart` and `missing` is set. `absent` are the reasons of what a chart of several
    parts lacks. `whole` says that it is as wide as the page where others stand two side by side.
    """

    id: str
    heading: str
    lead: str
    chart: Chart | None
    missing: str | None
    note: str
    table: Table | None
    absent: tuple[str, ...] = ()
    whole: bool = False
