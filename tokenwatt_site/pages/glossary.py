"""The glossary: every metric of the registry with unit, direction and definition."""

from __future__ import annotations

from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages.page import Page, render_template

_BETTER = {"higher": "higher is better", "lower": "lower is better", "neither": "neither is better"}
_POOLED = {
    "geometric": "geometric mean over repeats",
    "arithmetic": "arithmetic mean over repeats",
}


def render() -> Page:
    """Make the glossary page; each metric has its key as anchor."""
    metrics = tuple(METRICS.values())
    return Page(
        title="Glossary",
        description="Every number on this site: its unit, which way is better, what it means.",
        toc=tuple((metric.key, metric.label) for metric in metrics),
        html=render_template("glossary.html.j2", metrics=metrics, better=_BETTER, pooled=_POOLED),
        charts=(),
    )
