"""Parameters and bytes of each part of a model: from its tensors as stored, or from its config."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.model_shape.document import DTYPE_BITS, Tensor
from tokenwatt_site.model_shape.quantization import Storage
from tokenwatt_site.model_shape.weights import Decoder, Part, Place, place, short_name

Where: TypeAlias = tuple[Part, int | None]
"""A part, and the layer it is in."""


@dataclass
class Sums:
    """Parameters and bytes by part and layer, and of the two shares of dense parts."""

    parameters: Counter[Where] = field(default_factory=Counter)
    bytes: dict[Where, float] = field(default_factory=dict)
    attention_parameters: int = 0
    attention_bytes: float = 0.0
    replicated_parameters: int = 0
    replicated_bytes: float = 0.0

    def add(self, where: Place, parameters: int, size: float) -> None:
        key = (where.part, where.layer)
        self.parameters[key] += parameters
        self.bytes[key] = self.bytes.get(key, 0.0) + size
        if where.attention:
            self.attention_parameters += parameters
            self.attention_bytes += size
        if where.replicated:
            self.replicated_parameters += parameters
            self.replicated_bytes += size

    def of(self, part: Part) -> tuple[int, float]:
        """Return parameters and bytes of a part over all layers."""
        keys = [key for key in self.parameters if key[0] == part]
        return sum(self.parameters[key] for key in keys), math.fsum(self.bytes[k] for k in keys)


def implied(decoder: Decoder, storage: Storage) -> Sums:
    """Return what the config implies."""
    sums = Sums()
    for weight in decoder.weights:
        where = place(weight.name)
        assert where is not None, weight.name  # noqa: S101 - every name of ours has a place
        sums.add(where, weight.parameters, storage.bytes_of(weight))
    return sums


def stored(decoder: Decoder, storage: Storage, tensors: tuple[Tensor, ...]) -> Sums:
    """Return what the headers of the files say, checked against what the config implies.

    Raises:
        InputError: a tensor that has no place in the model, packed values that no file explains, or
            a part with another number of parameters; with the part and both numbers.
    """
    sums = Sums()
    for tensor, name in _of_the_decoder(decoder, tensors):
        where = place(name)
        if where is None:
            raise InputError(
                Problem(
                    "has no place in this model",
                    field=tensor.name[:200],
                    found=f"{tensor.dtype} {list(tensor.shape)}",
                    expected="a tensor that the config implies",
                )
            )
        if decoder.tied and where.part == "embedding":
            where = Place("head")  # one matrix, read as the head
        sums.add(where, _parameters(tensor, name, storage), tensor.bytes)
    _compare(sums.parameters, implied(decoder, storage).parameters)
    return sums


# Scales, zero points and what else a quantiser writes beside a matrix: bytes, and no parameters.
_BESIDE = re.compile(
    r"(?:^|[._])(?:(?:weight|input|output|[qkv])_scale(?:_inv|_2)?|scale|scales|biases|zeros|qzeros"
    r"|g_idx|weight_g_idx|(?:weight|input)_zero_point|weight_shape"
    r"|(?:weight|input)_global_scale|pre_quant_scale)$"
)
_MATRIX = re.compile(r"(?:\.(?:weight|weight_packed|qweight)|_blocks|_packed)$")
_EXPERT = re.compile(r"\bexperts\.\d+\.")
# Kept beside the decoder, or computed anew at start.
_TOWERS = frozenset(
    {
        *("visual", "vision_tower", "vision_model", "vision_encoder", "patch_merger"),
        *("audio_tower", "multi_modal_projector", "mm_projector", "mtp"),
    }
)


def is_left_out(name: str, decoder: Decoder) -> bool:
    """Tell whether the tensor of this name is of a tower, a draft layer, or a buffer."""
    short = short_name(name)
    pieces = short.split(".")
    if not _TOWERS.isdisjoint(pieces) or pieces[-1] == "inv_freq":
        return True
    inside = place(short)
    layer = None if inside is None else inside.layer
    last = len(decoder.layers) + decoder.draft_layers
    return layer is not None and len(decoder.layers) <= layer < last


def _of_the_decoder(decoder: Decoder, tensors: tuple[Tensor, ...]) -> Iterator[tuple[Tensor, str]]:
    """Yield the tensors that a step may read, each with its short name."""
    named = [(t, short_name(t.name)) for t in tensors if not is_left_out(t.name, decoder)]
    embedded = any(place(name) == Place("embedding") for _, name in named)
    for tensor, name in named:
        copy = decoder.tied and embedded and place(name) == Place("head")
        if not copy:
            yield tensor, name


def _parameters(tensor: Tensor, name: str, storage: Storage) -> int:
    if _BESIDE.search(name):
        return 0
    packed = tensor.dtype in {"U8", "I32", "U32", "I64", "U64"}
    if not packed:
        return tensor.values
    scheme = storage.scheme_of(_EXPERT.sub("experts.0.", _MATRIX.sub("", name)))
    if scheme is None:
        raise InputError(
            Problem(
                "is packed, and no file says how",
                field=tensor.name[:200],
                found=tensor.dtype,
                expected="a quantization that names this module",
            )
        )
    return tensor.values * DTYPE_BITS[tensor.dtype] // scheme.bits


def _compare(found: Counter[Where], expected: Counter[Where]) -> None:
    problems = [
        Problem(
            f"{part}{'' if layer is None else f' of layer {layer}'} has another size in the headers"
            " of the safetensors files than the config implies",
            found=f"{found[part, layer]:,} parameters",
            expected=f"{expected[part, layer]:,}",
            remedy="Name the folder of one whole model, with the config that belongs to it.",
        )
        for part, layer in sorted(
            {*found, *expected}, key=lambda key: (key[0], -1 if key[1] is None else key[1])
        )
        if found[part, layer] != expected[part, layer]
    ]
    if problems:
        more = len(problems) - 5
        raise InputError(*problems[:5], *([f"and {more} more parts"] if more > 0 else []))
