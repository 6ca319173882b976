from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import EVIL, Seen, overflow
from tests.browser.test_accessibility import AXE, VIOLATIONS
from tests.pages.conftest import a_power_log, board_spec
from tests.support.runs import RunBuilder
from tokenwatt_site.commands.report import report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("single")
    run = RunBuilder(spec=board_spec(title=EVIL), power=a_power_log()).write(folder)
    return report([run], None, None)


def test_the_file_opens_from_disk_and_asks_for_nothing(page_file: Path, seen: Seen) -> None:
    seen.page.goto(page_file.as_uri(), wait_until="networkidle")
    expect(seen.page.locator("h1")).to_have_text(EVIL)
    assert seen.complaints == []
    assert seen.requests == [page_file.as_uri()]
    assert seen.page.evaluate("document.body.dataset.pwned") is None


@pytest.mark.parametrize("width", [320, 375, 1280])
def test_the_file_is_not_wider_than_its_window(page_file: Path, seen: Seen, width: int) -> None:
    seen.page.set_viewport_size({"width": width, "height": 720})
    seen.page.goto(page_file.as_uri())
    assert overflow(seen.page) <= 0


def test_the_scheme_can_be_switched(page_file: Path, seen: Seen) -> None:
    seen.page.goto(page_file.as_uri())
    before = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    seen.page.get_by_role("button", name="Switch between light and dark").click()
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") != before


@pytest.mark.parametrize("scheme", ["default", "slate"])
def test_axe_finds_nothing_wrong_in_the_file(page_file: Path, seen: Seen, scheme: str) -> None:
    seen.page.add_init_script(path=AXE)
    seen.page.goto(page_file.as_uri())
    seen.page.evaluate("name => { document.body.dataset.mdColorScheme = name; }", scheme)
    seen.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert "\n".join(seen.page.evaluate(VIOLATIONS)) == ""
