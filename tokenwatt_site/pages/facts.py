"""The facts about a run, each with what it proves and what it does not; never a score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.eligibility import Exclusion
from tokenwatt_site.pages import answers, text
from tokenwatt_site.run import GateOutcome
from tokenwatt_site.trust.verify import ValidatedRun

Kind: TypeAlias = Literal["yes", "no", "warn"]

MODE_WORDS = {
    "demo": (
        "Demo mode: validation only. Too few requests and launches for a result; it shows that the"
        " path works."
    ),
    "quick": "Quick mode: validation only. Short windows, few repeats.",
    "full": "Full mode.",
}


@dataclass(frozen=True, slots=True)
class Fact:
    """`icon` names a symbol of the page; `does` and `does_not` are the tooltip and the table."""

    id: str
    kind: Kind
    icon: str
    label: str
    does: str
    does_not: str


def facts(configuration: Configuration, exclusions: Sequence[Exclusion]) -> tuple[Fact, ...]:
    """Return the facts about the headline run of a configuration."""
    return tuple(_facts(configuration, exclusions))


def _facts(configuration: Configuration, exclusions: Sequence[Exclusion]) -> Iterator[Fact]:
    head = configuration.headline
    run, mode = head.run, head.run.spec.protocol.mode
    if run.simulated:
        yield Fact(
            "simulated",
            "warn",
            "warn",
            "Simulated",
            "The engine was this project's own simulator: its tokens and times are made up.",
            "Says nothing about any product.",
        )
    known = head.key_state == "known"
    yield Fact(
        "signed",
        "yes" if known else "warn",
        "signed",
        f"Signed by {head.signer}" if known and head.signer else "Signed, unknown key",
        f"Signed by key {head.keyid}"
        + (
            ", which is registered on this site."
            if known
            else ", which is not registered on this site."
        ),
        "Nobody changed these bytes after signing. Not that they are true.",
    )
    size = sum(entry.bytes for entry in run.evidence)
    yield Fact(
        "evidence",
        "yes",
        "evidence",
        "Evidence available",
        f"{text.counted(len(run.evidence), 'file')}, {size:,} bytes uncompressed, beside the run.",
        "Anyone can look. Not that the records are complete.",
    )
    total = head.numbers
    yield Fact(
        "recomputed",
        "yes",
        "recomputed",
        f"Recomputed, {total:,} numbers",
        f"All {total:,} numbers of this run were recomputed from the evidence when this page was"
        " built, and came out equal.",
        "The numbers follow from the evidence. Not that the evidence is true.",
    )
    yield _replayed(head)
    yield Fact(
        "mode",
        "yes" if mode == "full" else "warn",
        "quick",
        f"{mode.capitalize()} mode",
        MODE_WORDS[mode],
        "Only full mode can be ranked.",
    )
    yield accuracy(configuration)
    if run.status == "interrupted":
        yield Fact(
            "interrupted",
            "warn",
            "warn",
            "Interrupted",
            "The measurement was stopped before its plan was done; what was measured is kept.",
            "The trials that were not run may have come out otherwise.",
        )
    if exclusions:
        yield Fact(
            "rank",
            "warn",
            "unranked",
            "Unranked",
            "Listed without a rank: " + "; ".join(e.text for e in exclusions) + ".",
            "Being unranked does not make the numbers wrong.",
        )
    else:
        yield Fact(
            "rank",
            "yes",
            "check",
            "May rank",
            "Meets every condition for a rank.",
            "A rank compares what was measured here, on this workload and SLO only.",
        )
    others = {other.keyid for other in configuration.runs} - {head.keyid}
    if others:
        yield Fact(
            "reproduced",
            "yes",
            "reproduced",
            f"Rerun under {text.counted(len(others), 'other key')}",
            "Runs signed with other keys stand under History.",
            "Another key may belong to the same people.",
        )
    else:
        yield Fact(
            "reproduced",
            "no",
            "reproduced",
            "Not reproduced",
            "Nobody else has published a run of this configuration.",
            "Files cannot expose a consistent fabrication; only a rerun by others can.",
        )


def _replayed(head: ValidatedRun) -> Fact:
    """Return the second level of recomputation: whether the engine model was replayed."""
    if head.evidence.model_fit is None:
        return Fact(
            "replayed",
            "no",
            "unranked",
            "No engine model",
            "No model of the engine was fitted, so nothing was replayed over the long run.",
            "What the engine keeps in the long run.",
        )
    total = head.claims.replayed_numbers
    if head.level == "data":
        return Fact(
            "replayed",
            "warn",
            "warn",
            "Engine model not replayed",
            f"{total:,} numbers of the long run stand here as the file has them.",
            "Whether the engine model comes to them.",
        )
    return Fact(
        "replayed",
        "yes",
        "recomputed",
        "Engine model replayed",
        f"{total:,} of the numbers are of the long run: the fitted engine model was replayed by"
        " this version of the builder, over the same files, and came to them.",
        "That the engine does what the model does; trials that it was not fitted to tell how near.",
    )


_ACCURACY: Mapping[GateOutcome, tuple[Kind, str, str]] = MappingProxyType(
    {
        "passed": (
            "yes",
            "Accuracy gate passed",
            "Says nothing of other tasks, of longer answers or of answers drawn at random.",
        ),
        "failed": (
            "warn",
            "Accuracy gate failed",
            "What made the answers worse: weights, kernels, template or settings.",
        ),
        "inconclusive": (
            "warn",
            "Accuracy gate inconclusive",
            "Neither that the answers are as good as the reference's nor that they are worse.",
        ),
        "reference": (
            "yes",
            "Accuracy: the reference",
            "That the score is a good one: it is what others are held against.",
        ),
        "no reference": (
            "no",
            "Accuracy: score only",
            "Whether another server of the same model does better.",
        ),
        "not run": ("no", "Accuracy gate not run", "Whether the answers are right."),
        "none": ("no", "No accuracy gate", "Whether the answers are right."),
    }
)
_GATE_ICONS: Mapping[Kind, str] = MappingProxyType(
    {"yes": "check", "warn": "warn", "no": "unranked"}
)


def accuracy(configuration: Configuration) -> Fact:
    """Return the fact about the answers: what the gate says, and what follows from it or not."""
    claims = configuration.claims
    kind, label, does_not = _ACCURACY[claims.gate.outcome]
    if claims.gate.reference_run is not None and configuration.reference is None:
        does_not += " The reference's run is not among those shown here."
    return Fact("accuracy", kind, _GATE_ICONS[kind], label, answers.sentence(claims), does_not)
