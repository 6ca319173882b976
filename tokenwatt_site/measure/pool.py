"""The connections of a trial: opened before they are needed, kept while few are idle, dropped."""

from __future__ import annotations

import contextlib
import select
import time

from tokenwatt_site.measure.connection import Connection, Target
from tokenwatt_site.measure.tls import TlsStream, trusted_context

READABLE = select.POLLIN
WRITABLE = select.POLLOUT

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


class _Idle:
    """The connections to one replica that carry nothing, and how more of them are opened.

    Attributes:
        spares: how many there are to be ahead of the next request.
        ready: those that are open.
        opening: how many are not yet.
    """

    def __init__(self, target: Target) -> None:
        self.spares = _SECURE_SPARES if target.secure else _SPARES
        self.ready: list[Connection] = []
        self.opening = 0
        self._family, self._address = target.resolve()
        self._host = target.host
        self._context = trusted_context() if target.secure else None

    def open(self, replica: int) -> Connection:
        """Start to connect; see `Connection`."""
        tls = None if self._context is None else TlsStream(self._context, self._host)
        return Connection(self._family, self._address, tls, replica)


class Pool:
    """All connections to the replicas of a target, without a limit on their number.

    A replica is named by its place; a target of one engine has place 0 alone.

    Attributes:
        opened: how many were opened so far.
        dialling: how many with a request are not ready to carry it yet.
        answering: how many requests are being answered now; the client counts.
    """

    def __init__(self, target: Target) -> None:
        """Look up where to connect to; nothing is opened yet.

        Raises:
            UsageError: a host has no address.
        """
        self._idle = [_Idle(replica) for replica in target.replicas]
        # Both take and give the same values; Linux's own does not slow down with their number.
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._poll = self._epoll or select.poll()
        self._connections: dict[int, Connection] = {}  # by descriptor
        self.opened = self.dialling = self.answering = 0

    def preconnect(self, requests: int) -> None:
        """Open the first connections, before so many requests, and wait until they are ready."""
        for replica, idle in enumerate(self._idle):
            for _ in range(min(max(_PRECONNECTED, idle.spares), requests)):
                self._open_spare(replica)
        deadline_ns = time.monotonic_ns() + _PRECONNECT_NS
        while any(idle.opening for idle in self._idle) and time.monotonic_ns() < deadline_ns:
            for connection, _ in self.poll(0.05):
                self.tend(connection)

    def poll(self, timeout_s: float) -> list[tuple[Connection, int]]:
        """Wait for something to do at most so long, to the millisecond above; return all of it."""
        connections = self._connections
        if self._epoll is not None:
            ready = self._epoll.poll(timeout_s, max(1, len(connections)))
        else:
            ready = self._poll.poll(1000 * timeout_s)
        return [(connections[descriptor], mask) for descriptor, mask in ready]

    def take(self, replica: int = 0) -> Connection | None:
        """Return an idle connection to a replica, if there is one."""
        ready = self._idle[replica].ready
        if not ready:
            return None
        connection = ready.pop()
        connection.kept = True
        return connection

    def replace_taken(self, replica: int = 0) -> None:
        """Open connections ahead of the next requests to a replica."""
        idle = self._idle[replica]
        if len(idle.ready) + idle.opening < idle.spares:
            self._open_spare(replica)

    def dial(self, replica: int = 0) -> Connection:
        """Open a connection for a request.

        Raises:
            OSError: at once refused, or no descriptor or port is left.
        """
        connection = self._open(replica)
        self.dialling += 1
        return connection

    def tend(self, connection: Connection) -> None:
        """Do what a connection without a request is ready for."""
        try:
            if connection.connecting:
                self.advance(connection)
                if not connection.connecting:
                    self.keep(connection)
            elif connection.receive()[0] or connection.ended:
                self.drop(connection)  # closed, or bytes nobody asked for
        except BlockingIOError:
            return
        except OSError:
            self.drop(connection)  # a request that needs one will tell

    def advance(self, connection: Connection) -> None:
        """Go on connecting.

        Raises:
            OSError: it failed, and is dropped; `strerror` says why.
        """
        try:
            connection.advance()
        except OSError:
            self.drop(connection)
            raise
        if connection.connecting:
            self.await_(connection)
        else:
            self._count_connecting(connection)

    def keep(self, connection: Connection) -> None:
        """Keep a connection as idle that has no request any more, or drop it."""
        # Above the spares, so that a connection that comes back was not replaced for nothing.
        idle, each = self._idle[connection.replica], self.answering // len(self._idle)
        most = max(_MOST_IDLE, 2 * idle.spares, each // _ANSWERING_PER_IDLE)
        connection.exchange = None
        if len(idle.ready) >= most or connection.ended or connection.unsent:
            self.drop(connection)
            return
        idle.ready.append(connection)
        self.await_(connection)

    def await_(self, connection: Connection) -> None:
        """Wait for bytes to read, and to be able to write where some are left."""
        mask = READABLE | (WRITABLE if connection.unsent else 0)
        if mask != connection.mask:
            connection.mask = mask
            self._poll.modify(connection.descriptor, mask)

    def drop(self, connection: Connection) -> None:
        """Close a connection, whatever it does; again is harmless."""
        if connection.closed:
            return
        if connection.connecting:
            self._count_connecting(connection)
        ready = self._idle[connection.replica].ready
        if connection in ready:
            ready.remove(connection)
        self._poll.unregister(connection.descriptor)
        del self._connections[connection.descriptor]
        connection.close()

    def close(self) -> None:
        """Drop all connections."""
        for connection in tuple(self._connections.values()):
            self.drop(connection)
        if self._epoll is not None:
            self._epoll.close()

    def _open_spare(self, replica: int) -> None:
        with contextlib.suppress(OSError):  # the request that needs one will tell
            self._open(replica)
            self._idle[replica].opening += 1

    def _open(self, replica: int) -> Connection:
        connection = self._idle[replica].open(replica)
        self._connections[connection.descriptor] = connection
        self._poll.register(connection.descriptor, connection.mask)
        self.opened += 1
        return connection

    def _count_connecting(self, connection: Connection) -> None:
        if connection.exchange is None:
            self._idle[connection.replica].opening -= 1
        else:
            self.dialling -= 1
