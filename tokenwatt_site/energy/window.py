"""Energy of a window from power samples, board by board.

Primary: the difference of each board's energy counter. Cross-check: the trapezoid of its power.
Both edges of the window must lie between samples of every board; nothing is extrapolated. Missing
is None with a reason, never 0.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import Literal, TypeAlias

from tokenwatt_site.evidence.power import Board, PowerLog, PowerSample
from tokenwatt_site.run import Level

MAX_GAP_PERIODS = 3
"""Samples this many periods apart still enclose something."""

RECONCILED_WITHIN = 0.05
WARN_ABOVE_LIMIT = 1.05
INVALID_ABOVE_LIMIT = 1.2
INVALID_BELOW_IDLE = 0.95
"""Of the least watts that were measured without any request; the 5% are for noise."""

MAX_AVERAGING_SHARE = 0.1
"""An instrument that averages its watts over more of a window than this is too slow for it."""

_Series: TypeAlias = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check of physics says of an energy, in words."""

    level: Level
    text: str


def gravest(findings: Sequence[Finding]) -> Finding | None:
    """Return the first that leaves no number, INVALID before withheld; None: none does."""
    refused = [f for level in ("INVALID", "withheld") for f in findings if f.level == level]
    return refused[0] if refused else None


@dataclass(frozen=True, slots=True)
class BoardEnergy:
    """Energy of one board over one window, in mJ; None where it cannot be told.

    Attributes:
        energy_mj: the counter's where there is one, else that of the watts.
        source: which of the two that is.
        longest_gap_ns: between readings that carry anything, from the one before the window to the
            one after it.
        findings: why there is no energy, or what is to be said of it.
        checked: whether counter and watts were both there, and held against each other.
    """

    energy_mj: float | None
    source: Literal["counter", "power"] | None
    longest_gap_ns: int | None
    findings: tuple[Finding, ...] = ()
    checked: bool = False


@dataclass(frozen=True, slots=True)
class WindowEnergy:
    """Energy of all boards over one window, or the reason for none: "withheld: " or "INVALID: ".

    `by_board` is in the order of the log's boards; `findings` name the board that they are of.
    """

    energy_mj: float | None
    reason: str | None
    by_board: tuple[BoardEnergy, ...] = ()
    findings: tuple[Finding, ...] = ()

    def mean_power_mw(self, length_ns: int) -> float | None:
        return None if self.energy_mj is None else self.energy_mj * 1e9 / length_ns

    @property
    def longest_gap_ns(self) -> int | None:
        """The longest of all boards; None where a board was not read on both sides."""
        gaps = [board.longest_gap_ns for board in self.by_board]
        known = [gap for gap in gaps if gap is not None]
        return max(known) if known and len(known) == len(gaps) else None


def window_energy(log: PowerLog, start_ns: int, end_ns: int, *, max_gap_ns: int) -> WindowEnergy:
    """Return the energy of the boards of `log` in [start_ns, end_ns].

    Counters and power are interpolated linearly to the edges, between the samples around each.
    Samples further apart than `max_gap_ns` enclose nothing: at an edge, and for power, which is
    nothing but its samples, anywhere in the window. Watts that are a mean over the instrument's own
    averaging time count for the middle of that time.
    """
    window = _Window(start_ns, end_ns, max_gap_ns, log.averaging_ns)
    energies = [window.energy(log.of_board(number)) for number in range(len(log.boards))]
    if limits_cover(log):
        energies = [
            _within_limit(board, energy, window)
            for board, energy in zip(log.boards, energies, strict=True)
        ]
    return _summed(log.boards, energies)


def limits_cover(log: PowerLog) -> bool:
    """Return whether the limits of the boards are of what their watts are.

    A driver enforces that of a GPU. A module has its own: one GH200 tells 700 W of its GPU and
    1,000 W of the module, whose watts hold the processor's.
    """
    return log.scope != "module"


def held_against_idle(
    log: PowerLog, energy: WindowEnergy, length_ns: int, idle_mw: Sequence[float | None]
) -> WindowEnergy:
    """Return the energy, INVALID where a board drew less under load than it did without any.

    Args:
        log: names the boards.
        energy: of a window under load.
        length_ns: of that window.
        idle_mw: the least that each board drew without a request; None: not measured.
    """

    def checked(board: BoardEnergy, least_mw: float | None) -> BoardEnergy:
        if board.energy_mj is None or not least_mw:
            return board
        share = board.energy_mj * 1e9 / length_ns / least_mw
        if share >= INVALID_BELOW_IDLE:
            return board
        return _without(board, "INVALID", f"drew {share:.2f} x what it draws without a request")

    if not energy.by_board:
        return energy
    pairs = zip(energy.by_board, idle_mw, strict=True)
    return _summed(log.boards, [checked(board, least_mw) for board, least_mw in pairs])


def _summed(boards: Sequence[Board], energies: Sequence[BoardEnergy]) -> WindowEnergy:
    findings = tuple(
        Finding(found.level, f"board {number} ({board.name}): {found.text}")
        for number, (board, energy) in enumerate(zip(boards, energies, strict=True))
        for found in energy.findings
    )
    if not boards:
        findings = (Finding("withheld", "no board was read"),)
    if (refused := gravest(findings)) is not None:
        return WindowEnergy(None, f"{refused.level}: {refused.text}", tuple(energies), findings)
    total = math.fsum(energy.energy_mj or 0.0 for energy in energies)
    return WindowEnergy(total, None, tuple(energies), findings)


def _without(board: BoardEnergy, level: Level, text: str) -> BoardEnergy:
    findings = (*board.findings, Finding(level, text))
    return replace(board, energy_mj=None, source=None, findings=findings)


def _within_limit(board: Board, energy: BoardEnergy, window: _Window) -> BoardEnergy:
    if energy.energy_mj is None or not board.limit_mw:
        return energy
    share = energy.energy_mj * 1e9 / window.length_ns / board.limit_mw
    text = f"drew {share:.2f} x its power limit on average"
    if share > INVALID_ABOVE_LIMIT:
        return _without(energy, "INVALID", text)
    if share > WARN_ABOVE_LIMIT:
        return replace(energy, findings=(*energy.findings, Finding("warn", text)))
    return energy


class _NoEnergy(Exception):  # a finding, not an error
    def __init__(self, level: Level, text: str) -> None:
        self.finding = Finding(level, text)
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class _Window:
    start_ns: int
    end_ns: int
    max_gap_ns: int
    averaging_ns: int | None

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    def energy(self, samples: Sequence[PowerSample]) -> BoardEnergy:
        """Return the energy of one board, from its samples in order of time."""
        near, delay_ns = self._near(samples), (self.averaging_ns or 0) // 2
        counter = [(s.at_ns, s.energy_mj) for s in near if s.energy_mj is not None]
        power = [(s.at_ns - delay_ns, s.power_mw) for s in near if s.power_mw is not None]
        gap_ns = self._longest_gap_ns(near)
        try:
            integral = self._by_power(power)
            by_power = integral if isinstance(integral, float) else None
            by_counter = self._by_counter(counter, by_power)
        except _NoEnergy as refused:
            return BoardEnergy(None, None, gap_ns, (refused.finding,))
        chosen = by_counter if by_counter is not None else integral
        if isinstance(chosen, Finding):
            return BoardEnergy(None, None, gap_ns, (chosen,))
        if chosen <= 0:
            return BoardEnergy(None, None, gap_ns, (Finding("withheld", "reported no energy"),))
        source: Literal["counter", "power"] = "power" if by_counter is None else "counter"
        findings = tuple(self._against_each_other(counter, by_counter, by_power))
        return BoardEnergy(chosen, source, gap_ns, findings, None not in (by_counter, by_power))

    def _near(self, samples: Sequence[PowerSample]) -> Sequence[PowerSample]:
        """Return the samples that can enclose the window, and one before them."""
        reach = self.max_gap_ns + (self.averaging_ns or 0)
        at = attrgetter("at_ns")
        first = bisect_left(samples, self.start_ns - reach, key=at)
        return samples[max(first - 1, 0) : bisect_right(samples, self.end_ns + reach, key=at)]

    def _longest_gap_ns(self, near: Sequence[PowerSample]) -> int | None:
        told = [(s.at_ns, 0) for s in near if s.power_mw is not None or s.energy_mj is not None]
        around = self._around(told)
        return max(b - a for (a, _), (b, _) in pairwise(around)) if around else None

    def _by_counter(self, counter: _Series, by_power: float | None) -> float | None:
        """Return what the counter grew by; None where there is none that can be used.

        Raises:
            _NoEnergy: it ran backwards, or it is renewed too seldom.
        """
        around = self._around(counter)
        if any(b < a for (_, a), (_, b) in pairwise(around)):
            raise _NoEnergy("INVALID", "the energy counter ran backwards")
        if not around or self._widest_edge_ns(around) > self.max_gap_ns:
            return None
        if around[0][1] == around[-1][1]:
            return None if by_power else 0.0
        # A value that is read again says nothing new of the time between.
        moved = [counter[0], *(b for a, b in pairwise(counter) if a[1] != b[1])]
        moved += [counter[-1]] if moved[-1] != counter[-1] else []
        around = self._around(moved)
        if not around or self._widest_edge_ns(around) > self.max_gap_ns:
            longest = max(b - a for (a, _), (b, _) in pairwise(moved)) / 1e9
            raise _NoEnergy(
                "withheld",
                f"its readings are renewed only every {longest:.0f} s; the edges of the window need"
                f" new ones within {self.max_gap_ns / 1e9:g} s",
            )
        return _at(around, self.end_ns) - _at(around, self.start_ns)

    def _by_power(self, power: _Series) -> float | Finding:
        """Return the integral of the watts, or why there is none."""
        around = self._around(power)
        if self.averaging_ns and self.averaging_ns > MAX_AVERAGING_SHARE * self.length_ns:
            text = (
                f"its watts are means over {self.averaging_ns / 1e9:g} s, too slow for a window of"
                f" {self.length_ns / 1e9:.0f} s"
            )
            return Finding("withheld", text)
        if not around or max(b - a for (a, _), (b, _) in pairwise(around)) > self.max_gap_ns:
            text = "samples do not enclose the window closely enough"
            return Finding("withheld", text)
        inside = [(at, float(mw)) for at, mw in around[1:-1]]
        edges = [(at, _at(around, at)) for at in (self.start_ns, self.end_ns)]
        points = [edges[0], *inside, edges[1]]
        # mW ns = 1e-12 J = 1e-9 mJ
        areas = ((b - a) * (p + q) / 2 for (a, p), (b, q) in pairwise(points))
        return math.fsum(areas) / 1e9

    def _against_each_other(
        self, counter: _Series, by_counter: float | None, by_power: float | None
    ) -> Iterator[Finding]:
        if by_counter is None and self._around(counter):
            yield Finding("warn", "its energy counter cannot be used; its watts stand for it")
        if by_counter is None or not by_power:
            return
        gap = by_counter / by_power - 1
        if abs(gap) > RECONCILED_WITHIN:
            yield Finding("not reconciled", f"energy counter and watts differ by {gap:+.1%}")

    def _around(self, series: _Series) -> _Series:
        """Return the samples from the last before the window to the first after it; or none."""
        first = bisect_right(series, self.start_ns, key=itemgetter(0)) - 1
        last = bisect_left(series, self.end_ns, key=itemgetter(0))
        return series[first : last + 1] if 0 <= first < last < len(series) else []

    @staticmethod
    def _widest_edge_ns(around: _Series) -> int:
        return max(around[1][0] - around[0][0], around[-1][0] - around[-2][0])


def _at(series: _Series, at_ns: int) -> float:
    """Return an enclosing series at `at_ns`, linearly between the samples around it."""
    after = max(1, bisect_left(series, at_ns, key=itemgetter(0)))
    (a, p), (b, q) = series[after - 1], series[after]
    return p + (q - p) * (at_ns - a) / (b - a) if b > a else float(q)
