from __future__ import annotations

import pytest

from tests.pages.conftest import FaultyEngine, Make, once, told
from tests.pages.test_chart import rows_of
from tests.pages.test_report import with_numbers
from tests.support.runs import spec_in_mode
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.pages import figures
from tokenwatt_site.run import RepeatClaim

details = once(figures.detail_figures)


def repeat(number: int, passed: int | None, failed: int | None) -> RepeatClaim:
    return RepeatClaim(
        repeat=number,
        band_urps=0,
        scored=20,
        highest_pass_urps=passed,
        lowest_fail_urps=failed,
        boundary_urps=None,
        window_s=None,
    )


@pytest.mark.parametrize(
    ("repeats", "heading"),
    [
        (
            [repeat(1, 5_090_000, 5_340_000)],
            "The SLO holds up to 5.09 requests/s and fails at 5.34",
        ),
        (
            [repeat(1, 5_000_000, 5_100_000), repeat(2, 4_900_000, 5_200_000)],
            "Every repeat holds the SLO up to 4.90 requests/s; none holds it at 5.20",
        ),
        (
            [repeat(1, 5_090_000, None)],
            "The SLO held at every rate offered, up to 5.09 requests/s",
        ),
        (
            [repeat(1, None, 500_000)],
            "The SLO did not hold at any rate offered, down to 0.500 requests/s",
        ),
        ([], "Requests within their limits against offered rate"),
        (
            [repeat(1, 5_000_000, 5_100_000), repeat(2, 4_900_000, None)],
            "Requests within their limits against offered rate",
        ),
    ],
)
def test_the_heading_says_only_what_the_trials_carry(
    demo: Configuration, repeats: list[RepeatClaim], heading: str
) -> None:
    claims = demo.claims.model_copy(update={"repeats": tuple(repeats)})
    assert figures.rate_heading(claims) == heading


def test_the_four_bars_carry_the_captions_of_the_example(boards: Configuration) -> None:
    example = with_numbers(boards, mbu=61.0)
    shown = {f.heading: f.note for f in figures.bar_figures(example)}
    assert list(shown) == [
        "SLO goodput",
        "Tokens per joule",
        "Decode bandwidth utilization (MBU)",
        "GPU board power",
    ]
    assert shown["Decode bandwidth utilization (MBU)"] == "Axis runs to 100% of rated bandwidth."
    assert shown["GPU board power"] == (
        "GPU board power only — excludes CPUs, memory, NICs, fans and PSU losses."
    )


def test_a_bar_that_is_not_drawn_has_no_caption(demo: Configuration) -> None:
    bars = figures.bar_figures(demo)
    assert {f.id for f in bars if f.chart is None} >= {"bar-mbu", "bar-board-power"}
    assert all(f.note == "" for f in bars if f.chart is None)


def test_a6_the_goodput_at_the_boundary_is_a_mark_of_its_own(
    demo: Configuration, make: Make
) -> None:
    drawn = details(demo)[1]
    assert drawn.chart is not None
    assert "computed at the boundary, where no trial ran" in drawn.lead
    mark = next(
        r for r in rows_of(drawn.chart.specs[0]) if r.get("text") == "computed at the boundary"
    )
    assert (mark["rate"], mark["y"]) == (
        demo.claims.metric("boundary_rate").value,
        demo.claims.metric("goodput").value,
    )
    open_bracket = details(make(rates_urps=(500_000,)))[1]
    assert open_bracket.chart is not None
    assert "boundary" not in open_bracket.lead + open_bracket.chart.description


def note_of(configuration: Configuration, chart_id: str) -> str:
    return next(f.note for f in details(configuration) if f.id == chart_id)


def test_a9_a_curve_of_several_repeats_says_what_its_heading_is(
    demo: Configuration, quick: Configuration, full: Configuration
) -> None:
    assert "together" not in note_of(demo, "chart-ttft")
    a, b = quick.claims.metric("ttft").repeats
    assert (
        "Both repeats together; the heading is the median of the repeats' p90"
        f" ({a:,.1f} and {b:,.1f} ms)." in note_of(quick, "chart-ttft")
    )
    assert (
        "All 3 repeats together; the heading is the geometric mean of the repeats' p90."
        in note_of(full, "chart-tpot")
    )


def test_a9_a_heading_that_is_no_pooled_number_is_not_explained(make: Make) -> None:
    limits = [{"metric": "ttft", "quantile": q, "limit_ms": 1500.0} for q in (0.5, 0.9)]
    note = note_of(make(spec=spec_in_mode("quick", setup__slo=limits)), "chart-ttft")
    assert note.endswith("Both repeats together.")


def test_how_good_the_client_was_stands_in_the_table_of_trials(demo: Configuration) -> None:
    table = details(demo)[0].table
    assert table is not None
    head, rows = table
    columns = ("Dispatch lag p99, ms", "Stamp uncertainty p99, ms", "Client, % of a processor")
    places = [head.index(column) for column in columns]
    assert [[row[place] for place in places] for row in rows] == [["0.020", "0.000", "12"]] * 3


def test_every_trial_is_in_the_table_with_its_verdict(demo: Configuration) -> None:
    table = details(demo)[0].table
    assert table is not None
    assert [row[3] for row in table[1]] == [t.verdict for t in demo.claims.trials]


def test_every_objective_has_its_distribution(demo: Configuration) -> None:
    ids = [f.id for f in details(demo)]
    trials = ["chart-attainment", "chart-goodput", "chart-ttft", "chart-tpot"]
    assert ids == [*trials, "chart-limits", "chart-power"]


def test_power_is_drawn_with_its_window_where_it_was_measured(
    boards: Configuration, demo: Configuration
) -> None:
    assert details(boards)[-1].chart is not None
    assert details(demo)[-1].missing is not None


def test_without_any_trial_the_charts_say_so(make: Make) -> None:
    demo = make()
    empty = told(demo, trials=(), repeats=(), distributions=())
    assert [f.missing is not None for f in details(empty)] == [True] * 6


def test_a_trial_that_was_stopped_early_is_counted_and_not_drawn_as_zero(make: Make) -> None:
    demo = make()
    *others, last = demo.claims.trials
    early = last.model_copy(update={"stopped_early": True, "output_tokens_per_s": None})
    attainment, delivered, *_ = details(told(demo, trials=(*others, early)))
    assert f"1 of {len(others) + 1} trials was stopped" in attainment.note
    assert "1 trial stopped early has no whole window and is not shown" in delivered.note
    assert delivered.chart is not None
    assert f"{len(others)} PASS" in delivered.chart.description or "0 FAIL" in (
        delivered.chart.description
    )
    assert attainment.table is not None
    head, rows = attainment.table
    assert rows[-1][head.index("Output tok/s")] == "not known: stopped early"


def cells(figure: figures.Figure, name: str) -> list[str]:
    assert figure.table is not None
    head, rows = figure.table
    return [row[head.index(name)] for row in rows]


def test_a8_failed_requests_stand_in_the_table_of_trials(
    faulty: Configuration, demo: Configuration
) -> None:
    found = cells(details(faulty)[0], "Failed requests")
    assert set(found) == {"1 HTTP error, 1 disconnected"}
    assert set(cells(details(demo)[0], "Failed requests")) == {"none"}


def test_a8_failed_requests_are_told_under_the_chart_where_a_trial_counts(
    faulty: Configuration, demo: Configuration
) -> None:
    n = len(faulty.claims.trials)
    note = details(faulty)[0].note
    assert f"Requests failed in {n} of {n} trials: {n} HTTP errors, {n} disconnected." in note
    assert "failed" not in details(demo)[0].note


def test_a8_failures_of_a_trial_that_does_not_count_are_in_the_table_alone(make: Make) -> None:
    demo = make()
    *others, last = demo.claims.trials
    invalid = last.model_copy(update={"verdict": "INVALID", "failures": {"not_sent": 3}})
    attainment = details(told(demo, trials=(*others, invalid)))[0]
    assert cells(attainment, "Failed requests")[-1] == "3 not sent"
    assert "failed" not in attainment.note


def test_a_curve_ends_where_requests_that_failed_begin(
    faulty: Configuration, demo: Configuration
) -> None:
    ttft = next(f for f in details(faulty) if f.id == "chart-ttft")
    assert "2 of 20 requests did not end well and stand above the top of this curve." in ttft.note
    assert ttft.chart is not None
    assert "It ends at 90% of requests." in ttft.chart.description
    curve = [
        r["y"] for r in rows_of(ttft.chart.specs[0]) if set(r) == {"x", "y"} and "text" not in r
    ]
    assert max(curve) == 90
    assert ttft.table is not None
    assert ttft.table[1][-1] == ("p100", "did not end well")
    whole = next(f for f in details(demo) if f.id == "chart-ttft")
    assert "did not end well" not in whole.note
    assert whole.chart is not None
    assert "It ends" not in whole.chart.description


def test_failed_requests_of_several_repeats_are_counted_together(make: Make) -> None:
    engine = FaultyEngine(http_error=100, disconnected=200)  # behind the lead-in of 80
    full = make(engine=engine, spec=spec_in_mode("full"))
    ttft = next(f for f in details(full) if f.id == "chart-ttft")
    assert "6 of 1,800 requests did not end well" in ttft.note
