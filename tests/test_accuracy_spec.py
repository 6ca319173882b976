from __future__ import annotations

import pytest
from pydantic import ValidationError

from tokenwatt_site.accuracy_spec import AccuracyGate, AccuracyPlan, AskedTask

ASKED = {
    "harness": "lm-eval 0.4.13",
    "task_version": "3.0",
    "api": "completions",
    "metric": "exact_match",
    "filter": "strict-match",
    "max_tokens": 256,
    "stop": ("Question:", "\n"),
    "data": "a" * 64,
    "prompts": "b" * 64,
}
GATE = {"task": "gsm8k", "shots": 5, "questions": 1319, "max_drop_points": 1.0}


def test_a_gate_is_called_by_its_task_and_its_shots() -> None:
    assert AccuracyGate.model_validate(GATE).label == "gsm8k-5shot"


def test_a_gate_that_is_older_than_asked_keeps_its_bytes() -> None:
    assert AccuracyGate.model_validate(GATE).to_json() == GATE


def test_what_is_asked_is_a_part_of_the_gate() -> None:
    gate = AccuracyGate.model_validate(GATE | {"asked": AskedTask.model_validate(ASKED)})
    assert gate.to_json()["asked"] == ASKED | {"stop": ["Question:", "\n"]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task": "none"}, "task: none asks nothing"),
        ({"questions": 0}, "has 1 to 50,000 questions"),
        ({"questions": 50_001}, "has 1 to 50,000 questions"),
        ({"questions": "not recorded"}, "has 1 to 50,000 questions"),
        ({"max_drop_points": 100.5}, "less than or equal to 100"),
        ({"shots": -1}, "greater than or equal to 0"),
    ],
)
def test_a_gate_that_cannot_be_asked_holds_nothing_asked(
    changes: dict[str, object], words: str
) -> None:
    asked = AskedTask.model_validate(ASKED)
    with pytest.raises(ValidationError, match=words):
        AccuracyGate.model_validate(GATE | {"asked": asked} | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"api": "responses"},
        {"max_tokens": 0},
        {"stop": ("",)},
        {"stop": ("x" * 101,)},
        {"stop": ("x",) * 17},
        {"data": "A" * 64},
        {"metric": "two\nlines"},
    ],
)
def test_what_no_task_asks_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        AskedTask.model_validate(ASKED | changes)


@pytest.mark.parametrize("data", ["tasks/sums.jsonl", "gsm8k", "./gsm8k/main"])
def test_data_are_named_from_the_specs_folder(data: str) -> None:
    assert AccuracyPlan(data=data).data == data


@pytest.mark.parametrize("data", ["/data/gsm8k", "../gsm8k", "a/../../b", "~/gsm8k", "C:\\x", ""])
def test_data_outside_that_folder_are_refused(data: str) -> None:
    with pytest.raises(ValidationError):
        AccuracyPlan(data=data)


def test_a_plan_says_how_often_and_how_many_at_once() -> None:
    plan = AccuracyPlan()
    assert (plan.repeats, plan.concurrency, plan.keep_answers) == (1, 8, True)
    for wrong in ({"repeats": 0}, {"concurrency": 257}, {"reference": "Not A Run"}):
        with pytest.raises(ValidationError):
            AccuracyPlan.model_validate(wrong)
