"""What the goodput benchmark found, as it stands in the prose of a page: tables and charts.

Its figures are called as `make bench B=goodput` calls them: what is told, `_`, the family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt

from tokenwatt_site.canonical import JsonValue, load_json
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.pages.drawing import BLUE, INK, ORANGE, RULE_STRONG, Chart
from tokenwatt_site.pages.figure import Figure, Table
from tokenwatt_site.pages.page import render_template
from tokenwatt_site.pages.vega import both, data, limit_rule, scale, x_axis

HOLE = "<!--tw:goodput-bench-->"
"""Where it stands in the prose."""

MAX_BYTES = 1 << 20

_TOLD = (
    ("corrected_abs_bias_pct", "Bias, long run, %"),
    ("corrected_spread_pct", "Spread, long run, %"),
    ("window_abs_bias_pct", "Bias, one window, %"),
    ("window_spread_pct", "Spread, one window, %"),
    ("coverage_pct", "Coverage of the 95% interval, %"),
    ("refused_pct", "Refused, %"),
    ("measurements", "Measurements"),
)
"""Names of figures before that of the family -> heads of columns."""

BIAS_GOAL, SPREAD_GOAL = 1.0, 1.9
"""Per cent: what the correction is to stay within."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Per family of engines, in the order of the file, its figures; None: it has no such one."""

    families: Mapping[str, tuple[float | None, ...]]
    engine_time_ratio: float | None
    wrong_refused_pct: float | None
    machine: str
    commit: str


@dataclass(frozen=True, slots=True)
class Shown:
    """HTML for the hole, with holes for the charts."""

    html: str
    charts: tuple[Chart, ...]


def read(path: Path) -> Bench:
    """Read what the benchmark wrote.

    Raises:
        InputError: it is not the benchmark's: no JSON, or a figure that is no number.
    """
    document = load_json(path.read_bytes(), source=str(path), limit=MAX_BYTES)
    told = document if isinstance(document, dict) else {}
    figures = told.get("figures")
    if not isinstance(figures, dict):
        raise InputError(_not_ours(path, "figures", "none", "an object of numbers"))
    known = {name: _number(path, name, value) for name, value in figures.items()}
    families: dict[str, tuple[float | None, ...]] = {}
    for name in known:
        for key, _ in _TOLD:
            family = name.removeprefix(f"{key}_")
            if family != name:
                families.setdefault(family, tuple(known.get(f"{k}_{family}") for k, _ in _TOLD))
    return Bench(
        families=families,
        engine_time_ratio=known.get("engine_time_ratio"),
        wrong_refused_pct=known.get("wrong_refused_pct"),
        machine=str(told.get("machine", "a machine that was not recorded")),
        commit=str(told.get("commit", "not recorded")),
    )


def section(path: Path, url: str) -> Shown:
    """Return what stands in the hole: the figures, or that the benchmark was not run yet.

    Args:
        path: what the benchmark wrote, if it was run.
        url: the same as the page links to it.

    Raises:
        InputError: as `read`.
    """
    if not path.is_file():
        return Shown(render_template("goodput_bench.html.j2", bench=None, figures=()), ())
    bench = read(path)
    figures = (
        _figure(bench, "bias", "Bias of the boundary, by family of engines", (0, 2), BIAS_GOAL),
        _figure(bench, "spread", "Spread of one repeat, by family of engines", (1, 3), SPREAD_GOAL),
    )
    html = render_template(
        "goodput_bench.html.j2", bench=bench, table=_table(bench), figures=figures, url=url
    )
    return Shown(html, tuple(f.chart for f in figures if f.chart is not None))


def _number(path: Path, name: str, value: JsonValue) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(_not_ours(path, f"figures.{name}", repr(value), "a number or null"))
    return float(value)


def _not_ours(path: Path, field: str, found: str, expected: str) -> Problem:
    return Problem(
        "this is not what the benchmark writes",
        file=str(path),
        field=field,
        found=found,
        expected=expected,
        remedy="Copy build/bench/goodput.json here, as `make bench B=goodput` writes it.",
    )


def _table(bench: Bench) -> Table:
    head = ("Family of engines", *(words for _, words in _TOLD))
    rows = tuple(
        (_words(family), *(_written(value) for value in values), _count(n))
        for family, (*values, n) in bench.families.items()
    )
    return head, rows


def _count(n: float | None) -> str:
    return "–" if n is None else f"{n:.0f}"


def _written(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _said(value: float | None) -> str:
    return "not told" if value is None else f"{value:.1f}%"


def _words(family: str) -> str:
    return family.replace("_", " ")


def _figure(bench: Bench, name: str, heading: str, columns: tuple[int, int], goal: float) -> Figure:
    pairs = [
        (_words(family), values[columns[0]], values[columns[1]])
        for family, values in bench.families.items()
    ]
    known = any(value is not None for _, *values in pairs for value in values)
    figure_id = f"goodput-bench-{name}"
    return Figure(
        id=figure_id,
        heading=heading,
        lead=(
            "Dots are what this project publishes as long run, crosses the same search on one"
            f" window of two minutes. The dashed line is the goal, {goal:g}%."
        ),
        chart=_pairs(figure_id, heading, pairs, goal) if known else None,
        missing=None if known else "not told by the benchmark",
        note="The table above has the data.",
        table=None,
    )


def _pairs(
    chart_id: str, title: str, pairs: Sequence[tuple[str, float | None, float | None]], goal: float
) -> Chart:
    """Draw two marks a family on one axis from 0, told apart by shape, with a line between."""
    rows = [(name, a, b) for name, a, b in pairs if a is not None or b is not None]
    values = [v for _, *pair in rows for v in pair if v is not None]
    x = scale(0, 1.08 * max(goal, *values))
    y = alt.Y("row:N", axis=None, sort=None)
    across = alt.X("v:Q", scale=x, axis=x_axis("Per cent of the long-run boundary", 5))
    labels = data([{"row": name, "zero": 0.0} for name, _, _ in rows])
    lines: list[dict[str, Any]] = [
        {"row": name, "lo": min(a, b), "hi": max(a, b)}
        for name, a, b in rows
        if a is not None and b is not None
    ]
    ours: list[dict[str, Any]] = [{"row": name, "v": a} for name, a, _ in rows if a is not None]
    theirs: list[dict[str, Any]] = [{"row": name, "v": b} for name, _, b in rows if b is not None]
    layers = [
        limit_rule(data([{"x": goal}])).encode(x=alt.X("x:Q", scale=x)),
        data(lines)
        .mark_rule(color=RULE_STRONG, strokeWidth=2, yOffset=9)
        .encode(y=y, x=alt.X("lo:Q", scale=x), x2=alt.X2("hi:Q")),
        labels.mark_text(color=INK, align="left", dy=-9).encode(
            y=y, x=alt.X("zero:Q", scale=x), text=alt.Text("row:N")
        ),
        data(ours)
        .mark_point(shape="circle", filled=True, color=BLUE, size=80, opacity=1, yOffset=9)
        .encode(y=y, x=across),
        data(theirs)
        .mark_point(
            shape="M-.5,-.5L.5,.5M.5,-.5L-.5,.5",
            filled=False,
            color=ORANGE,
            strokeWidth=2.4,
            size=180,
            opacity=1,
            yOffset=9,
        )
        .encode(y=y, x=across),
    ]
    said = "; ".join(f"{name}: {_said(a)} against {_said(b)}" for name, a, b in rows)
    words = f"A dot (long run) and a cross (one window) for each family, on an axis from 0. {said}."
    return Chart(chart_id, title, words, both(layers, 44 * len(rows)))
