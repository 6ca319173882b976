"""A line of the table of all numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class NumberRow:
    """One line of All numbers.

    `value` is a number as it is written, or where `kind` says so words in its place, or the reason
    why there is none. `marks` are the words of checks of physics that said something of it. `run`
    is the id of the run that the words name, where it is among the runs of this site. `place` is
    the anchor of the line: "metric-" and its key, of further quantiles their label too.
    """

    group: str
    anchor: str | None
    label: str
    value: str
    unit: str = ""
    sureness: str = ""
    against: str = ""
    kind: Literal["number", "words", "missing"] = "number"
    marks: tuple[str, ...] = ()
    run: str | None = None
    place: str | None = None
