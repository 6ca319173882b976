from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tests.pages.conftest import Make, board_spec
from tests.support.runs import HELD, conversation_spec
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.pages import numbers


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
