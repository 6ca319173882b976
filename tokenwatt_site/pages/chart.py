"""The charts of a report, stated in Altair: points in, Vega-Lite documents out.

What a chart shows is one function, how it looks another, which is asked once for all reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import altair as alt

from tokenwatt_site.pages.drawing import (
    BACKGROUND,
    BLUE,
    INK,
    INK_2,
    ORANGE,
    RULE_STRONG,
    Chart,
)
from tokenwatt_site.pages.vega import (
    BARE_PX,
    NARROW_PX,
    Forms,
    Rows,
    both,
    data,
    filled,
    finish,
    limit_rule,
    named,
    scale,
    span,
    x_axis,
    y_axis,
    y_words,
)

_Align: TypeAlias = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial as a point: rate in requests/s; `share` is the least of its objectives' shares."""

    rate: float
    verdict: str
    tokens_per_s: float | None
    share: float | None


def bars(
    chart_id: str,
    title: str,
    rows: Sequence[tuple[str, float, str]],
    axis: str,
    top: float | None = None,
) -> Chart:
    """One horizontal bar per configuration, from 0.

    Args:
        chart_id: unique on the page.
        title: what is drawn.
        rows: (configuration, value, the value as it is written).
        axis: title of the axis, with the unit.
        top: end of the axis; None lets the largest value decide.
    """
    drawn: Rows = [{"row": f"{i}", "value": v, "text": t} for i, (_, v, t) in enumerate(rows)]
    end = top if top is not None else 1.28 * max((v for _, v, _ in rows), default=1.0)
    specs = filled(_bars(axis, len(rows)), {"rows": drawn}, {"across": (0, end)})
    said = "; ".join(f"{name}: {text}" for name, _, text in rows)
    return Chart(chart_id, title, f"Bars from 0. {said}.", specs)


@cache
def _bars(axis: str, rows: int) -> Forms:
    x = alt.X("value:Q", scale=span("across"), axis=x_axis(axis, 4))
    base = named("rows").encode(y=alt.Y("row:N", axis=None), x=x)
    words = base.mark_text(align="left", dx=6, color=INK, fontWeight="bold")
    layers = [base.mark_bar(color=BLUE, height=26), words.encode(text=alt.Text("text:N"))]
    return (finish(layers, BARE_PX, 38 * rows),)


def shares(
    chart_id: str,
    title: str,
    rows: Sequence[tuple[str, float, str]],
    axis: str,
) -> Chart:
    """One horizontal bar per row from 0, with 100% as a dashed line; what is more is drawn as more.

    Args:
        chart_id: unique on the page.
        title: what is drawn.
        rows: (what it is, per cent, the share as it is written).
        axis: title of the axis, with the unit.
    """
    drawn: Rows = [
        {"row": f"{i}", "value": v, "zero": 0.0, "text": f"{name}: {words}"}
        for i, (name, v, words) in enumerate(rows)
    ]
    end = max(100.0, *(1.04 * v for _, v, _ in rows))
    specs = filled(_shares(axis, len(rows)), {"rows": drawn}, {"across": (0, end)})
    said = "; ".join(f"{name}: {words}" for name, _, words in rows)
    return Chart(chart_id, title, f"Bars from 0, a dashed line at 100%. {said}.", specs)


@cache
def _shares(axis: str, rows: int) -> Forms:
    x, y = span("across"), alt.Y("row:N", axis=None)
    bar = named("rows").mark_bar(color=BLUE, height=16, yOffset=9)
    label = named("rows").mark_text(color=INK, align="left", dy=-9)
    layers = [
        bar.encode(y=y, x=alt.X("value:Q", scale=x, axis=x_axis(axis, 4))),
        label.encode(y=y, x=alt.X("zero:Q", scale=x), text=alt.Text("text:N")),
        limit_rule(data([{"x": 100.0}])).encode(x=alt.X("x:Q")),
    ]
    return (finish(layers, BARE_PX, 44 * rows),)


def goodput(
    trials: Sequence[Trial],
    bracket: tuple[float, float] | None,
    computed: tuple[float, float] | None = None,
) -> Chart:
    """Delivered output tokens against offered rate, the bracket shaded.

    `computed` is (rate, goodput) at the boundary: a mark of its own, for no trial ran there.
    """
    words = "Delivered output tokens against offered rate"
    points = [(t, t.tokens_per_s) for t in trials if t.tokens_per_s is not None]
    top = max([v for _, v in points] + ([computed[1]] if computed else []), default=1.0)
    rows = _shade(bracket)
    if computed is not None:
        rows["computed"] = [{"rate": computed[0], "y": computed[1], "text": _COMPUTED}]
    spans = {"rates": _rates(trials, bracket), "values": (0, 1.15 * top)}
    return _against_rate("goodput", words, points, rows, spans)


def attainment(
    trials: Sequence[Trial], bracket: tuple[float, float] | None, quantile: float | None
) -> Chart:
    """Share of requests within the limit, on a scale of nines; `quantile` is the SLO's line."""
    words = "Requests within their limit against offered rate"
    points = [(t, _nines(t.share)) for t in trials if t.share is not None]
    rows = _shade(bracket)
    if quantile is not None:
        rows["quantile"] = [{"y": _nines(quantile)}]
    spans = {"rates": _rates(trials, bracket), "values": (0, 3.2)}
    return _against_rate("attainment", words, points, rows, spans)


def distribution(
    chart_id: str,
    name: str,
    points: Sequence[tuple[float, float]],
    limits: Sequence[tuple[str, float, float]],
) -> Chart:
    """The share of requests at or below each latency, with the limits of the SLO.

    Args:
        chart_id: unique on the page.
        name: of the metric.
        points: (milliseconds, per cent of requests); where the others did not end well they stop
            below 100.
        limits: (label, limit in ms, quantile in per cent).
    """
    end = 1.06 * max([x for x, _ in points] + [limit for _, limit, _ in limits])
    rows: dict[str, Rows] = {"curve": [{"x": a, "y": b} for a, b in points]}
    for number, (label, limit, quantile) in enumerate(limits):
        rows[f"limit {number}"] = [{"x": limit, "y": quantile, "top": 0.0, "text": label}]
    # The words of a limit stand on the side of its line that has the more room.
    sides: tuple[_Align, ...] = tuple("left" if x < end / 2 else "right" for _, x, _ in limits)
    said = "; ".join(f"{label} at {quantile:g}% of requests" for label, _, quantile in limits)
    top = max((share for _, share in points), default=100.0)
    end_words = "" if top >= 100 else f" It ends at {top:g}% of requests."
    return Chart(
        chart_id,
        f"{name}: share of requests at or below each value",
        f"A rising step curve of {len(points)} order statistics.{end_words}"
        f" Limits: {said or 'none'}.",
        filled(_distribution(name, sides), rows, {"across": (0, end)}),
    )


@cache
def _distribution(name: str, sides: tuple[_Align, ...]) -> Forms:
    x = alt.X("x:Q", scale=span("across"), axis=x_axis(f"{name}, ms", 5))
    axis = alt.Axis(values=[0, 25, 50, 75, 100], **y_words("Requests at or below, %"))
    y = alt.Y("y:Q", scale=scale(0, 100), axis=axis)
    curve = named("curve").mark_line(color=BLUE, strokeWidth=2, interpolate="step-after")
    layers: list[alt.Chart] = [curve.encode(x=x, y=y)]
    for number, align in enumerate(sides):
        at, dx = named(f"limit {number}"), 7 if align == "left" else -7
        layers += [
            limit_rule(at).encode(x=alt.X("x:Q")),
            at.mark_point(
                color=ORANGE, shape="diamond", filled=False, size=70, strokeWidth=2
            ).encode(x=alt.X("x:Q"), y=alt.Y("y:Q")),
            *(
                at.mark_text(align=align, dx=dx, dy=-11, fontWeight="bold", **drawn).encode(
                    x=alt.X("x:Q"), y=alt.Y("top:Q"), text=alt.Text("text:N")
                )
                for drawn in _READABLE
            ),
        ]
    return (finish(layers, NARROW_PX, 174),)


def drop(
    chart_id: str, interval: tuple[float, float, float], allowed: float, written: str
) -> Chart:
    """A drop with its interval on an axis of points, with 0 and what is allowed.

    Args:
        chart_id: unique on the page.
        interval: (low, drop, high) in points of 100.
        allowed: the greatest drop that passes, as a dashed line.
        written: the same as it is written.
    """
    low, value, high = interval
    left, right = min(low, 0.0), max(high, allowed)
    edge = 0.12 * (right - left)
    rows: dict[str, Rows] = {
        "allowed": [{"x": allowed, "text": f"{written} allowed"}],
        "interval": [{"lo": low, "hi": high}],
        "drop": [{"x": value}],
    }
    # The label stands on the side that has room.
    forms = _drop("right" if allowed > (left + right) / 2 else "left")
    specs = filled(forms, rows, {"across": (left - edge, right + edge)})
    said = (
        f"A dot at {value:.2f} points, a line from {low:.2f} to {high:.2f}; a dashed line at"
        f" {written} points, a thin one at 0."
    )
    title = "Drop of accuracy from the reference, with its 95% interval"
    return Chart(chart_id, title, said, specs)


@cache
def _drop(align: _Align) -> Forms:
    ends = span("across")
    x = alt.X("x:Q", scale=ends, axis=x_axis("Drop from the reference, points", 5))
    up, down = alt.value(38), alt.value(96)
    line = named("interval").mark_rule(color=BLUE, strokeWidth=3)
    dot = named("drop").mark_point(shape="circle", filled=True, color=BLUE, size=110, opacity=1)
    label = named("allowed").mark_text(
        align=align, dx=-7 if align == "right" else 7, color=ORANGE, fontWeight="bold"
    )
    layers = [
        data([{"x": 0.0}]).mark_rule(color=RULE_STRONG).encode(x=x),
        limit_rule(named("allowed")).encode(x=alt.X("x:Q")),
        line.encode(x=alt.X("lo:Q", scale=ends), x2=alt.X2("hi:Q"), y=up),
        dot.encode(x=alt.X("x:Q"), y=up),
        label.encode(x=alt.X("x:Q"), y=down, text=alt.Text("text:N")),
    ]
    return both(layers, 108)


_READABLE: tuple[dict[str, Any], ...] = (
    {"color": BACKGROUND, "stroke": BACKGROUND, "strokeWidth": 4},
    {"color": ORANGE},
)
"""Text on a ground of its own: near the boundary the curve runs through the label of its limit."""

MARKS: Mapping[str, Callable[[alt.Chart], alt.Chart]] = {
    "PASS": lambda c: c.mark_point(shape="circle", filled=True, color=BLUE, size=70, opacity=1),
    "FAIL": lambda c: c.mark_point(
        shape="M-.5,-.5L.5,.5M.5,-.5L-.5,.5",
        filled=False,
        color=ORANGE,
        strokeWidth=2.4,
        size=220,
        opacity=1,
    ),
    "INVALID": lambda c: c.mark_point(
        shape="square",
        filled=False,
        color=INK_2,
        strokeDash=[2, 2],
        strokeWidth=1.6,
        size=90,
        opacity=1,
    ),
}
"""Shape says the same as colour, which alone would not reach everybody."""


def _rates(trials: Sequence[Trial], bracket: tuple[float, float] | None) -> tuple[float, float]:
    """Begin and end the axis of rates at the same places in both charts, whatever each can show.

    Not at 0: the trials that settle the boundary are near one another and far from it.
    """
    rates = [trial.rate for trial in trials] + list(bracket or ())
    return 0.95 * min(rates, default=0.0), 1.05 * max(rates, default=1.0)


def _shade(bracket: tuple[float, float] | None) -> dict[str, Rows]:
    return {} if bracket is None else {"bracket": [{"lo": bracket[0], "hi": bracket[1]}]}


def _against_rate(
    chart_id: str,
    title: str,
    points: Sequence[tuple[Trial, float]],
    more: Mapping[str, Rows],
    spans: Mapping[str, tuple[float, float]],
) -> Chart:
    rows, counts = dict(more), []
    for verdict in MARKS:
        mine: Rows = [{"rate": t.rate, "y": v} for t, v in points if t.verdict == verdict]
        counts.append(f"{len(mine)} {verdict}")
        if mine:
            rows[verdict] = mine
    said = f"Trials: {', '.join(counts)}."
    for bracket in rows.get("bracket", ()):
        said += f" Bracket {bracket['lo']:.4g} to {bracket['hi']:.4g} requests/s shaded."
    if "computed" in rows:
        said += f" A hollow diamond is {_COMPUTED}."
    specs = filled(_over_rates(chart_id, frozenset(rows)), rows, spans)
    return Chart(chart_id, title, said, specs)


_COMPUTED = "computed at the boundary"


@cache
def _over_rates(chart_id: str, drawn: frozenset[str]) -> Forms:
    rates = span("rates")
    x = alt.X("rate:Q", scale=rates, axis=x_axis("Offered rate, requests/s", 5))
    y = alt.Y("y:Q", scale=span("values"), axis=_VALUES[chart_id])
    shade = named("bracket").mark_rect(color=ORANGE, opacity=0.16)
    layers = {
        "bracket": (shade.encode(x=alt.X("lo:Q", scale=rates), x2=alt.X2("hi:Q")),),
        "quantile": (limit_rule(named("quantile")).encode(y=alt.Y("y:Q")),),
        **{verdict: (mark(named(verdict)).encode(x=x, y=y),) for verdict, mark in MARKS.items()},
        "computed": _computed(),
    }
    shown = [layer for name, each in layers.items() if name in drawn for layer in each]
    # The trials that settle the boundary lie close together: one of the two charts is wide.
    return both(shown, 184) if chart_id == "attainment" else (finish(shown, NARROW_PX, 184),)


def _computed() -> tuple[alt.Chart, ...]:
    """Mark a value that no trial delivered.

    Its label stands below it: at lower rates less arrives, so that the trials lie on a slope.
    """
    at = named("computed").encode(x=alt.X("rate:Q"), y=alt.Y("y:Q"))
    mark = at.mark_point(shape="diamond", filled=False, color=INK, size=110, strokeWidth=2)
    label = at.mark_text(color=INK, align="center", dy=38).encode(text=alt.Text("text:N"))
    return mark, label


def _nines(share: float) -> float:
    """Place a share on the scale of nines; 99.9% and above share the top."""
    return -math.log10(max(1 - share, 10**-3.1))


_VALUES: Mapping[str, alt.Axis] = {
    "goodput": y_axis("Output tok/s delivered", 4),
    "attainment": alt.Axis(
        values=[0, _nines(0.5), 1, 2, 3],
        labelExpr="datum.value >= 3 ? '99.9' : datum.value >= 2 ? '99'"
        " : datum.value >= 1 ? '90' : datum.value > 0 ? '50' : '0'",
        **y_words("Requests within the limit, %, worst objective"),
    ),
}
