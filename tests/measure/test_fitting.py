"""Prices and family of an engine from token times that a known engine made, without any noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.support.runs import RunBuilder, small_spec
from tokenwatt_site.engine_model.boundary import find_edges, shows
from tokenwatt_site.engine_model.load import Load, play
from tokenwatt_site.engine_model.model import EngineModel, Family, Prices
from tokenwatt_site.engine_model.steps import NONE
from tokenwatt_site.measure import fitting
from tokenwatt_site.measure.fitting import NO_CAP, Seen, model_fit, predict, seen_of
from tokenwatt_site.spec import Objective
from tokenwatt_site.workload import NAMED

SLO = (
    Objective(metric="ttft", quantile=0.9, limit_ms=2000),
    Objective(metric="tpot", quantile=0.9, limit_ms=40),
)
SPEC = small_spec(setup__slo=[objective.to_json() for objective in SLO])
PRICES = Prices(
    base_ps=9 * 10**9,
    sequence_ps=250 * 10**6,
    prompt_token_ps=14 * 10**6,
    context_token_ps=20_000,
)
CHUNKED = Family(prefill="chunked", token_budget=1024, max_batch=NO_CAP)
LOADS = {
    r: Load.of(NAMED["chat-mix-v1"].realisation(r, lead_in=100, scored=250, tail=50))
    for r in (1, 2, 3)
}


def boundary(engine, load):
    edges = find_edges(engine, load, SLO, 5_000_000)
    assert edges is not None
    return edges.boundary_urps


def trials_of(engine, repeats=(1, 2, 3), shares=(0.97, 1.01)):
    seen = []
    for repeat in repeats:
        near = boundary(engine, LOADS[repeat])
        for number, share in enumerate(shares, 1):
            played = play(engine, LOADS[repeat], rate := round(near * share))
            first, last = played.first_ns, played.last_ns
            seen.append(Seen(repeat, number, LOADS[repeat], rate, first, last))
    return seen


def fitted(engine, seen, repeats=(1, 2, 3)):
    boundaries = {r: boundary(engine, LOADS[r]) for r in repeats}
    return model_fit(SPEC, seen, LOADS, None, boundaries)


@pytest.fixture(scope="module")
def chunked():
    engine = EngineModel(CHUNKED, PRICES)
    return engine, fitted(engine, trials_of(engine))


def test_the_family_and_what_steps_cost_are_found_again(chunked):
    _, fit = chunked
    full = fit.fits[0]
    assert (full.left_out, full.family) == (0, CHUNKED)
    assert full.prices.base_ps == pytest.approx(PRICES.base_ps, rel=0.1)
    assert full.prices.prompt_token_ps == pytest.approx(PRICES.prompt_token_ps, rel=0.1)
    # What decoding costs may go by sequence or by context, which rise and fall together.
    context = 2000
    decoding = full.prices.sequence_ps + context * full.prices.context_token_ps
    assert decoding == pytest.approx(
        PRICES.sequence_ps + context * PRICES.context_token_ps, rel=0.1
    )


def test_every_model_has_the_boundary_of_the_engine_where_it_was_not_fitted(chunked):
    engine, fit = chunked
    assert [f.left_out for f in fit.fits] == [0, 1, 2, 3]
    for without in fit.fits[1:]:
        (told,) = without.boundaries
        assert told.repeat == without.left_out
        error = math.log(told.pass_urps / boundary(engine, LOADS[told.repeat]))
        assert abs(error) < 0.02


def test_what_is_stated_of_boundaries_is_what_a_replay_shows(chunked):
    _, fit = chunked
    for each in fit.fits:
        model = EngineModel(each.family, each.prices)
        for told in each.boundaries:
            edges = find_edges(model, LOADS[told.repeat], SLO, told.pass_urps)
            assert edges is not None
            assert shows(edges, model, LOADS[told.repeat], SLO)
            assert edges.pass_urps == pytest.approx(told.pass_urps, rel=1e-3)


@pytest.mark.parametrize(
    "family",
    [
        Family(prefill="first", token_budget=8192, max_batch=NO_CAP),
        Family(prefill="chunked", token_budget=8192, max_batch=24),
    ],
)
def test_other_families_are_told_by_what_the_client_saw(family):
    engine = EngineModel(family, PRICES)
    fit = fitted(engine, trials_of(engine, (1,)), (1,))
    (full,) = fit.fits
    assert (full.family.prefill, full.family.max_batch) == (family.prefill, family.max_batch)


def test_an_engine_of_any_speed_is_found_from_one_trial():
    for factor in (10, 300):
        slow = Prices(**{name: price * factor for name, price in PRICES.to_json().items()})
        spec = small_spec(
            setup__slo=[
                {"metric": "ttft", "quantile": 0.9, "limit_ms": 2000.0 * factor},
                {"metric": "tpot", "quantile": 0.9, "limit_ms": 40.0 * factor},
            ]
        )
        engine = EngineModel(CHUNKED, slow)
        near = boundary(EngineModel(CHUNKED, PRICES), LOADS[1]) // factor
        played = play(engine, LOADS[1], near * 9 // 10)
        seen = Seen(1, 1, LOADS[1], near * 9 // 10, played.first_ns, played.last_ns)
        assert predict(spec, [seen], LOADS[2], near) == pytest.approx(
            boundary(EngineModel(CHUNKED, PRICES), LOADS[2]) / factor, rel=0.03
        )


def test_what_failed_or_was_censored_is_offered_to_the_model_and_not_compared(chunked):
    engine, _ = chunked
    (whole,) = trials_of(engine, (1,), (0.97,))
    hidden = np.arange(len(whole.first_ns)) % 5 == 0
    partly = replace(
        whole,
        first_ns=np.where(hidden, NONE, whole.first_ns),
        last_ns=np.where(hidden, NONE, whole.last_ns),
    )
    near = boundary(engine, LOADS[1])
    assert predict(SPEC, [partly], LOADS[1], near) == pytest.approx(near, rel=0.02)


def test_the_same_trials_give_the_same_model(chunked):
    engine, _ = chunked
    seen = trials_of(engine, (1,), (0.97,))
    assert fitted(engine, seen, (1,)) == fitted(engine, seen, (1,))


def test_nothing_to_fit_gives_no_model(chunked):
    engine, _ = chunked
    (whole,) = trials_of(engine, (1,), (0.97,))
    nothing = np.full(len(whole.first_ns), NONE)
    silent = replace(whole, first_ns=nothing, last_ns=nothing)
    assert predict(SPEC, [], LOADS[1], 5_000_000) is None
    assert predict(SPEC, [silent], LOADS[1], 5_000_000) is None
    assert model_fit(SPEC, [silent], LOADS, None, {1: 5_000_000}) is None
    assert model_fit(SPEC, [whole], LOADS, None, {}) is None


def test_a_trial_tells_the_rows_that_were_sent_and_the_times_that_were_seen():
    trial = RunBuilder().trials()[0]
    seen = seen_of(trial)
    assert (seen.repeat, seen.trial, seen.rate_urps) == (
        trial.repeat,
        trial.number,
        trial.rate_urps,
    )
    assert len(seen.load.n_in) == len(seen.first_ns) == len(trial.records)
    for record, first, last in zip(trial.records, seen.first_ns, seen.last_ns, strict=True):
        ended = record.status is fitting.Status.OK
        assert first == (record.first_ns if ended else NONE)
        if ended and record.first_tokens == 1:
            steps = record.output_asked - 1
            assert abs(last - (record.last_ns or 0)) <= steps / 2
