from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tokenwatt_site.pages import chart, drawing

HOSTILE = '</svg><script>alert(1)</script>"'


def parse(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # we drew it in this test


def a_chart(title: str = "Goodput") -> drawing.Chart:
    return chart.bars("goodput", title, [("one", 61.0, "61%")], "% of rated", 100.0)


def test_colours_become_classes_so_that_the_style_sheet_decides() -> None:
    svg = drawing.draw(a_chart())
    assert "tw-f-blue" in svg
    assert "#0b5fa5" not in svg


def test_the_background_is_dropped_so_that_the_page_shows_through() -> None:
    root = parse(drawing.draw(a_chart()))
    fills = {element.get("fill") for element in root.iter()}
    assert "white" not in fills
    assert "#ffffff" not in fills


def test_a_chart_is_one_image_with_title_and_description() -> None:
    root = parse(drawing.draw(a_chart()))
    assert root.get("role") == "img"
    by_id = {e.get("id"): e for e in root.iter() if e.get("id")}
    assert by_id[root.get("aria-labelledby")].text == "Goodput"
    assert by_id[root.get("aria-describedby")].text == "Bars from 0. one: 61%."


def test_hostile_words_in_a_chart_stay_words() -> None:
    drawn = chart.bars("b", HOSTILE, [(HOSTILE, 1.0, HOSTILE)], HOSTILE, None)
    svg = drawing.draw(drawn)
    assert "<script" not in svg
    assert not [e for e in parse(svg).iter() if e.tag.endswith("script")]


def test_ids_of_two_charts_on_one_page_differ() -> None:
    first = drawing.draw(chart.distribution("a", "TTFT", [(1.0, 1.0), (2.0, 2.0)], []))
    second = drawing.draw(chart.distribution("b", "TTFT", [(1.0, 1.0), (2.0, 2.0)], []))

    def ids(svg: str) -> set[str]:
        root = parse(f"<r>{svg}</r>")
        return {e.get("id") or "" for e in root.iter() if e.get("id")}

    assert ids(first)
    assert not ids(first) & ids(second)


def test_a_cached_chart_is_read_back_and_another_title_is_another_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = drawing.draw(a_chart(), tmp_path)
    drawing.draw(a_chart("Other"), tmp_path)
    assert len(list(tmp_path.glob("*.svg"))) == 2

    def fail(*_: object, **__: object) -> str:
        raise AssertionError("drew again")

    monkeypatch.setattr("vl_convert.vega_to_svg", fail)
    assert drawing.draw(a_chart(), tmp_path) == first


def test_a_wide_chart_has_a_narrow_twin() -> None:
    trials = [chart.Trial(1.0, "PASS", 400.0, 1.0), chart.Trial(2.0, "FAIL", 410.0, 0.4)]
    svg = drawing.draw(chart.attainment(trials, (1.0, 2.0), 0.99))
    assert svg.count("<svg") == 2
    assert "tw-wide" in svg
    assert "tw-narrow" in svg


def test_charts_that_differ_in_their_numbers_alone_are_compiled_once() -> None:
    def drawn(rate: float) -> str:
        return drawing.draw(chart.goodput([chart.Trial(rate, "PASS", 400.0, 1.0)], None))

    first = drawn(1.0)
    before = drawing._compiled.cache_info().misses
    assert drawn(2.5) != first
    assert drawing._compiled.cache_info().misses == before
