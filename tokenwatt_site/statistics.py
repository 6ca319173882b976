"""Pooling over repeats, intervals and rank ranges. The unit is the launch, never the request.

Formulas and vectors: DESIGN 6. t quantiles come from a table, so that every reader of a run,
in any language, gets the same bits.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tokenwatt_site.metrics import Better, Pooling

T_975 = (
    12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157,
    2.228139, 2.200985, 2.178813, 2.160369, 2.144787, 2.13145, 2.119905, 2.109816, 2.100922,
    2.093024, 2.085963, 2.079614, 2.073873, 2.068658, 2.063899, 2.059539, 2.055529, 2.051831,
    2.048407, 2.04523, 2.042272,
)  # fmt: skip
"""97.5% quantile of Student's t for 1 to 30 degrees of freedom, 6 decimals."""

T_95 = (
    6.313752, 2.919986, 2.353363, 2.131847, 2.015048, 1.94318, 1.894579, 1.859548, 1.833113,
    1.812461, 1.795885, 1.782288, 1.770933, 1.76131, 1.75305, 1.745884, 1.739607, 1.734064,
    1.729133, 1.724718, 1.720743, 1.717144, 1.713872, 1.710882, 1.708141, 1.705618, 1.703288,
    1.701131, 1.699127, 1.697261,
)  # fmt: skip
"""95% quantile of it, as above; between them `t_95` interpolates."""

_NORMAL_975 = 1.959964
_NORMAL_95 = 1.644854

Reproduction: TypeAlias = Literal["reproduced", "contradicted", "inconclusive"]
Comparison: TypeAlias = Literal[
    "better", "worse", "different", "same within 3%", "no difference shown"
]

SYSTEMATIC = 1.96 * 0.005
"""What a long-run number's interval has in quadrature, on logs, whatever the repeats say."""

MOST_REPEATS = 100


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
    return _cornish_fisher(_NORMAL_975, df)


def t_95(df: float) -> float:
    """Return the 95% quantile of Student's t for 2 degrees of freedom or more, also broken ones.

    Between those of the table by a parabola in 1/df (1e-3 below 3 degrees, 1e-4 beyond).
    """
    if df > len(T_95):
        return _cornish_fisher(_NORMAL_95, df)
    k = min(int(df), len(T_95) - 2)
    a, b, c = 1 / k, 1 / (k + 1), 1 / (k + 2)
    x = 1 / df
    return (
        T_95[k - 1] * (x - b) * (x - c) / ((a - b) * (a - c))
        + T_95[k] * (x - a) * (x - c) / ((b - a) * (b - c))
        + T_95[k + 1] * (x - a) * (x - b) / ((c - a) * (c - b))
    )


def _cornish_fisher(z: float, df: float) -> float:
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


def repeats_needed(half: float, spread: float, *, systematic: float = SYSTEMATIC) -> int | None:
    """Return how many repeats make the 95% interval of a mean at most 1 +- `half`.

    The interval is that of `statistics.pool`, on logs: exp(sqrt((t[.975, n-1] s / sqrt n)^2 + u^2))
    - 1 for its upper side, which is the wider one. The spread of so few is itself uncertain, so
    this is what is expected, and no promise.

    Args:
        half: half the width, as a share, such as 0.02.
        spread: s, the standard deviation of the logs of single repeats.
        systematic: u, added in quadrature.

    Returns:
        From 3, since fewer have no interval; None: not even MOST_REPEATS do.
    """
    for n in range(3, MOST_REPEATS + 1):
        if math.expm1(math.hypot(t_975(n - 1) * spread / math.sqrt(n), systematic)) <= half:
            return n
    return None


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


SAME = 1.03
"""Within a factor of this, numbers are called the same."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of two geometric means, with its interval; None: fewer than 3 launches a side."""

    value: float
    low: float | None
    high: float | None

    @property
    def _within(self) -> bool:
        low, high = self.low, self.high
        return low is not None and high is not None and low > 1 / SAME and high < SAME

    @property
    def reproduced(self) -> Reproduction:
        """What a second measurement says of the first, by the interval of `against`."""
        if self.low is None or self.high is None:
            return "inconclusive"
        if self._within:
            return "reproduced"
        return "contradicted" if self.high < 1 / SAME or self.low > SAME else "inconclusive"

    def compared(self, better: Better) -> Comparison:
        """Say which of two numbers is better, as far as the interval shows it."""
        if self._within:
            return "same within 3%"
        if self.low is None or self.high is None or self.low <= 1 <= self.high:
            return "no difference shown"
        if better == "neither":
            return "different"
        return "better" if (self.low > 1) == (better == "higher") else "worse"


def against(new: Sequence[float], old: Sequence[float]) -> Ratio:
    """Return new / old of two sets of launches that have nothing in common but the setup.

    Welch on logs, with a 90% interval: the same as two one-sided tests at 5% (DESIGN 6).

    Raises:
        ValueError: a value that is not positive, or none.
    """
    of_new, of_old = _logs(new), _logs(old)
    difference = _mean(of_new) - _mean(of_old)
    if min(len(new), len(old)) < 3:
        return Ratio(math.exp(difference), None, None)
    a, b = _variance(of_new) / len(new), _variance(of_old) / len(old)
    if a + b == 0:
        return Ratio(math.exp(difference), math.exp(difference), math.exp(difference))
    df = (a + b) ** 2 / (a * a / (len(new) - 1) + b * b / (len(old) - 1))
    half = t_95(df) * math.sqrt(a + b)
    return Ratio(math.exp(difference), math.exp(difference - half), math.exp(difference + half))


def paired(ones: Sequence[float], others: Sequence[float]) -> Ratio:
    """Return ones / others, repeat by repeat: repeat r offered the same rows to both.

    What is luck of the rows cancels in each ratio. The interval is the 95% one of their geometric
    mean; repeats that only one side has do not count.

    Raises:
        ValueError: a value that is not positive, or no pair.
    """
    n = min(len(ones), len(others))
    y = [a - b for a, b in zip(_logs(ones[:n]), _logs(others[:n]), strict=True)]
    if n < 3:
        return Ratio(math.exp(_mean(y)), None, None)
    half = t_975(n - 1) * math.sqrt(_variance(y) / n)
    return Ratio(math.exp(_mean(y)), math.exp(_mean(y) - half), math.exp(_mean(y) + half))


def _logs(values: Sequence[float]) -> list[float]:
    if not values or min(values) <= 0:
        raise ValueError("a ratio needs positive values")
    return [math.log(value) for value in values]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
