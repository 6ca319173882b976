"""The warm-up of an engine: found, not fixed. Nothing of it is scored (A16).

A fresh engine is slower in its first requests: kernels are compiled and chosen, caches and clocks
come up. How long that lasts differs from one to the next, so short bursts are asked until both
times, to the first token and from it to the last, have stopped falling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.errors import EngineError, Problem
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.measure.client import Offered, PlannedRequest, Target, offer
from tokenwatt_site.measure.endpoint import request_body
from tokenwatt_site.prompts import Prompts
from tokenwatt_site.spec import Mode, Spec
from tokenwatt_site.workload import Realisation

ALIKE_BURSTS = 3
ALIKE_SHARE = 0.05
"""Settled: so many bursts within this of their median, which is no more below any before them."""

ALIKE_NS = 1_000_000
"""What the client itself may be late by; two times that are closer are alike however short."""

AT_ONCE = 4
MOST_TOKENS = 64
"""Of an answer: enough to tell the time per token, and over in seconds."""

FIRST_STREAM = 1 << 32
"""The streams of these prompts begin here, so that none was asked in the preflight."""

MOST_BURSTS: dict[Mode, int] = {"demo": 5, "quick": 20, "full": 20}

MAX_SILENT = 2
"""After so many bursts without one whole answer the engine is at fault."""


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


def warm_up(
    spec: Spec,
    realisation: Realisation,
    target: Target,
    *,
    key: bytes,
    prompts: Prompts,
    chat_overhead: int,
    folder: Path | None,
) -> WarmUp:
    """Warm an engine up with a few fresh prompts at a time, of the workload's median lengths.

    Args:
        spec: says which API, model, mode and deadline.
        realisation: what the first trial will offer, for its lengths.
        target: where to ask.
        key: `prompts.trial_key` of this launch: no engine has seen what it makes.
        prompts: what is asked with.
        chat_overhead: tokens that the engine adds to a text; 0 for token ids.
        folder: see `client.offer`.

    Raises:
        EngineError: no whole answer came in MAX_SILENT bursts in a row.
        EnvironmentProblem: see `client.offer`, or a prompt that the tokenizer counts otherwise.
    """
    rows = [realisation.rows[number] for number in realisation.scored_rows]
    given = max(1, round(median(row.input_tokens for row in rows)) - chat_overhead)
    tokens = min(MOST_TOKENS, max(1, round(median(row.output_tokens for row in rows))))
    silent = 0

    def ask(number: int) -> Burst:
        nonlocal silent
        streams = range(FIRST_STREAM + number * AT_ONCE, FIRST_STREAM + (number + 1) * AT_ONCE)
        offered = offer(
            [
                _planned(spec, row, prompts.prompt(key, stream, given), given, tokens)
                for row, stream in enumerate(streams)
            ],
            target,
            repeat=0,
            trial=0,
            request_timeout_ns=round(spec.protocol.request_timeout_s * 1e9),
            watch=lambda *_: False,
            folder=folder,
        )
        burst = _burst(offered)
        silent = silent + 1 if burst.first_ns is None else 0
        if silent == MAX_SILENT:
            raise EngineError(
                Problem(
                    f"the engine gave no whole answer to {MAX_SILENT} bursts of its warm-up",
                    found="; ".join(offered.errors),
                    remedy="Look at the engine's own log.",
                )
            )
        return burst

    settled, bursts = settle(ask, most=MOST_BURSTS[spec.protocol.mode])
    return WarmUp(settled, tokens, bursts)


def _planned(
    spec: Spec, row: int, prompt: Sequence[int] | str, given: int, tokens: int
) -> PlannedRequest:
    endpoint = spec.endpoint
    body = request_body(endpoint.api, endpoint.model, prompt, tokens, may_be_cached=False)
    return PlannedRequest(row, 0, body, given, tokens)


def _burst(offered: Offered) -> Burst:
    records = offered.records
    times = [
        (r.first_ns - r.due_ns, r.last_ns - r.first_ns)
        for r in records
        if r.status is Status.OK and r.first_ns is not None and r.last_ns is not None
    ]
    return Burst(
        took_ns=max(r.end_ns for r in records),
        first_ns=round(median(first for first, _ in times)) if times else None,
        rest_ns=round(median(rest for _, rest in times)) if times else None,
    )


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
