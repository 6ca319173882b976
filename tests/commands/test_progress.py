"""The words of a measurement that runs."""

from dataclasses import replace

from tokenwatt_site.commands.progress import cells, line
from tokenwatt_site.measure.trial import Progress

S = 1_000_000_000
HALF = Progress(
    repeat=2,
    trial=7,
    trials_left=1,
    rate_urps=1_500_000,
    now_ns=60 * S,
    scored_end_ns=100 * S,
    sent=90,
    in_flight=12,
    scored=100,
    scored_done=40,
    objectives=(("TTFT p99", 1234.4, 2000.0), ("TPOT p99", None, 50.0)),
    outcome="UNDECIDED",
)


def test_what_runs_is_told_with_rate_counts_and_each_objective_against_its_limit():
    assert cells(HALF) == [
        ("trial", "7 (repeat 2)"),
        ("offered", "1.500 requests/s"),
        ("in flight", "12"),
        ("scored", "40/100"),
        ("TTFT p99", "1,234 of 2,000 ms"),
        ("TPOT p99", "- of 50.0 ms"),
        ("verdict so far", "undecided"),
        ("about", "40 s left in this repeat"),
    ]


def test_a_small_limit_and_what_is_near_it_keep_a_decimal():
    near = replace(HALF, objectives=(("TPOT p99", 3.26, 3.5),))
    assert dict(cells(near))["TPOT p99"] == "3.3 of 3.5 ms"


def test_each_trial_still_to_come_takes_three_quarters_of_this_one():
    assert dict(cells(replace(HALF, trials_left=3)))["about"] == "190 s left in this repeat"


def test_a_trial_that_takes_longer_than_planned_has_no_time_left():
    assert dict(cells(replace(HALF, now_ns=130 * S)))["about"] == "0 s left in this repeat"


def test_a_line_has_all_of_it():
    assert line(HALF) == "  " + ", ".join(f"{name} {value}" for name, value in cells(HALF))
