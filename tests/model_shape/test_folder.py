from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import safetensors_files as files
from tokenwatt_site.errors import InputError
from tokenwatt_site.model_shape import describe
from tokenwatt_site.model_shape.folder import read_model


def folder_of(tmp_path: Path, name: str) -> Path:
    config, tensors = files.FAMILIES[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    names = sorted(tensors)
    half = len(names) // 2
    files.write(
        tmp_path / "model-00001-of-00002.safetensors", {n: tensors[n] for n in names[half:]}
    )
    files.write(
        tmp_path / "model-00002-of-00002.safetensors", {n: tensors[n] for n in names[:half]}
    )
    return tmp_path


@pytest.mark.parametrize("name", files.FAMILIES)
def test_the_headers_of_all_files_make_one_list_in_order_of_name(name: str, tmp_path: Path) -> None:
    config, tensors = files.FAMILIES[name]
    document = read_model(folder_of(tmp_path, name))
    assert document.config == config
    assert [t.name for t in document.tensors] == sorted(tensors)
    assert {t.name: (t.dtype, list(t.shape)) for t in document.tensors} == tensors
    assert read_model(tmp_path / "config.json") == document


def test_a_sidecar_is_read_and_links_of_a_hubs_cache_are_followed(tmp_path: Path) -> None:
    store, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    store.mkdir()
    snapshot.mkdir()
    folder_of(store, "llama")
    (store / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": null}}')
    for file in store.iterdir():
        (snapshot / file.name).symlink_to(file)
    document = read_model(snapshot)
    assert document.quantization == {"quantization": {"quant_algo": None}}
    assert len(document.tensors) == len(files.llama())


def test_infinity_in_a_config_stands_as_text(test_data: Path) -> None:
    name = "nvidia--Nemotron-H-56B-Base-8K.json"
    document = read_model(test_data / "model-configs" / name)
    assert document.config["time_step_limit"] == [0.0, "Infinity"]


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_model(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is no safetensors file; found 0 bytes"),
        (b"\x01\x02", "is no safetensors file; found 2 bytes"),
        (
            b"GGUF\x03\x00\x00\x00" + bytes(64),
            "is no safetensors file; found a header of 14,064,895,815 bytes",
        ),
        (b"\xff" * 16, "is no safetensors file; found a header of 18,446,744,073,709,551,615"),
        ((500).to_bytes(8, "little") + b'{"a":', "is cut within its header; found 13 bytes"),
        ((4).to_bytes(8, "little") + b"pick", "is not valid JSON"),
        ((2).to_bytes(8, "little") + b"[]", "has no header of tensors"),
    ],
)
def test_a_cut_or_foreign_file_is_told_by_name(tmp_path: Path, data: bytes, why: str) -> None:
    folder = folder_of(tmp_path, "llama")
    (folder / "model-00003.safetensors").write_bytes(data)
    told = refusal(folder)
    assert "model-00003.safetensors" in told
    assert why in told


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"dtype": "F99", "shape": [2], "data_offsets": [0, 4]}, "has a type that is not known"),
        ({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}, "has no shape"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "does not fill its place"),
        ({"dtype": "F32", "shape": [2]}, "does not fill its place"),
        ({"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 8]}, "is too large"),
        (7, "has a type that is not known"),
    ],
)
def test_a_tensor_that_no_file_can_hold_is_refused(tmp_path: Path, entry: object, why: str) -> None:
    folder = folder_of(tmp_path, "llama")
    text = json.dumps({"odd.weight": entry}).encode()
    (folder / "odd.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    assert why in refusal(folder)


def test_a_file_that_was_not_fetched_to_its_end_is_told(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "llama")
    file = folder / "model-00002-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert "lies beyond the end of the file" in refusal(folder)


def test_a_tensor_in_two_files_is_refused_and_consolidated_copies_are_not_read(
    tmp_path: Path,
) -> None:
    folder = folder_of(tmp_path, "llama")
    first = folder / "model-00001-of-00002.safetensors"
    shutil.copy(first, folder / "consolidated.safetensors")
    read_model(folder)
    shutil.copy(first, folder / "model-copy.safetensors")
    assert "is in two files" in refusal(folder)


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", "utf-8")
    os.mkfifo(tmp_path / "model.safetensors")
    assert "model.safetensors: cannot be read; expected a regular file" in refusal(tmp_path)


def test_a_folder_without_a_config_and_a_missing_place_are_told(tmp_path: Path) -> None:
    assert "config.json: cannot be read" in refusal(tmp_path)
    assert "cannot be read" in refusal(tmp_path / "nowhere" / "config.json")


def test_a_shard_that_the_index_names_and_that_is_missing_is_told(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "llama")
    names = dict.fromkeys([*files.llama(), "model.layers.2.mlp.up_proj.weight"], "a.safetensors")
    index = {"metadata": {}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "1 tensors of the index are in none of the files" in refusal(folder)


INDEXED = [
    "Qwen3-1.7B-MLX-bf16",
    "Qwen3-14B-MLX-4bit",
    "mistralai--Devstral-Small-2507",
    "Qwen3.5-25B-REAP-A3B",
    "WizardLM-2-8x22B",
]


def indexed(tmp_path: Path, test_data: Path, name: str) -> Path:
    source = test_data / "safetensors"
    shutil.copy(source / f"{name}.config.json", tmp_path / "config.json")
    index = next(source.glob(f"{name}.model.safetensors.index*.json"))
    shutil.copy(index, tmp_path / "model.safetensors.index.json")
    return tmp_path


@pytest.mark.parametrize("name", INDEXED)
def test_bytes_from_a_config_are_the_total_of_the_published_index(
    name: str, tmp_path: Path, test_data: Path
) -> None:
    folder = indexed(tmp_path, test_data, name)
    document = read_model(folder)
    shape, stored = describe(document)
    metadata = json.loads((folder / "model.safetensors.index.json").read_text())["metadata"]
    assert document.tensors == ()
    assert stored.total(shape) == metadata["total_size"]
    if "total_parameters" in metadata:
        assert shape.parameters == metadata["total_parameters"]


def test_an_index_of_another_kind_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "llama")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": []}')
    assert "is no index of safetensors files" in refusal(folder)


def test_an_index_of_a_model_that_is_not_modelled_is_kept_out_of_the_way(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "rwkv7"}')
    index = {"metadata": {"total_size": 1}, "weight_map": {"a": "a.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_model(tmp_path).config == {"model_type": "rwkv7"}


@pytest.mark.parametrize("key", ["total_size", "total_parameters"])
def test_an_index_of_another_model_is_refused(key: str, tmp_path: Path, test_data: Path) -> None:
    folder = indexed(tmp_path, test_data, "mistralai--Devstral-Small-2507")
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["metadata"][key] = int(index["metadata"][key] * 1.002)
    path.write_text(json.dumps(index))
    assert f"metadata.{key}: is not what the config implies" in refusal(folder)
    index["weight_map"]["model.visual.blocks.0.attn.qkv.weight"] = "a.safetensors"
    path.write_text(json.dumps(index))
    assert read_model(folder).tensors == ()  # a total that counts a tower proves nothing


@given(st.binary(max_size=200))
def test_no_file_crashes_the_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(data)
    try:
        read_model(folder)
    except InputError as error:
        assert "model.safetensors" in str(error)  # noqa: PT017 - either is right
