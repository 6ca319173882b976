"""What lists of thousands tell of one configuration: made while its runs are at hand, and kept.

A list needs all configurations at once, and their runs do not fit unpacked. So what a list tells of
one is made as a text, that `kept` finds again, and no list of a rebuild asks what a run holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass
from typing import Any

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
        self._listed = {each.id: read(kept.text(written, each)) for each in configurations}

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


def read(text: str) -> Listed:
    """Return what `written` wrote."""
    cells, row, runs, entries = json.loads(text)
    return Listed(
        cells=tuple(Cell(*cell) for cell in cells),
        row=row,
        runs=tuple(runs),
        entries=tuple(
            Entry(**told | {"categories": tuple(told["categories"])}) for told in entries
        ),
    )
