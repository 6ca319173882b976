"""Hostile words in Chromium, on every page that a site has: nothing of them runs."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Seen, _Quiet, overflow
from tests.support.hostile import FILE_NAME, HOSTILE, LONG_NAME, labelled_project, labelled_run
from tests.support.site import build_site
from tokenwatt_site.commands.report import report

pytestmark = pytest.mark.browser

LIVE = """
() => [...document.querySelectorAll("*")].filter(e =>
  [...e.attributes].some(a => a.name.startsWith("on") || /^\\s*javascript:/i.test(a.value))
  || (e.tagName === "SCRIPT" && e.type !== "application/ld+json" && e.textContent.includes("pwned"))
  || (e.tagName === "IMG" && !/images\\/client-/.test(e.src))
).map(e => e.outerHTML.slice(0, 200))
"""


@dataclass(frozen=True)
class Hostile:
    """The site and a page in one file; `pages` are all pages, the one for what is not there too."""

    folder: Path
    url: str
    pages: list[str]
    report: str
    alone: Path


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    folder = tmp_path_factory.mktemp("hostile")
    site = build_site(labelled_project(folder, HOSTILE, FILE_NAME))
    run = labelled_run(HOSTILE).write(folder / "alone")
    alone = report([run], title=HOSTILE, out=folder / "alone.html")
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    (labelled,) = [
        name
        for name in pages
        if name.startswith("reports/") and "toy-model" not in name and "toy-135m" not in name
    ]
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/"
        yield Hostile(site, url, pages, labelled, alone)
        server.shutdown()
        thread.join()


def expect_inert(seen: Seen, address: str) -> None:
    seen.page.goto(address, wait_until="load")
    assert seen.page.evaluate("document.body.dataset.pwned") is None, address
    assert seen.page.evaluate(LIVE) == [], address
    assert seen.complaints == [], address


def test_f29_nothing_runs_on_any_page_over_http(hostile: Hostile, seen: Seen) -> None:
    assert "404.html" in hostile.pages
    assert len(hostile.pages) > 20
    for name in hostile.pages:
        expect_inert(seen, hostile.url + name)
    assert [url for url in seen.requests if not url.startswith((hostile.url, "data:"))] == []


def test_f29_nothing_runs_on_any_page_from_disk(hostile: Hostile, seen: Seen) -> None:
    for name in hostile.pages:
        if name != "404.html":  # its addresses are absolute, for a server alone
            expect_inert(seen, (hostile.folder / name).as_uri())


def test_f29_nothing_runs_on_a_report_in_one_file(hostile: Hostile, seen: Seen) -> None:
    expect_inert(seen, hostile.alone.as_uri())
    expect(seen.page.locator("h1")).to_have_text(HOSTILE)


def test_f29_titles_are_words_in_heading_window_breadcrumb_and_contents(
    hostile: Hostile, seen: Seen
) -> None:
    expect_inert(seen, hostile.url + hostile.report)
    expect(seen.page.locator("h1")).to_have_text(HOSTILE)
    assert "pwned=1" in seen.page.title()
    for place in ("header", "nav", ".md-path", "aside", "[data-md-component=toc]"):
        found = seen.page.locator(f"{place} :is(img, [onerror], [onload])")
        assert found.count() == 0, place


def test_f29_names_of_key_owners_are_words_that_widen_no_page(hostile: Hostile, seen: Seen) -> None:
    seen.page.set_viewport_size({"width": 375, "height": 800})
    for name in hostile.pages:
        if name.startswith(("reports/", "runs/")) or name == "index.html":
            expect_inert(seen, hostile.url + name)
            assert overflow(seen.page) <= 0, name
    seen.page.goto(hostile.url + hostile.report)
    told = seen.page.locator("main").inner_text()
    assert LONG_NAME in told
    assert f"({HOSTILE})" in seen.page.locator("main").text_content()


def test_f29_words_of_charts_are_words(hostile: Hostile, seen: Seen) -> None:
    expect_inert(seen, hostile.url + hostile.report)
    assert seen.page.locator("svg[role=img]").count() >= 8
    assert seen.page.locator("svg :is(script, foreignObject, image, a)").count() == 0


def test_f29_search_finds_the_words_and_runs_none(hostile: Hostile, seen: Seen) -> None:
    seen.page.goto(hostile.url + "index.html", wait_until="networkidle")
    seen.page.locator("input.md-search__input").click()
    seen.page.keyboard.type("onerror")
    expect(seen.page.locator(".md-search-result__item").first).to_be_visible()
    seen.page.locator(".md-search-result__more summary").first.click()
    assert seen.page.evaluate("document.body.dataset.pwned") is None
    assert seen.page.evaluate(LIVE) == []
    assert seen.complaints == []


def test_f29_sorting_and_copying_run_none_of_the_words(hostile: Hostile, seen: Seen) -> None:
    seen.page.goto(hostile.url + "index.html", wait_until="networkidle")
    buttons = seen.page.locator(".tw-lb:visible thead button")
    assert buttons.count() > 2
    for at in range(buttons.count()):  # the table is drawn anew at each press
        buttons.nth(at).click()
    assert seen.page.evaluate(LIVE) == []
    expect_inert(seen, hostile.url + hostile.report)
    for button in seen.page.locator("[data-copy]:visible").all():
        button.click()
    assert seen.page.evaluate("document.body.dataset.pwned") is None
    assert seen.page.evaluate(LIVE) == []


def test_f28_a_script_that_got_into_a_page_does_not_run(hostile: Hostile, seen: Seen) -> None:
    page = (hostile.folder / hostile.report).read_text(encoding="utf-8")
    broken = page.replace("</h1>", f"{HOSTILE}</h1>", 1)
    (hostile.folder / "broken.html").write_text(broken, encoding="utf-8")
    seen.page.goto(hostile.url + "broken.html", wait_until="networkidle")
    assert seen.page.evaluate(LIVE) != []
    assert seen.page.evaluate("document.body.dataset.pwned") is None
    assert any("Content Security Policy" in line for line in seen.complaints)
