"""What the long run is claimed to be: corrected by the engine model, or why it is not.

The rule: at least 3 repeats, each with a boundary; models fitted without a repeat come to its
boundary within 3% (root mean square); in quick and full mode the trials spread over half an hour;
in that time the engine did not drift as far as the model tells; and it began to answer in the order
in which the model does. Where it is not met, nothing is corrected: the wrong model does more harm
than none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tokenwatt_site.claims.order import order_of
from tokenwatt_site.claims.pooled import absent, pooled
from tokenwatt_site.engine_model.load import Load, Played, play
from tokenwatt_site.engine_model.long_run import (
    Corrected,
    LongRun,
    Measured,
    lacks,
    long_load,
    long_run,
    mean_output_tokens,
    outlook,
)
from tokenwatt_site.engine_model.model import EngineModel, Family, Prices
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.goodput import tpot_ns, ttft_ns
from tokenwatt_site.run import (
    LONG_RUN_METRICS,
    Claims,
    LongRunClaim,
    MetricClaim,
    MissShare,
    ModelRepeat,
    ModelTrial,
    RepeatClaim,
)
from tokenwatt_site.spec import Spec
from tokenwatt_site.statistics import SYSTEMATIC, slope
from tokenwatt_site.trials import Evidence, Trial
from tokenwatt_site.windows import windows_of

MIN_SPREAD_S = 1800
MAX_DRIFT = 0.03
NEAR = (0.8, 1.25)
"""Of a repeat's boundary: trials beyond tell how a model fits other loads, not how time passes."""


@dataclass(frozen=True, slots=True)
class LongRunClaims:
    """The claim, and the metrics that follow from it."""

    claim: LongRunClaim
    metrics: tuple[MetricClaim, ...]

    @classmethod
    def told_by(cls, claims: Claims) -> LongRunClaims:
        """Return what claims say of it, as it stands there: nothing is replayed.

        Raises:
            InputError: they lack one of its metrics, or have one twice.
        """
        metrics = tuple(m for m in claims.metrics if m.key in LONG_RUN_METRICS)
        if (found := tuple(metric.key for metric in metrics)) != LONG_RUN_METRICS:
            raise InputError(
                Problem(
                    "are not those of the long run",
                    field="claims.metrics",
                    found=", ".join(found)[:200] or "none",
                    expected=", ".join(LONG_RUN_METRICS),
                )
            )
        return cls(claims.long_run, metrics)


def long_run_claims(
    spec: Spec,
    evidence: Evidence,
    trials: Sequence[Trial],
    repeats: Sequence[RepeatClaim],
    tops: Sequence[Trial],
) -> LongRunClaims:
    """Replay the engine model, where one was fitted, and judge it by the rule.

    Raises:
        InputError: the fit does not show what it states; see `engine_model.long_run`.
    """
    fit = evidence.model_fit
    if fit is None:
        return _without("none", "no engine model was fitted")
    load = long_load(windows_of(spec, evidence.trace))
    if load is None:
        return _without("none", "a recorded trace has no long run")
    loads = _loads(trials)
    measured = _measured(trials, loads, repeats)
    if not measured:
        return _without("refused", "no repeat has a boundary")
    if why := lacks(fit, [m.repeat for m in measured]):
        return _without("refused", why)
    found = long_run(fit, spec.setup.slo, measured, load)
    replayed = [_replayed(found.model, t, own) for t, own in zip(trials, loads, strict=True)]
    claim = _judged(spec, found, replayed, repeats)
    if claim.outcome != "accepted":
        return LongRunClaims(claim, _absent(f"refused: {claim.text}"))
    rates = [r.corrected_urps / 1e6 for r in found.repeats]
    mean = mean_output_tokens(load)
    outputs = [
        rate * mean * top.complete / top.realisation.scored
        for rate, top in zip(rates, tops, strict=True)
    ]
    return LongRunClaims(
        _with_outlook(claim, spec, found, load),
        (
            pooled("long_run_goodput", outputs, systematic=SYSTEMATIC),
            pooled("long_run_rate", rates, systematic=SYSTEMATIC),
        ),
    )


def difference(claims: Sequence[MetricClaim]) -> str | None:
    """Say in one sentence how the long run differs from what was measured; None: it is not told."""
    value = {claim.key: claim.value for claim in claims}
    corrected, measured = value.get("long_run_goodput"), value.get("goodput")
    if corrected is None or measured is None:
        return None
    percent = 100 * (corrected / measured - 1)
    if abs(percent) < 0.05:
        return "In the long run the engine keeps what was measured, to 0.1%."
    way = "less" if percent < 0 else "more"
    return (
        f"In the long run the engine keeps {abs(percent):.1f}% {way} than on the windows that were"
        " measured."
    )


def _without(outcome: str, reason: str) -> LongRunClaims:
    claim = LongRunClaim(outcome="none" if outcome == "none" else "refused", text=reason)
    return LongRunClaims(claim, _absent(reason))


def _absent(reason: str) -> tuple[MetricClaim, ...]:
    return tuple(absent(key, reason) for key in LONG_RUN_METRICS)


def _loads(trials: Sequence[Trial]) -> list[Load]:
    """Return the load of each trial; those of the same rows have one."""
    made: dict[tuple[int, int], Load] = {}
    keys = [(trial.repeat, trial.band.low_urps) for trial in trials]
    for key, trial in zip(keys, trials, strict=True):
        if key not in made:
            made[key] = Load.of(trial.realisation)
    return [made[key] for key in keys]


def _measured(
    trials: Sequence[Trial], loads: Sequence[Load], repeats: Sequence[RepeatClaim]
) -> list[Measured]:
    last = {trial.repeat: load for trial, load in zip(trials, loads, strict=True)}
    return [
        Measured(repeat.repeat, last[repeat.repeat], repeat.boundary_urps)
        for repeat in repeats
        if repeat.boundary_urps is not None
    ]


def _judged(
    spec: Spec,
    found: LongRun,
    replayed: Sequence[_Replayed],
    repeats: Sequence[RepeatClaim],
) -> LongRunClaim:
    near = _near(found, replayed)
    drift = _drift(found.model, near)
    order = order_of((e.trial.records, e.played) for e in near if e.played is not None)
    refusal = (
        _open(repeats)
        or found.refusal
        or _too_close(spec, [each.trial for each in replayed])
        or (drift.refusal if drift else "too few trials near the boundary to test for drift")
        or order.refusal(spec.setup.slo)
    )
    accepted = (
        f"models fitted without a repeat come to its boundary within {100 * (found.rms or 0):.1f}%"
        f" (root mean square of {len(found.repeats)} repeats, at most 3%)"
    )
    if drift is not None:
        accepted += f"; its steps changed by {100 * drift.change:+.1f}% over the trials"
    accepted += f"; {order.words()}"
    family, prices = found.model.family, found.model.prices
    return LongRunClaim(
        outcome="refused" if refusal else "accepted",
        text=refusal or accepted,
        rms_percent=None if found.rms is None else 100 * found.rms,
        drift_percent=None if drift is None else 100 * drift.change,
        family=family_words(family),
        base_ps=prices.base_ps,
        sequence_ps=prices.sequence_ps,
        prompt_token_ps=prices.prompt_token_ps,
        context_token_ps=prices.context_token_ps,
        pass_urps=found.edges.pass_urps,
        fail_urps=found.edges.fail_urps,
        repeats=tuple(_repeat(r) for r in found.repeats),
        trials=tuple(each.told for each in replayed),
    )


def _with_outlook(claim: LongRunClaim, spec: Spec, found: LongRun, load: Load) -> LongRunClaim:
    ahead = outlook(found, spec.setup.slo, load)
    at = None if found.windows_95 is None else found.scaled(found.windows_95.boundary_urps)
    return claim.model_copy(
        update={
            "windows_95_urps": at,
            "windows_kept_percent": ahead.windows and ahead.windows.percent,
            "hours_kept_percent": ahead.hours and ahead.hours.percent,
            "misses": tuple(
                MissShare(rate_urps=found.scaled(rate_urps), percent=percent)
                for rate_urps, percent in ahead.misses
            ),
        }
    )


def _open(repeats: Sequence[RepeatClaim]) -> str | None:
    without = [str(r.repeat) for r in repeats if r.boundary_urps is None]
    return f"repeat {without[0]} has no boundary" if without else None


def _too_close(spec: Spec, trials: Sequence[Trial]) -> str | None:
    """Say that the trials were too close together to see an engine drift, if they were."""
    if spec.protocol.mode == "demo":
        return None
    at = [_seconds(t) for t in trials]
    spread = max(at) - min(at)
    if spread >= MIN_SPREAD_S:
        return None
    return (
        f"the trials spread over {spread / 60:.0f} minutes; a drift shows over"
        f" {MIN_SPREAD_S // 60} and more"
    )


@dataclass(frozen=True, slots=True)
class _Replayed:
    """A trial and its load, how the model answers that, and what it leaves untold.

    `played` is None where that is too slow to be played.
    """

    trial: Trial
    load: Load
    played: Played | None
    told: ModelTrial


@dataclass(frozen=True, slots=True)
class _Drift:
    """By what share the engine's steps became longer, from the first trial to the last."""

    change: float
    half_width: float

    @property
    def refusal(self) -> str | None:
        if abs(self.change) <= max(MAX_DRIFT, self.half_width):
            return None
        return (
            f"against the model the engine's steps changed by {100 * self.change:+.1f}% from the"
            f" first trial to the last (95% interval ±{100 * self.half_width:.1f});"
            f" {100 * MAX_DRIFT:g}% is allowed"
        )


def _near(found: LongRun, replayed: Sequence[_Replayed]) -> list[_Replayed]:
    """Return the trials that were offered about the boundary of their repeat."""
    boundary = {r.repeat: r.measured_urps for r in found.repeats}
    low, high = NEAR

    def counts(trial: Trial) -> bool:
        share = trial.rate_urps / boundary.get(trial.repeat, trial.rate_urps)
        return low <= share <= high and not trial.abandoned

    return [each for each in replayed if counts(each.trial)]


def _drift(model: EngineModel, near: Sequence[_Replayed]) -> _Drift | None:
    """Test the pace of the engine, trial by trial, against clock time."""
    points = [
        (_seconds(each.trial), pace) for each in near if (pace := _pace(model, each)) is not None
    ]
    line = slope([at for at, _ in points], [pace for _, pace in points])
    if line is None:
        return None
    span = max(at for at, _ in points) - min(at for at, _ in points)
    return _Drift(line.value * span, line.half_width * span)


def _pace(model: EngineModel, each: _Replayed) -> float | None:
    """Return ln(step time seen / model's): a trial's residual / what 1% on all prices does to it.

    Near the boundary a step that is 1% longer makes times per token 2% longer and more. Answers of
    one token have no time per token; then it is that to the first. None: the model cannot tell.
    """
    own, told, load = each.played, each.told, each.load
    if own is None:
        return None
    try:
        slow = play(EngineModel(model.family, _slower(model.prices)), load, told.rate_urps)
    except InputError:
        return None
    if told.tpot_percent is not None:
        seen, times = (
            told.tpot_percent,
            [played.last_ns - played.first_ns for played in (own, slow)],
        )
    elif told.ttft_percent is not None:
        seen, times = told.ttft_percent, [played.first_ns - played.due_ns for played in (own, slow)]
    else:
        return None
    pairs = [time[load.scored].tolist() for time in times]
    effect = _median([math.log(b / a) for a, b in zip(*pairs, strict=True) if min(a, b) > 0])
    if effect is None or effect < 50 * math.log(1 + _SLOWER):
        return None
    return seen / effect * math.log(1 + _SLOWER)


_SLOWER = 0.01


def _slower(prices: Prices) -> Prices:
    return Prices.model_construct(
        **{name: price + price // 100 for name, price in prices.to_json().items()}
    )


def _seconds(trial: Trial) -> float:
    return datetime.fromisoformat(trial.started).timestamp()


def _replayed(model: EngineModel, trial: Trial, load: Load) -> _Replayed:
    ended = [r for r in trial.scored if r.status is Status.OK]
    try:
        played = play(model, load, trial.rate_urps)
    except InputError:  # its boundary was not too slow to be played
        played = None
    pairs = {} if played is None else _logs(ended, played)
    told = ModelTrial(
        repeat=trial.repeat,
        trial=trial.number,
        rate_urps=trial.rate_urps,
        requests=len(ended),
        ttft_percent=_median(pairs.get("ttft", ())),
        tpot_percent=_median(pairs.get("tpot", ())),
    )
    return _Replayed(trial, load, played, told)


def _logs(ended: Sequence[RequestRecord], played: Played) -> dict[str, list[float]]:
    """Return ln(seen / model) of each request, by metric; where either is 0 or less, none."""
    ttft, tpot = [], []
    for record in ended:
        first = int(played.first_ns[record.row])
        seen, own = ttft_ns(record) or 0, first - int(played.due_ns[record.row])
        if seen > 0 and own > 0:
            ttft.append(math.log(seen / own))
        steps = record.output_asked - 1
        seen, own = tpot_ns(record) or 0, int(played.last_ns[record.row]) - first
        if seen > 0 and own > 0 and steps > 0:
            tpot.append(math.log(seen * steps / own))
    return {"ttft": ttft, "tpot": tpot}


def _median(logs: Sequence[float]) -> float | None:
    """Return the order statistic, times 100: of values that libm may round apart, one of them."""
    if not logs:
        return None
    return 100 * sorted(logs)[(len(logs) - 1) // 2]


def _repeat(found: Corrected) -> ModelRepeat:
    return ModelRepeat(
        repeat=found.repeat,
        measured_urps=found.measured_urps,
        model_urps=found.model_urps,
        left_out_urps=found.left_out_urps,
        error_percent=None if found.error is None else 100 * found.error,
    )


def family_words(family: Family) -> str:
    """Name a family of schedulers."""
    first = family.prefill == "first"
    words = ["prefill first" if first else "chunked prefill"]
    words.append(f"at most {family.token_budget:,} tokens a step")
    if family.max_batch < family.token_budget:
        words.append(f"at most {family.max_batch:,} sequences")
    if family.kv_tokens is not None:
        words.append(f"{family.kv_tokens:,} tokens of cache")
    if family.replicas > 1:
        words.append(f"{family.replicas} replicas")
    return ", ".join(words)
