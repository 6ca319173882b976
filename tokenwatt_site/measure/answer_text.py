"""The text of one streamed answer, as it is compared with another. No I/O.

The parts of an answer follow each other as they came, and neighbours of one kind are one: how an
engine cut its text into events does not show (but TGI says a call's name with each of its events).
Before a part that is not text of the answer itself, and before text that follows such a part,
stands its kind between two control characters: reasoning is not taken for an answer, nor the
arguments of a call for its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from tokenwatt_site.measure.stream import StreamParser

MAX_CHARS = 1 << 20

_Object: TypeAlias = dict[str, Any]
_KIND = "\x1e%s\x1f"  # record and unit separator: no tokenizer's text has them but by chance
_TEXT = "text"
# Engines that give reasoning under several names give the same text under each.
_REASONING = ("reasoning_content", "reasoning")


class TextParser(StreamParser):
    """A parser that keeps the text besides."""

    __slots__ = ("_chars", "_kind", "_parts")

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[str] | None = []
        self._kind = _TEXT
        self._chars = 0

    def text(self) -> str | None:
        """Return what was said so far.

        None where that is not known: it has more than MAX_CHARS characters, or came as something
        else than text.
        """
        if self._parts is None:
            return None
        # A server that cuts text by UTF-16 may have cut a character in two.
        return (
            "".join(self._parts)
            .encode("utf-16-le", "surrogatepass")
            .decode("utf-16-le", "surrogatepass")
        )

    def _count(self, chunk: _Object) -> int:
        # Called once with each chunk that is no error: a parser that keeps no text does no more.
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                for kind, said in _said(choice):
                    self._keep(kind, said)
        return super()._count(chunk)

    def _keep(self, kind: str, said: object) -> None:
        if self._parts is None:
            return
        before = "" if kind == self._kind else _KIND % kind
        self._kind = kind
        if not isinstance(said, str) or self._chars + len(before) + len(said) > MAX_CHARS:
            self._parts = None
            return
        self._parts += (before, said)
        self._chars += len(before) + len(said)


def _said(choice: _Object) -> Iterator[tuple[str, object]]:
    """Yield each part that a choice carries, and of which kind it is."""
    if choice.get("text"):
        yield _TEXT, choice["text"]
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return
    yield from _reasoning(delta)
    if delta.get("content"):
        yield _TEXT, delta["content"]
    if delta.get("refusal"):
        yield "refusal", delta["refusal"]
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            yield from _call(call.get("function"), call.get("index"))
    yield from _call(delta.get("function_call"), None)


def _reasoning(delta: _Object) -> Iterator[tuple[str, object]]:
    for name in _REASONING:
        if delta.get(name):
            yield "reasoning", delta[name]
            return
    details = delta.get("reasoning_details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and (said := detail.get("text") or detail.get("summary")):
            yield "reasoning", said


def _call(function: object, index: object) -> Iterator[tuple[str, object]]:
    if not isinstance(function, dict):
        return
    which = f" {index}" if type(index) is int else ""
    if function.get("name"):
        yield f"name{which}", function["name"]
    if function.get("arguments"):
        yield f"arguments{which}", function["arguments"]
