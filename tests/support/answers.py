"""Makes answers to a toy task, and the evidence that holds them, without asking anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support import runs
from tokenwatt_site.accuracy_spec import AskedTask
from tokenwatt_site.evidence.answers import FORMAT, AccuracyLog, Answer, Header, text_digest
from tokenwatt_site.evidence.under_load import Compared, UnderLoadLog
from tokenwatt_site.journal import GENESIS, Entry, Event
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Evidence

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


def candidate_spec(questions: int = 10, *, max_drop: float = 5.0, **changes: Any) -> Spec:
    """Return a spec of a candidate whose gate asks `ASKED`, with so many questions."""
    asked = {"setup__accuracy_gate__asked": ASKED.to_json(), "role": "candidate"}
    return runs.gated_spec(questions, max_drop_points=max_drop, **{**asked, **changes})


def an_answer(question: int, *, correct: bool = True, repeat: int = 1, **changes: Any) -> Answer:
    """Return an answer with these fields changed."""
    return runs.an_answer(repeat, question, correct).model_copy(update=changes)


def answers(correct: Sequence[bool], **changes: Any) -> tuple[Answer, ...]:
    """Return an answer to each question in order, right or wrong as told."""
    return tuple(an_answer(n, correct=right, **changes) for n, right in enumerate(correct))


def a_log(*told: Answer) -> AccuracyLog:
    header = Header(format=FORMAT, task="sums", shots=0, asked=ASKED, texts=True)
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
    text = text_digest("text")
    both = {"loaded": text, "alone": text, "again": text, **changes}
    alike = 0 if None in (both["loaded"], both["alone"]) else 40
    alone = {"chars": 40, "cached_tokens": 0}
    if both["alone"] is None:
        alone = {"chars": 0, "cached_tokens": None}
    value = {"repeat": 1, "trial": 3, "row": row, "same_chars": alike, **alone}
    return Compared(**{**value, **both})
