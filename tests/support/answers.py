"""Makes answers to a toy task, and the evidence that holds them, without asking anything."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.runs import small_spec
from tokenwatt_site.accuracy_log import FORMAT, AccuracyLog, Answer, Header
from tokenwatt_site.accuracy_spec import AskedTask
from tokenwatt_site.journal import GENESIS, Entry, Event
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Evidence
from tokenwatt_site.under_load_log import Compared, UnderLoadLog

ASKED = AskedTask(
    harness="lm-eval 0.4.13",
    task_version="3.0",
    api="completions",
    metric="exact_match",
    filter="strict-match",
    max_tokens=256,
    stop=("\n\n",),
    data="a" * 64,
    prompts="b" * 64,
)
REFERENCE = {"run": "1" * 64, "configuration": "toy-0123456789ab", "accuracy": "2" * 64}


def gate_spec(questions: int = 10, *, max_drop: float = 5.0, **changes: Any) -> Spec:
    """Return a small spec without a role whose gate asks so many questions."""
    gate = {
        "task": "sums",
        "shots": 5,
        "questions": questions,
        "max_drop_points": max_drop,
        "asked": ASKED.to_json(),
    }
    return small_spec(**{"setup__accuracy_gate": gate, "role": "candidate", **changes})


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def an_answer(question: int, *, correct: bool = True, **changes: Any) -> Answer:
    """Return a whole answer of 12 tokens that is right or wrong."""
    value = {
        "repeat": 1,
        "question": question,
        "data": sha(f"question {question}"),
        "prompt": sha(f"prompt {question}"),
        "answer": sha(f"answer {question} {correct}"),
        "extracted": str(question if correct else -1),
        "correct": correct,
        "prompt_tokens": 100,
        "tokens": 12,
        "finish": "stop",
        "failure": None,
        "flags": (),
        "part": 1,
    }
    return Answer(**{**value, **changes})


def unanswered(question: int, failure: str) -> Answer:
    """Return a question that got no answer."""
    nothing = dict.fromkeys(("answer", "extracted", "prompt_tokens", "tokens", "finish"))
    return an_answer(question, correct=False, failure=failure, **nothing)


def answers(correct: Sequence[bool], **changes: Any) -> tuple[Answer, ...]:
    """Return an answer to each question in order, right or wrong as told."""
    return tuple(an_answer(n, correct=right, **changes) for n, right in enumerate(correct))


def a_log(*told: Answer) -> AccuracyLog:
    header = Header(format=FORMAT, task="sums", shots=5, asked=ASKED, texts=False)
    return AccuracyLog(header, told)


def a_journal(
    opening: Mapping[str, Any], *events: tuple[Event, Mapping[str, Any]]
) -> tuple[Entry, ...]:
    """Return lines as a journal holds them, but for their chain."""
    told: list[tuple[Event, Mapping[str, Any]]] = [("open", opening), *events]
    return tuple(
        Entry(seq=n, at="2026-01-01T00:00:00Z", event=event, prev=GENESIS, data=dict(data))
        for n, (event, data) in enumerate(told)
    )


def sitting(repeat: int = 1, part: int = 1, *, same_launch: bool | None = True) -> Any:
    """Return the event that begins a sitting."""
    return "accuracy_start", {"repeat": repeat, "part": part, "same_launch": same_launch}


def evidence(
    *told: Answer,
    reference: Sequence[bool] | AccuracyLog | None = None,
    sittings: Sequence[Any] | None = None,
    compared: Sequence[Compared] | None = None,
    opening: Mapping[str, Any] | None = None,
) -> Evidence:
    """Return evidence of answers alone; without `sittings`, one for each repeat."""
    if sittings is None:
        sittings = [sitting(repeat) for repeat in sorted({answer.repeat for answer in told})]
    trials: list[Any] = [
        ("trial_start", {"repeat": 1, "trial": 3, "rate_urps": 1_500_000}),
        ("trial_start", {"repeat": 2, "trial": 7, "rate_urps": 1_600_000}),
    ]
    if reference is not None and not isinstance(reference, AccuracyLog):
        reference = a_log(*answers(reference))
    named = {"reference": None if reference is None else REFERENCE}
    return Evidence(
        journal=a_journal({**named, **(opening or {})}, *trials, *sittings),
        requests=(),
        power=None,
        accuracy=a_log(*told) if told else None,
        reference=reference,
        under_load=None if compared is None else UnderLoadLog(tuple(compared)),
    )


def a_comparison(row: int, **changes: Any) -> Compared:
    """Return an answer under load that is the same alone, twice; `changes` are of its fields."""
    value = {
        "repeat": 1,
        "trial": 3,
        "row": row,
        "loaded": sha("text"),
        "alone": sha("text"),
        "again": sha("text"),
        "same_chars": 40,
        "chars": 40,
        "cached_tokens": 0,
    }
    return Compared(**{**value, **changes})
