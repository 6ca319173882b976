"""Joules of a window, per board and then summed."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.energy.window import held_against_idle, window_energy
from tokenwatt_site.evidence.power import Board, PowerLog, PowerSample

S = 10**9


def energy_of(power, start_ns, end_ns, max_gap_ns=6 * S):
    return window_energy(power, start_ns, end_ns, max_gap_ns=max_gap_ns)


def log(*boards, limit_mw=700_000, averaging_ns=None):
    """Each board: a list of (second, milliwatts, millijoules)."""
    return PowerLog(
        sensor="nvml",
        scope="gpu",
        period_ns=S,
        averaging_ns=averaging_ns,
        boards=tuple(
            Board(uuid=f"GPU-{i}", name="Test board", limit_mw=limit_mw) for i in range(len(boards))
        ),
        samples=tuple(
            PowerSample(round(t * S), i, p, e) for i, rows in enumerate(boards) for t, p, e in rows
        ),
    )


def steady(watts, seconds=12, start=0.0):
    return [
        (t, int(watts * 1000), int(1000 * watts * (t - start)))
        for t in (start + i for i in range(seconds))
    ]


def told(energy):
    return [(found.level, found.text) for found in energy.findings]


def test_b11_four_equal_boards_give_four_times_one():
    one = energy_of(log(steady(400)), 2 * S, 9 * S)
    four = energy_of(log(*[steady(400)] * 4), 2 * S, 9 * S)
    assert one.energy_mj == pytest.approx(400 * 7 * 1000)
    assert four.energy_mj == pytest.approx(4 * one.energy_mj)
    assert [board.energy_mj for board in four.by_board] == [one.energy_mj] * 4


def test_b4_power_outside_the_window_does_not_count():
    rows = [(t, 100_000 if t < 5 else 700_000, None) for t in range(12)]
    inside = energy_of(log(rows), 6 * S, 10 * S)
    assert inside.energy_mj == pytest.approx(700 * 4 * 1000)


def test_b5_an_edge_that_is_not_enclosed_gives_no_number_but_the_reason():
    energy = energy_of(log(steady(400), steady(400, seconds=6)), 2 * S, 9 * S)
    assert energy.energy_mj is None
    words = "board 1 (Test board): samples do not enclose the window closely enough"
    assert energy.reason == f"withheld: {words}"
    assert told(energy) == [("withheld", words)]
    assert energy.by_board[0].energy_mj == pytest.approx(400 * 7 * 1000)
    assert energy.longest_gap_ns is None


def test_b5_rows_of_nothing_after_the_end_enclose_nothing():
    rows = [(t, p if t < 8 else None, e if t < 8 else None) for t, p, e in steady(400)]
    assert energy_of(log(rows), 2 * S, 9 * S).energy_mj is None


def test_b3_ragged_samples_are_integrated_board_by_board():
    dense = [(t / 4, 300_000, None) for t in range(48)]
    sparse = [(t, 500_000, None) for t in range(12)]
    energy = energy_of(log(dense, sparse), 2 * S, 9 * S)
    assert energy.energy_mj == pytest.approx((300 + 500) * 7 * 1000)


def test_b1_counter_and_power_that_disagree_are_not_reconciled_and_said():
    rows = [(t, 400_000, 200_000 * t) for t in range(12)]
    energy = energy_of(log(rows), 2 * S, 9 * S)
    assert energy.energy_mj == pytest.approx(200 * 7 * 1000)
    words = "board 0 (Test board): energy counter and watts differ by -50.0%"
    assert told(energy) == [("not reconciled", words)]


def test_b1_a_counter_is_checked_only_where_watts_are_there_too():
    both, alone = ([(t, p, 400_000 * t) for t in range(12)] for p in (400_000, None))
    energy = energy_of(log(both, alone), 2 * S, 9 * S)
    assert [board.checked for board in energy.by_board] == [True, False]
    assert [board.source for board in energy.by_board] == ["counter", "counter"]


@pytest.mark.parametrize(("share", "said"), [(1.04, False), (0.96, False), (1.06, True)])
def test_b1_counter_and_power_may_differ_by_a_twentieth(share, said):
    rows = [(t, 400_000, round(400_000 * share * t)) for t in range(12)]
    energy = energy_of(log(rows), 2 * S, 9 * S)
    assert energy.energy_mj == pytest.approx(400 * share * 7 * 1000)
    assert bool(energy.findings) == said


def test_b8_a_backward_counter_is_invalid_never_clamped():
    rows = [(t, 400_000, 400_000 * (t if t < 6 else 12 - t)) for t in range(12)]
    energy = energy_of(log(steady(300), rows), 2 * S, 9 * S)
    assert energy.energy_mj is None
    words = "board 1 (Test board): the energy counter ran backwards"
    assert told(energy) == [("INVALID", words)]


@pytest.mark.parametrize(
    ("watts", "outcome"),
    [(700, None), (734, None), (736, "warn"), (839, "warn"), (841, "INVALID")],
)
def test_b8_mean_power_is_held_against_the_enforced_limit(watts, outcome):
    energy = energy_of(log(steady(watts)), 2 * S, 9 * S)
    assert [found.level for found in energy.findings] == ([] if outcome is None else [outcome])
    assert (energy.energy_mj is None) == (outcome == "INVALID")
    if outcome:
        assert f"drew {watts / 700:.2f} x its power limit" in energy.findings[0].text


def test_b9_the_watts_of_a_module_are_not_held_against_the_limit_of_its_gpu():
    power = log(steady(950), limit_mw=700_000)
    assert energy_of(power, 2 * S, 9 * S).reason.startswith("INVALID: ")
    energy = energy_of(replace(power, scope="module"), 2 * S, 9 * S)
    assert energy.energy_mj == pytest.approx(950 * 7 * 1000)
    assert energy.findings == ()


def test_a_board_without_a_limit_is_held_against_none():
    assert energy_of(log(steady(5000), limit_mw=None), 2 * S, 9 * S).findings == ()


@pytest.mark.parametrize(("idle", "invalid"), [(300, False), (421, False), (422, True)])
def test_a_board_that_draws_less_under_load_than_without_is_invalid(idle, invalid):
    power = log(steady(400), steady(400))
    energy = energy_of(power, 2 * S, 9 * S)
    held = held_against_idle(power, energy, 7 * S, [None, idle * 1000])
    if not invalid:
        assert held == energy
        return
    assert held.energy_mj is None
    assert (
        held.reason == "INVALID: board 1 (Test board): drew 0.95 x what it draws without a request"
    )
    assert [found.level for found in held.findings] == ["INVALID"]


def test_no_board_is_held_against_no_idle():
    assert held_against_idle(log(), energy_of(log(), 2 * S, 9 * S), 7 * S, ()).energy_mj is None


def test_the_gravest_reason_is_the_one_that_is_given():
    backwards = [(t, 400_000, 400_000 * (12 - t)) for t in range(12)]
    energy = energy_of(log(steady(400, seconds=6), backwards), 2 * S, 9 * S)
    assert "ran backwards" in energy.reason
    assert [found.level for found in energy.findings] == ["withheld", "INVALID"]


def test_b14_missing_is_none_with_a_reason_never_zero():
    assert energy_of(log([(t, None, None) for t in range(12)]), 2 * S, 9 * S).energy_mj is None
    assert energy_of(log(), 2 * S, 9 * S).reason == "withheld: no board was read"


@pytest.mark.parametrize("zero", [(0, None), (None, 5), (0, 5), (0, 0)])
def test_b14_an_instrument_that_says_zero_says_nothing(zero):
    energy = energy_of(log([(t, *zero) for t in range(12)]), 2 * S, 9 * S)
    assert energy.energy_mj is None
    assert energy.reason == "withheld: board 0 (Test board): reported no energy"


def test_b14_a_counter_that_stands_still_leaves_it_to_the_watts_and_is_said():
    energy = energy_of(log([(t, 400_000, 77) for t in range(12)]), 2 * S, 9 * S)
    assert energy.energy_mj == pytest.approx(400 * 7 * 1000)
    assert energy.by_board[0].source == "power"
    words = "board 0 (Test board): its energy counter cannot be used; its watts stand for it"
    assert told(energy) == [("warn", words)]


def test_a_counter_that_steps_ten_times_a_second_is_as_good_as_its_step():
    at = [t + (0.03 if t % 2 else 0.0) for t in range(130)]
    rows = [(t, 400_000, int(t * 10) * 40_000) for t in at]
    energy = energy_of(log(rows), round(3.02 * S), round(123.02 * S), max_gap_ns=3 * S)
    assert energy.findings == ()
    assert energy.energy_mj == pytest.approx(400 * 120 * 1000, rel=0.2 / 120)


def test_readings_a_moment_apart_may_hold_the_same_value():
    rows = sorted(
        [*steady(400, 20), (3.02, 400_000, 1_200_000), (16.05, 400_000, 6_400_000)],
        key=lambda row: row[0],
    )
    energy = energy_of(log(rows), round(3.02 * S), round(16.05 * S), max_gap_ns=3 * S)
    assert energy.energy_mj == pytest.approx(400 * 13.03 * 1000)


def test_a_counter_that_is_renewed_every_half_minute_cannot_tell_the_edges():
    # An exporter whose own period is 30 s, scraped once a second.
    rows = [(t, 400_000, 400_000 * (t // 30 * 30)) for t in range(200)]
    energy = energy_of(log(rows), 20 * S, 150 * S, max_gap_ns=3 * S)
    assert energy.energy_mj is None
    assert "renewed only every 30 s" in energy.reason
    assert energy.findings[0].level == "withheld"


def test_b12_a_mean_over_a_minute_is_too_slow_for_two():
    rows = [(t, 400_000, None) for t in range(0, 200, 10)]
    slow = energy_of(log(rows, averaging_ns=60 * S), 70 * S, 190 * S, max_gap_ns=30 * S)
    words = "its watts are means over 60 s, too slow for a window of 120 s"
    assert told(slow) == [("withheld", f"board 0 (Test board): {words}")]
    long = [(t, 400_000, None) for t in range(0, 800, 10)]
    fine = energy_of(log(long, averaging_ns=60 * S), 100 * S, 700 * S, max_gap_ns=30 * S)
    assert fine.energy_mj == pytest.approx(400 * 600 * 1000)


def test_b12_a_mean_counts_for_the_time_it_is_of():
    # 100 W until second 50, then 500 W; each reading is the mean of the second before it.
    rows = [(t, 100_000 if t <= 50 else 500_000, None) for t in range(100)]
    power = log(rows, averaging_ns=S)
    whole = energy_of(power, 40 * S, 60 * S, max_gap_ns=3 * S)
    assert whole.energy_mj == pytest.approx((10 * 100 + 10 * 500) * 1000, rel=1e-9)
    late = energy_of(replace(power, averaging_ns=None), 40 * S, 60 * S, max_gap_ns=3 * S)
    assert late.energy_mj == pytest.approx((10.5 * 100 + 9.5 * 500) * 1000, rel=1e-9)


def test_b12_one_sample_before_the_window_is_no_energy():
    assert energy_of(log([(1, 800_000, 5_000)]), 2 * S, 9 * S).energy_mj is None


def test_the_longest_gap_between_readings_is_told():
    rows = [row for row in steady(400, 20) if row[0] not in (5, 6, 15)]
    energy = energy_of(log(steady(400, 20), rows), 2 * S, 9 * S, max_gap_ns=3 * S)
    assert energy.longest_gap_ns == 3 * S


def test_energies_of_adjoining_windows_add_up():
    rows = [(t, 300_000 + 9_000 * (t % 7), 300_000 * t + 500 * (t % 3)) for t in range(40)]
    whole, first, second = (
        energy_of(log(rows), a * S, b * S).energy_mj for a, b in ((3, 31), (3, 17), (17, 31))
    )
    assert whole == pytest.approx(first + second, rel=1e-12)


power_points = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 700_000)), min_size=3, max_size=12
)


@given(power_points, st.data())
def test_the_trapezoid_equals_a_sum_over_thin_slices(points, data):
    t, rows = 0, []
    for gap, power in points:
        rows.append((t, power, None))
        t += gap
    end = rows[-1][0]
    a = data.draw(st.integers(0, 10 * end - 1))
    b = data.draw(st.integers(a + 1, 10 * end))
    energy = energy_of(log(rows, limit_mw=None), a * S // 10, b * S // 10)
    slices = 20 * (b - a)

    def power_at(x):
        for (t0, p0, _), (t1, p1, _) in pairwise(rows):
            if t0 <= x <= t1:
                return p0 + (p1 - p0) * (x - t0) / (t1 - t0)
        raise AssertionError

    width = (b - a) / 10 / slices
    naive = sum(power_at(a / 10 + (i + 0.5) * width) for i in range(slices)) * width
    assert energy.energy_mj == pytest.approx(naive, rel=1e-6, abs=1e-3)


@given(
    st.lists(st.integers(1, 900_000), min_size=8, max_size=20),
    st.integers(10, 30),
    st.integers(35, 60),
)
def test_the_counter_s_energy_equals_a_sum_over_thin_slices(steps, a, b):
    rows, at_mj = [(0, None, 0)], 0
    for t, step in enumerate(steps, start=1):
        at_mj += step
        rows.append((t, None, at_mj))
    energy = energy_of(log(rows, limit_mw=None), a * S // 10, b * S // 10)
    naive = sum(steps[n // 10] / 10 for n in range(a, b))
    assert energy.energy_mj == pytest.approx(naive, rel=1e-9)


def test_samples_too_far_apart_give_no_number():
    sparse = [(t, 400_000, 400_000 * t) for t in (0, 1, 9, 10, 11)]
    assert energy_of(log(sparse), 2 * S, 10 * S, max_gap_ns=3 * S).energy_mj is None
    counter_inside = energy_of(log(sparse), S // 2, 10 * S, max_gap_ns=3 * S)
    assert counter_inside.energy_mj == pytest.approx(400_000 * 9.5)
    power_only = [(t, mw, None) for t, mw, _ in sparse]
    assert energy_of(log(power_only), S // 2, 10 * S, max_gap_ns=3 * S).energy_mj is None


def test_a_counter_that_was_reset_outside_the_window_does_no_harm():
    rows = [(t, 400_000, 400_000 * (t + 100 if t < 3 else t - 3)) for t in range(14)]
    assert energy_of(log(rows), 5 * S, 9 * S).energy_mj == pytest.approx(400 * 4 * 1000)
