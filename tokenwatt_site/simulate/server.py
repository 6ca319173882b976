"""A server that answers as scripted or as an engine would, and remembers when each token left.

Real HTTP and server-sent events on the loopback, no model. What it tells of each request is what a
client's stamps are compared with.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Self

from tokenwatt_site.simulate.connection import ServerConnection
from tokenwatt_site.simulate.desk import Desk, ScriptOf
from tokenwatt_site.simulate.engine import Engine
from tokenwatt_site.simulate.script import Script
from tokenwatt_site.simulate.truth import Keep, Served

_HOST = "127.0.0.1"


class SimulatedServer:
    """Serves on the loopback from a thread of its own, between `__enter__` and `__exit__`.

    Args:
        script: for all requests, or a function from a request's number to its script. `model` is
            that of request 0.
        engine: makes the tokens; None leaves their times to the script. Not to be used again.
        port: 0 chooses a free one.
        keep: takes each request once it has ended, instead of `log`. What it raises as OSError
            ends the server.

    Attributes:
        connections: how many were accepted.
        failure: what ended it, or kept it from beginning; None while all is well.
    """

    def __init__(
        self,
        script: Script | ScriptOf | None = None,
        engine: Engine | None = None,
        *,
        port: int = 0,
        keep: Keep | None = None,
    ) -> None:
        chosen = script or Script()
        script_of: ScriptOf = chosen if callable(chosen) else lambda _: chosen
        self._desk = Desk(script_of, engine, keep, self._fail)
        self.connections = 0
        self._port = port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready, self._ended = threading.Event(), threading.Event()
        self.failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="simulated server", daemon=True)
        self._open: set[ServerConnection] = set()
        self._changed = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self._port}"

    @property
    def log(self) -> list[Served]:
        """The truth about every request, in order of receipt; empty where `keep` takes it."""
        return self._desk.log

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self.failure is not None:
            self._thread.join()
            raise self.failure
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):  # the loop of a server that failed is closed
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def wait_until_unused(self) -> None:
        """Wait until no connection is open any more."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open)

    def wait_until_failed(self) -> None:
        """Wait until `keep` has failed; a server does not end by itself otherwise.

        Raises:
            OSError: what `keep` raised.
        """
        self._ended.wait()  # a join that an interrupt ends takes the thread for ended, up to 3.12
        if self.failure is not None:
            raise self.failure

    def idle(self) -> int:
        """Count the open connections that carry no request."""
        with self._changed:
            return sum(connection.idle for connection in self._open)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._ended.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._desk.open()
        try:
            server = await self._loop.create_server(
                lambda: ServerConnection(self._desk, self._opened, self._closed),
                _HOST,
                self._port,
                backlog=1024,
            )
        except OSError as error:
            self.failure = error
            self._ready.set()
            return
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
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

    def _fail(self, error: OSError) -> None:
        self.failure = error
        if self._stop is not None:
            self._stop.set()

    def _opened(self, connection: ServerConnection) -> None:
        with self._changed:
            self.connections += 1
            self._open.add(connection)

    def _closed(self, connection: ServerConnection) -> None:
        with self._changed:
            self._open.discard(connection)
            self._changed.notify_all()
