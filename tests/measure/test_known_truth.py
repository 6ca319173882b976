"""Measuring the simulated engine, in a process of its own: the boundary is known beforehand."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.runs import HELD, ToyEngine, small_spec
from tokenwatt_site import validity
from tokenwatt_site.commands.measure import measure_and_sign
from tokenwatt_site.commands.simulate import Asked, plan
from tokenwatt_site.commands.verify import verify
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.goodput import decide, judge
from tokenwatt_site.measure import session
from tokenwatt_site.measure.session import Events
from tokenwatt_site.simulate.engine import Engine, Request
from tokenwatt_site.simulate.script import Script, named
from tokenwatt_site.simulate.server import SimulatedServer
from tokenwatt_site.simulate.virtual import play
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Trial, read_trials
from tokenwatt_site.trust.verify import ValidatedRun
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

TTFT = {"metric": "ttft", "quantile": 0.9, "limit_ms": 500.0}
TPOT = {"metric": "tpot", "quantile": 0.9, "limit_ms": 20.0}
CLOCKS_NS = 1000
"""What the kernel's clock may be off against ours, beside a process that reads both."""


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


def true_boundary_urps(spec: Spec, late_ns: int) -> int:
    """Return the rate up to which the engine keeps the SLO on repeat 1, each `late_ns` late."""
    realisation = realisation_of(spec)
    low, high = 1_000_000, round(spec.protocol.max_rate * 1e6)
    assert not keeps(spec, realisation, high, late_ns)
    if not keeps(spec, realisation, low, late_ns):
        return 0
    while high - low > 10_000:
        middle = (low + high) // 2
        if keeps(spec, realisation, middle, late_ns):
            low = middle
        else:
            high = middle
    return low


def realisation_of(spec: Spec) -> Realisation:
    protocol = spec.protocol
    return workload_of(spec.setup).realisation(
        1, lead_in=protocol.lead_in, scored=protocol.scored, tail=protocol.tail
    )


def keeps(spec: Spec, realisation: Realisation, rate_urps: int, late_ns: int) -> bool:
    """Tell whether the engine keeps the SLO at this rate: no client, no network."""
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
            first_ns=timelines[record.row].tokens_ns[0] + late_ns,
            last_ns=timelines[record.row].tokens_ns[-1] + late_ns,
            end_ns=timelines[record.row].tokens_ns[-1] + late_ns,
        )
        for record in ToyEngine().serve(realisation, rate_urps, repeat=1, trial=1)
    ]
    scored = [records[n] for n in realisation.scored_rows]
    return decide([judge(objective, scored) for objective in spec.setup.slo]) == "PASS"


class Pair(NamedTuple):
    """One request as the client and as the log have it, both on the client's clock in ns.

    `handed_ns` is when each event was handed to the kernel, and `done_ns` when the next thing was
    done after it: by then it had been sent.
    """

    trial: Trial
    record: RequestRecord
    received_ns: int
    handed_ns: list[int]
    done_ns: list[int]
    late_ns: int


def pairs(spec: Spec, valid: ValidatedRun, log: list[dict[str, Any]]) -> Iterator[Pair]:
    """Yield every whole answer of which the lengths tell which row asked for it."""
    origin_ns = int(str(valid.evidence.journal[0].data["origin_ns"]))
    for trial in read_trials(spec, valid.evidence):
        zero_ns = origin_ns + trial.epoch_ns
        end_ns = max(record.end_ns for record in trial.records)
        lengths = Counter((r.input_tokens, r.output_tokens) for r in trial.realisation.rows)
        told = {
            (line["prompt_tokens"], line["output_tokens"]): line
            for line in log
            if 0 <= line["received"][0] - zero_ns <= end_ns and line["ended"] == "complete"
        }
        for record in trial.records:
            asked = (record.prompt_asked, record.output_asked)
            if record.status is Status.OK and lengths[asked] == 1:
                line = told[asked]
                handed_ns = [at - zero_ns for at, _, _ in line["sent"]]
                assert (record.output_tokens, record.events) == (asked[1], len(handed_ns))
                done_ns = [*handed_ns[1:], line["ended_at"][0] - zero_ns]
                received_ns = line["received"][0] - zero_ns
                yield Pair(trial, record, received_ns, handed_ns, done_ns, line["late_ns"])


def assert_stamped_as_sent(found: list[Pair]) -> None:
    """Nothing arrived before it was sent; and it was stamped by when the engine did the next thing.

    The latter but for one in twenty: under load a kernel may send later than it was told.
    """
    on_time = 0
    for _, record, received_ns, handed_ns, done_ns, _ in found:
        first_ns, last_ns = record.first_ns or 0, record.last_ns or 0
        assert (record.sent_ns or 0) <= received_ns
        assert first_ns >= handed_ns[0] - CLOCKS_NS
        assert last_ns >= handed_ns[-1] - CLOCKS_NS
        on_time += (
            first_ns - record.uncertainty_ns <= done_ns[0] + CLOCKS_NS
            and last_ns <= done_ns[-1] + CLOCKS_NS
        )
    assert on_time >= 0.95 * len(found)


def lateness_ns(found: list[Pair]) -> int:
    """Return how late the engine's times may have become on their way into the records."""
    return (
        max(pair.received_ns - pair.record.due_ns for pair in found)
        + max(pair.late_ns for pair in found)
        + max((pair.record.first_ns or 0) - pair.handed_ns[0] for pair in found)
    )


def test_a_measured_boundary_encloses_the_engines_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(tmp_path / "keys"))
    # These have tests of their own; how late a busy machine was is counted below.
    monkeypatch.setattr(session, "self_test", lambda *_: HELD)
    monkeypatch.setattr(validity, "LIMIT_SHARE", Fraction(1, 2))
    said: list[str] = []
    truth = tmp_path / "truth.jsonl"
    with simulated(truth) as url:
        spec = small_spec(
            endpoint__start="attach",
            endpoint__url=url,
            endpoint__model="llama-3.1-8b",
            setup__engine__name="tokenwatt-simulated",
            setup__engine__version="simulated",
            setup__slo=[TTFT, TPOT],
            protocol__scored=30,
            protocol__start_rate=38.0,
            protocol__max_rate=256.0,
        )
        path, run = measure_and_sign(spec, tmp_path / "work", Events(lambda _: None, said.append))
    valid = verify(path)
    assert valid.run.simulated
    log = [json.loads(line) for line in truth.read_text("utf-8").splitlines()]
    found = list(pairs(spec, valid, log))
    trials = Counter(t.verdict for t in run.claims.trials)
    assert len({pair.record.row for pair in found}) > spec.protocol.scored / 2
    assert len(found) > trials["PASS"] * spec.protocol.scored / 2
    assert_stamped_as_sent(found)

    # The limit on the first token decides: the other alone is kept at any rate.
    highest_urps = round(spec.protocol.max_rate * 1e6)
    apart = spec.model_copy(
        update={"setup": spec.setup.model_copy(update={"slo": spec.setup.slo[1:]})}
    )
    assert keeps(apart, realisation_of(spec), highest_urps, 0)
    failing = [t for t in run.claims.trials if t.verdict == "FAIL"]
    assert not any(t.objectives[0].passed for t in failing)

    (repeat,) = run.claims.repeats
    passed, failed = repeat.highest_pass_urps, repeat.lowest_fail_urps
    assert passed is not None
    assert failed is not None
    assert failed <= passed * spec.protocol.bracket_ratio
    # 2%: arrivals that shift a little may meet other chunks of prompts in their steps.
    assert passed <= true_boundary_urps(spec, 0) * 1.02, said
    assert true_boundary_urps(spec, lateness_ns(found)) <= failed * 1.02, said


def test_a_chat_template_is_measured_and_its_cached_tokens_are_held_against_no_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(tmp_path / "keys"))
    monkeypatch.setattr(session, "self_test", lambda *_: HELD)
    script = named("template:40", Script(model="llama-3.1-8b"))
    with SimulatedServer(script, engine()) as server:
        spec = small_spec(
            endpoint__start="attach",
            endpoint__url=server.url,
            endpoint__api="chat",
            endpoint__model="llama-3.1-8b",
            setup__engine__name="tokenwatt-simulated",
            setup__engine__version="simulated",
            setup__slo=[TTFT | {"limit_ms": 60_000.0}],
            protocol__start_rate=40.0,
            protocol__max_rate=40.0,
        )
        path, run = measure_and_sign(spec, tmp_path / "work", Events(lambda _: None, print))
    assert [(t.verdict, t.reason) for t in run.claims.trials] == [("PASS", None)]
    (trial,) = read_trials(spec, verify(path).evidence)
    assert trial.chat_overhead == 40
    # Whole blocks of 16 tokens; preflight has asked already.
    assert {record.cached_tokens for record in trial.records if record.status is Status.OK} == {32}
