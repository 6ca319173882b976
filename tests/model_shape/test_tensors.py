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
from tokenwatt_site.model_shape.document import DTYPE_BITS, ModelDocument, Tensor
from tokenwatt_site.model_shape.tensors import is_left_out
from tokenwatt_site.model_shape.weights import Place, place, short_name

LEFT_OUT = ("model.layers.2.", "model.visual.", "mtp.")


def document_of(config: dict[str, Any], tensors: files.Tensors) -> ModelDocument:
    found = (Tensor(name, dtype, tuple(shape)) for name, (dtype, shape) in tensors.items())
    return ModelDocument(config, None, tuple(sorted(found, key=lambda t: t.name)))


@pytest.mark.parametrize("name", files.FAMILIES)
def test_bytes_are_those_of_all_tensors_of_the_decoder(name: str) -> None:
    config, tensors = files.FAMILIES[name]
    shape, stored = describe(document_of(config, tensors))
    summed = sum(files.size_of(*told) for n, told in tensors.items() if not n.startswith(LEFT_OUT))
    assert stored.source == "safetensors headers"
    assert stored.total(shape) == summed


@pytest.mark.parametrize("name", files.FAMILIES)
def test_headers_and_config_tell_the_same_shape_and_bytes(name: str) -> None:
    config, tensors = files.FAMILIES[name]
    shape, stored = describe(document_of(config, tensors))
    implied, modelled = describe(ModelDocument(config))
    assert modelled.source == "config"
    assert shape.parameters == implied.parameters
    assert (shape.attention, shape.experts) == (implied.attention, implied.experts)
    for part in ("embedding", "head", "dense", "attention", "replicated", "expert"):
        assert getattr(stored, part) == getattr(modelled, part), part


def test_parts_lie_where_their_names_say() -> None:
    tensors = files.deepseek()
    shape, stored = describe(document_of(files.DEEPSEEK, tensors))

    def summed(*words: str, layers: tuple[int, ...] = (0, 1)) -> int:
        return sum(
            files.size_of(*told)
            for name, told in tensors.items()
            if any(name.startswith(f"model.layers.{n}.") for n in layers)
            and any(word in name for word in words)
        )

    assert stored.attention == summed(".self_attn.")
    whole = ("norm", ".q_a_proj", ".kv_a_proj_with_mqa", ".mlp.gate.")
    assert stored.replicated == summed(*whole) + 2 * 256
    assert stored.expert == (summed(".experts.0."),)
    assert stored.embedding == stored.head == 2 * 512 * 256
    assert [(e.layers, e.experts, e.parameters) for e in shape.experts] == [(1, 4, 3 * 128 * 256)]


def test_layers_whose_experts_are_stored_otherwise_are_another_group() -> None:
    tensors = files.gpt_oss()
    layer = "model.layers.1.mlp.experts"
    for each, outputs, inputs in (("gate_up_proj", 192, 64), ("down_proj", 64, 96)):
        del tensors[f"{layer}.{each}_blocks"], tensors[f"{layer}.{each}_scales"]
        tensors[f"{layer}.{each}"] = ("BF16", [4, outputs, inputs])
    shape, stored = describe(document_of(files.GPT_OSS, tensors))
    matrices, biases = 192 * 64 + 64 * 96, 192 + 64
    assert [e.layers for e in shape.experts] == [1, 1]
    assert stored.expert == (matrices * 0.53125 + 2 * biases, 2 * (matrices + biases))


def test_a_second_copy_of_a_tied_embedding_is_not_read() -> None:
    config = {**files.LLAMA, "tie_word_embeddings": True}
    shape, stored = describe(document_of(config, files.llama()))
    assert (stored.embedding, stored.head) == (0.0, 2 * 256 * 64)
    assert stored.total(shape) == 2 * shape.parameters


def test_packed_values_count_by_the_bits_that_the_config_names() -> None:
    config = {
        **files.LLAMA,
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32},
    }
    tensors: files.Tensors = {}
    for name, (dtype, shape) in files.llama().items():
        if not name.startswith("model.layers") or len(shape) == 1:
            tensors[name] = (dtype, shape)
            continue
        rows, columns = shape
        front = name.removesuffix("weight")
        tensors[f"{front}qweight"] = ("I32", [columns // 8, rows])
        tensors[f"{front}qzeros"] = ("I32", [columns // 32, rows // 8])
        tensors[f"{front}scales"] = ("F16", [columns // 32, rows])
        tensors[f"{front}g_idx"] = ("I32", [columns])
    shape, stored = describe(document_of(config, tensors))
    assert shape.parameters == describe(ModelDocument(files.LLAMA))[0].parameters
    assert stored.dense == describe(ModelDocument(config))[1].dense


def test_experts_under_one_name_of_mlx_are_experts() -> None:
    assert place(short_name("model.layers.3.mlp.switch_mlp.up_proj.weight")) == Place("expert", 3)


def refusal(config: dict[str, Any], tensors: files.Tensors) -> str:
    with pytest.raises(InputError) as caught:
        describe(document_of(config, tensors))
    return str(caught.value)


@given(st.sampled_from(sorted(files.FAMILIES)), st.data())
def test_no_list_of_tensors_crashes_the_description(name: str, data: st.DataObject) -> None:
    config, tensors = files.FAMILIES[name]
    changed = dict(tensors)
    victims = st.sampled_from(sorted(tensors))
    for victim in data.draw(st.lists(victims, max_size=3)):
        changed.pop(victim, None)
        other = victim + data.draw(st.sampled_from(["", ".scales", "x", ".experts.9"]))
        dtype = data.draw(st.sampled_from(sorted(DTYPE_BITS)))
        changed[other] = (dtype, data.draw(st.lists(st.integers(0, 2**20), max_size=2)))
    try:
        shape, stored = describe(document_of(config, changed))
    except InputError:
        return
    assert shape.parameters == describe(ModelDocument(config))[0].parameters
    assert stored.total(shape) > 0


def test_another_number_of_parameters_names_the_part_and_both_numbers() -> None:
    tensors = files.llama()
    del tensors["model.layers.1.mlp.up_proj.weight"]
    told = refusal(files.LLAMA, tensors)
    expected = sum(files.size_of(*v) // 2 for n, v in files.llama().items() if "layers.1." in n)
    assert "dense of layer 1 has another size in the headers" in told
    assert f"found {expected - 160 * 64:,} parameters; expected {expected:,}" in told


def test_an_expert_too_few_is_told() -> None:
    tensors = {n: t for n, t in files.deepseek().items() if ".experts.3." not in n}
    assert "expert of layer 1 has another size" in refusal(files.DEEPSEEK, tensors)


def test_a_config_of_another_model_is_told_shortly() -> None:
    told = refusal({**files.LLAMA, "num_hidden_layers": 40}, files.llama())
    assert len(told.splitlines()) == 6
    assert told.endswith("and 33 more parts")


def test_a_tensor_without_a_place_is_told_by_name() -> None:
    tensors = {**files.llama(), "engram.tables.weight": ("BF16", [9, 9])}
    assert "engram.tables.weight: has no place in this model" in refusal(files.LLAMA, tensors)


def test_packed_values_that_no_file_explains_are_refused() -> None:
    tensors = {**files.llama(), "model.layers.0.mlp.up_proj.weight": ("U8", [160, 32])}
    assert "is packed, and no file says how" in refusal(files.LLAMA, tensors)


@pytest.mark.parametrize(
    "name",
    [
        "Qwen3-1.7B-MLX-bf16",
        "Qwen3-14B-MLX-4bit",
        "mistralai--Devstral-Small-2507",
        "Qwen3.5-25B-REAP-A3B",
        "WizardLM-2-8x22B",
    ],
)
def test_every_name_of_a_published_index_has_a_place(name: str, test_data: Path) -> None:
    folder = test_data / "safetensors"
    decoder = decoder_of(json.loads((folder / f"{name}.config.json").read_text()))
    index = next(folder.glob(f"{name}.model.safetensors.index*.json"))
    names = json.loads(index.read_text())["weight_map"]
    places = {n: place(short_name(n)) for n in names if not is_left_out(n, decoder)}
    assert len(places) == len(names)
    for each, found in places.items():
        assert found is not None
        assert (found.part == "embedding") == ("embed_tokens" in each)
        assert (found.part == "head") == each.startswith("lm_head")
        assert (found.part == "expert") == (".experts." in each)
        assert found.attention == (".self_attn." in each or ".linear_attn." in each)
        router = each.removesuffix(".weight").endswith((".gate", "_gate"))
        assert found.replicated == ("norm" in each or router)


def test_packed_tensors_under_more_names_than_there_are_weights_are_refused() -> None:
    # Each would be looked up in all patterns, which a hostile file makes slow.
    odd = {f"model.layers.0.mlp.{n}.weight": ("I32", [4, 4]) for n in range(100)}
    config = {
        **files.LLAMA,
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32},
    }
    assert "has no place in this model" in refusal(config, {**files.llama(), **odd})
