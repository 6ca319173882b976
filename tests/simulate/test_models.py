from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenwatt_site.errors import UsageError
from tokenwatt_site.model_shape import describe
from tokenwatt_site.model_shape.document import ModelDocument
from tokenwatt_site.simulate.models import CONFIGS, named

PUBLISHED = {
    "llama-3.1-8b": "meta-llama--Meta-Llama-3.1-8B.json",
    "llama-3.1-70b": "meta-llama--Meta-Llama-3.1-70B.json",
    "qwen3-8b": "Qwen--Qwen3-8B.json",
    "qwen3-30b-a3b": "Qwen--Qwen3-30B-A3B.json",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_is_that_of_the_published_config(name: str, test_data: Path) -> None:
    config = json.loads((test_data / "model-configs" / PUBLISHED[name]).read_text("utf-8"))
    model = named(name)
    assert (model.shape, model.stored) == describe(ModelDocument(config))


@pytest.mark.parametrize(
    ("name", "parameters", "active", "kv_values"),
    [
        ("llama-3.1-8b", 8_030_261_248, 7_504_924_672, 65_536),
        ("llama-3.1-70b", 70_553_706_496, 69_503_033_344, 163_840),
        ("qwen3-8b", 8_190_735_360, 7_568_405_504, 73_728),
        ("qwen3-30b-a3b", 30_532_122_624, 3_041_867_776, 49_152),
        ("smollm2-135m", 134_515_008, 134_515_008, 11_520),
    ],
)
def test_counts_are_the_published_ones(
    name: str, parameters: int, active: int, kv_values: int
) -> None:
    shape = named(name).shape
    assert (shape.parameters, shape.active) == (parameters, active)
    assert sum(a.layers * a.kv_values for a in shape.attention) == kv_values


def test_all_see_the_whole_context_in_grouped_heads_and_are_stored_in_bf16() -> None:
    for name in CONFIGS:
        model = named(name)
        assert {(a.kind, a.window, a.index_top) for a in model.shape.attention} == {
            ("grouped", None, None)
        }
        assert model.stored.total(model.shape) == 2 * model.shape.parameters


def test_an_unknown_model_is_told_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"llama-3\.1-8b, llama-3\.1-70b"):
        named("gpt-oss-20b")
