from __future__ import annotations

import pytest

from tests.gpu.figures import (
    Phase,
    full_bus_bytes_s,
    half_rise_ns,
    slope_pj_bit,
)

MS = 1_000_000


def phase(watts: float | None, bytes_s: float, bus_ppm: int | None = None) -> Phase:
    return Phase(
        name="load",
        length_ns=10_000 * MS,
        energy_mj=None if watts is None else round(watts * 10_000),
        moved_bytes=round(bytes_s * 10),
        bus_ppm=bus_ppm,
    )


def test_a_trailing_mean_of_a_second_is_half_a_second_late() -> None:
    times = [at * MS for at in range(-1000, 5000, 20)]
    step = [(at, 100_000 if at < 0 else 500_000) for at in times]
    trailing = [
        (at, 100_000 + round(400_000 * min(1.0, max(0.0, at / (1000 * MS))))) for at in times
    ]

    assert half_rise_ns(step, 0) == 0
    assert half_rise_ns(trailing, 0) == 500 * MS


@pytest.mark.parametrize("readings", [[], [(5, 100)], [(-5, 100), (5, 104)], [(-5, 100)]])
def test_without_a_rise_there_is_nothing_to_be_late(readings: list[tuple[int, int]]) -> None:
    assert half_rise_ns(readings, 0) is None


def test_the_factor_of_the_bus_is_bytes_over_its_share() -> None:
    assert full_bus_bytes_s(phase(400, 4.0e12, bus_ppm=800_000)) == pytest.approx(5.0e12)
    assert full_bus_bytes_s(phase(400, 4.0e12)) is None
    assert full_bus_bytes_s(phase(400, 4.0e12, bus_ppm=0)) is None


def test_energy_per_bit_is_the_slope_of_power_over_bandwidth() -> None:
    # 115 W idle and 5 pJ a bit: 40 W for each TB/s
    phases = [phase(115 + 40 * tb, tb * 1e12) for tb in (1, 2, 3, 4)]

    assert slope_pj_bit(phases) == pytest.approx(5.0)


def test_one_rate_or_no_counter_has_no_slope() -> None:
    assert slope_pj_bit([phase(200, 1e12), phase(210, 1e12)]) is None
    assert slope_pj_bit([phase(None, 1e12), phase(None, 2e12)]) is None
