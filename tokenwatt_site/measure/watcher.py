"""Looks at a running trial for whoever decides whether it goes on, and keeps out of its way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol, TypeAlias

from tokenwatt_site.evidence.records import RequestRecord
from tokenwatt_site.measure.exchange import Exchange

Watch: TypeAlias = Callable[[int, Sequence[RequestRecord], Sequence[RequestRecord]], bool]
"""(now_ns, records that became final since the last call, records of open requests) -> stop?"""

_WATCH_SHARE = 200
_LOOKS = 16  # at requests, in one pass; about 0.05 ms


class Watched(Protocol):
    """A trial that runs."""

    def ended(self) -> list[RequestRecord]:
        """Return the records that became final since the last call."""

    def still(self) -> Iterator[Exchange]:
        """Return the requests that are open now."""

    def snapshot(self, exchange: Exchange) -> RequestRecord:
        """Return what is known of an open request: a CENSORED record."""


class Watcher:
    """Shows a trial to `watch`: gathers what is open in small parts, one in each pass."""

    def __init__(self, trial: Watched, watch: Watch, every_ns: int) -> None:
        self._trial, self._watch, self._every_ns = trial, watch, every_ns
        self._next_ns = every_ns
        self._took_ns = 0
        self._left: Iterator[Exchange] | None = None
        self._seen: list[tuple[Exchange, RequestRecord]] = []

    def stops(self, now: int, due_ns: int) -> bool:
        """Do a part of the work where it is time for it; True when the trial is to stop.

        `due_ns` is when the next request is due: `watch` runs where it fits before that; where it
        never does, late rather than not.
        """
        if now < self._next_ns:
            return False
        if self._left is None:
            self._left, self._seen = self._trial.still(), []
        part = list(islice(self._left, _LOOKS))
        self._seen += [(exchange, self._trial.snapshot(exchange)) for exchange in part]
        fits = due_ns - now > 2 * self._took_ns or now >= self._next_ns + self._every_ns
        if len(part) == _LOOKS or not fits:
            return False
        still = [record for exchange, record in self._seen if exchange.fate is None]
        begun_ns = time.monotonic_ns()
        stop = self._watch(now, self._trial.ended(), still)
        self._took_ns = time.monotonic_ns() - begun_ns
        self._left = None
        # Requests that come due while it runs go late: at most one in _WATCH_SHARE.
        self._next_ns = now + max(self._every_ns, _WATCH_SHARE * self._took_ns)
        return stop
