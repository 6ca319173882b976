"""What became of a long-run boundary when it was put to the test on a real engine.

`make proof B=goodput` measures it, and writes the document that is read here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import altair as alt
from pydantic import Field

from tokenwatt_site.canonical import load_json
from tokenwatt_site.pages.drawing import BLUE, BLUE_SOFT, INK, ORANGE, Chart
from tokenwatt_site.pages.figure import Figure, Table
from tokenwatt_site.pages.goodput_bench import Shown
from tokenwatt_site.pages.page import render_template
from tokenwatt_site.pages.vega import both, data, scale, x_axis
from tokenwatt_site.schema import Line, Model, Sha256, valid

HOLE = "<!--tw:goodput-proof-->"
"""Where it stands in the prose."""

Percent = Annotated[float, Field(ge=0, le=100)]
Rate = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]


class Block(Model):
    """What missed in one launch, and of the same rows at the same rate in the model."""

    misses: Count
    n: Annotated[int, Field(ge=1)]
    model_misses: Count


class Objective(Model):
    """One objective at one rate, over all blocks.

    `band_percent` is the model's at the ends of the band for one new launch: of an engine that is
    as fast as the band allows, and as slow. `long_run_percent` is the model's over the long run.
    """

    objective: Line
    allowed_percent: Percent
    misses: Count
    n: Annotated[int, Field(ge=1)]
    percent: Percent
    model_percent: Percent
    band_percent: tuple[Percent, Percent]
    long_run_percent: Percent
    blocks: Annotated[tuple[Block, ...], Field(min_length=1, max_length=100)]

    @property
    def inside(self) -> bool:
        """Whether what missed lies within what the model says of one launch."""
        low, high = self.band_percent
        return low <= self.percent <= high

    @property
    def kept(self) -> bool:
        return self.percent <= self.allowed_percent


class Check(Model):
    """`rate` requests/s = `share` of the estimate; `run` has the evidence."""

    share: Rate
    rate: Rate
    run: Sha256
    objectives: Annotated[tuple[Objective, ...], Field(min_length=1, max_length=10)]

    @property
    def kept(self) -> bool:
        """Whether every objective was kept over all its requests."""
        return all(o.kept for o in self.objectives)


class Estimate(Model):
    """The boundary that was tested, in requests/s; `corrected`: by an accepted model."""

    run: Sha256
    rate: Rate
    new_launch: tuple[Rate, Rate]
    corrected: bool
    text: Line


class Proof(Model):
    """The whole document."""

    name: Literal["goodput-proof"]
    machine: Line
    engine: Line
    estimate: Estimate
    checks: Annotated[tuple[Check, ...], Field(min_length=1, max_length=10)]


def read(path: Path) -> Proof:
    """Read what the proof wrote.

    Raises:
        InputError: naming each field that is not of its format.
    """
    value = load_json(path.read_bytes(), source=str(path))
    return valid(Proof, value, str(path))


def section(path: Path, url: str) -> Shown:
    """Return what stands in the hole: what was found, or that the proof was not run.

    Args:
        path: what the proof wrote, if it was run.
        url: the same as the page links to it.

    Raises:
        InputError: as `read`.
    """
    if not path.is_file():
        return Shown(render_template("goodput_proof.html.j2", proof=None), ())
    proof = read(path)
    chart = _chart(proof)
    figure = Figure(
        id=chart.id,
        heading="Requests that miss, below and above the boundary",
        lead=(
            "Dots are what missed on the engine, large over all requests, small in each launch."
            " Bars are what the model says of the same requests, for launches as fast and as slow"
            " as the band for a new launch allows. The orange mark is what an objective allows."
        ),
        chart=chart,
        missing=None,
        note="The table has the data.",
        table=None,
    )
    html = render_template(
        "goodput_proof.html.j2",
        proof=proof,
        verdicts=[_verdict(check) for check in proof.checks],
        table=_table(proof),
        figure=figure,
        url=url,
    )
    return Shown(html, (chart,))


def _verdict(check: Check) -> str:
    """Say in a sentence what became of one rate."""
    each = "; ".join(
        f"{o.objective} missed by {o.percent:.1f}% of {o.n:,}, where {o.allowed_percent:g}% may"
        for o in check.objectives
    )
    found = "the SLO was kept" if check.kept else "the SLO was not kept"
    outside = [o.objective for o in check.objectives if not o.inside]
    told = (
        f"outside what the model says: {', '.join(outside)}"
        if outside
        else "all within what the model says"
    )
    return f"At {check.share:g} × ({check.rate:.3f} requests/s) {found}: {each}; {told}."


def _table(proof: Proof) -> Table:
    head = (
        "Rate and objective",
        "Missed, %",
        "Allowed, %",
        "Model, same requests, %",
        "Model, fast to slow launch, %",
        "Model, long run, %",
        "Missed in each launch, % (model)",
    )
    rows = tuple(
        (
            _row(check, o),
            f"{o.percent:.1f}",
            f"{o.allowed_percent:g}",
            f"{o.model_percent:.1f}",
            f"{o.band_percent[0]:.1f} to {o.band_percent[1]:.1f}",
            f"{o.long_run_percent:.1f}",
            ", ".join(
                f"{100 * b.misses / b.n:.1f} ({100 * b.model_misses / b.n:.1f})" for b in o.blocks
            ),
        )
        for check in proof.checks
        for o in check.objectives
    )
    return head, rows


def _row(check: Check, objective: Objective) -> str:
    return f"{check.share:g} ×, {objective.objective}"


def _chart(proof: Proof) -> Chart:
    """Draw a row for each rate and objective on one axis of per cent, from 0."""
    told = [(_row(check, o), o) for check in proof.checks for o in check.objectives]
    blocks: list[dict[str, Any]] = [
        {"row": name, "v": 100 * block.misses / block.n} for name, o in told for block in o.blocks
    ]
    most = max(
        *(o.band_percent[1] for _, o in told),
        *(o.allowed_percent for _, o in told),
        *(block["v"] for block in blocks),
    )
    x = scale(0, min(100.0, 1.08 * most))
    y = alt.Y("row:N", axis=None, sort=None)
    across = alt.X("v:Q", scale=x, axis=x_axis("Per cent of requests that miss", 6))
    bars: list[dict[str, Any]] = [
        {"row": name, "lo": o.band_percent[0], "hi": o.band_percent[1]} for name, o in told
    ]
    middles: list[dict[str, Any]] = [{"row": name, "v": o.model_percent} for name, o in told]
    limits: list[dict[str, Any]] = [{"row": name, "v": o.allowed_percent} for name, o in told]
    seen: list[dict[str, Any]] = [{"row": name, "v": o.percent} for name, o in told]
    layers = [
        data(bars)
        .mark_rule(color=BLUE_SOFT, strokeWidth=14, yOffset=9)
        .encode(y=y, x=alt.X("lo:Q", scale=x), x2=alt.X2("hi:Q")),
        data(middles)
        .mark_tick(color=BLUE, thickness=2, height=14, yOffset=9)
        .encode(y=y, x=across),
        data(limits)
        .mark_tick(color=ORANGE, thickness=2, height=26, yOffset=9)
        .encode(y=y, x=across),
        data([{"row": name, "zero": 0.0} for name, _ in told])
        .mark_text(color=INK, align="left", dy=-11)
        .encode(y=y, x=alt.X("zero:Q", scale=x), text=alt.Text("row:N")),
        data(blocks)
        .mark_point(shape="circle", filled=False, color=INK, size=34, opacity=1, yOffset=9)
        .encode(y=y, x=across),
        data(seen)
        .mark_point(shape="circle", filled=True, color=INK, size=110, opacity=1, yOffset=9)
        .encode(y=y, x=across),
    ]
    said = "; ".join(
        f"{name}: {o.percent:.1f}% missed, the model says {o.band_percent[0]:.1f} to"
        f" {o.band_percent[1]:.1f}%, {o.allowed_percent:g}% may"
        for name, o in told
    )
    title = "What missed on the engine, and what the model says"
    words = f"A row for each rate and objective, on an axis of per cent from 0. {said}."
    return Chart("goodput-proof-misses", title, words, both(layers, 48 * len(told)))
