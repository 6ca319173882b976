"""Charts over time: a panel for each board, or for many boards one band from least to most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import altair as alt

from tokenwatt_site.pages import text
from tokenwatt_site.pages.drawing import (
    BLUE,
    BLUE_SOFT,
    INK,
    INK_2,
    MOST_HALVES,
    RULE_STRONG,
    WINDOW,
    Chart,
)
from tokenwatt_site.pages.vega import (
    NARROW_PX,
    Forms,
    Rows,
    both,
    filled,
    finish,
    limit_rule,
    named,
    span,
    x_axis,
    y_axis,
)

MOST_PANELS = 8

SMALL_PX = 126
"""Of the plot of a panel where there are many."""


@dataclass(frozen=True, slots=True)
class Line:
    """One board: (x, y, part) points, where a line is drawn within a part only; its limit."""

    name: str
    points: Sequence[tuple[float, float, int]]
    limit: float | None


@dataclass(frozen=True, slots=True)
class Frame:
    """What all lines share: axes, marked spans in units of x, the end of y where it is given."""

    title: str
    x: str
    y: str
    windows: Sequence[tuple[float, float]]
    idle: Sequence[tuple[float, float]]
    top: float | None = None


def over_time(chart_id: str, lines: Sequence[Line], frame: Frame) -> Chart:
    """Draw each board apart, on one scale; more than `MOST_PANELS` as a band with their mean.

    The points of all lines of a band are at the same times.
    """
    spans = {"across": (0.0, _end(lines)), "up": (0.0, _top(lines, frame))}
    ground = _marks(frame, spans)
    panels: tuple[tuple[str, str], ...] = ()
    if len(lines) > MOST_PANELS:
        allowed = {line.limit for line in lines if line.limit is not None}
        rows = ground | {"band": _band_rows(lines), "allowed": [{"y": y} for y in sorted(allowed)]}
        specs = filled(_band(frame.x, frame.y, limited=bool(allowed)), rows, spans)
        kind = f"The band spans {len(lines)} lines, with their mean"
    elif len(lines) == 1:
        forms = _alone(frame.x, frame.y, limited=lines[0].limit is not None)
        specs, kind = filled(forms, ground | _rows(lines[0]), spans), "One line"
    else:
        specs = tuple(
            spec
            for line in lines
            for spec in filled(
                _panel(limited=line.limit is not None, small=len(lines) > MOST_HALVES),
                ground | _rows(line),
                spans,
                {"name": line.name},
            )
        )
        panels = tuple((line.name, _said(line)) for line in lines)
        kind = f"{len(lines)} panels with a line each"
    points = sum(len(line.points) for line in lines)
    said = (
        f"{kind}; {text.counted(points, 'point')}. Shaded:"
        f" {text.counted(len(frame.windows), 'scored window')}. Bars along the bottom:"
        f" {text.counted(len(frame.idle), 'idle span')}."
    )
    return Chart(chart_id, frame.title, said, specs, panels)


def _said(line: Line) -> str:
    values = [y for _, y, _ in line.points]
    return f"From {min(values):.4g} to {max(values):.4g}." if values else "No readings."


def _rows(line: Line) -> dict[str, Rows]:
    points: Rows = [{"x": a, "y": b, "part": str(part)} for a, b, part in line.points]
    return {"line": points, "limit": [] if line.limit is None else [{"y": line.limit}]}


def _band_rows(lines: Sequence[Line]) -> Rows:
    rows: Rows = []
    for at in zip(*(line.points for line in lines), strict=True):
        values = [y for _, y, _ in at]
        mean = sum(values) / len(values)
        x, _, part = at[0]
        rows.append({"x": x, "y": mean, "low": min(values), "high": max(values), "part": str(part)})
    return rows


def _top(lines: Sequence[Line], frame: Frame) -> float:
    if frame.top is not None:
        return frame.top
    values = [y for line in lines for _, y, _ in line.points]
    values += [line.limit for line in lines if line.limit is not None]
    return 1.1 * max(values, default=1.0) or 1.0


def _end(lines: Sequence[Line]) -> float:
    return max((x for line in lines for x, _, _ in line.points), default=1.0) or 1.0


def _marks(frame: Frame, spans: Mapping[str, tuple[float, float]]) -> dict[str, Rows]:
    """Return the shades of windows and the bars of idle spans, as far as they are in the frame."""
    (_, end), (_, top) = spans["across"], spans["up"]

    def shown(found: Sequence[tuple[float, float]], **more: float) -> Rows:
        inside = [(a, b) for a, b in found if b > 0 and a < end]
        return [{"x": max(0.0, a), "x2": min(end, b), **more} for a, b in inside]

    return {"windows": shown(frame.windows), "idle": shown(frame.idle, y=0.0, y2=0.035 * top)}


def _ground() -> list[alt.Chart]:
    x, x2 = alt.X("x:Q"), alt.X2("x2:Q")
    shades = named("windows").mark_rect(fill=WINDOW, stroke=RULE_STRONG, strokeWidth=0.8)
    bars = named("idle").mark_rect(color=INK_2)
    return [
        shades.encode(x=x, x2=x2),
        bars.encode(x=x, x2=x2, y=alt.Y("y:Q"), y2=alt.Y2("y2:Q")),
    ]


def _axes(x: str, y: str, ticks: tuple[int, int]) -> tuple[alt.X, alt.Y]:
    across = alt.X("x:Q", scale=span("across"), axis=x_axis(x, ticks[0]))
    return across, alt.Y("y:Q", scale=span("up"), axis=y_axis(y, ticks[1]))


def _layers(axes: tuple[alt.X, alt.Y], *, limited: bool) -> list[alt.Chart]:
    x, y = axes
    line = named("line").mark_line(color=BLUE, strokeWidth=1.6)
    limits = [limit_rule(named("limit")).encode(y=alt.Y("y:Q"))] if limited else []
    return [*_ground(), line.encode(x=x, y=y, detail="part:N"), *limits]


@cache
def _alone(x: str, y: str, *, limited: bool) -> Forms:
    return both(_layers(_axes(x, y, (5, 4)), limited=limited), 174)


@cache
def _panel(*, limited: bool, small: bool) -> Forms:
    """One of several alike, under its name; what their axes are stands beside them."""
    title = alt.TitleParams(
        alt.ExprRef("name"),
        anchor="start",
        fontSize=12,
        fontWeight="normal",
        color=INK,
        offset=4,
    )
    width, height = (SMALL_PX, 90) if small else (NARROW_PX, 100)
    return (finish(_layers(_axes("", "", (3, 3)), limited=limited), width, height, title),)


@cache
def _band(x: str, y: str, *, limited: bool) -> Forms:
    across, up = _axes(x, f"{y}, each by itself", (5, 4))
    area = named("band").mark_area(color=BLUE_SOFT)
    mean_line = named("band").mark_line(color=BLUE, strokeWidth=1.6)
    layers = [
        *_ground(),
        area.encode(x=across, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), detail="part:N"),
        mean_line.encode(x=across, y=up, detail="part:N"),
    ]
    if limited:
        layers.append(limit_rule(named("allowed")).encode(y=alt.Y("y:Q")))
    return both(layers, 174)
