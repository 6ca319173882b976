"""An answer event by event: what its script makes of the tokens, faults included.

`steps` gives the fixed times of a script; an engine calls `token` each time it made one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tokenwatt_site.simulate.asked import Asked
from tokenwatt_site.simulate.dialect import Writer
from tokenwatt_site.simulate.script import Script

_MS = 1_000_000

Then: TypeAlias = Literal["next", "end", "drop", "reset", "hang"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Something to send.

    `tokens` of the text in `data` are output tokens. `then` says what follows: the next piece, the
    end of the response, an abrupt close of the connection or its reset, or nothing ever.
    """

    data: bytes
    tokens: int
    then: Then = "next"


class Answer:
    """The pieces of one answer, in order. The head of the response is not part of it.

    Attributes:
        total: tokens of the whole answer; `finish` is "length" when those are all that was asked.
        sent: tokens so far.
    """

    def __init__(self, script: Script, asked: Asked, number: int) -> None:
        self._script = script
        total = asked.output_tokens
        if script.short is not None:
            total = min(total, script.short)
        stops = script.end_of_sequence
        if stops is not None and not (asked.ignore_eos and script.honour_ignore_eos):
            total = min(total, stops)
        self.total = total
        self.finish: Literal["length", "stop"] = (
            "length" if total == asked.output_tokens else "stop"
        )
        self.sent = 0
        self._made = 0
        self._write = Writer(script, asked, number)
        faults: tuple[tuple[int | None, Then], ...] = (
            (script.hang_after, "hang"),
            (script.drop_after, "drop"),
            (script.reset_after, "reset"),
        )
        self._faults = [(limit, then) for limit, then in faults if limit is not None]

    def opening(self) -> bytes:
        """Return what is sent on receipt of the request; often nothing."""
        before = self._write.empty() if self._script.empty_first else b""
        return before + self._write.role() if self._script.role == "early" else before

    def token(self, cached_tokens: int) -> Piece | None:
        """Take one token that an engine made; return the event that is whole with it.

        `cached_tokens` of the prompt came from the engine's cache; usage says so.
        """
        self._write.found_cached(cached_tokens)
        self._made += 1
        return self.event() if self._made == self.sent + self._tokens() else None

    def event(self) -> Piece:
        """Return the next event with all its tokens, or what goes wrong in its place."""
        script, write = self._script, self._write
        for limit, then in self._faults:
            if self.sent >= limit:
                return Piece(b"", 0, then)
        data = write.role() if self.sent == 0 and script.role == "with first" else b""
        if script.error_after is not None and self.sent >= script.error_after:
            return Piece(write.error() + write.end(), 0, "end")
        tokens = self._tokens()
        self.sent += tokens
        last = self.sent == self.total
        data += write.tokens(tokens, self.sent, self.finish if last else None)
        if last:
            data += write.usage(self.sent) + write.end()
        return Piece(data, tokens, "end" if last else "next")

    def _tokens(self) -> int:
        """Return how many tokens the next event has."""
        script = self._script
        tokens = script.tokens_per_event
        if self.sent == 0 and script.first_event_tokens is not None:
            tokens = script.first_event_tokens
        if self.sent < script.reasoning_tokens:
            tokens = min(tokens, script.reasoning_tokens - self.sent)  # an event is of one kind
        return min(tokens, self.total - self.sent)


def steps(script: Script, answer: Answer) -> Iterator[tuple[int, Piece]]:
    """Yield the pieces of an answer, each with its ns after the receipt of the request."""
    if opening := answer.opening():
        yield 0, Piece(opening, 0)
    while True:
        after_ns = round(script.ttft_ms * _MS) + round(script.interval_ms * _MS) * answer.sent
        piece = answer.event()
        yield after_ns, piece
        if piece.then != "next":
            return
