"""A run of 45,000 requests verified in headless Chromium: seconds from its bytes to the last check.

The first time is with scripts that were never run before, as a reader has it; the others after it.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.checker import checked, open_checker
from tests.browser.conftest import ARGUMENTS
from tests.support.runs import MODES, RunBuilder, small_spec

RATES_URPS = tuple(range(1_300_000, 2_800_000, 100_000))
AGAIN = 4


def run_of_45k(folder: Path) -> Path:
    """Write 3 repeats of 15 trials of 1,000 requests, and return the run file."""
    protocol = {**MODES["full"], "lead_in": 80, "scored": 600, "tail": 320}
    spec = small_spec(**{f"protocol__{name}": value for name, value in protocol.items()})
    return RunBuilder(spec=spec, rates_urps=RATES_URPS).write(folder)


def figures() -> dict[str, float]:
    """Verify it once with fresh scripts and a few times more."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        path = run_of_45k(Path(name))
        browser = playwright.chromium.launch(
            executable_path=Path(chromium) if chromium else None, args=ARGUMENTS
        )
        page = open_checker(browser, Path(name))
        reports = [checked(page, path) for _ in range(AGAIN + 1)]
        browser.close()
    seconds = [report["milliseconds"] / 1000 for report in reports]
    if any(check["outcome"] != "passed" for report in reports for check in report["checks"]):
        raise RuntimeError(f"not verified: {reports[0]['checks'][-1]}")
    return {
        "browser_45k_first_s": round(seconds[0], 3),
        "browser_45k_s": round(statistics.median(seconds[1:]), 3),
    }
