"""What a measurement will take, before anything runs. Pure: no engine, no file, no clock.

The search is the real one, driven against a fictitious engine that passes up to a given rate: once
with predictions that are right, and with ones that are off. So the answer is a range. What no
search tells, such as how long an engine takes to start, is assumed, and `Plan.assumed` says it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tokenwatt_site.accuracy_spec import NO_TASK
from tokenwatt_site.evidence.under_load import SAMPLES
from tokenwatt_site.measure.rehearsal import (
    CASES,
    NOTHING,
    OFF_SHARE,
    UNLIKE_SHARE,
    PlannedTrial,
    Span,
    over,
    pace_s,
    rehearse,
    total,
)
from tokenwatt_site.measure.settling import ALIKE_BURSTS, MOST_BURSTS, MOST_TOKENS
from tokenwatt_site.spec import Spec
from tokenwatt_site.windows import Windows

LAUNCH_S, LAUNCH_CPU_S = 240.0, 10.0
ANSWER_TOKENS = 128
"""Of an answer to a question: those of gsm8k have 100 on average."""

FIT_S = 120.0
RECORD_BYTES, STORED_BYTES = 110, 40
"""Of a request: a line of the work folder, and its share of the compressed evidence (DESIGN 8)."""

ANSWER_BYTES = 1_000
TRIALS = "trials"
"""What the part is called in which the trials are."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a repeat: what, how often, how long all of it takes together."""

    what: str
    times: Span
    seconds: Span


@dataclass(frozen=True, slots=True)
class PlannedRepeat:
    """One repeat.

    Attributes:
        number: from 1.
        trials: those that a right prediction leads to, in order.
        parts: of its time; empty where it is done already.
    """

    number: int
    trials: tuple[PlannedTrial, ...]
    parts: tuple[Part, ...]

    @property
    def seconds(self) -> Span:
        return total(part.seconds for part in self.parts)

    @property
    def ends_urps(self) -> int | None:
        """The rate at which its search ends without a boundary; None: it finds one."""
        verdicts = {trial.passes for trial in self.trials}
        return None if len(verdicts) == 2 else self.trials[-1].rate_urps


@dataclass(frozen=True, slots=True)
class Plan:
    """What a measurement takes.

    Attributes:
        rate_urps: the boundary that is assumed, in 1e-6 requests/s.
        repeats: all of them, those that are done without parts.
        fit: of the engine model, after the last trial of full mode; not on the engine.
        boards: that are held meanwhile; 0 on a CPU.
        work_bytes: in the work folder.
        published_bytes: beside the run file.
        assumed: what the times rest on, in words.
    """

    rate_urps: int
    repeats: tuple[PlannedRepeat, ...]
    fit: Span
    boards: int
    work_bytes: int
    published_bytes: int
    assumed: tuple[str, ...]

    @property
    def seconds(self) -> Span:
        return total(repeat.seconds for repeat in self.repeats).plus(self.fit)

    @property
    def gpu_hours(self) -> Span | None:
        """Boards x hours; None: there are no boards."""
        return self.seconds.times(self.boards / 3600) if self.boards else None

    def beyond(self, budget_s: float) -> tuple[tuple[int, bool], ...]:
        """Return the repeats that a budget does not reach, and of each whether that is certain."""
        spent, found = NOTHING, []
        for repeat in self.repeats:
            spent = spent.plus(repeat.seconds)
            if repeat.parts and spent.high > budget_s:
                found.append((repeat.number, spent.low > budget_s))
        return tuple(found)


def plan(
    spec: Spec, windows: Windows, *, rate_urps: int | None = None, done: Collection[int] = ()
) -> Plan:
    """Plan the measurement of a spec.

    Args:
        spec: what would be measured.
        windows: of the spec.
        rate_urps: where the boundary is thought to be, in 1e-6 requests/s; None: at start_rate.
        done: repeats that were measured before, and are kept.
    """
    rate = rate_urps or spec.protocol.start_urps
    cases = [rehearse(spec, windows, rate, case) for case in CASES]
    mean_answer = windows.realisation(1, windows.band_at(rate)).mean_output_tokens
    repeats = tuple(
        PlannedRepeat(
            number,
            cases[0][number - 1],
            ()
            if number in done
            else _parts(spec, number, [case[number - 1] for case in cases], mean_answer),
        )
        for number in range(1, spec.protocol.repeats + 1)
    )
    rows = sum(t.rows for r in repeats if r.parts for t in r.trials)
    answers = ANSWER_BYTES * sum(
        _questions(spec) for r in repeats if r.number <= spec.accuracy.repeats
    )
    return Plan(
        rate_urps=rate,
        repeats=repeats,
        fit=Span(10, FIT_S) if spec.protocol.mode == "full" else NOTHING,
        boards=0 if spec.setup.is_cpu else spec.setup.accelerator.count,
        work_bytes=rows * RECORD_BYTES + answers,
        published_bytes=rows * STORED_BYTES + answers // 4,
        assumed=tuple(_assumed(spec)),
    )


def _parts(
    spec: Spec, number: int, cases: Sequence[tuple[PlannedTrial, ...]], mean_answer: float
) -> tuple[Part, ...]:
    """Return the parts of one repeat; `cases` are its trials as predictions are right or off."""
    gate, plan = spec.setup.accuracy_gate, spec.accuracy
    parts = [
        _start(spec, number),
        _once("preflight, test of the client", Span(10, 70)),
        _warm_up(spec),
        Part(
            TRIALS,
            over(Span(len(trials), len(trials)) for trials in cases),
            over(total(trial.seconds for trial in trials) for trials in cases),
        ),
    ]
    if spec.setup.power.sensor != "none":
        parts.append(Part("power of the idle engine", Span(2, 2), Span(26, 86)))
    if number <= plan.repeats:
        asked = 2 * SAMPLES[spec.protocol.mode]
        parts.append(_asked("answers, asked again alone", asked, mean_answer, spec))
        if questions := _questions(spec):
            each = _answer_tokens(spec) / plan.concurrency
            parts.append(_asked(f"questions of {gate.label}", questions, each, spec))
    return tuple(parts)


def _start(spec: Spec, number: int) -> Part:
    if spec.endpoint.start == "launch":
        return _once("launch of the engine", _launch(spec))
    if number == 1:
        return _once("the engine runs already", NOTHING)
    by = "restart" if spec.endpoint.restart is not None else "restart by hand, then --resume"
    return _once(by, _launch(spec))


def _launch(spec: Spec) -> Span:
    seconds = LAUNCH_CPU_S if spec.setup.is_cpu else LAUNCH_S
    return Span(seconds / 4, seconds)


def _warm_up(spec: Spec) -> Part:
    most = MOST_BURSTS[spec.protocol.mode]
    tokens = min(MOST_TOKENS, spec.setup.output_tokens.longest)
    return Part(
        "warm-up, bursts",
        Span(ALIKE_BURSTS, most),
        Span(ALIKE_BURSTS / 6, most / 3).times(tokens * pace_s(spec.setup.slo)),
    )


def _asked(what: str, count: int, tokens: float, spec: Spec) -> Part:
    """Return a part in which so many answers of `tokens` tokens come one after the other."""
    seconds = Span(1 / 6, 1 / 3).times(count * tokens * pace_s(spec.setup.slo))
    return Part(what, Span(count, count), seconds)


def _once(what: str, seconds: Span) -> Part:
    return Part(what, Span(1, 1), seconds)


def _questions(spec: Spec) -> int:
    gate = spec.setup.accuracy_gate
    return gate.questions if gate.task != NO_TASK and isinstance(gate.questions, int) else 0


def _answer_tokens(spec: Spec) -> int:
    asked = spec.setup.accuracy_gate.asked
    return ANSWER_TOKENS if asked is None else min(asked.max_tokens, ANSWER_TOKENS)


def _assumed(spec: Spec) -> Iterator[str]:
    slo = spec.setup.slo
    launch_s = _launch(spec)
    yield f"an engine is ready {launch_s.low:g} to {launch_s.high:g} s after its start"
    limited = any(o.metric == "tpot" for o in slo)
    why = "the TPOT limit" if limited else "no TPOT limit is set"
    yield (
        f"near its boundary it takes up to {pace_s(slo) * 1000:g} ms per token ({why}), and with"
        " few requests a sixth to a third of that"
    )
    yield (
        f"a prediction from the pilot is right, or {OFF_SHARE:.0%} off, and the boundaries of two"
        f" repeats are up to {UNLIKE_SHARE:.0%} apart"
    )
    gate = spec.setup.accuracy_gate
    if _questions(spec):
        yield f"an answer to a question has {_answer_tokens(spec)} tokens"
    elif gate.task != NO_TASK:
        yield f"questions of {gate.label} are not counted: their number is not recorded"
