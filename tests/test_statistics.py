"""Vectors of DESIGN 6, and slow oracles."""

import math
import statistics as stdlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tokenwatt_site.statistics import (
    Ratio,
    against,
    paired,
    pool,
    rank_ranges,
    repeats_needed,
    slope,
    t_95,
    t_975,
)

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


def test_v1_a_band_from_two_launches_would_be_so_wide_that_it_says_nothing():
    logs = [math.log(v) for v in V1]
    assert math.exp(stdlib.fmean(logs)) == pytest.approx(2420.505, abs=5e-4)
    factor = math.exp(t_975(1) * stdlib.stdev(logs) * 1.5**0.5)
    assert factor == pytest.approx(1.4498, abs=5e-5)


def test_a_systematic_part_widens_the_mean_in_quadrature_and_no_new_launch():
    plain, wide = pool(V2, "geometric"), pool(V2, "geometric", systematic=0.0098)
    half = math.log(plain.high / plain.value)
    assert math.log(wide.high / wide.value) == pytest.approx(math.hypot(half, 0.0098))
    assert wide.new_launch_high == plain.new_launch_high


@pytest.mark.parametrize(
    ("new", "ratio", "low", "high", "said"),
    [
        ([2395.0, 2418.0, 2402.0], 0.99381, 0.98560, 1.00210, "reproduced"),
        ([2250.0, 2262.0, 2241.0], 0.93018, 0.92267, 0.93775, "contradicted"),
        ([2330.0, 2351.0, 2344.0], 0.96764, 0.95992, 0.97543, "inconclusive"),
    ],
)
def test_a_reproduction_is_told_by_the_vectors_of_the_design(new, ratio, low, high, said):
    found = against(new, V2)
    assert (found.value, found.low, found.high) == pytest.approx((ratio, low, high), abs=6e-6)
    assert found.reproduced == said


launches = st.lists(st.floats(90, 110), min_size=3, max_size=8, unique=True)


@given(launches, launches)
def test_the_interval_of_a_reproduction_is_that_of_scipys_welch_test(new, old):
    found = against(new, old)
    welch = stats.ttest_ind(np.log(new), np.log(old), equal_var=False)
    low, high = welch.confidence_interval(0.9)
    half = math.log(found.high / found.value)
    assert half == pytest.approx((high - low) / 2, rel=1.2e-3)
    assert math.log(found.value) == pytest.approx((high + low) / 2, abs=1e-9)


def test_two_launches_reproduce_nothing():
    assert against([2410.0, 2411.0], V2) == Ratio(against([2410.0, 2411.0], V2).value, None, None)
    assert against([2410.0, 2411.0], V2).reproduced == "inconclusive"


def test_launches_that_are_all_the_same_have_an_interval_of_no_width():
    assert against([5.0] * 3, [5.0] * 3) == Ratio(1.0, 1.0, 1.0)


@given(launches)
def test_what_all_repeats_share_cancels_in_a_paired_ratio(values):
    found = paired([v * 1.1 for v in values], values)
    assert (found.value, found.low, found.high) == pytest.approx((1.1, 1.1, 1.1))


@given(launches, st.data())
def test_a_paired_ratio_has_the_interval_of_scipys_paired_test(ones, data):
    size = len(ones)
    others = data.draw(st.lists(st.floats(90, 110), min_size=size, max_size=size, unique=True))
    found = paired(ones, others)
    low, high = stats.ttest_rel(np.log(ones), np.log(others)).confidence_interval(0.95)
    assert math.log(found.low) == pytest.approx(low, abs=1e-6)
    assert math.log(found.high) == pytest.approx(high, abs=1e-6)


@pytest.mark.parametrize(
    ("low", "high", "of_higher", "of_lower"),
    [
        (1.01, 1.09, "better", "worse"),
        (0.91, 0.99, "worse", "better"),
        (0.98, 1.02, "same within 3%", "same within 3%"),
        (1.005, 1.02, "same within 3%", "same within 3%"),
        (0.95, 1.05, "no difference shown", "no difference shown"),
        (None, None, "no difference shown", "no difference shown"),
    ],
)
def test_the_words_of_a_comparison_say_no_more_than_its_interval(low, high, of_higher, of_lower):
    ratio = Ratio(1.0, low, high)
    assert ratio.compared("higher") == of_higher
    assert ratio.compared("lower") == of_lower


def test_a_number_without_a_better_side_differs_only():
    assert Ratio(1.05, 1.01, 1.09).compared("neither") == "different"


def test_a_ratio_of_nothing_or_of_zero_is_refused():
    for values in ([], [0.0, 1.0, 1.0]):
        with pytest.raises(ValueError, match="positive"):
            against(values, V2)


@given(st.floats(2, 300))
def test_t_quantiles_between_those_of_the_table_are_near(df):
    assert t_95(df) == pytest.approx(stats.t.ppf(0.95, df), rel=1e-3)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(-50, 50)), min_size=4, max_size=12))
@settings(max_examples=50)
def test_a_slope_and_its_interval_are_those_of_numpys_line(points):
    x, y = [a for a, _ in points], [b / 50 for _, b in points]
    if max(x) == min(x):
        return
    found = slope(x, y)
    (line, _), spread = np.polyfit(x, y, 1, cov=True)
    assert found.value == pytest.approx(line, abs=1e-9)
    half = stats.t.ppf(0.975, len(x) - 2) * math.sqrt(max(spread[0, 0], 0))
    assert found.half_width == pytest.approx(half, rel=1e-4, abs=1e-7)


def test_two_points_or_one_moment_have_no_slope():
    assert slope([0.0, 1.0], [0.0, 1.0]) is None
    assert slope([2.0, 2.0, 2.0], [0.0, 1.0, 2.0]) is None


def values_of_spread(n, spread):
    """Values whose logs have a mean of 0 and exactly this standard deviation."""
    steps = [k - (n - 1) / 2 for k in range(n)]
    scale = spread / math.sqrt(sum(step**2 for step in steps) / (n - 1))
    return [math.exp(scale * step) for step in steps]


@given(st.floats(0.004, 0.2), st.floats(0.001, 0.05))
def test_so_many_repeats_make_the_interval_and_one_less_does_not(half, spread):
    needed = repeats_needed(half, spread, systematic=0)
    if needed is None:
        assert math.expm1(stats.t.ppf(0.975, 99) * spread / 10) > half * 0.9999
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
        math.expm1(math.hypot(stats.t.ppf(0.975, n - 1) * spread / math.sqrt(n), 1.96 * 0.005))
        for n in range(3, 101)
    ]
    assert next((n for n, found in enumerate(wide, 3) if found <= half), None) == needed
    assert repeats_needed(half, spread) == needed
