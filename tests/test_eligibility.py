"""Tests of eligibility."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.runs import (
    RunBuilder,
    a_key,
    answers_of,
    gated_spec,
    gpu_spec,
    keyring_of,
    played_power,
    revoked_key,
    small_spec,
    spec_in_mode,
)
from tests.support.statements import state
from tokenwatt_site.configuration import Configuration, group
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.predicates import Kind
from tokenwatt_site.trust.registration import register
from tokenwatt_site.trust.verify import ValidatedRun, settle, verify_run

RECORDED = {
    "setup__accelerator__memory_gib": 64,
    "setup__accelerator__rated_bandwidth_gb_s": 100.0,
    "setup__accelerator__power_limit_w": 65.0,
}
GATE = {"setup__accuracy_gate__task": "gsm8k"}


def configuration(
    folder: Path, builder: RunBuilder, keyring: Keyring | None = None
) -> Configuration:
    run = verify_run(builder.write(folder), root=folder, keyring=keyring or Keyring())
    return group([run])[0]


def codes(subject: Configuration) -> list[str]:
    return [exclusion.code for exclusion in subject.exclusions]


def text(subject: Configuration, code: str) -> str:
    return next(exclusion.text for exclusion in subject.exclusions if exclusion.code == code)


def test_a_simulated_demo_by_an_unknown_key_has_every_reason_that_applies(tmp_path: Path) -> None:
    assert codes(configuration(tmp_path, RunBuilder())) == [
        "simulated",
        "mode",
        "key",
        "accuracy",
        "launches",
        "long-run",
        "setup",
    ]


def test_a_full_recorded_run_by_a_known_key_lacks_what_this_version_cannot_measure(
    tmp_path: Path,
) -> None:
    builder = RunBuilder(simulated=False, spec=spec_in_mode("full", **RECORDED, **GATE))
    subject = configuration(tmp_path, builder, keyring_of(tmp_path / "keys", a_key()))
    assert codes(subject) == ["accuracy", "long-run"]


def test_a_full_run_whose_long_run_is_accepted_lacks_its_gate_alone(tmp_path: Path) -> None:
    spec = spec_in_mode("full", **RECORDED, **GATE)
    builder = RunBuilder(simulated=False, long_run=True, spec=spec)
    subject = configuration(tmp_path, builder, keyring_of(tmp_path / "keys", a_key()))
    assert codes(subject) == ["accuracy"]
    refused = replace(builder, spread=(1.0, 1.1, 0.9))
    found = text(configuration(tmp_path / "refused", refused), "long-run")
    assert found.startswith("the correction to the long run is refused: models fitted without")


def test_quick_mode_does_not_rank_and_the_reason_names_it(tmp_path: Path) -> None:
    subject = configuration(tmp_path, RunBuilder(spec=spec_in_mode("quick")))
    assert "quick mode" in text(subject, "mode")
    assert "2 launches" in text(subject, "launches")


def test_an_unknown_key_is_named(tmp_path: Path) -> None:
    subject = configuration(tmp_path, RunBuilder())
    assert subject.headline.keyid in text(subject, "key")


def test_b8_a_number_that_physics_forbids_bars_with_its_reason(tmp_path: Path) -> None:
    builder = RunBuilder(spec=gpu_spec(), idle_s=12)
    hot = replace(builder, power=played_power(builder, load_mw=500_000))
    subject = configuration(tmp_path / "hot", hot)
    assert text(subject, "physics") == (
        "Tokens per joule is INVALID: repeat 1: board 0 (Toy GPU): drew 1.25 x its power limit on"
        " average"
    )
    warm = replace(builder, power=played_power(builder, load_mw=440_000))
    assert "physics" not in codes(configuration(tmp_path / "warm", warm))


def test_b1_energy_that_is_not_reconciled_is_marked_and_does_not_bar(tmp_path: Path) -> None:
    builder = RunBuilder(spec=gpu_spec())
    power = played_power(builder)
    half = tuple(replace(s, power_mw=(s.power_mw or 0) // 2) for s in power.samples)
    subject = configuration(tmp_path, replace(builder, power=replace(power, samples=half)))
    assert {o.level for o in subject.claims.outcomes} == {"not reconciled"}
    assert "physics" not in codes(subject)


def test_an_interrupted_run_does_not_rank(tmp_path: Path) -> None:
    assert "interrupted" in codes(configuration(tmp_path, RunBuilder(status="interrupted")))


def test_an_slo_that_no_rate_met_is_a_reason(tmp_path: Path) -> None:
    spec = small_spec(setup__slo=[{"metric": "ttft", "quantile": 0.9, "limit_ms": 100.0}])
    subject = configuration(tmp_path, RunBuilder(spec=spec, rates_urps=(1_000_000,)))
    assert not subject.claims.slo_met
    assert {"slo", "launches"} <= set(codes(subject))


def test_launches_without_a_boundary_do_not_count(tmp_path: Path) -> None:
    spec = small_spec(protocol__repeats=3)
    subject = configuration(tmp_path, RunBuilder(spec=spec, rates_urps=(1_000_000,)))
    assert "0 launches" in text(subject, "launches")


def test_fields_that_were_not_recorded_are_named(tmp_path: Path) -> None:
    spec = small_spec(
        setup__kernel_libraries="not recorded", setup__quantization__kv_cache="not recorded"
    )
    listed = text(configuration(tmp_path, RunBuilder(spec=spec)), "setup")
    for name in ("kernel libraries", "KV cache", "memory of each (GiB)"):
        assert name in listed


def test_an_accuracy_gate_that_was_not_asked_for_or_not_measured_says_so(tmp_path: Path) -> None:
    absent = configuration(tmp_path / "a", RunBuilder())
    assert text(absent, "accuracy") == "no accuracy gate was asked for"
    asked = configuration(tmp_path / "b", RunBuilder(spec=small_spec(**GATE)))
    assert text(asked, "accuracy") == "the accuracy gate was not run"


def right(n: int) -> list[bool]:
    """Return which of 400 questions are answered right: the first n."""
    return [question < n for question in range(400)]


def gated(folder: Path, driver: str, answered: list[bool], **changes: Any) -> ValidatedRun:
    """Write a run of this driver with these answers, and verify it."""
    role = "candidate" if "reference" in changes else "baseline"
    changes.setdefault("simulated", False)
    spec = gated_spec(400, max_drop_points=5.0, role=role, setup__driver=driver)
    builder = RunBuilder(spec=spec, accuracy=answers_of(spec, answered), **changes)
    keyring = keyring_of(folder / "keys", a_key())
    return verify_run(builder.write(folder), root=folder, keyring=keyring)


def against(reference: ValidatedRun) -> dict[str, Any]:
    return {
        "reference": reference.evidence.accuracy,
        "reference_run": reference.run_id,
        "reference_configuration": reference.run.configuration,
    }


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> ValidatedRun:
    return gated(tmp_path_factory.mktemp("baseline"), "one", right(360))


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory, baseline: ValidatedRun) -> ValidatedRun:
    return gated(tmp_path_factory.mktemp("failed"), "two", right(200), **against(baseline))


def of(run: ValidatedRun, *others: ValidatedRun) -> Configuration:
    """Return the configuration of `run` on a site that has the others too."""
    return next(c for c in group([run, *others]) if c.headline is run)


def test_a_baseline_with_answers_is_not_barred_by_its_gate(baseline: ValidatedRun) -> None:
    assert baseline.claims.gate.outcome == "reference"
    assert "accuracy" not in codes(of(baseline))


def test_a_gate_that_was_passed_counts_where_the_reference_is_here(
    tmp_path: Path, baseline: ValidatedRun
) -> None:
    run = gated(tmp_path, "three", right(359), **against(baseline))
    assert run.claims.gate.outcome == "passed"
    assert "accuracy" not in codes(of(run, baseline))
    assert text(of(run), "accuracy") == (
        f"the accuracy gate was passed against run {baseline.run_id}, which is not here with these"
        " answers"
    )


def test_a_gate_passed_against_a_run_of_an_unknown_signer_does_not_count(
    tmp_path: Path, baseline: ValidatedRun
) -> None:
    run = gated(tmp_path, "three", right(359), **against(baseline))
    root = baseline.path.parent
    stranger = verify_run(baseline.path, root=root, keyring=Keyring())
    assert text(of(run, stranger), "accuracy") == (
        f"the accuracy gate was passed against run {baseline.run_id}, whose key is not registered"
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"simulated": True}, "which is simulated"),
        ({"status": "interrupted"}, "which is interrupted"),
        ({"reference": None}, "did not pass: a score only"),
    ],
)
def test_a_run_that_could_not_rank_by_its_answers_is_no_reference(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    weak = gated(tmp_path / "weak", "one", right(200), **changes)
    run = gated(tmp_path / "run", "three", right(200), **against(weak))
    assert run.claims.gate.outcome == "passed"
    assert why in text(of(run, weak), "accuracy")


def test_a_reference_of_another_name_is_not_the_run_that_is_here(
    tmp_path: Path, baseline: ValidatedRun
) -> None:
    named = {**against(baseline), "reference_configuration": "somebody-elses-000000000000"}
    run = gated(tmp_path, "three", right(359), **named)
    assert "which is not here with these answers" in text(of(run, baseline), "accuracy")


def test_a_gate_that_was_failed_bars_with_its_own_words(
    baseline: ValidatedRun, failed: ValidatedRun
) -> None:
    assert text(of(failed, baseline), "accuracy") == failed.claims.gate.text
    assert failed.claims.gate.text.startswith("the accuracy gate failed: 50.0% of 400")


def test_a_gate_is_not_passed_against_a_run_that_failed_its_own(
    tmp_path: Path, baseline: ValidatedRun, failed: ValidatedRun
) -> None:
    run = gated(tmp_path, "three", right(200), **against(failed))
    assert run.claims.gate.outcome == "passed"
    assert text(of(run, failed, baseline), "accuracy").startswith(
        "the run whose answers were compared with did not pass: the accuracy gate failed"
    )


def test_what_was_itself_compared_is_no_reference_or_allowed_drops_would_add_up(
    tmp_path: Path, baseline: ValidatedRun
) -> None:
    second = gated(tmp_path / "second", "two", right(359), **against(baseline))
    run = gated(tmp_path / "third", "three", right(358), **against(second))
    assert "accuracy" not in codes(of(second, baseline))
    assert text(of(run, second, baseline), "accuracy") == (
        f"the accuracy gate was passed against run {second.run_id}, which is no baseline: it was"
        " itself compared with another"
    )


def test_a_score_without_a_reference_does_not_rank(tmp_path: Path) -> None:
    run = gated(tmp_path, "three", right(360), reference=None)
    assert "score only" in text(of(run), "accuracy")


def test_what_was_withdrawn_superseded_or_disputed_does_not_rank_and_says_so_first(
    tmp_path: Path,
) -> None:
    path = RunBuilder().write(tmp_path)
    keyring = keyring_of(tmp_path / "keys", a_key(), a_key(2))
    for kind, key in (("disputed", 2), ("superseded", 1), ("withdrawn", 1)):
        state(path, cast("Kind", kind), a_key(key))
    subject = group([verify_run(path, root=tmp_path, keyring=keyring)])[0]
    assert codes(subject)[:3] == ["withdrawn", "superseded", "disputed"]
    assert text(subject, "withdrawn") == "withdrawn by its publisher: the driver was another one"
    assert text(subject, "superseded") == (
        "superseded by another run of its publisher: more launches"
    )
    assert text(subject, "disputed") == "disputed by Lab 2: too fast for its clocks"


def test_a_dispute_by_a_stranger_bars_nothing(tmp_path: Path) -> None:
    path = RunBuilder().write(tmp_path)
    state(path, "disputed", a_key(9))
    keyring = keyring_of(tmp_path / "keys", a_key())
    subject = group([verify_run(path, root=tmp_path, keyring=keyring)])[0]
    assert "disputed" not in codes(subject)


def test_f19_a_key_that_was_revoked_bars_unless_a_witness_was_before(tmp_path: Path) -> None:
    path = RunBuilder().write(tmp_path)
    revoked = revoked_key(
        register(a_key(), name="Lab 1"),
        at=datetime(2026, 2, 10, tzinfo=UTC),
        reason="lost",
        private_key=a_key(),
    )
    keyring = Keyring().including(register(a_key(2), name="Lab 2")).including(revoked)
    subject = group([verify_run(path, root=tmp_path, keyring=keyring)])[0]
    assert "was revoked at 2026-02-10" in text(subject, "key")
    state(path, "countersigned", a_key(2))
    subject = group([verify_run(path, root=tmp_path, keyring=keyring)])[0]
    assert "key" not in codes(subject)


@pytest.mark.parametrize(
    ("kind", "words"), [("withdrawn", "which was taken back"), ("disputed", "which is disputed")]
)
def test_a_reference_that_was_taken_back_or_is_disputed_is_none(
    tmp_path: Path, kind: Kind, words: str
) -> None:
    reference = gated(tmp_path / "reference", "one", right(360))
    run = gated(tmp_path / "run", "three", right(359), **against(reference))
    state(reference.path, kind, a_key())
    keyring = keyring_of(tmp_path / "keys", a_key())
    (fallen,) = settle([reference], keyring)
    assert words in text(of(run, fallen), "accuracy")
