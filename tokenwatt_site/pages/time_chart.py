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
        specs = (_panels(lines, frame, WIDE_PX), _panels(lines, frame, NARROW_PX))
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
        .encode(x="x:Q", x2="x2:Q"),
        data(low).mark_rect(color=INK_2).encode(x="x:Q", x2="x2:Q", y="y:Q", y2="y2:Q"),
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
    limits = [] if line.limit is None else [limit_rule([{"y": line.limit}]).encode(y="y:Q")]
    return [*_marks(frame, last, top), drawn, *limits]


def _panels(lines: Sequence[Line], frame: Frame, width: int) -> Mapping[str, Any]:
    """Lay panels out in rows: at most four beside each other, on a phone two."""
    most = 4 if width == WIDE_PX else 2
    columns = min(most, len(lines)) if len(lines) != 4 or width != WIDE_PX else 2
    each, height = (width - 16) // columns - 46, 120 if width == WIDE_PX else 90
    top, end = _top(lines, frame), _end(lines)
    bare = Frame("", "", "", frame.windows, frame.idle)
    charts = []
    for line in lines:
        layers = alt.layer(*_layers(line, bare, top, (3, 3), end))
        title = alt.TitleParams(
            line.name, anchor="start", fontSize=12, fontWeight="normal", color=INK, offset=4
        )
        layers = layers.properties(width=each, height=height, title=title)
        charts.append(layers)
    return finish_panels(charts, columns, f"{frame.y}, against {frame.x.lower()}")


def _band(lines: Sequence[Line], frame: Frame) -> list[alt.Chart]:
    top, end = _top(lines, frame), _end(lines)
    x = alt.X("x:Q", scale=scale(0, end), axis=x_axis(frame.x, 5))
    y = alt.Y("y:Q", scale=scale(0, top), axis=y_axis(f"{frame.y}, each by itself", 4))
    area = (
        named(_BAND).mark_area(color=BLUE_SOFT).encode(x=x, y="low:Q", y2="high:Q", detail="part:N")
    )
    mean_line = named(_BAND).mark_line(color=BLUE, strokeWidth=1.6)
    limits = {line.limit for line in lines if line.limit is not None}
    return [
        *_marks(frame, end, top),
        area,
        mean_line.encode(x=x, y=y, detail="part:N"),
        *(limit_rule([{"y": limit}]).encode(y="y:Q") for limit in sorted(limits)),
    ]
