"""When an engine counts as warm, and how that is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import spec_in_mode
from tokenwatt_site.measure.settling import MOST_BURSTS, Burst, WarmUp, settle

MS = 1_000_000


def shown(first_ms, rest_ms=300):
    rest_ns = None if first_ms is None else rest_ms * MS
    return Burst(500 * MS, None if first_ms is None else round(first_ms * MS), rest_ns)


def bursts_until_settled(first_ms, rest_ms=(), most=20):
    """Settle on scripted times; the last of each goes on for ever."""

    def ask(number):
        rest = rest_ms[min(number, len(rest_ms) - 1)] if rest_ms else 300
        return shown(first_ms[min(number, len(first_ms) - 1)], rest)

    settled, bursts = settle(ask, most=most)
    return len(bursts) if settled else None


@pytest.mark.parametrize(
    ("first_ms", "bursts"),
    [
        ([100], 3),
        ([100, 104, 96], 3),
        ([100, 110, 100], 5),  # one of the three is too far from the others until it has left
        ([900, 100], 5),  # the three are below the first: one more shows that they stay there
        ([900, 500, 300, 200, 150, 120, 110, 105, 100], 11),
        ([100, 900, 100], 5),  # a pause is no warm-up: it leaves the three, and is not below
        ([100, 100, 120, 140], 6),  # what got slower has stopped falling
        ([0.3, 1.1, 0.5], 3),  # a millisecond is the client's own
        ([None, 100], 4),
    ],
)
def test_an_engine_is_warm_when_three_bursts_are_alike_and_not_below_those_before(first_ms, bursts):
    assert bursts_until_settled(first_ms) == bursts


def test_the_time_from_the_first_token_to_the_last_has_to_settle_as_well():
    assert bursts_until_settled([100], rest_ms=[900, 600, 400, 300]) == 7


def test_one_that_goes_on_falling_is_told_apart_after_the_most_bursts():
    falling = [1000 * 0.9**n for n in range(40)]
    assert bursts_until_settled(falling, most=20) is None


@given(st.lists(st.integers(2, 2000), min_size=1, max_size=12))
def test_it_settles_on_the_pace_that_lasts_within_four_bursts_of_its_begin(times):
    def ask(number):
        return shown(times[min(number, len(times) - 1)])

    settled, bursts = settle(ask, most=50)
    assert settled
    assert 3 <= len(bursts) <= len(times) + 3
    last = sorted(burst.first_ns for burst in bursts[-3:])
    near = max(0.05 * last[1], MS)
    assert last[1] - last[0] <= near
    assert last[2] - last[1] <= near
    assert last[1] >= min((b.first_ns for b in bursts[:-3]), default=0) - near


def test_what_came_of_it_is_told_in_integers_and_in_words():
    found = WarmUp(False, 16, (shown(None), shown(900.5, 600), shown(100, 300)))
    assert found.to_json() == {
        "settled": False,
        "tokens": 16,
        "took_ns": [500 * MS] * 3,
        "first_ns": [None, 900_500_000, 100 * MS],
        "rest_ns": [None, 600 * MS, 300 * MS],
    }
    assert str(found) == (
        "warm-up: 3 bursts in 1.5 s, and its times have not settled; to the first token no"
        " answer, then 100.0 ms; for 15 more no answer, then 300.0 ms"
    )
    one = WarmUp(True, 1, (shown(100, 0),))
    assert str(one) == ("warm-up: 1 burst in 0.5 s; to the first token 100.0 ms, then 100.0 ms")


@pytest.mark.parametrize("mode", ["demo", "quick", "full"])
def test_a_mode_bounds_how_long_it_is_looked_for(mode):
    assert spec_in_mode(mode).protocol.mode in MOST_BURSTS
    assert MOST_BURSTS["demo"] <= 5
