"""The section on accuracy: what was asked and came back, the drop drawn, answers under load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import answers, chart, text
from tokenwatt_site.pages.boards import UNTOLD
from tokenwatt_site.pages.figure import Figure, Table
from tokenwatt_site.run import AccuracyClaim, Claims, GateClaim, GateOutcome, UnderLoadClaim


@dataclass(frozen=True, slots=True)
class Section:
    """What the section holds; a part that was not measured is None, and its reason a number's."""

    lead: str
    scores: Table | None
    drop: Figure | None
    pairs: Table | None
    pairs_said: str
    under_load: Table | None
    under_load_said: str


def section(configuration: Configuration) -> Section | None:
    """Return the section; None where nothing was asked."""
    claims = configuration.claims
    if not claims.accuracy and not claims.under_load:
        return None
    return Section(
        lead=answers.sentence(claims),
        scores=scores(claims.accuracy) if claims.accuracy else None,
        drop=drop(configuration),
        pairs=pairs(claims.gate),
        pairs_said=pairs_said(claims.gate, repeats=len(claims.accuracy)),
        under_load=under_load(claims.under_load) if claims.under_load else None,
        under_load_said=under_load_said(claims),
    )


def scores(claims: tuple[AccuracyClaim, ...]) -> Table:
    """A row for each repeat: how its questions were answered, and what went wrong."""
    head = (
        "Repeat",
        "Right, %",
        "95%",
        "Right",
        *(name for _, name in answers.WRONG),
        "Mean length, tokens",
        "Sittings",
        "Launch loaded before",
    )
    return head, tuple(_score(claim) for claim in claims)


_LAUNCH: Mapping[bool | None, str] = MappingProxyType(
    {True: "yes", False: "launched again", None: "declared"}
)


def _score(claim: AccuracyClaim) -> tuple[str, ...]:
    return (
        str(claim.repeat),
        text.number(claim.percent, 1),
        f"{claim.low:.1f} to {claim.high:.1f}",
        f"{claim.correct:,} of {claim.questions:,}",
        *(f"{getattr(claim, field):,}" for field, _ in answers.WRONG),
        UNTOLD if claim.mean_tokens is None else text.number(claim.mean_tokens, 1),
        str(claim.parts),
        _LAUNCH[claim.same_launch],
    )


def pairs(gate: GateClaim) -> Table | None:
    """Each question by who got it right: both, only one, neither; None where none was compared."""
    if gate.paired is None or gate.reference_percent is None:
        return None
    worse, better = gate.worse or 0, gate.better or 0
    theirs = round(gate.reference_percent * gate.paired / 100)
    both = theirs - worse
    neither = gate.paired - theirs - better
    head = ("Questions", "This run right", "This run wrong", "Together")
    return head, (
        ("Reference right", f"{both:,}", f"{worse:,}", f"{theirs:,}"),
        ("Reference wrong", f"{better:,}", f"{neither:,}", f"{gate.paired - theirs:,}"),
        ("Together", f"{both + better:,}", f"{worse + neither:,}", f"{gate.paired:,}"),
    )


def pairs_said(gate: GateClaim, *, repeats: int) -> str:
    """Say how likely such a split is where nothing is worse, and of which of several repeats."""
    if gate.paired is None or gate.p_value is None:
        return ""
    where = f", in repeat {gate.repeat}" if repeats > 1 else ""
    return (
        f"{gate.worse or 0:,} of {text.counted(gate.paired, 'question')} were right in the"
        f" reference alone and {gate.better or 0:,} in this run alone{where}: were neither better,"
        f" a split at least as uneven would come with p = {text.probability(gate.p_value)} (exact"
        " McNemar)."
    )


_HEADINGS: Mapping[GateOutcome, str] = MappingProxyType(
    {
        "passed": "The whole interval of the drop is within what is allowed",
        "failed": "The whole interval of the drop is beyond what is allowed",
    }
)


def drop(configuration: Configuration) -> Figure | None:
    """The drop with its interval, against what is allowed; None where none was worked out."""
    gate, most = configuration.claims.gate, configuration.setup.accuracy_gate.max_drop_points
    value, low, high = gate.drop_points, gate.drop_low, gate.drop_high
    if value is None or low is None or high is None:
        return None
    words = [text.amount(end, METRICS["accuracy_drop"]) for end in (value, low, high)]
    table = (
        ("Drop, points", "95% from", "to", "Allowed", "Questions"),
        ((*words, answers.points(most), f"{gate.paired or 0:,}"),),
    )
    return Figure(
        id="chart-accuracy-drop",
        heading=_HEADINGS.get(gate.outcome, "The drop is not told apart from what is allowed"),
        lead="A dot is the drop from the reference, the line through it its 95% interval; what is"
        " left of 0 is better than the reference.",
        chart=chart.drop("chart-accuracy-drop", (low, value, high), most, answers.points(most)),
        missing=None,
        note="Points of 100, on the same questions: score interval of a paired difference (Tango).",
        table=table,
    )


def under_load(claims: tuple[UnderLoadClaim, ...]) -> Table:
    """A row for each trial whose answers were held against the same prompts asked alone."""
    head = (
        "Repeat",
        "Trial",
        "Rate, requests/s",
        "Differ under load",
        "Share, %",
        "95%",
        "Differ alone, asked twice",
        "Same before they differ, median % of the text",
        "Part of a prompt from the cache",
    )
    return head, tuple(_loaded(claim) for claim in claims)


def _loaded(claim: UnderLoadClaim) -> tuple[str, ...]:
    low, high = claim.low, claim.high
    known = claim.percent is not None and low is not None and high is not None
    same = "none differ" if claim.compared and not claim.differing else UNTOLD
    if claim.same_percent is not None:
        same = text.number(claim.same_percent, 0)
    return (
        str(claim.repeat),
        str(claim.trial),
        text.rate(claim.rate_urps),
        f"{claim.differing:,} of {claim.compared:,}",
        UNTOLD if claim.percent is None else text.number(claim.percent, 1),
        f"{low:.1f} to {high:.1f}" if known else UNTOLD,
        f"{claim.differing_alone:,} of {claim.compared_alone:,}",
        same,
        "yes" if claim.cached else "no",
    )


def under_load_said(claims: Claims) -> str:
    """Say what was held against what, and what is not the load's doing."""
    if not claims.under_load:
        return ""
    words = (
        "Answers of the highest passing trial, held against those to the same prompts asked alone,"
        " one at a time; all greedy."
    )
    alone = sum(claim.differing_alone for claim in claims.under_load)
    twice = sum(claim.compared_alone for claim in claims.under_load)
    if not twice:
        return f"{words} None was answered alone twice."
    asked = text.counted(twice, "prompt")
    if alone:
        return (
            f"{words} {alone:,} of {asked} gave two texts alone: so much is not the load's doing."
        )
    return f"{words} All of {asked} gave the same text when asked alone twice."
