"""axe-core looks at the pages.

`assets/axe.min.js` is `axe.min.js` of axe-core 4.14.1 from the npm registry, unchanged: MPL-2.0
(its header), with parts under the licences of `assets/LICENSE-3RD-PARTY.txt`. It is a tool of the
tests and in no page and no package.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import Site
from tests.browser.test_site import a_run, compared

pytestmark = pytest.mark.browser

AXE = Path(__file__).parent / "assets" / "axe.min.js"

# Nodes that passed are not asked for: nobody reads them.
VIOLATIONS = """
async () => (await axe.run(document, { resultTypes: ["violations"] })).violations.flatMap(
  v => v.nodes.map(n => `${v.id}: ${n.target.join(" ")}: ${n.failureSummary}`))
"""


def test_the_asset_is_the_pinned_version_under_its_own_licence() -> None:
    head = AXE.read_text(encoding="utf-8")[:600]
    assert head.startswith("/*! axe v4.14.1\n")
    assert "http://mozilla.org/MPL/2.0/" in head


def kinds(site: Site) -> list[str]:
    """One page of each kind; of reports, which differ most, one with boards and one without."""
    reports = [site.reports[title] for title in ("Toy on boards", "Open bracket")]
    ours = ["index.html", *reports, a_run(site), site.quoted, "comparisons/toys.html"]
    prose = ["glossary.html", "method.html", "client.html", "data.html"]
    return [*ours, compared(site), "plan.html", "verify.html", "404.html", *prose]


# Colours depend on the scheme and layout on the width, neither on both.
@pytest.mark.parametrize(("scheme", "width"), [("light", 375), ("dark", 1280)])
def test_axe_finds_nothing_wrong(site: Site, chromium: Browser, scheme: str, width: int) -> None:
    context = chromium.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 900},
        reduced_motion="reduce",
    )
    context.add_init_script(path=AXE)
    page = context.new_page()
    found = []
    for name in kinds(site):
        page.goto(site.url + name)
        if "#" in name:
            page.wait_for_selector("#compare-result tbody")
        # What is folded is shown to axe too; a colour in transition is none that anybody reads.
        page.add_style_tag(content="*{transition:none!important}")
        page.evaluate("document.querySelectorAll('article details').forEach(d => d.open = true)")
        found += [f"{name}: {violation}" for violation in page.evaluate(VIOLATIONS)]
    context.close()
    assert "\n".join(found) == ""
