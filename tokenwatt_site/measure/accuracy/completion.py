"""A question as one request that is not streamed, and what its answer says. No I/O here."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tokenwatt_site.canonical import JsonValue, clean_text
from tokenwatt_site.endpoint import Api
from tokenwatt_site.errors import EngineError
from tokenwatt_site.evidence.answers import MAX_ANSWER_CHARS
from tokenwatt_site.measure.accuracy.task import Prompt
from tokenwatt_site.measure.stream import error_text

_Object: TypeAlias = dict[str, Any]
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Said:
    """What one answer says; see `Reply` for its fields."""

    text: str
    prompt_tokens: int | None
    tokens: int | None
    finish: str | None


def text_body(api: Api, model: str, prompt: Prompt, max_tokens: int, stop: Sequence[str]) -> bytes:
    """Return the request for the greedy answer to a prompt.

    Only what every engine knows is sent. No seed: at temperature 0 nothing is drawn.
    """
    asked: _Object = {"model": model, "max_tokens": max_tokens, "temperature": 0, "stream": False}
    if stop:
        asked["stop"] = list(stop)
    if api == "chat":
        asked["messages"] = [dict(message) for message in prompt if not isinstance(message, str)]
    else:
        asked["prompt"] = prompt
    return json.dumps(asked, separators=(",", ":")).encode()


def read_text(body: bytes, api: Api, stop: Sequence[str]) -> Said:
    """Read an answer 200.

    The text ends before the first stop string: some engines leave it in, and others go on behind
    it until `max_tokens`; what they then call "length" is a "stop". Reasoning that a chat gives
    apart is no part of the answer. Half a surrogate pair, which is no character, becomes U+FFFD.

    Raises:
        EngineError: why it is no answer, in the engine's words where there are any.
    """
    answer = answer_of(body)
    choice = only_choice(answer)
    text = choice.get("text")
    if api == "chat":
        message = choice.get("message")
        if not isinstance(message, dict):
            raise EngineError("the answer has no message")
        text = message.get("content")
    if text is None:
        text = ""
    if not isinstance(text, str):
        raise EngineError(f"the answer's text is no text: {shown(text)}")
    found = [place for mark in stop if (place := text.find(mark)) >= 0]
    finish = choice.get("finish_reason")
    finish = clean_text(finish, limit=100) or None if isinstance(finish, str) else None
    if found:
        text, finish = text[: min(found)], "stop"
    if len(text) > MAX_ANSWER_CHARS:
        raise EngineError(
            f"the answer has {len(text):,} characters, more than {MAX_ANSWER_CHARS:,}"
        )
    return Said(
        _SURROGATE.sub("\ufffd", text),
        count(answer, "prompt_tokens"),
        count(answer, "completion_tokens"),
        finish,
    )


def answer_of(body: bytes) -> _Object:
    """Return the JSON object of an answer 200.

    Raises:
        EngineError: it is none, or is about an error.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise EngineError(f"the answer is no JSON: {_start(body)}") from None
    if not isinstance(value, dict):
        raise EngineError(f"the answer is no object: {shown(value)}")
    if told := error_text(body):
        raise EngineError(f"the engine answers with an error: {told}")
    return value


def only_choice(answer: _Object) -> _Object:
    """Return the one choice of an answer.

    Raises:
        EngineError: there is none, or more than one.
    """
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise EngineError(f"the answer has no choices: {shown(answer)}")
    if len(choices) > 1:
        raise EngineError(f"the answer has {len(choices)} choices: one was asked for")
    choice: _Object = choices[0]
    return choice


def count(answer: _Object, name: str) -> int | None:
    """Return a count of an answer's usage; None where it tells none that can be true."""
    usage = answer.get("usage")
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and 0 <= value < 2**53 else None


def refused(status: int, body: bytes) -> str:
    """Return what an answer that is not 200 says, in the engine's words."""
    return ": ".join(filter(None, (f"HTTP {status}", error_text(body) or _start(body))))


def shown(value: JsonValue) -> str:
    """Return the beginning of a value, for an error."""
    return clean_text(json.dumps(value)[:400], limit=100)


def _start(body: bytes) -> str:
    return clean_text(body[:400].decode("utf-8", "replace"), limit=100)
