"""The verify page and the control on reports, as a reader uses them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import Seen, Site, overflow
from tests.browser.test_accessibility import AXE, VIOLATIONS
from tests.support.runs import RunBuilder, a_key
from tests.trust.test_verify import put

pytestmark = pytest.mark.browser

HOLDS = "Signature and evidence hold, and the numbers follow from the evidence."


def verdict(page: Page) -> Locator:
    return page.locator(".tw-check-verdict")


def lines(page: Page) -> list[str]:
    return page.locator(".tw-check-list li b").all_inner_texts()


def served(site: Site, title: str) -> Path:
    """Return the folder of a run on the site."""
    for path in (site.folder / "runs").glob("*/run.json"):
        if json.loads(path.read_text(encoding="utf-8"))["spec"]["title"] == title:
            return path.parent
    raise LookupError(title)


def open_control(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_text("Check this page in your browser").click()


def choose(page: Page, files: list[Path]) -> None:
    page.get_by_label("Or its files").set_input_files(files)


def files_of(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


# --- a report


def test_a_report_on_a_server_fetches_its_run_and_holds_its_own_numbers_against_it(
    site: Site, seen: Seen
) -> None:
    open_control(seen.page, site.url + site.reports["Toy on boards"])
    seen.page.get_by_role("button", name="Check this page").click()
    expect(verdict(seen.page)).to_contain_text(HOLDS)
    assert len(lines(seen.page)) == 11
    own = seen.page.locator(".tw-check-list li").last
    expect(own).to_contain_text("This page")
    shown = seen.page.locator("[data-metric]").count()
    told = int(own.locator("span").last.inner_text().split()[0])
    assert 10 < told <= shown
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith((site.url, "data:"))] == []
    fetched = [url for url in seen.requests if "/runs/" in url]
    assert len(fetched) == 1 + len(list((served(site, "Toy on boards") / "evidence").iterdir()))


def test_t1_a_report_that_shows_another_number_than_its_evidence_gives_is_told(
    site: Site, seen: Seen
) -> None:
    open_control(seen.page, site.url + site.reports["Toy on boards"])
    cell = seen.page.locator("[data-metric=tokens_per_joule]")
    cell.evaluate("e => { e.textContent = String(Number(e.textContent) * 1.1); }")
    seen.page.get_by_role("button", name="Check this page").click()
    expect(verdict(seen.page)).to_contain_text("this page shows other numbers: Tokens per joule")


def test_a_report_on_disk_asks_for_the_folder_of_its_run(site: Site, seen: Seen) -> None:
    open_control(seen.page, (site.folder / site.reports["Toy on boards"]).as_uri())
    expect(seen.page.get_by_role("button", name="Check this page")).to_be_hidden()
    folder = served(site, "Toy on boards")
    expect(seen.page.locator(".tw-drop")).to_contain_text(f"../runs/{folder.name}")
    seen.page.get_by_label("Folder of a run").set_input_files(folder)
    expect(verdict(seen.page)).to_contain_text(HOLDS)
    assert lines(seen.page)[-1] == "This page"
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:"))] == []


def test_another_run_than_the_report_s_fails_on_its_page(site: Site, seen: Seen) -> None:
    open_control(seen.page, (site.folder / site.reports["Toy on boards"]).as_uri())
    seen.page.get_by_label("Folder of a run").set_input_files(served(site, "Slow toy"))
    expect(verdict(seen.page)).to_contain_text("Check 3 fails")


def test_a_run_that_the_server_lost_is_neither_verified_nor_accused(site: Site, seen: Seen) -> None:
    seen.page.route("**/evidence/*", lambda route: route.fulfill(status=404, body=""))
    open_control(seen.page, site.url + site.reports["Toy on boards"])
    seen.page.get_by_role("button", name="Check this page").click()
    expect(verdict(seen.page)).to_contain_text("Not finished. The evidence")
    seen.page.route("**/run.json", lambda route: route.abort())
    seen.page.get_by_role("button", name="Check this page").click()
    expect(verdict(seen.page)).to_have_text("The run file could not be fetched.")


# --- the verify page


def test_chosen_files_are_verified_and_an_unknown_key_is_said(
    site: Site, seen: Seen, tmp_path: Path
) -> None:
    RunBuilder(key=a_key(5)).write(tmp_path)
    seen.page.goto(site.url + "verify.html")
    choose(seen.page, files_of(tmp_path))
    expect(verdict(seen.page)).to_contain_text(f"{HOLDS} The key is not one that this site vouches")
    assert len(lines(seen.page)) == 10
    seen.page.get_by_text("Numbers made again", exact=True).click()
    row = seen.page.locator(".tw-check-result tr", has_text="Boundary rate")
    cells = row.locator("td").all_inner_texts()
    assert cells[0] == "requests/s"
    assert cells[1] == cells[2] != "none"
    assert cells[3] == "equal"
    assert seen.complaints == []
    assert not [url for url in seen.requests if "/runs/" in url]


DROP = {"items": [], "dragOperationsMask": 1}


def dropped(page: Page, paths: list[Path]) -> None:
    """Drop files from a file manager, as the browser's own protocol has it."""
    box = page.locator(".tw-drop").bounding_box()
    assert box is not None
    session = page.context.new_cdp_session(page)
    where = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] - 10}
    for kind in ("dragEnter", "dragOver", "drop"):
        data = {**DROP, "files": [str(path) for path in paths]}
        session.send("Input.dispatchDragEvent", {"type": kind, **where, "data": data})


@pytest.mark.parametrize("on_disk", [True, False])
def test_dropped_files_and_a_dropped_folder_are_verified(
    site: Site, seen: Seen, on_disk: bool
) -> None:
    folder = served(site, "Toy on boards")
    page = (site.folder / "verify.html").as_uri() if on_disk else site.url + "verify.html"
    seen.page.goto(page)
    expect(seen.page.locator(".tw-drop")).to_be_visible()
    dropped(seen.page, files_of(folder) if on_disk else [folder])
    expect(verdict(seen.page)).to_contain_text(HOLDS)
    expect(seen.page.locator(".tw-check-list")).to_contain_text("Signed by Lab 1")
    assert seen.complaints == []


def test_a_folder_that_cannot_be_read_is_said_to_be_that(site: Site, seen: Seen) -> None:
    seen.page.goto((site.folder / "verify.html").as_uri())
    expect(seen.page.locator(".tw-drop")).to_be_visible()
    # Chromium gives no page from disk what is in a dropped folder.
    dropped(seen.page, [served(site, "Toy on boards")])
    expect(verdict(seen.page)).to_contain_text("Choose it, or drop its files")


def test_files_that_are_not_one_run_are_said_to_be_that(
    site: Site, seen: Seen, tmp_path: Path
) -> None:
    seen.page.goto(site.url + "verify.html")
    (tmp_path / "a.txt").write_text("no run")
    choose(seen.page, [tmp_path / "a.txt"])
    expect(verdict(seen.page)).to_contain_text("there is none")
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("{}")
    choose(seen.page, files_of(tmp_path))
    expect(verdict(seen.page)).to_contain_text("there are several")
    choose(seen.page, [tmp_path / "a.json"])
    expect(verdict(seen.page)).to_contain_text("Check 2 fails: Is no run file")


def test_t1_one_changed_digit_fails_and_says_where(site: Site, seen: Seen, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(served(site, "Toy on boards"), folder)
    text = (folder / "run.json").read_text(encoding="utf-8")
    (folder / "run.json").write_text(text.replace('"slo_met": true', '"slo_met": false'))
    seen.page.goto(site.url + "verify.html")
    seen.page.get_by_label("Folder of a run").set_input_files(folder)
    expect(verdict(seen.page)).to_contain_text("Check 4 fails: Has a signature that does not fit")
    last = seen.page.locator(".tw-check-list li").last
    expect(last).to_contain_text("Fails")
    assert len(lines(seen.page)) == 4


EVIL = "<img src=x onerror=document.body.dataset.pwned=1>"


def test_f29_what_a_hostile_run_says_is_shown_as_text(
    site: Site, seen: Seen, tmp_path: Path
) -> None:
    RunBuilder(edit_document=put("configuration", value=EVIL)).write(tmp_path)
    seen.page.goto(site.url + "verify.html")
    choose(seen.page, files_of(tmp_path))
    expect(verdict(seen.page)).to_contain_text(EVIL)
    assert seen.page.locator("main img").count() == 0
    assert seen.page.evaluate("document.body.dataset.pwned") is None


def test_the_engine_model_is_replayed_on_request_with_progress(
    site: Site, seen: Seen, long_run: Path
) -> None:
    seen.page.goto(site.url + "verify.html")
    choose(seen.page, files_of(long_run.parent))
    expect(verdict(seen.page)).to_contain_text(HOLDS)
    seen.page.get_by_role("button", name="Replay the engine model").click()
    expect(seen.page.get_by_role("progressbar", name="Replay of the engine model")).to_be_visible()
    told = seen.page.locator(".tw-check-list li").nth(10)
    expect(told).to_contain_text("the model is accepted", timeout=60_000)
    expect(seen.page.get_by_role("progressbar")).to_have_count(0)
    seen.page.get_by_text("Numbers of the long run").click()
    row = seen.page.locator(".tw-check-result tr", has_text="Long-run SLO goodput")
    expect(row).to_contain_text("equal")


# --- browsers that cannot


WITHOUT = {
    "gzip": ("delete globalThis.DecompressionStream", "cannot unpack gzip"),
    "Ed25519": (
        "SubtleCrypto.prototype.importKey = () => Promise.reject(new Error('unknown'))",
        "does not know Ed25519",
    ),
    "a right Ed25519": (
        "SubtleCrypto.prototype.verify = () => Promise.resolve(true)",
        "Ed25519 is not right",
    ),
    "https": ("Object.defineProperty(crypto, 'subtle', {value: undefined})", "plain http"),
}


@pytest.mark.parametrize(("script", "words"), WITHOUT.values(), ids=WITHOUT)
def test_a_browser_that_lacks_something_cannot_verify_and_never_says_valid(
    site: Site, seen: Seen, script: str, words: str
) -> None:
    seen.page.add_init_script(script)
    seen.page.goto(site.url + "verify.html")
    off = seen.page.locator(".tw-check-off")
    expect(off).to_contain_text("Cannot verify here: ")
    expect(off).to_contain_text(words)
    expect(seen.page.locator(".tw-check-on")).to_be_hidden()


def test_a_browser_that_cannot_read_the_scripts_cannot_verify(site: Site, seen: Seen) -> None:
    seen.page.route(
        "**/verify-run.js", lambda route: route.fulfill(body="let = of = no = JavaScript;")
    )
    seen.page.goto(site.url + "verify.html")
    expect(seen.page.locator(".tw-check-off")).to_contain_text("too old to read the scripts")


def test_without_scripts_the_page_says_what_it_needs(site: Site, chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site.folder / "verify.html").as_uri())
    expect(page.locator(".tw-check-off")).to_contain_text("tokenwatt-site verify")
    expect(page.locator(".tw-check-on")).to_be_hidden()
    expect(page.get_by_role("heading", name="10. Recomputation")).to_be_visible()
    context.close()


# --- how it looks


@pytest.mark.parametrize(("scheme", "width"), [("light", 375), ("dark", 1280)])
def test_axe_finds_nothing_wrong_once_a_run_was_checked(
    site: Site, chromium: Browser, scheme: str, width: int
) -> None:
    context = chromium.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 900},
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.add_init_script(path=AXE)
    page.goto(site.url + "verify.html")
    choose(page, files_of(served(site, "Toy on boards")))
    expect(verdict(page)).to_contain_text(HOLDS)
    page.get_by_text("Numbers made again", exact=True).click()
    assert "\n".join(page.evaluate(VIOLATIONS)) == ""
    assert overflow(page) <= 0
    context.close()
