"""Energy of a window from power samples, board by board.

Primary: the difference of each board's energy counter. Cross-check: the trapezoid of its power.
Both edges of the window must lie between samples of every board; nothing is extrapolated. Missing
is None with a reason, never 0.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

from tokenwatt_site.power_log import PowerLog, PowerSample

MAX_GAP_PERIODS = 3
"""Samples this many periods apart still enclose something."""

RECONCILED_WITHIN = 0.05
WARN_ABOVE_LIMIT = 1.05
INVALID_ABOVE_LIMIT = 1.2


@dataclass(frozen=True, slots=True)
class WindowEnergy:
    """Energy of all boards over one window, or the reason for none. `notes` are printed."""

    energy_mj: float | None
    reason: str | None
    notes: tuple[str, ...]

    def mean_power_mw(self, length_ns: int) -> float | None:
        return None if self.energy_mj is None else self.energy_mj * 1e9 / length_ns


def window_energy(log: PowerLog, start_ns: int, end_ns: int, *, max_gap_ns: int) -> WindowEnergy:
    """Return the energy of the boards of `log` in [start_ns, end_ns].

    Counters and power are interpolated linearly to the edges, between the samples around each.
    Samples further apart than `max_gap_ns` enclose nothing: at an edge, and for power, which is
    nothing but its samples, anywhere in the window.
    """
    total = 0.0
    notes: list[str] = []
    if not log.boards:
        return WindowEnergy(None, "no board was read", ())
    by_board: list[list[PowerSample]] = [[] for _ in log.boards]
    for sample in log.samples:
        by_board[sample.board].append(sample)
    for board, samples in zip(log.boards, by_board, strict=True):
        try:
            energy, note = _board_energy(samples, start_ns, end_ns, max_gap_ns)
        except _NoEnergy as reason:
            return WindowEnergy(None, f"{board.name}: {reason}", tuple(notes))
        notes += [f"{board.name}: {note}"] if note else []
        if board.limit_mw is not None:
            share = energy * 1e9 / (end_ns - start_ns) / board.limit_mw
            text = f"{board.name}: drew {share:.2f} x its power limit on average"
            if share > INVALID_ABOVE_LIMIT:
                return WindowEnergy(None, f"INVALID, {text}", tuple(notes))
            if share > WARN_ABOVE_LIMIT:
                notes.append(text)
        total += energy
    return WindowEnergy(total, None, tuple(notes))


class _NoEnergy(Exception):  # a reason, not an error
    """Why a board has no energy in a window."""


def _board_energy(
    samples: Sequence[PowerSample], start_ns: int, end_ns: int, max_gap_ns: int
) -> tuple[float, str | None]:
    """Return millijoules, and what the two instruments say against each other."""
    counter = _around([(s.at_ns, s.energy_mj) for s in samples], start_ns, end_ns)
    power = _around([(s.at_ns, s.power_mw) for s in samples], start_ns, end_ns)
    if any(b < a for (_, a), (_, b) in pairwise(counter)):
        raise _NoEnergy("INVALID, the energy counter ran backwards")
    by_counter = by_power = None
    if counter and _edges(counter) <= max_gap_ns:
        by_counter = _at(counter, end_ns) - _at(counter, start_ns)
    if power and max(b - a for (a, _), (b, _) in pairwise(power)) <= max_gap_ns:
        by_power = _trapezoid_mj(power, start_ns, end_ns)
    note = None
    if by_counter is not None and by_power is not None and by_power > 0:
        gap = by_counter / by_power - 1
        if abs(gap) > RECONCILED_WITHIN:
            note = f"energy not reconciled, counter and power differ by {gap:+.1%}"
    chosen = by_counter if by_counter is not None else by_power
    if chosen is None:
        raise _NoEnergy("samples do not enclose the window closely enough")
    return chosen, note


def _around(
    series: Sequence[tuple[int, int | None]], start_ns: int, end_ns: int
) -> list[tuple[int, int]]:
    """Return the known samples from the last before the window to the first after it; or none."""
    known = [(at, value) for at, value in series if value is not None]
    first = bisect_right(known, start_ns, key=itemgetter(0)) - 1
    last = bisect_left(known, end_ns, key=itemgetter(0))
    return known[first : last + 1] if 0 <= first < last < len(known) else []


def _edges(series: Sequence[tuple[int, int]]) -> int:
    return max(series[1][0] - series[0][0], series[-1][0] - series[-2][0])


def _trapezoid_mj(power: Sequence[tuple[int, int]], start_ns: int, end_ns: int) -> float:
    inside = [(at, float(mw)) for at, mw in power[1:-1]]
    points = [(start_ns, _at(power, start_ns)), *inside, (end_ns, _at(power, end_ns))]
    # mW ns = 1e-12 J = 1e-9 mJ
    return math.fsum((b - a) * (p + q) / 2 for (a, p), (b, q) in pairwise(points)) / 1e9


def _at(series: Sequence[tuple[int, int]], at_ns: int) -> float:
    """Return an enclosing series at `at_ns`, linearly between the samples around it."""
    after = max(1, bisect_left(series, at_ns, key=itemgetter(0)))
    (a, p), (b, q) = series[after - 1], series[after]
    return p + (q - p) * (at_ns - a) / (b - a)
