"""Joules of an input token and of an output token apart, by least squares over many windows.

One window tells the sum of both alone. Over windows of several mixes their watts are fitted as

    E / T = base + input_j × N_in / T + output_j × N_out / T

so that each counts the same, however long it is. The unit is the launch: windows of one share its
luck, and intervals from windows hold the truth in as few as 85% of cases where they promise 95%. So
each launch is left out in turn (jackknife), and three of them are spent on the three figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tokenwatt_site.statistics import t_975

FIGURES = 3
"""Of the fit: base, input and output."""

MIN_LAUNCHES = FIGURES + 2
"""From fewer an interval says nothing, as from two repeats."""

MOST_INFLATED = 100.0
"""By how much the variance of a figure may be larger than if its token rate alone made the watts.

At 100 a watt of chance is ten in what is laid to one kind of token: less than a tenth of that rate
is not told by the other one and by time.
"""

MOST_UNEXPLAINED = 0.05
"""Of the mean watts a fit may leave: of more, energy is in no proportion to tokens."""


@dataclass(frozen=True, slots=True)
class MixWindow:
    """Energy of one window and the tokens in it; `launch` names the start of the engine."""

    launch: str
    seconds: float
    joules: float
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure of the fit with its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class TokenEnergy:
    """What time and each kind of token take.

    Attributes:
        base_w: watts that no token explains.
        input_j: joules of an input token.
        output_j: joules of an output token.
        windows: how many it is fitted to.
        launches: of how many.
        unexplained: the root of the mean square of what the fit leaves, of the mean watts.
    """

    base_w: Estimate
    input_j: Estimate
    output_j: Estimate
    windows: int
    launches: int
    unexplained: float


def token_energy(windows: Sequence[MixWindow]) -> TokenEnergy | str:
    """Return what the windows tell of the kinds of token apart, or why they do not."""
    launches = sorted({window.launch for window in windows})
    if len(launches) < MIN_LAUNCHES:
        return f"it takes windows of {MIN_LAUNCHES} launches, and there are {len(launches)}"
    points = [_Point.of(window) for window in windows]
    whole = _Sums.of(points)
    if (inflated := whole.inflation) > MOST_INFLATED:
        return _collinear(inflated, "their tokens of both kinds and time go together")
    left_out = [_Sums.of([p for p in points if p.launch != launch]) for launch in launches]
    if (inflated := max(each.inflation for each in left_out)) > MOST_INFLATED:
        return _collinear(inflated, "without one launch tokens of both kinds and time go together")
    found, others = whole.figures(), [each.figures() for each in left_out]
    base_w, input_j, output_j = (
        _estimate(value, [other[place] for other in others]) for place, value in enumerate(found)
    )
    for name, each in (
        ("time", base_w),
        ("an input token", input_j),
        ("an output token", output_j),
    ):
        if each.high < 0:
            return (
                f"{name} would take less than nothing (95% {each.low:.3g} to {each.high:.3g}), so"
                " that energy is not in proportion to tokens here"
            )
    rest = fmean([(p.watts - _fitted(found, p)) ** 2 for p in points])
    if (unexplained := math.sqrt(rest) / whole.watts) > MOST_UNEXPLAINED:
        return (
            f"the fit leaves {unexplained:.1%} of the watts, so that energy is not in proportion to"
            " tokens here"
        )
    return TokenEnergy(base_w, input_j, output_j, len(points), len(launches), unexplained)


def _collinear(inflation: float, why: str) -> str:
    told = f"{inflation:,.0f} times" if inflation < 1e6 else "without bound"
    return (
        f"{why}: the variance of a figure is inflated {told}, and at most {MOST_INFLATED:g} times"
        " are allowed"
    )


@dataclass(frozen=True, slots=True)
class _Point:
    launch: str
    watts: float
    input_rate: float
    output_rate: float

    @classmethod
    def of(cls, window: MixWindow) -> _Point:
        s = window.seconds
        return cls(
            window.launch, window.joules / s, window.input_tokens / s, window.output_tokens / s
        )


_Figures = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class _Sums:
    """Means, and sums of products about them, from which a fit follows in closed form.

    `squares` are the sums of squares of both token rates, not about their means.
    """

    watts: float
    inputs: float
    outputs: float
    of_inputs: float
    of_outputs: float
    of_both: float
    inputs_watts: float
    outputs_watts: float
    squares: tuple[float, float]

    @classmethod
    def of(cls, points: Sequence[_Point]) -> _Sums:
        watts = fmean([p.watts for p in points])
        inputs = fmean([p.input_rate for p in points])
        outputs = fmean([p.output_rate for p in points])
        y = [p.watts - watts for p in points]
        u = [p.input_rate - inputs for p in points]
        v = [p.output_rate - outputs for p in points]
        return cls(
            watts,
            inputs,
            outputs,
            _dot(u, u),
            _dot(v, v),
            _dot(u, v),
            _dot(u, y),
            _dot(v, y),
            (
                math.fsum(p.input_rate**2 for p in points),
                math.fsum(p.output_rate**2 for p in points),
            ),
        )

    @property
    def _determinant(self) -> float:
        return self.of_inputs * self.of_outputs - self.of_both * self.of_both

    @property
    def inflation(self) -> float:
        """The larger of both kinds; infinite where nothing tells them apart."""
        if self._determinant <= 0:
            return math.inf
        inputs, outputs = self.squares
        return max(inputs * self.of_outputs, outputs * self.of_inputs) / self._determinant

    def figures(self) -> _Figures:
        input_j = self.of_outputs * self.inputs_watts - self.of_both * self.outputs_watts
        output_j = self.of_inputs * self.outputs_watts - self.of_both * self.inputs_watts
        input_j, output_j = input_j / self._determinant, output_j / self._determinant
        return self.watts - input_j * self.inputs - output_j * self.outputs, input_j, output_j


def _fitted(figures: _Figures, point: _Point) -> float:
    base_w, input_j, output_j = figures
    return base_w + input_j * point.input_rate + output_j * point.output_rate


def _estimate(value: float, left_out: Sequence[float]) -> Estimate:
    n = len(left_out)
    variance = (n - 1) / n * math.fsum((other - value) ** 2 for other in left_out)
    half = t_975(n - FIGURES) * math.sqrt(variance)
    return Estimate(value, value - half, value + half)


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))
