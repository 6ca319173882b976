"""What answers tell, in words and as rows of numbers: the score, its gate, and answers under load.

Texts of answers are never shown: what an engine writes is no part of a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from tokenwatt_site.accuracy_spec import NO_TASK, AccuracyGate
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import text
from tokenwatt_site.pages.number_row import NumberRow
from tokenwatt_site.run import AccuracyClaim, Claims, GateClaim, GateOutcome, MetricClaim

SCORES = "Accuracy"
UNDER_LOAD = "Answers under load"
DROP = "Accuracy Δ vs. reference"

SAYS: Mapping[GateOutcome, str] = MappingProxyType(
    {
        "passed": "gate passed",
        "failed": "gate failed",
        "inconclusive": "gate inconclusive",
        "reference": "the gate's reference",
        "no reference": "score only, no reference",
        "not run": "gate not run",
        "none": "no gate",
    }
)
"""The outcome of a gate in a few words, for a line under a number."""

WRONG: tuple[tuple[str, str], ...] = (
    ("unanswered", "Questions without an answer"),
    ("truncated", "Answers cut at the most tokens"),
    ("unextracted", "Answers with nothing to score"),
    ("empty", "Empty answers"),
    ("repetitive", "Repetitive answers"),
    ("markers", "Answers with template markers"),
)
"""A count of `run.AccuracyClaim` -> what it counts."""


def label(gate: AccuracyGate) -> str:
    """Such as "Accuracy (gsm8k-5shot)"."""
    return SCORES if gate.task == NO_TASK else f"{SCORES} ({gate.label})"


def allowed(gate: AccuracyGate) -> str:
    """Such as "max drop 1.0 pts", with as many digits as were declared."""
    return f"max drop {points(gate.max_drop_points)} pts"


def points(value: float) -> str:
    """Write an allowed drop with one digit after the point, or with all that it has."""
    return f"{value:.1f}" if round(value, 1) == value else f"{value:g}"


def verdict(configuration: Configuration) -> str:
    """Such as "gate passed: max drop 1.0 pts"."""
    return (
        f"{SAYS[configuration.claims.gate.outcome]}: {allowed(configuration.setup.accuracy_gate)}"
    )


def sentence(claims: Claims) -> str:
    """The gate's own text as a sentence."""
    told = claims.gate.text
    return f"{told[0].upper()}{told[1:]}."


def sureness(claims: Claims, claim: MetricClaim) -> str:
    """Say how sure a number of answers is: the interval, and how many questions it is of."""
    words = text.sureness(claim)
    if claim.key == "load_difference":
        return f"{words}, n = {text.counted(sum(c.compared for c in claims.under_load), 'answer')}"
    if not claims.accuracy:
        return words
    words += f", n = {text.counted(claims.accuracy[0].questions, 'question')}"
    return words + _of_repeats(claims, claim)


def _of_repeats(claims: Claims, claim: MetricClaim) -> str:
    several = len(claims.accuracy)
    if several == 1:
        return ""
    if claim.key == "accuracy":
        return f", the mean of {several} repeats"
    return f", repeat {claims.gate.repeat}, the worst of {several}"


def rows(configuration: Configuration) -> Iterator[NumberRow]:
    """Every number that answers give, or why it is missing."""
    claims, gate = configuration.claims, configuration.setup.accuracy_gate
    yield _row(claims, claims.metric("accuracy"), SCORES, label(gate))
    yield _drop(configuration)
    yield from _compared(configuration)
    yield from _counts(claims.accuracy)
    yield from _under_load(claims)


def _row(claims: Claims, claim: MetricClaim, group: str, name: str, against: str = "") -> NumberRow:
    metric = METRICS[claim.key]
    if claim.value is None:
        why = text.reason(claim)
        return NumberRow(group, claim.key, name, why, against=against, kind="missing")
    value, sure = text.amount(claim.value, metric), sureness(claims, claim)
    return NumberRow(group, claim.key, name, value, metric.unit, sure, against)


_NO_DROP: Mapping[GateOutcome, str] = MappingProxyType(
    {"no reference": "there is no reference to compare with"}
)
"""Outcome -> why there is no drop, where the gate's text would tell the score once more."""


def _drop(configuration: Configuration) -> NumberRow:
    claims = configuration.claims
    outcome, key = claims.gate.outcome, "accuracy_drop"
    if outcome == "reference":
        return NumberRow(SCORES, key, DROP, "reference", kind="words")
    if claims.gate.drop_points is None:
        why = f"{text.NOT_MEASURED}: {_NO_DROP.get(outcome, claims.gate.text)}"
        return NumberRow(SCORES, key, DROP, why, kind="missing")
    return _row(claims, claims.metric(key), SCORES, DROP, verdict(configuration))


def _compared(configuration: Configuration) -> Iterator[NumberRow]:
    """Yield what the drop is made of, and which run it is from."""
    gate, found = configuration.claims.gate, configuration.reference
    if gate.paired is None or gate.reference_run is None:
        return
    of = f"of {text.counted(gate.paired, 'question')}"
    for name, count in (("the reference", gate.worse), ("this run", gate.better)):
        words = f"{count or 0:,}"
        yield NumberRow(SCORES, None, f"Right in {name} alone", words, "questions", of)
    chance = text.probability(gate.p_value or 0.0)
    yield NumberRow(SCORES, None, "p of that split, exact (McNemar)", chance, "", of)
    if gate.reference_percent is not None:
        score = text.amount(gate.reference_percent, METRICS["accuracy"])
        unit = METRICS["accuracy"].unit
        yield NumberRow(SCORES, None, "Accuracy of the reference", score, unit, of)
    named = f"{gate.reference_run[:12]} of {gate.reference_configuration}"
    run = None if found is None else found.run_id
    yield NumberRow(SCORES, None, "Reference run", named, kind="words", run=run)


def _counts(scored: tuple[AccuracyClaim, ...]) -> Iterator[NumberRow]:
    """Yield what went wrong with answers, over all repeats, and how long they are."""
    if not scored:
        return
    asked = f"of {text.counted(sum(score.questions for score in scored), 'question')} asked"
    for field, name in WRONG:
        count = f"{sum(getattr(score, field) for score in scored):,}"
        unit = "questions" if field == "unanswered" else "answers"
        yield NumberRow(SCORES, None, name, count, unit, asked)
    yield _length(scored)


def _length(scored: tuple[AccuracyClaim, ...]) -> NumberRow:
    name = "Mean length of an answer"
    told = [score.mean_tokens for score in scored if score.mean_tokens is not None]
    if not told:
        why = f"{text.NOT_MEASURED}: the engine does not tell its tokens"
        return NumberRow(SCORES, None, name, why, kind="missing")
    value = text.number(sum(told) / len(told), 1)
    return NumberRow(SCORES, None, name, value, "tokens", "as the engine counts them")


def _under_load(claims: Claims) -> Iterator[NumberRow]:
    """Yield the share that differs under load, beside that of the same prompts alone, twice."""
    claim = claims.metric("load_difference")
    yield _row(claims, claim, UNDER_LOAD, claim.label)
    if claim.value is None:
        return
    name, unit = "The same prompts, alone twice", METRICS[claim.key].unit
    differing = sum(c.differing_alone for c in claims.under_load)
    twice = sum(c.compared_alone for c in claims.under_load)
    if twice:
        share = text.amount(100 * differing / twice, METRICS[claim.key])
        how = f"{differing:,} of {text.counted(twice, 'prompt')}"
        yield NumberRow(UNDER_LOAD, None, name, share, unit, how)
    else:
        why = f"{text.NOT_MEASURED}: no prompt was answered alone twice"
        yield NumberRow(UNDER_LOAD, None, name, why, kind="missing")


def word(gate: GateClaim, asked: AccuracyGate) -> str:
    """The end of the sentence that tells a score: what its gate says."""
    most = f"({allowed(asked)})"
    return {
        "passed": f"which passes the accuracy gate {most}",
        "failed": f"which fails the accuracy gate {most}",
        "inconclusive": f"where the accuracy gate is inconclusive {most}",
        "reference": "the reference of its accuracy gate",
        "no reference": "a score only, with no reference to compare with",
    }.get(gate.outcome, "a score only")
