"""What the boards of a setup could do at most."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.runs import small_spec
from tests.support.shapes import LLAMA_8B, QWEN3_30B, in_bf16
from tokenwatt_site.bandwidth.limits import Limits, gpu_boards, peak_multiple
from tokenwatt_site.bandwidth.step import NoFigure
from tokenwatt_site.evidence.power import Board

H200 = Board(uuid="GPU-1", name="NVIDIA H200", bus_bits=6144, memory_mhz=3201)
SILENT = Board(uuid="GPU-2", name="NVIDIA H200")


def limits(*boards: Board, **changes: Any) -> Limits:
    accelerator = {
        "model": "NVIDIA H200",
        "count": 2,
        "memory_gib": 141,
        "rated_bandwidth_gb_s": 4800.0,
        "power_limit_w": 700.0,
    }
    return Limits(small_spec(setup__accelerator={**accelerator, **changes}).setup, boards)


def test_the_bus_of_an_h200_carries_more_than_the_board_is_sold_with() -> None:
    found = limits(H200, H200)

    assert found.rated_bytes_s() == 2 * 4.8e12
    assert found.bus_bytes_s() == 2 * 4_916_736_000_000
    assert found.bus_bytes_s() / found.rated_bytes_s() == pytest.approx(1.024, abs=5e-4)


def test_the_table_tells_what_the_setup_does_not() -> None:
    assert limits(rated_bandwidth_gb_s="not recorded").rated_bytes_s() == 2 * 4.8e12
    assert limits(rated_bandwidth_gb_s="not recorded", model="NVIDIA B200").rated_bytes_s() == 16e12


def test_b17_an_unknown_device_has_no_percentage() -> None:
    unknown = limits(model="NVIDIA H900", rated_bandwidth_gb_s="not recorded")

    with pytest.raises(NoFigure, match="no rated bandwidth is known of NVIDIA H900"):
        unknown.rated_bytes_s()
    with pytest.raises(NoFigure, match="no dense peak is known of NVIDIA H900"):
        unknown.peak_flop_s()


@pytest.mark.parametrize("model", ["NVIDIA H200", "NVIDIA H200 SXM 141GB", "NVIDIA H100 80GB HBM3"])
def test_b17_the_peak_is_the_dense_one(model: str) -> None:
    assert limits(model=model, count=1).peak_flop_s() == 989e12


def test_a_processor_has_no_limits_here() -> None:
    cpu = Limits(small_spec().setup, (H200,))

    for limit in (cpu.rated_bytes_s, cpu.bus_bytes_s, cpu.peak_flop_s):
        with pytest.raises(NoFigure, match="no accelerator"):
            limit()


@pytest.mark.parametrize(
    ("boards", "why"),
    [
        ((), "no driver told"),
        ((H200,), "1 boards were read, the setup has 2"),
        ((H200, SILENT), "does not tell width and clock of every board"),
    ],
)
def test_bus_and_clock_are_known_of_all_boards_or_not_at_all(
    boards: tuple[Board, ...], why: str
) -> None:
    with pytest.raises(NoFigure, match=why):
        limits(*boards).bus_bytes_s()


@pytest.mark.parametrize(
    ("boards", "bytes_s", "said"),
    [
        ((H200, H200), 9.8e12, None),
        ((H200, H200), 9.9e12, "100.7% of bus × clock"),
        ((), 9.9e12, None),
        ((), 10.2e12, "106.2% of the rated bandwidth"),
    ],
)
def test_b16_memory_is_held_against_its_bus_else_against_a_little_over_its_rating(
    boards: tuple[Board, ...], bytes_s: float, said: str | None
) -> None:
    assert limits(*boards).above_memory(bytes_s) == said


def test_a_setup_that_rates_its_boards_otherwise_than_the_table_is_told_of() -> None:
    assert limits().other_than_sold() is None
    assert limits(rated_bandwidth_gb_s=4801.0).other_than_sold() is None
    assert limits(model="NVIDIA H900").other_than_sold() is None
    assert limits(rated_bandwidth_gb_s=9600.0).other_than_sold() == (
        "the setup says 9,600 GB/s for each board, its data sheet 4,800 (NVIDIA H200 SXM 141GB)"
    )


def test_narrow_weights_may_run_on_units_that_are_faster_than_bf16() -> None:
    wide = in_bf16(QWEN3_30B)

    assert peak_multiple(LLAMA_8B, in_bf16(LLAMA_8B)) == 1
    assert peak_multiple(QWEN3_30B, wide) == 1
    assert peak_multiple(QWEN3_30B, replace(wide, expert=(QWEN3_30B.experts[0].parameters,))) == 2
    four_bit = (QWEN3_30B.experts[0].parameters * 4.25 / 8,)
    assert peak_multiple(QWEN3_30B, replace(wide, expert=four_bit)) == 4


def test_the_first_log_whose_driver_tells_of_its_buses_is_taken() -> None:
    assert gpu_boards([(SILENT,), (H200, SILENT), (H200,)]) == (H200, SILENT)
    assert gpu_boards([(SILENT,)]) == ()
