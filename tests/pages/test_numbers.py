from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tests.pages.conftest import Make, board_spec, number, told, with_metrics
from tests.support.runs import HELD, conversation_spec
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import numbers
from tokenwatt_site.pages.factors import Factors
from tokenwatt_site.run import Outcome


def row_of(configuration: Configuration, label: str) -> numbers.NumberRow:
    return next(r for r in numbers.number_rows(configuration) if r.label == label)


def test_all_numbers_has_every_row_of_the_example(boards: Configuration) -> None:
    labels = {row.label for row in numbers.number_rows(boards)}
    assert {
        "Engine build",
        "Decode bandwidth utilization (MBU)",
        "GPU board power",
        "SLO goodput",
        "Tokens per joule",
        "TTFT p90",
        "TPOT p90",
        "SLO met",
        "Accuracy",
        "Accuracy Δ vs. reference",
        "Cards for equal goodput",
    } <= labels


def test_groups_are_not_torn_apart(boards: Configuration) -> None:
    groups = [row.group for row in numbers.number_rows(boards)]
    assert len([g for g, before in zip(groups, ["", *groups], strict=False) if g != before]) == len(
        set(groups)
    )


def test_a_cpu_has_no_cards(demo: Configuration) -> None:
    row = row_of(demo, "Cards for equal goodput")
    assert (row.kind, row.value) == ("missing", "not measured: there is no accelerator card")
    assert numbers.cards_note(demo) == ""


def test_boards_have_cards_and_their_formula(boards: Configuration) -> None:
    assert row_of(boards, "Cards for equal goodput").value == "64"
    assert "64 × reference goodput" in numbers.cards_note(boards)


def test_without_goodput_there_are_no_cards(make: Make) -> None:
    row = row_of(make(spec=board_spec(), rates_urps=(500_000,)), "Cards for equal goodput")
    assert (row.kind, row.value) == ("missing", "not measured: no goodput")


def test_a5_words_stand_in_no_column_of_numbers(demo: Configuration) -> None:
    assert {r.label for r in numbers.number_rows(demo) if r.kind == "words"} == {
        "Engine build",
        "SLO met",
    }
    for row in numbers.number_rows(demo):
        if row.kind == "number":
            assert float(row.value.replace(",", "")) >= 0


def test_the_key_figure_of_latency_is_the_one_nearest_to_its_limit(demo: Configuration) -> None:
    figures = {f.label: f.share for f in numbers.key_figures(demo)}
    shares = {
        claim.label: claim.value / objective.limit_ms
        for objective in demo.setup.slo
        for claim in demo.claims.metrics
        if claim.label == objective.label and claim.value is not None
    }
    nearest = max(shares, key=lambda label: shares[label])
    assert figures[nearest] == shares[nearest]
    assert len(figures) == 6


@given(st.floats(min_value=0.01, max_value=100))
def test_cards_are_the_least_whole_number_that_is_enough(ratio: float) -> None:
    count = numbers.cards(ratio)
    assert count >= 64 * ratio > count - 1
    assert numbers.cards(1.0) == 64
    assert isinstance(count, int)
    assert count == math.ceil(64 * ratio)


def of_the_client(configuration: Configuration) -> list[tuple[str, str, str, str]]:
    return [
        (row.label, row.value, row.unit, row.sureness)
        for row in numbers.number_rows(configuration)
        if row.group == "Client, before the load"
    ]


def test_what_the_client_could_hold_stands_with_its_errors(demo: Configuration) -> None:
    least = "at least; twice what the spec may ask was held"
    assert of_the_client(demo) == [
        ("What the client could hold", "80,000", "events/s", least),
        ("The same in requests", "4,000.0", "requests/s", least),
        ("Error of its first token p99", "0.040", "ms", "kernel stamps"),
        ("Its dispatch lag p99", "0.200", "ms", ""),
    ]


def test_a_client_that_held_nothing_that_could_be_compared_says_so(make: Make) -> None:
    held = HELD.model_copy(
        update={"first_token_error_p99_ns": None, "limited_by": "client", "stamps": "user space"}
    )
    rows = of_the_client(make(self_test=held))
    assert rows[0][3] == "the next step was not held"
    assert rows[2][1] == "not measured: no request was answered in time"


def test_what_came_from_the_cache_is_a_number_where_it_was_declared(
    make: Make, demo: Configuration
) -> None:
    row = row_of(make(spec=conversation_spec(3, 4, 24)), "Prompt tokens from the cache")
    assert (row.group, row.value, row.unit) == ("Prompt cache", "0.0", "%")
    assert "Prompt tokens from the cache" not in {r.label for r in numbers.number_rows(demo)}


def test_every_metric_of_the_registry_has_its_group() -> None:
    assert set(METRICS) == set(numbers._GROUPS)


def test_the_numbers_of_energy_stand_under_their_boundary_and_gain_error(
    energetic: Configuration,
) -> None:
    words = "Energy and power: GPU boards only, ±5% systematic"
    rows = [r for r in numbers.number_rows(energetic) if r.group == words]
    assert {row.against for row in rows} == {""}
    assert [row.label for row in rows] == [
        "Tokens per joule",
        "Energy per output token",
        "Energy per million output tokens",
        "Energy per output token above idle",
        "Energy per token, prompt or output",
        "Energy per output token within the SLO",
        "GPU board power",
        "Loaded-idle board power",
    ]
    assert row_of(energetic, "Energy per million output tokens").value == "0.323"


def test_money_and_co2_stand_with_the_names_of_what_they_come_from(
    energetic: Configuration,
) -> None:
    grid = {"grid": {"name": "Grid of 2025", "g_per_kwh": 400}}
    rows = list(numbers.number_rows(energetic, Factors.model_validate(grid)))
    carbon = next(row for row in rows if row.label == "CO2 of that energy")
    assert (carbon.value, carbon.unit) == ("129", "gCO2/M output tok")
    assert carbon.sureness == "kWh × no PUE × 400 g/kWh (Grid of 2025)"
    assert not [row for row in rows if row.label == "Price of that energy"]


def test_b9_the_rows_of_modules_are_called_so(energetic: Configuration) -> None:
    power = number("board_power", 2380.0, label="Module power")
    rows = row_of(told(energetic, metrics=with_metrics(energetic.claims, power)), "Module power")
    assert rows.value == "2,380"


def test_a_share_of_the_bandwidth_says_how_it_was_come_by(energetic: Configuration) -> None:
    against = {
        row.label: row.against
        for row in numbers.number_rows(energetic)
        if row.group == "Memory bandwidth"
    }
    assert against == {
        "Decode bandwidth utilization (MBU)": "modelled",
        "MBU of bus × clock": "modelled",
        "Measured memory traffic": "measured by the boards",
        "Measured memory traffic of bus × clock": "measured by the boards",
        "MBU by the engine's own estimate": "",
        "Memory bandwidth by bus × clock": "",
    }


def key_lines(configuration: Configuration) -> dict[str, tuple[str, ...]]:
    return {figure.label: figure.lines for figure in numbers.key_figures(configuration)}


def test_the_key_figures_say_boundary_and_source(energetic: Configuration) -> None:
    lines = key_lines(energetic)
    assert lines["Tokens per joule"] == ("n = 1, no interval", "GPU boards only")
    assert lines["GPU board power"] == ("n = 1, no interval", "GPU boards only")
    assert lines["Decode bandwidth utilization (MBU)"] == (
        "n = 1, no interval",
        "modelled; measured by the boards: 66%",
    )


def test_what_the_boards_measured_takes_the_place_of_a_model_that_is_not_there(
    energetic: Configuration,
) -> None:
    none = number("mbu", None, reason="no model files")
    lines = key_lines(told(energetic, metrics=with_metrics(energetic.claims, none)))
    assert lines["Measured memory traffic"] == ("n = 1, no interval", "measured by the boards")
    assert "Decode bandwidth utilization (MBU)" not in lines


def test_a_reason_that_several_numbers_are_missing_for_is_written_once(
    energetic: Configuration,
) -> None:
    why = "only one engine for prefill and decode is modelled"
    none = [number(key, None, reason=why) for key in ("mbu", "mbu_bus", "step_read")]
    changed = told(energetic, metrics=with_metrics(energetic.claims, *none))
    assert row_of(changed, "Decode bandwidth utilization (MBU)").value == f"not measured: {why}"
    for label in ("MBU of bus × clock", "Read per step"):
        row = row_of(changed, label)
        assert row.value == "not measured: as for Decode bandwidth utilization (MBU)"


def test_a_check_of_physics_marks_its_number_wherever_it_stands(energetic: Configuration) -> None:
    said = (
        Outcome(key="board_power", level="warn", text="1.07 x the limit"),
        Outcome(key="mbu_bus", level="withheld", text="112%"),
    )
    none = number("mbu_bus", None, reason="withheld: 112%")
    metrics = with_metrics(energetic.claims, none)
    marked = told(energetic, outcomes=said, metrics=metrics)
    assert row_of(marked, "GPU board power").marks == ("Warning",)
    assert "Warning: see below" in key_lines(marked)["GPU board power"]
    row = row_of(marked, "MBU of bus × clock")
    assert (row.kind, row.value, row.marks) == ("missing", "withheld: 112%", ("Withheld",))


def test_every_number_has_a_place_of_its_own_and_the_first_of_a_metric_its_key(
    full: Configuration,
) -> None:
    rows = [row for row in numbers.number_rows(full) if row.anchor]
    places = [row.place for row in rows]
    assert len(places) == len(set(places))
    assert {f"metric-{claim.key}" for claim in full.claims.metrics} <= set(places)
    assert "metric-ttft-ttft-p50" in places
