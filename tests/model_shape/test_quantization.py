from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import safetensors_files as files
from tokenwatt_site.errors import InputError
from tokenwatt_site.model_shape import describe, kv_value_bytes, schemes
from tokenwatt_site.model_shape.document import ModelDocument
from tokenwatt_site.model_shape.quantization import storage_of

WIDE = (8192, 8192)


def bits(scheme: schemes.Scheme | None) -> float:
    assert scheme is not None
    return scheme.bytes_of(WIDE) * 8 / (WIDE[0] * WIDE[1])


def document(rules: object, **more: Any) -> ModelDocument:
    return ModelDocument({**files.LLAMA, "quantization_config": rules, **more})


def sidecar(rules: object) -> ModelDocument:
    return ModelDocument(files.LLAMA, {"producer": {}, "quantization": rules})


def compressed(weights: object, **more: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": groups,
        "ignore": ["lm_head"],
        **more,
    }


FP8 = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (document({"quant_method": "fp8"}), 8.0),
        (document({"quant_method": "fp8", "weight_block_size": [128, 128]}), 8.002),
        (document({"quant_method": "gptq", "bits": 4, "group_size": 128}), 4.160),
        (document({"quant_method": "gptq", "bits": 8, "group_size": -1}), 8.007),
        (document({"quant_method": "awq", "bits": 4, "group_size": 128}), 4.156),
        (
            document({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": False}),
            4.25,
        ),
        (ModelDocument({**files.LLAMA, "quantization": {"bits": 4, "group_size": 64}}), 4.5),
        (
            ModelDocument(
                {**files.LLAMA, "quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}}
            ),
            4.25,
        ),
        (document(compressed(FP8)), 8.0),
        (document(compressed({**FP8, "strategy": "channel"})), 8.002),
        (document(compressed({**FP8, "strategy": "block", "block_structure": [128, 128]})), 8.002),
        (
            document(
                compressed({**FP8, "num_bits": 4, "strategy": "tensor_group", "group_size": 16})
            ),
            4.5,
        ),
        (document(compressed({**FP8, "num_bits": 4, "strategy": "group", "group_size": 32})), 4.25),
        (document(compressed({**FP8, "strategy": "group", "group_size": 32})), 8.25),
        (document(compressed(INT4)), 4.5),
        (document(compressed({**INT4, "group_size": 128, "symmetric": False})), 4.156),
        (document(compressed({**INT4, "num_bits": 8, "strategy": "channel"})), 8.002),
        (document({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}), 4.5),
        (sidecar({"quant_algo": "FP8"}), 8.0),
        (sidecar({"quant_algo": "FP8_PB_WO"}), 8.002),
        (sidecar({"quant_algo": "NVFP4", "group_size": 16}), 4.5),
        (sidecar({"quant_algo": "MXFP8"}), 8.25),
        (sidecar({"quant_algo": "W4A16_AWQ", "group_size": 128}), 4.125),
    ],
)
def test_bits_a_weight_are_counted_with_their_scales(found: ModelDocument, expected: float) -> None:
    storage = storage_of(found)
    assert bits(storage.scheme_of("layers.0.mlp.up_proj")) == pytest.approx(expected, abs=5e-4)
    implied, stored = describe(ModelDocument(files.LLAMA)), describe(found)
    assert stored[0].parameters == implied[0].parameters
    assert stored[1].replicated == implied[1].replicated  # norms stay as they are


def test_mxfp4_and_mxfp8_have_a_byte_for_32_values_and_blocks_are_rounded_up() -> None:
    assert (bits(schemes.MXFP4), bits(schemes.MXFP8)) == (4.25, 8.25)
    assert schemes.MXFP4.bytes_of((1, 32)) == 32 * 0.53125
    assert schemes.NVFP4.bytes_of((2, 16)) == 2 * (8 + 1) + 8
    assert schemes.block_fp8(128, 128).bytes_of((129, 256)) == 129 * 256 + 4 * 2 * 2
    assert schemes.grouped(4, 0, 2).bytes_of((3, 64)) == 3 * 32 + 3 * 2


def test_no_quantisation_is_the_data_type_of_the_model() -> None:
    for name, size in (("bfloat16", 2), ("float16", 2), ("float32", 4), ("torch.float32", 4)):
        _, stored = describe(ModelDocument({**files.LLAMA, "torch_dtype": name}))
        assert (stored.dense, stored.kv_value) == (size * describe_plain().dense, float(size))


def describe_plain() -> Any:
    return describe(ModelDocument(files.LLAMA))[0]


def test_only_the_modules_that_a_sidecar_leaves_in_are_packed(test_data: Path) -> None:
    folder = test_data / "model-configs"
    name = "nvidia--DeepSeek-V3.1-NVFP4"
    rules = json.loads((folder / f"{name}.hf_quant_config.json").read_text())
    storage = storage_of(ModelDocument(json.loads((folder / f"{name}.json").read_text()), rules))
    front = "layers.9.self_attn"
    alone = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
    assert all(storage.scheme_of(f"{front}.{each}") is None for each in alone)
    assert storage.scheme_of(f"{front}.o_proj") == schemes.NVFP4
    assert storage.scheme_of("layers.9.mlp.experts.0.up_proj") == schemes.NVFP4
    assert storage.scheme_of("layers.61.mlp.experts.0.up_proj") is None
    assert storage.scheme_of("lm_head") is None
    assert storage.kv_value == 1.0


def test_a_sidecar_halves_the_bytes_that_the_config_alone_implies(test_data: Path) -> None:
    folder = test_data / "model-configs"
    name = "nvidia--Llama-3.1-70B-Instruct-FP8"
    config = json.loads((folder / f"{name}.json").read_text())
    rules = json.loads((folder / f"{name}.hf_quant_config.json").read_text())
    shape, blind = describe(ModelDocument(config))
    _, stored = describe(ModelDocument(config, rules))
    matrices = shape.dense - shape.replicated
    scales = 80 * 7 * 8  # of weights and of inputs, one fp32 each
    assert blind.dense - stored.dense == matrices - scales
    assert (stored.head, stored.embedding) == (blind.head, blind.embedding)
    assert (blind.kv_value, stored.kv_value) == (2.0, 1.0)


@pytest.mark.parametrize(
    ("name", "router", "expert"),
    [
        ("Qwen--Qwen3-30B-A3B-FP8", "mlp.gate", "mlp.experts.0.gate_proj"),
        ("MiniMaxAI--MiniMax-M2.5", "block_sparse_moe.gate", "block_sparse_moe.experts.0.w1"),
        ("openai--gpt-oss-120b", "mlp.router", "mlp.experts.0.gate_up_proj"),
    ],
)
def test_routers_stay_whole_where_the_file_excepts_them(
    name: str, router: str, expert: str, test_data: Path
) -> None:
    config = json.loads((test_data / "model-configs" / f"{name}.json").read_text())
    storage = storage_of(ModelDocument(config))
    for layer in (0, 1, 20):
        assert storage.scheme_of(f"layers.{layer}.{router}") is None
        assert storage.scheme_of(f"layers.{layer}.{expert}") is not None


def test_mlx_packs_embedding_and_head_too_and_lists_exceptions() -> None:
    rules = {
        "bits": 4,
        "group_size": 64,
        "model.layers.1.mlp.up_proj": {"bits": 8, "group_size": 64},
        "model.layers.0.mlp.up_proj": False,
    }
    storage = storage_of(ModelDocument({**files.LLAMA, "quantization": rules}))
    assert bits(storage.scheme_of("embed_tokens")) == bits(storage.scheme_of("lm_head")) == 4.5
    assert bits(storage.scheme_of("layers.1.mlp.up_proj")) == 8.5
    assert storage.scheme_of("layers.0.mlp.up_proj") is None


def test_mixed_precision_follows_its_list_and_leaves_the_rest() -> None:
    listed = {
        "model.layers.0.mlp": {"quant_algo": "NVFP4", "group_size": 16},
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
    }
    storage = storage_of(sidecar({"quant_algo": "MIXED_PRECISION", "quantized_layers": listed}))
    assert storage.scheme_of("layers.0.mlp.up_proj") == schemes.NVFP4
    assert bits(storage.scheme_of("layers.0.self_attn.q_proj")) == pytest.approx(8, abs=1e-5)
    assert storage.scheme_of("layers.1.mlp.up_proj") is None


def test_groups_of_compressed_tensors_are_for_the_modules_they_name() -> None:
    rules = compressed(FP8)
    rules["config_groups"]["group_1"] = {"targets": ["re:.*down_proj"], "weights": INT4}
    storage = storage_of(document(rules))
    assert bits(storage.scheme_of("layers.0.mlp.down_proj")) == pytest.approx(4.5)
    assert bits(storage.scheme_of("layers.0.mlp.up_proj")) == pytest.approx(8)
    assert storage.scheme_of("lm_head") is None


def test_a_head_that_is_quantised_is_counted_so() -> None:
    rules = {"quant_method": "gptq", "bits": 4, "group_size": 32, "lm_head": True}
    _, stored = describe(document(rules))
    assert stored.head == schemes.grouped(4, 32, 2.5, input_bytes=4).bytes_of((256, 64))
    assert stored.embedding == 2 * 256 * 64


def test_an_expert_that_is_stored_unlike_the_others_is_refused() -> None:
    rules = {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.1.mlp.experts.2"]}
    with pytest.raises(InputError, match="of 1 experts'; expected all 4 or none"):
        describe(ModelDocument({**files.DEEPSEEK, "quantization_config": rules}))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (
            document({"quant_method": "bitsandbytes"}),
            "quant_method.*'bitsandbytes'.*expected one of awq",
        ),
        (document({"bits": 4}), "quant_method: is missing"),
        (document("fp8"), "quantization_config: is not understood"),
        (document({"quant_method": "fp8", "weight_block_size": [128]}), "two whole numbers"),
        (document({"quant_method": "fp8", "modules_to_not_convert": "gate"}), "a list of names"),
        (
            document({"quant_method": "gptq", "bits": 4, "group_size": 64, "dynamic": {"a": 1}}),
            "dynamic",
        ),
        (document({"quant_method": "gptq", "bits": 7, "group_size": 64}), "bits"),
        (document({"quant_method": "awq", "bits": 4}), "group_size: is missing"),
        (document(compressed({**FP8, "strategy": "token"})), "strategy.*'token' of 8 bits"),
        (document(compressed(None)), "how weights are stored"),
        (document(compressed(FP8, sparsity_config={"format": "sparse-24"})), "sparse-24"),
        (document({"quant_method": "compressed-tensors"}), "config_groups: is missing"),
        (sidecar({"quant_algo": "FP3"}), "hf_quant_config.json: quant_algo: is not understood"),
        (sidecar({"quant_algo": "NVFP4", "group_size": 32}), "16, which NVFP4 has"),
        (sidecar({"quant_algo": "FP8", "kv_cache_quant_algo": "FP3"}), "kv_cache_quant_algo"),
        (ModelDocument(files.LLAMA, [1]), "hf_quant_config.json: is not understood"),
        (ModelDocument({**files.LLAMA, "torch_dtype": "int4"}), "torch_dtype.*'int4'"),
        (ModelDocument({**files.LLAMA, "quantization": {"bits": 4, "mode": "odd"}}), "mode"),
    ],
)
def test_a_method_that_is_not_known_is_refused_by_name(found: ModelDocument, why: str) -> None:
    with pytest.raises(InputError, match=why):
        describe(found)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("bf16", 2.0),
        ("F16", 2.0),
        ("float32", 4.0),
        ("fp8", 1.0),
        ("fp8_e4m3 (calibrated)", 1.0),
        ("FP8, e5m2", 1.0),
        ("fp8_ds_mla", 656 / 576),
        ("int8", 1.0),
        ("q8_0", 1.0625),
        ("k q4_0, v q4_0", 0.5625),
        ("k q8_0, v q4_0", None),
        ("nvfp4", 0.5625),
        ("auto", 2.0),
        ("auto (bf16)", 2.0),
        ("turbo", None),
        ("not recorded", None),
    ],
)
def test_a_value_of_the_kv_cache_is_as_large_as_the_spec_says(
    declared: str, expected: float | None
) -> None:
    assert kv_value_bytes(declared, ModelDocument(files.LLAMA)) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (sidecar({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}), 1.0),
        (sidecar({"quant_algo": "FP8", "kv_cache_quant_algo": None}), 2.0),
        (document(compressed(FP8, kv_cache_scheme={"num_bits": 8, "type": "float"})), 1.0),
        (ModelDocument({**files.LLAMA, "torch_dtype": "float32"}), 4.0),
        (ModelDocument({**files.LLAMA, "torch_dtype": None}), 2.0),
    ],
)
def test_auto_is_what_the_files_ask_for_else_the_models_own_type(
    found: ModelDocument, expected: float
) -> None:
    assert kv_value_bytes("auto", found) == expected


def test_more_groups_than_any_quantiser_writes_are_refused() -> None:
    group = {"targets": ["up_proj"], "weights": {"num_bits": 4, "strategy": "channel"}}
    groups = {f"group_{n}": group for n in range(9)}
    rules = {"quant_method": "compressed-tensors", "config_groups": groups}
    with pytest.raises(InputError, match="found '9 groups'; expected at most 8"):
        storage_of(ModelDocument({"quantization_config": rules}))
