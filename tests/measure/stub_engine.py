"""An engine of a few lines: canned GET answers, streamed usage by rules that a test can break."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Answer = tuple[int, dict[str, str], bytes]

Raw: TypeAlias = Callable[[threading.Event], Iterator[bytes]]
"""A whole answer as bytes, head and all, in pieces; the event is set when the test is over."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
_FIRST_TOKEN = b'data: {"choices":[{"text":"a"}]}\n\n'
_ONE_CHUNK = (
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(_FIRST_TOKEN) + _FIRST_TOKEN + b"\r\n"
)


def honest(body: dict[str, Any], *, overhead: int = 0, cached: int | None = 0) -> dict[str, Any]:
    """Return the usage of an engine that does as asked."""
    if "messages" in body:
        given = len(body["messages"][0]["content"].split())
    else:
        prompt = body["prompt"]
        given = len(prompt.split()) if isinstance(prompt, str) else len(prompt)
    usage: dict[str, Any] = {
        "prompt_tokens": given + overhead,
        "completion_tokens": body["max_tokens"],
    }
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return usage


def dropped(_: threading.Event) -> Iterator[bytes]:
    """An answer that breaks off after its first token."""
    yield _ONE_CHUNK


def hanging(over: threading.Event) -> Iterator[bytes]:
    """An answer that stops after its first token and holds the connection."""
    yield _ONE_CHUNK
    over.wait(60)


def trickling(head: bytes) -> Raw:
    """An answer of one byte at a time after `head`, without an end."""

    def pieces(over: threading.Event) -> Iterator[bytes]:
        yield head
        while not over.wait(0.01):
            yield b" "

    return pieces


def endless(over: threading.Event) -> Iterator[bytes]:
    """An answer that is sent as fast as it is read, without an end."""
    yield HEAD + b"\r\n"
    while not over.is_set():
        yield b" " * 65536


@dataclass
class StubEngine:
    """What the engine says. `usage` makes the usage of a request; None: it says none.

    `raw` holds answers by the path of a GET or the number of a POST, from 1; they go before all
    others. `at_once`: all tokens come in one event. `key`: what a request must bring; one that
    brings another gets it back in the error, as some engines do. `tokenize` answers a POST to
    /tokenize, and `plain` those that ask for no stream; neither counts as one of the others. None:
    there is no such path, and all is streamed. Where `plain` returns None the engine dies: nothing
    listens there any more.
    """

    get: dict[str, Answer] = field(default_factory=dict)
    usage: Callable[[dict[str, Any]], dict[str, Any] | None] = honest
    models: tuple[str, ...] = ("toy",)
    status: int = 200
    error_event: dict[str, Any] | None = None
    at_once: bool = False
    key: str | None = None
    raw: dict[str | int, Raw] = field(default_factory=dict)
    tokenize: Callable[[dict[str, Any]], Answer] | None = None
    plain: Callable[[dict[str, Any]], Answer | Raw | None] | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)


def as_json(value: Any, **headers: str) -> Answer:
    return 200, headers, json.dumps(value).encode()


def _events(engine: StubEngine, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for _ in range(1 if engine.at_once else body["max_tokens"]):
        yield {"choices": [{"text": "a\u2028b"}]}
    if engine.error_event is not None:
        yield engine.error_event
    yield {"choices": [{"text": "", "finish_reason": "length"}], "usage": engine.usage(body)}


class _Server(ThreadingHTTPServer):
    def __init__(self, engine: StubEngine) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.engine = engine
        self.over = threading.Event()

    def die(self) -> None:
        self.shutdown()
        self.socket.close()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def version_string(self) -> str:
        return "stub"

    def _refuses(self) -> bool:
        key, told = self.server.engine.key, self.headers.get("Authorization", "no key")
        if key is None or told == f"Bearer {key}":
            return False
        text = json.dumps({"error": {"message": f"wrong: {told}"}}).encode()
        self.send_response_only(401)
        self.send_header("Content-Type", f"application/json; wrong={told}")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        return True

    def do_GET(self) -> None:
        if self._refuses():
            return
        engine = self.server.engine
        if raw := engine.raw.get(self.path):
            self._send_raw(raw)
            return
        self._send(engine.get.get(self.path, (404, {}, b"{}")))

    def _send(self, answer: Answer) -> None:
        status, headers, body = answer
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self._send_raw(lambda _: iter([body]))

    def do_POST(self) -> None:
        engine = self.server.engine
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._refuses():
            return
        if self.path == "/tokenize":
            self._send(engine.tokenize(body) if engine.tokenize else (404, {}, b"{}"))
            return
        if engine.plain and body.get("stream") is not True:
            self._send_plain(engine.plain(body))
            return
        engine.bodies.append(body)
        if raw := engine.raw.get(len(engine.bodies)):
            self._send_raw(raw)
            return
        known = not engine.models or body["model"] in engine.models
        self.send_response_only(engine.status if known else 404)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        if not known or engine.status != 200:
            self.wfile.write(b'{"error": {"message": "no such thing"}}')
            return
        for event in _events(engine, body):
            self.wfile.write(f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def _send_plain(self, answer: Answer | Raw | None) -> None:
        if answer is None:
            self.server.die()
        elif callable(answer):
            self._send_raw(answer)
        else:
            self._send(answer)

    def _send_raw(self, raw: Raw) -> None:
        with suppress(ConnectionError):
            for piece in raw(self.server.over):
                self.wfile.write(piece)

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def serving(engine: StubEngine) -> Iterator[str]:
    """Serve on the loopback; gives the base URL."""
    server = _Server(engine)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
