"""Which rate to offer next: pure, and a function of what was seen and of what is predicted.

A pilot first. Where the engine model then predicts the boundary, trials go around that; else rates
are doubled or halved until the boundary is enclosed. The bracket is narrowed on the logarithm of
the rate, with rows of one band of rates: rows of another have a boundary of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from tokenwatt_site.goodput import boundary_urps, bracket
from tokenwatt_site.spec import Protocol
from tokenwatt_site.windows import Band, Windows

Outcome: TypeAlias = Literal["PASS", "FAIL"]
Predict: TypeAlias = Callable[[Band, int], int | None]
"""Gives the boundary on a band's rows, in 1e-6 requests/s, near a rate; None: nothing is known."""

STEP = 2.0
"""Factor between rates while the boundary is not enclosed and nothing predicts it."""

FLOOR_SHARE = 64
"""The search gives up below the first rate / FLOOR_SHARE."""

SWEEP = (0.7, 0.85, 0.95, 1.1)
"""Of the boundary: the rates of the curve, in repeat 1 of full mode."""

GUARD_REPEAT = 2
"""In full mode this repeat asks the model for nothing, so that its bias would show."""


class Offer(NamedTuple):
    """A rate in 1e-6 requests/s, and the band whose rows are offered at it."""

    rate_urps: int
    band: Band


@dataclass(frozen=True, slots=True)
class Done:
    """What a repeat before found; its boundary is that of its bracket."""

    repeat: int
    boundary_urps: int


class RepeatSearch:
    """The trials of one repeat. Ask `next`, offer that, tell `saw`; until `next` has none.

    An offer that came to no verdict is told nothing of, and is the next one again.
    """

    def __init__(
        self,
        protocol: Protocol,
        windows: Windows,
        repeat: int,
        *,
        earlier: Sequence[Done] = (),
        ceiling_urps: Callable[[Band], int] = lambda band: band.highest_urps,
        predict: Predict | None = None,
    ) -> None:
        """Begin a repeat.

        Args:
            protocol: gives start rate, mode and the ratio at which a bracket is narrow enough.
            windows: gives the bands.
            repeat: its number, from 1.
            earlier: repeats before it that found a boundary.
            ceiling_urps: the highest rate that may be offered with the rows of a band.
            predict: the engine model's word.
        """
        self._ratio = protocol.bracket_ratio
        self._windows = windows
        self._ceiling_urps = ceiling_urps
        self._predict = predict
        self._seen: list[tuple[Offer, Outcome]] = []
        self._band: Band | None = None
        self._centre_urps = 0
        self._pilots = 0
        self._asked: set[Outcome] = set()
        self._sweep: list[int] | None = None if protocol.mode == "full" and repeat == 1 else []
        guarded = protocol.mode == "full" and repeat == GUARD_REPEAT
        self._start_urps = round(protocol.start_rate * 1e6)
        if earlier:
            self._start_urps = earlier[-1].boundary_urps
            if guarded:
                self._predict = None
            self._settle(self._start_urps)

    def next(self) -> Offer | None:
        """Return what to offer next, or None when the search is over.

        Over means: the bracket is at most the mode's ratio wide and the sweep was made, the highest
        rate that may be offered passed, or the lowest worth trying failed.
        """
        if self._band is None:
            pilot = self._pilot()
            if pilot is not None or self._band is None:
                return pilot
        rate = self._around()
        if rate is None and self._enclosed() is not None:
            if self._sweep is None:
                self._sweep = list(self._sweep_rates())
            if self._sweep:
                rate = self._sweep[0]
        return None if rate is None else Offer(rate, self._band)

    def saw(self, offer: Offer, outcome: Outcome) -> None:
        """Take the verdict of a valid trial."""
        self._seen.append((offer, outcome))
        if self._band is None:
            self._pilots = len(self._seen)
        if self._sweep and offer.rate_urps == self._sweep[0]:
            self._sweep.pop(0)

    def left(self) -> int:
        """Estimate how many trials are still needed, for the progress display."""
        sweep = len(SWEEP) if self._sweep is None else len(self._sweep)
        low, high = self._edges()
        if low is not None and high is not None:
            width = math.log(high / low) / math.log(self._ratio)
            return sweep + (math.ceil(math.log2(width)) if width > 1 else 0)
        return sweep + 2 - (low is not None) - (high is not None)

    @property
    def boundary_urps(self) -> int | None:
        """The boundary, once it is enclosed."""
        found = self._enclosed()
        return None if found is None else boundary_urps(*found)

    def _pilot(self) -> Offer | None:
        """Return the next pilot, each with the rows of its own band; None: go on in `_band`."""
        if not self._seen:
            ceiling = self._ceiling_urps(self._windows.band_at(self._start_urps))
            return self._offered(min(self._start_urps, ceiling))
        (last, outcome), band = self._seen[-1], self._seen[-1][0].band
        if self._predict is not None and (found := self._predict(band, last.rate_urps)) is not None:
            self._settle(found, band)
            return None
        low, high = bracket(
            [offer.rate_urps for offer, verdict in self._seen if verdict == "PASS"],
            [offer.rate_urps for offer, verdict in self._seen if verdict == "FAIL"],
        )
        if low is not None and high is not None:
            self._centre_urps = math.isqrt(low * high)
            self._band = self._windows.band_at(self._centre_urps)
            return None
        if outcome == "PASS":
            rate = math.ceil(last.rate_urps * STEP)
            highest = self._ceiling_urps(self._windows.band_at(rate))
            return None if last.rate_urps >= highest else self._offered(min(rate, highest))
        floor = max(1, self._start_urps // FLOOR_SHARE)
        lowest = high or last.rate_urps
        if lowest <= floor:
            return None
        return self._offered(max(math.floor(lowest / STEP), floor))

    def _offered(self, rate_urps: int) -> Offer:
        return Offer(rate_urps, self._windows.band_at(rate_urps))

    def _settle(self, near_urps: int, predicted_on: Band | None = None) -> None:
        """Choose the band of the bracket, and where in it the boundary is looked for."""
        self._band, self._centre_urps = self._windows.band_at(near_urps), near_urps
        if self._band != predicted_on:
            self._ask()

    def _ask(self) -> None:
        """Look for the boundary where the model now has it, if it has one."""
        if self._predict is not None and self._band is not None:
            self._centre_urps = self._predict(self._band, self._centre_urps) or self._centre_urps

    def _own(self) -> list[tuple[int, Outcome]]:
        return [(o.rate_urps, verdict) for o, verdict in self._seen if o.band == self._band]

    def _edges(self) -> tuple[int | None, int | None]:
        own = self._own()
        return bracket(
            [rate for rate, verdict in own if verdict == "PASS"],
            [rate for rate, verdict in own if verdict == "FAIL"],
        )

    def _enclosed(self) -> tuple[int, int] | None:
        low, high = self._edges()
        if low is None or high is None or high > low * self._ratio:
            return None
        return low, high

    def _around(self) -> int | None:
        """Return the next rate of the bracket; None: it is narrow enough, or cannot be closed.

        Away from where the boundary was looked for by the mode's ratio, then by its square, and so
        on, or to where the model has it meanwhile where that is further; then bisect.
        """
        assert self._band is not None  # noqa: S101 - `next` asks after it is chosen
        low, high = self._edges()
        if low is not None and high is not None and high <= low * self._ratio:
            return None
        around = {verdict for offer, verdict in self._since() if offer.band == self._band}
        if around == {"PASS", "FAIL"} and low is not None and high is not None:
            return math.isqrt(low * high)
        if around and around != self._asked:
            self._ask()
        self._asked = around
        first = math.ceil(self._centre_urps / math.sqrt(self._ratio))
        step = min(STEP, self._ratio ** (2 ** min(max(len(self._since()) - 1, 0), 8)))
        if "PASS" in around and low is not None:
            first = max(first, math.floor(low * step))
        elif "FAIL" in around and high is not None:
            first = min(first, math.ceil(high / step))
        if low is not None and high is not None:
            inside = math.ceil(high / self._ratio), math.floor(low * self._ratio)
            first = max(min(first, inside[0]), inside[1])
            return first if low < first < high else math.isqrt(low * high)
        if high is not None:
            floor = max(1, self._start_urps // FLOOR_SHARE)
            return None if high <= floor else max(min(first, math.ceil(high / step)), floor)
        return self._upward(first, low, step)

    def _since(self) -> list[tuple[Offer, Outcome]]:
        """What was seen since the boundary is looked for where it is."""
        return self._seen[self._pilots :]

    def _upward(self, first: int, low: int | None, step: float) -> int | None:
        """Return a rate where nothing failed yet; beyond a band's rows it is the next band's."""
        assert self._band is not None  # noqa: S101 - as in `_around`
        ceiling = min(self._ceiling_urps(self._band), self._band.highest_urps)
        if low is None:
            return min(first, ceiling)
        if low < ceiling:
            return min(max(first, math.floor(low * step), low + 1), ceiling)
        beyond = self._windows.band_at(low + 1)
        if beyond == self._band or self._ceiling_urps(beyond) <= low:
            return None
        self._pilots = len(self._seen)
        self._settle(low + 1)
        return self._around()

    def _sweep_rates(self) -> Iterator[int]:
        found, band = self._enclosed(), self._band
        if found is None or band is None:
            return
        tried = {rate for rate, _ in self._own()}
        middle = math.isqrt(found[0] * found[1])
        ceiling = min(self._ceiling_urps(band), band.highest_urps)
        for share in SWEEP:
            rate = round(middle * share)
            if rate not in tried and rate <= ceiling:
                yield rate
