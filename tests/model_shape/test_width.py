"""Widths that a spec declares, held against those of a model's files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import safetensors_files as files
from tokenwatt_site.commands.model_facts import weights_format
from tokenwatt_site.errors import InputError
from tokenwatt_site.model_shape.document import ModelDocument
from tokenwatt_site.model_shape.width import declared_bits, require_width

BF16 = ModelDocument({**files.LLAMA, "torch_dtype": "bfloat16"})
FP8 = ModelDocument({**files.LLAMA, "quantization_config": {"quant_method": "fp8"}})


@pytest.mark.parametrize(
    ("declared", "bits"),
    [
        ("bf16", 16),
        ("BFloat16", 16),
        ("float16", 16),
        ("FP32", 32),
        ("FP8", 8),
        ("fp8_e4m3, block 128", 8),
        ("E4M3", 8),
        ("int8", 8),
        ("W8A8", 8),
        ("W4A16_AWQ", 4),
        ("NVFP4", 4),
        ("MXFP4 experts, bf16 elsewhere", 4),
        ("gptq 4-bit", 4),
        ("mlx 6 bits", 6),
        ("Q8_0", 8),
        ("UD-Q4_K_XL", 4),
        ("IQ2_XXS", 2),
        ("not recorded", None),
        ("MIXED_PRECISION", None),
        ("as published, rev a16", None),
        ("qwen3", None),
        ("0.5 bits", None),
    ],
)
def test_the_narrowest_width_that_words_name_is_found(declared: str, bits: int | None) -> None:
    assert declared_bits(declared) == bits


@pytest.mark.parametrize(
    ("declared", "document"), [("bf16", BF16), ("fp8", FP8), ("as published", FP8)]
)
def test_the_same_width_or_none_passes(declared: str, document: ModelDocument) -> None:
    require_width(declared, document)


@pytest.mark.parametrize(("declared", "document"), [("Q8_0", BF16), ("FP8", BF16), ("bf16", FP8)])
def test_b16_another_width_than_that_of_the_files_is_refused(
    declared: str, document: ModelDocument
) -> None:
    with pytest.raises(InputError, match=r"quantization\.weights: says \d+ bits and the model's"):
        require_width(declared, document)


def test_what_init_writes_of_real_files_is_their_width(test_data: Path) -> None:
    folder = test_data / "model-configs"
    for path in folder.glob("*.json"):
        if "hf_quant_config" in path.name:
            continue
        sidecar = folder / f"{path.stem}.hf_quant_config.json"
        document = ModelDocument(
            json.loads(path.read_text()),
            json.loads(sidecar.read_text()) if sidecar.exists() else None,
        )
        require_width(weights_format(document) or "", document)
