"""The server of the client's self-test: event streams on a schedule, and the truth about them.

`python -m tokenwatt_site.measure.emitter FIRST_NS INTERVAL_NS` prints its port on the loopback and
answers POST requests, HTTP/1.1, kept alive. A body begins with `{"row":R,"tokens":N,`. Its first
token is due FIRST_NS after the request was whole, each further one INTERVAL_NS after the one
before, one event each, in the bytes of an OpenAI-compatible engine.

A line on standard input asks for the truth since the last such line. The answer is one JSON line:
{"lag_p99_ns": how late its events were against its own schedule,
 "rows": [[row, first_ns, last_ns], ...]}
of answers sent in full; tokens were handed to the kernel then, by `time.monotonic_ns()`. The end of
standard input ends it, so it does not outlive who started it.

Imports nothing of this project: it must start fast and alone.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass, field

_READ_BYTES = 64 << 10
_BURST = 64
"""Events between two looks at the sockets, when it is late."""

_COARSE_NS = 1_500_000  # polls round up to milliseconds; what is nearer is slept exactly
_MARGIN_NS = 60_000  # the kernel's timer slack, and a little

_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_EVENT = (
    'data: {"id":"cmpl-00000000000000000000000000000000","object":"text_completion",'
    '"created":1764600000,"model":"self-test","choices":[%s]%s}\n\n'
)
_CHOICE = (
    '{"index":0,"text":" token","logprobs":null,"finish_reason":%s,"stop_reason":null,'
    '"token_ids":null}'
)


def _chunk(event: str) -> bytes:
    data = event.encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


TOKEN = _chunk(_EVENT % (_CHOICE % "null", ""))
"""One event of one token, as a chunk."""


def ending(tokens: int) -> bytes:
    """Return what follows after the last token: usage, the end of the stream, the last chunk."""
    usage = (
        f',"usage":{{"prompt_tokens":1,"total_tokens":{tokens + 1},"completion_tokens":{tokens}}}'
    )
    return _chunk(_EVENT % ("", usage)) + _chunk("data: [DONE]\n\n") + b"0\r\n\r\n"


@dataclass(slots=True, eq=False)
class _Stream:
    """One connection: what was read of its request, or the answer that it carries."""

    sock: socket.socket
    received: bytearray = field(default_factory=bytearray)
    row: int = 0
    tokens: int = 0
    sent: int = 0
    due_ns: int = 0
    first_ns: int = 0


class Emitter:
    """All streams share the two delays, so two queues hold them in the order of their times."""

    def __init__(self, first_ns: int, interval_ns: int) -> None:
        self._first_ns, self._interval_ns = first_ns, interval_ns
        self._firsts: deque[_Stream] = deque()
        self._nexts: deque[_Stream] = deque()
        self._lags_ns: list[int] = []
        self._rows: list[tuple[int, int, int]] = []
        self._selector = selectors.DefaultSelector()
        self._endings: dict[int, bytes] = {}

    def serve(self, orders: int, answers: int) -> None:
        """Serve until `orders` ends; both are file descriptors."""
        with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
            listener.settimeout(0)
            self._selector.register(listener, selectors.EVENT_READ)
            self._selector.register(orders, selectors.EVENT_READ)
            os.write(answers, b"%d\n" % listener.getsockname()[1])
            while True:
                self._emit()
                for key, _ in self._selector.select(self._rest_s()):
                    if isinstance(key.data, _Stream):
                        self._receive(key.data)
                    elif key.fd == orders:
                        if not os.read(orders, 4096):
                            return
                        _write_all(answers, self._truth())
                    else:
                        self._accept(listener)

    def _next(self) -> deque[_Stream] | None:
        """Return the queue whose head is due first."""
        firsts, nexts = self._firsts, self._nexts
        if not firsts or not nexts:
            return firsts or nexts or None
        return firsts if firsts[0].due_ns <= nexts[0].due_ns else nexts

    def _rest_s(self) -> float | None:
        """Wait until just before the next event, as far as polls can; the rest is the poll's."""
        queue = self._next()
        if queue is None:
            return None
        left_ns = queue[0].due_ns - time.monotonic_ns()
        if left_ns > _COARSE_NS:
            return (left_ns - _COARSE_NS) / 1e9
        if left_ns > 2 * _MARGIN_NS:
            time.sleep((left_ns - _MARGIN_NS) / 1e9)
        return 0.0

    def _emit(self) -> None:
        for _ in range(_BURST):
            queue = self._next()
            if queue is None or queue[0].due_ns > time.monotonic_ns():
                return
            self._send(queue.popleft())

    def _send(self, stream: _Stream) -> None:
        data = TOKEN if stream.sent else _HEAD + TOKEN
        stream.sent += 1
        last = stream.sent == stream.tokens
        if last:
            data += self._ending(stream.tokens)
        now_ns = time.monotonic_ns()
        try:
            whole = stream.sock.send(data) == len(data)
        except OSError:
            whole = False
        self._lags_ns.append(now_ns - stream.due_ns)
        if not whole:
            self._close(stream)  # gone, or it does not read: a full socket is no schedule
            return
        if stream.sent == 1:
            stream.first_ns = now_ns
        if last:
            self._rows.append((stream.row, stream.first_ns, now_ns))
            stream.tokens = 0
        else:
            stream.due_ns += self._interval_ns
            self._nexts.append(stream)

    def _ending(self, tokens: int) -> bytes:
        if tokens not in self._endings:
            self._endings[tokens] = ending(tokens)
        return self._endings[tokens]

    def _accept(self, listener: socket.socket) -> None:
        # None is left to accept, or this process has no descriptor left: then it stays late.
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                sock.settimeout(0)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._selector.register(sock, selectors.EVENT_READ, _Stream(sock))

    def _receive(self, stream: _Stream) -> None:
        try:
            data = stream.sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(stream)
            return
        stream.received += data
        head, blank, body = bytes(stream.received).partition(b"\r\n\r\n")
        try:
            if not blank or len(body) < int(head.lower().rpartition(b"content-length:")[2]):
                return
            row, tokens = (int(part.partition(b":")[2]) for part in body.split(b",", 2)[:2])
        except ValueError:  # not our client: a port of the loopback is open to all of the machine
            self._close(stream)
            return
        stream.received.clear()
        stream.row, stream.tokens, stream.sent = row, tokens, 0
        stream.due_ns = time.monotonic_ns() + self._first_ns
        self._firsts.append(stream)

    def _close(self, stream: _Stream) -> None:
        for queue in (self._firsts, self._nexts):
            with contextlib.suppress(ValueError):
                queue.remove(stream)
        self._selector.unregister(stream.sock)
        stream.sock.close()

    def _truth(self) -> bytes:
        lags = sorted(self._lags_ns)
        told = {
            "lag_p99_ns": lags[math.ceil(0.99 * len(lags)) - 1] if lags else 0,
            "rows": self._rows,
        }
        line = json.dumps(told, separators=(",", ":")).encode() + b"\n"
        self._lags_ns, self._rows = [], []
        return line


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


if __name__ == "__main__":
    Emitter(int(sys.argv[1]), int(sys.argv[2])).serve(sys.stdin.fileno(), sys.stdout.fileno())
