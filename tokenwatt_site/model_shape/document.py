"""A model's own files as evidence: config.json, its sidecar, and what its tensors are stored as.

JSONL. The first line holds the two documents as they were; every further line is one tensor:
[name, dtype, [shape]], as the headers of the safetensors files tell them. Where only a config was
there, there are no further lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenwatt_site.canonical import JsonValue

MODEL_FORMAT = "tokenwatt/model/1"


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a safetensors file; `dtype` as its header writes it, such as BF16."""

    name: str
    dtype: str
    shape: tuple[int, ...]


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
