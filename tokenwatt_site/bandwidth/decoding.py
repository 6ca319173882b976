"""Answers between their first and last token, as the client saw them, and the batch they make."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from tokenwatt_site.bandwidth.step import Contexts
from tokenwatt_site.evidence.records import RequestRecord
from tokenwatt_site.trials import prompt_length


@dataclass(frozen=True, slots=True)
class Decoding:
    """An answer between its first and its last event: `events` more, evenly spaced."""

    first_ns: int
    last_ns: int
    context: int
    events: int
    per_event: float

    def contexts(self, start_ns: int, end_ns: int) -> Contexts:
        """Return what its events in (start_ns, end_ns] attended to."""
        length = self.last_ns - self.first_ns
        before = max(0, (start_ns - self.first_ns) * self.events // length)
        until = min(self.events, (end_ns - self.first_ns) * self.events // length)
        first = self.context + before * self.per_event
        return Contexts(first, self.per_event, max(0, until - before))


def decoding_of(r: RequestRecord) -> Decoding | None:
    """Return how a request was in decode; None where all came at once, or nothing did."""
    if r.first_ns is None or r.last_ns is None or r.last_ns <= r.first_ns:
        return None
    first = r.first_tokens or 1
    # Without usage there are at least as many tokens as events.
    tokens = (r.output_tokens or 0) - first if r.output_tokens is not None else r.events - 1
    events = min(r.events - 1, tokens)
    if events < 1:
        return None
    return Decoding(r.first_ns, r.last_ns, prompt_length(r) + first, events, tokens / events)


def prompt_contexts(r: RequestRecord) -> Contexts:
    """Return what the tokens of its prompt attended to, those from a cache left out."""
    cached = r.cached_tokens or 0
    return Contexts(cached + 1, 1, max(0, prompt_length(r) - cached))


@dataclass(frozen=True, slots=True)
class Piece:
    """A time in which the same answers were in decode: how many, and their rates per ns."""

    start_ns: int
    end_ns: int
    sequences: int
    events: float
    tokens: float


class Batch:
    """The answers in decode over a window.

    Attributes:
        pieces: the window, cut wherever an answer begins or ends.
    """

    def __init__(self, decoding: Sequence[Decoding], start_ns: int, end_ns: int) -> None:
        changes: list[tuple[int, int, float, float]] = []
        for d in decoding:
            begin, end = max(d.first_ns, start_ns), min(d.last_ns, end_ns)
            if begin < end:
                rate = d.events / (d.last_ns - d.first_ns)
                changes.append((begin, 1, rate, rate * d.per_event))
                changes.append((end, -1, -rate, -rate * d.per_event))
        changes.sort()
        self.pieces: list[Piece] = []
        sequences, events, tokens = 0, 0.0, 0.0
        at_ns = start_ns
        for change_ns, one, rate, token_rate in [*changes, (end_ns, 0, 0.0, 0.0)]:
            if change_ns > at_ns:
                self.pieces.append(Piece(at_ns, change_ns, sequences, events, tokens))
                at_ns = change_ns
            sequences, events, tokens = sequences + one, events + rate, tokens + token_rate
        self._starts = [piece.start_ns for piece in self.pieces]

    def before(self, at_ns: int) -> Piece:
        """Return the piece that holds the moment before `at_ns`, which is in the window."""
        return self.pieces[max(0, bisect_left(self._starts, at_ns) - 1)]

    def means(self, start_ns: int, end_ns: int) -> tuple[float, float, float]:
        """Return the averages of sequences and of their events and tokens per ns."""
        first = max(0, bisect_right(self._starts, start_ns) - 1)
        last = bisect_left(self._starts, end_ns)
        weighed = [
            (min(p.end_ns, end_ns) - max(p.start_ns, start_ns), p) for p in self.pieces[first:last]
        ]
        length = end_ns - start_ns
        return (
            math.fsum(ns * p.sequences for ns, p in weighed) / length,
            math.fsum(ns * p.events for ns, p in weighed) / length,
            math.fsum(ns * p.tokens for ns, p in weighed) / length,
        )


def decode_batch(records: Sequence[RequestRecord], start_ns: int, end_ns: int) -> float:
    """Return how many requests were between first and last token, on average over the window."""
    decoding = [d for r in records if (d := decoding_of(r)) is not None]
    sequences, _, _ = Batch(decoding, start_ns, end_ns).means(start_ns, end_ns)
    return sequences
