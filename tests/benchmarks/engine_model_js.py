"""The long run, 204,000 requests, replayed in headless Chromium: ms for due times and for steps.

An engine a figure, each at its boundary; what a reader waits for when verifying a boundary is two
of these, a passing and a failing rate.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.conftest import ARGUMENTS
from tests.browser.test_engine_model import SCRIPT, engine, told
from tokenwatt_site.engine_model.load import Load
from tokenwatt_site.pages import simulator
from tokenwatt_site.windows import LONG_RUN_EDGE, LONG_RUN_SCORED
from tokenwatt_site.workload import NAMED

PLAY = """
([engine, rate]) => {
  const begin = performance.now(), due = TokenwattEngine.dueNs(load.elapsed, rate);
  const middle = performance.now();
  TokenwattEngine.serve(due, load.nIn, load.nOut, engine.prices, engine.limits);
  return [middle - begin, performance.now() - middle];
}
"""


def run() -> dict[str, float]:
    """Play each engine of the simulator once, compiled by an earlier play of the same."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    rows = NAMED[simulator.WORKLOAD].realisation(
        0, lead_in=LONG_RUN_EDGE, scored=LONG_RUN_SCORED, tail=LONG_RUN_EDGE
    )
    load = told(Load.of(rows))
    figures: dict[str, float] = {"requests": len(rows.rows)}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=Path(chromium) if chromium else None, args=ARGUMENTS
        )
        page = browser.new_page()
        page.add_script_tag(path=SCRIPT)
        # As text: playwright takes a value at a time.
        page.evaluate("text => { globalThis.load = JSON.parse(text); }", json.dumps(load))
        for one in simulator.ENGINES:
            given = [engine(one.model), simulator.edges_of(one).boundary_urps]
            page.evaluate(PLAY, given)
            due_ms, serve_ms = page.evaluate(PLAY, given)
            name = one.name.lower().replace(", ", "_").replace(" ", "_")
            figures[f"due_ms_{name}"] = round(due_ms, 1)
            figures[f"serve_ms_{name}"] = round(serve_ms, 1)
        browser.close()
    return figures
