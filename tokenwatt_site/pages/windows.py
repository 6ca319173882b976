"""When, on the clock of a run, its scored windows were, and when the engine had no request."""

from __future__ import annotations

from dataclasses import dataclass

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.run import Claims, TrialClaim
from tokenwatt_site.trials import read_trials

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Spans:
    """(start, end) in ns: the windows at the highest passing rates, and the loaded idle ones."""

    windows: tuple[Span, ...]
    idle: tuple[Span, ...]


def spans(configuration: Configuration) -> Spans:
    """Return the spans that a chart over time marks."""
    run = configuration.headline
    top = {(trial.repeat, trial.trial) for trial in tops(run.claims)}
    windows = tuple(
        trial.window_ns_of_run
        for trial in read_trials(run.run.spec, run.evidence)
        if (trial.repeat, trial.number) in top
    )
    told = (line.data for line in run.evidence.journal if line.event == "idle")
    ends = ((data.get("start_ns"), data.get("end_ns")) for data in told)
    idle = tuple((a, b) for a, b in ends if isinstance(a, int) and isinstance(b, int))
    return Spans(windows, idle)


def tops(claims: Claims) -> tuple[TrialClaim, ...]:
    """Return each repeat's trial at its highest passing rate, where it has one."""
    passed = {(t.repeat, t.rate_urps): t for t in reversed(claims.trials) if t.verdict == "PASS"}
    rates = ((r.repeat, r.highest_pass_urps) for r in claims.repeats)
    return tuple(passed[repeat, urps] for repeat, urps in rates if urps is not None)
