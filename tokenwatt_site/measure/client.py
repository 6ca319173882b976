"""The load client: sends a schedule and stamps what comes back. The hot path of a trial.

Open loop: a request is sent when it is due, whatever became of the others. Nothing on the way
waits: sockets do not block, connections are opened ahead, and what is read is stored with its
stamps and parsed when no socket has anything to read, or after the trial.

Stamps are the kernel's where there are any (Linux, SO_TIMESTAMPNS: the arrival of the newest
segment in the read), so that a late reader does not make a late token. Elsewhere they are taken
after the read. In both cases a token cannot have arrived before its socket was last seen empty,
which bounds the error; an idle client looks each millisecond.

`offer` is a function of schedule and target to records; it keeps nothing between calls. `fleet` has
several processes do it at once.
"""

from __future__ import annotations

import gc
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from tokenwatt_site.canonical import clean_text
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.measure.connection import EXHAUSTED, ClockPair, Connection, Target
from tokenwatt_site.measure.credential import hide
from tokenwatt_site.measure.exchange import Exchange, PlannedRequest
from tokenwatt_site.measure.pool import WRITABLE, Pool
from tokenwatt_site.measure.readlog import ReadLog
from tokenwatt_site.measure.watcher import Watch, Watcher
from tokenwatt_site.replicas import replica_of

__all__ = ["Client", "End", "Offered", "PlannedRequest", "Target", "offer"]

IDLE_TIMEOUT_NS = 120_000_000_000
WATCH_EVERY_NS = 500_000_000
_IDLE_CHECKS = 16  # in that time
_LEAD_NS = 20_000_000  # from the last preparation to time 0 of the trial
_POLL_NS = 1_000_000
_NEVER_NS = 1 << 62
_SLEEP_MARGIN_NS = 60_000  # the kernel's timer slack of 50 us, and a little
_PARSE_NS = 30_000
_PARSE_MARGIN_NS = 100_000
_PARSE_LATEST_NS = 500_000_000
_MAX_MESSAGES = 5


@dataclass(frozen=True, slots=True)
class Offered:
    """What came of a trial.

    Attributes:
        records: one for each request that came due before the end, in order of `due_ns`.
        epoch_ns: `time.monotonic_ns()` at time 0 of the trial.
        stamps: "kernel" when every read had the kernel's stamp.
        messages: what went wrong, in words, and how often.
        redials: requests sent again because a kept connection turned out to be closed.
        connects: connections opened, those before the trial included.
        cpu_ns: processor time of this thread from time 0 to the last answer; of several processes
            that of the busiest.
        wall_ns: how long that was.
        clock_step_ns: how far the system clock was set meanwhile, by which kernel stamps after that
            are off; 0 without them.
        texts: what was answered, by row: of whole answers to those requests that ask to keep it.
        offset_bounds_ns: of each of several processes, how far its clock may have been off; empty
            where this one sent alone.
        lost: which of them ended in the trial, and how; None: none.
    """

    records: tuple[RequestRecord, ...]
    epoch_ns: int
    stamps: Literal["kernel", "user space"]
    messages: Mapping[str, int]
    redials: int
    connects: int
    cpu_ns: int
    wall_ns: int
    clock_step_ns: int
    texts: Mapping[int, str]
    offset_bounds_ns: tuple[int, ...] = ()
    lost: str | None = None

    @property
    def errors(self) -> tuple[str, ...]:
        """At most 5 different messages, the most frequent first, each with its count."""
        most = Counter(self.messages).most_common(_MAX_MESSAGES)
        return tuple(f"{count} x {message}" for message, count in most)


class Client(Protocol):
    """What offers the requests of a trial: `offer`, or several processes that do it as one."""

    def __call__(
        self,
        plan: Sequence[PlannedRequest],
        target: Target,
        *,
        repeat: int,
        trial: int,
        request_timeout_ns: int,
        watch: Watch,
        folder: Path | None = None,
        begins: Callable[[int], None] = ...,
    ) -> Offered:
        """See `offer`."""
        ...


@dataclass(slots=True)
class End:
    """When a trial ends, whatever its watch says; another thread may say so ahead of that time."""

    at_ns: int = _NEVER_NS


def _soon() -> int:
    return time.monotonic_ns() + _LEAD_NS


def offer(
    plan: Sequence[PlannedRequest],
    target: Target,
    *,
    repeat: int,
    trial: int,
    request_timeout_ns: int,
    watch: Watch,
    watch_every_ns: int = WATCH_EVERY_NS,
    idle_timeout_ns: int = IDLE_TIMEOUT_NS,
    folder: Path | None = None,
    begins: Callable[[int], None] = lambda _: None,
    start: Callable[[], int] = _soon,
    end: End | None = None,
) -> Offered:
    """Send `plan` to `target` and return what was seen.

    Args:
        plan: the requests.
        target: the endpoint; of replicas, each gets the rows of `replicas.replica_of`.
        repeat: written to the records.
        trial: written to the records.
        request_timeout_ns: from `due_ns`; then the request is TIMED_OUT and its connection closed.
        watch: called with the time of the trial, the records that became final since its last
            call, and those of the open requests: CENSORED, with everything that arrived until
            their `end_ns`. True stops the trial. It runs between two requests, so it must be quick.
        watch_every_ns: least time between two calls of `watch`.
        idle_timeout_ns: how long an answer that has begun may be silent; then as above. Before
            its first byte a request may wait in the engine's queue for as long as it takes.
        folder: where a file may grow with what is read faster than it is parsed; None: the
            system's folder for such files.
        begins: told `Offered.epoch_ns` a moment before it; must return at once.
        start: gives `Offered.epoch_ns`; called when connections are open and all is ready.
        end: when the trial ends at the latest; None: when all has ended, or `watch` says so.

    Raises:
        UsageError: the host has no address, or the variable of the key is not set.
        EnvironmentProblem: what is read cannot be kept.
        KeyboardInterrupt: as it came; every connection is closed.
    """
    state = _Trial(
        plan,
        target,
        repeat=repeat,
        trial=trial,
        timeout_ns=request_timeout_ns,
        idle_timeout_ns=idle_timeout_ns,
        log=ReadLog(folder),
        end=end or End(),
    )
    collecting = gc.isenabled()
    gc.disable()  # a collection stops the reader for milliseconds
    try:
        return state.run(watch, watch_every_ns, begins, start)
    finally:
        state.close()
        if collecting:
            gc.enable()


class _Trial:
    """The state of one call of `offer`."""

    def __init__(
        self,
        plan: Sequence[PlannedRequest],
        target: Target,
        *,
        repeat: int,
        trial: int,
        timeout_ns: int,
        idle_timeout_ns: int,
        log: ReadLog,
        end: End,
    ) -> None:
        self._plan = sorted(plan, key=lambda planned: planned.due_ns)
        self._repeat, self._trial = repeat, trial
        self._timeout_ns, self._idle_timeout_ns = timeout_ns, idle_timeout_ns
        self._idle_check_ns = 0
        self._heads = [replica.head() for replica in target.replicas]
        self._key_variable = target.api_key_variable
        self._pool = Pool(target)
        self._log = log
        self._end_of_trial = end
        self._exchanges: list[Exchange] = []
        self._open: deque[Exchange] = deque()  # by deadline; ended ones leave when they lead
        self._carriers: dict[Exchange, Connection] = {}  # of all that have not ended
        self._ended: list[RequestRecord] = []  # since the watcher's last call
        self._messages: Counter[str] = Counter()
        self._redials = 0
        self._kernel_stamps = self._user_stamps = False
        self._clock = ClockPair.read()
        self._epoch_ns = self._real_epoch_ns = 0
        self._empty_ns = 0  # what came before is read
        self._next_ns = _NEVER_NS

    def run(
        self,
        watch: Watch,
        watch_every_ns: int,
        begins: Callable[[int], None],
        start: Callable[[], int],
    ) -> Offered:
        self._pool.preconnect(len(self._plan))
        self._clock = ClockPair.read()
        self._epoch_ns = start()
        self._real_epoch_ns = self._epoch_ns + self._clock.offset_ns
        self._empty_ns = self._now()
        self._next_ns = self._due_next()
        begins(self._epoch_ns)
        cpu_ns = time.thread_time_ns()
        stopped = self._loop(Watcher(self, watch, watch_every_ns))
        cpu_ns = time.thread_time_ns() - cpu_ns
        wall_ns = self._now()
        if stopped:
            for exchange in tuple(self._carriers):
                self._end(exchange, Status.CENSORED, self._empty_ns)
        self._pool.close()
        while self._log:
            self._parse_one()
        step_ns = abs(ClockPair.read().offset_ns - self._clock.offset_ns)
        return Offered(
            records=tuple(e.record for e in self._exchanges if e.record is not None),
            epoch_ns=self._epoch_ns,
            stamps="kernel" if self._kernel_stamps and not self._user_stamps else "user space",
            messages=self._messages,
            redials=self._redials,
            connects=self._pool.opened,
            cpu_ns=cpu_ns,
            wall_ns=wall_ns,
            clock_step_ns=step_ns if self._kernel_stamps else 0,
            texts={e.planned.row: e.text for e in self._exchanges if e.text is not None},
        )

    def close(self) -> None:
        self._pool.close()
        self._log.close()

    def _loop(self, watcher: Watcher) -> bool:
        """Run until everything has ended; True when the watcher stopped it."""
        while True:
            now = self._now()
            self._send_due(now)
            self._expire(now)
            if self._next_ns == _NEVER_NS and not self._carriers:
                return False
            if now >= self._end_of_trial.at_ns or watcher.stops(self._now(), self._next_ns):
                return True
            idle = not self._poll()
            # What waits in the sockets comes first; what waits for long gets a little of each pass.
            late = self._log and now - self._log.known_ns > _PARSE_LATEST_NS
            if self._log and (idle or late):
                until_ns = self._now() + _PARSE_NS
                if not late:
                    until_ns = min(until_ns, self._next_ns - _PARSE_MARGIN_NS)
                while self._log and self._now() < until_ns:
                    self._parse_one()

    def _poll(self) -> bool:
        """Wait for bytes, at most a millisecond and not beyond the next request; read them.

        Tell whether anything was there. Where something waits to be parsed it does not wait.
        """
        until_due_ns = self._next_ns - self._now()
        timeout_s = 0.0
        if self._log:
            pass
        elif until_due_ns > _POLL_NS + 2 * _SLEEP_MARGIN_NS:
            timeout_s = _POLL_NS / 1e9
        elif until_due_ns > 2 * _SLEEP_MARGIN_NS and not (self._pool.dialling or self._user_stamps):
            # Polls round up to milliseconds. Kernel stamps do not suffer from the nap; others, and
            # a request that waits for its connection, would.
            time.sleep((until_due_ns - _SLEEP_MARGIN_NS) / 1e9)
        called_ns = self._now()
        ready = self._pool.poll(timeout_s)
        # A poll that found nothing looked last when its time was up; when another did is not known.
        looked_ns = called_ns if ready else min(self._now(), called_ns + int(timeout_s * 1e9))
        drained = True
        for connection, mask in ready:
            self._ready(connection, mask)
            drained = drained and connection.drained
            now = self._now()
            if now >= self._next_ns:
                self._send_due(now)
        if drained:
            self._empty_ns = looked_ns
        return bool(ready)

    def _send_due(self, now: int) -> None:
        while self._next_ns <= now:
            self._dispatch(self._plan[len(self._exchanges)])
            self._next_ns = self._due_next()
            now = self._now()

    def _due_next(self) -> int:
        sent = len(self._exchanges)
        return self._plan[sent].due_ns if sent < len(self._plan) else _NEVER_NS

    def _now(self) -> int:
        return time.monotonic_ns() - self._epoch_ns

    # Requests.

    def _dispatch(self, planned: PlannedRequest) -> None:
        exchange = Exchange(len(self._exchanges), planned)
        self._exchanges.append(exchange)
        self._open.append(exchange)
        replica = self._replica_of(exchange)
        connection = self._pool.take(replica)
        if connection is None:
            self._dial(exchange)
        else:
            self._carry(connection, exchange)
        self._pool.replace_taken(replica)

    def _replica_of(self, exchange: Exchange) -> int:
        return replica_of(exchange.planned.row, len(self._heads))

    def _dial(self, exchange: Exchange) -> None:
        exchange.dialled_ns = self._now()
        try:
            connection = self._pool.dial(self._replica_of(exchange))
        except OSError as error:
            ours = error.errno in EXHAUSTED
            fate = Status.NOT_SENT if ours else Status.DISCONNECTED
            self._end(exchange, fate, self._now(), f"cannot connect: {error.strerror}")
        else:
            self._carry(connection, exchange)

    def _carry(self, connection: Connection, exchange: Exchange) -> None:
        connection.exchange = exchange
        self._carriers[exchange] = connection
        body = exchange.planned.body
        head = self._heads[connection.replica]
        connection.put(b"%s%d\r\n\r\n%s" % (head, len(body), body))
        if not connection.connecting:
            self._send(connection, exchange)

    def _send(self, connection: Connection, exchange: Exchange) -> None:
        if exchange.sent_ns is None:
            exchange.sent_ns = self._now()
        connection.send()
        self._pool.await_(connection)

    # What comes back.

    def _ready(self, connection: Connection, mask: int) -> None:
        exchange = connection.exchange
        if connection.closed:  # since the poll
            return
        if exchange is None:
            self._pool.tend(connection)
        elif connection.connecting:
            self._connecting(connection, exchange)
        else:
            if mask & WRITABLE:
                self._send(connection, exchange)
            if mask & ~WRITABLE:
                self._receive(connection, exchange)

    def _connecting(self, connection: Connection, exchange: Exchange) -> None:
        try:
            self._pool.advance(connection)
        except OSError as error:
            why = f"cannot connect: {error.strerror}"
            self._end(exchange, Status.DISCONNECTED, self._now(), why)
            return
        if not connection.connecting:
            exchange.connected_ns = self._now()
            self._send(connection, exchange)

    def _receive(self, connection: Connection, exchange: Exchange) -> None:
        try:
            data, real_ns = connection.receive()
        except BlockingIOError:
            return
        except OSError as error:
            self._closed(connection, exchange, error.strerror or "connection lost")
            return
        now = connection.heard_ns = self._now()
        if data:
            self._take(exchange, data, now, real_ns)
        if connection.ended and exchange.fate is None:
            why = "the engine closed the connection before the end"
            self._closed(connection, exchange, why)

    def _take(self, exchange: Exchange, data: bytes, now: int, real_ns: int | None) -> None:
        """Store a read with its stamps: ours, and the kernel's where there is one."""
        if real_ns is not None:
            stamp_ns, exact_ns = min(now, real_ns - self._real_epoch_ns), self._clock.error_ns
            self._kernel_stamps = True
        else:
            stamp_ns, exact_ns = now, now - self._empty_ns
            self._user_stamps = True
        if not exchange.answered:
            exchange.answered = True
            self._pool.answering += 1
        framing = exchange.framing
        body = framing.feed(data)
        if body:
            merged_ns = max(exact_ns, stamp_ns - self._empty_ns)
            self._log.append((exchange.number, stamp_ns, exact_ns, merged_ns, body))
        if framing.over:
            fate = Status.STREAM_ERROR if framing.error else Status.OK
            self._end(exchange, fate, stamp_ns, framing.error or "", reusable=framing.keep_alive)

    def _closed(self, connection: Connection, exchange: Exchange, why: str) -> None:
        if connection.kept and not exchange.answered and not exchange.redialled:
            # RFC 9112, 9.3.1: a kept connection may be closed at any time; one more try is safe.
            exchange.redialled = True
            self._redials += 1
            self._pool.drop(connection)
            self._dial(exchange)
        else:
            exchange.framing.eof()
            fate = Status.OK if exchange.framing.done else Status.DISCONNECTED
            self._end(exchange, fate, self._now(), why)

    def _expire(self, now: int) -> None:
        while self._open:
            exchange = self._open[0]
            if exchange.fate is None:
                if exchange.planned.due_ns + self._timeout_ns > now:
                    break
                why = f"no end within {self._timeout_ns / 1e9:g} s"
                self._end(exchange, Status.TIMED_OUT, now, why)
            self._open.popleft()
        if now < self._idle_check_ns:
            return
        self._idle_check_ns = now + self._idle_timeout_ns // _IDLE_CHECKS
        silent_since_ns = now - self._idle_timeout_ns
        for exchange, connection in tuple(self._carriers.items()):
            if exchange.answered and connection.heard_ns < silent_since_ns:
                why = f"the answer stopped for {self._idle_timeout_ns / 1e9:g} s"
                self._end(exchange, Status.TIMED_OUT, now, why)

    def _end(
        self,
        exchange: Exchange,
        fate: Status,
        end_ns: int,
        message: str = "",
        *,
        reusable: bool = False,
    ) -> None:
        exchange.fate, exchange.end_ns, exchange.message = fate, end_ns, message
        self._pool.answering -= exchange.answered
        connection = self._carriers.pop(exchange, None)
        if connection is not None and reusable:
            self._pool.keep(connection)
        elif connection is not None:
            self._pool.drop(connection)
        self._log.append((exchange.number, end_ns, 0, end_ns - self._empty_ns, b""))

    # What is left for later.

    def _parse_one(self) -> None:
        number, stamp_ns, exact_ns, merged_ns, body = self._log.popleft()
        exchange = self._exchanges[number]
        if body:
            exchange.parse(stamp_ns, exact_ns, merged_ns, body)
            return
        message, record = exchange.conclude(self._repeat, self._trial)
        self._ended.append(record)
        if message:
            self._messages[clean_text(hide(message, self._key_variable))] += 1

    def ended(self) -> list[RequestRecord]:
        """See `Watched`."""
        ended, self._ended = self._ended, []
        return ended

    def still(self) -> Iterator[Exchange]:
        """See `Watched`."""
        return iter(tuple(self._carriers))

    def snapshot(self, exchange: Exchange) -> RequestRecord:
        """See `Watched`."""
        known_ns = min(self._empty_ns, self._log.known_ns) if self._log else self._empty_ns
        return exchange.snapshot(self._repeat, self._trial, known_ns)
