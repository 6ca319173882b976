"""Looking at something once a second beside the load, in a thread of its own.

Each instrument and each endpoint has its own sampler, so that one that is slow makes no gaps for
the others. All of a source is done in its thread: what hangs holds up nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, Protocol, TypeAlias

from tokenwatt_site.evidence.power import DramSpan, PowerSample, impossible
from tokenwatt_site.measure.clock import Clock
from tokenwatt_site.measure.power.meter import DramMeter, PowerMeter


class Source(Protocol):
    """What a sampler looks at. It keeps what it saw; nothing that it meets ends a measurement."""

    def read(self, now_ns: Callable[[], int]) -> None:
        """Look once."""
        ...

    def begin(self, now_ns: Callable[[], int]) -> None:
        """Begin what spans a window."""
        ...

    def end(self, now_ns: Callable[[], int], *, keep: bool) -> None:
        """End what `begin` began, if anything; without `keep` it is forgotten."""
        ...

    def close(self) -> None:
        """Release what it looks at."""
        ...


Edge: TypeAlias = Literal["begin", "end", "forget"]


class Sampler:
    """Reads a source at its own deadlines, and at the edges of windows, until it is to stop.

    The first reading is taken at once and the last when it stops, so both edges of what happens
    between are bracketed. A deadline that a slow reading passed is left out: no burst follows.
    """

    def __init__(self, source: Source, period_ns: int, clock: Clock, name: str) -> None:
        self.name = name
        self._source, self._period_ns, self._clock = source, period_ns, clock
        self._bell = threading.Event()
        self._first = threading.Event()
        self._stopping = False
        self._edges: list[tuple[int, Edge]] = []  # in order of time
        self._lock = threading.Lock()  # of the edges
        self._thread = threading.Thread(target=self._run, name=f"sampler: {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def await_first(self, limit_s: float) -> bool:
        """Wait until the first reading was taken; False: it was not, within `limit_s`."""
        return self._first.wait(limit_s)

    def window(self, start_ns: int, end_ns: int) -> None:
        """Read also at the two edges of this window, beside the readings at deadlines."""
        self._plan((start_ns, "begin"), (end_ns, "end"))

    def no_window(self) -> None:
        """Forget a window whose end is still ahead."""
        self._plan((self._clock.now_ns(), "forget"))

    def ask_to_stop(self) -> None:
        self._stopping = True
        self._clock.ring(self._bell)

    def join(self, limit_s: float) -> bool:
        """Wait until the last reading was taken and the source closed; False: it hangs."""
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _plan(self, *edges: tuple[int, Edge]) -> None:
        with self._lock:
            # An edge that has passed is still taken: the thread may only be late for it.
            now_ns = self._clock.now_ns()
            self._edges = [edge for edge in self._edges if edge[0] <= now_ns] + list(edges)
        self._clock.ring(self._bell)

    def _run(self) -> None:
        source, clock = self._source, self._clock
        try:
            due_ns = clock.now_ns() + self._period_ns
            source.read(clock.now_ns)
            self._first.set()
            while not self._stopping:
                due_ns = self._take_edges(due_ns)
                if due_ns <= clock.now_ns():
                    source.read(clock.now_ns)
                    late = max(0, clock.now_ns() - due_ns) // self._period_ns
                    due_ns += self._period_ns * (1 + late)
                with self._lock:
                    next_ns = min([due_ns] + [at_ns for at_ns, _ in self._edges])
                clock.wait(self._bell, max(0, next_ns - clock.now_ns()) / 1e9)
                self._bell.clear()
            self._take_edges(due_ns)
            source.end(clock.now_ns, keep=False)
            source.read(clock.now_ns)
        finally:
            source.close()

    def _take_edges(self, due_ns: int) -> int:
        """Read at every edge that has come; return the next deadline, a period after the last."""
        while (edge := self._next_edge()) is not None:
            if edge == "begin":
                self._source.begin(self._clock.now_ns)
            else:
                self._source.end(self._clock.now_ns, keep=edge == "end")
            if edge != "forget":
                at_ns = self._clock.now_ns()
                self._source.read(self._clock.now_ns)
                due_ns = max(due_ns, at_ns + self._period_ns)
        return due_ns

    def _next_edge(self) -> Edge | None:
        with self._lock:
            if not self._edges or self._edges[0][0] > self._clock.now_ns():
                return None
            return self._edges.pop(0)[1]


class PowerSource:
    """A meter as a source: all that it read, and the memory traffic of whole windows.

    A reading that fails is kept as samples without values, so that the gap shows; so is a value
    that no instrument can have read, such as a driver's largest number for "unknown".

    Attributes:
        meter: what is read.
        samples: all that it read.
        spans: of the windows.
        longest_ns: how long asking for a reading took at most, of those that came.
    """

    def __init__(self, meter: PowerMeter) -> None:
        self.meter = meter
        self.samples: list[PowerSample] = []
        self.spans: list[DramSpan] = []
        self.longest_ns = 0
        self._begun: object | None = None

    def read(self, now_ns: Callable[[], int]) -> None:
        asked_ns = now_ns()
        try:
            self.samples += map(self._possible, self.meter.read(now_ns))
            self.longest_ns = max(self.longest_ns, now_ns() - asked_ns)
        except Exception:  # noqa: BLE001  # an instrument's fault must not end the measurement
            at_ns = now_ns()
            boards = range(len(self.meter.boards()))
            self.samples += [PowerSample(at_ns, board, None, None) for board in boards]

    def _possible(self, sample: PowerSample) -> PowerSample:
        unread: dict[str, Any] = dict.fromkeys(impossible(sample, self.meter.scope))
        return replace(sample, **unread) if unread else sample

    def begin(self, now_ns: Callable[[], int]) -> None:
        self.end(now_ns, keep=False)
        if isinstance(self.meter, DramMeter):
            with suppress(Exception):  # as above: then the window has no span
                self._begun = self.meter.begin(now_ns)

    def end(self, now_ns: Callable[[], int], *, keep: bool) -> None:
        begun, self._begun = self._begun, None
        if begun is not None and isinstance(self.meter, DramMeter):
            with suppress(Exception):
                # Also where it is forgotten: the meter releases what it holds for the pair.
                spans = self.meter.end(begun, now_ns)
                self.spans += spans if keep else ()

    def close(self) -> None:
        with suppress(Exception):
            self.meter.close()
