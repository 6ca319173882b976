"""How the files of real models call the formats of their weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tokenwatt_site.commands.model_facts import model_facts

NAMES = {
    "Qwen--Qwen3-8B": ("dense", "bf16", "not recorded"),
    "Qwen--Qwen3-30B-A3B": ("moe", "bf16", "not recorded"),
    "Qwen--Qwen3-30B-A3B-FP8": ("moe", "fp8", "not recorded"),
    "deepseek-ai--DeepSeek-V3": ("moe", "fp8", "not recorded"),
    "openai--gpt-oss-20b": ("moe", "mxfp4", "not recorded"),
    "nvidia--DeepSeek-V3.1-NVFP4": ("moe", "NVFP4", None),
    "nvidia--Llama-3.1-70B-Instruct-FP8": ("dense", "FP8", "FP8"),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_format_is_what_the_files_say(name: str, test_data: Path, tmp_path: Path) -> None:
    configs = test_data / "model-configs"
    shutil.copy(configs / f"{name}.json", tmp_path / "config.json")
    sidecar = configs / f"{name}.hf_quant_config.json"
    kv_cache = NAMES[name][2]
    if sidecar.exists():
        shutil.copy(sidecar, tmp_path / "hf_quant_config.json")
        told = json.loads(sidecar.read_bytes())["quantization"]["kv_cache_quant_algo"]
        kv_cache = told or "not recorded"

    facts = model_facts(tmp_path)

    assert (facts.architecture, facts.weights, facts.kv_cache) == (*NAMES[name][:2], kv_cache)
    assert facts.note is None


@pytest.mark.parametrize(
    ("config", "weights"),
    [
        ({"quantization": {"bits": 4, "group_size": 64}}, "mlx 4-bit"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq 4-bit"),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"g": {"weights": {"type": "int", "num_bits": 8}}},
                }
            },
            "compressed-tensors int 8-bit",
        ),
        ({"quantization_config": {"quant_algo": "NVFP4"}}, "NVFP4"),
        ({"quantization_config": {"bits": 4}}, "not recorded"),
        ({"text_config": {"dtype": "float16"}}, "fp16"),
        ({"torch_dtype": "int3"}, "int3"),
        ({"torch_dtype": 7}, "not recorded"),
        ([], "not recorded"),
    ],
)
def test_a_format_is_called_by_method_and_bits(
    config: object, weights: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")

    assert model_facts(tmp_path).weights == weights
