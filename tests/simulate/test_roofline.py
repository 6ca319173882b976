from __future__ import annotations

from dataclasses import replace

import pytest

from tokenwatt_site import accelerators
from tokenwatt_site.errors import UsageError
from tokenwatt_site.simulate.models import named
from tokenwatt_site.simulate.roofline import FIXED_NS, Roofline, boards

ONE = Roofline(named("llama-3.1-8b"), boards("NVIDIA H200", 1))


def test_a_decode_step_takes_as_long_as_weights_and_kv_take_to_be_read() -> None:
    # 64 answers at 4,096 tokens: 15,009,849,344 + 64 x 4,096 x 131,072 bytes at 4.8 TB/s.
    assert ONE.step_ns(64, 64 * 4096, 64 * 4096) == 10_285_331 + FIXED_NS


def test_a_long_prompt_takes_as_long_as_its_products() -> None:
    # 2 x 7,504,924,672 x 8,192 flops, and 524,288 for each of 8,192 x 8,193 / 2 pairs, at 989e12.
    flops = 2 * 7_504_924_672 * 8192 + 524_288 * (8192 * 8193 // 2)
    assert ONE.step_ns(8192, 8192, 8192 * 8193 // 2) == -(-flops // 989_000) + FIXED_NS


def test_a_step_reads_as_many_experts_as_its_tokens_are_expected_to_choose() -> None:
    # Each of 64 tokens takes 8 of 128 experts, without looking at the others.
    model = named("qwen3-30b-a3b")
    distinct = 128 * (1 - (120 / 128) ** 64)
    dense = 2 * (model.shape.head + model.shape.dense)
    moe = replace(ONE, model=model)
    assert moe.weight_bytes(64) == round(dense + 48 * distinct * 2 * 4_718_592) == 59_509_830_820
    assert moe.weight_bytes(1) == 2 * model.shape.active
    assert ONE.weight_bytes(1) == ONE.weight_bytes(64) == 15_009_849_344
    moved = 59_509_830_820 + 64 * 1024 * 98_304
    assert moe.step_ns(64, 64 * 1024, 64 * 1024) == -(-moved // 4_800) + FIXED_NS


def test_two_boards_halve_what_is_not_fixed() -> None:
    two = replace(ONE, boards=boards("NVIDIA H200", 2))
    one_ns, two_ns = (r.step_ns(64, 64 * 4096, 64 * 4096) - FIXED_NS for r in (ONE, two))
    assert two_ns == -(-one_ns // 2)


def test_kv_has_what_weights_leave_of_nine_tenths_of_the_memory() -> None:
    left = 141 * 2**30 * 9 // 10 - 2 * 8_030_261_248
    assert ONE.kv_tokens == left // 131_072
    assert replace(ONE, model=named("llama-3.1-70b")).kv_tokens < 0


def test_a_seed_draws_one_pace_for_all_steps_of_a_launch() -> None:
    paces = [replace(ONE, seed=seed).pace for seed in range(400)]
    mean = sum(paces) / len(paces)
    deviation = (sum((pace - mean) ** 2 for pace in paces) / len(paces)) ** 0.5
    assert mean == pytest.approx(1e6, rel=2e-3)
    assert deviation == pytest.approx(1e4, rel=0.1)
    slow = replace(ONE, seed=3)
    assert replace(ONE, seed=3).pace == slow.pace != ONE.pace == 10**6
    assert slow.step_ns(1, 1, 1) == -(-ONE.step_ns(1, 1, 1) * slow.pace // 10**6)


@pytest.mark.parametrize("name", ["NVIDIA H200", "nvidia h200 sxm 141gb"])
def test_boards_are_found_by_the_drivers_name_and_by_the_tables(name: str) -> None:
    found = boards(name, 4)
    assert (found.name, found.count, found.memory_bytes) == (
        "NVIDIA H200 SXM 141GB",
        4,
        141 << 30,
    )
    assert (found.bandwidth_bytes_s, found.peak_flop_s) == (4_800 * 10**9, 989 * 10**12)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("CPU", "is no known accelerator"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "has no known peak in bf16"),
    ],
)
def test_boards_without_figures_are_refused_by_name_with_those_that_have_them(
    name: str, why: str
) -> None:
    with pytest.raises(UsageError, match=rf"{why}; found {name}.*NVIDIA H100 SXM 80GB, NVIDIA"):
        boards(name, 1)
    with pytest.raises(UsageError, match="--count"):
        boards("NVIDIA H200", 0)


def test_every_peak_is_dense_and_so_below_600_flops_a_byte() -> None:
    rows = [row for row in accelerators.rows() if row.bf16_tflop_s is not None]
    assert len(rows) == 10
    assert all(row.bf16_tflop_s * 1e3 < 600 * row.rated_bandwidth_gb_s for row in rows)
