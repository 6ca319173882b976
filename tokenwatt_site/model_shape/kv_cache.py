"""How many bytes a value of the KV cache takes."""

from __future__ import annotations

import re

from tokenwatt_site.model_shape.document import ModelDocument
from tokenwatt_site.model_shape.quantization import storage_of

# Blocks of llama.cpp: 32 values with a scale of two bytes, and in _1 a smallest value as well.
_KV_BYTES: dict[str, float] = {
    **dict.fromkeys(("bf16", "bfloat16", "f16", "fp16", "float16", "half"), 2.0),
    **dict.fromkeys(("f32", "fp32", "float32"), 4.0),
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "e4m3", "e5m2", "fp8_inc", "int8"), 1.0),
    "fp8_ds_mla": 656 / 576,
    "nvfp4": 0.5625,
    "mxfp8": 1.03125,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}
_WORD = re.compile(r"[a-z0-9_]+")


def kv_value_bytes(declared: str, document: ModelDocument) -> float | None:
    """Return the bytes of one value of the KV cache, with its scales.

    Args:
        declared: what the spec says of it: a type by its usual name, or "auto" for what the model's
            files ask for, else its own data type (two bytes where no file names one: engines take
            bf16 then).
        document: the model's files.

    Returns:
        None where `declared` names no known type, or several that differ.

    Raises:
        InputError: "auto", and the files name something that is not known.
    """
    words = _WORD.findall(declared.casefold())
    found = {_KV_BYTES[word] for word in words if word in _KV_BYTES}
    if found:
        return found.pop() if len(found) == 1 else None
    if not {"auto", "default"}.isdisjoint(words):
        storage = storage_of(document)
        return float(storage.value_bytes) if storage.kv_value is None else storage.kv_value
    return None
