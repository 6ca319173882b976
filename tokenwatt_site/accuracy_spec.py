"""What is asked of a configuration's answers: the gate, which is identity, and how it is asked."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from tokenwatt_site.schema import GrowingModel, Line, Model, Sha256, publishable

MAX_QUESTIONS = 50_000
MAX_ANSWERS = 100_000
"""Of all repeats together."""

NO_TASK = "none"


class AskedTask(Model):
    """What a task is, word for word: two gates with the same values ask and score the same.

    Attributes:
        harness: who made the prompts and scored the answers, with its version.
        task_version: of the task in the harness.
        api: completions, or chat with the engine's own template.
        metric: the metric of the gate, 0 or 1 for each question.
        filter: the harness's filter that takes the answer out of the text.
        max_tokens: an answer is cut there.
        stop: an answer ends before any of these. Sampling is greedy.
        data: SHA-256 over the questions' own digests, in order.
        prompts: SHA-256 over the prompts' digests, in order.
    """

    harness: Line
    task_version: Line
    api: Literal["completions", "chat"]
    metric: Line
    filter: Line
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)]
    stop: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=100)], ...], Field(max_length=16)
    ]
    data: Sha256
    prompts: Sha256


class AccuracyGate(GrowingModel):
    """Which task the same server must pass. `task: none` says that no gate is asked for.

    `max_drop_points` is how many points of 100 the score may be below the reference's. `asked` is
    needed to measure; `spec check` tells what it is.
    """

    younger = frozenset({"asked"})

    task: Line
    shots: Annotated[int, Field(ge=0)]
    questions: Annotated[int, Field(ge=0)] | Literal["not recorded"]
    max_drop_points: Annotated[float, Field(ge=0, le=100)]
    asked: AskedTask | None = None

    @model_validator(mode="after")
    def _whole(self) -> AccuracyGate:
        if self.asked is None:
            return self
        if self.task == NO_TASK:
            raise ValueError("task: none asks nothing; remove asked")
        if not isinstance(self.questions, int) or not 1 <= self.questions <= MAX_QUESTIONS:
            raise ValueError(f"a task that is asked has 1 to {MAX_QUESTIONS:,} questions")
        return self

    @property
    def label(self) -> str:
        """Such as "gsm8k-5shot"."""
        return f"{self.task}-{self.shots}shot"


def _relative(text: str) -> str:
    # The spec is published: no path of a machine.
    parts = PurePosixPath(text).parts
    if not re.fullmatch(r"[A-Za-z0-9._/-]+", text) or text.startswith("/") or ".." in parts:
        raise ValueError("a path from the spec's own folder, such as tasks/sums.jsonl")
    return publishable(text)


class AccuracyPlan(Model):
    """How the gate's task is asked. Not identity.

    Attributes:
        data: where the questions are: a file of a local task (.jsonl), or the folder with a named
            task's data set (one .jsonl for each split); a path from the spec's folder or the
            command's. Absent: from the hub, as the harness does.
        reference: the run whose answers are compared with, by its id or the beginning of it, or a
            configuration's id. Absent: the run here with role: baseline and the same gate.
        repeats: in how many repeats it is asked, from the first.
        concurrency: how many questions are open at once.
        keep_answers: whether the answers' text is published with their digests.
    """

    data: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_relative)] | None = (
        None
    )
    reference: Annotated[str, Field(pattern=r"^[a-z0-9-]{8,64}$")] | None = None
    repeats: Annotated[int, Field(ge=1, le=100)] = 1
    concurrency: Annotated[int, Field(ge=1, le=256)] = 8
    keep_answers: bool = True
