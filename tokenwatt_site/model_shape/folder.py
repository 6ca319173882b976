"""Reading a model's folder: config.json, hf_quant_config.json, the headers of safetensors files.

A safetensors file starts with eight bytes, little-endian, that say how long its header is; the
header is a JSON object that names each tensor's type, shape and place. Only headers are read.
"""

from __future__ import annotations

import os
from pathlib import Path

from tokenwatt_site.canonical import JsonValue, load_json, read_file
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.model_shape.config import decoder_of, describe
from tokenwatt_site.model_shape.document import (
    MAX_TENSORS,
    ModelDocument,
    Tensor,
    tensor_of,
)
from tokenwatt_site.model_shape.tensors import is_left_out

MAX_HEADER_BYTES = 100 << 20
"""What the safetensors library itself allows."""
_MAX_INDEX_BYTES = 64 << 20
_INDEX = "model.safetensors.index.json"
_WHOLE = "Fetch the file again, whole."
_INDEX_TOLERANCE = 1e-3


def read_model(place: Path) -> ModelDocument:
    """Return what the files of a model say of it.

    Where there is an index and none of its safetensors files, its total size is checked against
    what the config implies; an index has no types, so the document has no tensors then.

    Args:
        place: the model's folder, or its config.json.

    Raises:
        InputError: there is no config, a file is cut or none of its kind, a tensor is there twice,
            or the index tells another size than the config implies.
    """
    folder = place if place.is_dir() else place.parent
    config = _json(place / "config.json" if place.is_dir() else place)
    sidecar = folder / "hf_quant_config.json"
    quantization = _json(sidecar) if sidecar.exists() else None
    # Consolidated files hold the same weights again, under other names.
    files = sorted(f for f in folder.glob("*.safetensors") if not f.name.startswith("consolidated"))
    tensors: dict[str, Tensor] = {}
    for file in files:
        for tensor in _tensors(file):
            if tensor.name in tensors:
                raise InputError(
                    Problem("is in two files of the folder", file=str(file), field=tensor.name)
                )
            tensors[tensor.name] = tensor
    if len(tensors) > MAX_TENSORS:
        raise InputError(
            Problem("has too many tensors", file=str(folder), expected=f"at most {MAX_TENSORS:,}")
        )
    document = ModelDocument(config, quantization, tuple(tensors[n] for n in sorted(tensors)))
    index = folder / _INDEX
    if index.exists():
        _check_index(index, document)
    return document


def _json(path: Path) -> JsonValue:
    # Files of a hub's cache are links into its store, which `read_file` would refuse. Python writes
    # Infinity and NaN, which JSON lacks; here they stand as text.
    data = read_file(Path(os.path.realpath(path)))
    return load_json(data, source=str(path), constant=str)


def _tensors(path: Path) -> list[Tensor]:
    data, room = _header(path)
    header = load_json(data, source=str(path), limit=MAX_HEADER_BYTES)
    if not isinstance(header, dict):
        raise InputError(Problem("has no header of tensors", file=str(path)))
    found = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        told = entry if isinstance(entry, dict) else {}
        found.append(tensor_of(name, told.get("dtype"), told.get("shape"), source=str(path)))
        _check_span(told.get("data_offsets"), found[-1], path, room)
    return found


def _header(path: Path) -> tuple[bytes, int]:
    """Return the header, and how many bytes of tensors come after it."""

    def refused(what: str, found: str, expected: str) -> InputError:
        return InputError(
            Problem(what, file=str(path), found=found, expected=expected, remedy=_WHOLE)
        )

    if not path.is_file():  # to open a FIFO would wait for a writer for ever
        raise InputError(Problem("cannot be read", file=str(path), expected="a regular file"))
    try:
        with path.open("rb") as handle:
            size = os.fstat(handle.fileno()).st_size
            start = handle.read(8)
            if len(start) < 8:
                raise refused("is no safetensors file", f"{size} bytes", "8 bytes and a header")
            length = int.from_bytes(start, "little")
            if length > MAX_HEADER_BYTES:
                limit = f"a header of at most {MAX_HEADER_BYTES:,} bytes"
                raise refused("is no safetensors file", f"a header of {length:,} bytes", limit)
            header = handle.read(min(length, size))
    except OSError as error:
        raise InputError(Problem(f"cannot be read ({error.strerror})", file=str(path))) from error
    if len(header) < length:
        raise refused("is cut within its header", f"{size:,} bytes", f"{8 + length:,} or more")
    return header, size - 8 - length


def _check_span(told: JsonValue, tensor: Tensor, path: Path, room: int) -> None:
    span: list[int] = told if isinstance(told, list) else []
    whole = len(span) == 2 and all(type(each) is int for each in span)
    if not whole or span[1] - span[0] != tensor.bytes:
        raise InputError(
            Problem(
                "does not fill its place in the file",
                file=str(path),
                field=tensor.name,
                found=repr(told)[:100],
                expected=f"{tensor.bytes:,.0f} bytes of {tensor.dtype} {list(tensor.shape)}",
                remedy=_WHOLE,
            )
        )
    if span[1] > room:
        raise InputError(
            Problem(
                "lies beyond the end of the file",
                file=str(path),
                field=tensor.name,
                found=f"{room:,} bytes of tensors",
                expected=f"{span[1]:,} or more",
                remedy=_WHOLE,
            )
        )


def _check_index(path: Path, document: ModelDocument) -> None:
    index = load_json(
        read_file(Path(os.path.realpath(path)), limit=_MAX_INDEX_BYTES),
        source=str(path),
        limit=_MAX_INDEX_BYTES,
    )
    names = index.get("weight_map") if isinstance(index, dict) else None
    metadata = index.get("metadata") if isinstance(index, dict) else None
    if not isinstance(names, dict) or not isinstance(metadata, dict):
        raise InputError(
            Problem("is no index of safetensors files", file=str(path), expected="a weight_map")
        )
    if document.tensors:
        missing = sorted(names.keys() - {tensor.name for tensor in document.tensors})
        if missing:
            raise InputError(
                Problem(
                    f"{len(missing)} tensors of the index are in none of the files",
                    file=str(path),
                    found=missing[0][:200],
                    remedy="Fetch all files of the model.",
                )
            )
        return
    try:
        decoder = decoder_of(document.config)
        shape, stored = describe(document)
    except InputError:
        return  # what is not modelled cannot be compared; `describe` says why
    if any(is_left_out(name, decoder) for name in names):
        return  # the totals count towers and draft layers, and an index has no size of each
    for key, modelled in (
        ("total_size", stored.total(shape)),
        ("total_parameters", shape.parameters),
    ):
        told = metadata.get(key)
        if isinstance(told, int | float) and abs(told - modelled) > _INDEX_TOLERANCE * modelled:
            raise InputError(
                Problem(
                    "is not what the config implies",
                    file=str(path),
                    field=f"metadata.{key}",
                    found=f"{told:,.0f}",
                    expected=f"{modelled:,.0f}",
                    remedy="Name a folder in which config and index are of one model.",
                )
            )
