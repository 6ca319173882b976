"""What is claimed of the long run: accepted by the rule, or refused with its reason."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import ModelEngine, RunBuilder, small_spec, spec_in_mode
from tokenwatt_site.claims.derive import derive
from tokenwatt_site.claims.long_run import difference, family_words
from tokenwatt_site.engine_model.model import Family
from tokenwatt_site.errors import InputError, VerificationError
from tokenwatt_site.journal import GENESIS, Entry
from tokenwatt_site.run import Claims
from tokenwatt_site.spec import Spec
from tokenwatt_site.statistics import SYSTEMATIC, pool
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import verify_run

SPEC = small_spec(protocol__repeats=3, protocol__scored=200, protocol__lead_in=40)


def claims_of(builder: RunBuilder, *, minutes: float = 5, **changes: Any) -> Claims:
    """Derive from a run whose journal has a line every so many minutes."""
    lines = [
        Entry(seq=seq, at=_at(seq * minutes), event=event, prev=GENESIS, data=data)
        for seq, (event, data) in enumerate(builder.journal_plan())
    ]
    evidence = builder.evidence(lines, builder.requests())
    return derive(builder.spec, replace(evidence, **changes))


def _at(minute: float) -> str:
    hours, rest = divmod(round(minute * 60), 3600)
    return f"2026-01-01T{hours:02}:{rest // 60:02}:{rest % 60:02}.000000Z"


@cache
def right(spec: Spec = SPEC) -> Claims:
    return claims_of(RunBuilder(spec, long_run=True))


def test_a_right_model_is_accepted_and_takes_the_luck_of_the_rows_out() -> None:
    found = right().long_run
    assert found.outcome == "accepted"
    assert "come to its boundary within" in found.text
    assert found.rms_percent is not None
    assert found.rms_percent < 3
    assert found.drift_percent is not None
    assert f"its steps changed by {found.drift_percent:+.1f}% over the trials" in found.text
    assert found.text.endswith("0.0% of requests were overtaken by later ones, 0.0% in the model")

    def spread(key: str) -> float:
        repeats = right().metric(key).repeats
        return max(repeats) / min(repeats)

    assert spread("long_run_rate") < 1.07  # launches differ by 1% each way
    assert spread("boundary_rate") > spread("long_run_rate")


def test_the_interval_holds_the_systematic_half_percent() -> None:
    rate = right().metric("long_run_rate")
    pooled = pool(rate.repeats, "geometric", SYSTEMATIC)
    assert (rate.value, rate.low, rate.high) == (pooled.value, pooled.low, pooled.high)
    plain = pool(rate.repeats, "geometric")
    assert pooled.low < plain.low < plain.high < pooled.high


def test_goodput_in_the_long_run_is_of_the_long_run_s_own_answers() -> None:
    rate, goodput = (right().metric(key) for key in ("long_run_rate", "long_run_goodput"))
    ratios = [g / r for g, r in zip(goodput.repeats, rate.repeats, strict=True)]
    assert ratios == pytest.approx([16.83] * 3, abs=0.05)
    assert max(ratios) == pytest.approx(min(ratios))


def test_rates_are_those_of_the_measured_engine_and_misses_meet_the_slo_at_its_boundary() -> None:
    found = right().long_run
    at = round(1e6 * (right().metric("long_run_rate").value or 0))
    assert any(abs(share.rate_urps - at) <= 2 for share in found.misses)
    for share in found.misses:
        if share.rate_urps <= at * 0.985:
            assert max(share.percent) < 10
        if share.rate_urps >= at * 1.015:
            assert max(share.percent) > 10
    assert found.windows_95_urps is not None
    assert found.windows_95_urps < at
    assert found.windows_kept_percent is not None
    assert 0 < found.windows_kept_percent < 95


def test_residuals_of_every_trial_are_told() -> None:
    found = right().long_run
    assert [t.trial for t in found.trials] == [t.trial for t in right().trials]
    assert found.trials[0].tpot_percent == pytest.approx(0, abs=1e-6)  # its launch has pace 1
    assert found.trials[3].tpot_percent == pytest.approx(1, abs=1)


def test_the_difference_to_what_was_measured_is_a_sentence() -> None:
    claims = right()
    said = claims.long_run.difference or ""
    ratio = (claims.metric("long_run_goodput").value or 0) / (claims.metric("goodput").value or 1)
    assert f"{abs(100 * (ratio - 1)):.1f}%" in said
    assert ("less" in said) == (ratio < 1)
    assert difference([]) is None


def test_without_a_model_nothing_is_corrected_and_it_says_so() -> None:
    claims = claims_of(RunBuilder(SPEC))
    assert claims.long_run.outcome == "none"
    assert claims.long_run.difference is None
    assert claims.metric("long_run_goodput").reason == "no engine model was fitted"
    caveat = next(c for c in claims.not_covered if c.what == "The long run")
    assert "No correction was made: no engine model was fitted." in caveat.why


@pytest.mark.parametrize(
    ("builder", "minutes", "said"),
    [
        pytest.param(
            RunBuilder(small_spec(protocol__repeats=2), long_run=True), 5, "there are 2", id="two"
        ),
        pytest.param(
            RunBuilder(SPEC, long_run=True, rates_urps=(100_000, 200_000)),
            5,
            "no repeat has a boundary",
            id="no boundary",
        ),
        pytest.param(
            RunBuilder(SPEC, long_run=True, spread=(1.0, 1.1, 0.9)), 5, "miss its", id="errors"
        ),
        pytest.param(
            RunBuilder(SPEC, long_run=True, spread=(1.018, 1.0, 0.98)), 5, "changed by", id="drift"
        ),
        pytest.param(
            RunBuilder(SPEC, long_run=True, engine=ModelEngine(late_ns=400_000_000)),
            5,
            "does not keep the order of its model",
            id="order",
        ),
    ],
)
def test_a_model_that_the_rule_does_not_carry_is_refused(
    builder: RunBuilder, minutes: float, said: str
) -> None:
    claims = claims_of(builder, minutes=minutes)
    assert claims.long_run.outcome == "refused"
    assert said in claims.long_run.text
    assert claims.metric("long_run_rate").value is None
    assert said in (claims.metric("long_run_rate").reason or "")
    assert claims.long_run.misses == ()


def test_trials_of_a_full_run_that_took_minutes_show_no_drift_and_are_refused() -> None:
    claims = claims_of(RunBuilder(spec_in_mode("full"), long_run=True), minutes=1)
    assert "spread over 20 minutes" in claims.long_run.text


def test_a_fit_of_another_run_is_an_error() -> None:
    other = RunBuilder(small_spec(protocol__repeats=3), long_run=True).fitted
    with pytest.raises(InputError, match="engine-model"):
        claims_of(RunBuilder(SPEC, long_run=True), model_fit=other)


def test_boundaries_that_were_made_up_cost_the_run(tmp_path: Path) -> None:
    builder = RunBuilder(SPEC, long_run=True)
    fit = builder.fitted
    assert fit is not None
    full = fit.fits[0]
    first = full.boundaries[0]
    better = first.model_copy(
        update={"pass_urps": first.pass_urps + 50_000, "fail_urps": first.fail_urps + 50_000}
    )
    forged = full.model_copy(update={"boundaries": (better, *full.boundaries[1:])})
    lied = fit.model_copy(update={"fits": (forged, *fit.fits[1:])})
    path = builder.write(tmp_path)
    assert verify_run(path, root=tmp_path, keyring=Keyring()).claims.long_run.outcome == "accepted"
    folder = tmp_path / "lied"
    path = replace(builder, published={"long_run": False, "model_fit": lied}).write(folder)
    with pytest.raises(VerificationError, match=r"check 10.*does not show") as refused:
        verify_run(path, root=folder, keyring=Keyring())
    assert refused.value.check == 10


def test_a_family_is_told_in_words() -> None:
    family = Family(prefill="first", token_budget=2048, max_batch=8, kv_tokens=5000, replicas=2)
    assert family_words(family) == (
        "prefill first, at most 2,048 tokens a step, at most 8 sequences, 5,000 tokens of cache,"
        " 2 replicas"
    )
