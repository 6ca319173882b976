"""Run a long proof: `python -m tests.proofs NAME`.

NAME is a module here, which says itself what it proves. Or it is that of a test module test_NAME.py
(`test_NAME` where both have the name), whose properties are run long: 50 slices of 1,000 examples,
each from a seed of its own. A slice that passed is a line in build/proof/NAME.jsonl; a second call
with the same sources does only the slices that are missing.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SLICES = 50
OWN = sorted(p.stem for p in Path(__file__).parent.glob("[a-z]*.py"))


def sources_digest(*tests: Path) -> str:
    """What the proof is about: the package and the tests. A change to any starts it again."""
    state = hashlib.sha256()
    for path in [*sorted((ROOT / "tokenwatt_site").rglob("*.py")), *tests]:
        state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()


def main(arguments: list[str]) -> int:
    tests = {
        path.stem if path.stem[5:] in OWN else path.stem[5:]: path
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if "@given" in path.read_text()
    }
    if len(arguments) != 1 or arguments[0] not in {*tests, *OWN}:
        sys.stderr.write("name one proof, as in: make proof B=canonical\n")
        sys.stderr.write(f"there are: {', '.join(sorted({*tests, *OWN}))}\n")
        return 2
    if arguments[0] in OWN:
        return int(importlib.import_module(f"tests.proofs.{arguments[0]}").main())
    test = tests[arguments[0]]
    sources = sources_digest(test)
    log = ROOT / "build" / "proof" / f"{arguments[0]}.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    passed = {line["slice"] for line in lines if line["sources"] == sources}
    for number in sorted(set(range(SLICES)) - passed):
        code = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-m",
                "hypothesis",
                test,
                "-p",
                "no:cacheprovider",
                f"--hypothesis-seed={number}",
            ],
            cwd=ROOT,
            env={**os.environ, "TOKENWATT_HYPOTHESIS": "proof"},
            check=False,
        ).returncode
        if code:
            sys.stderr.write(f"slice {number} failed; its falsifying example is above\n")
            return 1
        with log.open("a") as handle:
            handle.write(json.dumps({"sources": sources, "slice": number}) + "\n")
    sys.stdout.write(f"{SLICES} slices of 1,000 examples passed: {log.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
