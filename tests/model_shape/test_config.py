from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import safetensors_files as files
from tokenwatt_site.errors import InputError
from tokenwatt_site.model_shape import describe
from tokenwatt_site.model_shape.config import decoder_of
from tokenwatt_site.model_shape.document import ModelDocument
from tokenwatt_site.model_shape.families import ARCHITECTURES, MODEL_TYPES
from tokenwatt_site.model_shape.folder import read_model
from tokenwatt_site.model_shape.quantization import storage_of
from tokenwatt_site.model_shape.shape import AttentionLayers, ModelShape, StoredBytes


def document_of(test_data: Path, name: str) -> ModelDocument:
    folder = test_data / "model-configs"
    config = read_model(folder / f"{name}.json").config
    sidecar = folder / f"{name}.hf_quant_config.json"
    return ModelDocument(config, json.loads(sidecar.read_text()) if sidecar.exists() else None)


def described(test_data: Path, name: str) -> tuple[ModelShape, StoredBytes]:
    return describe(document_of(test_data, name))


# Parameters, active parameters, bytes. Numbers are exact: those of the reference, or the published
# counts of the text model alone (safetensors totals, llama.cpp's n_params). Texts are what the
# model's card or the size of its files rounds to.
PUBLISHED = {
    "MiniMaxAI--MiniMax-M2.5": (228_689_764_864, "10e9", "230e9"),
    "Qwen--Qwen3-235B-A22B": (235_093_634_560, "22e9", 470_187_269_120),
    "Qwen--Qwen3-30B-A3B": (30_532_122_624, "3.3e9", 61_064_245_248),
    "Qwen--Qwen3-30B-A3B-FP8": (30_532_122_624, "3.3e9", "31.2e9"),
    "Qwen--Qwen3-8B": (8_190_735_360, "8.2e9", 16_381_470_720),
    "Qwen--Qwen3-Next-80B-A3B": (79_674_391_296, "3.9e9", 159_348_782_592),
    "Qwen--Qwen3-VL-8B-Instruct": (8_190_735_360, "8.2e9", 16_381_470_720),
    "Qwen--Qwen3.5-35B-A3B": (34_660_610_688, "3.5e9", 69_321_221_376),
    "Qwen--Qwen3.5-397B-A17B": (396_346_350_336, "17e9", "792.69e9"),
    "deepseek-ai--DeepSeek-R1": (671_026_419_200, 37_552_297_472, "673e9"),
    "deepseek-ai--DeepSeek-V3": (671_026_419_200, 37_552_297_472, "673e9"),
    "deepseek-ai--DeepSeek-V3.2": ("672e9", "38e9", "674e9"),
    "meta-llama--Llama-4-Maverick-17B-128E-Instruct": (400_711_848_960, "17e9", 801_423_697_920),
    "meta-llama--Meta-Llama-3.1-70B": (70_553_706_496, 70_553_706_496, 141_107_412_992),
    "meta-llama--Meta-Llama-3.1-8B": (8_030_261_248, 8_030_261_248, 16_060_522_496),
    "mistralai--Mixtral-8x7B-v0.1": (46_702_792_704, 12_879_925_248, 93_405_585_408),
    "moonshotai--Kimi-K2-Instruct": (1_026_408_232_448, "32e9", "1029.17e9"),
    "nvidia--DeepSeek-V3.1-NVFP4": (671_026_419_200, 37_552_297_472, "386e9"),
    "nvidia--Llama-3.1-70B-Instruct-FP8": (70_553_706_496, 70_553_706_496, "72.7e9"),
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (31_577_940_288, "3.6e9", 63_155_886_464),
    "nvidia--Nemotron-H-56B-Base-8K": ("56e9", "56e9", "113e9"),
    "nvidia--Qwen3-235B-A22B-NVFP4": (235_093_634_560, "22e9", "134e9"),
    "openai--gpt-oss-120b": (116_829_156_672, "5.7e9", 65_248_815_744),
    "openai--gpt-oss-20b": (20_914_757_184, "4.2e9", "13.76e9"),
}
REFUSED = {"deepseek-ai--DeepSeek-V4-Flash": "deepseek_v4"}


def agrees(found: float, published: int | str) -> bool:
    """Exact, or less than one of the last digit away: some cards round down."""
    if isinstance(published, int):
        return found == published
    digits = published.removesuffix("e9").partition(".")[2]
    return abs(found - float(published)) < 10 ** (9 - len(digits))


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_bytes_are_the_published_ones(name: str, test_data: Path) -> None:
    shape, stored = described(test_data, name)
    parameters, active, size = PUBLISHED[name]
    assert agrees(shape.parameters, parameters)
    # Some cards count the embedding.
    assert agrees(shape.active, active) or agrees(shape.active + shape.embedding, active)
    assert agrees(stored.total(shape), size)


def test_every_config_is_modelled_or_refused_by_name(test_data: Path) -> None:
    folder = test_data / "model-configs"
    there = {p.stem for p in folder.glob("*.json") if not p.stem.endswith("hf_quant_config")}
    assert there == PUBLISHED.keys() | REFUSED.keys()
    for name, kind in REFUSED.items():
        with pytest.raises(InputError, match="this architecture is not modelled") as caught:
            described(test_data, name)
        assert f"found {kind} (DeepseekV4ForCausalLM); expected one of" in str(caught.value)
        assert all(each in str(caught.value) for each in MODEL_TYPES)


def test_scales_of_minimax_are_as_many_as_its_published_total_has(test_data: Path) -> None:
    # 228,703,644,928 values are in its files: the parameters, and an fp32 scale for each block. A
    # parameter takes one byte, in bf16 (ends, norms, routers) one more, in fp32 three more.
    shape, stored = described(test_data, "MiniMaxAI--MiniMax-M2.5")
    scales = 228_703_644_928 - shape.parameters
    corrections = 62 * 256
    whole = shape.embedding + shape.head + shape.replicated - corrections
    assert stored.total(shape) == shape.parameters + 4 * scales + whole + 3 * corrections


def kv_values(shape: ModelShape) -> int:
    return sum(a.layers * a.kv_values for a in shape.attention)


@pytest.mark.parametrize(
    ("name", "kv_bytes_bf16"),
    [
        ("meta-llama--Meta-Llama-3.1-8B", 131_072),
        ("meta-llama--Meta-Llama-3.1-70B", 327_680),
        ("Qwen--Qwen3-30B-A3B", 98_304),
        ("Qwen--Qwen3-235B-A22B", 192_512),
        ("Qwen--Qwen3-Next-80B-A3B", 24_576),
        ("deepseek-ai--DeepSeek-V3", 70_272),
        ("moonshotai--Kimi-K2-Instruct", 70_272),
        ("openai--gpt-oss-120b", 2 * 36_864),
    ],
)
def test_kv_per_token_is_that_of_the_reference(
    name: str, kv_bytes_bf16: int, test_data: Path
) -> None:
    assert 2 * kv_values(described(test_data, name)[0]) == kv_bytes_bf16


def test_llama_3_1_8b_reads_all_but_its_embedding(test_data: Path) -> None:
    shape, stored = described(test_data, "meta-llama--Meta-Llama-3.1-8B")
    assert stored.head + stored.dense == 15_009_849_344
    assert (shape.head, shape.embedding) == (128_256 * 4096, 128_256 * 4096)
    assert (shape.max_context, shape.experts, shape.left_out) == (131_072, (), ())
    assert sum(a.layers * a.flops_per_pair for a in shape.attention) == 32 * 32 * 4 * 128


def test_qwen3_30b_has_experts_of_its_own_size(test_data: Path) -> None:
    shape, stored = described(test_data, "Qwen--Qwen3-30B-A3B")
    (group,) = shape.experts
    assert (group.layers, group.experts, group.per_token) == (48, 128, 8)
    assert (group.parameters, stored.expert) == (4_718_592, (2 * 4_718_592,))
    distinct = 128 * (1 - (1 - 8 / 128) ** 64)
    read = stored.head + stored.dense + 48 * distinct * stored.expert[0]
    assert round(read) == 59_509_830_820


def test_deepseek_v3_keeps_one_latent_and_leaves_its_draft_out(test_data: Path) -> None:
    shape, stored = described(test_data, "deepseek-ai--DeepSeek-V3")
    (kept,) = shape.attention
    assert (kept.kind, kept.layers, kept.kv_values, kept.kv_heads) == ("latent", 61, 576, 1)
    assert kept.flops_per_pair == 2 * 128 * (2 * 512 + 64)
    # A prompt's keys are of 128 + 64 values and its values of 128, for each of 128 heads.
    assert kept.prompt_flops_per_pair == 2 * 128 * (128 + 64) + 2 * 128 * 128
    assert shape.active == 37_552_297_472 - shape.embedding
    assert shape.left_out == ("1 draft layers (multi-token prediction)",)
    assert stored.kv_value == 2.0


def test_deepseek_v3_with_its_draft_fills_the_published_weight_files(test_data: Path) -> None:
    # 688,586,727,753 bytes of files, of which headers of 91,991 tensors take some 130 bytes each.
    document = document_of(test_data, "deepseek-ai--DeepSeek-V3")
    shape, stored = describe(document)
    storage = storage_of(document)
    layer = sum(map(storage.bytes_of, decoder_of(document.config).layers[-1].weights))
    own = 2 * (2 * 129_280 * 7168 + 2 * 7168 * 7168 + 3 * 7168)  # embedding, head, joint, norms
    headers = 688_586_727_753 - (stored.total(shape) + layer + own)
    assert 100 < headers / 91_991 < 160


def test_deepseek_v3_2_selects_tokens_by_keys_of_its_own(test_data: Path) -> None:
    shape, _ = described(test_data, "deepseek-ai--DeepSeek-V3.2")
    (kept,) = shape.attention
    assert (kept.kv_values, kept.index_values, kept.index_top) == (576, 128, 2048)
    assert kept.index_bytes == 132
    plain, _ = described(test_data, "deepseek-ai--DeepSeek-V3")
    indexer = 64 * 128 * 1536 + 128 * 7168 + 2 * 128 + 64 * 7168
    assert shape.parameters - plain.parameters == 61 * indexer
    assert shape.replicated - plain.replicated == 61 * indexer


def test_kimi_is_known_by_its_latent_and_not_by_its_name(test_data: Path) -> None:
    config = document_of(test_data, "moonshotai--Kimi-K2-Instruct").config
    for name in ("kimi_k2", "kimi_k9"):
        shape, _ = describe(ModelDocument({**config, "model_type": name}))
        assert shape.name == name
        assert [(a.kind, a.layers, a.kv_values) for a in shape.attention] == [("latent", 61, 576)]
        assert [(e.layers, e.experts) for e in shape.experts] == [(60, 384)]


def test_gpt_oss_alternates_windows_and_packs_its_experts_alone(test_data: Path) -> None:
    shape, stored = described(test_data, "openai--gpt-oss-120b")
    assert [(a.layers, a.window, a.kv_values) for a in shape.attention] == [
        (18, 128, 1024),
        (18, None, 1024),
    ]
    seen = sum(a.layers * a.kv_values * min(1024, a.window or 1024) for a in shape.attention)
    assert 2 * seen == 42_467_328
    assert 5.13e9 < shape.active < 5.135e9
    assert stored.dense == 2 * shape.dense
    matrices, biases = 3 * 2880 * 2880, 3 * 2880
    assert shape.experts[0].parameters == matrices + biases
    assert stored.expert == (matrices * 0.53125 + 2 * biases,)
    assert stored.kv_value is None
    assert any("no file names it" in text for text in shape.left_out)


def test_qwen3_next_keeps_a_state_of_fixed_size_in_three_of_four_layers(test_data: Path) -> None:
    shape, _ = described(test_data, "Qwen--Qwen3-Next-80B-A3B")
    linear, full = shape.attention
    assert (linear.kind, linear.layers, linear.kv_values) == ("linear", 36, 0)
    assert linear.layers * linear.state_values * linear.state_value_bytes == 75_497_472
    assert (full.kind, full.layers, full.kv_heads) == ("grouped", 12, 2)


def test_nemotrons_letters_are_layers_of_four_kinds(test_data: Path) -> None:
    shape, _ = described(test_data, "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    assert [(a.kind, a.layers) for a in shape.attention] == [("linear", 23), ("grouped", 6)]
    assert shape.attention[0].state_values == 64 * 64 * 128
    assert [(e.layers, e.experts, e.per_token) for e in shape.experts] == [(23, 128, 6)]
    dense, _ = described(test_data, "nvidia--Nemotron-H-56B-Base-8K")
    assert [(a.kind, a.layers) for a in dense.attention] == [("linear", 54), ("grouped", 10)]
    assert dense.layers - sum(a.layers for a in dense.attention) == 54  # feed-forward alone


def test_llama_4_routes_in_every_other_layer_and_reads_chunks_in_three_of_four(
    test_data: Path,
) -> None:
    shape, _ = described(test_data, "meta-llama--Llama-4-Maverick-17B-128E-Instruct")
    assert [(a.layers, a.window) for a in shape.attention] == [(36, 8192), (12, None)]
    assert [(e.layers, e.experts, e.per_token) for e in shape.experts] == [(24, 128, 1)]
    assert any("an upper bound" in text for text in shape.left_out)


def test_towers_and_drafts_are_named_as_left_out(test_data: Path) -> None:
    assert described(test_data, "Qwen--Qwen3-VL-8B-Instruct")[0].left_out == ("tower for images",)
    assert described(test_data, "Qwen--Qwen3.5-35B-A3B")[0].left_out == (
        "1 draft layers (multi-token prediction)",
        "tower for images",
    )


# Our config, and the name under which vLLM's own test has its numbers.
SAME = {
    "Qwen--Qwen3-Next-80B-A3B": "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "openai--gpt-oss-20b": "lmsys/gpt-oss-20b-bf16",
    "deepseek-ai--DeepSeek-V3.2": "deepseek-ai/DeepSeek-V3.2-Exp",
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
}


@pytest.mark.parametrize("name", SAME)
def test_sizes_are_those_that_vllm_derives(name: str, test_data: Path) -> None:
    told = test_data / "model-configs" / "expected" / "vllm_base_model_arch_groundtruth.json"
    expected = json.loads(told.read_text())[SAME[name]]
    shape, _ = described(test_data, name)
    kept = [a for a in shape.attention if a.kind != "linear"]
    assert shape.layers == expected["total_num_hidden_layers"]
    assert (shape.hidden, shape.vocabulary) == (expected["hidden_size"], expected["vocab_size"])
    assert {e.experts for e in shape.experts} == {expected["num_experts"]}
    assert {a.kind == "latent" for a in kept} == {expected["is_deepseek_mla"]}
    heads, size = expected["total_num_attention_heads"], expected["head_size"]
    if expected["is_deepseek_mla"]:
        assert {a.kv_values for a in kept} == {size}
        assert {a.flops_per_pair for a in kept} == {2 * heads * (size + 512)}
    else:
        assert {a.kv_heads for a in kept} == {expected["total_num_kv_heads"]}
        assert {a.kv_values for a in kept} == {2 * expected["total_num_kv_heads"] * size}
        assert {a.flops_per_pair for a in kept} == {4 * heads * size}


def test_grouped_attention_without_a_size_of_heads_divides_the_width() -> None:
    shape, _ = describe(ModelDocument(files.LLAMA))
    assert shape.attention == (
        AttentionLayers("grouped", 2, kv_values=64, kv_heads=2, flops_per_pair=4 * 64),
    )
    assert describe(ModelDocument({**files.LLAMA, "head_dim": 32}))[0].attention[0].kv_values == 128


def test_biases_and_tied_embeddings_count_where_the_config_has_them() -> None:
    plain, _ = describe(ModelDocument(files.LLAMA))
    biased, _ = describe(ModelDocument({**files.LLAMA, "attention_bias": True, "mlp_bias": True}))
    assert biased.parameters - plain.parameters == 2 * (64 + 32 + 32 + 64) + 2 * (160 + 160 + 64)
    qwen2, _ = describe(ModelDocument({**files.LLAMA, "model_type": "qwen2"}))
    assert qwen2.parameters - plain.parameters == 2 * (64 + 32 + 32)
    tied, stored = describe(ModelDocument({**files.LLAMA, "tie_word_embeddings": True}))
    assert plain.parameters - tied.parameters == 256 * 64
    assert (tied.active, stored.embedding, stored.head) == (plain.active, 0, 2 * 256 * 64)


def test_qwen2_5_7b_has_its_published_size() -> None:
    config = {
        "model_type": "qwen2",
        "vocab_size": 152_064,
        "hidden_size": 3584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "sliding_window": 131_072,
        "use_sliding_window": False,
        "max_window_layers": 28,
    }
    shape, _ = describe(ModelDocument(config))
    assert shape.parameters == 7_615_616_512
    assert [a.window for a in shape.attention] == [None]
    late = {**config, "use_sliding_window": True, "max_window_layers": 21}
    windows = [(a.layers, a.window) for a in describe(ModelDocument(late))[0].attention]
    assert windows == [(21, None), (7, 131_072)]


def test_deepseek_v2_lite_has_its_published_size() -> None:
    config = {
        "model_type": "deepseek_v2",
        "vocab_size": 102_400,
        "hidden_size": 2048,
        "intermediate_size": 10_944,
        "moe_intermediate_size": 1408,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "first_k_dense_replace": 1,
        "topk_method": "greedy",
    }
    assert describe(ModelDocument(config))[0].parameters == 15_706_484_224


def test_a_window_of_mistral_is_that_of_every_layer() -> None:
    config = {**files.LLAMA, "model_type": "mistral", "sliding_window": 128}
    assert [a.window for a in describe(ModelDocument(config))[0].attention] == [128]


def test_layers_without_experts_are_dense() -> None:
    config = {
        **files.LLAMA,
        "model_type": "qwen3_moe",
        "num_hidden_layers": 6,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [3],
    }
    shape, _ = describe(ModelDocument(config))
    assert [(e.layers, e.parameters) for e in shape.experts] == [(2, 3 * 64 * 32)]


LLAMA_4 = {
    **files.LLAMA,
    "model_type": "llama4_text",
    "num_hidden_layers": 4,
    "intermediate_size_mlp": 96,
    "num_local_experts": 4,
    "num_experts_per_tok": 1,
    "attention_chunk_size": 32,
}


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "another letter": ({**files.NEMOTRON, "hybrid_override_pattern": "M*-X"}, "pattern.3."),
    "letters for fewer layers": ({**files.NEMOTRON, "num_hidden_layers": 5}, "one letter for each"),
    "another type of layer": (
        {**files.LLAMA, "layer_types": ["full_attention", "hash_attention"]},
        r"layer_types\[1\].*hash_attention",
    ),
    "types for fewer layers": ({**files.LLAMA, "layer_types": ["full_attention"]}, "layer_types"),
    "experts in a dense family": ({**files.LLAMA, "num_local_experts": 8}, "num_local_experts"),
    "experts of another family": ({**files.LLAMA, "num_experts": 8}, "num_experts"),
    "no latent where there should be one": (
        {**files.DEEPSEEK, "kv_lora_rank": None},
        "kv_lora_rank: is missing",
    ),
    "a window over a latent": (
        {**files.DEEPSEEK, "layer_types": ["sliding_attention"] * 2, "sliding_window": 8},
        "full attention everywhere",
    ),
    "linear attention in MiniMax": (
        {
            **files.LLAMA,
            "model_type": "minimax_m2",
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "attn_type_list": [0, 1],
        },
        "attn_type_list",
    ),
    "rope in fewer layers": ({**LLAMA_4, "no_rope_layers": [1]}, "no_rope_layers"),
    "a type of layer that Qwen has not": (
        {**files.QWEN35["text_config"], "layer_types": ["mamba", "full_attention"]},
        "mamba",
    ),
    "a window in Qwen's hybrid": (
        {**files.QWEN35["text_config"], "use_sliding_window": True},
        "use_sliding_window",
    ),
    "a window in Nemotron": ({**files.NEMOTRON, "sliding_window": 64}, "sliding_window"),
    "a tie that is no flag": ({**files.LLAMA, "tie_word_embeddings": 1}, "tie_word_embeddings"),
    "types that are no words": ({**files.LLAMA, "layer_types": [1, 2]}, "layer_types"),
    "layers that are no numbers": ({**LLAMA_4, "moe_layers": ["a"]}, "moe_layers"),
    "no list of keys": ([1], "is no JSON object"),
    "a latent in a dense family": ({**files.LLAMA, "kv_lora_rank": 512}, "kv_lora_rank"),
    "compressed layers": ({**files.DEEPSEEK, "compress_ratios": [0, 4]}, "compress_ratios"),
    "a gate on the output": ({**files.LLAMA, "attn_output_gate": True}, "attn_output_gate"),
    "shared experts of MiniMax": (
        {
            **files.LLAMA,
            "model_type": "minimax_m2",
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 64,
        },
        "shared_intermediate_size",
    ),
    "more experts a token than there are": (
        {**files.GPT_OSS, "num_experts_per_tok": 5},
        "at most the 4 experts",
    ),
    "no width": ({**files.LLAMA, "hidden_size": None}, "hidden_size: is missing"),
    "a number as text": ({**files.LLAMA, "hidden_size": "64"}, "hidden_size: is not understood"),
    "a negative number": ({**files.LLAMA, "num_attention_heads": -4}, "num_attention_heads"),
    "too many layers": ({**files.LLAMA, "num_hidden_layers": 10**9}, "at most 1024 layers"),
    "a flag as a number": ({**files.LLAMA, "attention_bias": 1}, "attention_bias"),
    "a state of an odd type": (
        {**files.NEMOTRON, "mamba_ssm_cache_dtype": "float8"},
        "mamba_ssm_cache_dtype",
    ),
    "no object": ({"text_config": 3}, "text_config"),
    "nothing": ({}, "None .no architecture."),
    "another family": ({"model_type": "rwkv7", "architectures": ["Rwkv7"]}, r"rwkv7 .Rwkv7."),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_not_modelled_is_refused_by_name(case: str) -> None:
    config, why = REFUSALS[case]
    with pytest.raises(InputError, match=why):
        describe(ModelDocument(config))


def test_a_latent_may_come_without_a_compressed_query_and_layers_without_shared_experts() -> None:
    plain, _ = describe(ModelDocument(files.DEEPSEEK))
    config = {**files.DEEPSEEK, "q_lora_rank": None, "n_shared_experts": None}
    shape, _ = describe(ModelDocument(config))
    query = 2 * (192 * 256 - (128 * 256 + 128 + 192 * 128))
    assert shape.parameters - plain.parameters == query - 3 * 128 * 256
    with pytest.raises(InputError, match=r"q_lora_rank: is missing.*that the indexer reads"):
        describe(
            ModelDocument({**config, "index_topk": 8, "index_head_dim": 8, "index_n_heads": 2})
        )


@pytest.mark.parametrize(
    ("changes", "windows", "routed"),
    [
        ({}, [(3, 32), (1, None)], 4),
        ({"no_rope_layers": [1, 0, 0, 0]}, [(1, 32), (3, None)], 4),
        ({"layer_types": ["chunked_attention", "full_attention"] * 2}, [(2, 32), (2, None)], 4),
        ({"moe_layers": [1, 3], "attention_chunk_size": None}, [(4, None)], 2),
        ({"interleave_moe_layer_step": 2}, [(3, 32), (1, None)], 2),
    ],
)
def test_layers_of_llama_4_are_what_its_lists_say(
    changes: dict[str, Any], windows: list[Any], routed: int
) -> None:
    shape, _ = describe(ModelDocument({**LLAMA_4, **changes}))
    assert [(a.layers, a.window) for a in shape.attention] == windows
    assert [e.layers for e in shape.experts] == [routed]


def test_every_architecture_leads_to_a_family() -> None:
    assert set(ARCHITECTURES.values()) <= MODEL_TYPES.keys()


junk = (
    st.none()
    | st.booleans()
    | st.integers(-3, 2**40)
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "float32", "full_attention", "FP8", "fp8", "re:(a+)+$", "M*-E"])
    | st.lists(st.integers(-1, 9) | st.text("ab*[(", max_size=4), max_size=4)
    | st.dictionaries(
        st.sampled_from(["quant_method", "bits", "group_size"]), st.integers(), max_size=2
    )
)
CONFIGS = [config for config, _ in files.FAMILIES.values()]
KEYS = sorted({key for config in CONFIGS for key in {**config, **config.get("text_config", {})}})


@given(
    st.sampled_from(CONFIGS),
    st.dictionaries(st.sampled_from(KEYS), junk, max_size=4),
    st.none() | junk | st.fixed_dictionaries({"quantization": junk}),
)
def test_no_config_crashes_the_description(
    config: dict[str, Any], changes: dict[str, Any], sidecar: Any
) -> None:
    inner = {**config.get("text_config", {}), **changes}
    for changed in ({**config, **changes}, {**config, "text_config": inner}):
        try:
            shape, stored = describe(ModelDocument(changed, sidecar))
        except InputError:
            continue
        assert shape.parameters > 0
        assert stored.total(shape) > 0


def test_a_list_that_is_longer_than_layers_are_many_is_refused() -> None:
    config = {
        **files.LLAMA,
        "model_type": "qwen3_moe",
        "num_experts": 4,
        "mlp_only_layers": [0] * 1025,
    }
    with pytest.raises(InputError, match="mlp_only_layers: is not understood"):
        describe(ModelDocument(config))


def test_of_many_unknown_keys_the_first_are_named() -> None:
    config = {**files.LLAMA, **{f"expert_{n}": 1 for n in range(500)}}
    with pytest.raises(InputError, match="and 490 more keys") as caught:
        describe(ModelDocument(config))
    assert len(str(caught.value)) < 5000
