"""What may rank: one function, with a reason for each exclusion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tokenwatt_site.claims.caveats import not_recorded
from tokenwatt_site.field_words import inline
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.run import GateClaim, LongRunClaim
from tokenwatt_site.trust.standing import RunStanding
from tokenwatt_site.trust.verify import ValidatedRun

Code: TypeAlias = Literal[
    "unpublished",
    "withdrawn",
    "superseded",
    "disputed",
    "simulated",
    "interrupted",
    "mode",
    "key",
    "physics",
    "slo",
    "accuracy",
    "launches",
    "long-run",
    "setup",
]

MIN_LAUNCHES = 3


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Why a run does not rank: a word to count by, and a sentence for the reader."""

    code: Code
    text: str


UNPUBLISHED = Exclusion("unpublished", "it is not published yet")
"""Of a run in a preview: what is published ranks as if it were not there."""


def reasons(run: ValidatedRun, reference: ValidatedRun | None) -> tuple[Exclusion, ...]:
    """Return why a run may not rank, the gravest first; empty means that it may.

    That the numbers were recomputed needs no rule: a ValidatedRun's always are.

    Args:
        run: what would rank.
        reference: the run whose answers its own were compared with; None: it is not here.
    """
    return tuple(Exclusion(code, text) for code, text in _all(run, reference))


def _all(run: ValidatedRun, reference: ValidatedRun | None) -> Iterator[tuple[Code, str]]:
    claims = run.claims
    yield from _stated(run.standing)
    if run.run.simulated:
        yield "simulated", "the engine was simulated: nothing was measured"
    if run.run.status != "complete":
        yield "interrupted", "the run was interrupted"
    mode = run.run.spec.protocol.mode
    if mode != "full":
        yield "mode", f"{mode} mode; only full mode ranks"
    if not run.standing.key.trusted:
        yield "key", f"the signing key {run.keyid} {run.standing.key.text}"
    for outcome in claims.outcomes:
        if outcome.level == "INVALID":
            yield "physics", f"{METRICS[outcome.key].label} is INVALID: {outcome.text}"
    if not claims.slo_met:
        yield "slo", "the SLO was not met at any rate in every repeat"
    yield from _accuracy(claims.gate, reference)
    launches = sum(repeat.boundary_urps is not None for repeat in claims.repeats)
    if launches < MIN_LAUNCHES:
        found = f"{launches} launch{'es' if launches != 1 else ''}"
        yield "launches", f"a boundary from {found}; {MIN_LAUNCHES} are needed"
    yield from _long_run(claims.long_run)
    if fields := not_recorded(run.run.spec.setup.to_json()):
        yield "setup", f"not recorded: {', '.join(map(inline, fields))}"


def _stated(standing: RunStanding) -> Iterator[tuple[Code, str]]:
    for told in standing.counting("withdrawn"):
        yield "withdrawn", f"withdrawn by its publisher: {told.signed.reason}"
    for told in standing.counting("superseded"):
        yield "superseded", f"superseded by another run of its publisher: {told.signed.reason}"
    for told in standing.counting("disputed"):
        yield "disputed", f"disputed by {told.key.name}: {told.signed.reason}"


def _long_run(claim: LongRunClaim) -> Iterator[tuple[Code, str]]:
    if claim.outcome == "none":
        yield "long-run", f"goodput is not corrected to the long run: {claim.text}"
    elif claim.outcome == "refused":
        yield "long-run", f"the correction to the long run is refused: {claim.text}"


def _accuracy(gate: GateClaim, reference: ValidatedRun | None) -> Iterator[tuple[Code, str]]:
    if gate.outcome == "passed":
        if why := _why_no_reference(gate, reference):
            yield "accuracy", why
    elif gate.outcome != "reference":
        yield "accuracy", gate.text


def _why_no_reference(gate: GateClaim, reference: ValidatedRun | None) -> str | None:
    """Say why what a gate was passed against does not count; None: it does."""
    against = f"the accuracy gate was passed against run {gate.reference_run}"
    if reference is None:
        return f"{against}, which is not here with these answers"
    if not reference.standing.key.trusted:
        # Else anybody could bring a reference that is easily matched.
        return f"{against}, whose key {reference.standing.key.text}"
    compared = reference.claims.gate
    for weak, state in (
        (reference.standing.retracted, "was taken back"),
        (reference.standing.disputed, "is disputed"),
        (reference.run.simulated, "is simulated"),
        (reference.run.status != "complete", "is interrupted"),
        # It may be the allowed drop below another, and that below a third.
        (compared.outcome == "passed", "is no baseline: it was itself compared with another"),
    ):
        if weak:
            return f"{against}, which {state}"
    if compared.outcome != "reference":
        return f"the run whose answers were compared with did not pass: {compared.text}"
    return None
