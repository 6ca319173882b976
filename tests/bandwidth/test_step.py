"""Bytes of one step, against the published values and against plain sums."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.shapes import (
    DEEPSEEK_V3,
    GPT_OSS_120B,
    LLAMA_8B,
    QWEN3_30B,
    in_bf16,
)
from tokenwatt_site.bandwidth.step import (
    HBM2_J_PER_BIT,
    Contexts,
    Layout,
    NoFigure,
    attention_flops,
    distinct_experts,
    expert_bytes,
    fixed_bytes,
    layout_of,
    row_bytes,
    sequence_bytes,
    weight_flops,
)
from tokenwatt_site.model_shape.shape import AttentionLayers, ModelShape
from tokenwatt_site.spec import Parallelism

ALONE = Layout()
H200_BYTES_S = 4.8e12


def of_model(shape: ModelShape, attention: AttentionLayers) -> ModelShape:
    return replace(shape, attention=(attention,))


def test_a_step_of_llama_3_8b_reads_what_the_reference_says() -> None:
    stored = in_bf16(LLAMA_8B)
    read = fixed_bytes(stored, ALONE)
    read += 64 * sequence_bytes(LLAMA_8B, 2, ALONE, Contexts(4096))

    assert stored.total(LLAMA_8B) == 16_060_522_496
    assert fixed_bytes(stored, ALONE) == 15_009_849_344
    assert sequence_bytes(LLAMA_8B, 2, ALONE, Contexts(1)) == 131_072
    assert read == 49_369_587_712
    assert 1e3 * read / H200_BYTES_S == pytest.approx(10.285, abs=5e-4)
    assert 64 / (read / H200_BYTES_S) == pytest.approx(6222, abs=0.5)
    assert 100 * read / (0.015 * H200_BYTES_S) == pytest.approx(68.57, abs=5e-3)


def test_the_dram_reference_of_llama_3_8b_is_that_of_the_reference() -> None:
    alone = fixed_bytes(in_bf16(LLAMA_8B), ALONE)
    at_64 = alone + 64 * sequence_bytes(LLAMA_8B, 2, ALONE, Contexts(4096))

    assert alone * 8 * HBM2_J_PER_BIT == pytest.approx(0.468, abs=5e-4)
    assert at_64 * 8 * HBM2_J_PER_BIT / 64 == pytest.approx(24.1e-3, abs=5e-5)
    assert 64 / (at_64 * 8 * HBM2_J_PER_BIT) == pytest.approx(41.5, abs=0.05)


@pytest.mark.parametrize(
    ("experts", "per_token", "tokens", "expected"),
    [
        (128, 8, 8, 51.6199),
        (128, 8, 64, 125.9423),
        (256, 8, 64, 222.4425),
        (128, 4, 32, 81.6569),
        (128, 8, 1, 8),
        (128, 8, 0, 0),
        (8, 8, 3, 8),
    ],
)
def test_b16_experts_are_counted_once_however_many_tokens_reach_them(
    experts: int, per_token: int, tokens: int, expected: float
) -> None:
    assert distinct_experts(experts, per_token, tokens) == pytest.approx(expected, abs=5e-5)


def test_b16_a_step_of_qwen3_30b_reads_fewer_bytes_than_all_its_experts() -> None:
    stored = in_bf16(QWEN3_30B)
    read = fixed_bytes(stored, ALONE) + expert_bytes(QWEN3_30B, stored, 64)

    assert QWEN3_30B.parameters == 30_532_122_624
    assert QWEN3_30B.experts[0].parameters == 4_718_592
    assert read == pytest.approx(59_509_830_820, abs=1)
    assert read < stored.total(QWEN3_30B) - stored.embedding


def test_a_draw_of_experts_reaches_as_many_as_the_formula_expects() -> None:
    draw, trials = random.Random(4), 2000
    reached = sum(
        len({e for _ in range(16) for e in draw.sample(range(32), 4)}) for _ in range(trials)
    )

    assert reached / trials == pytest.approx(distinct_experts(32, 4, 16), rel=0.005)


@given(
    st.lists(st.floats(0.01, 1), min_size=4, max_size=32),
    st.integers(1, 8),
    st.integers(1, 300),
)
def test_b16_even_experts_are_the_most_that_any_preference_reaches(
    weights: list[float], per_token: int, tokens: int
) -> None:
    # Marginals that sum to k, none above 1, which is what a router of top k has.
    per_token = min(per_token, len(weights))
    scale = per_token / sum(weights)
    marginals = [min(1.0, weight * scale) for weight in weights]
    even = sum(marginals) / len(marginals)
    uneven = sum(1 - (1 - p) ** tokens for p in marginals)

    assert uneven <= len(weights) * (1 - (1 - even) ** tokens) + 1e-9
    assert uneven <= distinct_experts(len(weights), per_token, tokens) + 1e-9


def test_bytes_are_concave_in_the_batch_so_that_its_mean_gives_too_many() -> None:
    stored = in_bf16(QWEN3_30B)
    reads = [expert_bytes(QWEN3_30B, stored, tokens) for tokens in range(65)]

    assert all(a < b for a, b in pairwise(reads))
    assert (reads[0] + reads[64]) / 2 < 0.6 * reads[32]


@given(
    st.integers(0, 2000),
    st.sampled_from([0.0, 0.5, 1.0, 2.25, 40.0]),
    st.integers(0, 300),
    st.none() | st.integers(1, 2500),
)
def test_contexts_add_up_as_if_written_out(
    first: int, step: float, count: int, cap: int | None
) -> None:
    each = [first + step * i for i in range(count)]
    naive = sum(length if cap is None else min(length, cap) for length in each)

    assert Contexts(first, step, count).total(cap) == pytest.approx(naive)


def test_sliding_layers_read_no_more_than_their_window() -> None:
    at_1024 = sequence_bytes(GPT_OSS_120B, 2, ALONE, Contexts(1024))

    assert at_1024 == 36_864 * (1024 + 128) == 42_467_328
    assert sequence_bytes(GPT_OSS_120B, 2, ALONE, Contexts(100)) == 36_864 * 200
    assert attention_flops(GPT_OSS_120B, Contexts(1024)) == 18 * 4 * 64 * 64 * (1024 + 128)


def test_a_latent_is_read_by_every_rank_unless_the_attention_is_data_parallel() -> None:
    alone = sequence_bytes(DEEPSEEK_V3, 2, ALONE, Contexts(1))

    assert alone == 70_272
    assert sequence_bytes(DEEPSEEK_V3, 1, ALONE, Contexts(1)) == 35_136
    assert sequence_bytes(DEEPSEEK_V3, 2, Layout(tensor=8), Contexts(1)) == 8 * alone
    assert sequence_bytes(DEEPSEEK_V3, 2, Layout(tensor=8, copies=8), Contexts(1)) == alone
    assert sequence_bytes(DEEPSEEK_V3, 2, Layout(tensor=8, copies=2), Contexts(1)) == 4 * alone


@pytest.mark.parametrize(("ranks", "times"), [(1, 1), (4, 1), (8, 1), (16, 2), (32, 4)])
def test_ranks_beyond_the_kv_heads_read_the_same_heads_again(ranks: int, times: int) -> None:
    read = sequence_bytes(LLAMA_8B, 2, Layout(tensor=ranks), Contexts(10))

    assert read == times * 10 * 131_072


def test_a_sparse_selection_reads_its_keys_of_all_tokens_and_the_rest_of_a_few() -> None:
    sparse = of_model(DEEPSEEK_V3, AttentionLayers("latent", 61, 576, 1, None, 128, 2048))

    read = sequence_bytes(sparse, 1, ALONE, Contexts(10_000))
    assert read == 61 * (576 * 2048 + 132 * 10_000)
    assert sequence_bytes(sparse, 1, ALONE, Contexts(500)) == 61 * (576 + 132) * 500


def test_a_fixed_state_is_read_and_written_at_any_context() -> None:
    # Qwen3-Next: 36 such layers of 32 heads x 128 x 128 in fp32.
    linear = AttentionLayers("linear", 36, 0, 0, state_values=32 * 128 * 128)
    model = of_model(LLAMA_8B, linear)

    assert sequence_bytes(model, 2, ALONE, Contexts(1)) == 2 * 75_497_472
    assert sequence_bytes(model, 2, ALONE, Contexts(9000)) == 2 * 75_497_472
    assert sequence_bytes(model, 2, Layout(tensor=4), Contexts(5, 1, 10)) == 20 * 75_497_472


def test_what_every_tensor_rank_holds_whole_is_read_by_each() -> None:
    stored = in_bf16(DEEPSEEK_V3)
    one, eight = fixed_bytes(stored, ALONE), fixed_bytes(stored, Layout(tensor=8))

    assert eight - one == 7 * stored.replicated


def test_data_parallel_attention_holds_the_attention_once_per_rank() -> None:
    stored = in_bf16(DEEPSEEK_V3)
    plain = fixed_bytes(stored, Layout(tensor=8))
    data_parallel = fixed_bytes(stored, Layout(tensor=8, copies=8))
    # Rank by rank: q_b, kv_b and o whole on each of eight, instead of an eighth.
    sliced = 2 * 61 * (1536 * 24576 + 512 * 32768 + 16384 * 7168)
    routers = 2 * 58 * 256 * 7168

    assert data_parallel - plain == pytest.approx(7 * (sliced - routers))
    assert data_parallel - plain == pytest.approx(7 * sliced, rel=0.02)


def parallelism(**changes: int | str) -> Parallelism:
    one = {"replicas": 1, "tensor": 1, "pipeline": 1, "expert": 1, "data": 1}
    return Parallelism.model_validate({**one, "prefill_decode_split": "none", **changes})


@pytest.mark.parametrize(
    ("changes", "boards", "expected"),
    [
        ({}, 1, Layout()),
        ({}, 0, Layout()),
        ({"tensor": 8}, 8, Layout(tensor=8)),
        ({"tensor": 8, "expert": 8}, 8, Layout(tensor=8)),
        ({"replicas": 4, "tensor": 2}, 8, Layout(replicas=4, tensor=2)),
        ({"tensor": 4, "pipeline": 2}, 8, Layout(stages=2, tensor=4)),
        ({"data": 8, "expert": 8}, 8, Layout(ranks=8)),
        ({"data": 2, "tensor": 4, "replicas": 2}, 16, Layout(replicas=2, ranks=2, tensor=4)),
        ({"data": 8, "tensor": 8, "expert": 8}, 8, Layout(tensor=8, copies=8)),
        ({"data": 2, "tensor": 8}, 8, Layout(tensor=8, copies=2)),
    ],
)
def test_the_number_of_boards_tells_where_data_parallel_ranks_are(
    changes: dict[str, int], boards: int, expected: Layout
) -> None:
    assert layout_of(parallelism(**changes), boards) == expected


@pytest.mark.parametrize(
    ("changes", "boards", "named"),
    [
        ({"tensor": 8}, 4, "4 boards"),
        ({"tensor": 4, "data": 3}, 4, "data: 3"),
        ({"tensor": 4, "expert": 16}, 4, "expert: 16"),
        ({"tensor": 4, "prefill_decode_split": "1P1D"}, 4, "1P1D"),
        ({"tensor": 4, "prefill_decode_split": "not recorded"}, 4, "not recorded"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(
    changes: dict[str, int | str], boards: int, named: str
) -> None:
    with pytest.raises(NoFigure, match=named):
        layout_of(parallelism(**changes), boards)


def test_one_row_of_the_embedding_is_read_also_where_it_is_the_head() -> None:
    untied = in_bf16(LLAMA_8B)

    assert row_bytes(LLAMA_8B, untied) == 4096 * 2
    assert row_bytes(LLAMA_8B, replace(untied, embedding=0.0)) == 4096 * 2


def test_a_prompt_goes_through_all_but_the_output_matrix() -> None:
    both = weight_flops(LLAMA_8B, 100, 1)

    assert LLAMA_8B.active == 7_504_924_672
    assert weight_flops(LLAMA_8B, 0, 1) == 2 * 7_504_924_672
    assert both - weight_flops(LLAMA_8B, 0, 1) == 200 * (7_504_924_672 - 128_256 * 4096)


def test_a_prompt_of_a_latent_model_attends_to_keys_and_values_and_an_answer_to_latents() -> None:
    contexts = Contexts(1, 1, 8192)
    (kept,) = DEEPSEEK_V3.attention
    shape = replace(DEEPSEEK_V3, attention=(replace(kept, prompt_flops_per_pair=81_920),))
    pairs = 61 * 8192 * 8193 / 2

    assert attention_flops(shape, contexts) == pairs * 278_528
    assert attention_flops(shape, contexts, prompt=True) == pairs * 81_920
    assert attention_flops(LLAMA_8B, contexts) == attention_flops(LLAMA_8B, contexts, prompt=True)
