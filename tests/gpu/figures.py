"""What is computed from the readings of a real board; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Series = Sequence[tuple[int, int]]
"""(at_ns, value), in order of time."""


@dataclass(frozen=True)
class Phase:
    """One load held for a while, read at both ends.

    Attributes:
        name: of the load.
        length_ns: between the readings.
        energy_mj: difference of the counter; None: the board has none.
        moved_bytes: read and written by the load.
        bus_ppm: use of the memory bus by GPM; None: the board has no such counters.
    """

    name: str
    length_ns: int
    energy_mj: int | None
    moved_bytes: int
    bus_ppm: int | None

    @property
    def watts(self) -> float | None:
        return None if self.energy_mj is None else self.energy_mj * 1e6 / self.length_ns

    @property
    def bytes_s(self) -> float:
        return self.moved_bytes * 1e9 / self.length_ns


def half_rise_ns(readings: Series, step_ns: int) -> int | None:
    """Return how long after `step_ns` a value was first halfway to where it ends; None: no rise.

    Before is the mean until the step, after the mean of the last fifth.
    """
    before = [value for at, value in readings if at < step_ns]
    after = [value for _, value in readings[-max(1, len(readings) // 5) :]]
    if not before or not after:
        return None
    low, high = math.fsum(before) / len(before), math.fsum(after) / len(after)
    if high <= 1.1 * low:
        return None
    half = (low + high) / 2
    return next((at - step_ns for at, value in readings if at >= step_ns and value >= half), None)


def full_bus_bytes_s(phase: Phase) -> float | None:
    """Return the bytes per second that 100% of GPM's bus use stands for; None: not told."""
    return phase.bytes_s * 1e6 / phase.bus_ppm if phase.bus_ppm else None


def slope_pj_bit(phases: Sequence[Phase]) -> float | None:
    """Return d(watts)/d(bytes/s) by least squares, in pJ/bit; None: two different rates are needed.

    An upper bound for the memory alone: what moves the bytes draws power too.
    """
    points = [(phase.bytes_s, phase.watts) for phase in phases if phase.watts is not None]
    if len({x for x, _ in points}) < 2:
        return None
    mean_x = math.fsum(x for x, _ in points) / len(points)
    mean_y = math.fsum(y for _, y in points) / len(points)
    above = math.fsum((x - mean_x) * (y - mean_y) for x, y in points)
    below = math.fsum((x - mean_x) ** 2 for x, _ in points)
    return above / below * 1e12 / 8
