"""The answers to a task's questions as evidence: a header, then one line of JSON for each answer.

Answers are in the order of their questions, repeat by repeat. What makes the claims is `correct`;
digests of question, prompt and answer let anyone with the same data check what was asked, and the
text, where it is kept, what was answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from tokenwatt_site.accuracy_spec import AskedTask
from tokenwatt_site.answer_flags import Flag
from tokenwatt_site.schema import Line, Model, Sha256

FORMAT = "tokenwatt/accuracy/1"
MAX_ANSWER_CHARS = 1 << 20


class Header(Model):
    """What was asked; `texts` says whether the answers' text is kept."""

    format: Literal["tokenwatt/accuracy/1"]
    task: Line
    shots: int
    asked: AskedTask
    texts: bool


class Answer(Model):
    """One question of one repeat, and what came back.

    Attributes:
        repeat: which repeat.
        question: its number in the task, from 0.
        data: SHA-256 of the question as the data set has it.
        prompt: SHA-256 of what was sent (canonical bytes of a string, or of a chat's messages).
        answer: SHA-256 of the text that came back (UTF-8); null: no answer came.
        text: that text; null where it is not kept, or none came.
        extracted: what the filter took out of it; null: nothing, or no answer came.
        correct: whether that is right. No answer is wrong.
        prompt_tokens, tokens: as the engine counts them; null: it does not tell.
        finish: why it ended, in the engine's words.
        failure: why there is no answer; null: there is one.
        flags: what is wrong with the text on sight.
        part: which sitting it was asked in, from 1: another after each interruption.
    """

    repeat: Annotated[int, Field(ge=1)]
    question: Annotated[int, Field(ge=0)]
    data: Sha256
    prompt: Sha256
    answer: Sha256 | None
    text: Annotated[str, Field(max_length=MAX_ANSWER_CHARS)] | None = None
    extracted: Annotated[str, Field(max_length=4000)] | None
    correct: bool
    prompt_tokens: Annotated[int, Field(ge=0)] | None
    tokens: Annotated[int, Field(ge=0)] | None
    finish: Annotated[str, Field(max_length=100)] | None
    failure: Annotated[str, Field(max_length=1000)] | None
    flags: tuple[Flag, ...]
    part: Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class AccuracyLog:
    """All answers of a run."""

    header: Header
    answers: tuple[Answer, ...]

    def of_repeat(self, repeat: int) -> tuple[Answer, ...]:
        return tuple(answer for answer in self.answers if answer.repeat == repeat)


def digest_of_digests(digests: Sequence[str]) -> str:
    """Return what `AskedTask.data` and `.prompts` are: SHA-256 over hex digests, a line each."""
    raise NotImplementedError


def encode_accuracy(log: AccuracyLog) -> bytes:
    raise NotImplementedError


def decode_accuracy(data: bytes, source: str) -> AccuracyLog:
    """Read what `encode_accuracy` wrote.

    Raises:
        InputError: naming line and field.
    """
    raise NotImplementedError
