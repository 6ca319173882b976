from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import EVIL, Seen, Site, overflow
from tests.browser.test_accessibility import AXE, VIOLATIONS

pytestmark = pytest.mark.browser

TABLES = """
() => [...document.querySelectorAll(".tw-compare :is(.tw-table, .tw-ab, .tw-summary)")]
  .map(e => e.outerHTML.replace(/>\\s+</g, "><").replace(/\\s+/g, " ").replace(/ "/g, '"'))
"""


def id_of(site: Site, title: str) -> str:
    return site.reports[title].removeprefix("reports/").removesuffix(".html")


def toys(site: Site) -> tuple[str, str]:
    return id_of(site, "Toy model on a CPU"), id_of(site, "Slow toy")


def address(site: Site, *ids: str, base: str | None = None) -> str:
    sides = "&".join(f"{letter}={side}" for letter, side in zip("abcdefgh", ids, strict=False))
    return f"{base or site.url}compare.html#{sides}"


def as_told(html: str) -> str:
    """Leave out where links lead, which differs by the page's place, and write numbers one way."""
    html = re.sub(r' href="[^"#]*', ' href="', html)
    return re.sub(r"\d+\.\d+", lambda found: f"{float(found[0]):g}", html)


def open_two(site: Site, page: Page) -> None:
    page.goto(address(site, *toys(site)))
    expect(page.locator("h1")).to_have_text("Slow toy against Toy model on a CPU")


@pytest.mark.parametrize("from_disk", [False, True])
def test_h32_two_configurations_are_compared_wherever_the_page_is(
    site: Site, seen: Seen, *, from_disk: bool
) -> None:
    base = f"{site.folder.as_uri()}/" if from_disk else site.url
    seen.page.goto(address(site, *toys(site), base=base))
    expect(seen.page.locator(".tw-fields tbody th")).to_have_text(["Host"])
    expect(seen.page.locator(".tw-cmp tbody th[scope=row]").first).to_contain_text("SLO goodput")
    expect(seen.page.locator(".tw-controlled")).to_contain_text(
        "no other recorded setup field differs"
    )
    assert seen.complaints == []
    assert [u for u in seen.requests if not u.startswith((base, "data:"))] == []


def test_the_page_shows_what_the_builder_writes(site: Site, seen: Seen) -> None:
    seen.page.goto(f"{site.url}comparisons/toys.html")
    written = [as_told(each) for each in seen.page.evaluate(TABLES)]
    open_two(site, seen.page)
    found = [as_told(each) for each in seen.page.evaluate(TABLES)]
    assert len(found) == 4
    assert found == written


def test_a_named_comparison_leads_to_the_page_where_its_sides_are_changed(
    site: Site, seen: Seen
) -> None:
    seen.page.goto(f"{site.url}comparisons/toys.html")
    seen.page.get_by_role("link", name="Change the sides of this comparison").click()
    expect(seen.page.locator("h1")).to_have_text("Slow toy against Toy model on a CPU")
    assert seen.page.url == address(site, *toys(site))


def test_h2_every_choice_is_in_the_address(site: Site, seen: Seen) -> None:
    page = seen.page
    page.goto(f"{site.url}compare.html")
    one, other = toys(site)
    page.get_by_label("Words of its name").fill("model on")
    page.get_by_label("Configuration").select_option(one)
    page.get_by_role("button", name="Take as the baseline").click()
    expect(page.get_by_label("Words of its name")).to_have_value("")
    page.get_by_label("Configuration").select_option(other)
    page.get_by_role("button", name="Compare with it").click()
    expect(page.locator("h1")).to_have_text("Slow toy against Toy model on a CPU")
    assert page.url == address(site, one, other)
    page.get_by_role("button", name="Make B the baseline").click()
    expect(page.locator("h1")).to_have_text("Toy model on a CPU against Slow toy")
    page.reload()
    expect(page.locator("h1")).to_have_text("Toy model on a CPU against Slow toy")
    page.go_back()
    expect(page.locator("h1")).to_have_text("Slow toy against Toy model on a CPU")
    page.get_by_role("button", name="Remove B").click()
    expect(page.locator("h1")).to_have_text("Compare")
    assert page.url == address(site, one)


def test_the_whole_choice_is_made_by_keyboard(site: Site, seen: Seen) -> None:
    page = seen.page
    page.goto(address(site, toys(site)[0]))
    page.get_by_label("Words of its name").focus()
    page.keyboard.type("slow")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Slow toy against Toy model on a CPU")
    expect(page.get_by_label("Configuration")).to_be_focused()


def test_what_the_address_asks_for_in_vain_is_told(site: Site, seen: Seen) -> None:
    one, other = toys(site)
    asked = f"c={other}&a={one}&b=gone-000000000000&color=red&d={one}&e=&f=%3Cimg%20src%3Dx%3E"
    asked += "&g=constructor"
    seen.page.goto(f"{site.url}compare.html#{asked}")
    expect(seen.page.get_by_role("status").first.locator("p")).to_have_text(
        [
            re.compile("asks for “color”"),
            re.compile(f"The address names {one} twice"),
            re.compile("names nothing as E"),
            re.compile("gone-000000000000 is not on this site"),
            re.compile("<img src=x> is not on this site"),
            re.compile("constructor is not on this site"),
        ]
    )
    expect(seen.page.locator("h1")).to_have_text("Slow toy against Toy model on a CPU")


def test_more_sides_than_the_page_compares_are_told(site: Site, seen: Seen) -> None:
    seen.page.goto(address(site, *toys(site), *(f"gone-{i}" for i in range(6))))
    status = seen.page.get_by_role("status").first
    expect(status).to_contain_text("gone-5 is left out: this page compares at most 6.")


def test_a_link_within_the_page_keeps_the_choice(site: Site, seen: Seen) -> None:
    open_two(site, seen.page)
    seen.page.get_by_role("link", name="Comparisons of this site").first.click()
    seen.page.wait_for_function("location.hash.startsWith('#a=')")
    expect(seen.page.locator("h1")).to_have_text("Slow toy against Toy model on a CPU")


def test_h32_what_is_not_comparable_is_refused_with_why(site: Site, seen: Seen) -> None:
    seen.page.goto(address(site, toys(site)[0], id_of(site, "Toy on boards")))
    expect(seen.page.locator(".tw-summary")).to_contain_text(
        "B is not compared with A: B was simulated and the other measured"
    )
    assert seen.page.locator(".tw-cmp").count() == 0
    expect(seen.page.locator(".tw-fields")).to_contain_text("Accelerator")


def test_a_publication_is_a_baseline_and_says_so(site: Site, seen: Seen) -> None:
    quoted = site.quoted.removesuffix(".html")
    seen.page.goto(address(site, quoted, toys(site)[0]))
    expect(seen.page.locator("#compare-result .tw-notice")).to_contain_text("As published")
    expect(seen.page.locator(".tw-summary")).to_contain_text("another workload")


@pytest.mark.parametrize("width", [320, 375])
def test_hostile_words_stay_words_and_fit_a_phone(site: Site, seen: Seen, width: int) -> None:
    evil = next(name for title, name in site.reports.items() if "pwned" in title)
    seen.page.set_viewport_size({"width": width, "height": 800})
    boards = id_of(site, "Toy on boards")
    seen.page.goto(address(site, evil.removeprefix("reports/").removesuffix(".html"), boards))
    expect(seen.page.locator("h1")).to_have_text(f"Toy on boards against {EVIL}")
    expect(seen.page.locator(".tw-fields")).to_contain_text("onerror")
    assert seen.page.evaluate("document.body.dataset.pwned") is None
    assert overflow(seen.page) <= 0
    assert seen.complaints == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 375), ("dark", 1280)])
def test_h21_axe_finds_nothing_wrong(
    site: Site, chromium: Browser, scheme: str, width: int
) -> None:
    context = chromium.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 900},
        reduced_motion="reduce",
    )
    context.add_init_script(path=AXE)
    page = context.new_page()
    open_two(site, page)
    page.add_style_tag(content="*{transition:none!important}")
    page.evaluate("document.querySelectorAll('article details').forEach(d => d.open = true)")
    found = page.evaluate(VIOLATIONS)
    context.close()
    assert "\n".join(found) == ""


def test_without_scripts_there_are_links(site: Site, chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site.url}compare.html")
    expect(page.locator("#compare-off")).to_contain_text("needs scripts")
    page.get_by_role("link", name="Two toys").click()
    expect(page.locator("h1")).to_have_text("Two toys")
    expect(page.locator(".tw-cmp tbody th[scope=row]").first).to_contain_text("SLO goodput")
    context.close()


def test_the_sentence_to_cite_is_copied_with_its_address(site: Site, seen: Seen) -> None:
    open_two(site, seen.page)
    seen.page.get_by_role("button", name="Copy: Plain text").click()
    expect(seen.page.get_by_role("button", name="Copy: Plain text")).to_have_text("Copied")
    copied = seen.page.evaluate("navigator.clipboard.readText()")
    one, other = toys(site)
    assert copied.startswith("Baseline: Toy model on a CPU, 2026-01-01. Slow toy, SLO goodput 0.")
    assert copied.endswith(f"compare.html#a={one}&b={other}")
