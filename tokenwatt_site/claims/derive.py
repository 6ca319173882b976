"""derive(spec, evidence) -> claims: the only place that makes a published number.

Integers, `math.fsum`, order statistics and aggregated floats only, so that another machine and
another language come to the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenwatt_site.claims.accuracy import AccuracyFound, accuracy_claims
from tokenwatt_site.claims.bandwidth import bandwidth_claims
from tokenwatt_site.claims.caveats import (
    caveats,
    circumstances,
    contradictions,
    of_long_run,
)
from tokenwatt_site.claims.energy import EnergyClaims, energy_claims, idle_of, trial_energy
from tokenwatt_site.claims.long_run import LongRunClaims, difference, long_run_claims
from tokenwatt_site.claims.modelled import BandwidthClaims
from tokenwatt_site.claims.pooled import absent, pooled
from tokenwatt_site.claims.power_caveats import host_caveats, power_caveats
from tokenwatt_site.claims.replicas import replica_caveats, replica_claims
from tokenwatt_site.energy.idle import Idle
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.goodput import (
    Judgement,
    at_quantile,
    boundary_urps,
    bracket,
    carries,
    defined,
    fewest,
    order_statistic,
    quantile,
    sorted_values,
    within_all,
)
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
from tokenwatt_site.trials import Evidence, Trial, read_trials, tokens_in_window
from tokenwatt_site.validity import highest_rate_urps, lag_ns, stamp_ns, verdict
from tokenwatt_site.windows import windows_of

__all__ = ["Data", "Evidence", "derive", "derive_data"]


def derive(spec: Spec, evidence: Evidence) -> Claims:
    """Make every published number from the evidence.

    Raises:
        InputError: the evidence does not belong to this spec or contradicts itself.
        SpecError: the workload of the spec is not one that the generator can draw.
    """
    data = derive_data(spec, evidence)
    return data.claims(data.replay())


@dataclass(frozen=True, slots=True)
class Data:
    """All that follows from the evidence without a replay of the engine model.

    Attributes:
        spec: what was asked for.
        evidence: what it follows from.
        trials: those of the journal, with their requests.
        trial_claims: one for each.
        repeats: what each came to.
        tops: of each repeat that has one the trial at its highest passing rate.
        metrics: all but those of the long run.
        energy: of the windows of `tops`.
        traffic: likewise.
        answers: scores, gate, and what load does to answers.
    """

    spec: Spec
    evidence: Evidence
    trials: Sequence[Trial]
    trial_claims: tuple[TrialClaim, ...]
    repeats: tuple[RepeatClaim, ...]
    tops: tuple[Trial, ...]
    metrics: tuple[MetricClaim, ...]
    energy: EnergyClaims
    traffic: BandwidthClaims
    answers: AccuracyFound

    def replay(self) -> LongRunClaims:
        """Replay the engine model: seconds, where all else takes a part of one.

        Raises:
            InputError: the fit does not show what it states.
        """
        return long_run_claims(self.spec, self.evidence, self.trials, self.repeats, self.tops)

    def claims(self, replayed: LongRunClaims) -> Claims:
        """Return the claims of a run whose long run is `replayed`."""
        spec, evidence, trials, repeats = self.spec, self.evidence, self.trials, self.repeats
        metrics = (*replayed.metrics, *self.metrics)
        return Claims(
            slo_met=bool(self.tops) and all(r.highest_pass_urps is not None for r in repeats),
            trials=self.trial_claims,
            repeats=repeats,
            metrics=metrics,
            distributions=_distributions(self.tops),
            boards=self.energy.boards,
            roles=self.energy.roles,
            replicas=replica_claims(spec, evidence.journal, self.tops),
            outcomes=(*self.energy.outcomes, *self.traffic.outcomes),
            accuracy=self.answers.accuracy,
            gate=self.answers.gate,
            under_load=self.answers.under_load,
            long_run=replayed.claim.model_copy(update={"difference": difference(metrics)}),
            not_covered=(
                *caveats(spec, repeats, metrics),
                *replica_caveats(spec, modelled=replayed.claim.outcome == "accepted"),
                *of_long_run(spec, windows_of(spec, evidence.trace), replayed.claim, repeats),
                *contradictions(trials, self.trial_claims),
                *self.traffic.not_covered,
                *circumstances(spec, evidence.journal, trials, evidence.trace),
                *power_caveats(spec, evidence, self.energy.energies),
                *host_caveats(evidence),
                *self.answers.not_covered,
            ),
        )


def derive_data(spec: Spec, evidence: Evidence, trials: Sequence[Trial] | None = None) -> Data:
    """Make every number that takes no replay.

    Args:
        spec: what was asked for.
        evidence: what there is.
        trials: what `read_trials` returns for both, where it is known already.

    Raises:
        InputError, SpecError: as of `derive`.
    """
    trials = read_trials(spec, evidence) if trials is None else trials
    idles = idle_of(spec, evidence)
    claimed = tuple(_trial_claim(spec, evidence, trial, idles) for trial in trials)
    repeats, tops = _repeats(spec, trials, claimed)
    energy = energy_claims(spec, evidence, tops)
    traffic = bandwidth_claims(spec, evidence, tops, energy.energies)
    answers = accuracy_claims(spec, evidence)
    return Data(
        spec=spec,
        evidence=evidence,
        trials=trials,
        trial_claims=claimed,
        repeats=repeats,
        tops=tops,
        metrics=(
            *_rates(spec, trials, repeats, tops),
            *_latencies(spec, tops),
            *_shares(spec, tops),
            *_cached(spec, tops),
            *energy.metrics,
            *traffic.metrics,
            *answers.metrics,
        ),
        energy=energy,
        traffic=traffic,
        answers=answers,
    )


def _trial_claim(
    spec: Spec, evidence: Evidence, trial: Trial, idles: Mapping[int, Idle]
) -> TrialClaim:
    outcome, reason = verdict(spec, trial)
    lags, uncertainty_ns = [lag_ns(r) for r in trial.records], stamp_ns(trial)
    start, end = trial.window_ns
    energy = None if trial.stopped_early else trial_energy(spec, evidence, trial, idles)
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
        complete=trial.complete,
        within_all=_within_all(spec, trial),
        failures=trial.failures,
        objectives=tuple(
            ObjectiveResult(
                label=j.objective.label,
                n=j.n,
                undefined=j.undefined,
                misses=j.misses,
                allowed=j.allowed,
                value_ms=_carried_ms(j),
                passed=j.outcome == "PASS",
            )
            for j in trial.judgements(spec.setup.slo)
        ),
        output_tokens_per_s=None if delivered is None else delivered * 1e9 / (end - start),
        lag_p99_ms=quantile(lags, 0.99) / 1e6 if lags else None,
        uncertainty_p99_ms=None if uncertainty_ns is None else uncertainty_ns / 1e6,
        client_cpu_percent=trial.client_cpu_ppm / 1e4,
        energy_j=None if energy is None or energy.energy_mj is None else energy.energy_mj / 1e3,
        started=trial.started,
    )


def _carried_ms(found: Judgement) -> float | None:
    if found.value_ns is None or not carries(found.objective.quantile, found.n):
        return None
    return found.value_ns / 1e6


def _repeats(
    spec: Spec, trials: Sequence[Trial], claimed: Sequence[TrialClaim]
) -> tuple[tuple[RepeatClaim, ...], tuple[Trial, ...]]:
    """Return the repeats, and of each that has one the trial at its highest passing rate.

    A verdict is about rows: of a repeat, those of the band that it offered last count.
    """
    repeats, tops = [], []
    last_band = {trial.repeat: trial.band for trial in trials}
    for repeat in sorted(last_band):
        own = [
            (trial, claim)
            for trial, claim in zip(trials, claimed, strict=True)
            if trial.repeat == repeat and trial.band == last_band[repeat]
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
                band_urps=own[-1][0].band.low_urps,
                scored=own[-1][0].realisation.scored,
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
    passing = pooled("highest_pass_rate", [t.rate_urps / 1e6 for t in tops])
    found = [r for r in repeats if r.boundary_urps is not None]
    if len(found) < len(repeats) or not repeats:
        reason = _open_reason(spec, trials, repeats)
        return (
            absent("goodput", reason),
            absent("boundary_rate", reason),
            passing if tops else absent("highest_pass_rate", reason),
            absent("input_throughput", reason),
        )
    rates = [(r.boundary_urps or 0) / 1e6 for r in repeats]
    complete = [t.complete / t.realisation.scored for t in tops]
    outputs = [
        rate * t.realisation.mean_output_tokens * share
        for rate, t, share in zip(rates, tops, complete, strict=True)
    ]
    inputs = [rate * t.realisation.mean_input_tokens for rate, t in zip(rates, tops, strict=True)]
    return (
        pooled("goodput", outputs),
        pooled("boundary_rate", rates),
        passing,
        pooled("input_throughput", inputs),
    )


def _open_reason(spec: Spec, trials: Sequence[Trial], repeats: Sequence[RepeatClaim]) -> str:
    """Say why the first repeat without a boundary has none."""
    for repeat in repeats:
        own = [t for t in trials if t.repeat == repeat.repeat and verdict(spec, t)[0] != "INVALID"]
        if repeat.boundary_urps is not None or not own:
            continue
        rates = [t.rate_urps / 1e6 for t in own]
        if repeat.highest_pass_urps is None:
            return f"no trial met the SLO, down to {min(rates):g} requests/s"
        if repeat.lowest_fail_urps is None:
            more = _more(spec, own[0], repeat.highest_pass_urps)
            return f"no trial broke the SLO, up to {max(rates):g} requests/s{more}"
        ratio = spec.protocol.bracket_ratio
        return f"the bracket is wider than the {ratio:g} that this mode asks for"
    return "no valid trial was completed"


def _more(spec: Spec, trial: Trial, passed_urps: int) -> str:
    """Say what kept the search from a higher rate than the one that passed, if anything did."""
    drawn, test = trial.realisation, trial.self_test
    if passed_urps < (ceiling := highest_rate_urps(spec, drawn, test)):
        return ""
    if ceiling < highest_rate_urps(spec, drawn, None):
        return "; the client holds no more, by its self-test"
    if ceiling >= spec.protocol.max_urps:
        return "; raise protocol.max_rate"
    return "; raise protocol.scored and lead_in, whose window is too short beyond"


def _latencies(spec: Spec, tops: Sequence[Trial]) -> tuple[MetricClaim, ...]:
    wanted: list[tuple[str, float]] = [(o.metric, o.quantile) for o in spec.setup.slo]
    wanted += [(key, q) for key in ("ttft", "tpot", "e2e") for q in (0.5, 0.9)]
    wanted += [("ttft_from_send", o.quantile) for o in spec.setup.slo if o.metric == "ttft"]
    return tuple(_latency(key, q, tops) for key, q in dict.fromkeys(wanted))


def _latency(key: str, q: float, tops: Sequence[Trial]) -> MetricClaim:
    name = key.upper() if key in {"ttft", "tpot", "e2e"} else METRICS[key].label
    label = f"{name} p{q * 100:g}"
    least = min((defined(key, trial.scored) for trial in tops), default=0)
    if least and not carries(q, least):
        return absent(
            key,
            f"withheld: {least:,} requests do not carry it; of fewer than {fewest(q):,} it is the"
            " maximum",
            label,
        )
    values = [order_statistic(key, trial.scored, q) for trial in tops]
    known = [value / 1e6 for value in values if value is not None]
    if not tops:
        return absent(key, "no trial met the SLO", label)
    if len(known) < len(tops):
        return absent(key, "undefined, or beyond what was seen to end", label)
    return pooled(key, known, label)


def _shares(spec: Spec, tops: Sequence[Trial]) -> tuple[MetricClaim, ...]:
    if not tops:
        return tuple(absent(key, "no trial met the SLO") for key in ("attainment", "complete"))
    return (
        pooled("attainment", [100 * _within_all(spec, t) / t.realisation.scored for t in tops]),
        pooled("complete", [100 * t.complete / t.realisation.scored for t in tops]),
    )


def _cached(spec: Spec, tops: Sequence[Trial]) -> tuple[MetricClaim, ...]:
    """Return the share of prompts that came from the engine's cache; nothing where none may."""
    key = "cached_prompt_share"
    if spec.setup.conversation is None:
        return ()
    if not tops:
        return (absent(key, "no trial met the SLO"),)
    shares = []
    for trial in tops:
        # An engine may leave the count out where it is 0.
        told = [r for r in trial.scored if r.prompt_tokens]
        cached = [r.cached_tokens for r in told if r.cached_tokens is not None]
        if not cached:
            return (absent(key, "the engine does not tell"),)
        shares.append(100 * sum(cached) / sum(r.prompt_tokens or 0 for r in told))
    return (pooled(key, shares),)


def _within_all(spec: Spec, trial: Trial) -> int:
    return len(within_all(spec.setup.slo, trial.scored))


def _distributions(tops: Sequence[Trial]) -> tuple[Distribution, ...]:
    """Return what is known of each latency's order statistics, failures above all others."""
    scored = [record for trial in tops for record in trial.scored]
    failed = sum(record.status is not Status.OK for record in scored)
    result = []
    for key in ("ttft", "tpot", "e2e"):
        known = sorted_values(key, scored)
        n = len(known) + failed
        values = (at_quantile(known, n, (i + 1) / 100) for i in range(100))
        values_ms = tuple(value / 1e6 for value in values if value is not None)
        if values_ms:
            result.append(Distribution(key=key, n=n, values_ms=values_ms))
    return tuple(result)
