"""A task as the harness made it: what to ask, and how answers come back to be scored. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tokenwatt_site.accuracy_spec import AskedTask

Prompt: TypeAlias = "str | tuple[Mapping[str, str], ...]"
"""Text of a completion, or the messages of a chat ({"role": ..., "content": ...})."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A continuation whose log-probability is asked for."""

    context: str
    continuation: str


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a task.

    Attributes:
        number: its place in the task, from 0.
        data: SHA-256 of the canonical JSON of the question as the data set has it.
        prompt: what is sent; of a task of choices, the first one's context.
        prompt_digest: SHA-256 of the canonical bytes of all that is sent.
        choices: the continuations to be weighed; empty where text is generated.
    """

    number: int
    data: str
    prompt: Prompt
    prompt_digest: str
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """All that is asked, and the identity that it has.

    Attributes:
        name: in the harness, or of the local file.
        shots: examples before each question.
        asked: see `AskedTask`.
        kind: "generate" text, or weigh "choices" by their log-probabilities.
        questions: in their order.
    """

    name: str
    shots: int
    asked: AskedTask
    kind: Literal["generate", "choices"]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back for one question.

    Attributes:
        question: its number.
        text: the answer; of choices, canonical JSON of [[log-probability, is greedy], ...]; None:
            none came.
        prompt_tokens, tokens: as the engine counts them.
        finish: the engine's finish reason.
        failure: why there is no answer.
        part: which sitting it came in.
    """

    question: int
    text: str | None
    prompt_tokens: int | None
    tokens: int | None
    finish: str | None
    failure: str | None
    part: int


@dataclass(frozen=True, slots=True)
class Score:
    """What the harness made of one reply: what its filter took out, and whether it is right."""

    question: int
    extracted: str | None
    correct: bool


Scores: TypeAlias = Sequence[Score]
