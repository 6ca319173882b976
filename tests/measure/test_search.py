"""The search encloses the boundary of any engine, and ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.goodput import bracket
from tokenwatt_site.measure.search import next_rate, trials_left


def searched(boundary, *, start=1_000_000, maximum=64_000_000, ratio=1.05, predicted=False):
    """Offer rates to an engine that passes up to `boundary`; return what was seen."""
    seen = []
    while (
        rate := next_rate(
            seen, start_urps=start, max_urps=maximum, ratio=ratio, predicted=predicted
        )
    ) is not None:
        seen.append((rate, "PASS" if rate <= boundary else "FAIL"))
        assert len(seen) < 60
    return seen


def enclosed(seen):
    return bracket([r for r, v in seen if v == "PASS"], [r for r, v in seen if v == "FAIL"])


@given(
    st.integers(20_000, 60_000_000),
    st.sampled_from([1.02, 1.05, 1.15]),
    st.booleans(),
)
def test_the_bracket_holds_the_boundary_and_is_as_narrow_as_asked(boundary, ratio, predicted):
    low, high = enclosed(searched(boundary, ratio=ratio, predicted=predicted))
    assert low <= boundary < high
    assert high <= low * ratio


@given(st.integers(20_000, 60_000_000), st.sampled_from([1.02, 1.15]))
def test_a17_no_rate_is_offered_twice(boundary, ratio):
    rates = [rate for rate, _ in searched(boundary, ratio=ratio)]
    assert len(set(rates)) == len(rates)


def test_a17_the_ceiling_is_offered_and_never_passed_over():
    seen = searched(10**12, maximum=5_000_000)
    assert seen[-1] == (5_000_000, "PASS")
    assert max(rate for rate, _ in seen) == 5_000_000


def test_an_engine_that_passes_nothing_ends_the_search():
    seen = searched(0)
    assert {verdict for _, verdict in seen} == {"FAIL"}
    assert len(seen) <= 8


def test_a_good_prediction_saves_trials():
    assert len(searched(5_000_000, start=4_950_000, ratio=1.02, predicted=True)) < len(
        searched(5_000_000, ratio=1.02)
    )


@pytest.mark.parametrize(
    ("passed", "failed", "left"),
    [([], [], 5), ([1], [], 4), ([100], [200], 3), ([100], [110], 0)],
)
def test_the_estimate_of_trials_left_falls_as_the_bracket_narrows(passed, failed, left):
    seen = [(rate, "PASS") for rate in passed] + [(rate, "FAIL") for rate in failed]
    assert trials_left(seen, 1.15) == left
