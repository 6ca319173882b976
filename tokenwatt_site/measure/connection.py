"""One connection to the engine: a socket that never blocks and tells when bytes arrived."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import struct
import sys
import time
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from tokenwatt_site.errors import Problem, UsageError
from tokenwatt_site.measure.exchange import Exchange

_KERNEL_STAMPS = sys.platform == "linux"
_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python has no name for it
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY_BYTES = 64
_READ_BYTES = 64 << 10
_PROBE_S = 2.0

EXHAUSTED = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
)
"""Errors of connecting that are this machine's want of something, and not the engine's answer."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go, in plain HTTP."""

    host: str
    port: int
    path: str

    @classmethod
    def from_url(cls, base_url: str, api: Literal["completions", "chat"]) -> Target:
        """Read a base URL, which is without `/v1`.

        Raises:
            UsageError: it is not http, or has no host.
        """
        try:
            parts = urlsplit(base_url)
            host, port = parts.hostname, 80 if parts.port is None else parts.port
        except ValueError:
            host, port = None, 0
        if not host or not port or parts.scheme != "http":
            raise UsageError(
                Problem(
                    "cannot be measured: the client speaks plain HTTP only so far",
                    field="endpoint.url",
                    found=base_url,
                    expected="http://host:port",
                )
            )
        base = parts.path.rstrip("/")
        path = "/v1/chat/completions" if api == "chat" else "/v1/completions"
        return cls(host, port, base + path)

    def resolve(self) -> tuple[int, Any]:
        """Return the family and address that sockets take: the first that accepts a connection.

        `localhost` often has two, and engines often listen on one of them.

        Raises:
            UsageError: the host has no address.
        """
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise UsageError(
                Problem("has no address", field="endpoint.url", found=self.host)
            ) from error
        for family, kind, _, _, address in found if len(found) > 1 else ():
            with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
                probe.settimeout(_PROBE_S)
                probe.connect(address)
                return family, address
        return found[0][0], found[0][4]

    def head(self) -> bytes:
        """Return the head of every request, up to the number of its content length."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            f"POST {self.path} HTTP/1.1\r\nHost: {host}:{self.port}\r\n"
            "Content-Type: application/json\r\nAccept: text/event-stream\r\n"
            "User-Agent: tokenwatt-site\r\nContent-Length: "
        ).encode()


@dataclass(frozen=True, slots=True)
class ClockPair:
    """CLOCK_REALTIME, on which the kernel stamps, minus CLOCK_MONOTONIC; known to `error_ns`.

    Both are slewed alike, so their difference changes only when somebody sets the clock.
    """

    offset_ns: int
    error_ns: int

    @classmethod
    def read(cls) -> ClockPair:
        def pair() -> ClockPair:
            before = time.monotonic_ns()
            real = time.time_ns()
            after = time.monotonic_ns()
            return cls(real - (before + after) // 2, after - before)

        return min((pair() for _ in range(9)), key=lambda found: found.error_ns)


class Connection:
    """A socket and what it does now: connecting, idle, or carrying an exchange.

    Attributes:
        mask: the selector events it waits for.
        kept: it was open before its exchange, so the server may have closed it meanwhile.
        unsent: what is left of the request.
    """

    __slots__ = ("connecting", "exchange", "kept", "mask", "sock", "unsent")

    def __init__(self, family: int, address: object) -> None:
        """Start to connect.

        Raises:
            OSError: at once refused, or no descriptor or port is left.
        """
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.connecting = True
        self.mask = selectors.EVENT_WRITE
        self.exchange: Exchange | None = None
        self.kept = False
        self.unsent = memoryview(b"")
        try:
            self.sock.settimeout(0)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if _KERNEL_STAMPS:
                self.sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            with contextlib.suppress(BlockingIOError):
                self.sock.connect(address)  # type: ignore[arg-type]  # as getaddrinfo gave it
        except BaseException:
            self.sock.close()
            raise

    def send(self) -> None:
        """Send what the kernel takes of `unsent`."""
        try:
            while self.unsent:
                self.unsent = self.unsent[self.sock.send(self.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            # The server closed. What it said before stands in the receive buffer: reading decides.
            self.unsent = memoryview(b"")

    def receive(self) -> tuple[bytes, int | None]:
        """Read once; return the bytes and the kernel's CLOCK_REALTIME stamp of the newest, in ns.

        Raises:
            BlockingIOError: nothing is there.
            OSError: the connection is lost.
        """
        if not _KERNEL_STAMPS:
            return self.sock.recv(_READ_BYTES), None
        data, ancillary, _, _ = self.sock.recvmsg(_READ_BYTES, _ANCILLARY_BYTES)
        if not ancillary or len(ancillary[0][2]) < _TIMESPEC.size:
            return data, None
        seconds, nanoseconds = _TIMESPEC.unpack_from(ancillary[0][2])
        return data, seconds * 1_000_000_000 + nanoseconds
