"""Whether a trial is a measurement of the engine, and with what verdict.

INVALID, with the reason, where client, tokens, window or load were not what was planned; else PASS
or FAIL, a fact about this realisation at this rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from tokenwatt_site.errors import Problem, SpecError
from tokenwatt_site.evidence import Status
from tokenwatt_site.goodput import decide, quantile
from tokenwatt_site.run import Verdict
from tokenwatt_site.spec import MIN_WINDOW_S, Spec
from tokenwatt_site.trials import Trial
from tokenwatt_site.workload import Realisation, Workload, require_rows

MAX_LAG_NS = 1_000_000
LIMIT_SHARE = Fraction(5, 1000)
MIN_SENT_SHARE = Fraction(995, 1000)
MAX_LAST_SEND_SHARE = Fraction(1, 100)
MAX_CACHED_SHARE = Fraction(1, 100)
MAX_UNSCORED_FAILED_SHARE = Fraction(1, 100)
MAX_PACE = 1000
"""Of the scored rows of a trace, in rates of the whole: beyond, they are one burst."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a trial is no measurement. `transient`: another try may do better."""

    reason: str
    transient: bool = False


def highest_rate_urps(spec: Spec, realisation: Realisation) -> int:
    """Return the highest rate at which this realisation fills engine and window as its mode asks.

    Rows are fixed, so a higher rate makes a shorter window. Demo mode asks for nothing.
    """
    if spec.protocol.mode == "demo":
        return round(spec.protocol.max_rate * 1e6)
    rows, base_urps = realisation.scored_rows, 1_000_000
    due = realisation.due_ns(base_urps)
    ratios = [Fraction(due[rows.stop - 1] - due[rows.start], MIN_WINDOW_S * 10**9)]
    if (lead_ns := fill_ns(spec)) > 0:
        ratios.append(Fraction(due[rows.start], lead_ns))
    # 1e-6 below: due times are rounded down.
    return min(math.floor(min(ratios) * base_urps) - 1, round(spec.protocol.max_rate * 1e6))


def require_playable(spec: Spec, workload: Workload) -> None:
    """See that a trace is long enough, and that each part of it takes time where time is measured.

    Raises:
        SpecError: naming the repeat for which it is or does not.
    """
    protocol = spec.protocol
    if workload.trace is None:
        return
    require_rows(workload.trace, protocol.rows, repeats=protocol.repeats)
    for repeat in range(1, protocol.repeats + 1):
        part = workload.realisation(
            repeat, lead_in=protocol.lead_in, scored=protocol.scored, tail=protocol.tail
        )
        pace = part.scored_pace
        at_once = pace is None or pace > MAX_PACE
        if at_once or highest_rate_urps(spec, part) < 1:
            what = "scored rows" if at_once else "lead-in"
            raise SpecError(
                Problem(
                    f"the {what} of repeat {repeat} all come at once",
                    field="trace",
                    expected="arrivals that take some time, as do lead-in and window",
                    remedy="Give another part of the trace, or other lead_in, scored or tail.",
                )
            )


def fill_ns(spec: Spec) -> int:
    """Return how long a lead-in must load the engine: 2 x longest answer x TPOT limit."""
    limits = [o.limit_ns for o in spec.setup.slo if o.metric == "tpot"]
    return 2 * spec.setup.output_tokens.longest * min(limits, default=0)


def fault(spec: Spec, trial: Trial) -> Fault | None:
    """Say why this trial is no measurement of the engine, or None. `method` lists the limits."""
    if trial.abandoned:
        return Fault("the measurement was broken off; the repeat was done again from its start")
    if not trial.engine_alive:
        return Fault("the engine died")
    return (
        _client_fault(spec, trial)
        or _token_fault(trial)
        or _window_fault(spec, trial)
        or _load_fault(spec, trial)
    )


def _client_fault(spec: Spec, trial: Trial) -> Fault | None:
    records = trial.records
    unsent = sum(r.status is Status.NOT_SENT for r in records)
    if len(records) - unsent < MIN_SENT_SHARE * len(records):
        return Fault(f"{unsent} of {len(records)} requests could not be sent", transient=True)
    ttft_limits = [o.limit_ns for o in spec.setup.slo if o.metric == "ttft"]
    share = math.floor(LIMIT_SHARE * min(ttft_limits)) if ttft_limits else MAX_LAG_NS
    lags = [r.sent_ns - r.due_ns for r in records if r.sent_ns is not None]
    start, end = trial.window_ns
    checks: list[tuple[str, int, int]] = []
    if lags:
        lag_limit = max(MAX_LAG_NS, share)
        checks.append(("p99 dispatch lag", quantile(lags, 0.99), lag_limit))
        # In a short window 1% is less than what any request may be late.
        latest = max(math.floor(MAX_LAST_SEND_SHARE * (end - start)), lag_limit)
        checks.append(("lateness of the last send", lags[-1], latest))
    stamps = [r.uncertainty_ns for r in records if r.first_ns is not None]
    if stamps:
        checks.append(("p99 stamp uncertainty", quantile(stamps, 0.99), share))
    for what, found, limit in checks:
        if found > limit:
            text = f"{what} {found / 1e6:.2f} ms, limit {limit / 1e6:.2f} ms"
            return Fault(text, transient=True)
    return None


def _token_fault(trial: Trial) -> Fault | None:
    # A chat template alone may be longer than a short prompt; preflight measured it.
    least = trial.chat_overhead + 1 if trial.chat_overhead else 0
    told = [(r.prompt_tokens, max(r.prompt_asked, least)) for r in trial.records if r.prompt_tokens]
    off = [(found, asked) for found, asked in told if abs(found - asked) > max(2, asked // 100)]
    if off:
        found, asked = off[0]
        return Fault(
            f"{len(off)} prompts had another length (asked {asked} tokens, engine saw {found})"
        )
    more = sum((r.output_tokens or 0) > r.output_asked for r in trial.records)
    if more:
        return Fault(f"{more} answers had more tokens than were asked for")
    return _cache_fault(trial, prompted=sum(found for found, _ in told))


def _cache_fault(trial: Trial, prompted: int) -> Fault | None:
    """Say that more came from the engine's cache than what earlier requests of the trial held."""
    excess = 0
    sent_before = trial.realisation.sent_before()
    for record, known in zip(trial.records, sent_before, strict=False):  # it may have ended early
        if record.prompt_tokens is None:
            continue  # nor is it in `prompted`
        # A chat template begins before the prompt does, so what is cached of both has it too.
        explained = known + trial.chat_overhead if known else 0
        excess += max(0, (record.cached_tokens or 0) - explained)
    if excess > MAX_CACHED_SHARE * prompted:
        beyond = " beyond what was sent before" if any(sent_before) else ""
        return Fault(f"{excess} of {prompted} prompt tokens came from the engine's cache{beyond}")
    return None


def _window_fault(spec: Spec, trial: Trial) -> Fault | None:
    if spec.protocol.mode == "demo":
        return None
    start, end = trial.window_ns
    if end - start < MIN_WINDOW_S * 10**9:
        return Fault(f"window of {(end - start) / 1e9:.0f} s, at least {MIN_WINDOW_S} s are needed")
    if start < fill_ns(spec):
        return Fault(
            f"lead-in of {start / 1e9:.0f} s, at least {fill_ns(spec) / 1e9:.0f} s are needed"
        )
    return None


def _load_fault(spec: Spec, trial: Trial) -> Fault | None:
    """Say why a trial that did not fail was not under the load that was planned."""
    judgements = trial.judgements(spec.setup.slo)
    if unmeasured := [j.objective.label for j in judgements if not j.measured]:
        return Fault(f"{', '.join(unmeasured)} was measured on no request")
    if decide(judgements) == "FAIL":
        return None
    if trial.due_ns[-1] < trial.scored_end_ns:
        return Fault("the tail ended before the last scored request; raise protocol.tail")
    rows = trial.realisation.scored_rows
    others = [r for r in trial.records if r.row not in rows and r.status is not Status.CENSORED]
    failed = sum(r.status is not Status.OK for r in others)
    if failed > MAX_UNSCORED_FAILED_SHARE * len(others):
        return Fault(f"{failed} of {len(others)} lead-in and tail requests failed")
    return None


def verdict(spec: Spec, trial: Trial) -> tuple[Verdict, str | None]:
    """Return (PASS | FAIL | INVALID, reason)."""
    if found := fault(spec, trial):
        return "INVALID", found.reason
    failed = [
        f"{j.objective.label}: {j.misses} of {j.n} miss, {j.allowed} may"
        for j in trial.judgements(spec.setup.slo)
        if j.outcome == "FAIL"
    ]
    if not failed:
        return "PASS", None
    failed += [f"{n} {name.replace('_', ' ')}" for name, n in trial.failures.items()]
    return "FAIL", "; ".join(failed)
