from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from playwright.sync_api import TimeoutError as TimedOut

from tests.browser.conftest import LONG_ENGINE, Seen, Site

pytestmark = pytest.mark.browser

RUN_PAGES = "runs/*/index.html"

SECTIONS = [
    "Facts",
    "Results",
    "Evidence in charts",
    "In the long run",
    "All numbers",
    "Setup",
    "Not covered",
    "Reproduce",
    "Cite",
    "History",
]

CONTRAST = """
() => {
  function rgb(text) { return text.match(/[\\d.]+/g).map(Number); }
  function luminance(c) {
    const part = c.slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  }
  function ground(element) {
    for (let e = element; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] === 1) { return c; }
    }
    return [255, 255, 255];
  }
  const poor = [];
  const words = ".tw :is(h1, h2, h3, p, dt, dd, td, th, a, li, summary, code)";
  for (const e of document.querySelectorAll(words)) {
    if (!e.checkVisibility()) { continue; }
    const a = luminance(rgb(getComputedStyle(e).color)), b = luminance(ground(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) { poor.push([e.tagName, e.textContent.slice(0, 30), ratio]); }
  }
  return poor;
}
"""


OUT_OF_SIGHT = """
(table) => [...document.querySelectorAll(`${table} tbody :is(th, td)`)]
  .filter(e => e.textContent.trim() && (e.getBoundingClientRect().width < 8
    || e.getBoundingClientRect().right > innerWidth || e.scrollWidth > e.clientWidth + 1))
  .map(e => e.textContent)
"""


def every_page(site: Site) -> list[str]:
    prose = ["glossary.html", "method.html", "verify.html", "compare.html", "plan.html"]
    prose += ["comparisons/toys.html", "client.html", "data.html", a_run(site)]
    return ["index.html", *site.reports.values(), site.quoted, *prose]


def a_run(site: Site) -> str:
    """The page of one run."""
    return min(path.relative_to(site.folder).as_posix() for path in site.folder.glob(RUN_PAGES))


def compared(site: Site) -> str:
    """The page on which a reader has picked two."""
    a, b = (Path(site.reports[title]).stem for title in ("Toy on boards", "Open bracket"))
    return f"compare.html#a={a}&b={b}"


FITS = "() => document.documentElement.scrollWidth <= innerWidth"


def test_no_page_complains_or_asks_for_anything_outside(site: Site, seen: Seen) -> None:
    for name in every_page(site):
        seen.page.goto(site.url + name, wait_until="networkidle")
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith((site.url, "data:"))] == []


def test_h12_every_page_opens_from_disk_without_complaint(site: Site, seen: Seen) -> None:
    for name in every_page(site):
        seen.page.goto((site.folder / name).as_uri(), wait_until="networkidle")
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:"))] == []


def test_links_lead_from_the_ranking_to_a_report_and_back_on_disk(site: Site, seen: Seen) -> None:
    seen.page.goto((site.folder / "index.html").as_uri())
    link = seen.page.locator(".tw-lb:visible tbody th a").first
    title = link.inner_text()
    link.click()
    expect(seen.page.locator("h1")).to_have_text(title)
    seen.page.get_by_role("link", name="Ranking").first.click()
    expect(seen.page.locator("h1")).to_have_text("Tokens within the SLO")


def test_the_sections_stand_in_order(site: Site, seen: Seen) -> None:
    seen.page.goto(site.url + site.reports["Toy on boards"])
    assert [h.strip() for h in seen.page.locator("article h2").all_inner_texts()] == SECTIONS


def test_every_chart_is_an_image_with_a_name(site: Site, seen: Seen) -> None:
    seen.page.goto(site.url + site.reports["Toy on boards"])
    names = seen.page.locator("svg[role=img]").evaluate_all(
        "all => all.filter(e => e.checkVisibility()).map(e => e.querySelector('title')?.textContent"
        " || e.getAttribute('aria-label'))"
    )
    assert len(names) >= 8
    assert all(names)


def test_no_page_is_wider_than_its_window(site: Site, seen: Seen) -> None:
    wider = []
    for name in (*every_page(site), "404.html", compared(site)):
        seen.page.goto(site.url + name)
        for width in (1280, 375, 320):
            seen.page.set_viewport_size({"width": width, "height": 720})
            seen.page.wait_for_function("width => innerWidth === width", arg=width)
            try:  # for a moment after a change of the window the theme moves its sidebars
                seen.page.wait_for_function(FITS, timeout=3_000)
            except TimedOut:
                wider.append((name, width))
    assert wider == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_are_readable_in_light_and_dark(site: Site, chromium: Browser, scheme: str) -> None:
    context = chromium.new_context(color_scheme="dark" if scheme == "dark" else "light")
    page = context.new_page()
    for name in ("index.html", site.reports["Toy on boards"], site.quoted):
        page.goto(site.url + name)
        expected = "slate" if scheme == "dark" else "default"
        expect(page.locator("body")).to_have_attribute("data-md-color-scheme", expected)
        page.add_style_tag(content="*{transition:none!important}")
        assert page.evaluate(CONTRAST) == [], name
    context.close()


@pytest.mark.parametrize("width", [320, 375])
def test_a5_on_a_phone_every_number_of_a_report_is_in_sight(
    site: Site, seen: Seen, width: int
) -> None:
    seen.page.set_viewport_size({"width": width, "height": 720})
    for title in ("Toy on boards", LONG_ENGINE):
        seen.page.goto(site.url + site.reports[title])
        assert seen.page.evaluate(OUT_OF_SIGHT, "table.tw-numbers") == []
        value = seen.page.locator("table.tw-numbers tr", has_text="Boundary rate").locator("td")
        tops = [value.nth(i).bounding_box() for i in range(3)]
        assert [box["y"] for box in tops if box] == sorted({box["y"] for box in tops if box})
    # The first; other rows point to it.
    missing = seen.page.locator("table.tw-numbers tr", has_text="Tokens per joule").first
    line, label = missing.locator("td").first, missing.locator("th")
    assert line.inner_text().startswith("not measured: ")
    boxes = [line.bounding_box(), label.bounding_box()]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["y"] >= boxes[1]["y"] + boxes[1]["height"] - 1
    assert boxes[0]["width"] > 0.8 * width


FARTHEST = """
async (pictures) => {
  const [a, b] = await Promise.all(pictures.map(async data => {
    const image = new Image();
    image.src = "data:image/png;base64," + data;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height), c = canvas.getContext("2d");
    c.drawImage(image, 0, 0);
    return c.getImageData(0, 0, image.width, image.height).data;
  }));
  return a.reduce((most, value, i) => Math.max(most, Math.abs(value - b[i])), 0);
}
"""


def shaded(page: Page, blank: Page, name: str) -> bool:
    """Whether taking the shades away changes what is seen of a region, beyond rounding."""
    region = page.get_by_role("region", name=name, exact=True)
    before = region.screenshot()
    region.evaluate("e => { e.style.backgroundImage = 'none'; }")
    pictures = [b64encode(picture).decode() for picture in (before, region.screenshot())]
    return int(blank.evaluate(FARTHEST, pictures)) > 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a5_a_table_that_goes_on_beyond_its_edge_is_shaded_there(
    site: Site, chromium: Browser, scheme: str
) -> None:
    context = chromium.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": 375, "height": 720},
    )
    page, blank = context.new_page(), context.new_page()
    page.goto(site.url + site.reports["Toy on boards"])
    page.add_style_tag(content="*{transition:none!important}")
    regions = ("Setup", "All numbers", "Runs of this configuration")
    found = [shaded(page, blank, name) for name in regions]
    context.close()
    assert found == [True, False, True]


def test_a10_a_run_id_does_not_break(site: Site, seen: Seen) -> None:
    for width in (375, 1280):
        seen.page.set_viewport_size({"width": width, "height": 720})
        seen.page.goto(site.url + site.reports["Toy on boards"])
        assert seen.page.evaluate(
            "[...document.querySelectorAll('#history ~ .tw-scroll code')]"
            ".map(e => e.getClientRects().length)"
        ) == [1]


@pytest.mark.parametrize("width", [375, 1280])
def test_from_disk_nothing_offers_a_search_that_cannot_work(
    site: Site, seen: Seen, width: int
) -> None:
    seen.page.set_viewport_size({"width": width, "height": 720})
    opener = seen.page.locator("label.md-header__button[for=__search]")
    seen.page.goto((site.folder / "index.html").as_uri(), wait_until="networkidle")
    expect(opener).to_be_hidden()
    expect(seen.page.locator(".md-search__input")).to_be_hidden()
    seen.page.goto(site.url + "index.html")
    expect(opener).to_be_visible(visible=width == 375)


@pytest.mark.parametrize("width", [375, 1280])
def test_a_page_in_prose_has_the_heading_of_the_others(site: Site, seen: Seen, width: int) -> None:
    seen.page.set_viewport_size({"width": width, "height": 720})
    styles = []
    for name in ("method.html", "glossary.html"):
        seen.page.goto(site.url + name)
        styles.append(
            seen.page.locator("article h1").evaluate(
                "e => { const s = getComputedStyle(e);"
                " return [s.fontSize, s.fontWeight, s.lineHeight, s.color, s.letterSpacing]; }"
            )
        )
    assert styles[0] == styles[1]


def test_a_command_is_copied_as_it_is_written(site: Site, seen: Seen) -> None:
    seen.page.goto(site.url + site.reports["Toy on boards"])
    seen.page.get_by_role("button", name="Copy: 1. Measure").click()
    expect(seen.page.get_by_role("button", name="Copy: 1. Measure")).to_have_text("Copied")
    assert (
        seen.page.evaluate("navigator.clipboard.readText()")
        == seen.page.locator("#command-1").text_content()
    )


def test_a_tooltip_is_closed_by_escape(site: Site, seen: Seen) -> None:
    seen.page.goto(site.url + site.reports["Toy on boards"])
    seen.page.locator(".tw-fact").first.focus()
    tip = seen.page.locator(".tw-tip").first
    expect(tip).to_be_visible()
    seen.page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_a_report_is_readable_without_scripts(site: Site, chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site.folder / site.reports["Toy on boards"]).as_uri())
    expect(page.locator("#chart-attainment svg").first).to_be_visible()
    expect(page.locator("#numbers")).to_be_visible()
    expect(page.locator("[data-copy]").first).to_be_hidden()
    context.close()
