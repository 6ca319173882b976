from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenwatt_site.errors import UsageError
from tokenwatt_site.simulate.shape import SHAPES, named

CONFIGS = {
    "llama-3.1-8b": "meta-llama--Meta-Llama-3.1-8B.json",
    "llama-3.1-70b": "meta-llama--Meta-Llama-3.1-70B.json",
    "qwen3-8b": "Qwen--Qwen3-8B.json",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_shape_is_that_of_the_published_config(name: str, test_data: Path) -> None:
    config = json.loads((test_data / "model-configs" / CONFIGS[name]).read_text("utf-8"))
    shape = named(name)
    heads = config["num_attention_heads"]
    assert (shape.vocabulary, shape.hidden) == (config["vocab_size"], config["hidden_size"])
    assert (shape.intermediate, shape.layers) == (
        config["intermediate_size"],
        config["num_hidden_layers"],
    )
    assert (shape.heads, shape.kv_heads) == (heads, config["num_key_value_heads"])
    assert shape.head_size == config.get("head_dim", config["hidden_size"] // heads)
    assert shape.max_context == config["max_position_embeddings"]
    assert shape.tied == config["tie_word_embeddings"]


@pytest.mark.parametrize(
    ("name", "parameters", "read", "kv_bytes"),
    [
        ("llama-3.1-8b", 8_030_261_248, 7_504_924_672, 131_072),
        ("llama-3.1-70b", 70_553_706_496, 69_503_033_344, 327_680),
        ("qwen3-8b", 8_190_735_360, 7_568_405_504, 147_456),
        ("smollm2-135m", 134_515_008, 134_515_008, 23_040),
    ],
)
def test_counts_are_the_published_ones(
    name: str, parameters: int, read: int, kv_bytes: int
) -> None:
    shape = named(name)
    assert shape.parameters == parameters
    assert shape.parameters_read == read
    assert shape.kv_bytes_per_token == kv_bytes


def test_attention_is_two_products_of_each_head_with_each_token_of_the_context() -> None:
    assert named("llama-3.1-8b").attention_flops_per_pair == 32 * 32 * (2 * 128 + 2 * 128)


def test_an_unknown_shape_is_told_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"llama-3\.1-8b, llama-3\.1-70b"):
        named("gpt-oss-20b")
    assert len(SHAPES) == 4
