"""The facts about a run, each with what it proves and what it does not; never a score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Literal, TypeAlias

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.pages import answers, statements, text
from tokenwatt_site.run import GateOutcome
from tokenwatt_site.trust.keyring import KeyState
from tokenwatt_site.trust.predicates import Kind as StatementKind
from tokenwatt_site.trust.predicates import Recomputed
from tokenwatt_site.trust.promises import Promised
from tokenwatt_site.trust.standing import RunStanding
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


def facts(configuration: Configuration) -> tuple[Fact, ...]:
    """Return the facts about the headline run of a configuration."""
    return tuple(_facts(configuration))


def _facts(configuration: Configuration) -> Iterator[Fact]:
    head = configuration.headline
    run, mode = head.run, head.run.spec.protocol.mode
    yield from _against(head.standing, configuration.unpublished)
    yield from _settled(head.standing)
    if run.simulated:
        yield Fact(
            "simulated",
            "warn",
            "warn",
            "Simulated",
            "The engine was this project's own simulator: its tokens and times are made up.",
            "Says nothing about any product.",
        )
    yield _signed(head)
    yield _committed(head)
    yield _witnessed(head.standing)
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
        f" built, and came out equal.{_recomputed_by(head)}",
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
    if exclusions := configuration.exclusions:
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
    yield _reproduced(configuration)


_AGAINST: Mapping[StatementKind, str] = MappingProxyType(
    {
        "withdrawn": "What the right numbers are. The run is kept, struck through.",
        "superseded": "That this run is wrong. It is kept, struck through.",
        "disputed": "Who is right. Until that is settled the run does not rank.",
    }
)


def _against(standing: RunStanding, unpublished: frozenset[str]) -> Iterator[Fact]:
    """What stands against the run comes before all that speaks for it."""
    for kind, does_not in _AGAINST.items():
        if found := standing.counting(kind):
            told = "; ".join(
                f"{statements.signer(t)}: {statements.says(t, unpublished)}" for t in found
            )
            yield Fact(kind, "warn", "warn", kind.capitalize(), f"{told}.", does_not)


def _settled(standing: RunStanding) -> Iterator[Fact]:
    """What was disputed and is no more stays a part of the run's history."""
    if found := standing.counting("settled"):
        yield Fact(
            "settled",
            "no",
            "check",
            "Dispute settled" if len(found) == 1 else f"{len(found)} disputes settled",
            "; ".join(f"{statements.signer(t)} took it back: {statements.says(t)}" for t in found)
            + ".",
            "That the run is right: only that who disputed it no longer does.",
        )


_SIGNED: Mapping[KeyState, str] = MappingProxyType(
    {
        "known": "Signed by {}",
        "unknown": "Signed, unknown key",
        "expired": "Signed by {}, key expired",
        "revoked": "Signed by {}, key revoked",
        "revoked later": "Signed by {}, key revoked later",
    }
)


def _signed(head: ValidatedRun) -> Fact:
    key = head.standing.key
    return Fact(
        "signed",
        "yes" if key.state == "known" else "warn",
        "signed",
        _SIGNED[key.state].format(key.name),
        f"Signed by key {head.keyid}, which {key.text}.",
        "Nobody changed these bytes after signing. Not that they are true.",
    )


_LEFT_OUT = "That no other run was made and left out."
_OWN_CLOCK = "When the first trial began is told by the publisher's own clock."


def _committed(head: ValidatedRun) -> Fact:
    """What its key said before that it would do; DESIGN 8: a mere own claim is shown as one."""
    promised = head.promised
    also = _counted(promised)
    if head.held.given_nonce:
        also += " A nonce that somebody gave for it decides its prompts too."
    if promised.commitment is None:
        return Fact(
            "committed",
            "no",
            "unranked",
            "Not committed",
            "The journal's first line has the plan and the seed rule, dated by the publisher's own"
            f" clock; nobody was told of them before.{also}",
            _LEFT_OUT,
        )
    what = "the commitment to this plan, seed rule and nonce"
    if promised.witness is None:
        return Fact(
            "committed",
            "warn",
            "signed",
            "Committed, own word",
            f"Beside the run lies {what}, signed with its key: they were not changed since.{also}",
            f"When it was signed, which nobody else saw. {_LEFT_OUT}",
        )
    seen = f"{promised.witness.name} countersigned {what} at {_utc(promised.witness.at)}"
    began = "" if promised.first_trial is None else f" ({_utc(promised.first_trial)})"
    if not promised.before:
        return Fact(
            "committed",
            "warn",
            "signed",
            "Committed, seen too late",
            f"{seen}, after the first trial began{began}.{also}",
            f"That it stood before that. {_LEFT_OUT}",
        )
    return Fact(
        "committed",
        "yes",
        "check",
        "Committed before measuring",
        f"{seen}, before the first trial began{began}.{also}",
        f"{_OWN_CLOCK} {_LEFT_OUT}",
    )


def _counted(promised: Promised) -> str:
    if promised.handed_out == 0:
        return ""
    runs = text.counted(promised.handed_out, "run")
    return f" Its key committed to {runs}, {promised.kept} of them here."


def _utc(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _witnessed(standing: RunStanding) -> Fact:
    if (witness := standing.witness) is None:
        return Fact(
            "witnessed",
            "no",
            "quick",
            "Time not witnessed",
            "All dates are by the publisher's own clock; nobody else countersigned the run.",
            "That the dates are wrong.",
        )
    return Fact(
        "witnessed",
        "yes",
        "quick",
        f"Witnessed {witness.signed.made:%Y-%m-%d}",
        f"{statements.signer(witness)} countersigned this run: it was there at"
        f" {statements.minute(witness)} UTC.",
        "When it was measured, or that it is true.",
    )


def _recomputed_by(head: ValidatedRun) -> str:
    """Name those who state the same of the same numbers; others said less than this sentence."""
    found = dict.fromkeys(
        statements.signer(told)
        for told in head.standing.counting("recomputed")
        if isinstance(said := told.signed.said, Recomputed)
        and (said.level, said.numbers) == (head.level, head.numbers)
    )
    return f" So they did for {text.joined(found)}." if found else ""


def _reproduced(configuration: Configuration) -> Fact:
    """What reruns by others say; a run under another key alone says little."""
    head = configuration.headline
    found = head.standing.counting("reproduced")
    if found:
        came_to = statements.outcomes(found)
        pooled = statements.together(found)
        told = "; ".join(
            f"{statements.signer(t)}: {statements.says(t, configuration.unpublished)}"
            for t in found
        )
        return Fact(
            "reproduced",
            "yes" if came_to == f"reproduced {len(found)}×" else "warn",
            "reproduced",
            f"{came_to.capitalize()} by others"
            + ("" if pooled is None else f", {statements.ratio(pooled)}"),
            f"{told}. Each has another key and other boards, and was recomputed here.",
            "Other keys may belong to the same people, and UUIDs of boards can be made up.",
        )
    chain = head.standing.chain
    others = {
        r.keyid
        for r in configuration.runs
        if r.run_id not in configuration.unpublished
        and r.standing.publisher != chain[-1]
        and r.standing.key.trusted
        and not r.standing.retracted
    }
    if others:
        return Fact(
            "reproduced",
            "no",
            "reproduced",
            f"Rerun under {text.counted(len(others), 'other key')}",
            "Runs signed with other keys stand under History; none of them counts as a"
            " reproduction.",
            "Another key may belong to the same people.",
        )
    return Fact(
        "reproduced",
        "no",
        "reproduced",
        "Not reproduced",
        "Nobody else with a known key has published a run of this configuration.",
        "Files cannot expose a consistent fabrication; only a rerun by others can.",
    )


def _replayed(head: ValidatedRun) -> Fact:
    """Return the second level of recomputation: whether the engine model was replayed."""
    if all(entry.role != "engine-model" for entry in head.run.evidence):
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
