"""A task of sums, an engine that can add, and a spec whose gate asks them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tests.support.runs import small_spec
from tokenwatt_site.accuracy_spec import AskedTask
from tokenwatt_site.canonical import digest
from tokenwatt_site.evidence.answers import digest_of_digests
from tokenwatt_site.measure.accuracy.task import Question, Reply, Score, Scores, Task
from tokenwatt_site.spec import Spec


def sums(count: int = 12) -> Task:
    """Return the first sums of one digit, each asked on a line."""
    pairs = [(n // 9 + 1, n % 9 + 1) for n in range(count)]
    prompts = [f"{a} + {b} =" for a, b in pairs]
    questions = tuple(
        Question(number, digest({"question": prompt}), prompt, digest(prompt))
        for number, prompt in enumerate(prompts)
    )
    asked = AskedTask(
        harness="toy 1",
        task_version="1",
        api="completions",
        metric="exact_match",
        filter="first-number",
        max_tokens=8,
        stop=("\n",),
        data=digest_of_digests([question.data for question in questions]),
        prompts=digest_of_digests([question.prompt_digest for question in questions]),
    )
    return Task("sums", 0, asked, "generate", questions)


def added(prompt: str) -> str:
    """Answer as an engine that can add."""
    return f" {sum(map(int, re.findall(r'[0-9]+', prompt)))}"


def scored(replies: Sequence[Reply]) -> Scores:
    """Score replies to the sums."""
    questions = sums(len(replies)).questions
    found = [re.search(r"[0-9]+", reply.text or "") for reply in replies]
    return tuple(
        Score(
            reply.question,
            match[0] if match else None,
            match is not None and f" {match[0]}" == added(str(question.prompt)),
        )
        for reply, question, match in zip(replies, questions, found, strict=True)
    )


def summing(task: Task, **changes: Any) -> Spec:
    """Return a small candidate's spec whose gate asks `task`, with a drop of 5 points allowed."""
    gate = {
        "task": task.name,
        "shots": task.shots,
        "questions": len(task.questions),
        "max_drop_points": 5.0,
        "asked": task.asked.to_json(),
    }
    return small_spec(**{"role": "candidate", "setup__accuracy_gate": gate, **changes})
