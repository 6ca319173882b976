"""Engine models for a session: what is fitted to what, and that no fit can end a measurement."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.runs import RunBuilder, spec_in_mode
from tokenwatt_site.engine_model.load import Load
from tokenwatt_site.measure import fitting
from tokenwatt_site.measure.modelling import fitted, predicted
from tokenwatt_site.measure.search import Done
from tokenwatt_site.windows import Windows, windows_of

SPEC = spec_in_mode("full")
TRIALS = RunBuilder(spec=SPEC, rates_urps=(1_000_000,)).trials()
LOAD = Load.of(TRIALS[0].realisation)


def short(monkeypatch: pytest.MonkeyPatch) -> Windows:
    monkeypatch.setattr("tokenwatt_site.windows.LONG_RUN_SCORED", 100)
    monkeypatch.setattr(
        "tokenwatt_site.engine_model.long_run._loads", {}
    )  # else it would stay short
    return windows_of(SPEC)


def done(*boundaries: int | None) -> list[Done]:
    band = windows_of(SPEC).bands[0]
    return [Done(repeat, urps, urps, band) for repeat, urps in enumerate(boundaries, start=1)]


def test_a_prediction_is_that_of_the_fit_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def predict(spec: Any, seen: Any, load: Any, near_urps: int) -> int:
        asked.append((spec, [(s.repeat, s.trial) for s in seen], load, near_urps))
        return 2_500_000

    monkeypatch.setattr(fitting, "predict", predict)
    said: list[str] = []
    assert predicted(SPEC, TRIALS[:2], LOAD, 1_000_000, said.append) == 2_500_000
    told = [(trial.repeat, trial.number) for trial in TRIALS[:2]]
    assert asked == [(SPEC, told, LOAD, 1_000_000)]
    assert said == ["an engine model fitted to 2 trials has the boundary at 2.500 requests/s"]


def test_what_goes_wrong_in_a_fit_is_said_and_is_no_prediction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def predict(*_: object) -> int:
        raise ZeroDivisionError("no step")

    monkeypatch.setattr(fitting, "predict", predict)
    said: list[str] = []
    assert predicted(SPEC, TRIALS[:1], LOAD, 1_000_000, said.append) is None
    assert said == ["the engine model could not be fitted (ZeroDivisionError: no step)"]


def test_a_model_is_fitted_to_the_boundaries_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: dict[str, Any] = {}

    def model_fit(spec: Any, seen: Any, realisations: Any, long_run: Any, boundaries: Any) -> None:
        told.update(n=len(seen), repeats=sorted(realisations), boundaries=boundaries)
        told.update(long_run=len(long_run.n_in), spec=spec)

    monkeypatch.setattr(fitting, "model_fit", model_fit)
    said: list[str] = []
    ended = done(4_000_000, None, 5_000_000, 6_000_000)
    assert fitted(SPEC, short(monkeypatch), TRIALS, ended, said.append) is None
    assert told["boundaries"] == {1: 4_000_000, 3: 5_000_000, 4: 6_000_000}
    assert (told["n"], told["repeats"], told["long_run"]) == (len(TRIALS), [1, 2, 3, 4], 4_100)
    assert said == [
        f"fitting the engine model to {len(TRIALS)} trials",
        "there is no engine model: no trial has requests to fit to",
    ]


def test_two_boundaries_are_too_few_for_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    ended = done(4_000_000, None, 5_000_000)
    assert fitted(SPEC, short(monkeypatch), TRIALS, ended, said.append) is None
    assert said == ["no engine model is fitted: 2 of 3 repeats have a boundary, 3 are needed"]
