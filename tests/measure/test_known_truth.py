"""Measuring the simulated engine, in a process of its own: the boundary is known beforehand."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import HELD, ToyEngine, small_spec
from tokenwatt_site.commands.measure import measure_and_sign
from tokenwatt_site.commands.simulate import Asked, plan
from tokenwatt_site.commands.verify import verify
from tokenwatt_site.goodput import decide, judge
from tokenwatt_site.measure import session
from tokenwatt_site.measure.session import Events
from tokenwatt_site.simulate.engine import Engine, Request
from tokenwatt_site.simulate.virtual import play
from tokenwatt_site.spec import Spec
from tokenwatt_site.workload import Realisation, workload_of

MAIN = "from tokenwatt_site.cli import main; main()"
OPTIONS: dict[str, Any] = {
    "accelerator": "NVIDIA H200",
    "model": "llama-3.1-8b",
    "count": 1,
    "max_batch": 2,
    "token_budget": 512,
    "seed": 5,
}


def engine() -> Engine:
    rest = dict.fromkeys(("served_name", "kv_tokens", "memory_gib", "max_model_len"))
    simulation = plan(Asked(**OPTIONS, **rest, script=""))
    return Engine(simulation.roofline, simulation.limits)


@contextmanager
def simulated(log: Path) -> Iterator[str]:
    """Run the command with the same options; gives its URL."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    command = [sys.executable, "-c", MAIN, "simulate", "--port=0", f"--log={log}", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def true_boundary_urps(spec: Spec) -> int:
    """Return the rate up to which the engine keeps the SLO on the realisation of repeat 1."""
    protocol = spec.protocol
    realisation = workload_of(spec.setup).realisation(
        1, lead_in=protocol.lead_in, scored=protocol.scored, tail=protocol.tail
    )
    low, high = 1_000_000, round(protocol.max_rate * 1e6)
    assert (keeps(spec, realisation, low), keeps(spec, realisation, high)) == (True, False)
    while high - low > 10_000:
        middle = (low + high) // 2
        low, high = (middle, high) if keeps(spec, realisation, middle) else (low, middle)
    return low


def keeps(spec: Spec, realisation: Realisation, rate_urps: int) -> bool:
    """Tell whether the engine keeps the SLO at this rate: no client, no network, never late."""
    due_ns = realisation.due_ns(rate_urps)
    asked = [
        Request(n, (n + 1,) * row.input_tokens, row.output_tokens, at)
        for n, (row, at) in enumerate(zip(realisation.rows, due_ns, strict=True))
    ]
    timelines = play(engine(), asked)
    # Only the times are the engine's: the records are whole ones of another.
    records = [
        replace(
            record,
            sent_ns=record.due_ns,
            first_ns=timelines[record.row].tokens_ns[0],
            last_ns=timelines[record.row].tokens_ns[-1],
            end_ns=timelines[record.row].tokens_ns[-1],
        )
        for record in ToyEngine().serve(realisation, rate_urps, repeat=1, trial=1)
    ]
    scored = [records[n] for n in realisation.scored_rows]
    return decide([judge(objective, scored) for objective in spec.setup.slo]) == "PASS"


def test_a_measured_boundary_encloses_the_engines_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(tmp_path / "keys"))
    monkeypatch.setattr(session, "self_test", lambda *_: HELD)  # it has tests of its own
    said: list[str] = []
    log = tmp_path / "truth.jsonl"
    with simulated(log) as url:
        spec = small_spec(
            endpoint__start="attach",
            endpoint__url=url,
            endpoint__model="llama-3.1-8b",
            setup__engine__name="tokenwatt-simulated",
            setup__engine__version="simulated",
            # The client's own limits are shares of the TTFT limit: these hold on a busy machine.
            setup__slo=[
                {"metric": "ttft", "quantile": 0.9, "limit_ms": 60_000.0},
                {"metric": "e2e", "quantile": 0.9, "limit_ms": 620.0},
            ],
            protocol__scored=40,
            protocol__start_rate=32.0,
            protocol__max_rate=256.0,
        )
        path, run = measure_and_sign(spec, tmp_path / "work", Events(lambda _: None, said.append))
    assert run.simulated
    assert verify(path).run.simulated
    (repeat,) = run.claims.repeats
    passed, failed = repeat.highest_pass_urps, repeat.lowest_fail_urps
    assert passed is not None
    assert failed is not None
    assert failed <= passed * spec.protocol.bracket_ratio
    # 5%: what a client, two processes and the loopback may move.
    assert passed / 1.05 <= true_boundary_urps(spec) <= failed * 1.05, said
    truth = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    served = [line for line in truth if line["ended"] == "complete"]
    scored = spec.protocol.lead_in + spec.protocol.scored
    assert len(served) >= scored * sum(t.verdict == "PASS" for t in run.claims.trials)
    assert all(sum(n for _, _, n in line["sent"]) == line["output_tokens"] for line in served)
