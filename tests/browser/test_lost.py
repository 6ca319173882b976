"""The page for lost addresses, and the page of a run, in a browser."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import EVIL, Seen, Site, overflow
from tests.browser.test_accessibility import AXE, VIOLATIONS

pytestmark = pytest.mark.browser


class _Lost(http.server.SimpleHTTPRequestHandler):
    """Serves a site below a path, and its 404.html where there is nothing, as static hosts do."""

    def log_message(self, *_: object) -> None:
        pass

    def send_error(self, code: int, *_: object) -> None:
        body = Path(self.directory, "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def lost(site: Site) -> Iterator[str]:
    handler = functools.partial(_Lost, directory=str(site.folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def runs(site: Site) -> list[dict[str, str]]:
    index = json.loads((site.folder / "api/v1/index.json").read_text(encoding="utf-8"))
    return list(index["runs"])


@pytest.mark.parametrize("path", ["runs/{}/", "a/b/c/{}.html", "{}"])
def test_an_address_with_the_beginning_of_an_id_finds_its_run_at_any_depth(
    lost: str, seen: Seen, runs: list[dict[str, str]], path: str
) -> None:
    run = runs[0]
    seen.page.goto(lost + path.format(run["run"][:10]))
    link = seen.page.locator(".tw-lost-found a").first
    expect(link).to_have_text(run["title"])
    link.click()
    expect(seen.page.locator(".tw-id").first).to_have_text(run["run"])
    assert [c for c in seen.complaints if "404" not in c] == []


def test_words_that_nothing_begins_with_are_told_and_a_hostile_title_is_words(
    lost: str, seen: Seen, runs: list[dict[str, str]]
) -> None:
    page = seen.page
    page.goto(lost + "nothing/here/%3Cimg%20src=x%20onerror=alert(1)%3E")
    said = page.locator(".tw-lost-said")
    expect(said).to_contain_text("No run and no configuration here has this id")
    page.get_by_role("searchbox").first.fill("x")
    page.locator(".tw-lost-on button").click()
    expect(said).to_contain_text("at least 3 signs")
    (evil,) = [run for run in runs if run["title"] == EVIL]
    page.locator("#tw-lost-id").fill(evil["run"][:8].upper())
    page.keyboard.press("Enter")
    expect(page.locator(".tw-lost-found a")).to_have_text(EVIL)
    assert page.evaluate("document.body.dataset.pwned") is None
    assert page.locator(".tw-lost-found img").count() == 0


@pytest.mark.parametrize(("scheme", "width"), [("light", 375), ("dark", 1280)])
def test_axe_finds_nothing_wrong_and_nothing_is_wider_than_the_window(
    lost: str, chromium: Browser, runs: list[dict[str, str]], scheme: str, width: int
) -> None:
    context = chromium.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 900},
        reduced_motion="reduce",
    )
    context.add_init_script(path=AXE)
    page = context.new_page()
    (evil,) = [run for run in runs if run["title"] == EVIL]
    found = []
    for name in (runs[0]["page"], evil["page"], "data.html", f"x/{evil['run'][:6]}"):
        page.goto(lost + name)
        page.add_style_tag(content="*{transition:none!important}")
        page.evaluate("document.querySelectorAll('article details').forEach(d => d.open = true)")
        found += [f"{name}: {violation}" for violation in page.evaluate(VIOLATIONS)]
        wider = overflow(page)
        found += [f"{name}: {wider} px too wide"] if wider > 0 else []
    context.close()
    assert "\n".join(found) == ""


def test_a_run_page_checks_itself_and_opens_from_disk(
    site: Site, lost: str, seen: Seen, runs: list[dict[str, str]]
) -> None:
    page = seen.page
    page.goto(lost + runs[0]["page"])
    page.locator("#check summary").click()
    page.locator(".tw-check-start").click()
    expect(page.locator(".tw-check-verdict")).not_to_be_empty(timeout=20_000)
    expect(page.locator(".tw-check-result")).to_contain_text("Signature", timeout=20_000)
    page.goto((site.folder / runs[0]["page"]).as_uri())
    expect(page.locator("h1")).to_have_text(runs[0]["title"])
    assert seen.complaints == []
