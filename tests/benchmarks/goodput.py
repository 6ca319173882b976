"""How right the long-run boundary is, against engines of which it is known. In virtual time.

One measurement is a whole one: three launches, each searched as `measure` does, a model fitted,
accepted or refused, and corrected, as `derive` does. The truth is the boundary of the same engine,
with its noise, on the long run. Engines are written apart from the model (tests/support/virtual.py)
and drawn anew for each measurement: their prices, their luck, and launches of 1% sd.

Families: those in `FITTED` are the model's own and richer ones near it; those in `WRONG` are not,
on purpose, and should be refused. Figures, for each family:

- `corrected_abs_bias_pct`, `corrected_spread_pct`: mean of ln(corrected / truth), and the standard
  deviation of single repeats within a measurement and between them; of accepted measurements.
- `coverage_pct`: how often the 95% interval holds the truth; `coverage_wilson_high_pct` its upper
  end. `refused_pct`: how often the model was refused.
- `window_abs_bias_pct`, `window_spread_pct`: the search on one window of 611 requests after 300,
  from empty, drawn at random.
- `engine_time_ratio`: engine time of plain windows of 20,000 requests, as many as would have the
  rms error of ours, over that of ours.

`N=1000` asks for that many measurements a family, 60 without; what is done is kept in
build/bench/goodput.jsonl and not done again, as long as what decides is the same. `JOBS` processes
work at it, as many as there are processors without.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import random
import statistics
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.runs import small_spec
from tests.support.virtual import Engine, Measurement
from tokenwatt_site.engine_model.load import Load
from tokenwatt_site.engine_model.long_run import long_load
from tokenwatt_site.spec import Spec
from tokenwatt_site.windows import Windows, windows_of
from tokenwatt_site.workload import NAMED

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "bench" / "goodput.jsonl"
MEASUREMENTS = 60
REPEATS = 3
LAUNCH_SD = 0.01
PRICE_RANGE = 0.2
LONG_WINDOW = 20_000
LONG_LEAD = 2_000
LONG_TRIALS = 7
"""Of a search without a model, from a pilot to a bracket of 2%."""

DECISIVE = (
    *("draws.py", "goodput.py", "statistics.py", "windows.py", "workload.py"),
    *("claims/long_run.py", "claims/order.py", "measure/fitting.py", "measure/search.py"),
)
"""Of the package, beside engine model and windows: what a change of makes kept figures old."""

FITTED: Mapping[str, Engine] = {
    "chunked": Engine(0.008, 0.00028, 1.2e-5),
    "context": Engine(0.008, 0.00012, 1.2e-5, 1.2e-7),
    "budget": Engine(0.008, 0.00028, 1.2e-5, budget=1024),
    "prefill_first": Engine(0.008, 0.0002, 1.5e-5, prefill_first=True),
    "cap": Engine(0.010, 0.0002, 1.2e-5, cap=64),
    "preemption": Engine(0.008, 0.0002, 1.2e-5, kv=90_000),
    "power": Engine(0.008, 0.00022, 1.2e-5, power=1.05, stall=0.001),
    "stalls": Engine(0.008, 0.00028, 1.2e-5, stall=0.005),
    "replicas": Engine(0.012, 0.0005, 2.2e-5, replicas=2),
}
WRONG: Mapping[str, Engine] = {
    "pauses": Engine(0.008, 0.00028, 1.2e-5, pause_every_s=60, pause_s=1.5),
    "drift": Engine(0.008, 0.00028, 1.2e-5, drift=0.05),
    "shortest_first": Engine(0.008, 0.00022, 3.2e-5, cap=48, shortest_first=True),
    "steep": Engine(0.010, 0.00006, 1.2e-5, power=1.35),
}
FAMILIES = {**FITTED, **WRONG}
SLO = (
    {"metric": "ttft", "quantile": 0.99, "limit_ms": 2000.0},
    {"metric": "tpot", "quantile": 0.99, "limit_ms": 50.0},
)


@cache
def spec_of(replicas: int) -> Spec:
    chat = NAMED["chat-mix-v1"]
    return small_spec(
        setup__slo=list(SLO),
        setup__workload={"name": chat.name, "version": chat.version, "hash": chat.hash},
        setup__input_tokens=chat.input_tokens.to_json(),
        setup__output_tokens=chat.output_tokens.to_json(),
        setup__parallelism__replicas=replicas,
        protocol={
            "mode": "full",
            "repeats": REPEATS,
            "start_rate": 2.5,
            "request_timeout_s": 600.0,
        },
    )


@cache
def windows() -> Windows:
    return windows_of(spec_of(1))


def engine_of(family: str, rng: random.Random) -> Engine:
    """Draw an engine of a family: each price within a range of its own."""
    known = FAMILIES[family]
    prices = {
        name: getattr(known, name) * math.exp(rng.uniform(-PRICE_RANGE, PRICE_RANGE))
        for name in ("base", "sequence", "prompt", "context")
    }
    return replace(known, **prices)


def measured(family: str, number: int) -> dict[str, Any]:
    """Do one measurement, and the same search on plain windows."""
    rng = random.Random(f"{family} {number}")
    engine = engine_of(family, rng)
    paces = [math.exp(rng.gauss(0, LAUNCH_SD)) for _ in range(REPEATS)]
    seed = rng.randrange(1 << 20)
    spec, load = spec_of(engine.replicas), long_load(windows())
    assert load is not None
    # Of an engine that drifts it is what the measurement began with: days later it is another one.
    steady = replace(engine, drift=0.0)
    # A tenth of the long run tells where to begin to look, at a tenth of the cost.
    near = steady.boundary_urps(_part(load, 0), spec.setup.slo, seed, 4_500_000)
    truth = steady.boundary_urps(load, spec.setup.slo, seed, near)
    run = Measurement(spec, windows(), engine, paces, seed)
    found = run.run()
    rates = {metric.key: metric for metric in found.metrics}["long_run_rate"]
    repeats = found.claim.repeats
    corrected = [
        math.log(r.measured_urps / truth)
        + math.log(math.sqrt(found.claim.pass_urps * found.claim.fail_urps) / r.model_urps)
        for r in repeats
        if found.claim.pass_urps and found.claim.fail_urps
    ]
    plain = Load.of(
        windows().workload.realisation(1000 + number, lead_in=300, scored=611, tail=300)
    )
    one = engine.boundary_urps(plain, spec.setup.slo, seed + 1, truth, pace=paces[0])
    long_s, long_errors = 0.0, []
    for repeat, pace in enumerate(paces):
        part = _part(load, (number * REPEATS + repeat) % 9)
        found_urps = engine.boundary_urps(part, spec.setup.slo, seed + 2, truth, pace=pace)
        long_errors.append(math.log(found_urps / truth))
        long_s += LONG_TRIALS * len(part.n_in) / (found_urps / 1e6)
    return {
        "family": family,
        "number": number,
        "truth_urps": truth,
        "outcome": found.claim.outcome,
        "text": found.claim.text,
        "rms_percent": found.claim.rms_percent,
        "drift_percent": found.claim.drift_percent,
        "model": found.claim.family,
        "measured": [math.log(d.boundary_urps / truth) for d in run.done if d.boundary_urps],
        "corrected": corrected,
        "inside": (
            None
            if rates.value is None or rates.low is None or rates.high is None
            else rates.low <= truth / 1e6 <= rates.high
        ),
        "trials": [sum(t.repeat == r for t in run.trials) for r in range(1, REPEATS + 1)],
        "engine_s": run.engine_s,
        "window": math.log(one / truth),
        "long": long_errors,
        "long_s": long_s,
    }


def _part(load: Load, number: int) -> Load:
    """Return a plain window of the long run, from empty, with a lead and a tail of its own."""
    begin = number * (LONG_WINDOW + LONG_LEAD)
    rows = slice(begin, begin + LONG_LEAD + LONG_WINDOW + LONG_LEAD)
    before = load.elapsed[begin - 1] if begin else 0
    return Load(
        np.ascontiguousarray(load.elapsed[rows] - before),
        np.ascontiguousarray(load.n_in[rows]),
        np.ascontiguousarray(load.n_out[rows]),
        slice(LONG_LEAD, LONG_LEAD + LONG_WINDOW),
    )


# All measurements, those that are kept among them.


def code_digest() -> str:
    """Return a digest of what the figures come from."""
    package = ROOT / "tokenwatt_site"
    files = [
        *sorted((package / "engine_model").glob("*.py")),
        *sorted((package / "chosen").glob("*.json")),
        *(package / name for name in DECISIVE),
        ROOT / "tests" / "support" / "virtual.py",
        Path(__file__),
    ]
    found = hashlib.sha256()
    for file in files:
        found.update(file.read_bytes())
    return found.hexdigest()[:16]


def kept(digest: str) -> Iterator[dict[str, Any]]:
    if KEPT.exists():
        for line in KEPT.read_text().splitlines():
            value = json.loads(line)
            if value["code"] == digest:
                yield value


def all_measured(wanted: int, jobs: int) -> list[dict[str, Any]]:
    """Return `wanted` measurements of each family; what is missing is done and kept."""
    digest = code_digest()
    done = {(m["family"], m["number"]): m for m in kept(digest)}
    missing = [(f, n) for n in range(wanted) for f in FAMILIES if (f, n) not in done]
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    # A fit's matrices have four columns: threads would only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with KEPT.open("a") as file, ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for ended in as_completed([pool.submit(measured, *key) for key in missing]):
            value = ended.result() | {"code": digest}
            done[value["family"], value["number"]] = value
            file.write(json.dumps(value) + "\n")
            file.flush()
    return [m for key, m in sorted(done.items()) if key[1] < wanted]


def wilson_high(hits: int, n: int) -> float:
    """Return the upper end of the 95% Wilson interval of a share, in percent."""
    z = 1.96
    share = hits / n
    root = math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return 100 * (share + z * z / (2 * n) + z * root) / (1 + z * z / n)


def mean_squares(values: list[float]) -> float:
    return statistics.fmean(value * value for value in values)


def figures_of(all_of: list[dict[str, Any]]) -> dict[str, float | str]:
    """Sum up: per family, and over those that should be accepted."""
    figures: dict[str, float | str] = {}
    ratios, inside = [], []
    for family in FAMILIES:
        of = [m for m in all_of if m["family"] == family]
        if not of:
            continue
        accepted = [m for m in of if m["outcome"] == "accepted"]
        told: dict[str, float | str] = {
            "measurements": len(of),
            "refused_pct": 100 * (1 - len(accepted) / len(of)),
            "measured_bias_pct": 100 * statistics.fmean(x for m in of for x in m["measured"]),
            "window_abs_bias_pct": 100 * abs(statistics.fmean(m["window"] for m in of)),
            "window_spread_pct": 100 * statistics.pstdev(m["window"] for m in of),
            "trials": statistics.fmean(sum(m["trials"]) for m in of),
        }
        if accepted:
            corrected = [x for m in accepted for x in m["corrected"]]
            bias = statistics.fmean(corrected)
            hits = sum(m["inside"] for m in accepted)
            told |= {
                "corrected_abs_bias_pct": 100 * abs(bias),
                "corrected_bias_pct": 100 * bias,
                "corrected_spread_pct": 100 * statistics.pstdev(corrected),
                "coverage_pct": 100 * hits / len(accepted),
                "coverage_wilson_high_pct": wilson_high(hits, len(accepted)),
            }
            ours = mean_squares([statistics.fmean(m["corrected"]) for m in accepted])
            plain = mean_squares([statistics.fmean(m["long"]) for m in accepted])
            time = statistics.fmean(m["long_s"] / m["engine_s"] for m in accepted)
            told["engine_time_ratio"] = time * plain / ours
            if family in FITTED:
                inside += [m["inside"] for m in accepted]
                ratios.append(time * plain / ours)
        figures |= {f"{name}_{family}": value for name, value in told.items()}
    if inside:
        figures["coverage_pct"] = 100 * sum(inside) / len(inside)
        figures["coverage_wilson_high_pct"] = wilson_high(sum(inside), len(inside))
        figures["engine_time_ratio"] = statistics.median(ratios)
    wrong = [m for m in all_of if m["family"] in WRONG]
    if wrong:
        figures["wrong_refused_pct"] = 100 * statistics.fmean(
            m["outcome"] != "accepted" for m in wrong
        )
    return figures


def run() -> dict[str, float | str]:
    wanted = int(os.environ.get("N", MEASUREMENTS))
    jobs = int(os.environ.get("JOBS", os.cpu_count() or 1))
    return figures_of(all_measured(wanted, jobs))
