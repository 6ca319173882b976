"""The answers to a task's questions as evidence: a header, then one line of JSON for each answer.

Answers are in the order of their questions, repeat by repeat. What makes the claims is `correct`;
digests of question, prompt and answer let anyone with the same data check what was asked, and the
text, where it is kept, what was answered.

An engine may answer with anything: control characters, half of a surrogate pair, text that is not
in normal form. A digest is of the text as it came (`text_digest`). What a file of ours cannot hold
is spelt out in the text that is kept (`kept_text`), which `original_text` turns back. The short
texts beside it are made one clean line each, and what does not fit is dropped.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from tokenwatt_site.accuracy_spec import MAX_ANSWERS, AskedTask
from tokenwatt_site.canonical import clean_text, sha256_hex, text_fault
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.answer_flags import Flag
from tokenwatt_site.evidence.columns import PLAIN_INTEGER, encode_objects, read_header, read_objects
from tokenwatt_site.schema import Line, Model, Sha256

# History of the format. 1: first.
FORMAT: Final = "tokenwatt/accuracy/1"

MAX_ANSWER_CHARS = 1 << 20
MAX_ANSWER_BYTES = 5 << 20
"""Of one line: the longest text, at most four bytes a character, and what stands beside it."""

_NUMBERED = r"\\\{((?:10|[0-9a-f])?[0-9a-f]{1,4})\}"
_SPELT = re.compile(rf"\\\\|{_NUMBERED}")
_WELL_SPELT = re.compile(rf"(?:[^\\]++|\\\\|{_NUMBERED})*+")


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text as it came: of its UTF-8, half a surrogate pair included."""
    return sha256_hex(text.encode("utf-8", "surrogatepass"))


def kept_text(text: str) -> str | None:
    r"""Return `text` as a file of ours can hold it, or None where that is too long to be kept.

    A backslash is doubled. A character that `canonical.text_fault` refuses is spelt by its number,
    such as \{9} for a tab; where the rest is not in normal form, all that is not ASCII is. Nearly
    all text stands as it came, and any comes back from `original_text`.
    """
    spelt = {ord(each): rf"\{{{ord(each):x}}}" for each in set(text) if text_fault(each)}
    kept = text.translate(spelt | _BACKSLASH)
    if not unicodedata.is_normalized("NFC", kept):
        spelt |= {ord(each): rf"\{{{ord(each):x}}}" for each in set(text) if not each.isascii()}
        kept = text.translate(spelt | _BACKSLASH)
    return kept if len(kept) <= MAX_ANSWER_CHARS else None


_BACKSLASH = {ord("\\"): r"\\"}


def original_text(kept: str) -> str:
    """Return the text that `kept_text` kept."""
    if "\\" not in kept:
        return kept
    # Plain text and numbers in turn; a doubled backslash has none. A function for each match would
    # take ten times as long, and there may be a hundred thousand.
    parts: list[str | None] = _SPELT.split(kept)
    meant = {each: chr(int(each, 16)) if each else "\\" for each in set(parts[1::2])}
    parts[1::2] = [meant[each] for each in parts[1::2]]
    return "".join(map(str, parts))


def _as_kept(text: str) -> str:
    if (fault := text_fault(text)) is not None:
        raise ValueError(f"text as kept_text keeps it: this {fault}")
    if not _WELL_SPELT.fullmatch(text):
        raise ValueError(
            r"text as kept_text keeps it: no backslash but \\ and numbers such as \{9}"
        )
    return text


def _cleaned(limit: int) -> BeforeValidator:
    def clean(value: object) -> object:
        return clean_text(value, limit=limit).rstrip() if isinstance(value, str) else value

    return BeforeValidator(clean)


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
        text: that text, as `kept_text` keeps it; null where it is not kept, or none came.
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
    text: Annotated[str, Field(max_length=MAX_ANSWER_CHARS), AfterValidator(_as_kept)] | None = None
    extracted: Annotated[str | None, _cleaned(4000)]
    correct: bool
    prompt_tokens: Annotated[int, Field(ge=0)] | None
    tokens: Annotated[int, Field(ge=0)] | None
    finish: Annotated[str | None, _cleaned(100)]
    failure: Annotated[str | None, _cleaned(1000)]
    flags: tuple[Flag, ...]
    part: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _an_answer_or_a_failure(self) -> Answer:
        if (self.answer is None) == (self.failure is None):
            raise ValueError("either an answer, or a failure that says why there is none")
        told = self.text is not None or self.extracted is not None or self.correct or self.flags
        if self.answer is None and told:
            raise ValueError("no text, nothing extracted and no flags where no answer came: wrong")
        if self.flags != tuple(flag for flag in get_args(Flag) if flag in self.flags):
            raise ValueError(f"flags of {', '.join(get_args(Flag))}, each once and in this order")
        return self


_repeat_of = attrgetter("repeat")


@dataclass(frozen=True, slots=True)
class AccuracyLog:
    """All answers of a run, in the order of repeats and questions."""

    header: Header
    answers: tuple[Answer, ...]

    def of_repeat(self, repeat: int) -> tuple[Answer, ...]:
        first = bisect_left(self.answers, repeat, key=_repeat_of)
        return self.answers[first : bisect_right(self.answers, repeat, key=_repeat_of)]


_STRING = rb'"(?:[^"\\\x00-\x1f\x7f]++|\\[n"\\])*+"'
_VALUE = rb'(?:null|true|false|%b|%b|\[(?:"[a-z]+",?)*+\])' % (PLAIN_INTEGER, _STRING)
_PLAIN = re.compile(
    rb"\{%b\}"
    % b",".join(b'"%b":%b' % (name.encode(), _VALUE) for name in sorted(Answer.model_fields))
)
"""Lines of the form that we write, in which nothing has two readings."""


def digest_of_digests(digests: Sequence[str]) -> str:
    """Return what `AskedTask.data` and `.prompts` are: SHA-256 over hex digests, a line each."""
    return sha256_hex("".join(f"{each}\n" for each in digests).encode("ascii"))


def encode_accuracy(log: AccuracyLog) -> bytes:
    """Return the uncompressed evidence bytes of a log."""
    return encode_objects(log.header, log.answers)


def decode_accuracy(data: bytes, source: str) -> AccuracyLog:
    """Read what `encode_accuracy` wrote.

    Raises:
        InputError: another format, a field that is not what stands there, or answers that are not
            in the order of repeats and questions, naming line and field.
    """
    raw, lines = read_objects(
        Answer, data, source=source, most=MAX_ANSWERS, limit=MAX_ANSWER_BYTES, plain=_PLAIN
    )
    header = read_header(Header, raw, FORMAT, source)
    answers: list[Answer] = []
    last = (0, 0)
    for number, answer in lines:
        if answers and not last < (answer.repeat, answer.question):
            raise InputError(
                Problem(
                    "is not in the order of repeats and questions",
                    file=source,
                    line=number,
                    field="question",
                    found=f"question {answer.question} of repeat {answer.repeat}",
                    expected=f"one after question {last[1]} of repeat {last[0]}",
                )
            )
        last = (answer.repeat, answer.question)
        answers.append(answer)
    return AccuracyLog(header, tuple(answers))
