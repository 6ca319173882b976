"""The glossary: every metric, and what the ranking makes of one, with formula and source."""

from __future__ import annotations

from collections.abc import Mapping

from tokenwatt_site.metrics import METRICS, Source
from tokenwatt_site.pages.catalogue import DERIVED
from tokenwatt_site.pages.page import Page, render_template

SOURCES = frozenset(metric.source.page for metric in METRICS.values())
"""The pages in prose on which formulas are set out."""

_BETTER = {"higher": "higher is better", "lower": "lower is better", "neither": "neither is better"}
_POOLED = {
    "geometric": "geometric mean over repeats",
    "arithmetic": "arithmetic mean over repeats",
}


def render(prose: Mapping[str, str]) -> Page:
    """Make the glossary page; each metric has its key as anchor.

    Args:
        prose: of `SOURCES` those that the site has, each with its URL.
    """
    metrics = tuple(METRICS.values())
    labels = {metric.key: metric.label for metric in metrics}
    labels |= {derived.key: derived.label for derived in DERIVED}
    return Page(
        title="Glossary",
        description="Every number on this site: what it is, its unit and formula, what it is not.",
        toc=tuple(labels.items()),
        html=render_template(
            "glossary.html.j2",
            metrics=metrics,
            derived=DERIVED,
            labels=labels,
            better=_BETTER,
            pooled=_POOLED,
            sources={
                metric.key: place(metric.source, prose[metric.source.page])
                for metric in metrics
                if metric.source.page in prose
            },
        ),
        charts=(),
    )


def place(source: Source, url: str) -> str:
    """Return where a section is, on the page at `url`."""
    return f"{url}#{source.section.lower().replace(' ', '-')}"
