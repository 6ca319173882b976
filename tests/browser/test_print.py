"""On paper a page is light, whole and without controls, whatever the screen shows."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import Site
from tests.browser.test_site import CONTRAST

pytestmark = pytest.mark.browser

A4_PX = 673
"""Between margins of 16 mm."""

CONTROLS = "nav, form, button:not(th button), select, .md-header, .tw-check"
"""The buttons in heads of columns are their names."""

LEFT_OVER = """
(selector) => [...document.querySelectorAll(selector)]
  .filter(e => e.checkVisibility()).map(e => e.className || e.tagName)
"""
FOLDED = """
() => [...document.querySelectorAll("details:not(:has(> .tw-check)) > :not(summary)")]
  .filter(e => !e.checkVisibility() && e.parentElement.checkVisibility())
  .map(e => e.textContent.slice(0, 60))
"""
CUT = """
() => [...document.querySelectorAll("table, svg, pre")]
  .filter(e => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.textContent.slice(0, 60))
"""
DRAWN = """
() => ["attainment", "goodput"].map(name => {
  const mark = document.querySelector(`#chart-${name} :is(.tw-wide, .tw-only) .tw-f-blue`);
  return [mark.checkVisibility(), getComputedStyle(mark).fill];
})
"""


def test_a_page_is_printed_light_and_whole_from_a_dark_screen(
    site: Site, chromium: Browser
) -> None:
    context = chromium.new_context(
        color_scheme="dark", viewport={"width": A4_PX, "height": 900}, reduced_motion="reduce"
    )
    page = context.new_page()
    report = site.reports["Toy on boards"]
    found: dict[str, list[object]] = {}
    for name in (report, "index.html", "client.html"):
        page.goto(site.url + name)
        page.emulate_media(media="print", color_scheme="dark", reduced_motion="reduce")
        page.add_style_tag(content="*{transition:none!important}")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(255, 255, 255)"
        )
        controls = page.evaluate(LEFT_OVER, CONTROLS)
        found[name] = [*controls, *page.evaluate(FOLDED), *page.evaluate(CUT)]
        found[name] += page.evaluate(CONTRAST)
        if name == report:
            assert page.evaluate(DRAWN) == 2 * [[True, "rgb(11, 95, 165)"]]
        page.emulate_media(media="screen")
    context.close()
    assert {name: left for name, left in found.items() if left} == {}
