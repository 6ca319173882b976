"""Mutants of runs, by the ten thousand: `make proof B=fuzz`, an hour or less.

Each is verified, and must be refused by a numbered check or be valid; anything else that is raised
ends the proof with the number of the mutant, from which it can be made again. What a slice found is
a line of build/proof/fuzz.jsonl; a second call with the same sources does only what is missing.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.support import mutants
from tests.support.runs import (
    RunBuilder,
    answers_of,
    gated_spec,
    gpu_spec,
    played_power,
    spec_in_mode,
)

ROOT = Path(__file__).resolve().parents[2]
SLICE = 500
SLICES = 10
"""Of each kind of run."""


def _on_boards() -> RunBuilder:
    builder = RunBuilder(spec=gpu_spec(), idle_s=20)
    return replace(builder, power=played_power(builder))


def _answered() -> RunBuilder:
    spec = gated_spec(20)
    return RunBuilder(spec=spec, accuracy=answers_of(spec, [True] * 20))


KINDS: dict[str, Callable[[], RunBuilder]] = {
    "plain": RunBuilder,
    "boards": _on_boards,
    "answered": _answered,
}
LONG = {**KINDS, "long run": lambda: RunBuilder(spec=spec_in_mode("full"), long_run=True)}


def main() -> int:
    from tests.proofs.__main__ import sources_digest  # it is the one that calls

    sources = sources_digest(Path(__file__), Path(mutants.__file__))
    log = ROOT / "build" / "proof" / "fuzz.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    done = {(line["kind"], line["slice"]) for line in lines if line["sources"] == sources}
    for kind, make in LONG.items():
        with tempfile.TemporaryDirectory() as folder:
            pristine = make().write(Path(folder) / "pristine")
            for number in range(SLICES):
                if (kind, number) in done:
                    continue
                found = _slice(pristine, range(number * SLICE, (number + 1) * SLICE))
                if found is None:
                    return 1
                told = {"sources": sources, "kind": kind, "slice": number, "found": found}
                with log.open("a") as handle:
                    handle.write(json.dumps(told) + "\n")
                sys.stdout.write(f"{kind} {number + 1}/{SLICES}: {found}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{len(LONG) * SLICES * SLICE:,} mutants: {log.relative_to(ROOT)}\n")
    return 0


def _slice(pristine: Path, numbers: range) -> dict[str, int] | None:
    found = Counter[str]()
    for number in numbers:
        with tempfile.TemporaryDirectory() as folder:
            try:
                told = mutants.outcome(number, pristine, Path(folder))
            except Exception:  # whatever it is, it is told of which mutant, and goes on
                sys.stderr.write(f"mutant {number} of {pristine} broke the verifier\n")
                raise
        if told == "check ?":
            sys.stderr.write(f"mutant {number} was refused without a number\n")
            return None
        found[told] += 1
    return dict(sorted(found.items()))
