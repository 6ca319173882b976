"""The long run by an engine model: corrected boundaries, the rule, and what users feel."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.engine_model.boundary import find_edges
from tokenwatt_site.engine_model.document import Boundary, Fit, ModelFit
from tokenwatt_site.engine_model.load import Load, Played, play
from tokenwatt_site.engine_model.long_run import (
    Corrected,
    Kept,
    LongRun,
    Measured,
    find_windows_95,
    kept,
    lacks,
    long_run,
    outlook,
)
from tokenwatt_site.engine_model.model import EngineModel, Family, Prices
from tokenwatt_site.errors import InputError
from tokenwatt_site.goodput import rank
from tokenwatt_site.spec import Objective
from tokenwatt_site.workload import NAMED

SLO = (
    Objective(metric="ttft", quantile=0.9, limit_ms=1500.0),
    Objective(metric="tpot", quantile=0.9, limit_ms=150.0),
)
MODEL = EngineModel(
    Family(prefill="chunked", token_budget=512, max_batch=64),
    Prices(
        base_ps=30 * 10**9,
        sequence_ps=12 * 10**9,
        prompt_token_ps=500 * 10**6,
        context_token_ps=10**6,
    ),
)


def a_load(number: int, scored: int) -> Load:
    drawn = NAMED["demo-mix-v1"].realisation(number, lead_in=50, scored=scored, tail=100)
    return Load.of(drawn)


LONG = a_load(9, 4000)
LOADS = {repeat: a_load(repeat, 300) for repeat in (1, 2, 3)}


def boundary(repeat: int, load: Load) -> Boundary:
    edges = find_edges(MODEL, load, SLO, 2_800_000)
    assert edges is not None
    return Boundary(repeat=repeat, pass_urps=edges.pass_urps, fail_urps=edges.fail_urps)


def a_fit(left_out: int, *boundaries: Boundary) -> Fit:
    return Fit(left_out=left_out, family=MODEL.family, prices=MODEL.prices, boundaries=boundaries)


OWN = {repeat: boundary(repeat, load) for repeat, load in LOADS.items()}
OVERALL = boundary(0, LONG)


def model_fit(repeats: tuple[int, ...] = (1, 2, 3), **changes: object) -> ModelFit:
    fits = [a_fit(0, OVERALL, *(OWN[r] for r in repeats))]
    if len(repeats) > 1:
        fits += [a_fit(r, OWN[r]) for r in repeats]
    fit = ModelFit(format="tokenwatt/engine-model/1", fits=tuple(fits), windows_95=None)
    return fit.model_copy(update=changes)


def measured(*factors: float) -> list[Measured]:
    """Return boundaries that are so many times those of the model."""
    return [
        Measured(repeat, LOADS[repeat], round(_middle(OWN[repeat]) * factor))
        for repeat, factor in enumerate(factors, start=1)
    ]


def _middle(told: Boundary) -> int:
    return math.isqrt(told.pass_urps * told.fail_urps)


def test_each_repeat_is_corrected_by_what_the_model_makes_of_its_rows() -> None:
    found = long_run(model_fit(), SLO, measured(1.0, 1.01, 0.99), LONG)
    for corrected, factor in zip(found.repeats, (1.0, 1.01, 0.99), strict=True):
        assert corrected.corrected_urps == pytest.approx(_middle(OVERALL) * factor, rel=1e-5)
        assert corrected.error == pytest.approx(math.log(factor), abs=1e-5)
    assert found.rms == pytest.approx(
        math.sqrt((math.log(1.01) ** 2 + math.log(0.99) ** 2) / 3), abs=1e-6
    )
    assert found.refusal is None
    mean = math.exp(sum(math.log(r.corrected_urps) for r in found.repeats) / 3)
    assert found.corrected_urps == math.floor(mean + 1e-6)


def test_the_model_s_own_boundary_is_told_at_the_corrected_rate() -> None:
    found = long_run(model_fit(), SLO, measured(1.02, 1.02, 1.02), LONG)
    assert found.scaled(found.edges.boundary_urps) == found.corrected_urps
    assert found.scaled(1_000_000) == pytest.approx(1_020_000, rel=1e-4)


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        ((1.0, 1.0), "there are 2"),
        ((1.0,), "there are 1"),
        ((1.05, 0.96, 1.0), "miss its boundary by 3.7%"),
    ],
)
def test_too_few_repeats_or_errors_too_large_are_refused(
    factors: tuple[float, ...], said: str
) -> None:
    repeats = tuple(range(1, len(factors) + 1))
    found = long_run(model_fit(repeats), SLO, measured(*factors), LONG)
    assert said in (found.refusal or "")


def test_one_repeat_alone_has_no_error() -> None:
    found = long_run(model_fit((1,)), SLO, measured(1.0), LONG)
    assert (found.repeats[0].error, found.rms) == (None, None)


SHIFTED = Boundary(
    repeat=2, pass_urps=OWN[2].pass_urps + 90_000, fail_urps=OWN[2].fail_urps + 90_000
)


@pytest.mark.parametrize(
    "fit",
    [
        pytest.param(model_fit((1, 2)), id="a repeat is not in it"),
        pytest.param(model_fit(fits=model_fit().fits[:3]), id="none is left out"),
        pytest.param(
            model_fit(fits=(a_fit(0, OVERALL, OWN[1], SHIFTED, OWN[3]), *model_fit().fits[1:])),
            id="another boundary is told",
        ),
        pytest.param(
            model_fit(fits=(*model_fit().fits[:2], a_fit(2, SHIFTED), a_fit(3, OWN[3]))),
            id="another is told of a repeat left out",
        ),
        pytest.param(
            model_fit(
                fits=(
                    a_fit(0, OVERALL.model_copy(update={"fail_urps": 4_000_000}), *OWN.values()),
                    *model_fit().fits[1:],
                )
            ),
            id="its edges lie apart",
        ),
        pytest.param(model_fit(windows_95=(2_799_000, 2_800_000)), id="windows that are not 95%"),
    ],
)
def test_a_fit_that_does_not_show_what_it_states_is_refused(fit: ModelFit) -> None:
    with pytest.raises(InputError, match="engine-model"):
        long_run(fit, SLO, measured(1.0, 1.0, 1.0), LONG)


def test_a_fit_says_which_boundary_it_lacks() -> None:
    assert lacks(model_fit(), [1, 2, 3]) is None
    assert "repeat 3 offered" in str(lacks(model_fit((1, 2)), [1, 2, 3]))
    no_overall = model_fit(fits=(a_fit(0, *OWN.values()), *model_fit().fits[1:]))
    assert "in the long run" in str(lacks(no_overall, [1, 2, 3]))
    assert "without repeat 2" in str(
        lacks(model_fit(fits=(*model_fit().fits[:2], a_fit(2))), [1, 2])
    )


def test_misses_rise_with_the_rate_and_reach_what_is_allowed_at_the_boundary() -> None:
    found = long_run(model_fit(), SLO, measured(1.0, 1.0, 1.0), LONG)
    ahead = outlook(found, SLO, LONG)
    worst = [max(percent) for _, percent in ahead.misses]
    assert worst == sorted(worst)
    rates = [rate for rate, _ in ahead.misses]
    at = rates.index(found.edges.boundary_urps)
    assert worst[at - 1] < 10 < worst[at + 1]
    assert ahead.hours is None or ahead.hours.spans > 0


def test_95_of_100_windows_keep_the_slo_below_the_long_run_boundary() -> None:
    edges = find_windows_95(MODEL, LONG, SLO, _middle(OVERALL))
    assert edges is not None
    assert edges.adjacent
    assert edges.boundary_urps < _middle(OVERALL)
    fit = model_fit(windows_95=tuple(edges))
    found = long_run(fit, SLO, measured(1.0, 1.0, 1.0), LONG)
    assert found.windows_95 == edges


@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.integers(0, 4), st.integers(0, 300), st.integers(1, 4)),
        min_size=2,
        max_size=60,
    ),
    st.sampled_from([0.5, 0.9]),
)
def test_windows_are_counted_as_a_slow_reader_counts_them(
    rows: list[tuple[int, int, int, int]], quantile: float
) -> None:
    slo = tuple(
        Objective(metric=metric, quantile=quantile, limit_ms=limit)
        for metric, limit in (("ttft", 2000.0), ("tpot", 50_000.0))
    )
    second = 10**9
    due = [second * at for at in itertools.accumulate(gap for gap, *_ in rows)]
    first = [at + second * wait for at, (_, wait, _, _) in zip(due, rows, strict=True)]
    last = [at + second * length for at, (_, _, length, _) in zip(first, rows, strict=True)]
    asked = [n for *_, n in rows]
    played = Played(*(np.array(c, np.int64) for c in (due, first, last)), 0)
    columns = np.array(asked, np.int64)
    load = Load(elapsed=columns, n_in=columns, n_out=columns, scored=slice(0, len(rows)))

    def keeps(start: int) -> bool:
        inside = [i for i, at in enumerate(due) if start <= at < start + 600 * second]
        late = [first[i] - due[i] > 2 * second for i in inside]
        answered = [i for i in inside if asked[i] > 1]
        slow = [round((last[i] - first[i]) / (asked[i] - 1)) > 50 * second for i in answered]
        return all(sum(m) <= len(m) - rank(quantile, len(m)) for m in (late, slow))

    starts = range(due[0], due[-1] - 600 * second + 1, 60 * second)
    spans = [keeps(start) for start in starts]
    expected = Kept(sum(spans), len(spans)) if spans else None
    assert kept(played, load, slo, 600 * second) == expected


def test_a_long_run_with_more_windows_than_anybody_asks_about_has_none() -> None:
    assert kept(play(MODEL, LONG, 50), LONG, SLO, 600 * 10**9) is None


@given(st.lists(st.integers(1, 10**11), min_size=1, max_size=6))
def test_the_mean_of_corrected_rates_is_exact(rates: list[int]) -> None:
    edges = find_edges(MODEL, LOADS[1], SLO, 2_800_000)
    assert edges is not None
    found = LongRun(MODEL, tuple(Corrected(1, r, r, r, r) for r in rates), edges, None)
    product, k, mean = math.prod(rates), len(rates), found.corrected_urps
    assert mean**k <= product < (mean + 1) ** k
