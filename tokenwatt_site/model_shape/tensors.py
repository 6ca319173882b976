"""Parameters and bytes of each part of a model: from its tensors as stored, or from its config."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.model_shape.document import DTYPE_BITS, Tensor
from tokenwatt_site.model_shape.quantization import Storage
from tokenwatt_site.model_shape.schemes import Scheme
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
    packed, most = set[str](), len(decoder.weights)
    for tensor, role in _of_the_decoder(decoder, storage, tensors):
        where = role.place
        if tensor.dtype in _PACKED and not role.beside:
            packed.add(role.name)
        # Each packed one is looked up in patterns, which is slow: no more than there are weights.
        if where is None or len(packed) > most:
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
        sums.add(where, _parameters(tensor, role), tensor.bytes)
    _compare(sums.parameters, implied(decoder, storage).parameters)
    return sums


# Scales, zero points and what else a quantiser writes beside a matrix: bytes, and no parameters.
_BESIDE = re.compile(
    r"(?:^|[._])(?:(?:weight|input|output|[qkv])_scale(?:_inv|_2)?|scale|scales|biases|zeros|qzeros"
    r"|g_idx|weight_g_idx|(?:weight|input)_zero_point|weight_shape"
    r"|(?:weight|input)_global_scale|pre_quant_scale)$"
)
_MATRIX = re.compile(r"(?:\.(?:weight|weight_packed|qweight)|_blocks|_packed)$")
_EXPERT = re.compile(r"\bexperts\.\d+\.")  # all experts of a layer are stored alike
_PACKED = frozenset({"U8", "I32", "U32", "I64", "U64"})
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


@dataclass(frozen=True)
class _Role:
    """What a tensor is in the model, by its name; the same for all experts of a layer."""

    name: str
    place: Place | None
    left_out: bool
    beside: bool
    storage: Storage

    @cached_property
    def scheme(self) -> Scheme | None:
        """How the matrix is quantised, where it is packed."""
        return self.storage.scheme_of(_MATRIX.sub("", self.name))


def _of_the_decoder(
    decoder: Decoder, storage: Storage, tensors: tuple[Tensor, ...]
) -> Iterator[tuple[Tensor, _Role]]:
    """Yield the tensors that a step may read, each with its role."""
    known: dict[str, _Role] = {}

    def role_of(tensor: Tensor) -> _Role:
        alike = _EXPERT.sub("experts.0.", tensor.name)
        if alike not in known:
            name = short_name(alike)
            left_out, beside = is_left_out(alike, decoder), _BESIDE.search(name) is not None
            known[alike] = _Role(name, place(name), left_out, beside, storage)
        return known[alike]

    roles = [(tensor, role_of(tensor)) for tensor in tensors]
    embedded = any(not r.left_out and r.place == Place("embedding") for r in known.values())
    for tensor, role in roles:
        copy = decoder.tied and embedded and role.place == Place("head")
        if not copy and not role.left_out:
            yield tensor, role


def _parameters(tensor: Tensor, role: _Role) -> int:
    if role.beside:
        return 0
    if tensor.dtype not in _PACKED:
        return tensor.values
    if role.scheme is None:
        raise InputError(
            Problem(
                "is packed, and no file says how",
                field=tensor.name[:200],
                found=tensor.dtype,
                expected="a quantization that names this module",
            )
        )
    return tensor.values * DTYPE_BITS[tensor.dtype] // role.scheme.bits


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
