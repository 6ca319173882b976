"""The search encloses the boundary of any engine, and ends."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import small_spec, spec_in_mode
from tokenwatt_site.goodput import bracket
from tokenwatt_site.measure.search import SWEEP, Done, RepeatSearch
from tokenwatt_site.spec import HIGHEST_URPS
from tokenwatt_site.windows import Band, Windows, windows_of

ALL = Band(0, HIGHEST_URPS, 5, 20, 60)
BANDS = tuple(Band(1_000_000 << i, 2_000_000 << i, 5, 20, 60) for i in range(6))


def windows(*bands: Band) -> Windows:
    return Windows(windows_of(small_spec()).workload, bands, chosen=False)


def searcher(mode="demo", bands=(ALL,), repeat=1, start=1.0, **given):
    protocol = spec_in_mode(mode).protocol.model_copy(update={"start_rate": start})
    given.setdefault("ceiling_urps", lambda band: min(band.highest_urps, 64_000_000))
    return RepeatSearch(protocol, windows(*bands), repeat, **given)


def searched(search, passes, most=80):
    """Offer rates to an engine; return what was seen. `passes` has the word on (rate, band)."""
    seen = []
    while (offer := search.next()) is not None:
        outcome = "PASS" if passes(*offer) else "FAIL"
        search.saw(offer, outcome)
        seen.append((offer.rate_urps, offer.band, outcome))
        assert len(seen) < most
    return seen


def enclosed(seen):
    own = [(rate, verdict) for rate, band, verdict in seen if band == seen[-1][1]]
    return bracket([r for r, v in own if v == "PASS"], [r for r, v in own if v == "FAIL"])


boundaries = st.integers(20_000, 60_000_000)
modes = st.sampled_from(["full", "quick", "demo"])
words = st.none() | st.floats(0.25, 4)
"""What is predicted, over the boundary; None: nothing is."""


def predicting(boundary, word):
    return None if word is None else lambda band, near: round(boundary * word)


@given(boundaries, modes, st.sampled_from([(ALL,), BANDS]), words, st.integers(1, 3))
def test_the_bracket_holds_the_boundary_and_is_as_narrow_as_asked(
    boundary, mode, bands, word, repeat
):
    earlier = [Done(1, max(1, round(boundary * (word or 1))))] if repeat > 1 else []
    search = searcher(mode, bands, repeat, earlier=earlier, predict=predicting(boundary, word))
    low, high = enclosed(searched(search, lambda rate, _: rate <= boundary))
    ratio = {"full": 1.02, "quick": 1.05, "demo": 1.15}[mode]
    assert low <= boundary < high
    assert high <= low * ratio
    assert search.boundary_urps == math.isqrt(low * high)


@given(boundaries, modes, st.sampled_from([(ALL,), BANDS]), words)
def test_a17_no_rate_is_offered_twice(boundary, mode, bands, word):
    search = searcher(mode, bands, predict=predicting(boundary, word))
    seen = searched(search, lambda rate, _: rate <= boundary)
    assert len({(rate, band) for rate, band, _ in seen}) == len(seen)


@given(st.data(), modes, st.sampled_from([(ALL,), BANDS]), words, st.integers(1, 3))
def test_it_ends_whatever_the_verdicts_and_predictions_are(data, mode, bands, word, repeat):
    known = {}

    def passes(rate, band):
        return known.setdefault((rate, band), data.draw(st.booleans()))

    def predict(band, near):
        return data.draw(st.none() | st.integers(1, 100_000_000))

    earlier = [Done(1, data.draw(boundaries))] if repeat > 1 else []
    search = searcher(mode, bands, repeat, earlier=earlier, predict=predict if word else None)
    seen = searched(search, passes, most=150)
    assert len({(rate, band) for rate, band, _ in seen}) == len(seen)


@given(st.integers(100_000, 50_000_000), st.sampled_from([(ALL,), BANDS]))
def test_each_band_has_a_boundary_of_its_own(boundary, bands):
    """On other rows the same engine has another boundary, by up to a tenth."""
    factor = dict(zip(bands, [1.0, 1.09, 0.92, 1.05, 0.95, 1.1], strict=False))
    search = searcher("quick", bands)
    seen = searched(search, lambda rate, band: rate <= boundary * factor[band])
    low, high = enclosed(seen)
    assert low <= boundary * factor[seen[-1][1]] < high <= low * 1.05


@pytest.mark.parametrize(("word", "most"), [(1.0, 3), (1.004, 3), (0.996, 3), (1.03, 5), (0.97, 5)])
@pytest.mark.parametrize("bands", [(ALL,), BANDS])
def test_a_good_prediction_leaves_two_trials_beside_the_pilot(word, most, bands):
    for boundary in range(2_100_000, 9_000_000, 330_000):
        search = searcher("quick", bands, predict=predicting(boundary, word))
        assert len(searched(search, lambda rate, _, edge=boundary: rate <= edge)) <= most


def test_the_model_is_asked_on_the_rows_that_its_prediction_falls_on():
    asked = []

    def predict(band, near):
        asked.append((band, near))
        return 5_000_000

    seen = searched(searcher("quick", BANDS, predict=predict), lambda rate, _: rate <= 5_000_000)
    assert asked[:2] == [(BANDS[0], 1_000_000), (BANDS[2], 5_000_000)]
    assert {band for _, band, _ in seen[1:]} == {BANDS[2]}


def test_repeat_2_of_full_mode_asks_the_model_for_nothing():
    def predict(band, near):
        raise AssertionError

    search = searcher("full", repeat=2, earlier=[Done(1, 5_100_000)], predict=predict)
    assert len(searched(search, lambda rate, _: rate <= 5_000_000)) <= 5


@pytest.mark.parametrize(("mode", "repeat"), [("quick", 1), ("demo", 1), ("full", 2), ("full", 3)])
def test_only_repeat_1_of_full_mode_makes_the_sweep(mode, repeat):
    earlier = [Done(1, 5_000_000)] if repeat > 1 else []
    found = searched(searcher(mode, repeat=repeat, earlier=earlier), lambda rate, _: rate <= 5e6)
    low, high = enclosed(found)
    assert found[-1][0] in {low, high}


def test_the_sweep_follows_the_bracket_with_rates_that_may_be_offered():
    search = searcher("full", ceiling_urps=lambda band: 5_300_000)
    seen = searched(search, lambda rate, _: rate <= 5_000_000)
    middle = search.boundary_urps
    assert [rate for rate, _, _ in seen[-3:]] == [round(middle * share) for share in SWEEP[:3]]


def test_a_sweep_that_fails_below_the_bracket_narrows_it_anew():
    search = searcher("full")
    broken = set()

    def passes(rate, band):
        if 3_400_000 < rate < 3_600_000:
            broken.add(rate)
        return rate <= 5_000_000 and rate not in broken

    seen = searched(search, passes)
    low, high = enclosed(seen)
    assert broken
    assert high == min(broken) <= low * 1.02


def test_a17_the_ceiling_is_offered_and_never_passed_over():
    search = searcher(ceiling_urps=lambda band: 5_000_000)
    seen = searched(search, lambda rate, _: True)
    assert seen[-1][0] == max(rate for rate, _, _ in seen) == 5_000_000
    assert search.boundary_urps is None


def test_without_a_ceiling_of_the_spec_a_search_goes_up_to_the_last_band():
    search = RepeatSearch(
        spec_in_mode("quick").protocol.model_copy(update={"start_rate": 1.0, "max_rate": None}),
        windows(*BANDS),
        1,
    )
    assert searched(search, lambda rate, _: True)[-1][0] == BANDS[-1].highest_urps


def test_an_engine_that_passes_nothing_ends_the_search():
    seen = searched(searcher(), lambda rate, _: False)
    assert {verdict for _, _, verdict in seen} == {"FAIL"}
    assert len(seen) <= 8


def test_a_trial_without_a_verdict_is_offered_again():
    search = searcher()
    assert search.next() == search.next()


@given(boundaries, modes)
def test_fewer_trials_are_left_as_the_search_goes_on(boundary, mode):
    search = searcher(mode)
    while (offer := search.next()) is not None:
        assert search.left() > 0
        search.saw(offer, "PASS" if offer.rate_urps <= boundary else "FAIL")
    assert search.left() == 0
