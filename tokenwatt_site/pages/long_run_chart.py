"""The charts of the long run: misses against rate, and what the model leaves untold over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from tokenwatt_site.pages.drawing import BLUE, INK, INK_2, ORANGE, RULE_STRONG, Chart
from tokenwatt_site.pages.vega import both, data, limit_rule, scale, x_axis, y_axis, y_words

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
    x = scale(low, high)
    axis = alt.Axis(
        values=[_log(p) for p in (0.01, 0.1, 1, 10, 100)],
        labelExpr="datum.value <= -2 ? '0.01 or less' : format(pow(10, datum.value), '~g')",
        **y_words("Requests that miss, %"),
    )
    y = alt.Y("y:Q", scale=scale(_log(LEAST_PERCENT) - 0.1, 2.1), axis=axis)
    across = alt.X("rate:Q", scale=x, axis=x_axis("Offered rate, requests/s", 5))
    layers: list[alt.Chart] = []
    if bracket is not None:
        shade = data([{"lo": bracket[0], "hi": bracket[1]}]).mark_rect(
            color=ORANGE, opacity=0.16, clip=True
        )
        layers.append(shade.encode(x=alt.X("lo:Q", scale=x), x2=alt.X2("hi:Q")))
    allowed = sorted({curve.allowed for curve in curves})
    layers += [limit_rule([{"y": _log(level)}]).encode(y=alt.Y("y:Q")) for level in allowed]
    for number, curve in enumerate(curves):
        line = data([{"rate": r, "y": _log(p)} for r, p in curve.points])
        dashes = [1, 0] if number == 0 else [2 + 2 * number, 3]
        layers.append(
            line.mark_line(color=BLUE, strokeWidth=2, strokeDash=dashes).encode(x=across, y=y)
        )
        rate, percent = curve.points[-1]
        end = data([{"rate": rate, "y": _log(percent), "text": curve.label}])
        layers.append(
            end.mark_text(
                color=INK, align="right", dx=-8, dy=-9 if number == 0 else 6 + 13 * number
            ).encode(x=alt.X("rate:Q"), y=alt.Y("y:Q"), text=alt.Text("text:N"))
        )
    if boundary is not None:
        at = data([{"rate": boundary}]).mark_rule(color=INK, strokeWidth=1.4)
        layers.append(at.encode(x=alt.X("rate:Q")))
    marks: tuple[tuple[str, dict[str, Any]], ...] = (
        ("PASS", {"shape": "circle", "filled": True, "color": BLUE, "size": 70}),
        (
            "FAIL",
            {
                "shape": "M-.5,-.5L.5,.5M.5,-.5L-.5,.5",
                "filled": False,
                "color": ORANGE,
                "strokeWidth": 2.4,
                "size": 220,
            },
        ),
    )
    for verdict, mark in marks:
        mine = [{"rate": p.rate, "y": _log(p.percent)} for p in shown if p.verdict == verdict]
        if mine:
            layers.append(data(mine).mark_point(opacity=1, **mark).encode(x=across, y=y))
    said = [f"{c.label}: {c.points[0][1]:.3g}% to {c.points[-1][1]:.3g}%" for c in curves]
    words = f"Rising lines on a logarithmic axis: {'; '.join(said)}. {len(shown)} trials."
    if boundary is not None:
        words += f" An upright line at {boundary:.4g} requests/s, the long-run boundary."
    if bracket is not None:
        words += f" Bracket {bracket[0]:.4g} to {bracket[1]:.4g} requests/s shaded."
    title = "Share of requests that miss against offered rate"
    return Chart("long-run-misses", title, words, both(layers, 260))


def residuals(points: Sequence[tuple[float, float, str]]) -> Chart:
    """What was seen over what the model says, in per cent, by minute of the run.

    Args:
        points: (minute, per cent, "TTFT" or "TPOT").
    """
    most = 1.15 * max(5.0, *(abs(percent) for _, percent, _ in points))
    last = 1.04 * max(1.0, *(minute for minute, _, _ in points))
    x = alt.X("x:Q", scale=scale(0, last), axis=x_axis("Minutes since the first trial", 6))
    y = alt.Y("y:Q", scale=scale(-most, most), axis=y_axis("Seen over modelled, %", 5))
    layers: list[alt.Chart] = [
        data([{"y": 0.0}]).mark_rule(color=RULE_STRONG, strokeWidth=1.4).encode(y=alt.Y("y:Q"))
    ]
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        ("TTFT", {"shape": "circle", "filled": True, "color": BLUE, "size": 60}),
        ("TPOT", {"shape": "diamond", "filled": False, "color": INK_2, "size": 80}),
    )
    for name, mark in kinds:
        mine: list[dict[str, float | str]] = [
            {"x": minute, "y": percent} for minute, percent, which in points if which == name
        ]
        if mine:
            layers.append(
                data(mine).mark_point(opacity=1, strokeWidth=1.8, **mark).encode(x=x, y=y)
            )
    widest = max(points, key=lambda point: abs(point[1]))
    words = (
        f"{len(points)} marks around a line at 0: dots are TTFT, hollow diamonds TPOT. The furthest"
        f" is {widest[2]} at {widest[1]:+.1f}%."
    )
    title = "Median of seen over modelled latency, by trial"
    return Chart("long-run-residuals", title, words, both(layers, 220))


def _log(percent: float) -> float:
    return math.log10(max(percent, LEAST_PERCENT))
