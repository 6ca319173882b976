"""Joules of each kind of token against an exact and slow solution, and against known truth."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwatt_site.energy.per_token import (
    MIN_LAUNCHES,
    Estimate,
    MixWindow,
    TokenEnergy,
    token_energy,
)
from tokenwatt_site.statistics import t_975

BASE_W, INPUT_J, OUTPUT_J = 220.0, 0.02, 0.3
MIXES = ((4000.0, 800.0), (1500.0, 1500.0), (6000.0, 300.0))
"""Input and output tokens per second at the boundary."""


def window(
    launch: str, inputs: float, outputs: float, seconds: float = 120.0, factor: float = 1.0
) -> MixWindow:
    """A window of these token rates that took what they take, times `factor`."""
    watts = (BASE_W + INPUT_J * inputs + OUTPUT_J * outputs) * factor
    return MixWindow(launch, seconds, watts * seconds, inputs * seconds, outputs * seconds)


def measured(
    mixes: Sequence[tuple[float, float]] = MIXES,
    *,
    launches: int = 2,
    seed: int = 1,
    of_launch: float = 0.0,
    of_window: float = 0.0,
) -> list[MixWindow]:
    """Windows at 60% to 100% of the boundary, off by chance as launches and windows are."""
    chance, windows = random.Random(seed), []
    for mix, (inputs, outputs) in enumerate(mixes):
        for launch in range(launches):
            own = chance.gauss(1, of_launch)
            windows += [
                window(
                    f"{mix} {launch}",
                    inputs * share * chance.gauss(1, 0.04),
                    outputs * share * chance.gauss(1, 0.04),
                    chance.uniform(60, 240),
                    own * chance.gauss(1, of_window),
                )
                for share in (0.6, 0.8, 0.95, 1.0)
            ]
    return windows


def told(windows: Sequence[MixWindow]) -> TokenEnergy:
    found = token_energy(windows)
    assert isinstance(found, TokenEnergy), found
    return found


def exact(windows: Sequence[MixWindow]) -> list[Fraction]:
    """Solve the normal equations of the watts in fractions, by elimination."""
    rows = []
    for w in windows:
        seconds = Fraction(w.seconds)
        rates = [Fraction(w.input_tokens) / seconds, Fraction(w.output_tokens) / seconds]
        rows.append([Fraction(1), *rates, Fraction(w.joules) / seconds])
    system = [[sum((r[i] * r[j] for r in rows), Fraction(0)) for j in range(4)] for i in range(3)]
    for i in range(3):
        system[i] = [value / system[i][i] for value in system[i]]
        for k in set(range(3)) - {i}:
            factor = system[k][i]
            system[k] = [a - factor * b for a, b in zip(system[k], system[i], strict=True)]
    return [row[3] for row in system]


def slowly(windows: Sequence[MixWindow]) -> list[Estimate]:
    """Fit all, and all without each launch, in fractions."""
    launches = {w.launch for w in windows}
    n, found = len(launches), []
    without = [exact([w for w in windows if w.launch != one]) for one in launches]
    for place, value in enumerate(exact(windows)):
        spread = sum((each[place] - value) ** 2 for each in without)
        half = t_975(n - 3) * float(Fraction(n - 1, n) * spread) ** 0.5
        found.append(Estimate(float(value), float(value) - half, float(value) + half))
    return found


def test_what_takes_so_much_by_definition_is_told_exactly() -> None:
    found = told(measured())

    for figure, truth in (
        (found.base_w, BASE_W),
        (found.input_j, INPUT_J),
        (found.output_j, OUTPUT_J),
    ):
        assert figure == Estimate(*[pytest.approx(truth, rel=1e-9)] * 3)
    assert (found.windows, found.launches) == (24, 6)
    assert found.unexplained == pytest.approx(0, abs=1e-12)


@settings(max_examples=6)
@given(seed=st.integers(0, 1 << 32))
def test_a_fit_and_its_intervals_are_those_of_exact_fractions(seed: int) -> None:
    drawn = measured(seed=seed, of_launch=0.01, of_window=0.01)[::2]
    # Whole numbers, so that their fractions stay short.
    windows = [
        MixWindow(w.launch, *map(round, (w.seconds, w.joules, w.input_tokens, w.output_tokens)))
        for w in drawn
    ]

    found = told(windows)

    for ours, slow in zip(
        (found.base_w, found.input_j, found.output_j), slowly(windows), strict=True
    ):
        assert (ours.value, ours.low, ours.high) == pytest.approx(
            (slow.value, slow.low, slow.high), rel=1e-7, abs=1e-9
        )


def test_the_order_of_windows_and_the_names_of_launches_mean_nothing() -> None:
    windows = measured(of_launch=0.01, of_window=0.01)
    renamed = [replace(w, launch=w.launch[::-1]) for w in reversed(windows)]

    assert repr(told(renamed))[:60] == repr(told(windows))[:60]


def test_intervals_hold_the_truth_as_often_as_they_promise() -> None:
    # Launches differ by 0.7% and windows by 0.4%. As if windows were launches, as few as 85%.
    truth, held = (BASE_W, INPUT_J, OUTPUT_J), [0, 0, 0]
    for seed in range(80):
        found = told(measured(launches=3, seed=seed, of_launch=0.007, of_window=0.004))
        figures = (found.base_w, found.input_j, found.output_j)
        for place, (figure, true) in enumerate(zip(figures, truth, strict=True)):
            held[place] += figure.low <= true <= figure.high
    assert min(held) >= 0.93 * 80


def test_one_mix_at_several_rates_is_refused_as_collinear() -> None:
    windows = [
        window(f"launch {n % 6}", 4000 * share, 800 * share)
        for n, share in enumerate((0.5, 0.6, 0.7, 0.8, 0.9, 1.0) * 2)
    ]

    assert token_energy(windows) == (
        "their tokens of both kinds and time go together: the variance of a figure is inflated"
        " without bound, and at most 100 times are allowed"
    )


def test_mixes_that_hardly_differ_are_refused_with_the_factor() -> None:
    near = measured(((4000, 800), (4040, 800)), launches=3)
    exact_rates = [
        window(w.launch, rate * share, 800 * share)
        for w, share in zip(near, (0.6, 0.8, 0.9, 1.0) * 6, strict=True)
        for rate in ((4000 if w.launch[0] == "0" else 4040),)
    ]

    assert "inflated 40," in str(token_energy(exact_rates))


def test_what_one_launch_alone_tells_apart_is_refused() -> None:
    windows = [
        window(f"launch {n}", 4000 * share, 800 * share) for n in range(5) for share in (0.6, 1)
    ]
    windows += [window("launch 5", 1500, 1500), window("launch 5", 900, 900)]

    assert str(token_energy(windows)).startswith("without one launch tokens of both kinds and time")


def test_one_rate_of_each_of_two_mixes_does_not_tell_time_from_tokens() -> None:
    windows = [window(f"{mix} {n}", *MIXES[mix]) for mix in (0, 1) for n in range(3)]

    assert "inflated without bound" in str(token_energy(windows))


def test_from_few_launches_nothing_is_said() -> None:
    windows = [w for w in measured() if w.launch[0] != "2"]

    assert token_energy(windows) == "it takes windows of 5 launches, and there are 4"
    assert token_energy([]) == "it takes windows of 5 launches, and there are 0"
    assert MIN_LAUNCHES == 5


def test_a_token_that_would_take_less_than_nothing_is_refused() -> None:
    windows = [replace(w, joules=w.joules - 0.1 * w.input_tokens) for w in measured()]

    assert str(token_energy(windows)).startswith("an input token would take less than nothing (95%")
