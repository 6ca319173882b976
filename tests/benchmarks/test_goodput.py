"""What the benchmark of the long run counts, and that its engines are what they are said to be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tests.benchmarks.goodput import FAMILIES, FITTED, WRONG, figures_of, wilson_high
from tests.support.virtual import Engine
from tokenwatt_site.engine_model.load import Load, play
from tokenwatt_site.engine_model.model import EngineModel, Family, Prices
from tokenwatt_site.workload import NAMED

LOAD = Load.of(NAMED["chat-mix-v1"].realisation(1, lead_in=50, scored=200, tail=50))
QUIET = Engine(0.008, 0.00028, 1.2e-5, 1e-7, noise=0.0)
PRICES = Prices(
    base_ps=8 * 10**9,
    sequence_ps=280 * 10**6,
    prompt_token_ps=12 * 10**6,
    context_token_ps=100_000,
)


@pytest.mark.parametrize(
    ("engine", "family"),
    [
        (QUIET, Family(prefill="chunked", token_budget=8192, max_batch=1 << 20)),
        (
            replace(QUIET, budget=512, cap=16),
            Family(prefill="chunked", token_budget=512, max_batch=16),
        ),
        (
            replace(QUIET, prefill_first=True),
            Family(prefill="first", token_budget=8192, max_batch=1 << 20),
        ),
    ],
)
def test_a_virtual_engine_without_luck_is_the_model_of_its_family(engine, family):
    virtual = engine.play(LOAD, 5_000_000, 1)
    modelled = play(EngineModel(family, PRICES), LOAD, 5_000_000)
    # The model rounds each step to a ns, of which an answer has up to 1,536.
    assert np.abs(virtual.first_ns - modelled.first_ns).max() < 20_000
    assert np.abs(virtual.last_ns - modelled.last_ns).max() < 20_000


@pytest.mark.parametrize(
    "change",
    [
        {"noise": 0.05},
        {"stall": 0.05},
        {"pause_every_s": 20.0, "pause_s": 1.5},
        {"drift": 5.0},
        {"power": 1.1},
        {"kv": 20_000},
        {"replicas": 2},
        {"cap": 8, "shortest_first": True},
    ],
)
def test_each_kind_of_trouble_changes_when_answers_end_and_none_is_lost(change):
    engine = replace(QUIET, **change)
    played = engine.play(LOAD, 5_000_000, 1)
    assert (played.last_ns >= played.first_ns).all()
    assert (played.first_ns > played.due_ns).all()
    assert (played.last_ns != QUIET.play(LOAD, 5_000_000, 1).last_ns).any()
    assert (played.put_back > 0) == ("kv" in change)
    again = engine.play(LOAD, 5_000_000, 1)
    assert (again.last_ns == played.last_ns).all()


def measurement(family, outcome="accepted", corrected=(0.01, 0.03), inside=True):
    return {
        "family": family,
        "number": 0,
        "outcome": outcome,
        "measured": [0.05],
        "corrected": list(corrected),
        "inside": inside,
        "trials": [8, 4, 3],
        "engine_s": 1000.0,
        "window": 0.10,
        "long": [0.04, 0.04],
        "long_s": 20_000.0,
    }


def test_refused_measurements_count_as_refused_and_nowhere_else():
    figures = figures_of(
        [
            measurement("chunked"),
            measurement("chunked", corrected=(-0.01, 0.01), inside=False),
            measurement("chunked", "refused", corrected=(9.0,), inside=None),
            measurement("pauses", "refused", inside=None),
            measurement("drift"),
        ]
    )
    assert figures["refused_pct_chunked"] == pytest.approx(100 / 3)
    assert figures["corrected_abs_bias_pct_chunked"] == pytest.approx(1.0)
    assert figures["coverage_pct_chunked"] == figures["coverage_pct"] == 50.0
    assert figures["wrong_refused_pct"] == 50.0
    assert figures["window_abs_bias_pct_pauses"] == pytest.approx(10.0)
    # Means of repeats are off by 2% and 0: an rms of 1.41%, against 4% in 20 times the time.
    assert figures["engine_time_ratio_chunked"] == pytest.approx(20 * 16 / 2)


def test_every_family_is_either_to_be_accepted_or_to_be_refused():
    assert set(FAMILIES) == set(FITTED) | set(WRONG)
    assert not set(FITTED) & set(WRONG)


@pytest.mark.parametrize(("hits", "n"), [(57, 60), (60, 60), (0, 4), (180, 200)])
def test_the_upper_end_of_a_share_is_scipys(hits, n):
    interval = stats.binomtest(hits, n).proportion_ci(method="wilson")
    assert wilson_high(hits, n) == pytest.approx(100 * interval.high, abs=1e-3)
