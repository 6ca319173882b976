"""derive(spec, evidence) -> claims: the only place that makes a published number.

Integers, `math.fsum`, order statistics and aggregated floats only, so that another machine and
another language come to the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tokenwatt_site import statistics
from tokenwatt_site.caveats import caveats
from tokenwatt_site.energy import window_energy
from tokenwatt_site.evidence import PowerLog, RequestRecord, Status
from tokenwatt_site.goodput import METRIC_OF, boundary_urps, bracket, meets_all, quantile
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.run import (
    Claims,
    Distribution,
    MetricClaim,
    ObjectiveResult,
    RepeatClaim,
    TrialClaim,
)
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Evidence, Trial, read_trials, verdict

__all__ = ["Evidence", "derive", "tokens_in_window"]


def derive(spec: Spec, evidence: Evidence) -> Claims:
    """Make every published number from the evidence.

    Raises:
        InputError: the evidence does not belong to this spec or contradicts itself.
        SpecError: the workload of the spec is not one that the generator can draw.
    """
    trials = read_trials(spec, evidence)
    claimed = tuple(_trial_claim(spec, trial) for trial in trials)
    repeats, tops = _repeats(spec, trials, claimed)
    opening = evidence.journal[0].data
    metrics = (
        *_rates(spec, trials, repeats, tops),
        *_latencies(spec, tops),
        *_shares(spec, tops),
        *_energy(evidence.power, tops, str(opening.get("power_reason") or "no power log")),
        _absent("mbu", "bytes per decode step are neither modelled nor measured by this version"),
        _absent("accuracy", "the accuracy gate was not run: this version measures speed alone"),
    )
    return Claims(
        slo_met=bool(tops) and all(r.highest_pass_urps is not None for r in repeats),
        trials=claimed,
        repeats=repeats,
        metrics=metrics,
        distributions=_distributions(tops),
        not_covered=caveats(spec, repeats, metrics),
    )


def _trial_claim(spec: Spec, trial: Trial) -> TrialClaim:
    outcome, reason = verdict(spec, trial)
    lags = [r.sent_ns - r.due_ns for r in trial.records if r.sent_ns is not None]
    stamps = [r.uncertainty_ns for r in trial.records if r.first_ns is not None]
    start, end = trial.window_ns
    delivered = None if trial.stopped_early else tokens_in_window(trial.records, start, end)
    return TrialClaim(
        repeat=trial.repeat,
        trial=trial.number,
        rate_urps=trial.rate_urps,
        realisation=trial.realisation.number,
        verdict=outcome,
        reason=reason,
        stopped_early=trial.stopped_early,
        scored=trial.realisation.scored,
        complete=sum(r.status is Status.OK for r in trial.scored),
        within_all=sum(meets_all(spec.setup.slo, r) for r in trial.scored),
        objectives=tuple(
            ObjectiveResult(
                label=j.objective.label,
                n=j.n,
                undefined=j.undefined,
                misses=j.misses,
                allowed=j.allowed,
                value_ms=None if j.value_ns is None else j.value_ns / 1e6,
                passed=j.outcome == "PASS",
            )
            for j in trial.judgements(spec.setup.slo)
        ),
        output_tokens_per_s=None if delivered is None else delivered * 1e9 / (end - start),
        lag_p99_ms=quantile(lags, 0.99) / 1e6 if lags else None,
        uncertainty_p99_ms=quantile(stamps, 0.99) / 1e6 if stamps else None,
        started=trial.started,
    )


def tokens_in_window(records: Sequence[RequestRecord], start_ns: int, end_ns: int) -> float:
    """Return the output tokens that arrived in [start_ns, end_ns].

    The first event's tokens arrive at first_ns, the others evenly from there to last_ns.
    """
    parts = []
    for r in records:
        if r.first_ns is None or r.last_ns is None or r.output_tokens is None:
            continue
        first = r.first_tokens or 1
        parts.append(float(first) if start_ns <= r.first_ns <= end_ns else 0.0)
        span = r.last_ns - r.first_ns
        inside = min(r.last_ns, end_ns) - max(r.first_ns, start_ns)
        if span > 0 and inside > 0:
            parts.append((r.output_tokens - first) * inside / span)
    return math.fsum(parts)


def _repeats(
    spec: Spec, trials: Sequence[Trial], claimed: Sequence[TrialClaim]
) -> tuple[tuple[RepeatClaim, ...], tuple[Trial, ...]]:
    """Return the repeats, and of each that has one the trial at its highest passing rate."""
    repeats, tops = [], []
    for repeat in sorted({trial.repeat for trial in trials}):
        own = [
            (trial, claim)
            for trial, claim in zip(trials, claimed, strict=True)
            if trial.repeat == repeat
        ]
        low, high = bracket(
            [claim.rate_urps for _, claim in own if claim.verdict == "PASS"],
            [claim.rate_urps for _, claim in own if claim.verdict == "FAIL"],
        )
        narrow = low is not None and high is not None and high <= low * spec.protocol.bracket_ratio
        at_low = [t for t, claim in own if (claim.verdict, claim.rate_urps) == ("PASS", low)]
        tops += at_low[:1]
        window_ns = at_low[0].window_ns if at_low else None
        repeats.append(
            RepeatClaim(
                repeat=repeat,
                highest_pass_urps=low,
                lowest_fail_urps=high,
                boundary_urps=boundary_urps(low, high) if narrow else None,
                window_s=(window_ns[1] - window_ns[0]) / 1e9 if window_ns else None,
            )
        )
    return tuple(repeats), tuple(tops)


def _rates(
    spec: Spec, trials: Sequence[Trial], repeats: Sequence[RepeatClaim], tops: Sequence[Trial]
) -> tuple[MetricClaim, ...]:
    passing = _pooled("highest_pass_rate", [t.rate_urps / 1e6 for t in tops])
    found = [r for r in repeats if r.boundary_urps is not None]
    if len(found) < len(repeats) or not repeats:
        reason = _open_reason(spec, trials, repeats)
        return (
            _absent("goodput", reason),
            _absent("boundary_rate", reason),
            passing if tops else _absent("highest_pass_rate", reason),
            _absent("input_throughput", reason),
        )
    rates = [(r.boundary_urps or 0) / 1e6 for r in repeats]
    complete = [_share(t, lambda r: r.status is Status.OK) for t in tops]
    outputs = [
        rate * t.realisation.mean_output_tokens * share
        for rate, t, share in zip(rates, tops, complete, strict=True)
    ]
    inputs = [rate * t.realisation.mean_input_tokens for rate, t in zip(rates, tops, strict=True)]
    return (
        _pooled("goodput", outputs),
        _pooled("boundary_rate", rates),
        passing,
        _pooled("input_throughput", inputs),
    )


def _open_reason(spec: Spec, trials: Sequence[Trial], repeats: Sequence[RepeatClaim]) -> str:
    rates = [t.rate_urps / 1e6 for t in trials]
    if not rates:
        return "no trial was completed"
    if any(r.highest_pass_urps is None for r in repeats):
        return f"no trial met the SLO, down to {min(rates):g} requests/s"
    if any(r.lowest_fail_urps is None for r in repeats):
        return f"no trial broke the SLO, up to {max(rates):g} requests/s; raise protocol.max_rate"
    return f"the bracket is wider than the {spec.protocol.bracket_ratio:g} that this mode asks for"


def _latencies(spec: Spec, tops: Sequence[Trial]) -> tuple[MetricClaim, ...]:
    wanted = [(o.metric, o.quantile) for o in spec.setup.slo]
    wanted += [(key, q) for key in ("ttft", "tpot", "e2e") for q in (0.5, 0.9)]
    claims = [
        _latency(key, f"{key.upper()} p{q * 100:g}", q, METRIC_OF[key], tops)
        for key, q in dict.fromkeys(wanted)
    ]
    for q in dict.fromkeys(o.quantile for o in spec.setup.slo if o.metric == "ttft"):
        label = f"TTFT from send p{q * 100:g}"
        claims.append(_latency("ttft_from_send", label, q, _from_send, tops))
    return tuple(claims)


def _from_send(record: RequestRecord) -> int | None:
    if record.first_ns is None or record.sent_ns is None:
        return None
    return record.first_ns - record.sent_ns


def _latency(
    key: str,
    label: str,
    q: float,
    metric: Callable[[RequestRecord], int | None],
    tops: Sequence[Trial],
) -> MetricClaim:
    values = []
    for trial in tops:
        known = [value for r in trial.scored if (value := metric(r)) is not None]
        if known:
            values.append(quantile(known, q) / 1e6)
    if not tops or len(values) < len(tops):
        return _absent(key, "no trial met the SLO" if not tops else "undefined here", label)
    return _pooled(key, values, label)


def _shares(spec: Spec, tops: Sequence[Trial]) -> tuple[MetricClaim, ...]:
    if not tops:
        return tuple(_absent(key, "no trial met the SLO") for key in ("attainment", "complete"))
    slo = spec.setup.slo
    return (
        _pooled("attainment", [100 * _share(t, lambda r: meets_all(slo, r)) for t in tops]),
        _pooled("complete", [100 * _share(t, lambda r: r.status is Status.OK) for t in tops]),
    )


def _share(trial: Trial, condition: Callable[[RequestRecord], bool]) -> float:
    return sum(map(condition, trial.scored)) / trial.realisation.scored


def _energy(power: PowerLog | None, tops: Sequence[Trial], reason: str) -> tuple[MetricClaim, ...]:
    keys = ("tokens_per_joule", "joules_per_token", "board_power")
    if power is None or not tops:
        why = reason if power is None else "no trial met the SLO"
        return tuple(_absent(key, why) for key in keys)
    per_joule, watts = [], []
    for trial in tops:
        start, end = trial.window_ns
        energy = window_energy(power, trial.epoch_ns + start, trial.epoch_ns + end)
        if energy.energy_mj is None or energy.energy_mj <= 0:
            why = energy.reason or "the boards reported no energy"
            return tuple(_absent(key, why) for key in keys)
        tokens = tokens_in_window(trial.records, start, end)
        per_joule.append(tokens / (energy.energy_mj / 1e3))
        watts.append((energy.mean_power_mw(end - start) or 0.0) / 1e3)
    return (
        _pooled("tokens_per_joule", per_joule),
        _pooled("joules_per_token", [1 / value for value in per_joule]),
        _pooled("board_power", watts),
    )


def _distributions(tops: Sequence[Trial]) -> tuple[Distribution, ...]:
    result = []
    for key, metric in METRIC_OF.items():
        values = sorted(v for t in tops for r in t.scored if (v := metric(r)) is not None)
        if values:
            cut = tuple(quantile(values, (i + 1) / 100) / 1e6 for i in range(100))
            result.append(Distribution(key=key, n=len(values), values_ms=cut))
    return tuple(result)


def _pooled(key: str, values: Sequence[float], label: str | None = None) -> MetricClaim:
    if not values:
        return _absent(key, "not measured", label)
    pooled = statistics.pool(values, METRICS[key].pooling)
    return MetricClaim(
        key=key,
        label=label or METRICS[key].label,
        value=pooled.value,
        repeats=tuple(values),
        low=pooled.low,
        high=pooled.high,
        new_launch_low=pooled.new_launch_low,
        new_launch_high=pooled.new_launch_high,
    )


def _absent(key: str, reason: str, label: str | None = None) -> MetricClaim:
    return MetricClaim(
        key=key, label=label or METRICS[key].label, value=None, repeats=(), reason=reason
    )
