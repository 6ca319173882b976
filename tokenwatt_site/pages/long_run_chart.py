"""The charts of the long run: misses against rate, and what the model leaves untold over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import altair as alt

from tokenwatt_site.pages.drawing import BLUE, INK, INK_2, ORANGE, RULE_STRONG, Chart
from tokenwatt_site.pages.vega import (
    Forms,
    Rows,
    both,
    data,
    filled,
    limit_rule,
    named,
    scale,
    span,
    x_axis,
    y_axis,
    y_words,
)

LEAST_PERCENT = 0.01
"""Where the axis of misses begins; fewer are drawn there."""


@dataclass(frozen=True, slots=True)
class Curve:
    """An objective in the long run: `allowed` per cent may miss; points are (rate, per cent)."""

    label: str
    allowed: float
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A trial: its rate, and the per cent that missed its worst objective."""

    rate: float
    percent: float
    verdict: str


def misses(
    curves: Sequence[Curve],
    points: Sequence[Point],
    bracket: tuple[float, float] | None,
    boundary: float | None,
) -> Chart:
    """Per cent of requests that miss, on a logarithmic axis, against rate.

    Args:
        curves: of the long run, one for each objective.
        points: trials.
        bracket: measured, shaded.
        boundary: of the long run, as an upright line.
    """
    rates = [rate for curve in curves for rate, _ in curve.points]
    low, high = 0.98 * min(rates), 1.02 * max(rates)
    shown = [p for p in points if low <= p.rate <= high]
    rows: dict[str, Rows] = {
        "allowed": [{"y": _log(y)} for y in sorted({c.allowed for c in curves})]
    }
    for number, curve in enumerate(curves):
        rate, percent = curve.points[-1]
        rows[f"curve {number}"] = [{"rate": r, "y": _log(p)} for r, p in curve.points]
        rows[f"label {number}"] = [{"rate": rate, "y": _log(percent), "text": curve.label}]
    if bracket is not None:
        rows["bracket"] = [{"lo": bracket[0], "hi": bracket[1]}]
    if boundary is not None:
        rows["boundary"] = [{"rate": boundary}]
    for verdict in _TRIALS:
        mine: Rows = [{"rate": p.rate, "y": _log(p.percent)} for p in shown if p.verdict == verdict]
        if mine:
            rows[verdict] = mine
    specs = filled(_misses(len(curves), frozenset(rows)), rows, {"across": (low, high)})
    said = [f"{c.label}: {c.points[0][1]:.3g}% to {c.points[-1][1]:.3g}%" for c in curves]
    words = f"Rising lines on a logarithmic axis: {'; '.join(said)}. {len(shown)} trials."
    if boundary is not None:
        words += f" An upright line at {boundary:.4g} requests/s, the long-run boundary."
    if bracket is not None:
        words += f" Bracket {bracket[0]:.4g} to {bracket[1]:.4g} requests/s shaded."
    title = "Share of requests that miss against offered rate"
    return Chart("long-run-misses", title, words, specs)


_TRIALS: Mapping[str, Mapping[str, Any]] = {
    "PASS": {"shape": "circle", "filled": True, "color": BLUE, "size": 70},
    "FAIL": {
        "shape": "M-.5,-.5L.5,.5M.5,-.5L-.5,.5",
        "filled": False,
        "color": ORANGE,
        "strokeWidth": 2.4,
        "size": 220,
    },
}


@cache
def _misses(curves: int, drawn: frozenset[str]) -> Forms:
    x = span("across")
    axis = alt.Axis(
        values=[_log(p) for p in (0.01, 0.1, 1, 10, 100)],
        labelExpr="datum.value <= -2 ? '0.01 or less' : format(pow(10, datum.value), '~g')",
        **y_words("Requests that miss, %"),
    )
    y = alt.Y("y:Q", scale=scale(_log(LEAST_PERCENT) - 0.1, 2.1), axis=axis)
    across = alt.X("rate:Q", scale=x, axis=x_axis("Offered rate, requests/s", 5))
    layers: list[alt.Chart] = []
    if "bracket" in drawn:
        shade = named("bracket").mark_rect(color=ORANGE, opacity=0.16, clip=True)
        layers.append(shade.encode(x=alt.X("lo:Q", scale=x), x2=alt.X2("hi:Q")))
    layers.append(limit_rule(named("allowed")).encode(y=alt.Y("y:Q")))
    for number in range(curves):
        dashes = [1, 0] if number == 0 else [2 + 2 * number, 3]
        line = named(f"curve {number}").mark_line(color=BLUE, strokeWidth=2, strokeDash=dashes)
        end = named(f"label {number}").mark_text(
            color=INK, align="right", dx=-8, dy=-9 if number == 0 else 6 + 13 * number
        )
        layers += [
            line.encode(x=across, y=y),
            end.encode(x=alt.X("rate:Q"), y=alt.Y("y:Q"), text=alt.Text("text:N")),
        ]
    if "boundary" in drawn:
        at = named("boundary").mark_rule(color=INK, strokeWidth=1.4)
        layers.append(at.encode(x=alt.X("rate:Q")))
    for verdict, mark in _TRIALS.items():
        if verdict in drawn:
            layers.append(named(verdict).mark_point(opacity=1, **mark).encode(x=across, y=y))
    return both(layers, 194)


def residuals(points: Sequence[tuple[float, float, str]]) -> Chart:
    """What was seen over what the model says, in per cent, by minute of the run.

    Args:
        points: (minute, per cent, "TTFT" or "TPOT").
    """
    most = 1.15 * max(5.0, *(abs(percent) for _, percent, _ in points))
    last = 1.04 * max(1.0, *(minute for minute, _, _ in points))
    rows: dict[str, Rows] = {}
    for name in _LATENCIES:
        mine: Rows = [
            {"x": minute, "y": percent} for minute, percent, which in points if which == name
        ]
        if mine:
            rows[name] = mine
    spans = {"across": (0.0, last), "up": (-most, most)}
    specs = filled(_residuals(frozenset(rows)), rows, spans)
    widest = max(points, key=lambda point: abs(point[1]))
    words = (
        f"{len(points)} marks around a line at 0: dots are TTFT, hollow diamonds TPOT. The furthest"
        f" is {widest[2]} at {widest[1]:+.1f}%."
    )
    title = "Median of seen over modelled latency, by trial"
    return Chart("long-run-residuals", title, words, specs)


_LATENCIES: Mapping[str, Mapping[str, Any]] = {
    "TTFT": {"shape": "circle", "filled": True, "color": BLUE, "size": 60},
    "TPOT": {"shape": "diamond", "filled": False, "color": INK_2, "size": 80},
}


@cache
def _residuals(drawn: frozenset[str]) -> Forms:
    x = alt.X("x:Q", scale=span("across"), axis=x_axis("Minutes since the first trial", 6))
    y = alt.Y("y:Q", scale=span("up"), axis=y_axis("Seen over modelled, %", 5))
    zero = data([{"y": 0.0}]).mark_rule(color=RULE_STRONG, strokeWidth=1.4)
    layers: list[alt.Chart] = [zero.encode(y=alt.Y("y:Q"))]
    for name, mark in _LATENCIES.items():
        if name in drawn:
            point = named(name).mark_point(opacity=1, strokeWidth=1.8, **mark)
            layers.append(point.encode(x=x, y=y))
    return both(layers, 154)


def _log(percent: float) -> float:
    return math.log10(max(percent, LEAST_PERCENT))
