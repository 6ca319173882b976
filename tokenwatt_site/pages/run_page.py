"""The permanent page of one run, with its own values, whichever run its configuration leads with.

Small, for there is one for every run that was ever published: no charts, and the rest by links.
"""

from __future__ import annotations

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import (
    cite,
    facts,
    history,
    numbers,
    outcomes,
    replicas,
    report,
    statements,
    text,
    verification,
)
from tokenwatt_site.pages.page import Links, Page, render_template

TOC = (
    ("key-figures", "Key figures"),
    ("facts", "Facts"),
    ("numbers", "Numbers"),
    ("files", "Files"),
    ("cite", "Cite"),
)


def render(
    view: Configuration, links: Links, leader: str, report_url: str, base: str | None
) -> Page:
    """Make the page of the run that `view` is led by.

    Args:
        view: the configuration, led by the run; see `configuration.led_by`.
        links: where its neighbours are; the run's own folder is that of the page.
        leader: id of the run that leads the report.
        report_url: the report of the configuration, relative to this page.
        base: the address of the site; None: it does not say.
    """
    run = view.headline
    url = cite.address(base, run.run_id)
    summary = tuple(report.summary_parts(view))
    html = render_template(
        "run.html.j2",
        title=view.title,
        struck=run.standing.retracted,
        run=run,
        day=run.run.conditions.started[:10],
        workload=run.run.spec.setup.workload,
        summary=summary,
        notices=tuple(report.notices(view)),
        leads=leader == run.run_id,
        report_url=report_url,
        key_figures=tuple(numbers.key_figures(view)),
        facts=facts.facts(view),
        rows=tuple(_rows(view)),
        replicas=replicas.table(view.claims),
        files=history.files(run),
        stated=tuple(row for row in statements.rows(view) if row.run_id == run.run_id),
        check=verification.control(links.assets, run.run_id, "."),
        address=url,
        cite=cite.plain(view, url),
        bibtex=cite.bibtex(view, url),
        links=links,
    )
    return Page(
        title=title(view),
        description=" ".join(part for part, _ in summary)[:300],
        toc=TOC,
        html=html,
        charts=(),
    )


def title(view: Configuration) -> str:
    """Name the page of the run that leads."""
    return f"{view.title}, run {view.headline.run_id[:12]}"


def _rows(view: Configuration) -> list[tuple[str, str, str, str, str]]:
    """(key, label, value with unit, how sure, empty) of each number, or (…, why there is none)."""
    found = []
    for claim in view.claims.metrics:
        metric = METRICS[claim.key]
        if claim.value is None:
            found.append((claim.key, claim.label, "", "", outcomes.why(view.claims, claim)))
        else:
            value = f"{text.amount(claim.value, metric)} {metric.unit}"
            found.append((claim.key, claim.label, value, text.sureness(claim), ""))
    return found
