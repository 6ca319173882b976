"""An answer event by event: what its script makes of the tokens, faults included.

`steps` gives the fixed times of a script; an engine calls `token` each time it made one. One that
is not streamed has the same times, and its only piece with data is the last.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from tokenwatt_site.simulate.asked import Asked
from tokenwatt_site.simulate.dialect import Writer
from tokenwatt_site.simulate.script import Script
from tokenwatt_site.simulate.text import is_whole, stopped

_MS = 1_000_000

Then: TypeAlias = Literal["next", "end", "drop", "reset", "hang"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Something to send.

    `events` has the output tokens of each event in `data` that has any. `then` says what follows:
    the next piece, the end of the response, an abrupt close of the connection or its reset, or
    nothing ever.
    """

    data: bytes
    events: tuple[int, ...] = ()
    then: Then = "next"

    @property
    def tokens(self) -> int:
        return sum(self.events)


class Answer:
    """The pieces of one answer, in order. The head of the response is not part of it.

    `others` is how many other requests are in progress when it begins.

    Attributes:
        streamed: whether they are events; else the one with data is a plain object.
        total: tokens of the whole answer; `finish` is "length" when those are all that was asked.
        sent: tokens so far.
    """

    def __init__(self, script: Script, asked: Asked, number: int, *, others: int = 0) -> None:
        self._script = script
        total = asked.output_tokens
        if script.short is not None:
            total = min(total, script.short)
        stops = script.end_of_sequence
        if stops is not None and not (asked.ignore_eos and script.honour_ignore_eos):
            total = min(total, stops)
        self.streamed = asked.streamed
        stops = None
        if asked.stop and not asked.streamed:
            stops = stopped(script, min(total, script.reasoning_tokens), total, asked.stop)
            total = total if stops is None else stops
        self.total = total
        self.finish: Literal["length", "stop"] = (
            "length" if total == asked.output_tokens and stops is None else "stop"
        )
        self.sent = 0
        self._made = 0
        garbled = script.garbles_from is not None and others >= script.garbles_from
        self._write = Writer(script, asked, number, garbled=garbled)
        self._bursts = random.Random(number)  # noqa: S311 - no secret
        self._next = self._tokens()
        faults: tuple[tuple[int | None, Then], ...] = (
            (script.hang_after, "hang"),
            (script.drop_after, "drop"),
            (script.reset_after, "reset"),
        )
        self._faults = [(limit, then) for limit, then in faults if limit is not None]

    def opening(self) -> bytes:
        """Return what is sent on receipt of the request; often nothing."""
        if not self.streamed:
            return b""
        first = self._write.empty() if self._script.empty_first else b""
        return first + self._write.role() if self._script.role == "early" else first

    def token(self, cached_tokens: int) -> Piece | None:
        """Take one token that an engine made; return what can be sent with it.

        `cached_tokens` of the prompt came from the engine's cache; usage says so.
        """
        self._write.found_cached(cached_tokens)
        self._made += 1
        return self.event() if self._made == self.sent + self._next else None

    def event(self) -> Piece:
        """Return what is sent next with all its tokens, or what goes wrong in its place."""
        script, write = self._script, self._write
        for limit, then in self._faults:
            if self.sent >= limit:
                return Piece(b"", (), then)
        data = write.role() if self.sent == 0 and script.role == "with first" else b""
        if script.error_after is not None and self.sent >= script.error_after:
            told = write.error() + write.end() if self.streamed else write.failed()
            return Piece(told, (), "end")
        events = self._events(self.sent + self._next)
        if not self.streamed:
            return self._held(sum(events))
        for tokens in events:
            self.sent += tokens
            finish = self.finish if self.sent == self.total else None
            data += write.tokens(tokens, self.sent, finish)
        if self.sent == self.total:
            return Piece(data + write.usage(self.sent) + write.end(), events, "end")
        self._next = self._tokens()
        return Piece(data, events)

    def _held(self, tokens: int) -> Piece:
        self.sent += tokens
        if self.sent == self.total:
            return Piece(self._write.whole(self.sent, self.finish), (self.sent,), "end")
        self._next = self._tokens()
        return Piece(b"")

    def _events(self, end: int) -> tuple[int, ...]:
        """Return the tokens of each event that carries those from `sent` on to before `end`."""
        if not self._script.together:
            return (end - self.sent,)
        inner = [n for n in range(self.sent + 1, end) if is_whole(self._script, n)]
        return tuple(after - before for before, after in pairwise([self.sent, *inner, end]))

    def _tokens(self) -> int:
        """Return how many tokens are sent next, in one event or together."""
        script = self._script
        tokens = script.tokens_per_event
        if script.burst_tokens is not None:
            tokens = self._bursts.randint(1, script.burst_tokens)
        if self.sent == 0 and script.first_event_tokens is not None:
            tokens = script.first_event_tokens
        limit = self.total
        if self.sent < script.reasoning_tokens:
            limit = min(limit, script.reasoning_tokens)  # an event is of one kind
        end = min(self.sent + tokens, limit)
        while end < limit and not is_whole(script, end):
            end += 1
        return end - self.sent


def steps(script: Script, answer: Answer) -> Iterator[tuple[int, Piece]]:
    """Yield the pieces of an answer, each with its ns after the receipt of the request."""
    if opening := answer.opening():
        yield 0, Piece(opening)
    while True:
        after_ns = round(script.ttft_ms * _MS) + round(script.interval_ms * _MS) * answer.sent
        piece = answer.event()
        yield after_ns, piece
        if piece.then != "next":
            return
