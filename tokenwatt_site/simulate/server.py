"""A server that answers as scripted and remembers the truth: when each token really left.

Real HTTP and server-sent events on the loopback, no model. The log is what a client's stamps are
compared with. `python -m tokenwatt_site.simulate.server --port N` runs it in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias

from tokenwatt_site.run import SIMULATED_ENGINE
from tokenwatt_site.simulate.script import Asked, Script, Step, named, steps

ScriptOf: TypeAlias = Callable[[int], Script]

_HOST = "127.0.0.1"
_MAX_REQUEST_BYTES = 16 << 20
_REQUEST_LINE = re.compile(rb"(GET|POST) (/[^ ?\r\n]*)(?:\?[^ \r\n]*)? HTTP/1\.[01]\r\n")
_LENGTH = re.compile(rb"\r\nContent-Length:[ \t]*([0-9]{1,12})[ \t]*\r\n", re.IGNORECASE)
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    413: "Content Too Large",
    429: "Too Many Requests",
    503: "Service Unavailable",
}
_NO_LINGER = struct.pack("ii", 1, 0)  # a close is then a reset


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant on both clocks: `time.monotonic_ns` and `time.time_ns`."""

    monotonic_ns: int
    realtime_ns: int

    @classmethod
    def now(cls) -> Moment:
        return cls(time.monotonic_ns(), time.time_ns())


@dataclass(slots=True)
class Served:
    """The truth about one request.

    Attributes:
        number: from 0, in order of receipt.
        api: which path it came to.
        body: the request body as received.
        received: when its last byte was read.
        sent: for each event with tokens, just before it was handed to the kernel, and how many.
        ended: how the response ended; None while it has not.
    """

    number: int
    api: Literal["completions", "chat"]
    body: bytes
    received: Moment
    sent: list[tuple[Moment, int]] = field(default_factory=list)
    ended: Literal["complete", "refused", "dropped", "client gone"] | None = None


class SimulatedServer:
    """Serves on the loopback from a thread of its own, between `__enter__` and `__exit__`.

    Args:
        script: for all requests, or a function from a request's number to its script. `model` is
            that of request 0.
        port: 0 chooses a free one.

    Attributes:
        log: the truth about every request, in order of receipt.
        connections: how many were accepted.
    """

    def __init__(self, script: Script | ScriptOf | None = None, *, port: int = 0) -> None:
        chosen = script or Script()
        self.script_of: ScriptOf = chosen if callable(chosen) else lambda _: chosen
        self.log: list[Served] = []
        self.connections = 0
        self._port = port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="simulated server", daemon=True)
        self._open: set[_ServerConnection] = set()
        self._changed = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def wait_until_unused(self) -> None:
        """Wait until no connection is open any more."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open)

    def _run(self) -> None:
        asyncio.run(self.serve(ready=self._ready.set))

    async def serve(self, *, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until stopped; `ready` is called once the port is open, or has failed to."""
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            server = await self._loop.create_server(
                lambda: _ServerConnection(self), _HOST, self._port, backlog=1024
            )
        except OSError as error:
            self._failure = error
            ready()
            return
        self._port = server.sockets[0].getsockname()[1]
        ready()
        try:
            await self._stop.wait()
        finally:
            # A connection may just be being accepted: let it come to be, so that it can be closed.
            # Asyncio loses the socket of one that comes to be after its server was closed.
            while accepting := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.gather(*accepting, return_exceptions=True)
            server.close()
            for connection in tuple(self._open):
                connection.abort()
            await asyncio.sleep(0)  # lets the transports close their sockets

    def opened(self, connection: _ServerConnection) -> None:
        with self._changed:
            self.connections += 1
            self._open.add(connection)

    def closed(self, connection: _ServerConnection) -> None:
        with self._changed:
            self._open.discard(connection)
            self._changed.notify_all()

    def idle(self) -> int:
        """Count the open connections that carry no request."""
        with self._changed:
            return sum(connection.idle for connection in self._open)


class _ServerConnection(asyncio.Protocol):
    def __init__(self, server: SimulatedServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._served: Served | None = None
        self._script = Script()
        self._steps: Iterator[Step] = iter(())
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what asyncio gives for TCP
        self._transport = transport
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._server.closed(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._served is not None and self._served.ended is None:
            self._served.ended = "client gone"

    def abort(self) -> None:
        self._transport.abort()

    @property
    def idle(self) -> bool:
        return self._served is None and not self._received

    def data_received(self, data: bytes) -> None:
        self._received += data
        # One at a time: what is pipelined waits.
        while self._served is None and self._next_request():
            pass

    def _next_request(self) -> bool:
        """Answer the first request in what was received; False when it is not whole."""
        end = self._received.find(b"\r\n\r\n")
        line = _REQUEST_LINE.match(self._received)
        if len(self._received) > _MAX_REQUEST_BYTES or (end >= 0 and line is None):
            self._received.clear()
            self._plain(400, {"error": {"message": "this is no request"}}, close=True)
            return False
        if end < 0 or line is None:
            return False
        length = _LENGTH.search(self._received, 0, end + 2)
        whole = end + 4 + (int(length.group(1)) if length else 0)
        if len(self._received) < whole:
            return False
        received = Moment.now()
        body = bytes(self._received[end + 4 : whole])
        method, path = line.group(1), line.group(2).decode("latin-1")
        del self._received[:whole]
        self._request(method, path, body, received)
        return True

    def _request(self, method: bytes, path: str, body: bytes, received: Moment) -> None:
        apis: dict[str, Literal["completions", "chat"]] = {
            "/v1/completions": "completions",
            "/v1/chat/completions": "chat",
        }
        if method == b"POST" and path in apis:
            self._generate(apis[path], body, received)
        elif method == b"GET" and path == "/health":
            self._plain(200, {})
        elif method == b"GET" and path == "/version":
            self._plain(200, {"version": "simulated"})
        elif method == b"GET" and path == "/v1/models":
            model = self._server.script_of(0).model
            entry = {"id": model, "object": "model", "owned_by": SIMULATED_ENGINE}
            self._plain(200, {"object": "list", "data": [entry]})
        else:
            self._plain(404, {"error": {"message": f"no {path} here"}})

    def _generate(self, api: Literal["completions", "chat"], body: bytes, received: Moment) -> None:
        served = Served(len(self._server.log), api, body, received)
        self._server.log.append(served)
        script = self._script = self._server.script_of(served.number)
        try:
            asked = Asked.parse(api, body)
        except ValueError as error:
            status, message = 400, str(error)
        else:
            status, message = script.http_status, "the script says so"
            if script.refuse_unknown and asked.model != script.model:
                status, message = 404, f"the model {asked.model!r} does not exist"
        if status != 200 or script.error_body:
            served.ended = "refused"
            told = {"error": {"message": message, "code": status}}
            self._plain(status, told, retry_after_s=script.retry_after_s)
            return
        self._served = served
        if script.hang_after == -1:
            return
        self._write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
            b"Transfer-Encoding: chunked\r\n"
            + (b"Connection: close\r\n\r\n" if script.close else b"\r\n")
        )
        self._steps = steps(script, asked, served.number)
        self._schedule()

    def _schedule(self) -> None:
        step = next(self._steps, None)
        if step is None or self._served is None:
            return
        at_s = (self._served.received.monotonic_ns + step.after_ns) / 1e9
        self._timer = self._loop.call_at(at_s, self._take, step)

    def _take(self, step: Step) -> None:
        served = self._served
        if served is None or self._transport.is_closing():
            return
        if step.data:
            chunk = b"%x\r\n%s\r\n" % (len(step.data), step.data)
            if step.tokens:
                served.sent.append((Moment.now(), step.tokens))
            self._write(chunk + b"0\r\n\r\n" if step.then == "end" else chunk)
        if step.then == "next":
            self._schedule()
        elif step.then in ("drop", "reset"):
            served.ended = "dropped"
            if step.then == "reset":
                own = self._transport.get_extra_info("socket")
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._transport.abort()
        elif step.then == "end":
            served.ended = "complete"
            self._served = None
            if self._script.close:
                self._transport.close()
            else:
                self.data_received(b"")

    def _write(self, data: bytes) -> None:
        size = self._script.fragment_bytes or len(data)
        for start in range(0, len(data), size):
            self._transport.write(data[start : start + size])

    def _plain(
        self,
        status: int,
        value: dict[str, Any],
        *,
        close: bool = False,
        retry_after_s: int | None = None,
    ) -> None:
        body = json.dumps(value).encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            + (f"Retry-After: {retry_after_s}\r\n" if retry_after_s is not None else "")
            + ("Connection: close\r\n\r\n" if close else "\r\n")
        )
        self._transport.write(head.encode() + body)
        if close:
            self._transport.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until killed. `/health` answers once it is up."""
    usual = Script()
    parser = argparse.ArgumentParser(prog="python -m tokenwatt_site.simulate.server")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ttft-ms", type=float, default=usual.ttft_ms)
    parser.add_argument("--interval-ms", type=float, default=usual.interval_ms)
    parser.add_argument("--model", default=usual.model)
    parser.add_argument("--script", default="", help="names such as role-early,multi:4")
    options = parser.parse_args(arguments)
    base = Script(ttft_ms=options.ttft_ms, interval_ms=options.interval_ms, model=options.model)
    server = SimulatedServer(named(options.script, base), port=options.port)
    asyncio.run(server.serve())


if __name__ == "__main__":
    main()
