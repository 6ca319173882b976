"""The charts of a report, stated in Altair: points in, Vega-Lite documents out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from tokenwatt_site.pages.drawing import (
    BLUE,
    INK,
    INK_2,
    ORANGE,
    RULE,
    RULE_STRONG,
    WINDOW,
    Chart,
)

WIDE_PX = 780
NARROW_PX = 345


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial as a point: rate in requests/s; `share` is the least of its objectives' shares."""

    rate: float
    verdict: str
    tokens_per_s: float | None
    share: float | None


def bars(
    chart_id: str, title: str, rows: Sequence[tuple[str, float, str]], axis: str, top: float | None
) -> Chart:
    """One horizontal bar per configuration, from 0.

    Args:
        chart_id: unique on the page.
        title: what is drawn.
        rows: (configuration, value, the value as it is written).
        axis: title of the axis, with the unit.
        top: end of the axis; None lets the largest value decide.
    """
    values: list[dict[str, float | str]] = [
        {"row": f"{i}", "value": v, "text": t} for i, (_, v, t) in enumerate(rows)
    ]
    end = top if top is not None else 1.28 * max((v for _, v, _ in rows), default=1.0)
    base = _data(values).encode(
        y=alt.Y("row:N", axis=None), x=alt.X("value:Q", scale=_scale(0, end), axis=_axis(axis, 4))
    )
    words = base.mark_text(align="left", dx=6, color=INK, fontWeight="bold")
    layers = [base.mark_bar(color=BLUE, height=26), words.encode(text="text:N")]
    spec = _finish(layers, NARROW_PX, 42 + 38 * len(rows))
    said = "; ".join(f"{name}: {text}" for name, _, text in rows)
    return Chart(chart_id, title, f"Bars from 0. {said}.", (spec,))


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
    y = alt.Y("y:Q", scale=_scale(0, 1.15 * top), axis=_y_axis("Output tok/s delivered", 4))
    end = _last_rate(trials, bracket)
    over = () if computed is None else _computed(*computed, end)
    return _against_rate("goodput", words, points, bracket, _Frame(y, (), end, over))


def attainment(
    trials: Sequence[Trial], bracket: tuple[float, float] | None, quantile: float | None
) -> Chart:
    """Share of requests within the limit, on a scale of nines; `quantile` is the SLO's line."""
    words = "Requests within their limit against offered rate"
    axis = alt.Axis(
        values=[0, _nines(0.5), 1, 2, 3],
        labelExpr="datum.value >= 3 ? '99.9' : datum.value >= 2 ? '99'"
        " : datum.value >= 1 ? '90' : datum.value > 0 ? '50' : '0'",
        **_y_words("Requests within the limit, %, worst objective"),
    )
    y = alt.Y("y:Q", scale=_scale(0, 3.2), axis=axis)
    points = [(t, _nines(t.share)) for t in trials if t.share is not None]
    lines = [] if quantile is None else [_limit([{"y": _nines(quantile)}]).encode(y="y:Q")]
    frame = _Frame(y, tuple(lines), _last_rate(trials, bracket))
    return _against_rate("attainment", words, points, bracket, frame)


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
    x = alt.X("x:Q", scale=_scale(0, end), axis=_axis(f"{name}, ms", 5))
    y = alt.Y(
        "y:Q",
        scale=_scale(0, 100),
        axis=alt.Axis(values=[0, 25, 50, 75, 100], **_y_words("Requests at or below, %")),
    )
    curve = (
        _data([{"x": a, "y": b} for a, b in points])
        .mark_line(color=BLUE, strokeWidth=2, interpolate="step-after")
        .encode(x=x, y=y)
    )
    layers: list[alt.Chart] = [curve]
    for label, limit, quantile in limits:
        at = _data([{"x": limit, "y": quantile, "top": 0.0, "text": label}])
        layers += [
            _limit([{"x": limit}]).encode(x="x:Q"),
            at.mark_point(
                color=ORANGE, shape="diamond", filled=False, size=70, strokeWidth=2
            ).encode(x="x:Q", y="y:Q"),
            at.mark_text(color=ORANGE, align="right", dx=-7, dy=-6, fontWeight="bold").encode(
                x="x:Q", y="top:Q", text="text:N"
            ),
        ]
    said = "; ".join(f"{label} at {quantile:g}% of requests" for label, _, quantile in limits)
    top = max((share for _, share in points), default=100.0)
    end_words = "" if top >= 100 else f" It ends at {top:g}% of requests."
    return Chart(
        chart_id,
        f"{name}: share of requests at or below each value",
        f"A rising step curve of {len(points)} order statistics.{end_words}"
        f" Limits: {said or 'none'}.",
        _both(layers, 240),
    )


def power(
    points: Sequence[tuple[float, float]],
    windows: Sequence[tuple[float, float]],
    limit_w: float | None,
) -> Chart:
    """Watts of all boards together over seconds, the measured windows shaded."""
    top = 1.1 * max([w for _, w in points] + ([limit_w] if limit_w else []))
    x = alt.X("x:Q", scale=alt.Scale(zero=True, nice=False), axis=_axis("Seconds", 5))
    y = alt.Y("y:Q", scale=_scale(0, top), axis=_y_axis("Watts, all boards", 4))
    shades = _data([{"x": a, "x2": b} for a, b in windows])
    line = _data([{"x": a, "y": b} for a, b in points])
    layers = [
        shades.mark_rect(color=WINDOW).encode(x="x:Q", x2="x2:Q"),
        line.mark_line(color=BLUE, strokeWidth=1.6).encode(x=x, y=y),
    ]
    if limit_w is not None:
        layers.append(_limit([{"y": limit_w}]).encode(y="y:Q"))
    return Chart(
        "power",
        "Board power over time",
        f"{len(points)} samples; measured windows shaded: {len(windows)}.",
        _both(layers, 240),
    )


_MARKS: Mapping[str, Callable[[alt.Chart], alt.Chart]] = {
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


@dataclass(frozen=True, slots=True)
class _Frame:
    """The y axis, what lies under and over the points, and where the axis of rates ends."""

    y: alt.Y
    under: tuple[alt.Chart, ...]
    end: float
    over: tuple[alt.Chart, ...] = ()


def _last_rate(trials: Sequence[Trial], bracket: tuple[float, float] | None) -> float:
    """End the axis of rates at the same place in both charts, whatever each can show."""
    rates = [trial.rate for trial in trials] + list(bracket or ())
    return 1.05 * max(rates, default=1.0)


def _against_rate(
    chart_id: str,
    title: str,
    points: Sequence[tuple[Trial, float]],
    bracket: tuple[float, float] | None,
    frame: _Frame,
) -> Chart:
    scale, y, layers = _scale(0, frame.end), frame.y, list(frame.under)
    x = alt.X("rate:Q", scale=scale, axis=_axis("Offered rate, requests/s", 5))
    if bracket is not None:
        shade = _data([{"lo": bracket[0], "hi": bracket[1]}]).mark_rect(color=ORANGE, opacity=0.16)
        layers = [shade.encode(x=alt.X("lo:Q", scale=scale), x2="hi:Q"), *layers]
    counts = []
    for verdict, mark in _MARKS.items():
        mine = [{"rate": trial.rate, "y": v} for trial, v in points if trial.verdict == verdict]
        counts.append(f"{len(mine)} {verdict}")
        if mine:
            layers = [*layers, mark(_data(mine)).encode(x=x, y=y)]
    said = f"Trials: {', '.join(counts)}."
    if bracket:
        said += f" Bracket {bracket[0]:.4g} to {bracket[1]:.4g} requests/s shaded."
    if frame.over:
        said += f" A hollow diamond is {_COMPUTED}."
    return Chart(chart_id, title, said, _both([*layers, *frame.over], 250))


_COMPUTED = "computed at the boundary"


def _computed(rate: float, value: float, end: float) -> tuple[alt.Chart, ...]:
    """Mark a value that no trial delivered.

    Its label stands above it and to the left, where no trial can be: at a lower rate less arrives.
    """
    at = _data([{"rate": rate, "y": value, "text": _COMPUTED}]).encode(x="rate:Q", y="y:Q")
    mark = at.mark_point(shape="diamond", filled=False, color=INK, size=110, strokeWidth=2)
    if rate > 0.55 * end:
        label = at.mark_text(color=INK, align="right", dx=-10, dy=-8)
    else:
        label = at.mark_text(color=INK, align="left", dx=-6, dy=-17)
    return mark, label.encode(text="text:N")


def _data(rows: Sequence[Mapping[str, float | str]]) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=[dict(row) for row in rows]))


def _limit(rows: Sequence[Mapping[str, float | str]]) -> alt.Chart:
    rule: alt.Chart = _data(rows).mark_rule(color=ORANGE, strokeDash=[6, 4], strokeWidth=1.6)
    return rule


def _nines(share: float) -> float:
    """Place a share on the scale of nines; 99.9% and above share the top."""
    return -math.log10(max(1 - share, 10**-3.1))


def _both(layers: Sequence[alt.Chart], height: int) -> tuple[Mapping[str, Any], ...]:
    return (_finish(layers, WIDE_PX, height), _finish(layers, NARROW_PX, height))


def _finish(layers: Sequence[alt.Chart], width: int, height: int) -> dict[str, Any]:
    finished: dict[str, Any] = (
        alt.layer(*layers)
        .properties(
            width=width,
            height=height,
            background="transparent",
            autosize=alt.AutoSizeParams(type="fit", contains="padding"),
            padding={"left": 2, "right": 14, "top": 4, "bottom": 2},
        )
        .configure(aria=False, font="sans-serif")
        .configure_view(strokeWidth=0)
        .configure_text(fontSize=12)
        .to_dict(validate=False)
    )
    return finished


def _scale(low: float, high: float) -> alt.Scale:
    return alt.Scale(domain=[low, high], nice=False)


_AXIS: dict[str, Any] = {
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
    "labelColor": INK_2,
    "titleColor": INK,
    "domainColor": RULE_STRONG,
    "tickColor": RULE_STRONG,
    "gridColor": RULE,
}


def _axis(title: str, ticks: int) -> alt.Axis:
    return alt.Axis(
        title=title, tickCount=ticks, grid=False, titleAnchor="end", titlePadding=6, **_AXIS
    )


def _y_words(title: str) -> dict[str, Any]:
    return {
        "title": title,
        "titleAngle": 0,
        "titleAlign": "left",
        "titleAnchor": "start",
        "titleX": 0,
        "titleY": -12,
        "titleBaseline": "bottom",
        "domain": False,
        "ticks": False,
        "grid": True,
        **_AXIS,
    }


def _y_axis(title: str, ticks: int) -> alt.Axis:
    return alt.Axis(tickCount=ticks, **_y_words(title))
