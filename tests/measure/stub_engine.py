"""An engine of a few lines: canned GET answers, streamed usage by rules that a test can break."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], bytes]


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


@dataclass
class StubEngine:
    """What the engine says. `usage` makes the usage of a request; None: it says none."""

    get: dict[str, Answer] = field(default_factory=dict)
    usage: Callable[[dict[str, Any]], dict[str, Any] | None] = honest
    models: tuple[str, ...] = ("toy",)
    status: int = 200
    error_event: dict[str, Any] | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)


def as_json(value: Any, **headers: str) -> Answer:
    return 200, headers, json.dumps(value).encode()


@contextmanager
def serving(engine: StubEngine) -> Iterator[str]:
    """Serve on the loopback; gives the base URL."""

    class Handler(BaseHTTPRequestHandler):
        def version_string(self) -> str:
            return "stub"

        def do_GET(self) -> None:
            status, headers, body = engine.get.get(self.path, (404, {}, b"{}"))
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            engine.bodies.append(body)
            known = not engine.models or body["model"] in engine.models
            self.send_response_only(engine.status if known else 404)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            if not known or engine.status != 200:
                self.wfile.write(b'{"error": {"message": "no such thing"}}')
                return
            events: list[dict[str, Any]] = [{"choices": [{"text": "a\u2028b"}]}]
            if engine.error_event is not None:
                events.append(engine.error_event)
            events.append({"choices": [{"text": ""}], "usage": engine.usage(body)})
            for event in events:
                self.wfile.write(f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
