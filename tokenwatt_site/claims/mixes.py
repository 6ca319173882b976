"""The windows of a run by which joules of input and of output tokens are told apart."""

from __future__ import annotations

from collections.abc import Iterator

from tokenwatt_site.claims.energy import idle_of, trial_energy
from tokenwatt_site.energy.per_token import MixWindow
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import (
    Evidence,
    Trial,
    prompt_tokens_in_window,
    read_trials,
    tokens_in_window,
)
from tokenwatt_site.validity import verdict


def mix_windows(spec: Spec, evidence: Evidence, run: str) -> Iterator[MixWindow]:
    """Yield the window of every trial that ran to its end, is valid and has an energy.

    Also of those that failed the SLO: what tokens take is no question of how late they are.

    Args:
        spec: what was asked for.
        evidence: what came of it.
        run: the name of the run, by which its launches differ from those of others.

    Raises:
        InputError, SpecError: as of `read_trials`.
    """
    idles = idle_of(spec, evidence)
    for trial in read_trials(spec, evidence):
        if not _counts(spec, trial):
            continue
        energy = trial_energy(spec, evidence, trial, idles)
        if energy is None or energy.energy_mj is None:
            continue
        if any(finding.level == "not reconciled" for finding in energy.findings):
            continue
        window = trial.window_ns
        yield MixWindow(
            launch=f"{run} {trial.repeat}",
            seconds=trial.length_ns / 1e9,
            joules=energy.energy_mj / 1e3,
            input_tokens=prompt_tokens_in_window(trial.records, *window),
            output_tokens=tokens_in_window(trial.records, *window),
        )


def _counts(spec: Spec, trial: Trial) -> bool:
    if trial.abandoned or trial.stopped_early or trial.length_ns <= 0:
        return False
    return verdict(spec, trial)[0] != "INVALID"
