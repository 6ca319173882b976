from __future__ import annotations

import html

import pytest

from tests.pages.conftest import HOSTILE
from tests.pages.test_report import Parsed
from tokenwatt_site.configuration import Configuration, led_by
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import run_page, text
from tokenwatt_site.pages.page import NO_LINKS, Page
from tokenwatt_site.trust.verify import ValidatedRun

Configurations = tuple[Configuration, ...]


def page_of(published: Configurations, run: ValidatedRun) -> Page:
    (each,) = [c for c in published if run in c.runs]
    by_id = {r.run_id: r for c in published for r in c.runs}
    return run_page.render(
        led_by(each, run, by_id),
        NO_LINKS,
        each.headline.run_id,
        f"../../reports/{each.id}.html",
        "https://example.org/bench/",
    )


@pytest.fixture(scope="module")
def pair(published: Configurations) -> Configuration:
    (found,) = [c for c in published if len(c.runs) == 2]
    return found


def test_each_run_has_its_own_values_also_where_another_leads(
    published: Configurations, pair: Configuration
) -> None:
    values = []
    for run in pair.runs:
        page = page_of(published, run).html
        claim = run.claims.metric("goodput")
        assert claim.value is not None
        values.append(f"{text.amount(claim.value, METRICS['goodput'])} output tok/s")
        assert values[-1] in Parsed(page).text
        assert run.run_id in page
        assert f"https://example.org/bench/runs/{run.run_id}/" in page
    assert values[0] != values[1]
    assert values[0] not in page


def test_h24_a_run_that_was_withdrawn_stays_and_says_so_on_top(
    published: Configurations, pair: Configuration
) -> None:
    page = page_of(published, pair.runs[1]).html
    assert f"<h1><s>{pair.title}</s></h1>" in page
    notice = page.index("<b>Withdrawn.</b> Lab 2, 2026-02-01 10:00: the driver was another one.")
    assert notice < page.index('id="key-figures"')
    assert "is led by another run" in page
    assert "Withdrawn. Lab 2 (2026)" in html.unescape(page)


def test_every_number_is_there_with_how_sure_it_is_or_why_it_is_missing(
    published: Configurations, pair: Configuration
) -> None:
    shown = Parsed(page_of(published, pair.headline).html).text
    for claim in pair.claims.metrics:
        assert claim.label in shown
        assert claim.value is None or text.sureness(claim) in shown


def test_the_files_of_the_run_are_linked_from_its_own_folder(
    published: Configurations, pair: Configuration
) -> None:
    taken = pair.runs[1]
    links = [a.get("href") for tag, a in Parsed(page_of(published, taken).html).tags if tag == "a"]
    for path in ("run.json", "run.att.jsonl", *(e.path for e in taken.run.evidence)):
        assert path in links


def test_a_page_has_no_chart_no_id_twice_and_every_anchor_of_its_contents(
    published: Configurations,
) -> None:
    for each in published:
        page = page_of(published, each.headline)
        ids = Parsed(page.html).ids
        assert page.charts == ()
        assert len(ids) == len(set(ids))
        assert {anchor for anchor, _ in page.toc} <= set(ids)


def test_hostile_words_are_words(published: Configurations) -> None:
    (evil,) = [c for c in published if c.simulated]
    page = page_of(published, evil.headline)
    assert HOSTILE in Parsed(page.html).text
    assert not [tag for tag, _ in Parsed(page.html).tags if tag in {"img", "script"}]
