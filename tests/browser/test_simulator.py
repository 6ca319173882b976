"""The simulator of the method page, as a reader uses it."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import Seen, Site, overflow
from tests.browser.test_accessibility import AXE, VIOLATIONS
from tokenwatt_site.engine_model.boundary import find_edges
from tokenwatt_site.engine_model.load import Load, counts, missed, play
from tokenwatt_site.pages import simulator

pytestmark = pytest.mark.browser

MINUTE_NS = 60 * 10**9


def result(page: Page) -> Locator:
    return page.locator("#simulator .tw-sim-result")


def finished(page: Page) -> str:
    expect(result(page)).to_contain_text("A measurement on window")
    expect(page.locator("#simulator:not([aria-busy])")).to_be_attached()
    return result(page).inner_text()


def choose(page: Page, engine: int, rate: str, minutes: int, window: int) -> str:
    page.get_by_label("Engine", exact=True).select_option(str(engine))
    page.get_by_label("Window", exact=True).select_option(str(minutes))
    page.get_by_label("Look at window number").fill(str(window))
    page.get_by_label("Rate, requests/s").fill(rate)
    return finished(page)


def window_load(rows: slice) -> Load:
    whole = simulator.load()
    low = max(0, rows.start - simulator.EDGE)
    high = min(len(whole.n_in), rows.stop + simulator.EDGE)
    return Load(
        whole.elapsed[low:high] - whole.elapsed[low],
        whole.n_in[low:high],
        whole.n_out[low:high],
        slice(rows.start - low, rows.stop - low),
    )


@pytest.mark.parametrize("asked", [(0, "5.4", 2, 7), (2, "7.9", 10, 3)])
def test_what_it_tells_is_what_python_finds(
    site: Site, seen: Seen, asked: tuple[int, str, int, int]
) -> None:
    engine, rate, minutes, window = asked
    seen.page.goto(site.url + "method.html")
    told = choose(seen.page, engine, rate, minutes, window)
    one, load, urps = simulator.ENGINES[engine], simulator.load(), round(float(rate) * 1e6)
    played = play(one.model, load, urps)
    for count, name in zip(
        counts(simulator.SLO, played, load.n_out, load.scored), ("TTFT", "TPOT"), strict=True
    ):
        share = f"{100 * count.misses / count.n:.2f}%"
        wanted = f"{count.misses:,} of {count.n:,} requests ({share}) miss the {name} limit"
        assert wanted in told
    kept = simulator.kept_per_mille(one, urps, minutes) / 10
    assert f"{kept:.1f}% of {minutes}-minute windows keep it" in told

    begin = int(played.due_ns[load.scored.start]) + (window - 1) * minutes * MINUTE_NS
    edges = np.searchsorted(played.due_ns, [begin, begin + minutes * MINUTE_NS])
    rows = slice(int(edges[0]), int(edges[1]))
    long_run = simulator.edges_of(one).boundary_urps
    found = find_edges(one.model, window_load(rows), simulator.SLO, long_run)
    assert found is not None
    assert f"window {window} alone would find {found.boundary_urps / 1e6:.2f} requests/s" in told
    assert f"the long run, {long_run / 1e6:.2f}." in told

    miss = np.any([missed(o, played, load.n_out)[rows] for o in simulator.SLO], axis=0)
    shown = seen.page.locator("#simulator li[aria-current]")
    expect(shown).to_contain_text(f"{miss.sum():,} of {len(miss):,} miss")
    marks = shown.locator(".tw-sim-miss").get_attribute("d") or ""
    short = shown.locator(".tw-sim-hit").get_attribute("d") or ""
    assert (marks.count("M"), short.count("M")) == (miss.sum(), len(miss) - miss.sum())
    assert seen.complaints == []


def test_the_slider_and_the_number_move_each_other(site: Site, seen: Seen) -> None:
    seen.page.goto(site.url + "method.html")
    before = finished(seen.page)
    slider, number = (
        seen.page.get_by_label("Rate, on a slider"),
        seen.page.get_by_label("Rate, req"),
    )
    slider.focus()
    for _ in range(3):
        seen.page.keyboard.press("ArrowRight")
    expect(number).to_have_value(slider.input_value())
    assert finished(seen.page) != before
    number.fill("5.10")
    expect(slider).to_have_value("5.1")


def test_a_rate_that_is_none_is_told_and_plays_nothing(site: Site, seen: Seen) -> None:
    seen.page.goto(site.url + "method.html")
    finished(seen.page)
    seen.page.get_by_label("Rate, requests/s").fill("0")
    expect(result(seen.page)).to_have_text("Give a rate from 0.1 to 100 requests/s.")
    seen.page.get_by_label("Rate, requests/s").fill("60")
    seen.page.get_by_label("Window", exact=True).select_option("30")
    expect(result(seen.page)).to_contain_text("no window is whole")
    assert seen.complaints == []


def test_it_works_from_disk(site: Site, seen: Seen) -> None:
    seen.page.goto((site.folder / "method.html").as_uri())
    rate = simulator.shown_urps(simulator.ENGINES[0]) / 1e6
    told = finished(seen.page)
    assert f"Simulated at {rate:.2f} requests/s" in told
    assert "the SLO is kept." in told
    assert seen.complaints == []


def test_without_scripts_its_sentence_and_picture_stand(site: Site, chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site.folder / "method.html").as_uri())
    expect(result(page)).to_contain_text("all these requests together keep the SLO, and only")
    expect(page.locator("#simulator form")).to_be_hidden()
    expect(page.locator("#simulator .tw-notice")).to_contain_text("Simulated.")
    expect(page.locator("#simulator li").first).to_contain_text("miss")
    context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 375), ("dark", 1280)])
def test_axe_finds_nothing_wrong_once_it_has_played(
    site: Site, chromium: Browser, scheme: str, width: int
) -> None:
    context = chromium.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 900},
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.add_init_script(path=AXE)
    page.goto(site.url + "method.html")
    finished(page)
    assert "\n".join(page.evaluate(VIOLATIONS)) == ""
    assert overflow(page) <= 0
    context.close()
