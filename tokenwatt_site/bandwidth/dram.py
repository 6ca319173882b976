"""Measured use of the boards' memory buses over a window.

From one pair of readings at its edges, which is the exact mean; else from the chain of samples. A
board that is missing leaves no number: the mean of the others is not the boards'.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from tokenwatt_site.bandwidth.step import NoFigure
from tokenwatt_site.energy.window import MAX_GAP_PERIODS
from tokenwatt_site.evidence.power import DramSpan, PowerLog, PowerSample

MAX_EDGE_NS = 10**9
MAX_EDGE_SHARE = 0.02
"""A pair may miss an edge of the window by this long, and by this share of the window."""


@dataclass(frozen=True, slots=True)
class BusUse:
    """Mean use of each board's bus, in 1e-6 of what it can carry; `chained`: from samples."""

    ppm: tuple[float, ...]
    chained: bool


def counts_traffic(log: PowerLog) -> bool:
    """Return whether any of its boards told of its memory traffic."""
    return bool(log.spans) or any(sample.dram_ppm is not None for sample in log.samples)


def bus_use(log: PowerLog, start_ns: int, end_ns: int) -> BusUse:
    """Return the mean use of every board's bus in [start_ns, end_ns].

    Raises:
        NoFigure: a board's readings do not enclose the window.
    """
    pairs = [
        _pair([s for s in log.spans if s.board == board], start_ns, end_ns)
        for board in range(len(log.boards))
    ]
    known = tuple(float(pair.ppm) for pair in pairs if pair is not None)
    if len(known) == len(log.boards):
        return BusUse(known, chained=False)
    limit_ns = MAX_GAP_PERIODS * log.period_ns
    chains = tuple(
        _chain(log.of_board(board), start_ns, end_ns, limit_ns) for board in range(len(log.boards))
    )
    for board, chain in zip(log.boards, chains, strict=True):
        if chain is None:
            raise NoFigure(
                f"{board.name}: its readings of memory traffic do not enclose the window"
            )
    return BusUse(tuple(chain for chain in chains if chain is not None), chained=True)


def _pair(spans: Sequence[DramSpan], start_ns: int, end_ns: int) -> DramSpan | None:
    """Return the span that is nearest to the window, if it is near enough."""
    allowed = min(MAX_EDGE_NS, MAX_EDGE_SHARE * (end_ns - start_ns))

    def misses(span: DramSpan) -> int:
        return max(abs(span.start_ns - start_ns), abs(span.end_ns - end_ns))

    nearest = min(spans, key=misses, default=None)
    return nearest if nearest is not None and misses(nearest) <= allowed else None


def _chain(
    samples: Sequence[PowerSample], start_ns: int, end_ns: int, max_gap_ns: int
) -> float | None:
    """Return the mean over the window of samples that each tell of the time since the last."""
    at = attrgetter("at_ns")
    first = max(0, bisect_right(samples, start_ns, key=at) - 1)
    around = samples[first : bisect_left(samples, end_ns, key=at) + 1]
    parts, covered = [], 0
    for before, sample in pairwise(around):
        inside = min(sample.at_ns, end_ns) - max(before.at_ns, start_ns)
        if inside <= 0:
            continue
        if sample.dram_ppm is None or sample.at_ns - before.at_ns > max_gap_ns:
            return None
        covered += inside
        parts.append(inside * sample.dram_ppm / (end_ns - start_ns))
    return math.fsum(parts) if covered == end_ns - start_ns else None
