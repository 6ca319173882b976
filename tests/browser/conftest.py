"""One site and one headless Chromium for all browser tests."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.pages.conftest import SECOND, SHIPPED, a_long_log, board_spec
from tests.support.runs import RunBuilder, a_key, keyring_of, small_spec, spec_in_mode
from tests.support.site import build_site, make_project
from tokenwatt_site.spec import Spec

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

EVIL = (
    "</title><script>document.body.dataset.pwned=1</script>"
    '<img src=x onerror="document.body.dataset.pwned=1"> [x](javascript:alert(1)) ' + 100 * "x"
)


LONG_ENGINE = "Long words"


@dataclass(frozen=True)
class Site:
    """A built site, on disk and served on the loopback. `reports` maps a title to its address."""

    folder: Path
    url: str
    reports: dict[str, str]
    quoted: str


@dataclass
class Seen:
    """A page and everything it complained about or asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("browsed")
    runs = make_project(folder)
    small = {"title": "Slow toy", "setup__host_kind": "slow host"}
    name_comparison(folder, small_spec(), small_spec(**small))
    RunBuilder(simulated=False).write(runs / "one")
    RunBuilder(spec=small_spec(**small), spread=(1.6,), simulated=False).write(runs / "two")
    RunBuilder(
        spec=small_spec(title="Open bracket", setup__host_kind="x"),
        rates_urps=(500_000,),
        simulated=False,
    ).write(runs / "three")
    power = a_long_log(start_ns=2 * 10**12 - 60 * SECOND)
    RunBuilder(spec=board_spec(title="Toy on boards"), power=power).write(runs / "four")
    engine = small_spec().setup.engine.to_json() | {"name": "llama.cpp", "version": "not recorded"}
    formats = {"weights": "not recorded", "kv_cache": "not recorded"}
    long = {"setup__engine": engine, "setup__quantization": formats}
    RunBuilder(spec=small_spec(title=LONG_ENGINE, **long), simulated=False).write(runs / "long")
    RunBuilder(spec=small_spec(title=EVIL, note=EVIL, setup__driver=EVIL)).write(runs / "evil")
    shutil.copy(SHIPPED, runs)
    keyring_of(folder / "site_src" / "keys", a_key())
    built = build_site(folder)
    reports = {}
    for path in (built / "reports").glob("*.html"):
        html = path.read_text(encoding="utf-8")
        reports[html.partition("<h1>")[2].partition("</h1>")[0]] = f"reports/{path.name}"
    handler = functools.partial(_Quiet, directory=str(built))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        quoted = next((built / "quoted").glob("*.html")).name
        yield Site(built, f"http://127.0.0.1:{server.server_port}/", reports, f"quoted/{quoted}")
        server.shutdown()
        thread.join()


def name_comparison(folder: Path, baseline: Spec, other: Spec) -> None:
    """Let the site have a page of its own about two of its configurations."""
    named = folder / "site_src" / "comparisons"
    named.mkdir(exist_ok=True)
    (named / "toys.yml").write_text(
        "name: toys\ntitle: Two toys\nwhy: To see a comparison that the site names.\n"
        f"baseline: {baseline.configuration_id}\nothers:\n  - {other.configuration_id}\n",
        encoding="utf-8",
    )


def overflow(page: Page) -> int:
    """Return by how many pixels a page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


LONG = RunBuilder(spec=spec_in_mode("full", title="Long run"), long_run=True)


@pytest.fixture(scope="session")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run file of three repeats with the engine model that answered them: it is accepted."""
    return LONG.write(tmp_path_factory.mktemp("long"))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("no chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def seen(chromium: Browser) -> Iterator[Seen]:
    context = chromium.new_context(viewport={"width": 1280, "height": 720})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    result = Seen(context.new_page())
    result.page.on(
        "console",
        lambda m: result.complaints.append(m.text) if m.type in {"error", "warning"} else None,
    )
    result.page.on("pageerror", lambda error: result.complaints.append(str(error)))
    result.page.on("request", lambda request: result.requests.append(request.url))
    yield result
    context.close()
