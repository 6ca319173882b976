"""Run one benchmark: `python -m tests.benchmarks NAME` writes build/bench/NAME.json.

A benchmark is a module here with `run()`, which returns named figures, units in the names: numbers,
or a bound such as "< 250".
Times are of this machine as busy as it was; ratios say more. Nothing is asserted.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(
    p.stem for p in Path(__file__).parent.glob("[a-z]*.py") if not p.stem.startswith("test_")
)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in NAMES:
        sys.stderr.write(f"name one benchmark, as in: make bench B={NAMES[0]}\n")
        sys.stderr.write(f"there are: {', '.join(NAMES)}\n")
        return 2
    name = arguments[0]
    figures = importlib.import_module(f"tests.benchmarks.{name}").run()
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    machine = f"{platform.machine()}, {os.cpu_count()} processors, {system}"
    result = {
        "name": name,
        "machine": f"{machine}, {platform.python_implementation()} {platform.python_version()}",
        "commit": commit or "not committed",
        "figures": figures,
    }
    path = ROOT / "build" / "bench" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    width = max(map(len, figures))
    for key, value in figures.items():
        shown = value if isinstance(value, str) else f"{value:,.6g}"
        sys.stdout.write(f"{key:<{width}}  {shown}\n")
    sys.stdout.write(f"{path.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
