"""How long it takes to verify a full run of 45,000 requests, and how much memory, on both levels.

The run is as large as one gets: 3 repeats of 15 trials of 1,000 requests of chat-mix-v1, the power
of 8 boards and the engine's counters once a second, an engine model that was fitted. Each figure
is of a fresh process on one processor, where nothing was drawn or read before. Reading the code
itself is apart (`import_s`), and so is what numba compiles once for a machine.
The browser's figures are of a run of as many requests without power and model; `_verifier_page`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks import _verifier_page
from tests.support.runs import (
    ModelEngine,
    RunBuilder,
    fit_of,
    gpu_spec,
    played_counters,
    played_power,
)
from tokenwatt_site.engine_model.document import ModelFit
from tokenwatt_site.engine_model.model import EngineModel, Prices
from tokenwatt_site.evidence.power import PowerLog
from tokenwatt_site.pages import simulator
from tokenwatt_site.spec import Spec
from tokenwatt_site.workload import NAMED, workload_of

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD = NAMED["chat-mix-v1"]
ROUNDS = 3
BOARDS = 8


@dataclass(frozen=True)
class NodeEngine(ModelEngine):
    """Answers some 5 requests of chat-mix-v1 a second, as a node may."""

    @property
    def model(self) -> EngineModel:
        known = simulator.ENGINES[0].model
        prices = {name: round(p * self.pace) for name, p in known.prices.to_json().items()}
        return EngineModel(known.family, Prices(**prices))


@dataclass(frozen=True)
class LargeRun(RunBuilder):
    """A run of `trials` rates a repeat, the last two on both sides of its boundary."""

    offered: int = 15

    @property
    def fitted(self) -> ModelFit | None:
        drawn = tuple(self._realisation(repeat) for repeat in self._repeats)
        workload = workload_of(self.spec.setup)
        return fit_of(NodeEngine().model, workload, self.spec.setup.slo, drawn)

    def _engine(self, repeat: int) -> NodeEngine:
        return NodeEngine(self.spread[(repeat - 1) % len(self.spread)])

    def _around_the_boundary(self, repeat: int) -> tuple[int, ...]:
        half, low, high = super()._around_the_boundary(repeat)
        steps = self.offered - 2
        return (*(half + (low - half) * step // steps for step in range(steps)), low, high)


def large_spec(rows: int = 1000, **changes: Any) -> Spec:
    """Return the spec of a run that offers so many rows in each trial."""
    board = {
        "model": "Toy GPU",
        "count": BOARDS,
        "memory_gib": 80,
        "rated_bandwidth_gb_s": 2000.0,
        "power_limit_w": 400.0,
    }
    identity = {"name": WORKLOAD.name, "version": WORKLOAD.version, "hash": WORKLOAD.hash}
    # Once the last scored request came due the load goes on for as long as its answer takes.
    lead_in, tail = rows // 10, 4 * rows // 10
    return gpu_spec(
        setup__accelerator=board,
        setup__workload=identity,
        setup__input_tokens=WORKLOAD.input_tokens.to_json(),
        setup__output_tokens=WORKLOAD.output_tokens.to_json(),
        setup__slo=[objective.to_json() for objective in simulator.SLO],
        protocol__repeats=3,
        protocol__lead_in=lead_in,
        protocol__scored=rows - lead_in - tail,
        protocol__tail=tail,
        **changes,
    )


def large_run(folder: Path, *, rows: int = 1000, offered: int = 15) -> Path:
    """Write a run of 3 repeats of `offered` trials of `rows` requests; return its file."""
    builder = LargeRun(spec=large_spec(rows), long_run=True, offered=offered)
    return replace(
        builder,
        power=_near(builder, played_power(builder, boards=BOARDS)),
        counters=played_counters(builder),
    ).write(folder)


def _near(builder: RunBuilder, log: PowerLog) -> PowerLog:
    """Leave out what was read more than 5 s away from a trial: the builder's are 1,000 s apart."""
    loads, slack_ns = builder.loads(), 5 * 10**9
    kept = [
        sample
        for start_ns, end_ns in loads
        for sample in log.samples
        if start_ns - slack_ns <= sample.at_ns <= end_ns + slack_ns
    ]
    return replace(log, samples=tuple(kept))


def verified(path: Path, level: str) -> dict[str, float]:
    """Return the figures of one verification, in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks._verifier", str(path), level]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    figures: dict[str, float] = json.loads(told)
    return figures


def run() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = large_run(Path(folder))
        verified(path, "model")  # numba compiles, and keeps it
        data = [verified(path, "data") for _ in range(ROUNDS)]
        model = [verified(path, "model") for _ in range(ROUNDS)]
        evidence = sum(piece.stat().st_size for piece in (Path(folder) / "evidence").iterdir())
        run_file = path.stat().st_size
    return {
        "requests": data[0]["requests"],
        "evidence_mb": evidence / 1e6,
        "run_file_kb": run_file / 1e3,
        "import_s": median(each["import_s"] for each in data),
        "verify_45k_s": median(each["verify_s"] for each in data),
        "verify_45k_peak_mb": max(each["peak_mb"] for each in data),
        "verify_45k_model_s": median(each["verify_s"] for each in model),
        "verify_45k_model_peak_mb": max(each["peak_mb"] for each in model),
        "data_numbers": data[0]["numbers"],
        "model_numbers": model[0]["numbers"],
        **_verifier_page.figures(),
    }
