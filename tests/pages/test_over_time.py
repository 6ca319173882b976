from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pages.conftest import SECOND, a_long_log, number, once, told, whole, with_metrics
from tests.pages.test_chart import rows_of
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.evidence.power import Board, PowerLog, PowerSample
from tokenwatt_site.pages import over_time
from tokenwatt_site.pages.figure import Figure
from tokenwatt_site.pages.windows import spans
from tokenwatt_site.run import Outcome


@once
def figures(configuration: Configuration) -> dict[str, Figure]:
    return {figure.id: figure for figure in over_time.figures(configuration)}


def a_log(readings: list[tuple[int, int, int | None]], boards: int = 2) -> PowerLog:
    """(second, board, W)"""
    named = tuple(Board(uuid=f"GPU-{i}", name="x") for i in range(boards))
    samples = tuple(
        PowerSample(s * SECOND, board, None if w is None else 1000 * w, None)
        for s, board, w in readings
    )
    return PowerLog("nvml", "gpu", SECOND, None, named, samples)


def test_each_instrument_has_its_own_chart_and_its_own_words(energetic: Configuration) -> None:
    found = figures(energetic)
    assert {figure_id: figure.heading for figure_id, figure in found.items()} == {
        "chart-power": "The boards drew 2,380 W in the window",
        "chart-dram": "Reads and writes take 65% of bus × clock in the window",
        "chart-power-beside-1": "The host drew 3,420 W in the window",
        "chart-power-beside-2": "The processor packages drew 310 W in the window",
    }
    assert found["chart-power"].note.startswith(
        "GPU board power only — excludes CPUs, memory, NICs, fans and PSU losses. Read through"
        " NVIDIA's driver (NVML) every 1 s, each reading the instrument's own mean over 1 s;"
        " longest gap between two readings of a board in the windows: 1.00 s."
    )
    assert "is what the energy counters gained in it" in found["chart-power"].note
    assert found["chart-power-beside-1"].note.startswith("Host power: GPUs, CPUs, memory")
    assert "never added" in found["chart-power-beside-1"].note
    assert found["chart-power-beside-2"].note.startswith("Processor packages, and their memory")


def test_windows_are_shaded_and_idle_spans_marked(energetic: Configuration) -> None:
    figure = figures(energetic)["chart-power"]
    assert figure.chart is not None
    assert "Shaded: 1 scored window. Bars along the bottom: 2 idle spans." in (
        figure.chart.description
    )
    assert "idle spans: engine loaded, no request; the dashed line is the enforced limit" in (
        figure.lead
    )
    rows = [row for row in rows_of_panels(figure) if "x2" in row]
    assert {(row["x"], row["x2"]) for row in rows if "y" in row} == {(5.0, 40.0), (265.0, 295.0)}
    assert {row["x"] for row in rows if "y" not in row} == {60.0}


def rows_of_panels(figure: Figure) -> list[dict[str, float]]:
    assert figure.chart is not None
    return [row for panel in figure.chart.specs for row in rows_of(panel)]


def test_up_to_eight_boards_have_a_panel_each_and_more_are_a_band(boards: Configuration) -> None:
    eight = figures(whole(boards, 8))["chart-power"].chart
    sixteen = figures(whole(boards, 16))["chart-power"]
    assert eight is not None
    assert len(eight.specs) == 8
    assert [name for name, _ in eight.panels][7] == "7 · GPU-00000007…"
    assert all(shows.startswith("From 1") for _, shows in eight.panels)
    assert sixteen.chart is not None
    assert "The band spans 16 lines, with their mean" in sixteen.chart.description
    row = next(r for r in rows_of(sixteen.chart.specs[0]) if "low" in r and r["x"] == 100.5)
    read = [s for s in a_long_log(16).samples if s.at_ns // SECOND in {100, 101}]
    watts = [sum(s.power_mw or 0 for s in read if s.board == i) / 2e3 for i in range(16)]
    assert (row["low"], row["high"]) == (min(watts), max(watts))
    assert row["y"] == pytest.approx(sum(watts) / 16)


def test_b11_the_table_has_every_board_and_their_sum(energetic: Configuration) -> None:
    table = figures(energetic)["chart-power"].table
    assert table is not None
    head, rows = table
    assert head == (
        "Second",
        *(f"{i} · GPU-0000000{i}…, W" for i in range(4)),
        "All together, W",
    )
    assert len(rows) <= over_time.MOST_ROWS + 1
    for row in rows:
        *own, total = (float(cell.replace(",", "")) for cell in row[1:])
        assert total == pytest.approx(sum(own), abs=0.21)


def test_a_table_of_many_boards_has_least_mean_most_and_sum(boards: Configuration) -> None:
    table = figures(whole(boards, 16))["chart-power"].table
    assert table is not None
    assert table[0] == (
        "Second",
        "Least of 16, W",
        "Mean of 16, W",
        "Most of 16, W",
        "All together, W",
    )


def test_a_round_in_which_a_board_is_missing_has_no_total() -> None:
    log = a_log([(0, 0, 400), (0, 1, None), (1, 0, 400), (1, 1, 300), (2, 0, 400)])
    found = over_time.rounds(log, over_time._watts, 100)
    assert [(r.seconds, r.values, r.total) for r in found] == [
        (0.0, (400.0, None), None),
        (1.0, (400.0, 300.0), 700.0),
        (2.0, (400.0, None), None),
    ]


@given(
    st.lists(st.integers(min_value=0, max_value=499_999_999), min_size=2, max_size=60),
    st.integers(min_value=1, max_value=5),
)
def test_readings_that_are_late_by_less_than_half_a_period_stay_in_their_round(
    late_ns: list[int], boards: int
) -> None:
    first = late_ns[0]
    late = [min(first + 499_999_999, max(first - 499_999_999, n)) for n in late_ns]
    samples = tuple(
        PowerSample(k * SECOND + n, board, 1000 * (board + 1), None)
        for k, n in enumerate(late)
        for board in range(boards)
    )
    named = tuple(Board(uuid=f"GPU-{i}", name="x") for i in range(boards))
    found = over_time.rounds(
        PowerLog("nvml", "gpu", SECOND, None, named, samples), over_time._watts, 10**6
    )
    assert [r.total for r in found] == [boards * (boards + 1) / 2] * len(late)


def test_a_line_is_broken_where_readings_are_missing() -> None:
    log = a_log([(s, 0, 400) for s in (0, 1, 2, 9, 10)], boards=1)
    (line,) = over_time._lines(log, over_time._watts, [None])
    assert [part for _, _, part in line.points] == [0, 0, 0, 1, 1]


def test_a_long_run_is_thinned_and_counted_in_minutes(boards: Configuration) -> None:
    log = a_long_log(1, 7200, dram=False)
    drawn = figures(told(boards, evidence={"power": log}))["chart-power"]
    assert drawn.chart is not None
    points = [r for r in rows_of(drawn.chart.specs[0]) if "part" in r]
    assert len(points) <= over_time.MOST_POINTS + 1
    assert max(r["x"] for r in points) == pytest.approx(120, abs=1)
    assert "A point is the mean of 30 s." in drawn.note
    assert "Minutes" in str(drawn.chart.specs[0])


@pytest.mark.parametrize(
    ("windows", "longest"),
    [((), 60), (((1 * SECOND, 2 * SECOND),), 2), (((5 * SECOND, 6 * SECOND),), 60)],
)
def test_b5_the_longest_gap_is_that_of_any_board_in_a_window(
    windows: tuple[tuple[int, int], ...], longest: int
) -> None:
    log = a_log([(0, 0, 4), (0, 1, 4), (1, 0, 4), (2, 0, 4), (2, 1, 4), (62, 0, 4), (62, 1, None)])
    assert over_time.longest_gap_ns(log, over_time._watts, windows) == longest * SECOND
    assert over_time.longest_gap_ns(a_log([(0, 0, 1)]), over_time._watts, ()) is None


def test_an_instrument_that_was_asked_for_and_read_nothing_says_why(demo: Configuration) -> None:
    asked = number("host_power", None, reason="the controller did not answer")
    found = figures(told(demo, metrics=with_metrics(demo.claims, asked)))
    assert found["chart-host-power"].missing == "not measured: the controller did not answer"
    assert "chart-cpu-power" not in found


def test_a_second_instrument_of_the_boards_does_not_take_the_placeof_the_first(
    energetic: Configuration,
) -> None:
    beside = replace(a_long_log(4, dram=False), sensor="dcgm")
    found = figures(told(energetic, evidence={"beside": (beside,)}))
    assert found["chart-power-beside-1"].heading == "GPU board power (NVIDIA DCGM) over time"


def test_the_watts_of_two_hosts_together_are_not_said_of_each(energetic: Configuration) -> None:
    host = a_long_log(1, sensor="redfish", scope="host", dram=False)
    found = figures(told(energetic, evidence={"beside": (host, host)}))
    for place in (1, 2):
        assert found[f"chart-power-beside-{place}"].heading == "Host power (Redfish) over time"


def test_b9_the_watts_of_modules_are_drawn_as_those_of_modules(energetic: Configuration) -> None:
    log = replace(a_long_log(2, dram=False), scope="module")
    drawn = figures(told(energetic, evidence={"power": log}))["chart-power"]
    assert drawn.heading.startswith("The modules drew")
    assert drawn.note.startswith("Module power: GPU, its CPU and memory")


def test_b1_instruments_that_disagree_are_marked_under_the_chart(energetic: Configuration) -> None:
    said = Outcome(key="joules_per_token", level="not reconciled", text="they differ by +74%")
    note = figures(told(energetic, outcomes=(said,)))["chart-power"].note
    assert note.endswith("Not reconciled: see Key figures.")


def test_a_log_without_watts_is_no_chart(boards: Configuration) -> None:
    log = a_log([(0, 0, None), (1, 0, None)], boards=1)
    drawn = figures(told(boards, evidence={"power": log}))["chart-power"]
    assert (drawn.chart, drawn.missing) == (None, "not measured: no reading has watts")


def test_the_spans_are_those_of_the_trials_that_count(boards: Configuration) -> None:
    found = spans(boards)
    assert len(found.windows) == 1
    assert found.idle == ()
    start, end = found.windows[0]
    assert (end - start) / 1e9 == boards.claims.repeats[0].window_s


def test_memory_traffic_is_drawn_from_whatever_instrument_of_the_boards_tells_it(
    energetic: Configuration,
) -> None:
    silent, telling = a_long_log(4, dram=False), replace(a_long_log(4), sensor="dcgm")
    evidence = {"power": silent, "beside": (telling,)}
    assert "chart-dram" in figures(told(energetic, evidence=evidence))
    assert "chart-dram" not in figures(told(energetic, evidence=evidence | {"beside": ()}))


def test_an_instrument_without_watts_is_drawn_by_what_its_counter_gained() -> None:
    named = (Board(uuid="package-0", name="x"), Board(uuid="package-1", name="x"))
    counted = ((0, 0, 5_000), (0, 1, 0), (1, 0, 105_000), (1, 1, 40_000), (3, 0, 305_000))
    samples = tuple(PowerSample(s * SECOND, board, None, mj) for s, board, mj in counted)
    log = over_time.with_watts(PowerLog("rapl", "cpu", SECOND, None, named, samples))
    assert [(s.at_ns // SECOND, s.board, s.power_mw) for s in log.samples] == [
        (0, 0, None),
        (0, 1, None),
        (1, 0, 100_000),
        (1, 1, 40_000),
        (3, 0, 100_000),
    ]


def test_a_counter_that_ran_backwards_gives_no_watts() -> None:
    samples = tuple(PowerSample(s * SECOND, 0, None, mj) for s, mj in ((0, 5_000), (1, 10)))
    log = PowerLog("rapl", "cpu", SECOND, None, (Board(uuid="p", name="x"),), samples)
    assert [s.power_mw for s in over_time.with_watts(log).samples] == [None, None]


def test_a_chart_from_a_counter_says_so(energetic: Configuration) -> None:
    log = replace(a_long_log(1, sensor="rapl", scope="cpu", dram=False), averaging_ns=None)
    counted = replace(log, samples=tuple(replace(s, power_mw=None) for s in log.samples))
    drawn = figures(told(energetic, evidence={"beside": (counted,)}))["chart-power-beside-1"]
    assert drawn.chart is not None
    assert "every 1 s, each point what the energy counter gained since the one before" in (
        drawn.note
    )
