"""One connection to the simulated server, which answers one request after the other."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

from tokenwatt_site.endpoint import API_PATHS
from tokenwatt_site.simulate.answer import Answer, Piece, steps
from tokenwatt_site.simulate.asked import Api, Asked
from tokenwatt_site.simulate.desk import Desk, Plain, refusal
from tokenwatt_site.simulate.engine import Generation, Request, Step
from tokenwatt_site.simulate.script import Script
from tokenwatt_site.simulate.truth import Ended, Moment, Served
from tokenwatt_site.simulate.wire import response, stream_head, take_request

_NO_LINGER = struct.pack("ii", 1, 0)  # a close is then a reset
_APIS: dict[str, Api] = {path: api for api, path in API_PATHS.items()}

Seen: TypeAlias = Callable[["ServerConnection"], None]


class ServerConnection(asyncio.Protocol):
    """Reads requests and writes answers; `opened` and `closed` are told of it."""

    def __init__(self, desk: Desk, opened: Seen, closed: Seen) -> None:
        self._desk = desk
        self._opened, self._closed = opened, closed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._served: Served | None = None
        self._script = Script()
        self._answer: Answer | None = None
        self._generation: Generation | None = None
        self._timeline: Iterator[tuple[int, Piece]] = iter(())
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what asyncio gives for TCP
        self._transport = transport
        self._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if self._timer is not None:
            self._timer.cancel()
        if self._served is not None:
            self._end(self._served, "client gone")
        self._closed(self)

    def abort(self) -> None:
        self._transport.abort()

    @property
    def idle(self) -> bool:
        return self._served is None and not self._received

    def data_received(self, data: bytes) -> None:
        self._received += data
        # One at a time: what is pipelined waits.
        while self._served is None and not self._transport.is_closing():
            try:
                request = take_request(self._received)
            except ValueError as error:
                self._received.clear()
                self._plain(refusal(400, str(error)), close=True)
                return
            if request is None:
                return
            if request.method == "POST" and request.path in _APIS:
                self._generate(_APIS[request.path], request.body, Moment.now())
            else:
                self._plain(self._desk.plain(*request))

    def _generate(self, api: Api, body: bytes, received: Moment) -> None:
        served = self._desk.receive(api, body, received)
        script = self._script = self._desk.script_of(served.number)
        try:
            asked = Asked.parse(api, body, script.template_tokens)
        except ValueError as error:
            self._refuse(served, refusal(400, str(error)))
            return
        answer = Answer(script, asked, served.number, others=self._desk.in_progress - 1)
        served.prompt_tokens, served.output_tokens = asked.prompt_tokens, answer.total
        if refused := self._desk.refused(script, asked):
            self._refuse(served, refused)
            return
        self._served = served
        if script.hang_after == -1:
            return
        if answer.streamed:
            self._write(stream_head(close=script.close))
        self._answer = answer
        request = Request(served.number, asked.prompt, answer.total, received.monotonic_ns)
        self._generation = self._desk.submit(request, self._made)
        if self._generation is None:
            self._timeline = steps(script, answer)
            self._schedule(served)
        elif opening := answer.opening():
            self._send(served, Piece(opening))

    def _refuse(self, served: Served, answer: Plain) -> None:
        self._desk.end(served, "refused")
        self._plain(answer, retry_after_s=self._script.retry_after_s)

    def _made(self, generation: Generation, step: Step) -> None:
        """Take a token from the engine."""
        served, answer = self._served, self._answer
        if served is None or answer is None or self._transport.is_closing():
            return
        piece = answer.token(generation.cached_tokens)
        if piece is not None:
            served.late_ns = max(served.late_ns, time.monotonic_ns() - step.end_ns)
            self._send(served, piece)

    def _schedule(self, served: Served) -> None:
        """Send the next piece of a script when its time has come."""
        after_ns, piece = next(self._timeline)
        at_s = (served.received.monotonic_ns + after_ns) / 1e9
        self._timer = self._loop.call_at(at_s, self._take, served, piece)

    def _take(self, served: Served, piece: Piece) -> None:
        if self._transport.is_closing():
            return
        self._send(served, piece)
        if piece.then == "next":
            self._schedule(served)

    def _send(self, served: Served, piece: Piece) -> None:
        if piece.data:
            framed = self._framed(piece)
            if piece.events:
                now = Moment.now()
                served.sent += [(now, tokens) for tokens in piece.events]
            self._write(framed)
        if piece.then == "hang":
            self._answer = None  # what an engine still makes goes nowhere
        elif piece.then in ("drop", "reset"):
            self._end(served, "dropped")
            if piece.then == "reset":
                own = self._transport.get_extra_info("socket")
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._transport.abort()
        elif piece.then == "end":
            self._end(served, "complete")
            if self._script.close:
                self._transport.close()
            else:
                self.data_received(b"")

    def _framed(self, piece: Piece) -> bytes:
        answer = self._answer
        if answer is not None and not answer.streamed:
            status = 200 if piece.events else 500
            return response(status, piece.data, "application/json", close=self._script.close)
        chunk = b"%x\r\n%s\r\n" % (len(piece.data), piece.data)
        return chunk + b"0\r\n\r\n" if piece.then == "end" else chunk

    def _end(self, served: Served, how: Ended) -> None:
        """End the request in progress, here and in the engine."""
        generation, answer = self._generation, self._answer
        self._served = self._generation = self._answer = None
        if generation is not None:
            served.cached_tokens = generation.cached_tokens
            served.preemptions = generation.preemptions
            if generation.admitted_ns is not None:
                served.admitted = served.received.moved(generation.admitted_ns)
            whole = answer is not None and generation.done
            self._desk.answered(generation, answer.finish if answer and whole else None)
        self._desk.end(served, how)

    def _write(self, data: bytes) -> None:
        size = self._script.fragment_bytes or len(data)
        for start in range(0, len(data), size):
            self._transport.write(data[start : start + size])

    def _plain(
        self, answer: Plain, *, close: bool = False, retry_after_s: int | None = None
    ) -> None:
        self._transport.write(response(*answer, close=close, retry_after_s=retry_after_s))
        if close:
            self._transport.close()
