"""How long a site of 100, 1,000 and 10,000 configurations takes to build, and how much memory.

Every run is made up, signed and marked as simulated; see `_many`. All configurations share 100
distinct sets of charts, so that many thousand builds draw as many charts as 100 do. The sizes grow
in one project, each build in a process of its own; times are processor time, of all its threads:

- `verify_ms_per_run`: to verify what was added. Builds find that done, whatever else they do.
- `ms_per_report_cold`: a build of the first size with nothing drawn and no page made.
- `ms_per_report_made`: pages made anew from charts that were drawn, as of what each size adds.
- `ms_per_report_warm`: a build where nothing changed. What the site costs without any run,
  `site_without_runs_s`, is not in this one, so that a small site may not hide what grows.

A report here is all that a configuration adds: its report, the page of its run, the run and its
evidence, its result for the API and for comparisons, its badge, its place in tables and feeds.
TOKENWATT_BENCH_SIZES names other sizes: `TOKENWATT_BENCH_SIZES=20,40 make bench B=site`.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.benchmarks import leaderboard
from tests.benchmarks._many import SETS, write_runs
from tests.browser.conftest import ARGUMENTS
from tests.support.site import make_project

ROOT = Path(__file__).resolve().parents[2]
SIZES = (100, 1_000, 10_000)
ADDRESS = "https://bench.example/"
"""Feeds and permanent addresses are made only where a site has one."""


def run() -> dict[str, float]:
    """Measure."""
    told = os.environ.get("TOKENWATT_BENCH_SIZES")
    sizes = [int(size) for size in told.split(",")] if told else SIZES
    with tempfile.TemporaryDirectory() as name:
        built = figures(Path(name), sizes)
    return {**built, **leaderboard.run()}


def figures(folder: Path, sizes: Sequence[int]) -> dict[str, float]:
    """Return the figures of a project in `folder` that grows to each of `sizes`, least first."""
    runs = make_project(folder)
    with (folder / "mkdocs.yml").open("a", encoding="utf-8") as config:
        config.write(f"\nsite_url: {ADDRESS}\n")
    _build(folder)  # what no run changes is made once, and kept
    without_s = _build(folder)["cpu_s"]
    found: dict[str, float] = {"chart_sets": min(SETS, sizes[-1]), "site_without_runs_s": without_s}
    warm_ms: list[float] = []
    peaks_mb: list[float] = []
    before = 0
    for size in sizes:
        write_runs(runs, before, size)
        verified, made, warm = _child("read", folder), _build(folder), _build(folder)
        verify_ms = 1e3 * verified["cpu_s"] / (size - before)
        found[f"verify_ms_per_run@{size}"] = verify_ms
        if not before:
            found["ms_per_report_cold"] = 1e3 * made["cpu_s"] / size
        else:
            kept_s = (warm["cpu_s"] - without_s) * before / size
            more_s = made["cpu_s"] - without_s - kept_s
            found[f"ms_per_report_made@{size}"] = 1e3 * more_s / (size - before)
        warm_ms.append(1e3 * (warm["cpu_s"] - without_s) / size)
        found[f"ms_per_report_warm@{size}"] = warm_ms[-1]
        found[f"build_rss_mb@{size}"] = max(made["peak_mb"], warm["peak_mb"])
        peaks_mb.append(found[f"build_rss_mb@{size}"])
        before = size
    largest = sizes[-1]
    return {
        "configurations": largest,
        "ms_per_report_warm": warm_ms[-1],
        "ms_per_report_cold": found.pop("ms_per_report_cold"),
        f"ratio_{largest}_to_{sizes[-2]}": warm_ms[-1] / warm_ms[-2],
        "build_rss_mb": max(peaks_mb),
        **found,
        **_pages(folder / "site"),
    }


def _build(folder: Path) -> dict[str, float]:
    return _child("build", folder)


def _child(action: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks._site_build", action, str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    told: dict[str, float] = json.loads(done.stdout)
    return told


def _pages(site: Path) -> dict[str, float]:
    """Return how large the largest report is, how much is packed, and what pages ask others for."""
    reports = sorted((site / "reports").glob("*.html"))
    largest = max(reports, key=lambda path: path.stat().st_size)
    packed = gzip.compress(largest.read_bytes())
    files = sum(1 for path in site.rglob("*") if path.is_file())
    return {
        "report_kb": largest.stat().st_size / 1e3,
        "report_kb_gzip": len(packed) / 1e3,
        "home_kb_gzip": len(gzip.compress((site / "index.html").read_bytes())) / 1e3,
        "reports": len(reports),
        "files": files,
        "outside_requests": _asked_of_others(
            [largest, *(site / name for name in ("index.html", "compare.html", "plan.html"))]
        ),
    }


def _asked_of_others(paths: Sequence[Path]) -> int:
    """Count what pages, opened from disk, ask for that is not on it."""
    asked: list[str] = []
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        for path in paths:
            page.goto(path.as_uri(), wait_until="networkidle")
        browser.close()
    return sum(not url.startswith(("file:", "data:")) for url in asked)
