"""Makes folders of thousands of made-up, signed runs; every one is simulated and says so.

Runs are made whole for as many sets of charts as there are to be. Each further configuration is a
copy of one of them with another driver, whose journal is chained and whose file is signed again;
its requests and power are links to the same files. So all pass verification as any run does.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.runs import RunBuilder, ToyEngine, a_key, gpu_spec, played_power, write_signed
from tokenwatt_site.canonical import canonical_bytes, sha256_hex
from tokenwatt_site.evidence.power import PowerLog
from tokenwatt_site.evidence.store import store
from tokenwatt_site.journal import GENESIS
from tokenwatt_site.spec import Spec

SETS = 100
"""Distinct sets of charts among all configurations."""

RATES = (500_000, 4_000_000)
"""The toy engine holds the first and not the second, whatever its pace, in 1e-6 requests/s."""


def write_runs(folder: Path, start: int, stop: int) -> None:
    """Add the configurations numbered `start` to `stop`, less one, each in a folder of its own."""
    for number in range(start, stop):
        own = folder / f"{number % SETS:03}" / f"{number:05}"
        if number < SETS:
            _whole(own, number)
        else:
            _copy(folder / f"{number % SETS:03}" / f"{number % SETS:05}", own, number)


def _whole(folder: Path, number: int) -> None:
    spec = gpu_spec(
        title=f"Made-up engine, number {number}",
        setup__driver=f"generated {number}",
        protocol__repeats=3,
    )
    engine = ToyEngine().at_pace(1 + number / SETS)
    builder = RunBuilder(spec=spec, engine=engine, rates_urps=RATES, idle_s=60)
    replace(builder, power=_near(played_power(builder), builder.loads())).write(folder)


def _near(log: PowerLog, loads: Sequence[tuple[int, int]]) -> PowerLog:
    """Leave out what was read long before or after a load: the builder's are 1,000 s apart."""
    slack_ns = 110 * 10**9
    kept = (
        s for s in log.samples if any(a - slack_ns <= s.at_ns <= b + slack_ns for a, b in loads)
    )
    return replace(log, samples=tuple(kept))


def _copy(made: Path, folder: Path, number: int) -> None:
    document: dict[str, Any] = json.loads((made / "run.json").read_text(encoding="utf-8"))
    del document["signatures"]
    document["spec"]["setup"]["driver"] = f"generated {number}"
    spec = Spec.model_validate_json(canonical_bytes(document["spec"]))
    document["configuration"] = spec.configuration_id
    (folder / "evidence").mkdir(parents=True)
    for entry in document["evidence"]:
        if entry["role"] != "journal":
            os.link(made / entry["path"], folder / entry["path"])
    [place] = [n for n, e in enumerate(document["evidence"]) if e["role"] == "journal"]
    packed = (made / document["evidence"][place]["path"]).read_bytes()
    journal, document["journal_head"] = _chained(gzip.decompress(packed), spec)
    entry = store(folder / "evidence", "journal", journal)
    document["evidence"][place] = entry.to_json()
    write_signed(folder / "run.json", document, a_key())


def _chained(journal: bytes, spec: Spec) -> tuple[bytes, str]:
    """Return a journal that was opened for `spec`, and its head."""
    lines, prev = [], GENESIS
    for line in journal.splitlines():
        value = json.loads(line) | {"prev": prev}
        if value["event"] == "open":
            told = {"configuration": spec.configuration_id, "spec": spec.to_json()}
            value["data"] = value["data"] | told
        lines.append(canonical_bytes(value))
        prev = sha256_hex(lines[-1])
    return b"".join(line + b"\n" for line in lines), prev
