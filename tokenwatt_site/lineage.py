"""What a configuration stands next to: one field away, or on another version of its engine. Pure.

Only among those that answer the same question, which are the rows of one section of the
leaderboard. Found by what is left of a setup without a field, never pair by pair.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.comparability import flat
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.leaderboard import Leaderboard
from tokenwatt_site.spec import NOT_RECORDED

MOST_ALIKE = 6
"""Of those that differ in one field so many are named: the nearest by its value."""

MOST_VERSIONS = 12

VERSION = "engine.version"
RELEASED = frozenset({VERSION, "engine.build", "engine.image_digest", "kernel_libraries"})
"""Setup fields that another release of an engine may change."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Alike:
    """Configurations that differ from one in `field` alone, by its value; `count` with the rest."""

    field: str
    nearest: tuple[Configuration, ...]
    count: int


@dataclass(frozen=True, slots=True)
class Kin:
    """What one configuration stands next to.

    `versions` are the same setup as different releases of its engine serve it, the earliest first,
    itself among them; empty: there is one release. Further ones are only counted.
    """

    alike: tuple[Alike, ...] = ()
    versions: tuple[Configuration, ...] = ()
    earlier: int = 0
    later: int = 0

    @property
    def others(self) -> tuple[Configuration, ...]:
        """All that are named here, in no order that means anything."""
        return (*(other for alike in self.alike for other in alike.nearest), *self.versions)


NO_KIN = Kin()


def field(configuration: Configuration, path: str) -> JsonValue:
    """Return the value of one setup field, by the path that `Alike` has; None: it is absent."""
    return dict(_fields(configuration)).get(path)


def kin(board: Leaderboard, configurations: Mapping[str, Configuration]) -> dict[str, Kin]:
    """Return what each configuration stands next to; those that stand alone are left out.

    Takes time in proportion to the number of configurations.

    Args:
        board: whose sections say what answers the same question.
        configurations: by id.
    """
    found: dict[str, Kin] = {}
    for section in board.sections:
        members = [configurations[row.configuration] for row in section.rows]
        columns = _columns(members)
        alike: list[list[Alike]] = [[] for _ in members]
        for path, values in columns.items():
            if path != VERSION:
                for place, each in _alike(members, columns, path, values):
                    alike[place].append(each)
        lines = dict(_lines(members, columns))
        for place, member in enumerate(members):
            if alike[place] or place in lines:
                line = lines.get(place, NO_KIN)
                found[member.id] = Kin(tuple(alike[place]), line.versions, line.earlier, line.later)
    return found


_Columns: TypeAlias = Mapping[str, Sequence[str | None]]
"""Path of a setup field -> its value of each member, as JSON; None: it is absent."""


def _fields(configuration: Configuration) -> Iterator[tuple[str, JsonValue]]:
    for path, value in flat("setup", configuration.setup.to_json()):
        yield path.removeprefix("setup."), value


def _columns(members: Sequence[Configuration]) -> _Columns:
    """Return the fields in which any of the members differ."""
    columns: dict[str, list[str | None]] = {}
    written: dict[str, str] = {}  # one copy of what thousands have
    for place, member in enumerate(members):
        for path, value in _fields(member):
            told = json.dumps(value)
            if path not in columns:
                columns[path] = [None] * len(members)
            columns[path][place] = written.setdefault(told, told)
    return {path: values for path, values in columns.items() if len(set(values)) > 1}


def _alike(
    members: Sequence[Configuration],
    columns: _Columns,
    path: str,
    values: Sequence[str | None],
) -> Iterator[tuple[int, Alike]]:
    for places in _groups(columns, frozenset({path})):
        ordered = sorted(places, key=lambda place: (_order(values[place]), members[place].id))
        for at, place in enumerate(ordered):
            start = _start(at, len(ordered), MOST_ALIKE + 1)
            near = ordered[start : start + MOST_ALIKE + 1]
            nearest = tuple(members[other] for other in near if other != place)
            yield place, Alike(path, nearest, len(ordered) - 1)


def _lines(members: Sequence[Configuration], columns: _Columns) -> Iterator[tuple[int, Kin]]:
    """Yield the versions of each member of which there are several, as a Kin of those alone."""
    versions = columns.get(VERSION, ())
    unknown = json.dumps(NOT_RECORDED)
    for places in _groups(columns, RELEASED) if versions else ():
        known = [place for place in places if versions[place] != unknown]
        if len({versions[place] for place in known}) < 2:
            continue
        ordered = sorted(known, key=lambda place: (_order(versions[place]), members[place].id))
        for at, place in enumerate(ordered):
            start = _start(at, len(ordered), MOST_VERSIONS)
            shown = ordered[start : start + MOST_VERSIONS]
            later = len(ordered) - start - len(shown)
            yield place, Kin((), tuple(members[other] for other in shown), start, later)


def _groups(columns: _Columns, left_out: frozenset[str]) -> Iterator[list[int]]:
    """Yield the places of those that agree in every field but those left out, two or more each."""
    kept = [values for path, values in columns.items() if path not in left_out]
    groups: dict[tuple[str | None, ...], list[int]] = {}
    rows = zip(*kept, strict=True) if kept else ((),) * len(next(iter(columns.values())))
    for place, row in enumerate(rows):
        groups.setdefault(row, []).append(place)
    return (places for places in groups.values() if len(places) > 1)


def _start(at: int, length: int, most: int) -> int:
    """Return where so many of a list begin that have `at` in their middle, as far as it goes."""
    return max(0, min(at - most // 2, length - most))


def _order(told: str | None) -> tuple[int, float, tuple[tuple[int, str], ...]]:
    """Order values as a reader would: 2 before 10, 0.9.1 before 0.10.0, what is absent first."""
    if told is None:
        return 0, 0.0, ()
    value = json.loads(told)
    if isinstance(value, int | float):
        return 1, float(value), ()
    # A number of more digits is larger; words between numbers come before any number.
    parts = re.split(r"0*(\d+)", told)
    return 2, 0.0, tuple((len(p) if i % 2 else 0, p) for i, p in enumerate(parts))
