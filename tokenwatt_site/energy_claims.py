"""Published numbers of energy and power, made from what the instruments read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenwatt_site.energy import MAX_GAP_PERIODS, WindowEnergy, window_energy
from tokenwatt_site.pooled import absent, pooled
from tokenwatt_site.run import BoardClaim, MetricClaim, Outcome
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Evidence, Trial, tokens_in_window


@dataclass(frozen=True, slots=True)
class EnergyClaims:
    """What the instruments carry.

    `energies`: of the window of each of the given trials, in order; empty where no board was read.
    """

    metrics: tuple[MetricClaim, ...]
    boards: tuple[BoardClaim, ...]
    outcomes: tuple[Outcome, ...]
    energies: tuple[WindowEnergy, ...]


def energy_claims(spec: Spec, evidence: Evidence, tops: Sequence[Trial]) -> EnergyClaims:
    """Return the energy of the windows of `tops`, one trial for each repeat that passed."""
    energies = tuple(
        energy for trial in tops if (energy := trial_energy(spec, evidence, trial)) is not None
    )
    return EnergyClaims(_metrics(evidence, tops, energies), (), (), energies)


def trial_energy(spec: Spec, evidence: Evidence, trial: Trial) -> WindowEnergy | None:
    """Return the energy of a trial's scored window; None where no board was read."""
    if evidence.power is None or spec.setup.power.sensor == "none":
        return None
    start_ns, end_ns = trial.window_ns
    return window_energy(
        evidence.power,
        trial.epoch_ns + start_ns,
        trial.epoch_ns + end_ns,
        max_gap_ns=MAX_GAP_PERIODS * evidence.power.period_ns,
    )


def _metrics(
    evidence: Evidence, tops: Sequence[Trial], energies: Sequence[WindowEnergy]
) -> tuple[MetricClaim, ...]:
    keys = ("tokens_per_joule", "joules_per_token", "board_power")
    if not energies:
        told = str(evidence.journal[0].data.get("power_reason") or "no power log")
        why = told if evidence.power is None else "no trial met the SLO"
        return tuple(absent(key, why) for key in keys)
    per_joule, watts = [], []
    for trial, energy in zip(tops, energies, strict=True):
        if energy.energy_mj is None or energy.energy_mj <= 0:
            why = energy.reason or "the boards reported no energy"
            return tuple(absent(key, why) for key in keys)
        start, end = trial.window_ns
        tokens = tokens_in_window(trial.records, start, end)
        per_joule.append(tokens / (energy.energy_mj / 1e3))
        watts.append((energy.mean_power_mw(end - start) or 0.0) / 1e3)
    return (
        pooled("tokens_per_joule", per_joule),
        pooled("joules_per_token", [1 / value for value in per_joule if value > 0]),
        pooled("board_power", watts),
    )
