"""The search of a measurement, driven against a fictitious engine. Pure.

It passes up to a given rate. What a model predicts is right in one case, and off in others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tokenwatt_site.measure.search import Done, Offer, RepeatSearch
from tokenwatt_site.spec import Objective, Spec
from tokenwatt_site.validity import highest_rate_urps
from tokenwatt_site.windows import Band, Windows
from tokenwatt_site.workload import Realisation

OFF_SHARE = 0.06
"""How far a model that was fitted to the pilot alone may predict beside the boundary."""

UNLIKE_SHARE = 0.04
"""How far apart the boundaries of two repeats may be: windows within 1.5% each, and launches."""

PACE_MS = 50.0
"""Per token, where no TPOT objective bounds it."""


class Span(NamedTuple):
    """From the least to the most that is expected; seconds, or a number of times."""

    low: float
    high: float

    def plus(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Span:
        return Span(self.low * factor, self.high * factor)


NOTHING = Span(0, 0)


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One trial of the fictitious engine."""

    rate_urps: int
    passes: bool
    rows: int
    seconds: Span


def trial_seconds(
    slo: Sequence[Objective], realisation: Realisation, rate_urps: int, *, passes: bool
) -> Span:
    """Return how long a trial takes.

    One that passes lasts until its last scored request ends; how long answers take is known by
    their limit alone. One that fails ends when that is certain: early in its window, or when a
    request that is late was due to end.
    """
    due, scored = realisation.due_ns(rate_urps), realisation.scored_rows
    begin_s, end_s = due[scored.start] / 1e9, due[scored.stop - 1] / 1e9
    longest_s = max(realisation.rows[row].output_tokens for row in scored) * pace_s(slo)
    return Span(end_s, end_s + longest_s) if passes else Span(begin_s, end_s + longest_s / 2)


class Case(NamedTuple):
    """How far a prediction from the pilot alone, and then the boundaries of repeats, are off."""

    pilot: float
    repeat: float

    def off(self, repeat: int) -> float:
        """Return the share by which the boundary of a repeat is off: of three, one each way."""
        return self.repeat * (0, 1, -1)[(repeat - 1) % 3]


_UNLIKE = (UNLIKE_SHARE / 2, UNLIKE_SHARE)
CASES = (
    Case(0, 0),
    *(Case(p, r * s) for p in (-OFF_SHARE, OFF_SHARE) for r in _UNLIKE for s in (-1, 1)),
)


def rehearse(
    spec: Spec, windows: Windows, rate: int, case: Case
) -> tuple[tuple[PlannedTrial, ...], ...]:
    """Return the trials of each repeat of an engine whose boundary is near `rate`.

    What predicts knows that rate alone, and not how far a repeat's boundary is off.
    """
    repeats: list[tuple[PlannedTrial, ...]] = []
    earlier: list[Done] = []
    for repeat in range(1, spec.protocol.repeats + 1):
        boundary = round(rate * (1 + case.off(repeat)))
        trials, found = _repeat(
            spec, windows, repeat, earlier, rate=rate, boundary=boundary, case=case
        )
        repeats.append(trials)
        earlier.append(found)
    return tuple(repeats)


def _repeat(
    spec: Spec,
    windows: Windows,
    repeat: int,
    earlier: Sequence[Done],
    *,
    rate: int,
    boundary: int,
    case: Case,
) -> tuple[tuple[PlannedTrial, ...], Done]:
    """Return the trials of one repeat, and what they come to."""
    trials: list[PlannedTrial] = []

    def highest(band: Band) -> int:
        return highest_rate_urps(spec, windows.realisation(repeat, band), None)

    def predict(_band: Band, _near_urps: int) -> int:
        only_pilot = repeat == 1 and len(trials) == 1
        return round(rate * (1 + case.pilot)) if only_pilot else rate

    search = RepeatSearch(
        spec.protocol,
        windows,
        repeat,
        earlier=tuple(earlier),
        ceiling_urps=highest,
        predict=predict,
    )
    while (offer := search.next()) is not None:
        passes = offer.rate_urps <= boundary
        search.saw(offer, "PASS" if passes else "FAIL")
        trials.append(_trial(spec, windows, repeat, offer, passes=passes))
    return tuple(trials), search.done()


def _trial(
    spec: Spec, windows: Windows, repeat: int, offer: Offer, *, passes: bool
) -> PlannedTrial:
    realisation = windows.realisation(repeat, offer.band)
    seconds = trial_seconds(spec.setup.slo, realisation, offer.rate_urps, passes=passes)
    return PlannedTrial(offer.rate_urps, passes, offer.band.rows, seconds)


def pace_s(slo: Sequence[Objective]) -> float:
    """Return the time per token that an engine at its boundary is thought to have."""
    limits = [o.limit_ms for o in slo if o.metric == "tpot"]
    return min(limits, default=PACE_MS) / 1000


def total(spans: Iterable[Span]) -> Span:
    """Return all of these after one another."""
    both = list(spans)
    return Span(sum(span.low for span in both), sum(span.high for span in both))


def over(spans: Iterable[Span]) -> Span:
    """Return the span that has all of these in it."""
    lows, highs = zip(*spans, strict=True)
    return Span(min(lows), max(highs))
