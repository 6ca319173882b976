"""The engine in real time: each step ends when the engine says, on an absolute schedule.

The engine's times do not depend on how late this process is: a step begins when the one before it
should have ended, and takes in what had arrived by then. So the schedule can be computed again from
the times of arrival alone, and what a busy machine adds is lateness, which is told.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tokenwatt_site.simulate.engine import Engine, Generation, Request, Step

_TICK_NS = 1_000_000
"""The event loop's timers are as coarse as this; the rest is waited for awake."""


class Pacer:
    """Runs an engine in the running event loop; times are those of `time.monotonic_ns`.

    Args:
        engine: which nobody else runs.
        stepped: called at the end of each step.
        made: called then for each request that got a token.
    """

    def __init__(
        self,
        engine: Engine,
        stepped: Callable[[Step], None],
        made: Callable[[Generation, Step], None],
    ) -> None:
        self._engine = engine
        self._stepped = stepped
        self._made = made
        self._loop = asyncio.get_running_loop()
        self._step: Step | None = None

    def submit(self, request: Request) -> Generation:
        generation = self._engine.submit(request)
        if self._step is None:
            self._begin(request.arrival_ns)
        return generation

    def abort(self, generation: Generation) -> None:
        self._engine.abort(generation)

    def _begin(self, free_ns: int) -> None:
        start_ns = self._engine.next_start_ns(free_ns)
        self._step = None if start_ns is None else self._engine.begin(start_ns)
        if self._step is not None:
            # Also where it is late: what came in meanwhile is read before the next step ends.
            self._loop.call_at((self._step.end_ns - _TICK_NS) / 1e9, self._wait)

    def _wait(self) -> None:
        assert self._step is not None  # noqa: S101 - `_begin` calls this for its step alone
        if time.monotonic_ns() < self._step.end_ns:
            self._loop.call_soon(self._wait)
        else:
            self._end(self._step)

    def _end(self, step: Step) -> None:
        made = self._engine.end()
        self._stepped(step)
        for generation in made:
            self._made(generation, step)
        self._begin(step.end_ns)
