"""The coordinator of several workers: one clock, one verdict, one list of records.

To who asks for a trial it is a client as `offer` is. All workers get one time 0 in the future, each
on its own clock, and one time at which to stop, a little ahead. Where a worker is lost the others
stop too: the load is not the one that was planned any more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from tokenwatt_site.errors import EnvironmentProblem, Problem
from tokenwatt_site.evidence.records import RequestRecord
from tokenwatt_site.measure.client import WATCH_EVERY_NS, Offered, PlannedRequest, Target
from tokenwatt_site.measure.fleet.alignment import Offset
from tokenwatt_site.measure.fleet.merging import merged, unpacked
from tokenwatt_site.measure.fleet.messages import (
    Answered,
    Asked,
    Done,
    Failed,
    Go,
    Part,
    Ping,
    Pong,
    Ready,
    Seen,
    Stop,
)
from tokenwatt_site.measure.watcher import Watch

_LEAD_NS = 50_000_000  # for a message to be there before what it tells of
_SILENT_S = 60.0
_LOOK_S = 0.01
_PINGS = 32
_TRIES = 2

_M = TypeVar("_M", bound=Answered)


class WorkerLost(Exception):
    """A worker ended, or does not answer; the text says how, after its name."""


class Worker(Protocol):
    """One that offers a part of each trial, wherever it runs."""

    def tell(self, message: Asked) -> None:
        """Hand it a message.

        Raises:
            WorkerLost: it is not there.
        """
        ...

    def hear(self, timeout_s: float) -> Answered | None:
        """Return its next message, waiting so long for one; None: there is none.

        Raises:
            WorkerLost: none will come any more.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Member:
    """A worker while it is there; `leave` ends it."""

    number: int
    worker: Worker
    leave: ExitStack

    def expect(self, kind: type[_M]) -> _M:
        """Return its next message, which is of this kind.

        Raises:
            WorkerLost: there is none, or another one.
            TokenwattError: what it failed with.
        """
        message = self.worker.hear(_SILENT_S)
        if isinstance(message, Failed):
            raise message.error
        if not isinstance(message, kind):
            raise WorkerLost(_SILENT if message is None else "answered out of turn")
        return message

    def offset(self) -> Offset:
        """Exchange stamps with it.

        Raises:
            WorkerLost: see `expect`.
        """
        return Offset.between(self._stamps())

    def _stamps(self) -> Iterator[tuple[int, int, int]]:
        for _ in range(_PINGS):
            asked_ns = time.monotonic_ns()
            self.worker.tell(Ping())
            theirs_ns = self.expect(Pong).at_ns
            yield asked_ns, theirs_ns, time.monotonic_ns()


_SILENT = f"said nothing for {_SILENT_S:g} s"


class Fleet:
    """Several workers, each started when a trial needs it; `offer` is a `client.Client`."""

    def __init__(self, start: Callable[[int], AbstractContextManager[Worker]], count: int) -> None:
        """Take so many workers, which `start` starts by their number, from 0."""
        self._start, self._count = start, count
        self._members: dict[int, _Member] = {}

    def close(self) -> None:
        """End all workers."""
        for number in tuple(self._members):
            self._dismiss(number)

    def offer(
        self,
        plan: Sequence[PlannedRequest],
        target: Target,
        *,
        repeat: int,
        trial: int,
        request_timeout_ns: int,
        watch: Watch,
        watch_every_ns: int = WATCH_EVERY_NS,
        folder: Path | None = None,
        begins: Callable[[int], None] = lambda _: None,
    ) -> Offered:
        """Offer `plan` by all workers; see `client.offer`.

        Raises:
            EnvironmentProblem: as there, or workers end before the load begins.
            UsageError: as there.
            KeyboardInterrupt: as it came; all workers are ended.
        """
        ordered = sorted(plan, key=lambda planned: planned.due_ns)
        parts = [
            Part(
                plan=tuple(p for p in ordered if p.row % self._count == number),
                target=target,
                repeat=repeat,
                trial=trial,
                request_timeout_ns=request_timeout_ns,
                watch_every_ns=watch_every_ns,
                folder=folder,
            )
            for number in range(self._count)
        ]
        try:
            offsets = self._prepare(parts)
            together = _Trial(
                ordered, self._members, offsets, self._dismiss, repeat=repeat, trial=trial
            )
            return together.run(watch, watch_every_ns, begins)
        except BaseException:
            self.close()  # none is left in the middle of a trial
            raise

    def _prepare(self, parts: Sequence[Part]) -> dict[int, Offset]:
        """Have all workers ready to begin; return the offsets of their clocks."""
        for _ in range(_TRIES):
            try:
                offsets = {n: self._member(n).offset() for n in range(self._count)}
                for member, part in zip(self._in_order(), parts, strict=True):
                    member.worker.tell(part)
                for member in self._in_order():
                    member.expect(Ready)
            except WorkerLost as lost:
                self.close()
                why = str(lost)
            else:
                return offsets
        raise EnvironmentProblem(
            Problem(
                "a client process is lost before the load begins",
                found=f"one that {why}",
                remedy="Is there memory, and may this user start processes? Or measure with fewer"
                " workers.",
            )
        )

    def _in_order(self) -> list[_Member]:
        return [self._members[number] for number in range(self._count)]

    def _member(self, number: int) -> _Member:
        if number not in self._members:
            leave = ExitStack()
            worker = leave.enter_context(self._start(number))
            self._members[number] = _Member(number, worker, leave)
        return self._members[number]

    def _dismiss(self, number: int) -> None:
        self._members.pop(number).leave.close()


@dataclass(slots=True)
class _Trial:
    """One trial that workers offer together: from their common start to its records."""

    plan: Sequence[PlannedRequest]
    members: dict[int, _Member]
    offsets: dict[int, Offset]
    dismiss: Callable[[int], None]
    repeat: int
    trial: int
    epoch_ns: int = 0
    end_ns: int | None = None
    known: dict[int, RequestRecord] = field(default_factory=dict)
    fresh: list[RequestRecord] = field(default_factory=list)
    still: dict[int, list[RequestRecord]] = field(default_factory=dict)
    heard_ns: dict[int, int] = field(default_factory=dict)
    done: dict[int, Offered] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)

    def run(self, watch: Watch, watch_every_ns: int, begins: Callable[[int], None]) -> Offered:
        self.epoch_ns = time.monotonic_ns() + _LEAD_NS
        begins(self.epoch_ns)
        self.heard_ns = dict.fromkeys(self.members, self.epoch_ns)
        for number in tuple(self.heard_ns):
            self._tell(number, Go(self.epoch_ns + self.offsets[number].assumed_ns))
        next_ns = watch_every_ns
        while self.heard_ns:
            self._hear_all()
            now = time.monotonic_ns() - self.epoch_ns
            if self.end_ns is None and now >= next_ns:
                next_ns = now + watch_every_ns
                fresh, self.fresh = self.fresh, []
                if watch(now, fresh, [r for part in self.still.values() for r in part]):
                    self._stop()
        return self._offered()

    def _hear_all(self) -> None:
        wait_s = _LOOK_S / len(self.heard_ns)
        for number in tuple(self.heard_ns):
            if number not in self.heard_ns:  # lost as it was told of the loss of another
                continue
            try:
                message = self.members[number].worker.hear(wait_s)
            except WorkerLost as lost:
                self._lose(number, str(lost))
                continue
            now = time.monotonic_ns()
            if message is not None:
                self.heard_ns[number] = now
                self._take(number, message)
            elif now - self.heard_ns[number] > _SILENT_S * 1e9:
                self._lose(number, _SILENT)

    def _take(self, number: int, message: Answered) -> None:
        if isinstance(message, Failed):
            raise message.error
        if isinstance(message, Seen):
            self._keep(unpacked(message.ended))
            self.still[number] = unpacked(message.still)
        elif isinstance(message, Done):
            self._keep(unpacked(message.records))
            self.done[number] = message.offered
            self.still.pop(number, None)
            del self.heard_ns[number]

    def _keep(self, records: Sequence[RequestRecord]) -> None:
        self.known.update((record.row, record) for record in records)
        self.fresh += records

    def _tell(self, number: int, message: Asked) -> None:
        if number not in self.heard_ns:
            return
        try:
            self.members[number].worker.tell(message)
        except WorkerLost as lost:
            self._lose(number, str(lost))

    def _lose(self, number: int, how: str) -> None:
        self.lost.append(f"worker {number + 1} of {len(self.offsets)} {how}")
        # What was open when it told last is all that is known of it.
        self.known.update((r.row, r) for r in self.still.pop(number, ()))
        del self.heard_ns[number]
        self._stop()
        self.dismiss(number)

    def _stop(self) -> None:
        """Have all stop together, when a request has come due at least."""
        if self.end_ns is None:
            now = time.monotonic_ns() - self.epoch_ns
            self.end_ns = max(now + _LEAD_NS, self.plan[0].due_ns + 1)
            for number in tuple(self.heard_ns):
                self._tell(number, Stop(self.end_ns))

    def _offered(self) -> Offered:
        told = self.done.values()
        busiest = max(told, key=lambda done: done.cpu_ns, default=None)
        messages: Counter[str] = Counter()
        for done in told:
            messages.update(done.messages)
        # Who got no answer had nothing to stamp.
        answered = {r.row % len(self.offsets) for r in self.known.values() if r.first_ns}
        stamps = {done.stamps for number, done in self.done.items() if number in answered}
        return Offered(
            records=merged(
                self.plan,
                self.known,
                repeat=self.repeat,
                trial=self.trial,
                end_ns=self.end_ns or 0,
            ),
            epoch_ns=self.epoch_ns,
            stamps="kernel" if stamps == {"kernel"} else "user space",
            messages=messages,
            redials=sum(done.redials for done in told),
            connects=sum(done.connects for done in told),
            cpu_ns=busiest.cpu_ns if busiest else 0,
            wall_ns=busiest.wall_ns if busiest else 0,
            clock_step_ns=max((done.clock_step_ns for done in told), default=0),
            texts={row: text for done in told for row, text in done.texts.items()},
            offset_bounds_ns=tuple(self._bound_ns(number) for number in sorted(self.offsets)),
            lost="; ".join(self.lost) or None,
        )

    def _bound_ns(self, number: int) -> int:
        """Return how far the clock of a worker was off, by the stamps before and after."""
        before = self.offsets[number]
        bounds = [before.bound_ns(before.assumed_ns)]
        if number in self.members:
            try:
                bounds.append(self.members[number].offset().bound_ns(before.assumed_ns))
            except WorkerLost:  # after its work was done: the next trial starts another
                self.dismiss(number)
        return max(bounds)
