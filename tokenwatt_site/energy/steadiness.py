"""Whether power drifted over a window.

Readings a second apart are not independent, so the window is cut into blocks: the slope of the
blocks' mean watts, by least squares, and its 95% interval from Student's t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from tokenwatt_site.energy.window import window_energy
from tokenwatt_site.evidence.power import PowerLog
from tokenwatt_site.statistics import t_975

BLOCKS = 5
"""Few and long: an engine's power resembles itself for about as long as an answer takes.

Of steady windows of 120 s whose power does so for 20 s, ten blocks call more than a quarter
drifting, five an eighth; where it does for 5 s, 12% and 7%. 5% would be right.
"""

MIN_BLOCK_NS = 10 * 10**9
"""Ten of the averaging times of NVML's watts, a hundred steps of its energy counter."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Change of power from start to end of a window over its mean, with its 95% interval."""

    share: float
    low: float
    high: float

    @property
    def steady(self) -> bool:
        """Whether there may be no drift, or it is a hundredth at most: too little to matter."""
        return self.low <= 0 <= self.high or abs(self.share) <= 0.01


def power_drift(log: PowerLog, start_ns: int, end_ns: int, *, max_gap_ns: int) -> Drift | None:
    """Return how the watts of all boards together drifted in [start_ns, end_ns].

    None: the window is too short for blocks, or there is a block without energy.
    """
    if end_ns - start_ns < BLOCKS * MIN_BLOCK_NS:
        return None
    edges = [start_ns + (end_ns - start_ns) * i // BLOCKS for i in range(BLOCKS + 1)]
    means = []
    for a, b in pairwise(edges):
        mean_mw = window_energy(log, a, b, max_gap_ns=max_gap_ns).mean_power_mw(b - a)
        if mean_mw is None:
            return None
        means.append(mean_mw)
    mean = math.fsum(means) / BLOCKS
    # Time in blocks, from the middle; a whole window is BLOCKS of them.
    x = [i - (BLOCKS - 1) / 2 for i in range(BLOCKS)]
    spread = math.fsum(a * a for a in x)
    slope = math.fsum(a * (y - mean) for a, y in zip(x, means, strict=True)) / spread
    left = math.fsum((y - mean - slope * a) ** 2 for a, y in zip(x, means, strict=True))
    margin = t_975(BLOCKS - 2) * math.sqrt(left / (BLOCKS - 2) / spread)
    share, either = slope * BLOCKS / mean, margin * BLOCKS / mean
    return Drift(share, share - either, share + either)
