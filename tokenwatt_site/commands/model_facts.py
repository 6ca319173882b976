"""What a model's own files tell of it, as fields of a spec."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tokenwatt_site.bandwidth.step import NoFigure, layout_of
from tokenwatt_site.canonical import JsonValue, clean_text
from tokenwatt_site.errors import InputError
from tokenwatt_site.model_shape.config import describe
from tokenwatt_site.model_shape.document import ModelDocument, headers_digest
from tokenwatt_site.model_shape.folder import read_model
from tokenwatt_site.model_shape.kv_cache import kv_value_bytes
from tokenwatt_site.spec import NOT_RECORDED, Spec

_TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Fields of a setup; `note` says why bandwidth is not modelled, None: it is."""

    architecture: str = NOT_RECORDED
    digest: str = NOT_RECORDED
    weights: str = NOT_RECORDED
    kv_cache: str = NOT_RECORDED
    note: str | None = None


def why_not_modelled(spec: Spec, document: ModelDocument) -> str | None:
    """Say why a run of this spec would have no modelled bandwidth; None: it would."""
    quantization = spec.setup.quantization
    try:
        layout_of(spec.setup.parallelism, spec.setup.accelerator.count)
        describe(document)
        kv = kv_value_bytes(quantization.kv_cache, document)
    except NoFigure as why:
        return str(why)
    except InputError as error:
        return str(error.problems[0])
    if kv is None:
        return f"no size of a KV value is known (quantization.kv_cache: {quantization.kv_cache})"
    return None


def model_facts(folder: Path) -> ModelFacts:
    """Read a model's folder.

    Raises:
        InputError: there is no config, or a file is cut.
    """
    document = read_model(folder)
    note: str | None = None
    architecture: str = NOT_RECORDED
    try:
        shape, _ = describe(document)
    except InputError as error:
        note = f"Bandwidth is not modelled: {error.problems[0]}"
    else:
        architecture = "moe" if shape.experts else "dense"
    return ModelFacts(
        architecture=architecture,
        digest=headers_digest(document) or NOT_RECORDED,
        weights=weights_format(document) or NOT_RECORDED,
        kv_cache=_kv_format(document) or NOT_RECORDED,
        note=note,
    )


def weights_format(document: ModelDocument) -> str | None:
    """Return how the files call the format of the weights, such as NVFP4 or bf16; None: not."""
    sidecar = _inner(_inner(document.quantization, "quantization"), "quant_algo")
    if sidecar is not None:
        return _text(sidecar)
    text_config = _inner(document.config, "text_config")
    rules = _inner(document.config, "quantization_config") or _inner(
        text_config, "quantization_config"
    )
    if rules is not None:
        return _text(_inner(rules, "quant_algo")) or _method(rules)
    mlx = _inner(document.config, "quantization")
    if mlx is not None:
        return _with_bits("mlx", _inner(mlx, "bits"))
    for place in (document.config, text_config):
        for key in ("dtype", "torch_dtype"):
            if told := _text(_inner(place, key)):
                return _TYPES.get(told, told)
    return None


def _method(rules: JsonValue) -> str | None:
    method = _text(_inner(rules, "quant_method"))
    if method is None:
        return None
    groups = _inner(rules, "config_groups")
    if isinstance(groups, dict) and len(groups) == 1:
        weights = _inner(next(iter(groups.values())), "weights")
        kind = _text(_inner(weights, "type"))
        return _with_bits(f"{method} {kind}" if kind else method, _inner(weights, "num_bits"))
    return _with_bits(method, _inner(rules, "bits"))


def _kv_format(document: ModelDocument) -> str | None:
    """Return what the files ask of the KV cache; without a word the engine's options decide."""
    for rules in (
        _inner(document.quantization, "quantization"),
        _inner(document.config, "quantization_config"),
    ):
        if told := _text(_inner(rules, "kv_cache_quant_algo")):
            return told
    return None


def _with_bits(name: str, bits: JsonValue) -> str:
    return f"{name} {bits}-bit" if type(bits) is int else name


def _inner(value: JsonValue, key: str) -> JsonValue:
    return value.get(key) if isinstance(value, dict) else None


def _text(value: JsonValue) -> str | None:
    return clean_text(value, limit=60) or None if isinstance(value, str) else None
