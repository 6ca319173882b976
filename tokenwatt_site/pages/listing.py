"""What lists of thousands tell of one configuration: made while its runs are at hand, and kept.

A list needs all configurations at once, and their runs do not fit unpacked. So what a list tells of
one is made as a text, that `kept` finds again, and no list of a rebuild asks what a run holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass
from typing import Any, TypeAlias

from tokenwatt_site import leaderboard
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.leaderboard import Cell
from tokenwatt_site.pages import api, catalogue, feed
from tokenwatt_site.pages.feed import Entry
from tokenwatt_site.pages.kept import KeptPages


@dataclass(frozen=True, slots=True)
class Listed:
    """What `leaderboard.cells`, `catalogue.told`, `api.runs` and `feed.entries` give of one."""

    cells: tuple[Cell, ...]
    row: Mapping[str, Any]
    runs: tuple[dict[str, Any], ...]
    entries: tuple[Entry, ...]


class Listing:
    """What lists tell of some configurations, each as the lists ask for it."""

    def __init__(self, configurations: Iterable[Configuration], kept: KeptPages) -> None:
        """Make, or find again, what is told of each."""
        copies: _Copies = {}
        self._listed = {each.id: read(kept.text(written, each), copies) for each in configurations}

    def cells(self, configuration: Configuration) -> tuple[Cell, ...]:
        return self._listed[configuration.id].cells

    def row(self, configuration: Configuration) -> Mapping[str, Any]:
        return self._listed[configuration.id].row

    def runs(self, configuration: Configuration) -> tuple[dict[str, Any], ...]:
        return self._listed[configuration.id].runs

    def entries(self, configuration: Configuration) -> tuple[Entry, ...]:
        return self._listed[configuration.id].entries


def written(configuration: Configuration) -> str:
    """Return what lists tell of a configuration, as JSON."""
    return json.dumps(
        [
            [astuple(cell) for cell in leaderboard.cells(configuration)],
            catalogue.told(configuration),
            api.runs(configuration),
            [asdict(entry) for entry in feed.entries(configuration)],
        ]
    )


_Copies: TypeAlias = dict[object, Any]
"""Texts, and cells without a number, each by what it says."""


def read(text: str, copies: _Copies) -> Listed:
    """Return what `written` wrote.

    Args:
        text: what it returned.
        copies: what was read before, and is used again where this says the same.
    """
    cells, row, runs, entries = _shared(json.loads(text), copies)
    return Listed(
        cells=tuple(Cell(*cell) for cell in cells),
        row=row,
        runs=tuple(runs),
        entries=tuple(
            Entry(**told | {"categories": tuple(told["categories"])}) for told in entries
        ),
    )


def _shared(value: Any, copies: _Copies) -> Any:
    if isinstance(value, str):
        return copies.setdefault(value, value)
    if isinstance(value, list):
        return [_shared(item, copies) for item in value]
    if isinstance(value, dict):
        made = {_shared(key, copies): _shared(item, copies) for key, item in value.items()}
        # Most have numbers of their own; of what is missing there are few kinds.
        missing = "value" in made and made["value"] is None
        return copies.setdefault(tuple(made.items()), made) if missing else made
    return value
