"""An exporter in a process of its own: it answers each GET with what a file holds then.

`python -m tests.support.exporter FILE` prints its port and serves until it is ended.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass(frozen=True)
class Exporter:
    """A running one; what it `say`s is exported from then on."""

    url: str
    file: Path

    def say(self, text: str) -> None:
        whole = self.file.with_suffix(".new")
        whole.write_text(text, "utf-8")
        whole.replace(self.file)


@contextmanager
def exporting(folder: Path, text: str) -> Iterator[Exporter]:
    file = folder / "metrics"
    argv = [sys.executable, "-m", "tests.support.exporter", str(file)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            running = Exporter(f"http://127.0.0.1:{int(process.stdout.readline())}/metrics", file)
            running.say(text)
            yield running
        finally:
            process.kill()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/metrics")
            self.end_headers()
            return
        body = Path(sys.argv[1]).read_bytes() if self.path == "/metrics" else b"no such page"
        self.send_response(200 if self.path == "/metrics" else 404)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: the output is the port."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        sys.stdout.write(f"{server.server_address[1]}\n")
        sys.stdout.flush()
        server.serve_forever()
