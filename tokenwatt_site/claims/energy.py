"""Published numbers of energy and power, made from what the instruments read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tokenwatt_site.claims.boards import board_claims, role_claims
from tokenwatt_site.claims.pooled import absent, pooled
from tokenwatt_site.claims.power_caveats import why_not_read
from tokenwatt_site.energy.idle import NOT_MEASURED, Idle, idle_by_repeat
from tokenwatt_site.energy.steadiness import power_drift
from tokenwatt_site.energy.window import (
    MAX_GAP_PERIODS,
    RECONCILED_WITHIN,
    Finding,
    WindowEnergy,
    gravest,
    held_against_idle,
    limits_cover,
    window_energy,
)
from tokenwatt_site.evidence.power import PowerLog
from tokenwatt_site.goodput import within_all
from tokenwatt_site.meters import PowerScope, PowerSensor
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.run import BoardClaim, MetricClaim, Outcome, RoleClaim
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Evidence, Trial, prompt_tokens_in_window, tokens_in_window

ENERGY_KEY = "tokens_per_joule"
"""The key of outcomes that are of the energy itself: they hold for all of `ENERGY_KEYS`."""

ENERGY_KEYS = (
    ENERGY_KEY,
    "joules_per_token",
    "joules_per_token_above_idle",
    "joules_per_any_token",
    "joules_per_slo_token",
    "board_power",
    "power_limit_share",
)

_LABELS: Mapping[PowerScope, tuple[str, str]] = MappingProxyType(
    {
        "gpu": (METRICS["board_power"].label, METRICS["idle_power"].label),
        "module": ("Module power", "Loaded-idle module power"),
        "cpu": ("Processor package power", "Loaded-idle processor package power"),
        "host": ("Host power", "Loaded-idle host power"),
    }
)
"""What `board_power` and `idle_power` are called where the source of energy is no GPU board."""

_BESIDE: tuple[tuple[str, PowerSensor, PowerScope], ...] = (
    ("cpu_power", "rapl", "cpu"),
    ("host_power", "redfish", "host"),
)


@dataclass(frozen=True, slots=True)
class EnergyClaims:
    """What the instruments carry.

    `energies`: of the window of each of the given trials, in order; empty where no board was read.
    """

    metrics: tuple[MetricClaim, ...]
    boards: tuple[BoardClaim, ...]
    roles: tuple[RoleClaim, ...] | None
    outcomes: tuple[Outcome, ...]
    energies: tuple[WindowEnergy, ...]


def energy_claims(spec: Spec, evidence: Evidence, tops: Sequence[Trial]) -> EnergyClaims:
    """Return the energy of the windows of `tops`, one trial for each repeat that passed.

    Raises:
        InputError: the journal tells of an idle span that is none.
    """
    beside = tuple(_beside(spec, evidence, tops))
    metrics = tuple(metric for metric, _ in beside)
    outcomes = tuple(outcome for _, told in beside for outcome in told)
    log = evidence.power
    if log is None or spec.setup.power.sensor == "none" or not tops:
        told = str(evidence.journal[0].data.get("power_reason") or "no power log")
        why = told if log is None else "no trial met the SLO"
        keys = (*ENERGY_KEYS, "idle_power")
        return EnergyClaims((*(absent(key, why) for key in keys), *metrics), (), None, outcomes, ())
    idles = idle_of(spec, evidence)
    energies = tuple(_energy(log, trial, idles) for trial in tops)
    labels = _LABELS.get(log.scope, _LABELS["gpu"])
    boards = tuple(
        claim
        for trial, energy in zip(tops, energies, strict=True)
        for claim in board_claims(
            log, trial.repeat, energy, *trial.window_ns_of_run, roles=spec.board_roles
        )
    )
    tokens = {trial.repeat: tokens_in_window(trial.records, *trial.window_ns) for trial in tops}
    return EnergyClaims(
        metrics=(
            *_per_token(spec, tops, energies, idles),
            *_watts(log, tops, energies, labels[0]),
            _idle_power(tops, idles, labels[1]),
            *metrics,
        ),
        boards=boards,
        roles=tuple(role_claims(boards, tokens)) if spec.board_roles is not None else None,
        outcomes=(*_outcomes(evidence, log, tops, energies, idles), *outcomes),
        energies=energies,
    )


def idle_of(spec: Spec, evidence: Evidence) -> Mapping[int, Idle]:
    """Return what the boards drew without a request, by repeat; empty where none was read."""
    if evidence.power is None or spec.setup.power.sensor == "none":
        return {}
    return idle_by_repeat(evidence.journal, evidence.power)


def trial_energy(
    spec: Spec, evidence: Evidence, trial: Trial, idles: Mapping[int, Idle]
) -> WindowEnergy | None:
    """Return the energy of a trial's scored window; None where no board was read.

    `idles` are those of `idle_of`.
    """
    if evidence.power is None or spec.setup.power.sensor == "none":
        return None
    return _energy(evidence.power, trial, idles)


def _energy(log: PowerLog, trial: Trial, idles: Mapping[int, Idle]) -> WindowEnergy:
    energy = _read(log, trial)
    idle = idles.get(trial.repeat)
    if idle is None or not idle.least_mw:
        return energy
    return held_against_idle(log, energy, trial.length_ns, idle.least_mw)


def _read(log: PowerLog, trial: Trial) -> WindowEnergy:
    return window_energy(log, *trial.window_ns_of_run, max_gap_ns=MAX_GAP_PERIODS * log.period_ns)


def _without(
    tops: Sequence[Trial], energies: Sequence[WindowEnergy], keys: Sequence[str]
) -> tuple[MetricClaim, ...]:
    """Return `keys` without a value where a repeat has no energy; else nothing."""
    for trial, energy in zip(tops, energies, strict=True):
        if energy.energy_mj is None:
            why = _why(trial, energy.findings)
            return tuple(absent(key, why) for key in keys)
    return ()


def _why(trial: Trial, findings: Sequence[Finding], otherwise: str = "") -> str:
    """Return why a trial has no number: how grave first, where a check said so."""
    if (refused := gravest(findings)) is None:
        return f"repeat {trial.repeat}: {otherwise}"
    return f"{refused.level}: repeat {trial.repeat}: {refused.text}"


def _per_token(
    spec: Spec,
    tops: Sequence[Trial],
    energies: Sequence[WindowEnergy],
    idles: Mapping[int, Idle],
) -> tuple[MetricClaim, ...]:
    if none := _without(tops, energies, ENERGY_KEYS[:5]):
        return none
    joules = [(energy.energy_mj or 0.0) / 1e3 for energy in energies]
    tokens, any_tokens, slo_tokens = [], [], []
    for trial in tops:
        window, records = trial.window_ns, trial.records
        tokens.append(tokens_in_window(records, *window))
        any_tokens.append(tokens[-1] + prompt_tokens_in_window(records, *window))
        within = within_all(spec.setup.slo, records)
        slo_tokens.append(tokens_in_window(within, *window))
    return (
        pooled("tokens_per_joule", [n / j for n, j in zip(tokens, joules, strict=True)]),
        _over("joules_per_token", joules, tokens, "no output token came in the window"),
        _above_idle(tops, joules, tokens, idles),
        _over("joules_per_any_token", joules, any_tokens, "no token came in the window"),
        _over(
            "joules_per_slo_token",
            joules,
            slo_tokens,
            "no token in the window was of a request within the SLO",
        ),
    )


def _over(key: str, joules: Sequence[float], tokens: Sequence[float], none: str) -> MetricClaim:
    if min(tokens) <= 0:
        return absent(key, none)
    return pooled(key, [j / n for j, n in zip(joules, tokens, strict=True)])


def _above_idle(
    tops: Sequence[Trial],
    joules: Sequence[float],
    tokens: Sequence[float],
    idles: Mapping[int, Idle],
) -> MetricClaim:
    key = "joules_per_token_above_idle"
    above = []
    for trial, total in zip(tops, joules, strict=True):
        idle = idles.get(trial.repeat, NOT_MEASURED)
        if idle.power_mw is None:
            return absent(key, _why(trial, idle.findings, idle.reason))
        above.append(total - idle.power_mw * trial.length_ns / 1e12)
    if min(above) <= 0:
        return absent(key, "the boards drew no more in the window than without a request")
    return _over(key, above, tokens, "no output token came in the window")


def _watts(
    log: PowerLog, tops: Sequence[Trial], energies: Sequence[WindowEnergy], label: str
) -> tuple[MetricClaim, ...]:
    if none := _without(tops, energies, ENERGY_KEYS[5:]):
        return (none[0].model_copy(update={"label": label}), none[1])
    watts = [
        (energy.mean_power_mw(trial.length_ns) or 0.0) / 1e3
        for trial, energy in zip(tops, energies, strict=True)
    ]
    limits = [board.limit_mw for board in log.boards]
    known = [limit for limit in limits if limit]
    share = absent("power_limit_share", "the driver does not tell the limit of every board")
    if not limits_cover(log):
        why = "the driver enforces the limit of the GPU, and these watts are of the whole module"
        share = absent("power_limit_share", why)
    elif len(known) == len(limits):
        share = pooled("power_limit_share", [100 * w * 1e3 / sum(known) for w in watts])
    return pooled("board_power", watts, label), share


def _idle_power(tops: Sequence[Trial], idles: Mapping[int, Idle], label: str) -> MetricClaim:
    watts = []
    for trial in tops:
        idle = idles.get(trial.repeat, NOT_MEASURED)
        if idle.power_mw is None:
            return absent("idle_power", _why(trial, idle.findings, idle.reason), label)
        watts.append(idle.power_mw / 1e3)
    return pooled("idle_power", watts, label)


def _outcomes(
    evidence: Evidence,
    log: PowerLog,
    tops: Sequence[Trial],
    energies: Sequence[WindowEnergy],
    idles: Mapping[int, Idle],
) -> Iterator[Outcome]:
    for trial, energy in zip(tops, energies, strict=True):
        found = (*energy.findings, *_drifted(log, trial), *_other_instruments(evidence, log, trial))
        yield from _told(ENERGY_KEY, trial, found)
        yield from _told("idle_power", trial, idles.get(trial.repeat, NOT_MEASURED).findings)


def _told(key: str, trial: Trial, findings: Sequence[Finding]) -> Iterator[Outcome]:
    for found in findings:
        yield Outcome(key=key, level=found.level, text=f"repeat {trial.repeat}: {found.text}")


def _drifted(log: PowerLog, trial: Trial) -> Iterator[Finding]:
    drift = power_drift(log, *trial.window_ns_of_run, max_gap_ns=MAX_GAP_PERIODS * log.period_ns)
    if drift is not None and not drift.steady:
        yield Finding(
            "warn",
            f"power was not steady: it changed by {drift.share:+.1%} over the window (95% interval"
            f" {drift.low:+.1%} to {drift.high:+.1%})",
        )


def _other_instruments(evidence: Evidence, log: PowerLog, trial: Trial) -> Iterator[Finding]:
    """Say where another instrument of the same boards comes to another energy."""
    boards = {board.uuid for board in log.boards}
    for other in evidence.beside:
        if other.scope != log.scope or {board.uuid for board in other.boards} != boards:
            continue
        ours, theirs = _read(log, trial).energy_mj, _read(other, trial).energy_mj
        if ours and theirs and abs(gap := theirs / ours - 1) > RECONCILED_WITHIN:
            text = f"{other.sensor} and {log.sensor} differ by {gap:+.1%} over the same boards"
            yield Finding("not reconciled", text)


def _beside(
    spec: Spec, evidence: Evidence, tops: Sequence[Trial]
) -> Iterator[tuple[MetricClaim, tuple[Outcome, ...]]]:
    """Return the power of processors and host, where an instrument for it was asked for."""
    asked = {instrument.sensor for instrument in spec.instruments}
    for key, sensor, scope in _BESIDE:
        if sensor not in asked or sensor == spec.setup.power.sensor:
            continue
        logs = [log for log in evidence.beside if log.scope == scope]
        why = why_not_read(evidence, sensor)
        if why is not None or not logs:
            yield absent(key, why or "it left no reading"), ()
        elif not tops:
            yield absent(key, "no trial met the SLO"), ()
        else:
            yield _power_beside(key, logs, tops)


def _power_beside(
    key: str, logs: Sequence[PowerLog], tops: Sequence[Trial]
) -> tuple[MetricClaim, tuple[Outcome, ...]]:
    watts, reason = [], None
    outcomes: list[Outcome] = []
    for trial in tops:
        energies = [_read(log, trial) for log in logs]
        for energy in energies:
            outcomes += _told(key, trial, energy.findings)
            if energy.energy_mj is None:
                reason = reason or _why(trial, energy.findings)
        millijoules = math.fsum(energy.energy_mj or 0.0 for energy in energies)
        watts.append(millijoules * 1e6 / trial.length_ns)
    claim = pooled(key, watts) if reason is None else absent(key, reason)
    return claim, tuple(outcomes)
