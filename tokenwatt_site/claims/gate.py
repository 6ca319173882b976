"""What the accuracy gate says of whole answers: alone, or against the reference's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tokenwatt_site.accuracy_gate import (
    GateVerdict,
    Paired,
    drop_interval,
    judge_drop,
    mcnemar_exact,
    questions_needed,
)
from tokenwatt_site.accuracy_spec import MAX_QUESTIONS, AccuracyGate
from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.answers import AccuracyLog
from tokenwatt_site.run import AccuracyClaim, GateClaim
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Evidence

_GRAVITY: Mapping[str, int] = MappingProxyType({"passed": 0, "inconclusive": 1, "failed": 2})


def gate_claim(
    spec: Spec, evidence: Evidence, log: AccuracyLog, scored: Sequence[AccuracyClaim]
) -> GateClaim:
    """Return the verdict on the answers in `log`, of which `scored` are the scores by repeat.

    Each repeat is compared with the reference's first; the one that came out worst counts.

    Raises:
        InputError: the reference's answers are to something else; or they are there and the
            journal's first line names no reference, or the other way round.
    """
    chosen = evidence.journal[0].data.get("reference")
    if (chosen is None) != (evidence.reference is None):
        raise InputError(
            Problem(
                "is not what the journal's first line names",
                field="evidence.reference",
                found="none" if evidence.reference is None else "answers of a reference",
                expected=str(chosen),
            )
        )
    if evidence.reference is None:
        return _alone(spec, scored)
    gate, theirs = spec.setup.accuracy_gate, evidence.reference.of_repeat(1)
    require_asked(gate, evidence.reference, "evidence.reference")
    claims = []
    for score in scored:
        ours = log.of_repeat(score.repeat)
        if [answer.data for answer in ours] != [answer.data for answer in theirs]:
            raise InputError(
                Problem(
                    f"does not answer the questions of repeat {score.repeat}, in their order",
                    field="evidence.reference",
                    found=f"{len(theirs):,} answers",
                    expected=f"{len(ours):,} answers, to the same",
                )
            )
        paired = Paired.of([a.correct for a in theirs], [a.correct for a in ours])
        claims.append(_against(gate, chosen, score, paired, of=len(scored)))
    return max(claims, key=lambda claim: (_GRAVITY[claim.outcome], claim.drop_points))


def require_asked(gate: AccuracyGate, log: AccuracyLog, field: str) -> None:
    """Check that answers are to what the gate asks, word for word.

    Raises:
        InputError: naming what differs.
    """
    if (found := log.header.asked) != gate.asked:
        wanted = None if gate.asked is None else gate.asked.to_json()
        other = [k for k, v in found.to_json().items() if wanted is None or wanted[k] != v]
        raise InputError(
            Problem(
                "is not of what setup.accuracy_gate asks",
                field=f"{field}.asked",
                found=f"another {', '.join(other)}",
            )
        )


def _alone(spec: Spec, scored: Sequence[AccuracyClaim]) -> GateClaim:
    told = "; ".join(
        f"{score.percent:.1f}% of {score.questions:,} questions right"
        f" (95%: {score.low:.1f} to {score.high:.1f})"
        for score in scored
    )
    if spec.role == "baseline":
        return GateClaim(
            outcome="reference", text=f"this run is what others are compared with: {told}"
        )
    return GateClaim(
        outcome="no reference", text=f"a score only, with no reference to compare with: {told}"
    )


def _against(
    gate: AccuracyGate, chosen: JsonValue, score: AccuracyClaim, paired: Paired, *, of: int
) -> GateClaim:
    low, high = drop_interval(paired)
    drop, max_drop = paired.drop, gate.max_drop_points / 100
    verdict, p = judge_drop(paired, max_drop), mcnemar_exact(paired.worse, paired.better)
    needed = None
    if verdict == "inconclusive" and paired.losable > max_drop:
        needed = questions_needed(paired.worse / paired.n, paired.better / paired.n, max_drop)
    worst = f"in repeat {score.repeat}, the worst of {of}, " if of > 1 else ""
    text = (
        f"the accuracy gate {_WORDS[verdict]}: {worst}{score.percent:.1f}% of {paired.n:,}"
        f" questions right, the reference {100 * paired.losable:.1f}%; a drop of"
        f" {100 * drop:.1f} points (95%: {100 * low:.1f} to {100 * high:.1f}),"
        f" {gate.max_drop_points:g} allowed; {paired.worse:,} right in the reference alone,"
        f" {paired.better:,} here alone (exact p {f'{p:.2g}' if p else 'below 1e-300'})"
    )
    if verdict == "inconclusive":
        text += f"; {_settled_by(paired, max_drop, needed)}"
    return GateClaim(
        outcome=verdict,
        text=text,
        reference_run=str(chosen["run"]),
        reference_configuration=str(chosen["configuration"]),
        reference_percent=100 * paired.losable,
        repeat=score.repeat,
        paired=paired.n,
        worse=paired.worse,
        better=paired.better,
        drop_points=100 * drop,
        drop_low=100 * low,
        drop_high=100 * high,
        p_value=p,
        questions_needed=needed,
    )


_WORDS: Mapping[GateVerdict, str] = MappingProxyType(
    {"passed": "passed", "failed": "failed", "inconclusive": "is inconclusive"}
)


def _settled_by(paired: Paired, max_drop: float, needed: int | None) -> str:
    if paired.losable <= max_drop:
        return "the reference has no more right than may be lost, so that no answers could fail"
    if needed is None:
        return "no number of questions would settle it: the drop is what is allowed, exactly"
    if needed > MAX_QUESTIONS:
        return f"more than the {MAX_QUESTIONS:,} questions that can be asked would settle it"
    return f"about {needed:,} questions like these would settle it"
