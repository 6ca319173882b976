"""Which rate to offer next: pure, and a function of what was seen, so that a run can be resumed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from tokenwatt_site.goodput import bracket

STEP = 2.0
"""Factor between rates while the boundary is not enclosed and nothing predicts it."""

FLOOR_SHARE = 64
"""The search gives up below start / FLOOR_SHARE."""


def next_rate(
    seen: Sequence[tuple[int, Literal["PASS", "FAIL"]]],
    *,
    start_urps: int,
    max_urps: int,
    ratio: float,
    predicted: bool,
) -> int | None:
    """Return the next rate in 1e-6 requests/s, or None when the search is over.

    Over means: the bracket is at most `ratio` wide, the highest rate allowed passed, or the lowest
    worth trying failed. Bisection is on the logarithm of the rate.

    Args:
        seen: rate and verdict of each valid trial of this repeat, in order.
        start_urps: the pilot's rate, or the predicted boundary.
        max_urps: the highest rate to offer.
        ratio: lowest fail / highest pass at which the bracket is narrow enough.
        predicted: `start_urps` comes from an earlier repeat; step out from it by `ratio`, then by
            its square, and so on, rather than by STEP.
    """
    if not seen:
        return min(start_urps, max_urps)
    low, high = _enclosed(seen)
    step = min(STEP, ratio ** (2 ** min(len(seen) - 1, 8))) if predicted else STEP
    if low is not None and high is not None:
        return None if high <= low * ratio else math.isqrt(low * high)
    if low is not None:
        return None if low >= max_urps else min(math.ceil(low * step), max_urps)
    floor = max(1, start_urps // FLOOR_SHARE)
    lowest = high or start_urps
    return None if lowest <= floor else max(math.floor(lowest / step), floor)


def trials_left(seen: Sequence[tuple[int, Literal["PASS", "FAIL"]]], ratio: float) -> int:
    """Estimate how many trials the search still needs, for the progress display."""
    low, high = _enclosed(seen)
    width = math.log(high / low) if low and high else math.log(STEP)
    bisections = max(0, math.ceil(math.log2(max(width / math.log(ratio), 1))))
    return bisections + (low is None) + (high is None)


def _enclosed(seen: Sequence[tuple[int, Literal["PASS", "FAIL"]]]) -> tuple[int | None, int | None]:
    return bracket(
        [rate for rate, verdict in seen if verdict == "PASS"],
        [rate for rate, verdict in seen if verdict == "FAIL"],
    )
