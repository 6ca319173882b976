from __future__ import annotations

import json

import pytest

from tests.support.details import GOODPUT, a_detail
from tokenwatt_site.pages.compare import SCRIPTS, picker, render, script_data
from tokenwatt_site.pages.comparison_blocks import value_words
from tokenwatt_site.pages.page import asset

EVIL = "</script><img src=x onerror=alert(1)>"
FASTER = tuple(1.1 * value for value in GOODPUT)


def test_the_heading_names_both_and_the_baseline_last() -> None:
    page = render([a_detail("old"), a_detail("new")], {})
    assert page.title == "Title of new against Title of old"
    assert f"<h1>{page.title}</h1>" in page.html


def test_the_description_is_the_sentence_made_from_the_numbers() -> None:
    page = render([a_detail(), a_detail("b", {"goodput": FASTER})], {})
    assert page.description.startswith(
        "B against A: SLO goodput, not corrected to the long run, 10.0% more"
    )


def test_every_entry_of_the_contents_is_on_the_page() -> None:
    page = render([a_detail(), a_detail("b"), a_detail("c")], {})
    anchors = [anchor for anchor, _ in page.toc]
    assert anchors == ["setup", "results-B", "results-C", "not-covered", "cite"]
    assert all(f'id="{anchor}"' in page.html for anchor in anchors)


def test_sides_link_to_their_reports_and_numbers_to_their_meaning() -> None:
    urls = {"a": "../reports/a.html"}
    page = render([a_detail(), a_detail("b")], urls, glossary="../glossary.html")
    assert '<a href="../reports/a.html">Report of A</a>' in page.html
    assert "Report of B" not in page.html
    assert '<a href="../glossary.html#goodput">SLO goodput</a>' in page.html


def test_a_page_made_once_leads_to_where_its_sides_are_changed() -> None:
    page = render([a_detail(), a_detail("b")], {}, live="../compare.html")
    assert 'href="../compare.html#a=a&amp;b=b"' in page.html


@pytest.mark.parametrize("where", ["title", "under", "signer", "slo_text", "power_words"])
def test_f29_hostile_words_of_a_side_are_escaped(where: str) -> None:
    setup = {"driver": EVIL, "engine.argv": [EVIL]}
    page = render([a_detail(), a_detail("b", setup=setup, **{where: EVIL})], {}, title=EVIL)
    assert "&lt;img src=x" in page.html
    assert "<img" not in page.html


def test_the_verdict_does_not_hang_on_colour() -> None:
    page = render([a_detail(), a_detail("b", {"goodput": FASTER})], {})
    assert 'aria-label="better: ratio 1.100, 1.100 to 1.100"' in page.html
    assert '#tw-i-check"/></svg> better</span>' in page.html


def test_the_page_to_pick_on_links_what_the_site_names() -> None:
    named = [("The <new> release", "Whether to update.", "comparisons/x.html")]
    page = picker("", ["catalogue.js"], named, "index.html", "glossary.html")
    assert '<a href="comparisons/x.html">The &lt;new&gt; release</a>' in page.html
    sources = ["catalogue.js", "compare-data.js", *SCRIPTS]
    places = [page.html.index(f'<script src="assets/{name}" defer>') for name in sources]
    assert places == sorted(places)


def test_the_tables_of_the_script_cannot_end_it() -> None:
    written = script_data([("quoted/x", EVIL)])
    assert "<" not in written
    value = json.loads(written.partition(" = ")[2].rstrip(";\n"))
    assert value["quoted"] == [["quoted/x", EVIL]]


def test_no_script_sets_markup() -> None:
    for name in SCRIPTS:
        text = asset(name)
        assert not any(
            word in text for word in ("innerHTML", "outerHTML", "insertAdjacent", "eval(")
        )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (4800.0, "4800"),
        (0.5, "0.5"),
        (True, "yes"),
        (None, "none"),
        ([{"min": 1.0}, "x"], "min 1 x"),
    ],
)
def test_a_value_is_written_as_a_reader_would(value: object, words: str) -> None:
    assert value_words(value) == words
