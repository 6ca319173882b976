"""The search against a fictitious engine: how long its trials take, and where they are."""

import pytest

from tests.measure.test_protocol_time import EXAMPLE, engine, trial
from tests.support.runs import small_spec, spec_in_mode
from tokenwatt_site.engine_model.load import Load
from tokenwatt_site.measure.rehearsal import (
    CASES,
    NOTHING,
    Span,
    over,
    rehearse,
    total,
    trial_seconds,
)
from tokenwatt_site.spec import load_spec
from tokenwatt_site.windows import windows_of


@pytest.mark.parametrize("share", [0.4, 0.7, 0.9, 0.97, 1.2, 1.6])
def test_a_trial_of_a_modelled_engine_takes_as_long_as_planned(share):
    spec = load_spec(EXAMPLE)
    windows = windows_of(spec)
    rate = round(5_090_000 * share)
    realisation = windows.realisation(1, windows.band_at(rate))
    outcome, seconds = trial(spec, engine(), Load.of(realisation), rate)
    low, high = trial_seconds(spec.setup.slo, realisation, rate, passes=outcome == "PASS")
    assert (outcome == "PASS") == (share < 1)
    assert low <= seconds <= high


def test_without_a_limit_for_the_time_per_token_answers_are_taken_as_long_as_at_50_ms():
    slo = [{"metric": "ttft", "quantile": 0.9, "limit_ms": 1500.0}]
    spec = small_spec(setup__slo=slo)
    windows = windows_of(spec)
    realisation = windows.realisation(1, windows.bands[0])
    low, high = trial_seconds(spec.setup.slo, realisation, 1_000_000, passes=True)
    longest = max(realisation.rows[row].output_tokens for row in realisation.scored_rows)
    assert high - low == pytest.approx(longest * 0.05)


@pytest.mark.parametrize("mode", ["demo", "quick", "full"])
@pytest.mark.parametrize("case", CASES)
def test_every_case_encloses_the_boundary_of_each_repeat(mode, case):
    spec = spec_in_mode(mode)
    for number, trials in enumerate(rehearse(spec, windows_of(spec), 3_000_000, case), 1):
        boundary = 3_000_000 * (1 + case.off(number))
        passing = [t.rate_urps for t in trials if t.passes]
        failing = [t.rate_urps for t in trials if not t.passes]
        assert max(passing) <= round(boundary) < min(failing)
        assert min(failing) <= max(passing) * spec.protocol.bracket_ratio
        assert len({t.rate_urps for t in trials}) == len(trials)


def test_a_right_prediction_takes_a_pilot_and_two_trials_and_then_two():
    spec = spec_in_mode("quick")
    first, second = rehearse(spec, windows_of(spec), 3_000_000, CASES[0])
    assert (len(first), len(second)) == (3, 2)


def test_spans_add_up_and_cover():
    spans = [Span(1, 5), Span(2, 3)]
    assert total(spans) == Span(3, 8) == spans[0].plus(spans[1])
    assert over(spans) == Span(1, 5)
    assert total([]) == NOTHING
    assert Span(1, 2).times(3) == Span(3, 6)
