"""What is claimed of a run's answers: scores, the gate's verdict, and what load does to answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tokenwatt_site.accuracy_gate import wilson
from tokenwatt_site.accuracy_spec import NO_TASK
from tokenwatt_site.claims.accuracy_caveats import accuracy_caveats, is_truncated, is_unread
from tokenwatt_site.claims.gate import gate_claim, require_asked
from tokenwatt_site.claims.pooled import absent
from tokenwatt_site.claims.under_load import (
    load_difference,
    under_load_caveats,
    under_load_claims,
)
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.answers import AccuracyLog
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.run import AccuracyClaim, GateClaim, MetricClaim, NotCovered, UnderLoadClaim
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Evidence


@dataclass(frozen=True, slots=True)
class AccuracyFound:
    """All that `accuracy_claims` makes; each part goes into `run.Claims` as it is."""

    metrics: tuple[MetricClaim, ...]
    accuracy: tuple[AccuracyClaim, ...]
    gate: GateClaim
    under_load: tuple[UnderLoadClaim, ...]
    not_covered: tuple[NotCovered, ...]


def accuracy_claims(spec: Spec, evidence: Evidence) -> AccuracyFound:
    """Derive what answers tell; every key is there, as a number or with the reason why not.

    Raises:
        InputError: the answers are not to the questions that the gate asks, or the reference's are
            to others; or they are of a sitting or a trial that the journal does not name.
    """
    log, under_load = evidence.accuracy, under_load_claims(evidence)
    caveats: list[tuple[str, str]] = []
    scored: tuple[AccuracyClaim, ...] = ()
    if spec.setup.accuracy_gate.task == NO_TASK:
        gate = GateClaim(outcome="none", text="no accuracy gate was asked for")
    elif log is None:
        gate = GateClaim(outcome="not run", text="the accuracy gate was not run")
    elif (missing := _missing(spec, log)) is not None:
        gate = GateClaim(outcome="not run", text=missing)
    else:
        scored = tuple(_score(evidence, log, n) for n in range(1, spec.accuracy.repeats + 1))
        gate = gate_claim(spec, evidence, log, scored)
        caveats += accuracy_caveats(spec, log, scored, gate)
    caveats += under_load_caveats(evidence, under_load)
    return AccuracyFound(
        metrics=(*_metrics(scored, gate), load_difference(under_load)),
        accuracy=scored,
        gate=gate,
        under_load=under_load,
        not_covered=tuple(NotCovered(what=what, why=why) for what, why in caveats),
    )


def _missing(spec: Spec, log: AccuracyLog) -> str | None:
    """Say how many answers are missing; None: the task was asked to its end in each repeat."""
    gate, found = spec.setup.accuracy_gate, [(a.repeat, a.question) for a in log.answers]
    require_asked(gate, log, "evidence.accuracy")
    questions = gate.questions if isinstance(gate.questions, int) else 0
    repeats = spec.accuracy.repeats
    planned = all(1 <= repeat <= repeats and n < questions for repeat, n in found)
    if not planned or any(b <= a for a, b in pairwise(found)):
        raise InputError(
            Problem(
                "does not answer the gate's questions in their order, each once",
                field="evidence.accuracy",
                found=f"{len(found):,} answers",
                expected=f"{questions:,} for each repeat from 1 to {repeats}",
            )
        )
    if len(found) == questions * repeats:
        return None
    return (
        f"the accuracy gate was not run to its end: {len(found):,} of {questions * repeats:,}"
        " answers are there, and a part of a task has no score"
    )


def _score(evidence: Evidence, log: AccuracyLog, repeat: int) -> AccuracyClaim:
    answers = log.of_repeat(repeat)
    n, correct = len(answers), sum(answer.correct for answer in answers)
    low, high = wilson(correct, n)
    answered = [answer for answer in answers if answer.failure is None]
    tokens = [answer.tokens for answer in answered if answer.tokens is not None]
    parts = {answer.part for answer in answers}
    return AccuracyClaim(
        repeat=repeat,
        questions=n,
        correct=correct,
        percent=100 * correct / n,
        low=100 * low,
        high=100 * high,
        unanswered=n - len(answered),
        truncated=sum(is_truncated(answer) for answer in answered),
        unextracted=sum(is_unread(answer) for answer in answered),
        empty=sum("empty" in answer.flags for answer in answered),
        repetitive=sum("repetitive" in answer.flags for answer in answered),
        markers=sum("markers" in answer.flags for answer in answered),
        mean_tokens=sum(tokens) / len(tokens) if tokens else None,
        parts=len(parts),
        same_launch=_same_launch(evidence, repeat, parts),
    )


def _same_launch(evidence: Evidence, repeat: int, parts: set[int]) -> bool | None:
    """Tell whether these sittings were of the launch that was loaded; None: one is not known."""
    told = {
        line.data.get("part"): line.data.get("same_launch")
        for line in evidence.journal
        if line.event == "accuracy_start" and line.data.get("repeat") == repeat
    }
    if unknown := sorted(parts - told.keys()):
        raise InputError(
            Problem(
                "is of a sitting that the journal does not start",
                field="evidence.accuracy",
                found=f"repeat {repeat}, part {unknown[0]}",
            )
        )
    same = [told[part] for part in parts]
    if False in same:
        return False
    return None if None in same else True


def _metrics(scored: Sequence[AccuracyClaim], gate: GateClaim) -> Iterator[MetricClaim]:
    if scored:
        n, correct = scored[0].questions, sum(score.correct for score in scored) / len(scored)
        # Other repeats ask the same questions again, and make no more of them.
        low, high = wilson(correct, n)
        yield MetricClaim(
            key="accuracy",
            label=METRICS["accuracy"].label,
            value=100 * correct / n,
            repeats=tuple(score.percent for score in scored),
            low=100 * low,
            high=100 * high,
        )
    else:
        yield absent("accuracy", gate.text)
    if gate.drop_points is not None:
        yield MetricClaim(
            key="accuracy_drop",
            label=METRICS["accuracy_drop"].label,
            value=gate.drop_points,
            repeats=(gate.drop_points,),
            low=gate.drop_low,
            high=gate.drop_high,
        )
    elif gate.outcome != "none":
        yield absent("accuracy_drop", gate.text)
