from __future__ import annotations

from pathlib import Path

from markdown import Markdown

from tests.pages.test_report import Parsed
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import glossary
from tokenwatt_site.pages.catalogue import DERIVED

SOURCES = Path(__file__).parents[2] / "site_src"


def test_every_metric_has_an_anchor_and_says_all_that_the_registry_has_of_it() -> None:
    page = glossary.render({})
    parsed = Parsed(page.html)
    for metric in METRICS.values():
        assert metric.key in parsed.ids
        for words in (metric.definition, metric.unit, metric.formula, metric.is_not):
            assert words in parsed.text, metric.key
        assert metric.source.section in parsed.text
    for derived in DERIVED:
        assert derived.key in parsed.ids
        assert derived.is_not in parsed.text


def test_every_formula_leads_to_a_section_that_is_there() -> None:
    places = {}
    for name in sorted(glossary.SOURCES):
        prose = Markdown(extensions=["toc", "meta"])
        prose.convert((SOURCES / name).read_text(encoding="utf-8"))
        places[name] = {token["id"] for top in prose.toc_tokens for token in top["children"]}
    for metric in METRICS.values():
        source = metric.source
        assert glossary.place(source, "").removeprefix("#") in places[source.page], metric.key


def test_a_site_without_these_pages_names_their_sections_without_a_link() -> None:
    links = [a.get("href", "") for _, a in Parsed(glossary.render({}).html).tags if "href" in a]
    assert all((link or "").startswith(("https://", "#")) for link in links)
