"""The load client: sends a schedule and stamps what comes back. The hot path of a trial.

Open loop: a request is sent when it is due, whatever became of the others. Nothing on the way
waits: sockets do not block, connections are opened ahead, and what is read is stored with its
stamps and parsed in the idle time between two requests, or after the trial.

Stamps are the kernel's where there are any (Linux, SO_TIMESTAMPNS: the arrival of the newest
segment in the read), so that a late reader does not make a late token. Elsewhere they are taken
after the read. In both cases a token cannot have arrived before the poll that last found its socket
empty; polls are at most a millisecond apart, so that this bounds the error.

`offer` is a function of schedule and target to records; it keeps nothing between calls.
"""

from __future__ import annotations

import contextlib
import gc
import selectors
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tokenwatt_site.canonical import clean_text
from tokenwatt_site.evidence import RequestRecord, Status
from tokenwatt_site.measure.connection import EXHAUSTED, ClockPair, Connection, Target
from tokenwatt_site.measure.credential import hide
from tokenwatt_site.measure.exchange import Exchange, PlannedRequest
from tokenwatt_site.measure.tls import TlsStream, trusted_context

__all__ = ["Offered", "PlannedRequest", "Target", "Watch", "offer"]

Watch: TypeAlias = Callable[[int, Sequence[RequestRecord]], bool]

# Idle connections: the last one taken is replaced ahead of the next request. Few are kept, and more
# only where the engine answers many at once, because one that gives a thread to each connection is
# filled up by idle ones: llama.cpp's server has slots + 4 threads, and 24 idle connections stopped
# it for its keep-alive time of 5 s (xllamacpp 2026.10.11549). TLS ends in front of an engine, in
# servers made for thousands; a handshake takes two round trips and a part of this thread's time, so
# more of them are done ahead, for a burst of requests.
_PRECONNECTED = 2
_MOST_IDLE = 3
_SPARES, _SECURE_SPARES = 1, 16
_ANSWERING_PER_IDLE = 16
_PRECONNECT_NS = 2_000_000_000
_IDLE_TIMEOUT_NS = 120_000_000_000
_IDLE_CHECKS = 16  # in that time
_LEAD_NS = 20_000_000  # from the last preparation to time 0 of the trial
_POLL_NS = 1_000_000
_NEVER_NS = 1 << 62
_SLEEP_MARGIN_NS = 60_000  # the kernel's timer slack of 50 us, and a little
_WATCH_SHARE = 200
_SLICE_READS = 16  # about 0.1 ms of parsing
_PARSE_NS = 500_000
_PARSE_MARGIN_NS = 400_000
_CLOCK_STEP_NS = 1_000_000
_MAX_MESSAGES = 5


@dataclass(frozen=True, slots=True)
class Offered:
    """What came of a trial.

    Attributes:
        records: one for each request that came due before the end, in order of `due_ns`.
        epoch_ns: `time.monotonic_ns()` at time 0 of the trial.
        stamps: "kernel" when every read had the kernel's stamp.
        errors: at most 5 different messages, the most frequent first, each with its count.
        redials: requests sent again because a kept connection turned out to be closed.
        connects: connections opened, those before the trial included.
        cpu_ns: processor time of this thread from time 0 to the last answer.
        wall_ns: how long that was.
    """

    records: tuple[RequestRecord, ...]
    epoch_ns: int
    stamps: Literal["kernel", "user space"]
    errors: tuple[str, ...]
    redials: int
    connects: int
    cpu_ns: int
    wall_ns: int


def offer(
    plan: Sequence[PlannedRequest],
    target: Target,
    *,
    repeat: int,
    trial: int,
    request_timeout_ns: int,
    watch: Watch,
    watch_every_ns: int = 500_000_000,
    idle_timeout_ns: int = _IDLE_TIMEOUT_NS,
) -> Offered:
    """Send `plan` to `target` and return what was seen.

    Args:
        plan: the requests.
        target: the endpoint.
        repeat: written to the records.
        trial: written to the records.
        request_timeout_ns: from `due_ns`; then the request is TIMED_OUT and its connection closed.
        watch: called with the time of the trial and the records so far: final ones, and CENSORED
            ones of which everything that arrived until their `end_ns` is known. True stops the
            trial. It runs between two requests, so it must be quick.
        watch_every_ns: least time between two calls of `watch`.
        idle_timeout_ns: how long an answer that has begun may be silent; then as above. Before
            its first byte a request may wait in the engine's queue for as long as it takes.

    Raises:
        UsageError: the host has no address, or the variable of the key is not set.
        KeyboardInterrupt: as it came; every connection is closed.
    """
    state = _Trial(
        plan,
        target,
        repeat=repeat,
        trial=trial,
        timeout_ns=request_timeout_ns,
        idle_timeout_ns=idle_timeout_ns,
    )
    collecting = gc.isenabled()
    gc.disable()  # a collection stops the reader for milliseconds
    try:
        return state.run(watch, watch_every_ns)
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
    ) -> None:
        self._plan = sorted(plan, key=lambda planned: planned.due_ns)
        self._repeat, self._trial = repeat, trial
        self._timeout_ns, self._idle_timeout_ns = timeout_ns, idle_timeout_ns
        self._idle_check_ns = 0
        self._family, self._address = target.resolve()
        self._head, self._host = target.head(), target.host
        self._key_variable = target.api_key_variable
        self._context = trusted_context() if target.secure else None
        self._spares = _SECURE_SPARES if target.secure else _SPARES
        self._selector = selectors.DefaultSelector()
        self._connections: set[Connection] = set()
        self._idle: list[Connection] = []
        self._opening = self._dialling = 0  # connecting: to be idle, or with a request
        self._exchanges: list[Exchange] = []
        self._open: deque[Exchange] = deque()  # by deadline; ended ones leave when they lead
        self._carriers: dict[Exchange, Connection] = {}
        self._active = 0
        self._answering = 0  # those of which something came back
        self._backlog: deque[Exchange] = deque()
        self._messages: Counter[str] = Counter()
        self._redials = self._connects = 0
        self._kernel_reads = self._user_reads = 0
        self._clock = ClockPair.read()
        self._epoch_ns = 0
        self._polled_ns = 0
        self._next_ns = _NEVER_NS

    def run(self, watch: Watch, watch_every_ns: int) -> Offered:
        self._preconnect()
        self._clock = ClockPair.read()
        self._epoch_ns = time.monotonic_ns() + _LEAD_NS
        self._polled_ns = self._now()
        self._next_ns = self._due_next()
        cpu_ns = time.thread_time_ns()
        stopped = self._loop(watch, watch_every_ns)
        cpu_ns = time.thread_time_ns() - cpu_ns
        wall_ns = now = self._now()
        if stopped:
            for exchange in self._open:
                if exchange.fate is None:
                    self._end(exchange, Status.CENSORED, now)
        self.close()
        while self._backlog:
            self._parse_slice()
        if self._kernel_reads:
            self._check_clock()
        return Offered(
            records=tuple(e.snapshot(self._repeat, self._trial, 0) for e in self._exchanges),
            epoch_ns=self._epoch_ns,
            stamps="kernel" if self._kernel_reads and not self._user_reads else "user space",
            errors=tuple(
                f"{count} x {message}"
                for message, count in self._messages.most_common(_MAX_MESSAGES)
            ),
            redials=self._redials,
            connects=self._connects,
            cpu_ns=cpu_ns,
            wall_ns=wall_ns,
        )

    def close(self) -> None:
        for connection in tuple(self._connections):
            self._drop(connection)
        self._selector.close()

    def _loop(self, watch: Watch, watch_every_ns: int) -> bool:
        """Run until everything has ended; True when `watch` stopped it."""
        watch_ns, watch_took_ns = watch_every_ns, 0
        while True:
            now = self._now()
            self._send_due(now)
            self._expire(now)
            if self._next_ns == _NEVER_NS and self._active == 0:
                return False
            # Where it fits before the next request; where it never does, late rather than not.
            fits = self._next_ns - now > 2 * watch_took_ns or now >= watch_ns + watch_every_ns
            if now >= watch_ns and fits:
                records = [e.snapshot(self._repeat, self._trial, now) for e in self._exchanges]
                if watch(now, records):
                    return True
                watch_took_ns = self._now() - now
                # Requests that come due while it runs go late: at most one in _WATCH_SHARE.
                watch_ns = now + max(watch_every_ns, _WATCH_SHARE * watch_took_ns)
            parse_until_ns = min(self._now() + _PARSE_NS, self._next_ns - _PARSE_MARGIN_NS)
            while self._backlog and self._now() < parse_until_ns:
                self._parse_slice()
            self._poll()

    def _poll(self) -> None:
        """Wait for bytes, at most a millisecond and not beyond the next request; read them."""
        until_due_ns = self._next_ns - self._now()
        timeout_s = 0.0
        if until_due_ns > _POLL_NS + 2 * _SLEEP_MARGIN_NS:
            timeout_s = _POLL_NS / 1e9
        elif until_due_ns > 2 * _SLEEP_MARGIN_NS and not self._dialling:
            # Polls round up to milliseconds. Kernel stamps do not suffer from the nap; a request
            # that waits for its connection would.
            time.sleep((until_due_ns - _SLEEP_MARGIN_NS) / 1e9)
        events = self._selector.select(timeout_s)
        polled_ns = self._now()
        for key, mask in events:
            self._ready(key.data, mask)
            self._send_due(self._now())
        self._polled_ns = polled_ns

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

    # Connections.

    def _preconnect(self) -> None:
        for _ in range(min(max(_PRECONNECTED, self._spares), len(self._plan))):
            self._open_spare()
        deadline_ns = time.monotonic_ns() + _PRECONNECT_NS
        while any(c.connecting for c in self._connections) and time.monotonic_ns() < deadline_ns:
            for key, mask in self._selector.select(0.05):
                self._ready(key.data, mask)

    def _open_spare(self) -> None:
        with contextlib.suppress(OSError):  # the request that needs one will tell
            self._connect()
            self._opening += 1

    def _connect(self) -> Connection:
        tls = None if self._context is None else TlsStream(self._context, self._host)
        connection = Connection(self._family, self._address, tls)
        self._selector.register(connection.sock, connection.mask, connection)
        self._connections.add(connection)
        self._connects += 1
        return connection

    def _drop(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection.connecting:
            self._no_longer_connecting(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._selector.unregister(connection.sock)
        connection.sock.close()

    def _no_longer_connecting(self, connection: Connection) -> None:
        if connection.exchange is None:
            self._opening -= 1
        else:
            self._dialling -= 1

    def _wants_idle(self) -> bool:
        # Above the spares, so that a connection that comes back was not replaced for nothing.
        most = max(_MOST_IDLE, 2 * self._spares, self._answering // _ANSWERING_PER_IDLE)
        return len(self._idle) < most

    def _await(self, connection: Connection) -> None:
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
        if mask != connection.mask:
            connection.mask = mask
            self._selector.modify(connection.sock, mask, connection)

    def _ready(self, connection: Connection, mask: int) -> None:
        if connection.connecting:
            self._connected(connection)
            return
        if mask & selectors.EVENT_WRITE and connection.exchange is not None:
            self._send(connection, connection.exchange)
        if mask & selectors.EVENT_READ and connection in self._connections:
            self._receive(connection)

    def _connected(self, connection: Connection) -> None:
        exchange = connection.exchange
        try:
            connection.advance()
        except OSError as error:
            self._drop(connection)
            if exchange is not None:
                why = f"cannot connect: {error.strerror}"
                self._end(exchange, Status.DISCONNECTED, self._now(), why)
            return
        if connection.connecting:
            self._await(connection)
            return
        self._no_longer_connecting(connection)
        if exchange is not None:
            exchange.connected_ns = self._now()
            self._send(connection, exchange)
        elif self._wants_idle():
            self._idle.append(connection)
            self._await(connection)
        else:
            self._drop(connection)

    # Requests.

    def _dispatch(self, planned: PlannedRequest) -> None:
        exchange = Exchange(planned)
        self._exchanges.append(exchange)
        self._open.append(exchange)
        self._active += 1
        if self._idle:
            connection = self._idle.pop()
            connection.kept = True
            self._carry(connection, exchange)
        else:
            self._dial(exchange)
        if len(self._idle) + self._opening < self._spares:
            self._open_spare()

    def _dial(self, exchange: Exchange) -> None:
        exchange.dialled_ns = self._now()
        try:
            connection = self._connect()
        except OSError as error:
            ours = error.errno in EXHAUSTED
            fate = Status.NOT_SENT if ours else Status.DISCONNECTED
            self._end(exchange, fate, self._now(), f"cannot connect: {error.strerror}")
        else:
            self._dialling += 1
            self._carry(connection, exchange)

    def _carry(self, connection: Connection, exchange: Exchange) -> None:
        connection.exchange = exchange
        self._carriers[exchange] = connection
        body = exchange.planned.body
        connection.put(b"%s%d\r\n\r\n%s" % (self._head, len(body), body))
        if not connection.connecting:
            self._send(connection, exchange)

    def _send(self, connection: Connection, exchange: Exchange) -> None:
        if exchange.sent_ns is None:
            exchange.sent_ns = self._now()
        connection.send()
        self._await(connection)

    def _receive(self, connection: Connection) -> None:
        try:
            data, real_ns = connection.receive()
        except BlockingIOError:
            return
        except OSError as error:
            self._closed(connection, error.strerror or "connection lost")
            return
        now = self._now()
        exchange = connection.exchange
        if exchange is None:
            if data or connection.ended:
                self._drop(connection)  # closed, or bytes nobody asked for
            return
        connection.heard_ns = now
        if data:
            self._take(connection, exchange, data, (now, real_ns))
        if connection.ended and exchange.fate is None:
            self._closed(connection, "the engine closed the connection before the end")

    def _take(
        self,
        connection: Connection,
        exchange: Exchange,
        data: bytes,
        stamps: tuple[int, int | None],
    ) -> None:
        """Store a read with its stamps: ours, and the kernel's where there is one."""
        now, real_ns = stamps
        stamp_ns, exact_ns = now, now - self._polled_ns
        if real_ns is not None:
            stamp_ns = min(now, real_ns - self._clock.offset_ns - self._epoch_ns)
            exact_ns = self._clock.error_ns
            self._kernel_reads += 1
        else:
            self._user_reads += 1
        merged_ns = max(exact_ns, stamp_ns - self._polled_ns)
        if not exchange.answered:
            self._answering += 1
        if exchange.take(stamp_ns, exact_ns, merged_ns, data):
            self._complete(connection, exchange, stamp_ns)
        elif not exchange.queued:
            self._queue(exchange)

    def _complete(self, connection: Connection, exchange: Exchange, stamp_ns: int) -> None:
        framing = exchange.framing
        reusable = (
            framing.keep_alive
            and not (connection.unsent or connection.ended)
            and self._wants_idle()
        )
        fate = Status.STREAM_ERROR if framing.error else Status.OK
        self._end(exchange, fate, stamp_ns, framing.error or "", keep=reusable)
        if reusable:
            connection.exchange = None
            self._idle.append(connection)

    def _closed(self, connection: Connection, why: str) -> None:
        exchange = connection.exchange
        if exchange is None:
            self._drop(connection)
        elif connection.kept and not exchange.answered and not exchange.redialled:
            # RFC 9112, 9.3.1: a kept connection may be closed at any time; one more try is safe.
            exchange.redialled = True
            self._redials += 1
            self._drop(connection)
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
        keep: bool = False,
    ) -> None:
        exchange.fate, exchange.end_ns, exchange.message = fate, end_ns, message
        self._active -= 1
        self._answering -= exchange.answered
        connection = self._carriers.pop(exchange, None)
        if connection in self._connections and not keep:
            self._drop(connection)
        if not exchange.queued:
            self._queue(exchange)

    # What is left for later.

    def _queue(self, exchange: Exchange) -> None:
        exchange.queued = True
        self._backlog.append(exchange)

    def _parse_slice(self) -> None:
        exchange = self._backlog[0]
        if not exchange.parse(_SLICE_READS):
            return
        self._backlog.popleft()
        exchange.queued = False
        if exchange.fate is not None:
            message = exchange.conclude(self._repeat, self._trial)
            if message:
                self._messages[clean_text(hide(message, self._key_variable))] += 1

    def _check_clock(self) -> None:
        step_ns = abs(ClockPair.read().offset_ns - self._clock.offset_ns)
        if step_ns > _CLOCK_STEP_NS:
            self._messages[
                f"the system clock was set by {step_ns / 1e6:.1f} ms during the trial:"
                " kernel stamps after that are off by as much"
            ] += 1
