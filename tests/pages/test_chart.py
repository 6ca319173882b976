from __future__ import annotations

import math
from typing import Any

import altair as alt
from altair.utils.schemapi import validate_jsonschema
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.pages import chart, report
from tokenwatt_site.pages.page import NO_LINKS


def rows_of(spec: Any) -> list[dict[str, Any]]:
    """Every row of data in a Vega-Lite document, however it is kept."""
    found: list[dict[str, Any]] = [
        row for rows in spec.get("datasets", {}).values() for row in rows
    ]
    for layer in spec.get("layer", []):
        found += (layer.get("data") or {}).get("values", [])
    found += (spec.get("data") or {}).get("values", [])
    return found


def test_a_bar_axis_starts_at_zero_and_ends_where_it_is_told() -> None:
    drawn = chart.bars("mbu", "MBU", [("one", 61.0, "61%")], "% of rated", 100.0)
    assert drawn.specs[0]["params"] == [{"name": "across", "value": [0, 100.0]}]


def test_every_trial_is_a_mark_and_an_unknown_value_is_none() -> None:
    trials = [
        chart.Trial(1.0, "PASS", 400.0, 1.0),
        chart.Trial(2.0, "FAIL", None, 0.4),
        chart.Trial(3.0, "INVALID", 500.0, None),
    ]
    delivered = [r for r in rows_of(chart.goodput(trials, None).specs[0]) if "rate" in r]
    assert sorted(r["rate"] for r in delivered) == [1.0, 3.0]
    within = [r for r in rows_of(chart.attainment(trials, None, 0.9).specs[0]) if "rate" in r]
    assert sorted(r["rate"] for r in within) == [1.0, 2.0]


@given(st.floats(min_value=0.0, max_value=1.0))
def test_the_scale_of_nines_rises_with_the_share_and_stays_in_the_frame(share: float) -> None:
    place = chart._nines(share)
    assert 0 <= place <= 3.1 + 1e-9
    assert place >= chart._nines(share / 2)
    if share < 0.999:
        assert math.isclose(1 - 10**-place, share, abs_tol=1e-9)


def test_both_charts_over_the_rate_span_the_same_rates_and_hold_the_bracket() -> None:
    trials = [chart.Trial(1.0, "PASS", 400.0, 1.0), chart.Trial(2.0, "FAIL", None, 0.4)]
    for drawn in (
        chart.goodput(trials, (1.0, 2.0)),
        chart.attainment(trials, (1.0, 2.0), 0.9),
    ):
        assert "[0.95, 2.1]" in str(drawn.specs[0])


def test_the_label_of_what_no_trial_delivered_stands_below_its_mark() -> None:
    trials = [chart.Trial(1.0, "PASS", 300.0, 1.0), chart.Trial(10.0, "FAIL", 400.0, 0.4)]
    layers = chart.goodput(trials, None, (9.0, 380.0)).specs[0]["layer"]
    labels = [layer["mark"] for layer in layers if layer["mark"]["type"] == "text"]
    assert [(mark["align"], mark["dy"]) for mark in labels] == [("center", 38)]


def test_the_words_of_a_limit_stand_where_there_is_more_room() -> None:
    points = [(0.0, 0.0), (1000.0, 100.0)]
    limits = [("near", 300.0, 90.0), ("far", 900.0, 99.0)]
    layers = chart.distribution("x", "TTFT", points, limits).specs[0]["layer"]
    sides = [layer["mark"]["align"] for layer in layers if layer["mark"]["type"] == "text"]
    assert sides == ["left", "left", "right", "right"]


def test_shares_are_drawn_to_100_and_what_is_more_is_drawn_as_more() -> None:
    low = chart.shares("x", "X", [("one", 61.0, "61%"), ("two", 20.0, "20%")], "%")
    assert "[0, 100.0]" in str(low.specs[0])
    assert low.description == "Bars from 0, a dashed line at 100%. one: 61%; two: 20%."
    over = chart.shares("x", "X", [("one", 110.0, "110%")], "%")
    assert "[0, 114.4]" in str(over.specs[0])
    assert len(over.specs) == 1


def test_every_chart_of_a_report_is_valid_vega_lite(boards: Configuration) -> None:
    charts = report.render(boards, NO_LINKS).charts
    assert len(charts) > 5
    for drawn in charts:
        for spec in drawn.specs:
            assert validate_jsonschema(dict(spec), alt.load_schema(), raise_error=False) is None
