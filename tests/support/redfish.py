"""A management controller in a process of its own: pages by path, which the test may change.

Run as a script it serves what the file `pages.json` of its folder holds at each request, writes
its port to standard output and the paths that were asked to `asked.txt`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Controller:
    """The test's hand on the controller. `url` is its origin."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self.url = url

    def serve(
        self,
        pages: Mapping[str, object],
        *,
        headers: Mapping[str, str] | None = None,
        authorization: str | None = None,
    ) -> None:
        """Answer with these pages from now on.

        Args:
            pages: a status for an int, text as it is, anything else as JSON.
            headers: of every answer.
            authorization: the header without which every answer is 401.
        """
        told = {"pages": pages, "headers": headers or {}, "authorization": authorization}
        fresh = self._folder / "fresh.json"
        fresh.write_text(json.dumps(told), "utf-8")
        fresh.replace(self._folder / "pages.json")
        (self._folder / "asked.txt").write_text("", "utf-8")

    def asked(self) -> list[str]:
        """Return the paths that were asked since the pages were set."""
        return (self._folder / "asked.txt").read_text("utf-8").splitlines()


@contextmanager
def controller(folder: Path) -> Iterator[Controller]:
    """Run a controller until the test is over."""
    with subprocess.Popen(
        [sys.executable, __file__, str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield Controller(folder, f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.terminate()


def _main(folder: Path) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told = json.loads((folder / "pages.json").read_text("utf-8"))
            with (folder / "asked.txt").open("a", encoding="utf-8") as asked:
                asked.write(self.path + "\n")
            page = told["pages"].get(self.path, 404)
            if told["authorization"] not in {None, self.headers["Authorization"]}:
                page = 401
            body = b"" if isinstance(page, int) else self._body(page)
            self.send_response(page if isinstance(page, int) else 200)
            for name, value in told["headers"].items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @staticmethod
        def _body(page: object) -> bytes:
            return (page if isinstance(page, str) else json.dumps(page)).encode()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
