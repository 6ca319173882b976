"""Pooling over repeats, intervals and rank ranges. The unit is the launch, never the request.

Formulas and vectors: DESIGN 6. t quantiles come from a table, so that every reader of a run,
in any language, gets the same bits.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from tokenwatt_site.metrics import Pooling

T_975 = (
    12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157,
    2.228139, 2.200985, 2.178813, 2.160369, 2.144787, 2.13145, 2.119905, 2.109816, 2.100922,
    2.093024, 2.085963, 2.079614, 2.073873, 2.068658, 2.063899, 2.059539, 2.055529, 2.051831,
    2.048407, 2.04523, 2.042272,
)  # fmt: skip
"""97.5% quantile of Student's t for 1 to 30 degrees of freedom, 6 decimals."""

_NORMAL_975 = 1.959964


@dataclass(frozen=True, slots=True)
class Pooled:
    """A number over repeats. See `run.MetricClaim` for what low and high mean at which n."""

    value: float
    low: float | None
    high: float | None
    new_launch_low: float | None
    new_launch_high: float | None


def t_975(df: int) -> float:
    """Return the 97.5% quantile of Student's t; beyond 30 degrees by Cornish-Fisher (1e-5)."""
    if df <= len(T_975):
        return T_975[df - 1]
    z = _NORMAL_975
    return z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df * df)


def pool(values: Sequence[float], pooling: Pooling, systematic: float = 0.0) -> Pooled:
    """Pool one value per launch; `systematic`, on logs, widens the interval in quadrature.

    One value stands alone. Two give their median and range: an interval from two launches would be
    so wide (a factor of 1.45 for values 3.4% apart) that it says nothing. From three: the geometric
    mean with exp(t s / sqrt n) and exp(t s sqrt(1 + 1/n)) on logs, or for share-like numbers the
    arithmetic mean with the same on the values.

    Raises:
        ValueError: no value, or a geometric pool of a value that is not positive.
    """
    if not values:
        raise ValueError("nothing to pool")
    n = len(values)
    if n == 1:
        return Pooled(values[0], None, None, None, None)
    if n == 2:
        return Pooled(math.fsum(values) / 2, min(values), max(values), None, None)
    geometric = pooling == "geometric"
    if geometric and min(values) <= 0:
        raise ValueError("a geometric mean needs positive values")
    y = [math.log(value) for value in values] if geometric else list(values)
    mean = math.fsum(y) / n
    s = math.sqrt(math.fsum((item - mean) ** 2 for item in y) / (n - 1))
    t = t_975(n - 1)
    of_mean, of_launch = t * s / math.sqrt(n), t * s * math.sqrt(1 + 1 / n)
    if systematic:
        of_mean = math.sqrt(of_mean * of_mean + systematic * systematic)
    back = math.exp if geometric else float
    return Pooled(
        back(mean),
        back(mean - of_mean),
        back(mean + of_mean),
        back(mean - of_launch),
        back(mean + of_launch),
    )


@dataclass(frozen=True, slots=True)
class Slope:
    """Of a straight line through points; its 95% interval is value ± half_width."""

    value: float
    half_width: float


def slope(x: Sequence[float], y: Sequence[float]) -> Slope | None:
    """Fit a straight line by least squares; None: fewer than 3 points, or all at one x."""
    n = len(x)
    if n < 3 or min(x) == max(x):
        return None
    x_mean, y_mean = math.fsum(x) / n, math.fsum(y) / n
    dx, dy = [value - x_mean for value in x], [value - y_mean for value in y]
    spread = math.fsum(a * a for a in dx)
    value = math.fsum(a * b for a, b in zip(dx, dy, strict=True)) / spread
    rest = math.fsum((b - value * a) ** 2 for a, b in zip(dx, dy, strict=True))
    return Slope(value, t_975(n - 2) * math.sqrt(rest / (n - 2) / spread))


def rank_ranges(intervals: Sequence[tuple[float, float]]) -> list[tuple[int, int]]:
    """Return for each (low, high), higher being better, the best and worst rank it may hold.

    [1 + #{lo_j > hi_i}, N - #{hi_j < lo_i}].
    """
    lows = sorted(low for low, _ in intervals)
    highs = sorted(high for _, high in intervals)
    n = len(intervals)
    return [
        (1 + n - bisect_right(lows, high), n - bisect_left(highs, low)) for low, high in intervals
    ]
