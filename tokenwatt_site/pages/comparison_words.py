"""How parts of a comparison are written: blocks and cells, ratios, changes, names of fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.statistics import Ratio

Block: TypeAlias = dict[str, JsonValue]
"""Plain data with its `kind`: a template writes it, and compare-view.js makes the same."""

Parts: TypeAlias = list[list[str]]
"""Words and how they are set: "" or "b"."""

FIELD_WORDS: Mapping[str, str] = {
    "accelerator.model": "Accelerator",
    "accelerator.count": "Accelerators",
    "accelerator.memory_gib": "Memory of each (GiB)",
    "accelerator.rated_bandwidth_gb_s": "Rated bandwidth of each (GB/s)",
    "accelerator.power_limit_w": "Power limit of each (W)",
    "driver": "Driver / runtime",
    "host_kind": "Host",
    "engine.name": "Engine",
    "engine.version": "Engine version",
    "engine.build": "Engine build",
    "engine.image_digest": "Image digest",
    "engine.argv": "Command line",
    "kernel_libraries": "Kernel libraries",
    "model.name": "Model",
    "model.revision": "Model revision",
    "model.architecture": "Architecture",
    "model.digest": "Model digest",
    "quantization.weights": "Weights",
    "quantization.kv_cache": "KV cache",
    "parallelism.replicas": "Replicas",
    "parallelism.tensor": "Tensor parallel",
    "parallelism.pipeline": "Pipeline parallel",
    "parallelism.expert": "Expert parallel",
    "parallelism.data": "Data parallel",
    "parallelism.prefill_decode_split": "Prefill/decode split",
    "workload.name": "Workload",
    "workload.version": "Workload version",
    "workload.hash": "Workload hash",
    "arrival": "Arrival",
    "slo": "SLO",
    "power.sensor": "Power sensor",
    "power.scope": "Power scope",
    "power.rate_hz": "Power rate (Hz)",
}
"""Path of a setup field -> its name; the others have the words of their path."""

MARKS: Mapping[str, tuple[str, str, str]] = {
    "better": ("better", "check", "circle"),
    "worse": ("worse", "warn", "square"),
    "different": ("different", "unranked", "slot"),
    "same within 3%": ("same", "recomputed", "diamond"),
    "no difference shown": ("none", "unranked", "ring"),
}
"""Verdict -> class, icon and shape of its mark."""

MINUS = "\u2212"


def head(words: str, cls: str = "", axis: Block | None = None) -> Block:
    return {"text": words, "class": cls, "axis": axis}


def cell(parts: Parts, cls: str = "", small: str = "", **more: JsonValue) -> Block:
    """`key` links to a definition; a `bar` or a `verdict` stands behind the words."""
    empty = {"key": None, "verdict": None, "bar": None, "span": None}
    return {"parts": parts, "class": cls, "small": small, **empty, **more}


def field_words(path: str) -> str:
    """Name a setup field."""
    words = path.replace(".", " ").replace("_", " ")
    return FIELD_WORDS.get(path) or f"{words[:1].upper()}{words[1:]}"


def change(ratio: float) -> str:
    change = 100 * (ratio - 1)
    return f"{abs(change):.1f}% {'more' if change >= 0 else 'less'}"


def percent(ratio: float) -> str:
    change = 100 * (ratio - 1)
    return f"{MINUS if change < 0 else '+'}{abs(change):.1f}%"


def interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return "no interval"
    return f"{ratio.low:.3f} to {ratio.high:.3f}"


def points(value: float) -> str:
    shown = f"{abs(value):.2f}"
    return shown if float(shown) == 0 else f"{MINUS if value < 0 else '+'}{shown}"
