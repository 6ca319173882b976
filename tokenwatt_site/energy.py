"""Energy of a window from power samples, board by board.

Primary: the difference of each board's energy counter. Cross-check: the trapezoid of its power.
Both edges of the window must lie between samples of every board; nothing is extrapolated. Missing
is None with a reason, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tokenwatt_site.evidence import PowerLog, PowerSample

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


def window_energy(log: PowerLog, start_ns: int, end_ns: int) -> WindowEnergy:
    """Return the energy of the boards of `log` in [start_ns, end_ns].

    Counters and power are interpolated linearly to the edges, between the samples around each.
    """
    total = 0.0
    notes: list[str] = []
    if not log.boards:
        return WindowEnergy(None, "no board was read", ())
    for index, board in enumerate(log.boards):
        samples = [s for s in log.samples if s.board == index]
        energy, reason = _board_energy(samples, start_ns, end_ns, board.name, notes)
        if energy is None:
            return WindowEnergy(None, reason, tuple(notes))
        if board.limit_mw is not None:
            share = energy * 1e9 / (end_ns - start_ns) / board.limit_mw
            text = f"board {index} drew {share:.2f} x its power limit on average"
            if share > INVALID_ABOVE_LIMIT:
                return WindowEnergy(None, f"INVALID: {text}", tuple(notes))
            if share > WARN_ABOVE_LIMIT:
                notes.append(text)
        total += energy
    return WindowEnergy(total, None, tuple(notes))


def _board_energy(
    samples: Sequence[PowerSample], start_ns: int, end_ns: int, name: str, notes: list[str]
) -> tuple[float | None, str | None]:
    counter = [(s.at_ns, s.energy_mj) for s in samples if s.energy_mj is not None]
    power = [(s.at_ns, s.power_mw) for s in samples if s.power_mw is not None]
    if any(b < a for (_, a), (_, b) in pairwise(counter)):
        return None, f"INVALID: the energy counter of {name} ran backwards"
    by_counter = _counter_delta(counter, start_ns, end_ns)
    by_power = _trapezoid_mj(power, start_ns, end_ns)
    if by_counter is not None and by_power is not None and by_power > 0:
        gap = by_counter / by_power - 1
        if abs(gap) > RECONCILED_WITHIN:
            notes.append(f"energy not reconciled on {name}: counter and power differ by {gap:+.1%}")
    chosen = by_counter if by_counter is not None else by_power
    if chosen is None:
        return None, f"the window is not enclosed by samples of {name}"
    return chosen, None


def _counter_delta(counter: Sequence[tuple[int, int]], start_ns: int, end_ns: int) -> float | None:
    low, high = _at(counter, start_ns), _at(counter, end_ns)
    return None if low is None or high is None else high - low


def _trapezoid_mj(power: Sequence[tuple[int, int]], start_ns: int, end_ns: int) -> float | None:
    low, high = _at(power, start_ns), _at(power, end_ns)
    if low is None or high is None:
        return None
    inside = [(t, float(p)) for t, p in power if start_ns < t < end_ns]
    points = [(start_ns, low), *inside, (end_ns, high)]
    return (
        math.fsum((b - a) * (p + q) / 2 for (a, p), (b, q) in pairwise(points)) / 1e9
    )  # mW ns = 1e-12 J = 1e-9 mJ


def _at(series: Sequence[tuple[int, int]], at_ns: int) -> float | None:
    """Return the series at `at_ns`, linearly between the samples around it; None outside."""
    for (a, p), (b, q) in pairwise(series):
        if a <= at_ns <= b:
            return p + (q - p) * (at_ns - a) / (b - a) if b > a else float(q)
    return None
