"""What may rank: one function, with a reason for each exclusion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tokenwatt_site.claims.caveats import not_recorded
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.metrics import METRICS

Code: TypeAlias = Literal[
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
    """Why a configuration does not rank: a word to count by, and a sentence for the reader."""

    code: Code
    text: str


def reasons(configuration: Configuration) -> tuple[Exclusion, ...]:
    """Return why `configuration` may not rank, the gravest first; empty means that it may.

    That the numbers were recomputed needs no rule: a ValidatedRun's always are.
    """
    return tuple(Exclusion(code, text) for code, text in _all(configuration))


def _all(configuration: Configuration) -> Iterator[tuple[Code, str]]:
    headline, claims = configuration.headline, configuration.claims
    if configuration.simulated:
        yield "simulated", "the engine was simulated: nothing was measured"
    if headline.run.status != "complete":
        yield "interrupted", "the run was interrupted"
    mode = headline.run.spec.protocol.mode
    if mode != "full":
        yield "mode", f"{mode} mode; only full mode ranks"
    if headline.key_state != "known":
        yield "key", f"the signing key {headline.keyid} is not registered"
    for outcome in claims.outcomes:
        if outcome.level == "INVALID":
            yield "physics", f"{METRICS[outcome.key].label} is INVALID: {outcome.text}"
    if not claims.slo_met:
        yield "slo", "the SLO was not met at any rate in every repeat"
    yield from _accuracy(configuration)
    launches = sum(repeat.boundary_urps is not None for repeat in claims.repeats)
    if launches < MIN_LAUNCHES:
        found = f"{launches} launch{'es' if launches != 1 else ''}"
        yield "launches", f"a boundary from {found}; {MIN_LAUNCHES} are needed"
    # The correction belongs to the engine model (DESIGN 5), which no run file carries yet.
    yield "long-run", "goodput is measured on one realisation and not corrected to the long run"
    if fields := not_recorded(configuration.setup.to_json()):
        yield "setup", f"not recorded: {', '.join(fields)}"


def _accuracy(configuration: Configuration) -> Iterator[tuple[Code, str]]:
    """A gate that was passed counts where the reference's own run can be looked at, and passed."""
    gate, reference = configuration.claims.gate, configuration.reference
    if gate.outcome not in {"passed", "reference"}:
        yield "accuracy", gate.text
    elif gate.outcome == "passed" and reference is None:
        yield (
            "accuracy",
            (
                f"the accuracy gate was passed against run {gate.reference_run}, which is not here"
                " with these answers"
            ),
        )
    elif reference is not None and reference.claims.gate.outcome in {"failed", "inconclusive"}:
        yield (
            "accuracy",
            f"the run whose answers were compared with did not pass: {reference.claims.gate.text}",
        )
