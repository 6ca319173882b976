"""The leaderboard with 10,000 made-up rows in Chromium, from disk: medians of several times.

`load` ends when the page's scripts have drawn the table; `sort` and `filter` end when the table is
laid out again after the press, or the words in the search field.
"""

from __future__ import annotations

import gzip
import shutil
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.browser.conftest import ARGUMENTS
from tests.support.boards import many
from tokenwatt_site.pages import packed_catalogue, ranking
from tokenwatt_site.pages.page import asset

ROWS = 10_000
TIMES = 7

SHELL = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Ranking</title>
<link rel="stylesheet" href="tokenwatt.css"></head><body data-md-color-scheme="default">
<main class="md-content"><article class="md-typeset">{html}</article></main></body></html>"""

LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"
PRESSED = """() => {
  const head = document.querySelectorAll(".tw-lb thead button")[3], from = performance.now();
  head.click();
  document.querySelector(".tw-lb tbody").getBoundingClientRect();
  return performance.now() - from; }"""
SEARCHED = """words => {
  const field = document.querySelector(".tw-controls input[type=search]"), from = performance.now();
  field.value = words;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  document.querySelector(".tw-lb tbody").getBoundingClientRect();
  return performance.now() - from; }"""


def run() -> dict[str, float]:
    """Measure."""
    board = many(ROWS)
    scripts = (packed_catalogue.READER, *ranking.SCRIPTS)
    data = packed_catalogue.script(board)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        html = SHELL.format(html=ranking.render(board, [], [], ".").html)
        (folder / "index.html").write_text(html, encoding="utf-8")
        (folder / packed_catalogue.DATA).write_text(data, encoding="utf-8")
        for each in (*scripts, "tokenwatt.css"):
            (folder / each).write_text(asset(each), encoding="utf-8")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=ARGUMENTS
            )
            times = _times(browser.new_page(), (folder / "index.html").as_uri())
            browser.close()
    script = "".join(map(asset, scripts)).encode()
    return {
        "rows": ROWS,
        **times,
        "script_kb_gzip": len(gzip.compress(script)) / 1000,
        "data_kb_gzip": len(gzip.compress(data.encode())) / 1000,
        "page_kb_gzip": len(gzip.compress(html.encode())) / 1000,
    }


def _times(page: Page, address: str) -> dict[str, float]:
    load: list[float] = []
    for _ in range(TIMES):
        page.goto("about:blank")
        page.goto(address, wait_until="load")
        load.append(page.evaluate(LOADED))
    sort = [page.evaluate(PRESSED) for _ in range(TIMES)]
    words = ["gpu 3", "toy-4b", "engine1", "gpu 1 toy", "", "configuration 77", "engine4 gpu"]
    filtered = [page.evaluate(SEARCHED, each) for each in words]
    return {
        "leaderboard_load_ms": statistics.median(load),
        "leaderboard_sort_ms": statistics.median(sort),
        "leaderboard_filter_ms": statistics.median(filtered),
    }
