"""The leaderboard as its readers use it: from disk, on a made-up catalogue."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import overflow
from tests.browser.test_accessibility import AXE, VIOLATIONS
from tests.support.boards import a_board, a_row, many
from tokenwatt_site.pages import packed_catalogue, ranking
from tokenwatt_site.pages.page import asset

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=document.body.dataset.pwned=1>"
SHELL = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Ranking</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="tokenwatt.css">
<style>html {{ font-size: 125%; }} body {{ margin: .8rem; font: 1rem sans-serif;
background: {ground}; --md-default-bg-color: {ground}; }}</style></head>
<body data-md-color-scheme="{scheme}">
<main class="md-content"><article class="md-typeset">{html}</article></main></body></html>"""


def goodput(value: float | None, **more: float | None) -> dict[str, float | None]:
    return {"long_run_goodput": value, "tpot": 20.0, "ttft": 500.0, **more}


ROWS = [
    a_row("Alpha", goodput(900, tokens_per_joule=3.0, tpot=40.0), rank=(1, 2), id="alpha-1"),
    a_row("Beta", goodput(880, tokens_per_joule=22.6), rank=(1, 2), accelerator="Other GPU"),
    a_row("Gamma", goodput(500, tokens_per_joule=5.0), rank=(3, 3), engine="other",
          version="other 2.0", measured="2026-03-01"),
    a_row("Delta", goodput(400, tokens_per_joule=1e3), rank=(4, 4)),
    a_row("Epsilon", goodput(None, tokens_per_joule=None), measured="2026-02-01"),
    a_row("=1+1", goodput(300), model="Toy-70B"),
    a_row(EVIL, goodput(200), signer=EVIL),
    a_row("Elsewhere", goodput(100), rank=(1, 1), section=1),
]  # fmt: skip


def written(made: Path, board: dict[str, Any]) -> Path:
    """Write the page, light and dark, and what it needs."""
    html = ranking.render(board, [], [], ".").html
    for scheme, ground in (("default", "#fff"), ("slate", "#1e2129")):
        page = SHELL.format(scheme=scheme, ground=ground, html=html)
        (made / f"{scheme}.html").write_text(page, encoding="utf-8")
    for name in (packed_catalogue.READER, *ranking.SCRIPTS, "tokenwatt.css"):
        (made / name).write_text(asset(name), encoding="utf-8")
    script = packed_catalogue.script(board)
    (made / packed_catalogue.DATA).write_text(script, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("board"), a_board(ROWS))


@pytest.fixture(scope="module")
def address(folder: Path) -> str:
    return (folder / "default.html").as_uri()


@pytest.fixture(scope="module")
def shared(chromium: Browser) -> Iterator[tuple[Page, list[str]]]:
    """One page for all tests, and what it complained about or asked of others."""
    page = chromium.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda r: r.url.startswith(("file:", "blob:")) or complaints.append(r.url))
    yield page, complaints
    page.close()


@pytest.fixture
def page(shared: tuple[Page, list[str]]) -> Iterator[Page]:
    page, complaints = shared
    page.set_viewport_size({"width": 1280, "height": 720})
    yield page
    assert complaints == []


def titles(page: Page) -> list[str]:
    """The rows of the first table in sight, in their order."""
    return page.eval_on_selector_all(
        ".tw-lb tbody tr th a", "all => all.filter(a => a.offsetParent).map(a => a.textContent)"
    )


def opened(page: Page, address: str, choices: str = "") -> list[str]:
    page.goto("about:blank")
    page.goto(f"{address}#{choices}" if choices else address)
    return titles(page)


ALL = ["Alpha", "Beta", "Gamma", "Delta", "=1+1", EVIL, "Epsilon"]


def test_h15_the_first_screen_shows_the_ranking_itself(page: Page, address: str) -> None:
    assert set(opened(page, address)) == set(ALL)
    box = page.get_by_role("link", name="Gamma").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 720
    assert page.locator("details[open]").count() == 0


def test_h33_all_co_leaders_are_named_with_their_ranks(page: Page, address: str) -> None:
    opened(page, address)
    leaders = page.locator(".tw-leaders").first.inner_text()
    assert "Alpha" in leaders
    assert "Beta" in leaders
    assert "Gamma" not in leaders


def test_rows_of_another_question_are_never_in_one_table(page: Page, address: str) -> None:
    opened(page, address)
    page.locator(".tw-bar select").first.select_option(index=1)
    assert titles(page) == ["Elsewhere"]
    assert "board=board-chat-mix-v2" in page.url


def test_h3_and_h4_numbers_sort_as_numbers_and_missing_is_last_both_ways(
    page: Page, address: str
) -> None:
    down = opened(page, address, "sort=tokens_per_joule.descending")
    up = opened(page, address, "sort=tokens_per_joule.ascending")
    assert down[:4] == ["Delta", "Beta", "Gamma", "Alpha"]
    assert up[:4] == down[3::-1]
    assert set(down[4:]) == set(up[4:]) == {"Epsilon", "=1+1", EVIL}


def test_a_press_on_a_head_sorts_and_says_so_to_all(page: Page, address: str) -> None:
    opened(page, address)
    head = page.locator("th", has=page.get_by_role("button", name="TPOT")).first
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert "sort=tpot.ascending" in page.url
    head = page.locator("th", has=page.get_by_role("button", name="TPOT")).first
    head.get_by_role("button").press("Enter")
    assert titles(page)[0] == "Alpha"


CHOICES = {
    "accelerator=Other+GPU": ["Beta"],
    "engine=other": ["Gamma"],
    "model=Toy-70B": ["=1+1"],
    "find=gamma": ["Gamma"],
    "from=2026-03-01": ["Gamma"],
    "to=2026-01-31&ranked=1": ["Alpha", "Beta", "Delta"],
    "best=accelerator&ranked=1": ["Alpha", "Beta"],
    "best=engine&ranked=1": ["Alpha", "Beta", "Gamma"],  # co-leaders, of one engine
    "pin=epsilon&engine=other": ["Epsilon", "Gamma"],
}


@pytest.mark.parametrize(("choices", "expected"), CHOICES.items(), ids=CHOICES)
def test_h2_and_h17_every_choice_is_in_the_address_and_comes_back_from_it(
    page: Page, address: str, choices: str, expected: list[str]
) -> None:
    assert opened(page, address, choices) == expected
    page.reload()
    assert titles(page) == expected
    expect(page.locator(".tw-told .tw-notice")).to_have_count(0)


def test_h1_another_choice_keeps_those_that_are_valid(page: Page, address: str) -> None:
    opened(page, address, "from=2026-02-01")
    page.get_by_text("Filters and columns").click()
    page.locator(".tw-filters label", has_text="Engine").locator("select").first.select_option(
        "other"
    )
    assert titles(page) == ["Gamma"]
    assert "from=2026-02-01" in page.url
    page.go_back()
    assert set(titles(page)) == {"Gamma", "Epsilon"}


def test_h2_what_an_address_asks_and_nobody_knows_is_told(page: Page, address: str) -> None:
    asked = "engine=gone&sort=beauty.up&pin=lost&colour=red&best=vendor&from=monday"
    assert set(opened(page, address, asked)) == set(ALL)
    told = page.locator(".tw-told").inner_text()
    for word in ("gone", "beauty", "lost", "colour", "vendor", "monday"):
        assert word in told


def test_what_an_address_says_twice_counts_once_and_the_rest_is_told(
    page: Page, address: str
) -> None:
    asked = "sort=tpot.ascending&sort=rank.ascending&pin=delta&pin=delta&to=2026-99-99"
    asked += "&columns=tpot+tpot&columns=model&find=%E0%A4%A&find="
    assert opened(page, address, asked) == ["Delta"]
    notices = page.locator(".tw-told .tw-notice")
    expect(notices).to_have_count(3)
    for words in ("“rank.ascending” is not the first", "“” is not the first", "“2026-99-99” is no"):
        expect(notices.filter(has_text=words)).to_have_count(1)
    heads = page.locator(".tw-lb thead:visible th").all_inner_texts()
    assert [head.split("\n")[0] for head in heads] == ["Rank", "Configuration", "TPOT", "Model"]


def test_rows_that_are_left_out_are_counted_with_the_reason(page: Page, address: str) -> None:
    opened(page, address, "engine=other")
    status = " ".join(page.locator(".tw-status:visible").all_inner_texts())
    assert "6 of 7 rows left out: 6 by Engine" in status.replace("\n", " ")


def test_a_pin_keeps_a_row_whatever_the_filter_and_is_taken_off_again(
    page: Page, address: str
) -> None:
    opened(page, address)
    page.locator("tr", has=page.get_by_role("link", name="Delta")).get_by_role("button").click()
    assert "pin=delta" in page.url
    assert titles(page)[0] == "Delta"
    page.locator("tr", has=page.get_by_role("link", name="Delta")).get_by_role("button").click()
    assert "pin=" not in page.url


def test_a_reader_chooses_the_columns(page: Page, address: str) -> None:
    opened(page, address, "columns=tpot+model")
    heads = page.locator(".tw-lb thead:visible").first.inner_text()
    assert "TPOT" in heads
    assert "Model" in heads
    assert "Goodput" not in heads


def download(page: Page, name: str) -> str:
    with page.expect_download() as saved:
        page.get_by_role("button", name=name).click()
    return Path(saved.value.path()).read_text(encoding="utf-8")


def test_h18_the_files_have_the_rows_and_columns_in_sight(page: Page, address: str) -> None:
    shown = opened(page, address, "columns=tpot&sort=tpot.descending&pin=delta")
    table = list(csv.DictReader(io.StringIO(download(page, "CSV"))))
    assert [row["Configuration"].removeprefix("'") for row in table] == shown
    assert [row["Configuration"] for row in table if "1+1" in row["Configuration"]] == ["'=1+1"]
    assert {row["Workload"] for row in table} == {"chat-mix-v1"}
    (name,) = [key for key in table[0] if key.startswith("TPOT") and "low" not in key
               and "high" not in key]  # fmt: skip
    assert name.endswith("(ms)")
    assert float(next(r for r in table if r["Configuration"] == "Alpha")[name]) == 40.0
    told = json.loads(download(page, "JSON"))
    assert [row["title"] for row in told["rows"]] == shown
    assert told["rows"][0]["pinned"] is True
    assert [column["key"] for column in told["columns"]] == ["tpot"]


def test_f5_words_of_a_run_are_words_wherever_they_stand(page: Page, address: str) -> None:
    opened(page, address, f"signer={EVIL}&find={EVIL}&pin={EVIL}")
    page.get_by_text("Filters and columns").click()
    opened(page, address)
    assert page.locator("img").count() == 0
    assert page.evaluate("document.body.dataset.pwned") is None


def test_the_frontier_is_of_the_rows_in_sight(page: Page, address: str) -> None:
    opened(page, address, "x=tpot&y=tokens_per_joule")
    every = marks(page)
    assert page.locator(".tw-trade-plot:visible .tw-trade-front").count() == len(every)
    assert [
        name for name in every if "Delta" in name
    ]  # the most tokens per joule, at no worse TPOT
    opened(page, address, "x=tpot&y=tokens_per_joule&engine=other")
    assert [name for name in marks(page) if "Gamma" in name] == list(marks(page))


def marks(page: Page) -> dict[str, Any]:
    """Colour and shape of each row of the frontier, as the table beside the chart shows them."""
    page.locator(".tw-trade:visible").scroll_into_view_if_needed()
    expect(page.locator(".tw-trade-plot:visible")).to_be_visible()
    return page.evaluate(
        """() => {
        const rows = document.querySelectorAll(".tw-trade:not([hidden]) tbody tr");
        const shown = Array.from(rows).filter(row => row.offsetParent);
        const words = row => row.querySelector("th").textContent;
        const mark = row => [words(row), row.querySelector("svg").outerHTML];
        return Object.fromEntries(shown.map(mark)); }"""
    )


def test_the_chart_begins_with_axes_that_most_rows_have_as_without_scripts(
    page: Page, tmp_path: Path
) -> None:
    both = [goodput(100 + i, tokens_per_joule=3.0) for i in range(2)]
    few = [*both, *(goodput(200 + i, goodput=210.0) for i in range(3))]
    board = a_board([a_row(f"Row {i}", cells) for i, cells in enumerate(few)])
    written(tmp_path, board)
    opened(page, (tmp_path / "default.html").as_uri())
    marks(page)
    wanted = "Long-run SLO goodput against"
    assert page.locator(".tw-trade h3").inner_text().startswith(wanted)
    assert f">{wanted} TTFT" in ranking.render(board, [], [], ".").html


def test_h14_a_row_keeps_its_colour_and_shape_whatever_is_shown(page: Page, address: str) -> None:
    opened(page, address, "x=tpot&y=tokens_per_joule")
    every = marks(page)
    opened(page, address, "x=tpot&y=tokens_per_joule&engine=toy&sort=ttft.ascending")
    few = marks(page)
    assert few
    assert few.items() <= every.items()


PAINT = """() => Array.from(document.querySelectorAll(".tw-trade-plot .tw-trade-point"), point => {
  const { fill, stroke } = getComputedStyle(point);
  return [point.classList.contains("tw-trade-hollow"), fill, stroke]; })"""


@pytest.mark.parametrize(("scheme", "ground"), [("default", 255), ("slate", 30)])
def test_a_point_of_any_colour_is_seen_hollow_or_filled(
    page: Page, tmp_path: Path, scheme: str, ground: int
) -> None:
    opened(page, (written(tmp_path, many(40)) / f"{scheme}.html").as_uri())
    page.locator(".tw-trade").scroll_into_view_if_needed()
    expect(page.locator(".tw-trade-plot")).to_be_visible()
    painted = page.evaluate(PAINT)
    for hollow in (True, False):
        assert len({stroke for kind, _, stroke in painted if kind == hollow}) == 4
    for hollow, fill, stroke in painted:
        assert stroke != "none"
        assert fill.startswith(f"rgb({ground}, ") if hollow else fill == stroke


def test_without_scripts_the_ranking_and_its_frontier_are_there(
    chromium: Browser, address: str
) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    text = page.inner_text("main")
    for title in ALL:
        assert title in text
    assert "Elsewhere" in text
    context.close()


# Colours depend on the scheme and layout on the width, neither on both.
@pytest.mark.parametrize(("scheme", "width"), [("default", 375), ("slate", 1280)])
def test_h20_and_h21_it_fits_and_has_no_barrier(
    page: Page, folder: Path, scheme: str, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    opened(page, (folder / f"{scheme}.html").as_uri(), "pin=delta&engine=other&colour=red")
    page.get_by_text("Filters and columns").click()
    assert overflow(page) <= 0
    page.add_script_tag(path=AXE)
    assert page.evaluate(VIOLATIONS) == []
    page.set_viewport_size({"width": 320, "height": 800})
    assert overflow(page) <= 0
