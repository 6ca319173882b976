"""Which run's answers a new run's are compared with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import RunBuilder, answers_of, gated_spec
from tokenwatt_site.commands.reference import find_reference, score_of
from tokenwatt_site.errors import UsageError
from tokenwatt_site.evidence.answers import AccuracyLog
from tokenwatt_site.measure.accuracy.reference_run import Reference
from tokenwatt_site.run import SIMULATED_ENGINE
from tokenwatt_site.spec import Spec
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import verify_run

NO_KEYS = Keyring({})


def answers_to(spec: Spec) -> AccuracyLog:
    """Return answers to all questions of a gate, of which the first 15 are right."""
    return answers_of(spec, [n < 15 for n in range(int(spec.setup.accuracy_gate.questions))])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def published(runs: Path, name: str, spec: Spec | None = None, **options: Any) -> str:
    """Write a run that answered its gate, in a folder of its own, and return its id."""
    spec = gated_spec() if spec is None else spec
    log = answers_to(spec) if spec.setup.accuracy_gate.asked else None
    builder = RunBuilder(**{"spec": spec, "simulated": False, "accuracy": log} | options)
    path = builder.write(runs / name)
    return verify_run(path, root=runs, keyring=NO_KEYS).run_id


def found(runs: Path, **changes: Any) -> Reference | None:
    spec = gated_spec(role="candidate", setup__quantization__weights="Q4_0", **changes)
    return find_reference(spec, runs, NO_KEYS)


def refused(runs: Path, **changes: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        found(runs, **changes)
    return caught.value


def test_the_baseline_that_was_asked_the_same_is_the_reference_with_its_own_evidence(runs):
    run_id = published(runs, "a")
    reference = found(runs)
    assert reference.run_id == run_id
    assert reference.configuration == gated_spec().configuration_id
    assert reference.log == answers_to(gated_spec())
    assert score_of(reference) == 15
    (entry,) = (
        entry
        for entry in json.loads((runs / "a" / "run.json").read_bytes())["evidence"]
        if entry["role"] == "accuracy"
    )
    assert reference.sha256 == entry["sha256"]


def test_a_folder_that_is_empty_or_not_there_has_no_reference(runs):
    assert found(runs) is None
    runs.mkdir()
    (runs / "notes.json").write_text("{", encoding="utf-8")
    assert found(runs) is None


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"role": "candidate"}, {}),
        ({"role": None}, {}),
        ({"questions": 19}, {}),
        ({"setup__accuracy_gate__asked__max_tokens": 31}, {}),
        ({"setup__accuracy_gate__shots": 2}, {}),
        ({}, {"simulated": True}),
        ({}, {"status": "interrupted"}),
    ],
)
def test_only_a_whole_measured_baseline_with_the_same_gate_is_taken_unasked(runs, changes, options):
    published(runs, "a", gated_spec(**changes), **options)
    assert found(runs) is None


def test_another_limit_on_the_drop_is_the_same_gate(runs):
    run_id = published(runs, "a", gated_spec(max_drop_points=5.0))
    assert found(runs).run_id == run_id


def test_the_newest_of_one_configuration_is_taken(runs):
    published(runs, "z", day=1)
    newest = published(runs, "a", day=3)
    published(runs, "m", day=2)
    assert found(runs).run_id == newest


def test_a_baseline_of_the_same_model_goes_before_others(runs):
    same = published(runs, "a")
    published(runs, "b", gated_spec(setup__model__name="other-1b"), day=5)
    assert found(runs).run_id == same


def test_several_configurations_are_listed_and_none_is_chosen(runs):
    other = gated_spec(setup__quantization__weights="F16")
    published(runs, "a")
    run_id = published(runs, "b", other)
    (problem,) = refused(runs).problems
    assert problem.field == "accuracy.reference"
    assert gated_spec().configuration_id in problem.found
    assert other.configuration_id in problem.found
    assert found(runs, accuracy={"reference": other.configuration_id}).run_id == run_id


@pytest.mark.parametrize("digits", [8, 12, 64])
def test_a_run_is_named_by_its_id_or_how_that_begins_whatever_its_role(runs, digits):
    published(runs, "a")
    run_id = published(runs, "b", gated_spec(role="candidate"), day=2)
    assert found(runs, accuracy={"reference": run_id[:digits]}).run_id == run_id


def test_a_configuration_names_the_run_that_its_page_leads_with(runs):
    first = published(runs, "a", day=1)
    newer = published(runs, "b", day=2)
    named = {"reference": gated_spec().configuration_id}
    assert first != newer
    assert found(runs, accuracy=named).run_id == newer


@pytest.mark.parametrize("named", ["0" * 8, "0" * 64, f"toy-cpu-toy-{'0' * 12}"])
def test_a_name_that_no_run_has_is_told(runs, named):
    published(runs, "a")
    assert "names no run under" in str(refused(runs, accuracy={"reference": named}))


def test_a_reference_that_was_asked_something_else_is_told_field_by_field(runs):
    other = gated_spec(
        setup__accuracy_gate__asked__harness="lm-eval 0.4.8",
        setup__accuracy_gate__asked__stop=["Q:"],
        setup__accuracy_gate__shots=5,
    )
    run_id = published(runs, "a", other)
    problems = refused(runs, accuracy={"reference": run_id}).problems
    assert [(p.field, p.found, p.expected) for p in problems] == [
        ("setup.accuracy_gate.asked.harness", "'lm-eval 0.4.8'", "'lm-eval 0.4.9'"),
        ("setup.accuracy_gate.asked.stop", "['Q:']", "['\\n\\n']"),
        ("setup.accuracy_gate.shots", "5", "0"),
    ]


def test_a_run_without_a_gate_is_no_reference(runs):
    none = {"task": "none", "shots": 0, "questions": 0, "max_drop_points": 0.0}
    run_id = published(runs, "a", gated_spec(setup__accuracy_gate=none))
    fields = {p.field for p in refused(runs, accuracy={"reference": run_id}).problems}
    assert {"setup.accuracy_gate.task", "evidence.accuracy"} <= fields


def test_a_simulated_run_is_no_reference_of_a_measured_one_even_by_name(runs):
    run_id = published(runs, "a", simulated=True)
    (problem,) = refused(runs, accuracy={"reference": run_id}).problems
    assert (problem.field, problem.found, problem.expected) == (
        "simulated",
        "simulated",
        "measured",
    )
    engine = {"setup__engine__name": SIMULATED_ENGINE}
    assert found(runs, accuracy={"reference": run_id}, **engine).run_id == run_id


def test_an_interrupted_run_is_no_reference_even_by_name(runs):
    run_id = published(runs, "a", status="interrupted")
    assert "is not whole" in str(refused(runs, accuracy={"reference": run_id}))


def test_a_chosen_run_that_is_not_verified_is_told_with_the_check_and_not_passed_over(runs):
    published(runs, "a")
    for piece in (runs / "a" / "evidence").iterdir():
        piece.write_bytes(b"")
    text = str(refused(runs))
    assert "is not verified, so nothing is compared with it" in text
    assert "check 6" in text


def test_files_that_cannot_be_chosen_are_not_verified(runs):
    published(runs, "b", gated_spec(role="candidate"))
    for piece in (runs / "b" / "evidence").iterdir():
        piece.unlink()
    run_id = published(runs, "a")
    assert found(runs).run_id == run_id
    assert found(runs, accuracy={"reference": run_id[:10]}).run_id == run_id


def test_a_baseline_takes_no_reference_and_may_name_none(runs):
    run_id = published(runs, "a")
    assert find_reference(gated_spec(role="baseline"), runs, NO_KEYS) is None
    named = gated_spec(role="baseline", accuracy={"reference": run_id})
    with pytest.raises(UsageError, match="a baseline is what others are compared with"):
        find_reference(named, runs, NO_KEYS)


def test_a_spec_without_a_gate_has_no_reference(runs):
    published(runs, "a")
    none = {"task": "none", "shots": 0, "questions": 0, "max_drop_points": 0.0}
    assert found(runs, setup__accuracy_gate=none) is None
