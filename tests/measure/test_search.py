"""The search encloses the boundary of any engine, on the rows of one band, and ends."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import small_spec, spec_in_mode
from tokenwatt_site.goodput import bracket
from tokenwatt_site.measure.search import (
    FLOOR_SHARE,
    MOST_PREDICTIONS,
    STEP,
    SWEEP,
    Done,
    Offer,
    RepeatSearch,
)
from tokenwatt_site.run import Verdict
from tokenwatt_site.spec import HIGHEST_URPS, Spec
from tokenwatt_site.windows import Band, Windows, windows_of

RATIO = {"demo": 1.15, "quick": 1.05, "full": 1.02}
MODES = st.sampled_from(sorted(RATIO))
START_URPS = 1_000_000
BOUNDARIES = st.integers(20_000, 4_000_000_000)


def spec_of(mode: str) -> Spec:
    changes = {"protocol__start_rate": START_URPS / 1e6, "protocol__max_rate": None}
    return spec_in_mode(mode, **changes)


ONE = windows_of(small_spec())
EDGES = (0, *(500_000 * 2**n for n in range(13)), HIGHEST_URPS + 1)
MANY = Windows(
    ONE.workload,
    tuple(
        Band(low, high, 5, 20 + number, 60) for number, (low, high) in enumerate(pairwise(EDGES))
    ),
    chosen=True,
)
WINDOWS = st.sampled_from([ONE, MANY])

Passes = Callable[[Offer], bool]


def up_to(boundary: int) -> Passes:
    return lambda offer: offer.rate_urps <= boundary


def search_of(
    mode: str,
    windows: Windows = ONE,
    *,
    repeat: int = 1,
    earlier: Sequence[Done] = (),
    top: int = HIGHEST_URPS,
    predict: Callable[[Band, int], int | None] | None = None,
) -> RepeatSearch:
    return RepeatSearch(
        spec_of(mode).protocol,
        windows,
        repeat,
        earlier=earlier,
        ceiling_urps=lambda _: top,
        predict=predict,
    )


def searched(search: RepeatSearch, passes: Passes, most: int = 80) -> list[tuple[Offer, Verdict]]:
    """Offer rates to an engine until the search is over; return what was seen."""
    seen: list[tuple[Offer, Verdict]] = []
    while (offer := search.next()) is not None:
        assert search.next() == offer
        assert search.left() >= 1
        seen.append((offer, "PASS" if passes(offer) else "FAIL"))
        search.saw(*seen[-1])
        assert len(seen) <= most
    return seen


def rates(seen: Sequence[tuple[Offer, Verdict]]) -> list[int]:
    return [offer.rate_urps for offer, _ in seen]


def earlier_at(boundary: int, windows: Windows = ONE, repeat: int = 1) -> Done:
    return Done(repeat, boundary, boundary - 1, windows.band_at(boundary))


def enclosed(seen: Sequence[tuple[Offer, Verdict]]) -> tuple[int | None, int | None]:
    """Return the bracket of the trials on the rows that were offered last."""
    own = [(o.rate_urps, verdict) for o, verdict in seen if o.band == seen[-1][0].band]
    return bracket([r for r, v in own if v == "PASS"], [r for r, v in own if v == "FAIL"])


@given(BOUNDARIES, MODES, WINDOWS, st.sampled_from([None, 0.25, 0.5, 0.94, 1.0, 1.06, 2.0, 4.0]))
def test_the_bracket_holds_the_boundary_and_is_as_narrow_as_asked(
    boundary: int, mode: str, windows: Windows, off: float | None
) -> None:
    predict = None if off is None else lambda *_: round(boundary * off)
    search = search_of(mode, windows, predict=predict)
    low, high = enclosed(searched(search, up_to(boundary)))
    assert low is not None
    assert high is not None
    assert low <= boundary < high
    assert high <= low * RATIO[mode] or high == low + 1
    assert search.boundary_urps == math.isqrt(low * high)


@given(st.integers(100_000, 50_000_000), st.none() | st.floats(0.5, 2), st.integers())
def test_each_band_may_have_a_boundary_of_its_own(
    boundary: int, off: float | None, seed: int
) -> None:
    chance = random.Random(seed)
    own = {band: round(boundary * chance.uniform(0.9, 1.1)) for band in MANY.bands}
    predict = None if off is None else lambda band, _: round(own[band] * off)
    search = search_of("quick", MANY, predict=predict)
    seen = searched(search, lambda offer: offer.rate_urps <= own[offer.band])
    low, high = enclosed(seen)
    assert low is not None
    assert high is not None
    assert low <= own[seen[-1][0].band] < high <= low * 1.05


@given(BOUNDARIES, MODES, WINDOWS, st.none() | st.floats(0.2, 5), st.integers(1, 3))
def test_a17_no_rate_is_offered_twice_on_whatever_rows(
    boundary: int, mode: str, windows: Windows, off: float | None, repeat: int
) -> None:
    predict = None if off is None else lambda *_: round(boundary * off)
    earlier = [earlier_at(3_000_000, windows)] if repeat > 1 else []
    search = search_of(mode, windows, repeat=repeat, earlier=earlier, predict=predict)
    offered = rates(searched(search, up_to(boundary)))
    assert len(set(offered)) == len(offered)


@given(st.integers(), MODES, WINDOWS, st.integers(1, 3), st.booleans())
def test_it_ends_on_an_engine_whose_verdicts_and_a_model_whose_words_are_chance(
    seed: int, mode: str, windows: Windows, repeat: int, bounded: bool
) -> None:
    chance = random.Random(seed)

    def predict(_band: Band, near_urps: int) -> int | None:
        share = chance.choice([None, 0.01, 0.5, 0.98, 1.0, 1.02, 2.0, 100.0])
        return None if share is None else max(1, round(near_urps * share))

    search = search_of(
        mode,
        windows,
        repeat=repeat,
        earlier=[earlier_at(3_000_000, windows)] if bounded else [],
        predict=predict,
    )
    seen = searched(search, lambda _: chance.random() < 0.5, most=120)
    assert len(set(rates(seen))) == len(seen)
    low, high = enclosed(seen)
    if low is not None and high is not None:
        assert high <= low * RATIO[mode] or high == low + 1


@given(BOUNDARIES, MODES, WINDOWS)
def test_all_trials_of_the_bracket_are_of_one_band(
    boundary: int, mode: str, windows: Windows
) -> None:
    search = search_of(mode, windows, predict=lambda *_: boundary)
    seen = searched(search, up_to(boundary))
    done = search.done()
    assert done.pass_urps == enclosed(seen)[0]
    assert [offer.band for offer, _ in seen[1:]] == [done.band] * (len(seen) - 1)


def test_a_right_prediction_takes_two_trials_after_the_pilot() -> None:
    seen = searched(search_of("quick", predict=lambda *_: 5_090_000), up_to(5_090_000))
    assert [verdict for _, verdict in seen] == ["PASS", "PASS", "FAIL"]
    assert seen[1][0].rate_urps == pytest.approx(5_090_000 / math.sqrt(1.05), abs=1)
    assert seen[2][0].rate_urps == pytest.approx(5_090_000 * math.sqrt(1.05), abs=3)


@pytest.mark.parametrize(("off", "most"), [(1.02, 4), (0.98, 4), (1.06, 8), (0.94, 8), (4, 13)])
def test_a_model_that_stays_wrong_costs_a_few_trials_more(off: float, most: int) -> None:
    search = search_of("quick", predict=lambda *_: round(5_090_000 * off))
    assert len(searched(search, up_to(5_090_000))) <= most


def test_a_wrong_model_is_asked_again_with_what_was_seen_since() -> None:
    told = iter([7_000_000, 5_090_000])
    asked: list[int] = []

    def predict(_band: Band, near_urps: int) -> int:
        asked.append(near_urps)
        return next(told)

    seen = searched(search_of("quick", predict=predict), up_to(5_090_000))
    assert [verdict for _, verdict in seen] == ["PASS", "FAIL", "PASS", "FAIL"]
    assert asked == [START_URPS, seen[1][0].rate_urps]
    assert len(asked) <= MOST_PREDICTIONS


def test_a_later_repeat_begins_where_the_model_sees_its_own_boundary() -> None:
    near: list[int] = []

    def predict(_band: Band, near_urps: int) -> int:
        near.append(near_urps)
        return 4_000_000

    earlier = [earlier_at(5_000_000), earlier_at(5_100_000, repeat=2)]
    search = search_of("full", repeat=3, earlier=earlier, predict=predict)
    seen = searched(search, up_to(4_000_000))
    assert near == [earlier[-1].boundary_urps]
    assert [verdict for _, verdict in seen] == ["PASS", "FAIL"]


def test_repeat_2_of_full_mode_is_searched_without_the_model_from_the_boundary_of_repeat_1() -> (
    None
):
    def predict(*_: object) -> int:
        raise AssertionError("the guard asked the model")

    first = earlier_at(5_000_000, MANY)
    search = search_of("full", MANY, repeat=2, earlier=[first], predict=predict)
    seen = searched(search, up_to(5_300_000))
    assert first.boundary_urps is not None
    assert seen[0][0].rate_urps == pytest.approx(first.boundary_urps / math.sqrt(1.02), abs=1)
    assert {offer.band for offer, _ in seen} == {first.band}
    assert len(seen) <= 7


def test_repeat_2_of_quick_mode_asks_the_model() -> None:
    search = search_of(
        "quick", repeat=2, earlier=[earlier_at(5_000_000)], predict=lambda *_: 6_000_000
    )
    assert len(searched(search, up_to(6_000_000))) == 2


def test_without_any_boundary_before_a_repeat_begins_at_the_highest_pass() -> None:
    earlier = [Done(1, None, 8_000_000, ONE.bands[0])]
    first = search_of("quick", repeat=2, earlier=earlier).next()
    assert first == Offer(8_000_000, ONE.bands[0])


def test_pilots_are_doubled_each_on_the_rows_of_its_own_band() -> None:
    seen = searched(search_of("demo", MANY), up_to(5_000_000))
    pilots = [offer for offer, _ in seen[:4]]
    assert [p.rate_urps for p in pilots] == [1_000_000 * 2**n for n in range(4)]
    assert [p.band for p in pilots] == [MANY.band_at(p.rate_urps) for p in pilots]
    assert len({offer.band for offer, _ in seen[4:]}) == 1


def test_the_sweep_follows_the_bracket_of_repeat_1_in_full_mode_alone() -> None:
    seen = searched(search_of("full", predict=lambda *_: 5_000_000), up_to(5_000_000))
    boundary = math.isqrt(seen[1][0].rate_urps * seen[2][0].rate_urps)
    assert rates(seen[3:]) == [round(boundary * share) for share in SWEEP]
    later = search_of(
        "full", repeat=3, earlier=[earlier_at(5_000_000)], predict=lambda *_: 5_000_000
    )
    assert len(searched(later, up_to(5_000_000))) == 2


def test_the_sweep_leaves_out_what_may_not_be_offered() -> None:
    search = search_of("full", predict=lambda *_: 5_000_000, top=5_200_000)
    assert len(searched(search, up_to(5_000_000))) == 3 + len(SWEEP) - 1


def test_c2_the_sweep_does_without_a_rate_that_is_given_up_and_the_bracket_does_not() -> None:
    search = search_of("full", predict=lambda *_: 5_000_000)
    seen = []
    while (offer := search.next()) is not None:
        seen.append(offer)
        if len(seen) == 4:
            search.saw(offer, "INVALID")
            assert search.next() == offer
            search.give_up(offer)
            continue
        search.saw(offer, "PASS" if offer.rate_urps <= 5_000_000 else "FAIL")
    assert len(seen) == 3 + len(SWEEP)
    assert search.done().boundary_urps is not None
    search = search_of("full")
    pilot = search.next()
    assert pilot is not None
    search.saw(pilot, "INVALID")
    search.give_up(pilot)
    assert search.next() is None
    assert search.left() == 0


def test_a_rate_of_the_sweep_that_fails_below_the_boundary_is_enclosed_anew() -> None:
    failing: list[int] = []

    def passes(offer: Offer) -> bool:
        if len(failing) or 4_600_000 < offer.rate_urps < 4_800_000:
            failing.append(offer.rate_urps)
            return offer.rate_urps < 4_500_000
        return offer.rate_urps <= 5_000_000

    search = search_of("full", predict=lambda *_: 5_000_000)
    low, high = enclosed(searched(search, passes))
    assert failing
    assert low is not None
    assert high is not None
    assert low < 4_500_000 <= high <= low * 1.02


def test_a17_the_ceiling_is_offered_and_never_passed_over() -> None:
    for predict in (None, lambda *_: 70_000_000):
        search = search_of("quick", MANY, top=5_000_000, predict=predict)
        seen = searched(search, up_to(10**12))
        assert seen[-1][0].rate_urps == 5_000_000
        assert max(rates(seen)) == 5_000_000
        assert search.done().boundary_urps is None


def test_a_bracket_that_leaves_its_band_upward_goes_on_in_the_next() -> None:
    # Predicted just below the edge of a band, on whose rows the engine holds every rate.
    edge = 4_000_000
    search = search_of("quick", MANY, predict=lambda *_: 3_900_000)
    seen = searched(search, up_to(4_600_000))
    assert search.done().band == MANY.band_at(edge)
    low, high = enclosed(seen)
    assert low is not None
    assert high is not None
    assert low <= 4_600_000 < high
    below = MANY.band_at(edge - 1)
    assert (Offer(below.highest_urps, below), "PASS") in seen


def test_a_bracket_that_straddles_the_end_of_its_band_stays_on_its_rows() -> None:
    search = search_of("quick", MANY, predict=lambda *_: 3_900_000)
    searched(search, up_to(4_100_000))
    assert search.done().band == MANY.band_at(3_900_000)


def test_an_engine_that_passes_nothing_ends_the_search() -> None:
    for predict in (None, lambda *_: 3_000_000):
        search = search_of("quick", predict=predict)
        seen = searched(search, lambda _: False, most=30)
        assert min(rates(seen)) <= START_URPS / FLOOR_SHARE * STEP
        assert search.done().pass_urps is None


def test_without_a_model_a_search_takes_its_pilots_and_its_bisections() -> None:
    assert len(searched(search_of("quick"), up_to(5_090_000))) == 4 + 4


@pytest.mark.parametrize(
    ("mode", "verdicts", "left"),
    [("demo", [], 5), ("demo", ["PASS"], 4), ("demo", ["PASS", "FAIL"], 3), ("full", [], 12)],
)
def test_the_estimate_of_trials_left_falls_as_the_bracket_narrows(
    mode: str, verdicts: list[Verdict], left: int
) -> None:
    search = search_of(mode)
    for verdict in verdicts:
        offer = search.next()
        assert offer is not None
        search.saw(offer, verdict)
    assert search.left() == left


@given(BOUNDARIES, MODES, st.integers(0, 12))
def test_a_search_told_again_what_was_seen_goes_on_as_it_would_have(
    boundary: int, mode: str, told: int
) -> None:
    whole = searched(search_of(mode, MANY, predict=lambda *_: boundary), up_to(boundary))
    again = search_of(mode, MANY, predict=lambda *_: boundary)
    for offer, verdict in whole[:told]:
        again.saw(offer, verdict)
    assert whole[:told] + searched(again, up_to(boundary)) == whole
