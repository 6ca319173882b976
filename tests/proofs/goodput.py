"""Whether a long-run boundary holds on the real engine: `make proof B=goodput`, some two hours.

1. Five repeats of specs/goodput-proof.spec.yaml, in full mode, give the estimate.
2. 0.93x and 1.10x of it are offered, 2,000 requests each, in blocks of 500 that take turns (low,
   high, high, low, ...), so that a machine that drifts does so in both. Each block is a launch of
   its own, and its rows are no rows that the model was fitted to.
3. The fitted model plays the same rows at the same rates, and at the ends of the band for one new
   launch. What it says is held against what missed.

What is done is kept in build/proof/goodput and not done again. Nothing else should run meanwhile:
a trial whose client lacked its processor is INVALID, and costs its time. Written: goodput.json
there, as site_src/data/goodput-proof.json has it.
"""

from __future__ import annotations

import json
import math
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenwatt_site.commands.verify import verify
from tokenwatt_site.engine_model.boundary import Edges
from tokenwatt_site.engine_model.load import Load, counts, play
from tokenwatt_site.engine_model.long_run import long_load
from tokenwatt_site.engine_model.model import EngineModel
from tokenwatt_site.goodput import judge
from tokenwatt_site.measure.endpoint import answers
from tokenwatt_site.pages import goodput_proof as document
from tokenwatt_site.pages.goodput_proof import Proof
from tokenwatt_site.spec import Objective, Spec, load_spec
from tokenwatt_site.trials import read_trials
from tokenwatt_site.trust.verify import ValidatedRun
from tokenwatt_site.windows import windows_of
from tokenwatt_site.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "specs" / "goodput-proof.spec.yaml"
FOLDER = ROOT / "build" / "proof" / "goodput"
BLOCKS = 4
SCORED = 500
SHARES = {"low": 0.93, "high": 1.10}
ORDER = ("low", "high", "high", "low") * (BLOCKS // 2)
NEVER = 0.01
"""Quantile of the checks' objectives: no trial is stopped before all its requests are counted."""
MOST_CALLS = 3 * len(ORDER)
READY_S = 60


@dataclass(frozen=True, slots=True)
class Estimate:
    """The long-run boundary that is put to the test, and the model that it came from.

    `low` and `high` are where one further launch falls with 95%. `corrected`: the model was
    accepted; else the rate is the measured one, and the model was refused for `text`.
    """

    rate: float
    low: float
    high: float
    corrected: bool
    text: str
    model: EngineModel
    model_rate: float
    slo: tuple[Objective, ...]
    run: ValidatedRun

    def model_urps(self, rate: float, boundary: float) -> int:
        """Return the rate at which the model is as far from its boundary as an engine would be."""
        return round(1e6 * self.model_rate * rate / boundary)


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    estimate = estimate_of(_measured_estimate())
    _say(f"estimate: {estimate.rate:.3f} requests/s ({estimate.text})")
    runs = _measured_checks(estimate)
    told = report(estimate, runs)
    path = FOLDER / "goodput.json"
    path.write_text(json.dumps(told.to_json(), indent=1) + "\n")
    for line in lines(told):
        _say(line)
    _say(str(path.relative_to(ROOT)))
    return 0


def estimate_of(run: ValidatedRun) -> Estimate:
    """Take the boundary that a run claims, corrected where its model was accepted."""
    claim, fit = run.claims.long_run, run.evidence.model_fit
    if fit is None or claim.pass_urps is None or claim.fail_urps is None:
        raise SystemExit(f"no engine model was fitted: {claim.text}")
    corrected = claim.outcome == "accepted"
    metric = run.claims.metric("long_run_rate" if corrected else "boundary_rate")
    if metric.value is None or metric.new_launch_low is None or metric.new_launch_high is None:
        raise SystemExit(f"the run has no boundary to test: {metric.reason}")
    edges = Edges(claim.pass_urps, claim.fail_urps)
    return Estimate(
        rate=metric.value,
        low=metric.new_launch_low,
        high=metric.new_launch_high,
        corrected=corrected,
        text=claim.text,
        model=EngineModel(fit.fits[0].family, fit.fits[0].prices),
        model_rate=edges.boundary_urps / 1e6,
        slo=run.run.spec.setup.slo,
        run=run,
    )


def check_spec(spec: Spec, name: str, rate: float, url: str) -> dict[str, Any]:
    """Return the spec of one rate: the same engine, other rows, and no early stop."""
    setup = spec.setup
    workload = Workload("short-mix-check-v1", 1, setup.input_tokens, setup.output_tokens)
    told = spec.to_json()
    told["title"] = f"{spec.title}: {SHARES[name]:g} of the boundary"
    told["label"] = f"goodput-proof-{name}"
    told["note"] = (
        "A test of the method: what misses at this rate is held against what was predicted. Its"
        " objectives have a low quantile, so that every request is counted; nothing is searched."
    )
    told["role"] = "candidate"
    told["setup"]["workload"] = {"name": workload.name, "version": 1, "hash": workload.hash}
    told["setup"]["slo"] = [{**o.to_json(), "quantile": NEVER} for o in setup.slo]
    told["endpoint"] = {
        "start": "attach",
        "url": url,
        **{key: told["endpoint"][key] for key in ("api", "model", "vocabulary")},
    }
    told["protocol"] = {
        "mode": "demo",
        "repeats": BLOCKS,
        "lead_in": spec.protocol.lead_in,
        "scored": SCORED,
        "tail": spec.protocol.tail,
        "start_rate": rate,
        "max_rate": rate,
        "request_timeout_s": spec.protocol.request_timeout_s,
    }
    return told


def report(estimate: Estimate, runs: Mapping[str, ValidatedRun]) -> Proof:
    """Hold what missed against what the model says of the same rows."""
    return Proof(
        name="goodput-proof",
        machine=estimate.run.run.conditions.platform,
        engine=estimate.run.run.spec.setup.engine.build,
        estimate=document.Estimate(
            run=estimate.run.run_id,
            rate=estimate.rate,
            new_launch=(estimate.low, estimate.high),
            corrected=estimate.corrected,
            text=estimate.text,
        ),
        checks=tuple(_check(estimate, name, run) for name, run in runs.items()),
    )


def lines(told: Proof) -> Iterator[str]:
    """Say the result, a line for each objective at each rate."""
    for check in told.checks:
        for row in check.objectives:
            low, high = row.band_percent
            yield (
                f"{check.share:g}x, {check.rate:.3f} requests/s, {row.objective}:"
                f" {row.misses} of {row.n} miss ({row.percent:.1f}%); the model says"
                f" {row.model_percent:.1f}% ({low:.1f} to {high:.1f}) of these rows,"
                f" {row.long_run_percent:.1f}% in the long run"
            )


def _check(estimate: Estimate, name: str, run: ValidatedRun) -> document.Check:
    spec = run.run.spec
    rate = spec.protocol.start_rate
    valid = {claim.trial for claim in run.claims.trials if claim.verdict != "INVALID"}
    trials = {
        trial.repeat: trial
        for trial in read_trials(spec, run.evidence)
        if trial.number in valid and not trial.abandoned
    }
    loads = {number: Load.of(trial.realisation) for number, trial in trials.items()}
    ahead = long_load(windows_of(estimate.run.run.spec))
    assert ahead is not None
    seen = {
        number: [judge(objective, trial.scored) for objective in estimate.slo]
        for number, trial in trials.items()
    }
    # The model at the estimate, and where the boundary of one launch may lie: the lower, the worse.
    at = {b: estimate.model_urps(rate, b) for b in (estimate.rate, estimate.high, estimate.low)}
    played = {
        (b, number): counts(estimate.slo, play(estimate.model, load, urps), load.n_out, load.scored)
        for b, urps in at.items()
        for number, load in loads.items()
    }
    long = counts(
        estimate.slo,
        play(estimate.model, ahead, at[estimate.rate]),
        ahead.n_out,
        ahead.scored,
    )
    rows = []
    for i, objective in enumerate(estimate.slo):
        n = sum(judged[i].n for judged in seen.values())
        misses = sum(judged[i].misses for judged in seen.values())
        percent = {
            b: 100
            * sum(played[b, number][i].misses for number in loads)
            / sum(played[b, number][i].n for number in loads)
            for b in at
        }
        rows.append(
            document.Objective(
                objective=objective.label,
                allowed_percent=round(100 * (1 - objective.quantile), 9),
                misses=misses,
                n=n,
                percent=100 * misses / n,
                model_percent=percent[estimate.rate],
                band_percent=(percent[estimate.high], percent[estimate.low]),
                long_run_percent=100 * long[i].misses / long[i].n,
                blocks=tuple(
                    document.Block(
                        misses=seen[number][i].misses,
                        n=seen[number][i].n,
                        model_misses=played[estimate.rate, number][i].misses,
                    )
                    for number in sorted(seen)
                ),
            )
        )
    return document.Check(share=SHARES[name], rate=rate, run=run.run_id, objectives=tuple(rows))


def _measured_estimate() -> ValidatedRun:
    path = FOLDER / "estimate.json"
    if not path.exists():
        begun = _begun("goodput-proof-2")
        shutil.copy(SPEC, FOLDER)
        door = ["--resume", str(begun)] if begun else ["--spec", SPEC.name]
        if code := _measure(*door, "--out", path.name).returncode:
            raise SystemExit(f"measure ended with {code}; call again to go on")
    return verify(path)


def _measured_checks(estimate: Estimate) -> dict[str, ValidatedRun]:
    spec = load_spec(SPEC)
    for name, share in SHARES.items():
        written = FOLDER / f"check-{name}.json"
        if not written.exists():
            url = f"http://127.0.0.1:{_free_port()}"
            told = check_spec(spec, name, math.floor(1e6 * share * estimate.rate) / 1e6, url)
            written.write_text(json.dumps({"spec": told}, indent=1) + "\n")
    for name in ORDER * (MOST_CALLS // len(ORDER)):
        if not (FOLDER / f"{name}.json").exists():
            _block(name)
        if all((FOLDER / f"{other}.json").exists() for other in SHARES):
            break
    return {name: verify(FOLDER / f"{name}.json") for name in SHARES}


def _block(name: str) -> None:
    """Offer one block, or go on with one that was broken off, on an engine of its own."""
    written = FOLDER / f"check-{name}.json"
    spec = json.loads(written.read_text())["spec"]
    begun = _begun(f"goodput-proof-{name}-")
    door = ["--resume", str(begun)] if begun else ["--spec", written.name]
    with _engine(spec["endpoint"]["url"], spec["setup"]["engine"]["argv"]):
        # 3: the engine has to be started again for the next block, which is what we do.
        code = _measure(*door, "--out", f"{name}.json").returncode
    if code not in {0, 3, 5}:
        raise SystemExit(f"measure ended with {code}; call again to go on")


def _begun(prefix: str) -> Path | None:
    found = sorted((FOLDER / ".tokenwatt").glob(f"{prefix}*"))
    return found[-1].relative_to(FOLDER) if found else None


def _measure(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", "from tokenwatt_site.cli import main; main()", "measure"]
    return subprocess.run([*command, *arguments], cwd=FOLDER, check=False)


@contextmanager
def _engine(url: str, argv: Sequence[str]) -> Iterator[None]:
    port = url.rpartition(":")[2]
    words = [part.replace("{python}", sys.executable).replace("{port}", port) for part in argv]
    with (FOLDER / "engine.log").open("ab") as log:
        engine = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _wait(url, engine)
        yield
    finally:
        engine.terminate()
        engine.wait(30)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _wait(url: str, engine: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + READY_S
    while engine.poll() is None and time.monotonic() < end:
        if answers(url):
            return
        time.sleep(0.1)
    raise SystemExit(f"the engine does not answer; its log: {FOLDER / 'engine.log'}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
