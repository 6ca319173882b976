"""A model's own files as evidence: config.json, its sidecar, and what its tensors are stored as.

JSONL. The first line holds the two documents as they were; every further line is one tensor:
[name, dtype, [shape]], as the headers of the safetensors files tell them, ordered by name. Where
only a config was there, there are no further lines.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from tokenwatt_site.canonical import (
    MAX_DOCUMENT_BYTES,
    JsonValue,
    canonical_bytes,
    load_json,
    sha256_hex,
)
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.columns import PLAIN_INTEGER, json_lines, require_format

# History of the format. 1: first.
MODEL_FORMAT = "tokenwatt/model/1"
MAX_TENSORS = 500_000
_MAX_TENSOR_LINE_BYTES = 4096
_MAX_NAME = 300
_MAX_PIECES = 32
"""Of a name, between dots; models have up to ten."""
_MAX_DIMENSIONS = 8
_MAX_VALUES = 2**48

DTYPE_BITS: Final = {
    **dict.fromkeys(("F64", "I64", "U64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("BF16", "F16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 8),
    "F4": 4,
}
"""Bits of a value of each type that headers of safetensors files name."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a safetensors file; `dtype` as its header writes it, such as BF16."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def values(self) -> int:
        values = 1
        for size in self.shape:
            values *= size
        return values

    @property
    def bytes(self) -> float:
        return self.values * DTYPE_BITS[self.dtype] / 8


@dataclass(frozen=True, slots=True)
class ModelDocument:
    """What a model's folder says of it.

    Attributes:
        config: config.json.
        quantization: hf_quant_config.json, None: there is none.
        tensors: of all files, ordered by name; empty where headers were not there.
    """

    config: JsonValue
    quantization: JsonValue | None = None
    tensors: tuple[Tensor, ...] = ()


def tensor_of(name: JsonValue, dtype: JsonValue, shape: JsonValue, *, source: str) -> Tensor:
    """Return a tensor that a file describes.

    Raises:
        InputError: a name, type or shape that no tensor has.
    """
    fits = isinstance(name, str) and 1 <= len(name) <= _MAX_NAME
    if not fits or name.count(".") >= _MAX_PIECES:
        raise InputError(Problem("is no name of a tensor", file=source, found=repr(name)[:200]))

    def refused(what: str, found: JsonValue, expected: str) -> InputError:
        return InputError(
            Problem(what, file=source, field=name, found=repr(found)[:200], expected=expected)
        )

    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise refused("has a type that is not known", dtype, f"one of {', '.join(DTYPE_BITS)}")
    sizes: list[JsonValue] = shape if isinstance(shape, list) else [None]
    whole = all(type(size) is int and 0 <= size < _MAX_VALUES for size in sizes)
    if not whole or len(sizes) > _MAX_DIMENSIONS:
        raise refused("has no shape", shape, f"up to {_MAX_DIMENSIONS} whole numbers")
    tensor = Tensor(name, dtype, tuple(sizes))
    if tensor.values >= _MAX_VALUES:
        raise refused("is too large", shape, f"fewer than 2^{_MAX_VALUES.bit_length() - 1} values")
    return tensor


def encode_model(document: ModelDocument) -> bytes:
    """Return the uncompressed evidence bytes of a model's files.

    Raises:
        InputError: a value in them has no canonical form.
    """
    header = {
        "format": MODEL_FORMAT,
        "config": document.config,
        "quantization": document.quantization,
    }
    lines = [canonical_bytes(header)]
    lines += [_COMPACT.encode(_row(tensor)).encode() for tensor in document.tensors]
    return b"".join(line + b"\n" for line in lines)


# The canonical bytes of lists of texts and integers, which have but one form: it is found faster.
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def _row(tensor: Tensor) -> JsonValue:
    return [tensor.name, tensor.dtype, tensor.shape]


_PLAIN = re.compile(
    rb'(?:\["[A-Za-z0-9_.]{1,300}+","[A-Z0-9_]++",\[(?:%b(?:,%b)*+)?\]\]\n)*+'
    % ((PLAIN_INTEGER,) * 2)
)


def decode_model(data: bytes, *, source: str) -> ModelDocument:
    """Read what `encode_model` wrote.

    Raises:
        InputError: another format, no tensor where one should be, or names out of order.
    """
    if not data.endswith(b"\n"):
        raise InputError(Problem("the last line is cut", file=source))
    if (count := data.count(b"\n")) > MAX_TENSORS + 1:
        raise InputError(
            Problem(
                "has too many lines", file=source, found=f"{count:,}", expected=f"{MAX_TENSORS:,}"
            )
        )
    start = data.index(b"\n") + 1
    header = load_json(data[: start - 1], source=f"{source}:1", limit=MAX_DOCUMENT_BYTES)
    keys = {"format", "config", "quantization"}
    require_format(header, MODEL_FORMAT, source)
    if header.keys() != keys:
        raise InputError(
            Problem(
                "is no header of a model's files",
                file=source,
                line=1,
                found=repr(header)[:200],
                expected=f"{MODEL_FORMAT} with config and quantization",
            )
        )
    tensors: list[Tensor] = []
    rows = json_lines(data, start, _PLAIN, source=source, limit=_MAX_TENSOR_LINE_BYTES)
    for number, row in rows:
        if not isinstance(row, list) or len(row) != 3:
            raise InputError(Problem("is no [name, type, shape]", file=source, line=number))
        tensor = tensor_of(*row, source=f"{source}:{number}")
        if tensors and tensor.name <= tensors[-1].name:
            raise InputError(
                Problem(
                    "is not after the name before it", file=source, line=number, found=tensor.name
                )
            )
        tensors.append(tensor)
    return ModelDocument(header["config"], header["quantization"], tuple(tensors))


def headers_digest(document: ModelDocument) -> str | None:
    """Return "sha256:" and the digest of all tensors, by which a model is known; None: no headers.

    Digested are the canonical bytes of the list of [name, dtype, shape], ordered by name: how the
    tensors are spread over files does not matter, nor what is in them.
    """
    if not document.tensors:
        return None
    rows = [_row(tensor) for tensor in document.tensors]
    return f"sha256:{sha256_hex(_COMPACT.encode(rows).encode())}"
