"""Whether power drifted over a window, by the slope of block means."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from tokenwatt_site.energy.steadiness import BLOCKS, Drift, power_drift
from tokenwatt_site.evidence.power import Board, PowerLog, PowerSample

S = 10**9


def drift_of(
    watts: Callable[[int], float], length_s: int = 120, unread: range = range(0)
) -> Drift | None:
    samples, total = [], 0.0
    for second in range(-5, length_s + 5):
        total += watts(second) * 1000
        at_ns = (second + 5) * S
        told = None if second in unread else round(total)
        samples.append(PowerSample(at_ns, 0, None, told))
    read = PowerLog("nvml", "gpu", S, None, (Board(uuid="GPU-0", name="x"),), tuple(samples))
    return power_drift(read, 5 * S, (5 + length_s) * S, max_gap_ns=3 * S)


def test_a_ramp_is_its_slope_and_not_steady() -> None:
    found = drift_of(lambda second: 500 + second)
    assert found is not None
    assert found.share == pytest.approx(120 / 560.5, rel=1e-6)
    assert not found.steady
    assert found.low <= found.share <= found.high


def test_equal_power_has_no_drift() -> None:
    found = drift_of(lambda _: 400)
    assert found is not None
    assert found.share == pytest.approx(0, abs=1e-9)
    assert found.steady


@pytest.mark.parametrize(("lasting_s", "at_most"), [(2, 10), (20, 20)])
def test_noise_that_lasts_for_seconds_is_mostly_steady(lasting_s: int, at_most: int) -> None:
    # An interval of 95% leaves 0 out one time in twenty; noise that lasts makes it a little more.
    alike, steady = math.exp(-1 / lasting_s), 0
    for seed in range(100):
        rng, level = random.Random(seed), [0.0]
        for _ in range(300):
            level.append(alike * level[-1] + rng.gauss(0, 20 * math.sqrt(1 - alike**2)))
        level = level[150:]
        found = drift_of(lambda second, level=level: 400 + level[second + 5])  # type: ignore[misc]
        assert found is not None
        steady += found.steady
    assert 100 - steady <= at_most


def test_the_slope_is_that_of_least_squares_over_the_blocks() -> None:
    def watts(second: int) -> float:
        return 300 + 40 * math.sin(second / 17) + 0.3 * second

    means, each = [], 120 // BLOCKS
    for block in range(BLOCKS):
        # The second that ends at n drew watts(n).
        part = [watts(n) for n in range(block * each + 1, (block + 1) * each + 1)]
        means.append(sum(part) / each)
    mean, middle = sum(means) / BLOCKS, (BLOCKS - 1) / 2
    slope = sum((i - middle) * (y - mean) for i, y in enumerate(means))
    slope /= sum((i - middle) ** 2 for i in range(BLOCKS))
    found = drift_of(watts)
    assert found is not None
    assert found.share == pytest.approx(slope * BLOCKS / mean, rel=1e-5)


def test_a_drift_of_a_hundredth_is_too_little_to_matter() -> None:
    found = drift_of(lambda second: 500 + second * 0.03)
    assert found is not None
    assert found.low > 0
    assert found.steady


def test_a_window_too_short_for_blocks_has_no_drift() -> None:
    assert drift_of(lambda _: 400, length_s=49) is None
    assert drift_of(lambda _: 400, length_s=50) is not None


def test_a_block_without_energy_leaves_no_drift() -> None:
    assert drift_of(lambda _: 400, unread=range(66, 76)) is None
