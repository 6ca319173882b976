"""Configurations side by side: what may be compared stands in one section, all of it listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.eligibility import Exclusion
from tokenwatt_site.statistics import rank_ranges

COLUMNS = (
    "long_run_goodput",
    "goodput",
    "boundary_rate",
    "ttft",
    "tpot",
    "tokens_per_joule",
    "board_power",
    "mbu",
    "accuracy",
)
"""Keys of the metric registry, in the order of the columns; the first is what is ranked by."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of one configuration over `n` launches; see `run.MetricClaim` for low and high.

    `value` is None where there is none, and `reason` says why.
    """

    key: str
    label: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class Rank:
    """The best and the worst rank that the intervals allow. `tied`: another has the same best."""

    best: int
    worst: int
    tied: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration. `cells` follow COLUMNS. `rank` is None exactly where `excluded` is not."""

    configuration: str
    title: str
    simulated: bool
    cells: tuple[Cell, ...]
    rank: Rank | None
    excluded: tuple[Exclusion, ...]

    @property
    def goodputs(self) -> tuple[Cell, ...]:
        """In the long run, by which rows rank, and as it was measured."""
        return self.cells[:2]


@dataclass(frozen=True, slots=True)
class Section:
    """Rows that answer the same question: one workload, SLO, power scope and class of machine.

    What was simulated stands apart from what was measured.
    """

    workload: str
    workload_hash: str
    slo: tuple[str, ...]
    power_scope: str
    cpu: bool
    simulated: bool
    rows: tuple[Row, ...]

    @property
    def ranked(self) -> int:
        return sum(row.rank is not None for row in self.rows)


@dataclass(frozen=True, slots=True)
class Leaderboard:
    sections: tuple[Section, ...]


def cells(configuration: Configuration) -> tuple[Cell, ...]:
    """Return the numbers of a configuration, as COLUMNS name them."""
    return tuple(_cell(configuration, key) for key in COLUMNS)


def rank(
    configurations: Iterable[Configuration],
    told: Callable[[Configuration], tuple[Cell, ...]] = cells,
) -> Leaderboard:
    """Place every configuration in its section; rank those that `eligibility` lets rank.

    Ranks are ranges from the intervals of the mean long-run goodput (DESIGN 6): one that cannot be
    told from another shares its ranks. Ranked rows come first, by best rank and then name; then the
    others, by long-run goodput; then those that were only measured, by that; the rest last. Of the
    sections those that were measured come first, by how many rows rank, then by how many have a
    goodput, then by how many are there.

    Args:
        configurations: what is placed.
        told: gives what `cells` does, as whoever has thousands of them kept it.
    """
    members: dict[_Question, list[Configuration]] = {}
    for configuration in configurations:
        setup = configuration.setup
        slo = tuple(f"{o.label} at most {o.limit_ms:g} ms" for o in setup.slo)
        workload, scope = setup.workload, setup.power.scope
        kind = (setup.is_cpu, configuration.simulated)
        question = (workload.name, workload.hash, slo, scope, *kind)
        members.setdefault(question, []).append(configuration)
    sections = [Section(*question, _rows(members[question], told)) for question in sorted(members)]
    return Leaderboard(tuple(sorted(sections, key=_weight)))


_Question: TypeAlias = tuple[str, str, tuple[str, ...], str, bool, bool]


def _weight(section: Section) -> tuple[bool, int, int, int]:
    told = sum(any(cell.value is not None for cell in row.goodputs) for row in section.rows)
    return section.simulated, -section.ranked, -told, -len(section.rows)


def _rows(
    configurations: Sequence[Configuration], told: Callable[[Configuration], tuple[Cell, ...]]
) -> tuple[Row, ...]:
    excluded = [configuration.exclusions for configuration in configurations]
    numbers = [told(configuration) for configuration in configurations]
    eligible = [i for i, why in enumerate(excluded) if not why]
    ranks = dict(zip(eligible, _ranks([numbers[i][0] for i in eligible]), strict=True))
    rows = [
        Row(
            configuration=configuration.id,
            title=configuration.title,
            simulated=configuration.simulated,
            cells=numbers[i],
            rank=ranks.get(i),
            excluded=excluded[i],
        )
        for i, configuration in enumerate(configurations)
    ]
    return tuple(sorted(rows, key=_place))


def _ranks(cells: Sequence[Cell]) -> list[Rank]:
    ranges = rank_ranges([_interval(cell) for cell in cells])
    best = Counter(low for low, _ in ranges)
    return [Rank(low, high, best[low] > 1) for low, high in ranges]


def _interval(cell: Cell) -> tuple[float, float]:
    if cell.low is None or cell.high is None:
        # Without an interval nothing can be told apart from it.
        return float("-inf"), float("inf")
    return cell.low, cell.high


def _place(row: Row) -> tuple[int, float, str, str]:
    name = row.title.casefold()
    if row.rank is not None:
        return 0, row.rank.best, name, row.configuration
    for group, cell in enumerate(row.goodputs, start=1):
        if cell.value is not None:
            return group, -cell.value, name, row.configuration
    return 3, 0, name, row.configuration


def _cell(configuration: Configuration, key: str) -> Cell:
    # Of several quantiles the SLO's own comes first in the claims.
    claim = configuration.claims.metric(key)
    return Cell(
        key=key,
        label=claim.label,
        value=claim.value,
        low=claim.low,
        high=claim.high,
        n=len(claim.repeats),
        reason=claim.reason,
    )
