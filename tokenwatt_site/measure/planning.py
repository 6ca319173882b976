"""What a measurement will take, before anything runs. Pure: no engine, no file, no clock.

The search is the real one, driven against a fictitious engine that passes up to a given rate: once
with a model that predicts that rate, and with ones that are off. So the answer is a range. What no
search tells, such as how long an engine takes to start, is assumed, and `Plan.assumed` says it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tokenwatt_site.accuracy_spec import NO_TASK
from tokenwatt_site.evidence.under_load import SAMPLES
from tokenwatt_site.measure.search import Done, Offer, RepeatSearch
from tokenwatt_site.measure.settling import ALIKE_BURSTS, MOST_BURSTS, MOST_TOKENS
from tokenwatt_site.spec import Objective, Spec
from tokenwatt_site.statistics import t_975
from tokenwatt_site.validity import highest_rate_urps
from tokenwatt_site.windows import Band, Windows
from tokenwatt_site.workload import Realisation

OFF_SHARE = 0.06
"""How far a model that was fitted to the pilot alone may predict beside the boundary."""

UNLIKE_SHARE = 0.02
"""How far apart the boundaries of two repeats may be: realisations, launches."""

LAUNCH_S, LAUNCH_CPU_S = 240.0, 10.0
PACE_MS = 50.0
"""Per token, where no TPOT objective bounds it."""

ANSWER_TOKENS = 128
"""Of an answer to a question: those of gsm8k have 100 on average."""

FIT_S = 120.0
RECORD_BYTES, STORED_BYTES = 110, 40
"""Of a request: a line of the work folder, and its share of the compressed evidence (DESIGN 8)."""

ANSWER_BYTES = 1_000
SYSTEMATIC = 1.96 * 0.005
"""What is added in quadrature to a long-run number's interval, on logs (DESIGN 6)."""

MOST_REPEATS = 100
TRIALS = "trials"
"""What the part is called in which the trials are."""


class Span(NamedTuple):
    """From the least to the most that is expected; seconds, or a number of times."""

    low: float
    high: float

    def plus(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Span:
        return Span(self.low * factor, self.high * factor)


NOTHING = Span(0, 0)


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One trial of the fictitious engine."""

    rate_urps: int
    passes: bool
    rows: int
    seconds: Span


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
        return _sum(part.seconds for part in self.parts)

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
        fit: of the engine model, after the last trial; not on the engine.
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
        return _sum(repeat.seconds for repeat in self.repeats).plus(self.fit)

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
    rate = rate_urps or round(spec.protocol.start_rate * 1e6)
    cases = [
        _searched(spec, windows, rate, off, unlike)
        for off, unlike in (
            (1.0, 0.0),
            (1 + OFF_SHARE, UNLIKE_SHARE),
            (1 - OFF_SHARE, UNLIKE_SHARE),
        )
    ]
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
        fit=Span(0, FIT_S) if any(r.parts for r in repeats) else NOTHING,
        boards=0 if spec.setup.is_cpu else spec.setup.accelerator.count,
        work_bytes=rows * RECORD_BYTES + answers,
        published_bytes=rows * STORED_BYTES + answers // 4,
        assumed=tuple(_assumed(spec)),
    )


def trial_seconds(
    slo: Sequence[Objective], realisation: Realisation, rate_urps: int, *, passes: bool
) -> Span:
    """Return how long a trial takes.

    One that passes lasts until its last scored request ends; how long answers take is known by
    their limit alone. One that fails ends when that is certain: early in its window, or when a
    request that is late was due to end.
    """
    due, scored = realisation.due_ns(rate_urps), realisation.scored_rows
    begin_s, end_s = due[scored.start] / 1e9, due[scored.stop - 1] / 1e9
    longest_s = max(realisation.rows[row].output_tokens for row in scored) * _pace_s(slo)
    return Span(end_s, end_s + longest_s) if passes else Span(begin_s, end_s + longest_s / 2)


def repeats_needed(half: float, spread: float, *, systematic: float = SYSTEMATIC) -> int | None:
    """Return how many repeats make the 95% interval of a mean at most 1 +- `half`.

    The interval is that of `statistics.pool`, on logs: exp(sqrt((t[.975, n-1] s / sqrt n)^2 + u^2))
    - 1 for its upper side, which is the wider one. The spread of so few is itself uncertain, so
    this is what is expected, and no promise.

    Args:
        half: half the width, as a share, such as 0.02.
        spread: s, the standard deviation of the logs of single repeats.
        systematic: u, added in quadrature.

    Returns:
        From 3, since fewer have no interval; None: not even MOST_REPEATS do.
    """
    for n in range(3, MOST_REPEATS + 1):
        if math.expm1(math.hypot(t_975(n - 1) * spread / math.sqrt(n), systematic)) <= half:
            return n
    return None


def _searched(
    spec: Spec, windows: Windows, rate: int, off: float, unlike: float
) -> tuple[tuple[PlannedTrial, ...], ...]:
    """Return the trials of each repeat of an engine whose boundary is `rate`.

    A prediction is `off` times the boundary; every second repeat's is above by the share `unlike`.
    """
    repeats: list[tuple[PlannedTrial, ...]] = []
    earlier: list[Done] = []
    for repeat in range(1, spec.protocol.repeats + 1):
        boundary = round(rate * (1 + unlike * (repeat % 2 == 0)))
        trials, found = _repeat(
            spec, windows, repeat, earlier, boundary=boundary, predicted=round(boundary * off)
        )
        repeats.append(trials)
        if found is not None:
            earlier.append(Done(repeat, found))
    return tuple(repeats)


def _repeat(
    spec: Spec,
    windows: Windows,
    repeat: int,
    earlier: Sequence[Done],
    *,
    boundary: int,
    predicted: int,
) -> tuple[tuple[PlannedTrial, ...], int | None]:
    """Return the trials of one repeat, and the boundary that they enclose."""

    def highest(band: Band) -> int:
        return highest_rate_urps(spec, windows.realisation(repeat, band), None)

    search = RepeatSearch(
        spec.protocol,
        windows,
        repeat,
        earlier=tuple(earlier),
        ceiling_urps=highest,
        predict=lambda *_: predicted,
    )
    trials = []
    while (offer := search.next()) is not None:
        passes = offer.rate_urps <= boundary
        search.saw(offer, "PASS" if passes else "FAIL")
        trials.append(_trial(spec, windows, repeat, offer, passes=passes))
    return tuple(trials), search.boundary_urps


def _trial(
    spec: Spec, windows: Windows, repeat: int, offer: Offer, *, passes: bool
) -> PlannedTrial:
    realisation = windows.realisation(repeat, offer.band)
    seconds = trial_seconds(spec.setup.slo, realisation, offer.rate_urps, passes=passes)
    return PlannedTrial(offer.rate_urps, passes, offer.band.rows, seconds)


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
            _over(Span(len(trials), len(trials)) for trials in cases),
            _over(_sum(trial.seconds for trial in trials) for trials in cases),
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
        Span(ALIKE_BURSTS / 6, most / 3).times(tokens * _pace_s(spec.setup.slo)),
    )


def _asked(what: str, count: int, tokens: float, spec: Spec) -> Part:
    """Return a part in which so many answers of `tokens` tokens come one after the other."""
    pace_s = _pace_s(spec.setup.slo)
    return Part(what, Span(count, count), Span(pace_s / 6, pace_s / 3).times(count * tokens))


def _once(what: str, seconds: Span) -> Part:
    return Part(what, Span(1, 1), seconds)


def _questions(spec: Spec) -> int:
    gate = spec.setup.accuracy_gate
    return gate.questions if gate.task != NO_TASK and isinstance(gate.questions, int) else 0


def _answer_tokens(spec: Spec) -> int:
    asked = spec.setup.accuracy_gate.asked
    return ANSWER_TOKENS if asked is None else min(asked.max_tokens, ANSWER_TOKENS)


def _pace_s(slo: Sequence[Objective]) -> float:
    """Return the time per token that an engine at its boundary is thought to have."""
    limits = [o.limit_ms for o in slo if o.metric == "tpot"]
    return min(limits, default=PACE_MS) / 1000


def _assumed(spec: Spec) -> Iterator[str]:
    slo = spec.setup.slo
    launch_s = _launch(spec)
    yield f"an engine is ready {launch_s.low:g} to {launch_s.high:g} s after its start"
    limited = any(o.metric == "tpot" for o in slo)
    why = "the TPOT limit" if limited else "no TPOT limit is set"
    yield (
        f"near its boundary it takes up to {_pace_s(slo) * 1000:g} ms per token ({why}), and with"
        " few requests a sixth to a third of that"
    )
    yield (
        f"a prediction is right, or {OFF_SHARE:.0%} off, and boundaries of two repeats are up to"
        f" {UNLIKE_SHARE:.0%} apart"
    )
    gate = spec.setup.accuracy_gate
    if _questions(spec):
        yield f"an answer to a question has {_answer_tokens(spec)} tokens"
    elif gate.task != NO_TASK:
        yield f"questions of {gate.label} are not counted: their number is not recorded"


def _sum(spans: Iterable[Span]) -> Span:
    total = NOTHING
    for span in spans:
        total = total.plus(span)
    return total


def _over(spans: Iterable[Span]) -> Span:
    """Return the span that has all of these in it."""
    lows, highs = zip(*spans, strict=True)
    return Span(min(lows), max(highs))
