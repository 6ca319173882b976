"""Vectors of DESIGN 6, and slow oracles."""

import math
import statistics as stdlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as student

from tokenwatt_site.statistics import pool, rank_ranges, repeats_needed, t_975

V1 = [2380.0, 2461.7]
V2 = [2410.0, 2431.0, 2397.0, 2440.0, 2422.0]
V3 = [100.0, 101.0, 99.5]
positive = st.floats(0.1, 1e6)


def test_v1_two_launches_give_their_median_and_range_and_no_interval():
    pooled = pool(V1, "geometric")
    assert pooled.value == pytest.approx(2420.85)
    assert (pooled.low, pooled.high) == (2380.0, 2461.7)
    assert pooled.new_launch_low is None


def test_v2_five_launches_give_mean_interval_and_new_launch_band():
    pooled = pool(V2, "geometric")
    assert pooled.value == pytest.approx(2419.952, abs=5e-4)
    assert pooled.high / pooled.value - 1 == pytest.approx(0.00872, abs=5e-5)
    assert pooled.new_launch_low == pytest.approx(2368.80, abs=5e-3)
    assert pooled.new_launch_high == pytest.approx(2472.20, abs=5e-3)


def test_v3_three_launches_give_the_published_band():
    pooled = pool(V3, "geometric")
    assert pooled.value == pytest.approx(100.1647, abs=5e-5)
    assert math.log(pooled.new_launch_high / pooled.value) == pytest.approx(0.03784, abs=5e-6)


def test_one_launch_stands_alone():
    pooled = pool([5.0], "geometric")
    assert (pooled.value, pooled.low, pooled.high) == (5.0, None, None)


@given(st.lists(positive, min_size=3, max_size=12))
def test_geometric_pooling_equals_the_formula_written_out(values):
    pooled = pool(values, "geometric")
    logs = [math.log(v) for v in values]
    mean, s, n = stdlib.fmean(logs), stdlib.stdev(logs), len(values)
    assert pooled.value == pytest.approx(stdlib.geometric_mean(values), rel=1e-9)
    assert pooled.low == pytest.approx(math.exp(mean - t_975(n - 1) * s / n**0.5), rel=1e-6)
    assert pooled.new_launch_high == pytest.approx(
        math.exp(mean + t_975(n - 1) * s * (1 + 1 / n) ** 0.5), rel=1e-6
    )


@given(st.lists(st.floats(0, 100), min_size=3, max_size=12))
def test_shares_are_pooled_by_their_arithmetic_mean_also_when_zero(values):
    pooled = pool(values, "arithmetic")
    assert pooled.value == pytest.approx(stdlib.fmean(values), abs=1e-9)
    assert pooled.low <= pooled.value <= pooled.high


def test_a_geometric_mean_of_zero_and_a_pool_of_nothing_are_refused():
    with pytest.raises(ValueError, match="positive"):
        pool([0.0, 1.0, 2.0], "geometric")
    with pytest.raises(ValueError, match="nothing"):
        pool([], "geometric")


@pytest.mark.parametrize(
    ("df", "published"),
    [(1, 12.7062), (2, 4.3027), (4, 2.7764), (9, 2.2622), (40, 2.0211), (100, 1.9840)],
)
def test_t_quantiles_are_those_of_published_tables(df, published):
    assert t_975(df) == pytest.approx(published, abs=1e-4)


def test_h33_rank_ranges_of_the_design_vector():
    intervals = [(98, 102), (95, 99), (90, 94), (93, 96), (80, 84)]
    assert rank_ranges(intervals) == [(1, 2), (1, 3), (3, 4), (2, 4), (5, 5)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=25))
def test_rank_ranges_equal_counting_by_hand(pairs):
    intervals = [(float(low), float(low + width)) for low, width in pairs]
    n = len(intervals)
    naive = [
        (
            1 + sum(other[0] > own[1] for other in intervals),
            n - sum(other[1] < own[0] for other in intervals),
        )
        for own in intervals
    ]
    assert rank_ranges(intervals) == naive


def values_of_spread(n, spread):
    """Values whose logs have a mean of 0 and exactly this standard deviation."""
    steps = [k - (n - 1) / 2 for k in range(n)]
    scale = spread / math.sqrt(sum(step**2 for step in steps) / (n - 1))
    return [math.exp(scale * step) for step in steps]


@given(st.floats(0.004, 0.2), st.floats(0.001, 0.05))
def test_so_many_repeats_make_the_interval_and_one_less_does_not(half, spread):
    needed = repeats_needed(half, spread, systematic=0)
    if needed is None:
        assert math.expm1(student.t.ppf(0.975, 99) * spread / 10) > half * 0.9999
        return
    assert pool(values_of_spread(needed, spread), "geometric").high - 1 <= half * 1.000001
    if needed > 3:
        assert pool(values_of_spread(needed - 1, spread), "geometric").high - 1 > half * 0.999999


@pytest.mark.parametrize(
    ("half", "spread", "needed"),
    [(0.02, 0.015, 6), (0.03, 0.015, 4), (0.02, 0.0, 3), (0.0098, 0.015, None)],
)
def test_what_is_systematic_is_in_the_interval_and_no_repeat_takes_it_out(half, spread, needed):
    wide = [
        math.expm1(math.hypot(student.t.ppf(0.975, n - 1) * spread / math.sqrt(n), 1.96 * 0.005))
        for n in range(3, 101)
    ]
    assert next((n for n, found in enumerate(wide, 3) if found <= half), None) == needed
    assert repeats_needed(half, spread) == needed
