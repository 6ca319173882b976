from __future__ import annotations

from xml.etree import ElementTree as ET

from tests.pages.conftest import Make
from tokenwatt_site.configuration import Configuration, led_by
from tokenwatt_site.pages import badge

GREY, BLUE = "#5f6670", "#0b5fa5"


def words(svg: str) -> str:
    return ET.fromstring(svg).attrib["aria-label"]


def test_a_badge_has_workload_value_n_mode_and_day(measured: Configuration) -> None:
    svg = badge.render(measured)
    assert BLUE in svg
    for part in ("demo-mix-v1: ", "output tok/s", "n = 1", "demo mode", "2026-01-01"):
        assert part in words(svg)


def test_a_badge_loads_and_runs_nothing(measured: Configuration) -> None:
    root = ET.fromstring(badge.render(measured))
    for element in root.iter():
        assert element.tag.rpartition("}")[2] in {"svg", "title", "path", "g", "text"}
        assert not [name for name in element.attrib if name.startswith("on") or "href" in name]


def test_what_was_taken_back_is_grey_and_says_so(published: tuple[Configuration, ...]) -> None:
    (pair,) = [each for each in published if len(each.runs) == 2]
    taken = led_by(pair, pair.runs[1], {})
    assert words(badge.render(taken)).startswith("demo-mix-v1: withdrawn · ")
    assert GREY in badge.render(taken)
    assert BLUE in badge.render(pair)


def test_a_simulated_result_and_one_without_a_number_say_so(
    demo: Configuration, make: Make
) -> None:
    assert "simulated · " in words(badge.render(demo))
    assert GREY in badge.render(demo)
    never = badge.render(make(rates_urps=(500_000,), simulated=False))
    assert "no goodput" in words(never)
    assert GREY in never
