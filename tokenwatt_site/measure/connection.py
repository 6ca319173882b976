"""One connection to the engine: a socket that never blocks and tells when bytes arrived."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from tokenwatt_site.endpoint import API_PATHS, Api
from tokenwatt_site.errors import Problem, UsageError
from tokenwatt_site.measure.credential import authorisation
from tokenwatt_site.measure.exchange import Exchange
from tokenwatt_site.measure.tls import TlsStream, failure_text

_KERNEL_STAMPS = sys.platform == "linux"
_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python has no name for it
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY_BYTES = 64
_READ_BYTES = 64 << 10
_PROBE_S = 2.0

_DEFAULT_PORTS = {"http": 80, "https": 443}

EXHAUSTED = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
)
"""Errors of connecting that are this machine's want of something, and not the engine's answer."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go.

    Attributes:
        host: name or address.
        port: TCP port.
        path: of the API, from the root.
        secure: whether over TLS.
        api_key_variable: the environment variable that holds the key; None sends no key.
        others: further replicas of the same engine; see `replicas.replica_of`.
    """

    host: str
    port: int
    path: str
    secure: bool = False
    api_key_variable: str | None = None
    others: tuple[Target, ...] = ()

    @property
    def replicas(self) -> tuple[Target, ...]:
        """This one and the others, in their order."""
        return (self, *self.others)

    @classmethod
    def from_url(
        cls,
        base_url: str,
        api: Api,
        api_key_variable: str | None = None,
    ) -> Target:
        """Read a base URL, which is without `/v1`.

        Raises:
            UsageError: it is neither http nor https, or has no host.
        """
        try:
            parts = urlsplit(base_url)
            default = _DEFAULT_PORTS.get(parts.scheme)
            host, port = parts.hostname, default if parts.port is None else parts.port
        except ValueError:
            host, port = None, None
        if not host or not port or parts.scheme not in _DEFAULT_PORTS:
            raise UsageError(
                Problem(
                    "is no address that can be measured",
                    field="endpoint.url",
                    found=base_url,
                    expected="http://host:port or https://host:port",
                )
            )
        path = parts.path.rstrip("/") + API_PATHS[api]
        return cls(host, port, path, parts.scheme == "https", api_key_variable)

    @classmethod
    def from_urls(
        cls,
        base_urls: Sequence[str],
        api: Api,
        api_key_variable: str | None = None,
    ) -> Target:
        """Read the base URLs of the replicas of one engine.

        Raises:
            UsageError: see `from_url`.
        """
        first, *others = (cls.from_url(url, api, api_key_variable) for url in base_urls)
        return replace(first, others=tuple(others))

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
        """Return the head of every request, up to the number of its content length.

        Raises:
            UsageError: the variable of the key is not set.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        key = authorisation(self.api_key_variable)
        return (
            f"POST {self.path} HTTP/1.1\r\nHost: {host}:{self.port}\r\n"
            + (f"Authorization: {key}\r\n" if key else "")
            + "Content-Type: application/json\r\nAccept: text/event-stream\r\n"
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
        connecting: no request can be sent yet; over TLS until the end of the handshake.
        drained: the last read took all that was there.
        ended: the engine has closed its side.
        heard_ns: when something of its exchange last came, as the client counts time.
        kept: it was open before its exchange, so the server may have closed it meanwhile.
        descriptor: of its socket.
        closed: by us.
        mask: the events it waits for, as `select.poll` numbers them.
        replica: the place of whom it is to.
        unsent: what is left to send of what was put.
    """

    __slots__ = (
        "_dialled",
        "_request",
        "_socket",
        "_tls",
        "closed",
        "connecting",
        "descriptor",
        "drained",
        "ended",
        "exchange",
        "heard_ns",
        "kept",
        "mask",
        "replica",
        "unsent",
    )

    def __init__(
        self, family: int, address: object, tls: TlsStream | None = None, replica: int = 0
    ) -> None:
        """Start to connect.

        Raises:
            OSError: at once refused, or no descriptor or port is left.
        """
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self.descriptor = self._socket.fileno()
        self.closed = False
        self.connecting = True
        self.drained = True
        self.ended = False
        self.mask = select.POLLOUT
        self.exchange: Exchange | None = None
        self.heard_ns = 0
        self.kept = False
        self.replica = replica
        self.unsent = memoryview(b"")
        self._dialled = False
        self._request = b""
        self._tls = tls
        try:
            self._socket.settimeout(0)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if _KERNEL_STAMPS:
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            with contextlib.suppress(BlockingIOError):
                self._socket.connect(address)  # type: ignore[arg-type]  # as getaddrinfo gave it
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self.closed = True
        self._socket.close()

    def advance(self) -> None:
        """Go on connecting, as far as that goes without waiting.

        Raises:
            OSError: nobody there, lost, or TLS failed; `strerror` says why.
        """
        if not self._dialled:
            if code := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(code, os.strerror(code))
            self._dialled = True
            if self._tls is not None:
                self._handshake(self._tls, b"")
        elif self._tls is not None:
            self.send()
            with contextlib.suppress(BlockingIOError):
                received = self._socket.recv(_READ_BYTES)
                if not received:
                    raise OSError(errno.ECONNRESET, "closed during the TLS handshake")
                self._handshake(self._tls, received)
        self.connecting = self._tls is not None and not self._tls.ready

    def _handshake(self, tls: TlsStream, received: bytes) -> None:
        try:
            tls.handshake(received)
        except ssl.SSLError as error:
            raise OSError(errno.EPROTO, failure_text(error)) from error
        self._put_raw(tls.outgoing())
        self.send()

    def put(self, request: bytes) -> None:
        """Take what is to be sent, once `connecting` is over."""
        self._request = request

    def _put_raw(self, data: bytes) -> None:
        self.unsent = memoryview(bytes(self.unsent) + data) if self.unsent else memoryview(data)

    def send(self) -> None:
        """Send what the kernel takes of `unsent`."""
        if self._request and not self.connecting:
            request, self._request = self._request, b""
            self._put_raw(request if self._tls is None else self._tls.encrypt(request))
        try:
            while self.unsent:
                self.unsent = self.unsent[self._socket.send(self.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            # The server closed. What it said before stands in the receive buffer: reading decides.
            self.unsent = memoryview(b"")

    def receive(self) -> tuple[bytes, int | None]:
        """Read once; return the bytes and the kernel's CLOCK_REALTIME stamp of the newest, in ns.

        Of TLS the bytes are those of the records that this read made whole, which may be none.
        Sets `ended` when nothing will follow.

        Raises:
            BlockingIOError: nothing is there.
            OSError: the connection is lost.
        """
        ancillary: list[tuple[int, int, bytes]] = []
        self.drained = True
        if _KERNEL_STAMPS:
            data, ancillary, _, _ = self._socket.recvmsg(_READ_BYTES, _ANCILLARY_BYTES)
        else:
            data = self._socket.recv(_READ_BYTES)
        self.drained = len(data) < _READ_BYTES
        if self._tls is not None or not data:
            data = self._decrypted(data)
        if not ancillary or len(ancillary[0][2]) < _TIMESPEC.size:
            return data, None
        seconds, nanoseconds = _TIMESPEC.unpack_from(ancillary[0][2])
        return data, seconds * 1_000_000_000 + nanoseconds

    def _decrypted(self, data: bytes) -> bytes:
        if not data:
            self.ended = True
        elif self._tls is not None:
            try:
                data = self._tls.decrypt(data)
            except ssl.SSLError as error:
                raise OSError(errno.EPROTO, failure_text(error)) from error
            self.ended = self._tls.ended
            if answer := self._tls.outgoing():  # to a change of keys
                self._put_raw(answer)
                self.send()
        return data
