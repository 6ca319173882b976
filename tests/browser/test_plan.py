"""The plan page, as a reader uses it: from disk, on a made-up catalogue."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Seen, Site, overflow
from tests.browser.test_accessibility import AXE, VIOLATIONS
from tests.support.catalogues import TPOT, TTFT, a_catalogue, a_row, a_section, boundary
from tokenwatt_site.pages import plan_page
from tokenwatt_site.pages.factors import NO_FACTORS
from tokenwatt_site.pages.page import asset
from tokenwatt_site.pages.sizing import Ask, Offer, size, why_out

pytestmark = pytest.mark.browser

LOOSE = TTFT | {"limit_ms": 4000.0}
EVIL = "<img src=x onerror=document.body.dataset.pwned=1>"

LISTED = a_catalogue(
    a_row("Big boards", 0, 8, **boundary(10.0), board_power=(5000.0, 4900.0, 5100.0),
          idle_power=(900.0, 890.0, 910.0), kind="Big GPU"),
    a_row("Small boards", 0, 1, **boundary(2.0), board_power=(400.0, 390.0, 410.0)),
    a_row("No meter", 3, 2, **boundary(3.0)),
    a_row("Short look", 0, 1, **boundary(5.0, long_run=0), board_power=300.0,
          excluded=[["mode", "demo mode; only full mode ranks", "not full mode"]]),
    a_row(EVIL, 0, 1, **boundary(9.0), excluded=[["disputed", f"disputed by {EVIL}", "disputed"]]),
    a_row("Loose", 1, 1, **boundary(9.0)),
    a_row("Elsewhere", 2, None, **boundary(1.0)),
    sections=(
        a_section(),
        a_section(LOOSE, TPOT),
        a_section(workload="code-v1", scope="none", cpu=True),
        a_section(scope="none"),
    ),
)  # fmt: skip

SHELL = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Plan</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="tokenwatt.css">
<style>html {{ font-size: 125%; }} button, input, select {{ font: inherit; }}
body {{ margin: .8rem; font: 1rem sans-serif; background: var(--md-default-bg-color); }}
</style></head><body data-md-color-scheme="{scheme}" style="--md-default-bg-color: {ground}">
<main class="md-content"><article class="md-typeset">{html}</article></main></body></html>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("plan")
    scripts = ("catalogue.js", *plan_page.SCRIPTS)
    html = plan_page.render(LISTED, scripts, ".", NO_FACTORS).html
    for scheme, ground in (("default", "#fff"), ("slate", "#1e2129")):
        whole = SHELL.format(scheme=scheme, ground=ground, html=html)
        (made / f"{scheme}.html").write_text(whole, encoding="utf-8")
    for name in (*plan_page.SCRIPTS, "tokenwatt.css"):
        (made / name).write_text(asset(name), encoding="utf-8")
    data = json.dumps(LISTED)
    (made / "catalogue.js").write_text(f"globalThis.TokenwattCatalogue = {data};", encoding="utf-8")
    return made


@pytest.fixture
def address(folder: Path) -> str:
    return (folder / "default.html").as_uri()


@pytest.fixture(scope="module")
def bare(chromium: Browser, folder: Path) -> Iterator[Page]:
    page = chromium.new_page()
    page.goto((folder / "default.html").as_uri())
    yield page
    page.close()


NUMBERS = st.floats(0.01, 1e5)


@st.composite
def cells(draw: Any) -> Any:
    """A value alone, with an interval, or none."""
    value = draw(NUMBERS)
    low, high = draw(st.floats(0.5, 1)), draw(st.floats(1, 2))
    return draw(st.sampled_from([None, value, (value, value * low, value * high)]))


@st.composite
def questions(draw: Any) -> tuple[Ask, dict[str, Any]]:
    maybe = st.none() | st.floats(0, 10)
    ask = Ask(
        load=draw(st.floats(1e-3, 1e6)),
        per_day=draw(st.booleans()),
        peak=draw(st.floats(1, 100)),
        headroom=draw(st.sampled_from([0.0, 10.0, 20.0]) | st.floats(0, 900)),
        hours=draw(st.floats(0.25, 24)),
        pue=draw(st.floats(1, 10)),
        per_kwh=draw(maybe),
        per_card_hour=draw(maybe),
        g_per_kwh=draw(maybe),
    )
    keys = ("long_run_goodput", "goodput", "long_run_rate", "boundary_rate", "board_power")
    measured = {key: draw(cells()) for key in (*keys, "idle_power")}
    return ask, a_row("One", cards=draw(st.sampled_from([None, 1, 8])), **measured)


def near(number: dict[str, float | None]) -> dict[str, Any]:
    return {end: None if v is None else pytest.approx(v, rel=1e-12) for end, v in number.items()}


def test_its_numbers_are_those_of_python(bare: Page) -> None:
    asked: list[tuple[Ask, dict[str, Any]]] = []

    @seed(8)
    @settings(
        max_examples=150,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(questions())
    def collect(question: tuple[Ask, dict[str, Any]]) -> None:
        asked.append(question)

    collect()
    made = bare.evaluate(
        "all => all.map(([ask, row]) => TokenwattSizing.size(ask, TokenwattSizing.offer(row)))",
        [[asdict(ask), row] for ask, row in asked],
    )
    answered = 0
    for (ask, row), found in zip(asked, made, strict=True):
        wanted = size(ask, Offer.of(row))
        assert (found is None) == (wanted is None)
        if wanted is None:
            continue
        answered += 1
        figures = {k: n and asdict(n) for k, n in wanted.figures.items()}
        assert found["figures"].keys() == figures.keys()
        for key, number in figures.items():
            if number is None:
                assert found["figures"][key] is None
                continue
            assert found["figures"][key] == near(number)
        assert found["utilisation"] == near(asdict(wanted.utilisation))
        assert found["tokens_day"] == pytest.approx(wanted.tokens_day, rel=1e-12)
        assert found["linear"] == wanted.linear
    assert answered > 30


def test_who_answers_is_whom_python_lets_answer(bare: Page) -> None:
    found = bare.evaluate(
        """() => { const c = TokenwattCatalogue, told = JSON.parse(plan.dataset.plan);
        const ask = s => ({workload: s.workload, hash: s.workload_hash, slo: s.objectives});
        return c.sections.map(asked => c.rows.map(
          row => TokenwattSizing.whyOut(row, c.sections[row.section], ask(asked), told))); }"""
    )
    sections = LISTED["sections"]
    for asked, whys in zip(sections, found, strict=True):
        question = asked["workload"], asked["workload_hash"]
        for row, why in zip(LISTED["rows"], whys, strict=True):
            wanted = why_out(row, sections[row["section"]], question, asked["objectives"])
            assert (why and tuple(why)) == wanted


def rows(page: Page) -> list[str]:
    return page.locator("#plan-answer tbody th[scope=row] a").all_inner_texts()


def reasons(page: Page) -> str:
    page.locator("#plan-out > summary").click()
    return page.locator("#plan-out").inner_text()


def test_the_answer_stands_first_and_names_every_boundary_of_power(
    seen: Seen, address: str
) -> None:
    seen.page.goto(address)
    # 24 requests/s: 3 setups of 9, 14 of 1.8, 9 of 2.7; the short look holds 5.
    expect(seen.page.locator("#plan-verdict")).to_contain_text("Small boards: 14 × Toy GPU")
    assert rows(seen.page) == ["Small boards", "Big boards", "No meter", "Short look"]
    heads = seen.page.locator("#plan-answer tbody th[scope=rowgroup]").all_inner_texts()
    assert heads == [
        "May rank, long run · watts of GPU boards only",
        "May rank, long run · power not measured",
        "Apart, marked: less sure · watts of GPU boards only",
    ]
    table = seen.page.locator("#plan-answer").inner_text()
    assert "power not measured" in table
    assert "all at the boundary" in table
    assert "on a line from idle" in table
    assert "not full mode" in table
    told = reasons(seen.page)
    for words in ("another workload: 1", "measured with a looser SLO than asked: 1", "disputed: 1"):
        assert words in told
    assert seen.page.evaluate("document.body.dataset.pwned") is None
    assert seen.complaints == []


def test_a_looser_slo_is_answered_by_the_tighter_and_says_so(seen: Seen, address: str) -> None:
    seen.page.goto(address)
    seen.page.get_by_label("SLO", exact=True).select_option(
        label="TTFT p99 ≤ 4 s and TPOT p99 ≤ 50 ms"
    )
    assert "Loose" in rows(seen.page)
    small = seen.page.locator("#plan-answer tr", has_text="Small boards")
    expect(small).to_contain_text("measured with TTFT p99 ≤ 2 s and TPOT p99 ≤ 50 ms")


def test_money_comes_with_prices_and_the_day_they_were_entered(seen: Seen, address: str) -> None:
    seen.page.clock.set_fixed_time("2026-03-04T12:00:00")
    seen.page.goto(address)
    assert "USD" not in seen.page.locator("#plan-answer thead").inner_text()
    seen.page.get_by_label("Electricity").fill("0.25")
    seen.page.get_by_label("A card, or a machine").fill("2")
    head = seen.page.locator("#plan-answer thead")
    expect(head).to_contain_text("USD")
    expect(seen.page.locator("#plan-answer")).to_contain_text("entered on 2026-03-04")
    meterless = seen.page.locator("#plan-answer tr", has_text="No meter")
    expect(meterless).to_contain_text("not known")
    seen.page.get_by_label("Sort by").select_option("money")
    assert rows(seen.page)[0] == "Small boards"
    seen.page.locator("#plan-form summary").click()
    seen.page.get_by_label("Toy GPU").fill("900")
    assert rows(seen.page)[0] == "Big boards"


def test_every_choice_is_in_the_address_and_comes_back(seen: Seen, address: str) -> None:
    page = seen.page
    page.goto(address)
    page.get_by_label("SLO", exact=True).select_option(index=1)
    page.get_by_label("Unit of the load").select_option("tokens")
    for label, value in (
        ("Mean load", "5000000"),
        ("Peak", "3"),
        ("Headroom", "35"),
        ("Hours a day", "12"),
        ("Electricity", "0.3"),
        ("A card, or a machine", "1.5"),
        ("PUE", "1.2"),
        ("Carbon", "380"),
        ("Currency", "EUR"),
    ):
        page.get_by_label(label, exact=True).fill(value)
    page.locator("#plan-form summary").click()
    page.get_by_label("Big GPU").fill("9")
    page.get_by_label("Sort by").select_option("watts")
    state = "document.querySelectorAll('[data-key]')"
    values = f"Array.from({state}, c => c.dataset.key + '=' + c.value)"
    before, answer, url = page.evaluate(values), page.inner_text("#plan-answer"), page.url
    page.goto("about:blank")
    page.goto(url)
    assert page.evaluate(values) == before
    assert page.inner_text("#plan-answer") == answer
    assert page.inner_text("#plan-notice") == ""
    assert page.url == url
    assert seen.complaints == []


def test_what_the_address_asks_for_and_is_not_here_is_told(seen: Seen, address: str) -> None:
    seen.page.goto(
        address
        + "#workload=gone.00000000&slo=e2e-0.5-1&load=abc&peak=NaN"
        + "&sort=beauty&color=red&priced=2026-99-99&unit=requests&unit=tokens"
    )
    notice = seen.page.locator("#plan-notice")
    for words in (
        "gone.00000000",
        "e2e-0.5-1",
        "“abc”",
        "“NaN”",
        "beauty",
        "color",
        "no date",
        "“unit” more",
    ):
        expect(notice).to_contain_text(words)
    assert len(rows(seen.page)) == 4
    assert not re.search(r"NaN|Infinity|undefined|null", seen.page.inner_text("#plan-answer"))
    seen.page.goto(address + "#load=20&plan-answer")
    assert seen.complaints == []


@pytest.mark.parametrize(
    ("label", "value", "words"),
    [
        ("Mean load", "0", "From 0.001 to 1,000,000."),
        ("Mean load", "1e300", "From 0.001 to 1,000,000."),
        ("Mean load", "", "A number is needed, such as 10."),
        ("Peak", "0.5", "From 1 to 100."),
        ("Hours a day", "25", "From 0.25 to 24."),
        ("Electricity", "-1", "From 0 to 1,000."),
    ],
)
def test_nonsense_is_told_at_its_field_and_gives_no_answer(
    seen: Seen, address: str, label: str, value: str, words: str
) -> None:
    seen.page.goto(address)
    field = seen.page.get_by_label(label, exact=True)
    field.fill(value)
    error = seen.page.locator(f"#{field.get_attribute('id')}-error")
    expect(error).to_have_text(words)
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(seen.page.locator("#plan-verdict")).to_have_text(
        "Mend 1 field above, then there is an answer."
    )
    expect(seen.page.locator("#plan-answer table")).to_have_count(0)
    field.fill("2")
    expect(error).to_be_empty()
    assert rows(seen.page)


def test_the_keyboard_reaches_every_field_and_the_answer(seen: Seen, address: str) -> None:
    page = seen.page
    page.goto(address)
    page.get_by_label("Workload").focus()
    met: list[str] = []
    while "plan-workload" not in met[1:] and len(met) < 40:
        met.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
        page.keyboard.press("Tab")
    met = met[:-1]
    wanted = ["plan-workload", "plan-slo", "plan-load", "plan-unit", "plan-peak", "plan-price"]
    assert [each for each in met if each in wanted] == wanted
    assert "plan-sort" in met
    assert any("tw-scroll" in each for each in met)
    page.get_by_label("Mean load").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("40")
    expect(page.locator("#plan-verdict")).to_contain_text("Small boards: 53 to 55 × Toy GPU")


def test_a_built_site_has_it_and_asks_nobody(site: Site, seen: Seen) -> None:
    for address in (site.url + "plan.html", (site.folder / "plan.html").as_uri()):
        seen.page.goto(address)
        expect(seen.page.locator("#plan-verdict")).not_to_be_empty()
        assert "simulated: 2" in reasons(seen.page)
        link = seen.page.locator("#plan-out tbody a").first.get_attribute("href") or ""
        assert link.removeprefix("./") in site.reports.values()
    assert all(url.startswith((site.url, "file:")) for url in seen.requests)
    assert seen.complaints == []


def test_without_scripts_the_example_stands(folder: Path, chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / "default.html").as_uri())
    expect(page.locator("#plan-form")).to_be_hidden()
    assert rows(page) == ["Small boards", "No meter", "Big boards", "Short look"]
    context.close()


@pytest.mark.parametrize(("scheme", "width"), [("default", 375), ("slate", 1280)])
def test_axe_finds_nothing_wrong(folder: Path, chromium: Browser, scheme: str, width: int) -> None:
    page = chromium.new_page(viewport={"width": width, "height": 900})
    page.add_init_script(path=AXE)
    page.goto((folder / f"{scheme}.html").as_uri() + "#price=0.3&card=2&grid=400&peak=0&color=x")
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert "\n".join(page.evaluate(VIOLATIONS)) == ""
    page.get_by_label("Peak").fill("2")
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert "\n".join(page.evaluate(VIOLATIONS)) == ""
    assert overflow(page) <= 0
    page.close()
