"""The pieces that all charts are made of: axes, scales, dashed limits, the two widths.

To state a chart in Altair takes longer than to draw it. So the charts of reports are stated once in
a process, as forms: Vega-Lite documents that name their rows, and what their axes span, by names
that `filled` gives a meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import altair as alt
from altair.utils import schemapi

from tokenwatt_site.pages.drawing import INK, INK_2, ORANGE, RULE, RULE_STRONG

# Altair would check every piece as it is made; that is a third of the time, and the tests do it.
schemapi.DEBUG_MODE = False

Forms: TypeAlias = tuple[Mapping[str, Any], ...]
"""Vega-Lite documents: the wide one and the narrow one, or a single one."""

Rows: TypeAlias = list[dict[str, float | str]]

WIDE_PX = 740
NARROW_PX = 300
"""Of the plot itself; the numbers of an axis take some 30 px more."""

BARE_PX = 328
"""Of a narrow plot that has no numbers at its left."""


def data(rows: Sequence[Mapping[str, float | str]]) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=[dict(row) for row in rows]))


def named(name: str) -> alt.Chart:
    """Draw the rows that `filled` puts in under this name."""
    return alt.Chart(alt.NamedData(name=name))


def filled(
    forms: Forms,
    rows: Mapping[str, Rows],
    spans: Mapping[str, tuple[float, float]],
    words: Mapping[str, str] | None = None,
) -> Forms:
    """Return forms with what they name.

    Args:
        forms: Vega-Lite documents, which stay as they are.
        rows: for `named`.
        spans: for `span`.
        words: for titles that are expressions.
    """
    params: list[dict[str, Any]] = [{"name": n, "value": list(ends)} for n, ends in spans.items()]
    params += [{"name": name, "value": told} for name, told in (words or {}).items()]
    return tuple(
        {**form, "datasets": {**form.get("datasets", {}), **rows}, "params": params}
        for form in forms
    )


def limit_rule(rows: alt.Chart) -> alt.Chart:
    rule: alt.Chart = rows.mark_rule(color=ORANGE, strokeDash=[6, 4], strokeWidth=1.6)
    return rule


def both(layers: Sequence[alt.Chart], height: int) -> Forms:
    wide = finish(layers, WIDE_PX, height)
    return (wide, {**wide, "width": NARROW_PX})


def finish(
    layers: Sequence[alt.Chart], width: int, height: int, title: alt.TitleParams | None = None
) -> dict[str, Any]:
    """State a chart whose plot is of this size: to fit all into a size, Vega lays it out twice."""
    # Said at once: each `.properties` and `.configure` would copy all that is drawn.
    layered = alt.layer(
        *layers,
        title=alt.Undefined if title is None else title,
        width=width,
        height=height,
        background="transparent",
        padding={"left": 2, "right": 14, "top": 4, "bottom": 2},
        config=alt.Config(
            aria=False,
            font="sans-serif",
            view=alt.ViewConfig(strokeWidth=0),
            text=alt.MarkConfig(fontSize=12),
        ),
    )
    finished: dict[str, Any] = layered.to_dict(validate=False)
    return finished


def scale(low: float, high: float) -> alt.Scale:
    return alt.Scale(domain=[low, high], nice=False)


def span(name: str) -> alt.Scale:
    """Begin and end where `filled` says under this name."""
    return alt.Scale(domain=alt.ExprRef(name), nice=False)


_AXIS: dict[str, Any] = {
    # Asked whether it is too long, each label would be measured three times.
    "labelLimit": 0,
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
    "labelColor": INK_2,
    "titleColor": INK,
    "domainColor": RULE_STRONG,
    "tickColor": RULE_STRONG,
    "gridColor": RULE,
}


def x_axis(title: str, ticks: int) -> alt.Axis:
    return alt.Axis(
        title=title, tickCount=ticks, grid=False, titleAnchor="end", titlePadding=6, **_AXIS
    )


def y_words(title: str) -> dict[str, Any]:
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


def y_axis(title: str, ticks: int) -> alt.Axis:
    return alt.Axis(tickCount=ticks, **y_words(title))
