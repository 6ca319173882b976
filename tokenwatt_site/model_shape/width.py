"""Whether a spec and a model's files tell of weights of the same width.

Bytes are those of the files. An engine that quantises while it loads, or that loads other files
(llama.cpp its GGUF), reads others, and how many is not guessed.
"""

from __future__ import annotations

import re

from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.model_shape.document import ModelDocument
from tokenwatt_site.model_shape.quantization import storage_of

# NVFP4, fp8_e4m3, bfloat16, int8, W4A16, Q4_K_M, IQ2_XXS; 4-bit, 8 bits; E4M3.
_TYPE = re.compile(
    r"(?<![a-z0-9])(?:(?:nv|mx)?fp|b?f|b?float|u?int|w|i?q)(\d{1,2})(?![0-9])"
    r"|(?<![a-z0-9.])(\d{1,2})[ _-]?bits?(?![a-z])"
)
_EIGHT = re.compile(r"(?<![a-z0-9])e(?:4m3|5m2)")


def declared_bits(declared: str) -> int | None:
    """Return the narrowest width that a spec's words for its weights name; None: they name none."""
    words = declared.casefold()
    found = [int(one or other) for one, other in _TYPE.findall(words)]
    found += [8] * bool(_EIGHT.search(words))
    return min((bits for bits in found if bits > 0), default=None)


def require_width(declared: str, document: ModelDocument) -> None:
    """Refuse a model whose files hold weights of another width than the spec declares.

    Args:
        declared: `setup.quantization.weights`; words that name no width are held against nothing.
        document: the model's files.

    Raises:
        InputError: the widths differ, or the files are quantised in a way that is not known.
    """
    stored, told = storage_of(document).narrowest_bits, declared_bits(declared)
    if told is not None and told != stored:
        raise InputError(
            Problem(
                f"says {told} bits and the model's files hold {stored}: what an engine converts"
                " while it loads, or reads from other files, is not modelled",
                field="setup.quantization.weights",
                found=repr(declared[:80]),
            )
        )
