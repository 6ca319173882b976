"""The page of a claims-only record: an earlier publication, quoted in its own words.

Nothing here is recomputed. The page says so, keeps the words of the publication apart from
our notes, and is in no ranking.
"""

from __future__ import annotations

from tokenwatt_site.pages import chart
from tokenwatt_site.pages.figure import Figure
from tokenwatt_site.pages.page import Links, Page, render_template
from tokenwatt_site.run import ClaimsOnlyRecord, QuotedChart

TOC = (
    ("results", "Results"),
    ("numbers", "All numbers"),
    ("setup", "Setup"),
    ("not-covered", "Not covered"),
    ("reproduce", "Reproduce"),
    ("our-notes", "Our notes"),
)


def render(record: ClaimsOnlyRecord, links: Links, document: str | None) -> Page:
    """Make the page of one record.

    Args:
        record: as loaded by `trust.verify`.
        links: where the neighbours are.
        document: URL of the record itself, where it is published.
    """
    figures = tuple(_figure(record, i, quoted) for i, quoted in enumerate(record.charts))
    html = render_template(
        "quoted.html.j2", record=record, figures=figures, links=links, document=document
    )
    return Page(
        title=record.title,
        description=f"As published, not recomputed. {record.summary}"[:300],
        toc=TOC,
        html=html,
        charts=tuple(f.chart for f in figures if f.chart is not None),
    )


def _figure(record: ClaimsOnlyRecord, index: int, quoted: QuotedChart) -> Figure:
    chart_id = f"quoted-{index + 1}"
    value = quoted.value
    drawn = None
    if value.number is not None:
        drawn = chart.bars(
            chart_id,
            quoted.heading,
            [(record.column, value.number, value.text)],
            value.unit or "",
            quoted.axis_max,
        )
    return Figure(
        id=f"chart-{chart_id}",
        heading=quoted.heading,
        lead="",
        chart=drawn,
        missing=None if drawn else f"not charted: the publication says {value.text}",
        note=quoted.caption or "",
        table=None,
    )
