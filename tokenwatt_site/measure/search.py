"""Which rate to offer next, and on the rows of which band: pure, so that a run can be resumed.

A repeat begins with pilots, each on the rows of its own band, until an engine model predicts the
boundary or two of them enclose it. From then on all trials are of one band, since only verdicts on
the same rows can be held against each other. The prediction is a pair of rates as far apart as the
bracket may be: where the lower one passes and the upper one fails, the search is over. Where not,
it asks for another prediction or steps out, each step the square of the one before, and bisects on
log rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tokenwatt_site.goodput import boundary_urps, bracket
from tokenwatt_site.run import Verdict
from tokenwatt_site.spec import Protocol
from tokenwatt_site.windows import Band, Windows

STEP = 2.0
"""Factor between pilots; no other step is greater."""

FLOOR_SHARE = 64
"""The search gives up below 1/FLOOR_SHARE of where it began."""

MOST_PREDICTIONS = 3
"""Of one repeat: a model that was wrong so often is not asked again."""

GUARD_REPEAT = 2
"""Of full mode: searched without the model, so that a bias of it would show."""

SWEEP = (0.7, 0.85, 0.95, 1.1)
"""Rates beside the boundary, as shares of it, for the curve; in repeat 1 of full mode."""

_NEAR = 50


class Offer(NamedTuple):
    """A rate in 1e-6 requests/s, and the band whose rows are offered at it."""

    rate_urps: int
    band: Band


class Done(NamedTuple):
    """What the search of one repeat came to, on the rows of the band that it offered last.

    `boundary_urps` is None while the bracket is open, `pass_urps` the highest rate that passed;
    without `band` it is that of the boundary.
    """

    repeat: int
    boundary_urps: int | None
    pass_urps: int | None = None
    band: Band | None = None


class _Guess(NamedTuple):
    """Between which rates the boundary is thought to be, on the rows of a band."""

    band: Band
    low_urps: int
    high_urps: int


class RepeatSearch:
    """The search of one repeat: ask `next`, offer that, tell `saw`; until `next` is None."""

    def __init__(
        self,
        protocol: Protocol,
        windows: Windows,
        repeat: int,
        *,
        earlier: Sequence[Done] = (),
        ceiling_urps: Callable[[Band], int],
        predict: Callable[[Band, int], int | None] | None = None,
    ) -> None:
        """Begin the search of a repeat, in which nothing was offered yet.

        Args:
            protocol: mode, `start_rate` and how narrow a bracket must be.
            windows: the bands.
            repeat: from 1.
            earlier: the repeats before.
            ceiling_urps: the highest rate that may be offered on the rows of a band.
            predict: gives the boundary on the rows of a band, near a rate; None where it cannot.
                It is asked after each pilot, and with what was seen by then.
        """
        self._ratio = protocol.bracket_ratio
        self._start_urps = protocol.start_urps
        self._windows = windows
        self._repeat = repeat
        self._earlier = earlier
        self._ceiling_urps = ceiling_urps
        guard = protocol.mode == "full" and repeat == GUARD_REPEAT
        self._predict = None if guard else predict
        self._sweeps = protocol.mode == "full" and repeat == 1
        self._seen: list[tuple[Offer, Verdict]] = []
        self._guess: _Guess | None = None
        self._predictions = 0
        self._sweep: list[Offer] | None = None
        self._swept: set[Offer] = set()
        self._next: Offer | None = None
        self._over = False

    def next(self) -> Offer | None:
        """Return what to offer; None: the search is over.

        Over means: the bracket is narrow enough, the highest rate allowed passed, the lowest worth
        trying failed, or one that is needed was given up.
        """
        if self._next is None and not self._over:
            self._next = self._choose()
            self._over = self._next is None
        return self._next

    def saw(self, offer: Offer, outcome: Verdict) -> None:
        """Take the verdict of a trial; a rate that was INVALID comes again until it is given up."""
        self._seen.append((offer, outcome))
        if outcome != "INVALID":
            self._next = None

    def give_up(self, offer: Offer) -> None:
        """Offer this no more: the sweep does without it, and without it the bracket stays open."""
        self._next = None
        self._over = offer not in self._swept

    def left(self) -> int:
        """Estimate how many trials there still are, `next` included, for the progress display."""
        if self._over:
            return 0
        if self._sweep is not None:
            return len(self._sweep) + (self._next is not None)
        to_sweep = len(SWEEP) if self._sweeps else 0
        low, high = self._enclosed(self._band) if self._band else (None, None)
        if low and high and self._narrow(low, high):
            return to_sweep
        guess = self._guess
        if guess and (low or 0) <= guess.low_urps < guess.high_urps <= (high or guess.high_urps):
            edges, wide = (guess.low_urps, guess.high_urps), guess.high_urps / guess.low_urps
            unseen = sum(edge not in (low, high) for edge in edges)
        else:
            unseen, wide = (low is None) + (high is None), high / low if low and high else STEP
        halvings = math.ceil(math.log2(max(math.log(wide) / math.log(self._ratio), 1)))
        return max(1, unseen + halvings) + to_sweep

    @property
    def boundary_urps(self) -> int | None:
        """The geometric mean of the bracket; None while it is open or too wide."""
        return self.done().boundary_urps

    def done(self) -> Done:
        """Return what the search came to so far."""
        band = self._seen[-1][0].band if self._seen else None
        low, high = self._enclosed(band) if band else (None, None)
        enclosed = low is not None and high is not None and self._narrow(low, high)
        return Done(self._repeat, boundary_urps(low, high) if enclosed else None, low, band)

    @property
    def _band(self) -> Band | None:
        """The band of the bracket, or of the last pilot."""
        if self._guess is not None:
            return self._guess.band
        return self._seen[-1][0].band if self._seen else None

    def _choose(self) -> Offer | None:
        if self._guess is None:
            self._guess = self._first_guess()
        if self._guess is None:
            return self._pilot()
        while (guess := self._guess) is not None:
            low, high = self._enclosed(guess.band)
            if low and high and self._narrow(low, high):
                return self._beside(guess.band, low, high)
            if low is None or low < self._top(guess.band):
                return self._within(guess, low, high)
            self._guess = self._above(guess.band, low)
        return None

    def _first_guess(self) -> _Guess | None:
        """Return where the boundary is thought to be; None: nothing tells, a pilot has to."""
        valid = self._valid()
        bounded = [done for done in self._earlier if done.boundary_urps]
        if (near := valid[-1][0].rate_urps if valid else _last_boundary(bounded)) is not None:
            predicted = self._predicted(self._windows.band_at(near), near)
            if predicted is not None:
                # A prediction for the rows of another band is one for that band's rows.
                return self._around(self._windows.band_at(predicted), predicted)
        if not valid and bounded:
            # The guard is held against the first repeat alone.
            _, found, _, band = bounded[-1 if self._predict else 0]
            urps = found or self._start_urps
            return self._around(band or self._windows.band_at(urps), urps)
        low, high = self._piloted()
        if low is None or high is None:
            return None
        return _Guess(self._windows.band_at(math.isqrt(low * high)), low, high)

    def _predicted(self, band: Band, near_urps: int) -> int | None:
        """Return the boundary that the model predicts, on the rows of the band in which it is."""
        if self._predict is None or self._predictions >= MOST_PREDICTIONS:
            return None
        self._predictions += 1
        predicted = self._predict(band, near_urps)
        if predicted is None or (other := self._windows.band_at(predicted)) == band:
            return predicted
        return self._predict(other, predicted) or predicted

    def _around(self, band: Band, urps: int) -> _Guess:
        """Return the guess of a boundary at a rate: just as wide as a bracket may be."""
        top = self._top(band)
        low = min(max(1, math.floor(urps / math.sqrt(self._ratio))), top)
        return _Guess(band, low, min(max(low + 1, math.floor(low * self._ratio)), top))

    def _pilot(self) -> Offer | None:
        """Return the next rate on rows of its own band, doubled or halved; None: at an end."""
        low, high = self._piloted()
        if low is not None:
            rate = math.ceil(low * STEP)
        elif high is not None:
            if high <= (floor := self._floor()):
                return None
            rate = max(math.floor(high / STEP), floor)
        else:
            passed = [done.pass_urps for done in self._earlier if done.pass_urps]
            rate = passed[-1] if passed else self._start_urps
        band = self._windows.band_at(rate)
        rate = min(rate, self._top(band))
        return Offer(rate, band) if low is None or rate > low else None

    def _within(self, guess: _Guess, low: int | None, high: int | None) -> Offer | None:
        """Return what narrows the bracket in the band of the guess; None: at an end."""
        at_least, at_most = guess.low_urps, guess.high_urps
        if high is not None and high <= at_least:
            return self._anew(guess, high, low, high) or self._down(guess, low, high)
        if low is not None and low >= at_most:
            return self._anew(guess, low, low, high) or self._up(guess, low, high)
        # What is only thought counts until it is seen to be otherwise.
        below = at_least if low is None else max(low, at_least)
        above = at_most if high is None else min(high, at_most)
        if not self._narrow(below, above):
            rate = math.isqrt(below * above)
        else:
            rate = below if below != low else above
        return self._untried(guess.band, rate, low, high)

    def _anew(self, guess: _Guess, near: int, low: int | None, high: int | None) -> Offer | None:
        """Ask for another prediction where the last was wrong; None: it does not help."""
        if self._predict is None or self._predictions >= MOST_PREDICTIONS:
            return None
        if low and high and high <= low * self._ratio**2:
            return None  # one bisection ends it
        self._predictions += 1
        if (predicted := self._predict(guess.band, near)) is None:
            return None
        again = self._around(guess.band, predicted)
        if again.low_urps <= (low or 0) or (high is not None and again.high_urps >= high):
            return None
        self._guess = again
        return self._untried(guess.band, again.low_urps, low, high)

    def _down(self, guess: _Guess, low: int | None, high: int) -> Offer | None:
        if low is None and high <= self._floor():
            return None
        rate = math.ceil(high / self._step(guess, "FAIL"))
        return self._untried(guess.band, max(rate, math.isqrt((low or 1) * high)), low, high)

    def _up(self, guess: _Guess, low: int, high: int | None) -> Offer | None:
        rate = min(math.floor(low * self._step(guess, "PASS")), self._top(guess.band))
        rate = rate if high is None else min(rate, math.isqrt(low * high))
        return self._untried(guess.band, rate, low, high)

    def _step(self, guess: _Guess, outcome: Verdict) -> float:
        """Return the next factor away from a guess: squared for each that went the same way."""
        same = [
            offer.rate_urps
            for offer, verdict in self._valid()
            if offer.band == guess.band
            and verdict == outcome
            and (
                offer.rate_urps <= guess.low_urps
                if outcome == "FAIL"
                else offer.rate_urps >= guess.high_urps
            )
        ]
        return min(STEP, math.pow(self._ratio, 2 ** min(len(same) - 1, 10)))

    def _above(self, band: Band, low: int) -> _Guess | None:
        """Go on in the next band, where the highest rate of this one passed; None: none is."""
        higher = (n for n in self._windows.bands if n.low_urps > band.low_urps)
        if (upper := next((n for n in higher if self._top(n) > low), None)) is None:
            return None
        predicted = self._predicted(upper, low)
        around = None if predicted is None else self._around(upper, predicted)
        if around is not None and around.low_urps > low:
            return around
        return _Guess(upper, low, min(math.floor(low * self._ratio), self._top(upper)))

    def _beside(self, band: Band, low: int, high: int) -> Offer | None:
        """Return the next rate of the sweep; None: there is none."""
        if not self._sweeps:
            return None
        if self._sweep is None:
            middle, top, tried = math.isqrt(low * high), self._top(band), self._tried()
            rates = (round(middle * share) for share in SWEEP)
            self._sweep = [Offer(rate, band) for rate in rates if 0 < rate <= top]
            self._sweep = [offer for offer in self._sweep if offer.rate_urps not in tried]
            self._swept = set(self._sweep)
        return self._sweep.pop(0) if self._sweep else None

    def _untried(self, band: Band, rate: int, low: int | None, high: int | None) -> Offer | None:
        """Offer the rate, or the next to it that was not tried, inside what is known."""
        first = 1 if low is None else low + 1
        last = self._top(band) if high is None else high - 1
        if first > last:
            return None
        rate, tried = min(max(rate, first), last), self._tried()
        # On the rows of another band it may have been.
        near = (
            *range(rate, min(last, rate + _NEAR) + 1),
            *range(rate, max(first, rate - _NEAR), -1),
        )
        free = next((urps for urps in near if urps not in tried), None)
        return None if free is None else Offer(free, band)

    def _valid(self) -> list[tuple[Offer, Verdict]]:
        return [(offer, verdict) for offer, verdict in self._seen if verdict != "INVALID"]

    def _tried(self) -> set[int]:
        return {offer.rate_urps for offer, _ in self._seen}

    def _piloted(self) -> tuple[int | None, int | None]:
        """Return the bracket of trials on the rows of any band."""
        return _bracket(self._valid())

    def _enclosed(self, band: Band) -> tuple[int | None, int | None]:
        return _bracket([(o, verdict) for o, verdict in self._valid() if o.band == band])

    def _narrow(self, low: int, high: int) -> bool:
        return high <= low * self._ratio or high - low <= 1

    def _top(self, band: Band) -> int:
        """The highest rate to offer on the rows of a band."""
        return max(1, min(self._ceiling_urps(band), band.highest_urps))

    def _floor(self) -> int:
        """The lowest rate worth trying."""
        began = self._seen[0][0].rate_urps if self._seen else self._start_urps
        guessed = began if self._guess is None else self._guess.low_urps
        return max(1, min(began, guessed) // FLOOR_SHARE)


def _last_boundary(bounded: Sequence[Done]) -> int | None:
    return bounded[-1].boundary_urps if bounded else None


def _bracket(seen: Sequence[tuple[Offer, Verdict]]) -> tuple[int | None, int | None]:
    return bracket(
        [offer.rate_urps for offer, verdict in seen if verdict == "PASS"],
        [offer.rate_urps for offer, verdict in seen if verdict == "FAIL"],
    )
