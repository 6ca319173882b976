"""When an engine counts as warm: short bursts take the same time, again and again. Pure.

A fresh engine is slower in its first requests: kernels are compiled and chosen, caches and clocks
come up. How long that lasts differs from one to the next, so it is found, not fixed: bursts are
asked until both times, to the first token and from it to the last, have stopped falling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.spec import Mode

ALIKE_BURSTS = 3
ALIKE_SHARE = 0.05
"""Settled: so many bursts within this of their median, which is no more below any before them."""

ALIKE_NS = 1_000_000
"""What the client itself may be late by; two times that are closer are alike however short."""

AT_ONCE = 4
MOST_TOKENS = 64
"""Of an answer: enough to tell the time per token, and over in seconds."""

MOST_BURSTS: dict[Mode, int] = {"demo": 5, "quick": 20, "full": 20}


@dataclass(frozen=True, slots=True)
class Burst:
    """What one burst showed: medians over its whole answers, None where there was none.

    `first_ns` is to the first token, `rest_ns` from it to the last; `took_ns` is of the burst.
    """

    took_ns: int
    first_ns: int | None
    rest_ns: int | None


@dataclass(frozen=True, slots=True)
class WarmUp:
    """How an engine came up to its pace.

    Attributes:
        settled: whether its times stopped falling within the bursts that were asked.
        tokens: of each answer.
        bursts: all of them, in order.
    """

    settled: bool
    tokens: int
    bursts: tuple[Burst, ...]

    @property
    def seconds(self) -> float:
        return sum(burst.took_ns for burst in self.bursts) / 1e9

    def to_json(self) -> JsonValue:
        """Return what the journal tells."""
        return {
            "settled": self.settled,
            "tokens": self.tokens,
            "took_ns": [burst.took_ns for burst in self.bursts],
            "first_ns": [burst.first_ns for burst in self.bursts],
            "rest_ns": [burst.rest_ns for burst in self.bursts],
        }

    def __str__(self) -> str:
        count = len(self.bursts)
        text = f"warm-up: {count} burst{'s' if count != 1 else ''} in {self.seconds:.1f} s"
        text += "" if self.settled else ", and its times have not settled"
        first, last = self.bursts[0], self.bursts[-1]
        text += f"; to the first token {_ms(first.first_ns)}, then {_ms(last.first_ns)}"
        if self.tokens > 1:
            text += f"; for {self.tokens - 1} more {_ms(first.rest_ns)}, then {_ms(last.rest_ns)}"
        return text


def settle(ask: Callable[[int], Burst], *, most: int) -> tuple[bool, tuple[Burst, ...]]:
    """Ask bursts until their times have stopped falling, or `most` of them were asked.

    Args:
        ask: asks the burst of this number, from 0.
        most: how many at most.

    Returns:
        Whether they settled, and all bursts.
    """
    bursts: list[Burst] = []
    while len(bursts) < most:
        bursts.append(ask(len(bursts)))
        if _settled([b.first_ns for b in bursts]) and _settled([b.rest_ns for b in bursts]):
            return True, tuple(bursts)
    return False, tuple(bursts)


def _settled(times_ns: Sequence[int | None]) -> bool:
    """Tell whether the last times are alike, and no more below those before them than that."""
    last = [ns for ns in times_ns[-ALIKE_BURSTS:] if ns is not None]
    if len(last) < ALIKE_BURSTS:
        return False
    middle = median(last)
    near = max(ALIKE_SHARE * middle, ALIKE_NS)
    before = [ns for ns in times_ns[:-ALIKE_BURSTS] if ns is not None]
    return all(abs(ns - middle) <= near for ns in last) and middle >= min(before, default=0) - near


def _ms(ns: int | None) -> str:
    return "no answer" if ns is None else f"{ns / 1e6:,.1f} ms"
