"""Charts over time: a panel for each board, or for many boards one band from least to most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from tokenwatt_site.pages import text
from tokenwatt_site.pages.drawing import BLUE, BLUE_SOFT, INK, INK_2, RULE_STRONG, WINDOW, Chart
from tokenwatt_site.pages.vega import (
    NARROW_PX,
    WIDE_PX,
    both,
    data,
    finish_panels,
    limit_rule,
    named,
    scale,
    x_axis,
    y_axis,
)

MOST_PANELS = 8


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
    rows = {line.name: _rows(line) for line in lines}
    if len(lines) > MOST_PANELS:
        rows = {_BAND: _band_rows(lines)}
        specs = both(_band(lines, frame), 240)
        kind = f"The band spans {len(lines)} lines, with their mean"
    elif len(lines) == 1:
        specs = both(_layers(lines[0], frame, _top(lines, frame), (5, 4)), 240)
        kind = "One line"
    else:
        specs = _panels(lines, frame)
        kind = f"{len(lines)} panels with a line each"
    points = sum(len(line.points) for line in lines)
    said = (
        f"{kind}; {text.counted(points, 'point')}. Shaded:"
        f" {text.counted(len(frame.windows), 'scored window')}. Bars along the bottom:"
        f" {text.counted(len(frame.idle), 'idle span')}."
    )
    # Put in last: Altair would copy every point a dozen times.
    filled = tuple({**spec, "datasets": {**spec.get("datasets", {}), **rows}} for spec in specs)
    return Chart(chart_id, frame.title, said, filled)


_BAND = "band"


def _rows(line: Line) -> list[dict[str, float | str]]:
    return [{"x": a, "y": b, "part": str(part)} for a, b, part in line.points]


def _band_rows(lines: Sequence[Line]) -> list[dict[str, float | str]]:
    rows: list[dict[str, float | str]] = []
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


def _marks(frame: Frame, end: float, top: float) -> list[alt.Chart]:
    """Return the shades of windows and the bars of idle spans, as far as they are in the frame."""
    shades, bars = (
        [{"x": max(0.0, a), "x2": min(end, b)} for a, b in spans if b > 0 and a < end]
        for spans in (frame.windows, frame.idle)
    )
    low = [{**bar, "y": 0.0, "y2": 0.035 * top} for bar in bars]
    return [
        data(shades)
        .mark_rect(fill=WINDOW, stroke=RULE_STRONG, strokeWidth=0.8)
        .encode(x=alt.X("x:Q"), x2=alt.X2("x2:Q")),
        data(low)
        .mark_rect(color=INK_2)
        .encode(x=alt.X("x:Q"), x2=alt.X2("x2:Q"), y=alt.Y("y:Q"), y2=alt.Y2("y2:Q")),
    ]


def _layers(
    line: Line, frame: Frame, top: float, ticks: tuple[int, int], end: float | None = None
) -> list[alt.Chart]:
    last = _end([line]) if end is None else end
    x = alt.X("x:Q", scale=scale(0, last), axis=x_axis(frame.x, ticks[0]))
    y = alt.Y("y:Q", scale=scale(0, top), axis=y_axis(frame.y, ticks[1]))
    drawn = (
        named(line.name).mark_line(color=BLUE, strokeWidth=1.6).encode(x=x, y=y, detail="part:N")
    )
    limits = [] if line.limit is None else [limit_rule([{"y": line.limit}]).encode(y=alt.Y("y:Q"))]
    return [*_marks(frame, last, top), drawn, *limits]


def _panels(lines: Sequence[Line], frame: Frame) -> tuple[Mapping[str, Any], ...]:
    """Lay panels out in rows: at most four beside each other, on a phone two.

    Stated once for each limit that there is and then copied: stating is what takes time.
    """
    limits = tuple(dict.fromkeys(line.limit for line in lines))
    bare = Frame("", "", "", frame.windows, frame.idle)
    top, end = _top(lines, frame), _end(lines)
    title = alt.TitleParams(
        "", anchor="start", fontSize=12, fontWeight="normal", color=INK, offset=4
    )
    stated = finish_panels(
        [
            alt.layer(*_layers(Line(_PANEL, (), limit), bare, top, (3, 3), end)).properties(
                title=title
            )
            for limit in limits
        ],
        f"{frame.y}, against {frame.x.lower()}",
    )
    of_limit = dict(zip(limits, stated["concat"], strict=True))
    specs = []
    for width, most, height in ((WIDE_PX, 4, 120), (NARROW_PX, 2, 90)):
        columns = 2 if len(lines) == 4 else min(most, len(lines))
        size = {"width": (width - 16) // columns - 46, "height": height}
        panels = [{**_panel(of_limit[line.limit], line.name), **size} for line in lines]
        specs.append({**stated, "columns": columns, "concat": panels})
    return tuple(specs)


_PANEL = "panel"


def _panel(stated: Mapping[str, Any], name: str) -> dict[str, Any]:
    layers = [
        {**layer, "data": {"name": name}} if layer["data"] == {"name": _PANEL} else layer
        for layer in stated["layer"]
    ]
    return {**stated, "layer": layers, "title": {**stated["title"], "text": name}}


def _band(lines: Sequence[Line], frame: Frame) -> list[alt.Chart]:
    top, end = _top(lines, frame), _end(lines)
    x = alt.X("x:Q", scale=scale(0, end), axis=x_axis(frame.x, 5))
    y = alt.Y("y:Q", scale=scale(0, top), axis=y_axis(f"{frame.y}, each by itself", 4))
    area = (
        named(_BAND)
        .mark_area(color=BLUE_SOFT)
        .encode(x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), detail="part:N")
    )
    mean_line = named(_BAND).mark_line(color=BLUE, strokeWidth=1.6)
    limits = {line.limit for line in lines if line.limit is not None}
    return [
        *_marks(frame, end, top),
        area,
        mean_line.encode(x=x, y=y, detail="part:N"),
        *(limit_rule([{"y": limit}]).encode(y=alt.Y("y:Q")) for limit in sorted(limits)),
    ]
