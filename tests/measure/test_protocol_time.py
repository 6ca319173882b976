"""How long the whole protocol takes on the example's configuration, in virtual time.

The search is the real one, and the engine a model of which the long-run boundary is the 5.09
requests/s that are published of that configuration. Minutes are those of the model's clock, with
what surrounds the trials added up, so that they are the same on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import numpy as np
import pytest

from tests.conftest import ROOT
from tokenwatt_site.engine_model.boundary import find_edges
from tokenwatt_site.engine_model.load import Load, counts, missed, play
from tokenwatt_site.engine_model.long_run import long_load
from tokenwatt_site.engine_model.model import EngineModel, Family, Prices
from tokenwatt_site.evidence.under_load import SAMPLES
from tokenwatt_site.measure.planning import TRIALS, plan
from tokenwatt_site.measure.rehearsal import NOTHING
from tokenwatt_site.measure.search import Done, RepeatSearch
from tokenwatt_site.measure.settling import AT_ONCE, MOST_TOKENS
from tokenwatt_site.spec import Spec, load_spec, parse_spec
from tokenwatt_site.validity import highest_rate_urps
from tokenwatt_site.windows import Band, Windows, windows_of

EXAMPLE = ROOT / "specs" / "lambda-deepseek-v4.1-flash-tp4-dp1.spec.yaml"
PUBLISHED_URPS = 5_090_000

LAUNCH_S = 240.0
SELF_TEST_S = 15.0  # of the client: at most 8 tries of little more than a second
IDLE_S = 23.0  # 2 until watts have settled, 10 until the engine rests, 10 that are read, 1 more
BURSTS = 6  # of the warm-up, after which an engine is at its pace
FIT_S = 120.0  # at the end of full mode, on the client's machine
PREDICTION_S = 10.0
QUESTIONS, ANSWER_TOKENS, QUESTION_TOKENS = 1319, 128, 1000  # gsm8k, with 5 shots
MOST_MINUTES = {"quick": 55, "full": 150}


def engine(pace: float = 1.0) -> EngineModel:
    """Return the example's engine; one with a pace above 1 is slower by that factor."""
    prices = (8_742_000_000, 305_970_000, 13_113_000, 0)
    family = Family(prefill="chunked", token_budget=8192, max_batch=1024)
    return EngineModel(
        family,
        Prices.model_construct(
            **dict(zip(Prices.model_fields, (round(p * pace) for p in prices), strict=True))
        ),
    )


def test_the_engine_keeps_what_is_published_in_the_long_run() -> None:
    spec = load_spec(EXAMPLE)
    long_run = long_load(windows_of(spec))
    assert long_run is not None
    edges = find_edges(engine(), long_run, spec.setup.slo, PUBLISHED_URPS)
    assert edges is not None
    assert edges.boundary_urps == pytest.approx(PUBLISHED_URPS, rel=0.001)


@dataclass
class Measurement:
    """A measurement in virtual time: every repeat on an engine of its own pace.

    What predicts knows the engine that was seen last, so it is off by as much as two launches are.
    """

    spec: Spec
    paces: tuple[float, ...]
    minutes: dict[str, float] = field(default_factory=dict)
    trials: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.windows: Windows = windows_of(self.spec)
        self.load = cache(lambda repeat, band: Load.of(self.windows.realisation(repeat, band)))

    def add(self, what: str, seconds: float) -> None:
        self.minutes[what] = self.minutes.get(what, 0) + seconds / 60

    def run(self) -> float:
        """Run it; return how many minutes it takes."""
        earlier: list[Done] = []
        for repeat in range(1, self.spec.protocol.repeats + 1):
            model = engine(self.paces[repeat - 1])
            self.add("launch", LAUNCH_S)
            self.add("preflight", probes_s(self.spec, model) + SELF_TEST_S)
            self.add("warm-up", BURSTS * burst_s(model))
            self.add("idle", 2 * IDLE_S)
            earlier.append(self.search(repeat, model, tuple(earlier)))
            if repeat <= self.spec.accuracy.repeats:
                self.add("asked again alone", self.alone_s(model))
                self.add("accuracy", questions_s(model, self.spec.accuracy.concurrency))
        if self.spec.protocol.mode == "full":
            self.add("fit", FIT_S)
        return sum(self.minutes.values())

    def search(self, repeat: int, model: EngineModel, earlier: tuple[Done, ...]) -> Done:
        known = engine(self.paces[max(0, repeat - 2)])

        def predicted(band: Band, near_urps: int) -> int | None:
            self.add("fit", PREDICTION_S)
            edges = find_edges(known, self.load(repeat, band), self.spec.setup.slo, near_urps)
            return None if edges is None else edges.boundary_urps

        def highest(band: Band) -> int:
            return highest_rate_urps(self.spec, self.windows.realisation(repeat, band), None)

        search = RepeatSearch(
            self.spec.protocol,
            self.windows,
            repeat,
            earlier=earlier,
            ceiling_urps=highest,
            predict=predicted,
        )
        self.trials.append(0)
        while (offer := search.next()) is not None:
            load = self.load(repeat, offer.band)
            outcome, seconds = trial(self.spec, model, load, offer.rate_urps)
            search.saw(offer, outcome)
            self.add("trials", seconds)
            self.trials[-1] += 1
        done = search.done()
        assert done.boundary_urps is not None
        return done

    def alone_s(self, model: EngineModel) -> float:
        band = self.windows.band_at(PUBLISHED_URPS)
        mean = self.windows.realisation(1, band).mean_output_tokens
        return (
            2 * SAMPLES[self.spec.protocol.mode] * (mean * step_s(model, 1) + prompt_s(model, 2000))
        )


def trial(
    spec: Spec, model: EngineModel, load: Load, rate_urps: int
) -> tuple[Literal["PASS", "FAIL"], float]:
    """Return the verdict of a trial, and when it ends: when that is certain, or all is answered."""
    slo, scored = spec.setup.slo, load.scored
    played = play(model, load, rate_urps)
    certain_ns = []
    for objective, count in zip(slo, counts(slo, played, load.n_out, scored), strict=True):
        if count.passes(objective):
            continue
        when = (
            played.due_ns + objective.limit_ns
            if objective.metric == "ttft"
            else played.first_ns + objective.limit_ns * (load.n_out - 1)
        )
        misses = np.sort(when[scored][missed(objective, played, load.n_out)[scored]])
        allowed = count.n - math.ceil(objective.quantile * count.n)
        certain_ns.append(int(misses[allowed]))
    if certain_ns:
        return "FAIL", min(certain_ns) / 1e9
    return "PASS", int(played.last_ns[scored].max()) / 1e9


def step_s(model: EngineModel, sequences: int) -> float:
    return (model.prices.base_ps + sequences * model.prices.sequence_ps) / 1e12


def prompt_s(model: EngineModel, tokens: int) -> float:
    return tokens * model.prices.prompt_token_ps / 1e12 + step_s(model, 0)


def probes_s(spec: Spec, model: EngineModel) -> float:
    """Return how long the probes of the preflight take; see `preflight.preflight`."""
    setup = spec.setup
    tokens = 64 + 4 * 2 + setup.output_tokens.longest
    return tokens * step_s(model, 1) + prompt_s(model, 600 + setup.longest_prompt)


def burst_s(model: EngineModel) -> float:
    return MOST_TOKENS * step_s(model, AT_ONCE) + AT_ONCE * prompt_s(model, 1024)


def questions_s(model: EngineModel, at_once: int) -> float:
    each = ANSWER_TOKENS * step_s(model, at_once) + at_once * prompt_s(model, QUESTION_TOKENS)
    return QUESTIONS / at_once * each


def example(mode: str) -> Spec:
    value = load_spec(EXAMPLE).to_json()
    value["protocol"] |= {"mode": mode, "repeats": 2 if mode == "quick" else 3}
    return parse_spec(value, source="test")


@cache
def measured(mode: str) -> tuple[Measurement, float]:
    measurement = Measurement(example(mode), paces=(1.0, 1.01, 0.99))
    return measurement, measurement.run()


@pytest.mark.parametrize("mode", ["quick", "full"])
def test_the_example_takes_no_longer_than_its_mode_may(mode: str) -> None:
    measurement, minutes = measured(mode)
    told = ", ".join(f"{what} {found:.1f}" for what, found in measurement.minutes.items())
    assert minutes <= MOST_MINUTES[mode], f"{told}; trials {measurement.trials}"
    assert len(measurement.trials) == measurement.spec.protocol.repeats


@pytest.mark.parametrize("mode", ["quick", "full"])
def test_the_plan_of_the_example_holds_what_its_measurement_takes(mode: str) -> None:
    measurement, _ = measured(mode)
    planned = plan(measurement.spec, measurement.windows, rate_urps=PUBLISHED_URPS)
    low, high = NOTHING
    for repeat, found in zip(planned.repeats, measurement.trials, strict=True):
        (trials,) = (part for part in repeat.parts if part.what == TRIALS)
        assert trials.times.low <= found <= trials.times.high
        low, high = low + trials.seconds.low, high + trials.seconds.high
    assert low <= 60 * measurement.minutes["trials"] <= high
