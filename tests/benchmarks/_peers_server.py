"""The simulated engine alone: `python -m tests.benchmarks._peers_server SCRIPT LOG`.

Prints its URL and serves until standard input ends; then writes the truth about each request to
LOG, a line of JSON each, as `tokenwatt-site simulate --log` does while it serves.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from tests.benchmarks._peers_rig import INTERVAL_MS, MODEL, TTFT_MS
from tokenwatt_site.simulate.script import Script, named
from tokenwatt_site.simulate.server import SimulatedServer


def main(script: str, log: Path) -> None:
    gc.disable()  # what it remembers is much, and none of it goes
    base = Script(ttft_ms=TTFT_MS, interval_ms=INTERVAL_MS, model=MODEL)
    with SimulatedServer(named(script, base)) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        sys.stdin.read()
    log.write_text("".join(served.line() for served in server.log), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
