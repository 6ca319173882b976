"""Joules of a window, per board and then summed."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.energy import window_energy
from tokenwatt_site.power_log import Board, PowerLog, PowerSample

S = 10**9


def energy_of(power, start_ns, end_ns, max_gap_ns=6 * S):
    return window_energy(power, start_ns, end_ns, max_gap_ns=max_gap_ns)


def log(*boards, limit_mw=700_000):
    """Each board: a list of (second, milliwatts, millijoules)."""
    return PowerLog(
        sensor="nvml",
        scope="gpu",
        period_ns=S,
        averaging_ns=S,
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


def test_b11_four_equal_boards_give_four_times_one():
    one = energy_of(log(steady(400)), 2 * S, 9 * S)
    four = energy_of(log(*[steady(400)] * 4), 2 * S, 9 * S)
    assert one.energy_mj == pytest.approx(400 * 7 * 1000)
    assert four.energy_mj == pytest.approx(4 * one.energy_mj)


def test_b4_power_outside_the_window_does_not_count():
    rows = [(t, 100_000 if t < 5 else 700_000, None) for t in range(12)]
    inside = energy_of(log(rows), 6 * S, 10 * S)
    assert inside.energy_mj == pytest.approx(700 * 4 * 1000)


def test_b5_an_edge_that_is_not_enclosed_gives_no_number_but_the_reason():
    energy = energy_of(log(steady(400), steady(400, seconds=6)), 2 * S, 9 * S)
    assert energy.energy_mj is None
    assert "do not enclose" in energy.reason


def test_b3_ragged_samples_are_integrated_board_by_board():
    dense = [(t / 4, 300_000, None) for t in range(48)]
    sparse = [(t, 500_000, None) for t in range(12)]
    energy = energy_of(log(dense, sparse), 2 * S, 9 * S)
    assert energy.energy_mj == pytest.approx((300 + 500) * 7 * 1000)


def test_b1_counter_and_power_that_disagree_are_not_reconciled_and_said():
    rows = [(t, 400_000, 200_000 * t) for t in range(12)]
    energy = energy_of(log(rows), 2 * S, 9 * S)
    assert energy.energy_mj == pytest.approx(200 * 7 * 1000)
    assert any("not reconciled" in note for note in energy.notes)


def test_b8_a_backward_counter_is_invalid_never_clamped():
    rows = [(t, 400_000, 400_000 * (t if t < 6 else 12 - t)) for t in range(12)]
    energy = energy_of(log(rows), 2 * S, 9 * S)
    assert energy.energy_mj is None
    assert "INVALID" in energy.reason


@pytest.mark.parametrize(("watts", "outcome"), [(700, "fine"), (750, "warned"), (900, "INVALID")])
def test_b8_mean_power_is_held_against_the_enforced_limit(watts, outcome):
    energy = energy_of(log(steady(watts)), 2 * S, 9 * S)
    if outcome == "INVALID":
        assert energy.energy_mj is None
        assert "INVALID" in energy.reason
    else:
        assert bool(energy.notes) == (outcome == "warned")


def test_b14_missing_is_none_with_a_reason_never_zero():
    assert energy_of(log([(t, None, None) for t in range(12)]), 2 * S, 9 * S).energy_mj is None
    assert energy_of(log(), 2 * S, 9 * S).reason == "no board was read"


power_points = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 700_000)), min_size=3, max_size=12
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
