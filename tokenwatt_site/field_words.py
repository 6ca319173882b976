"""What readers call the fields of a spec: the one place where their names are kept. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

FIELD_WORDS: Mapping[str, str] = MappingProxyType(
    {
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
)
"""Path of a setup field -> its name; the others have the words of their path."""

_ASKED: Mapping[str, str] = MappingProxyType(
    {
        "protocol.max_rate": "the spec's highest rate",
        "protocol.scored": "the spec's scored requests",
        "lead_in": "its lead-in",
    }
)
"""Of the fields beside the setup those that a reason tells to change."""

_TOLD = (*FIELD_WORDS, *_ASKED)
# A word such as "driver" means itself.
_PATHS = sorted((path for path in _TOLD if "." in path or "_" in path), key=len, reverse=True)
_PATH = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, _PATHS))})(?![\w]|\.\w)")
_ASIDE = re.compile(r" \((?:setup|endpoint|protocol)(?:\.\w+)+\)")


def field_words(path: str) -> str:
    """Name a setup field."""
    words = path.replace(".", " ").replace("_", " ")
    return FIELD_WORDS.get(path) or f"{words[:1].upper()}{words[1:]}"


def inline(path: str) -> str:
    """Name a field within a sentence."""
    words = _ASKED.get(path) or field_words(path)
    return f"{words[:1].lower()}{words[1:]}" if words[1:2].islower() else words


def in_words(told: str) -> str:
    """Return a reason that a run has, in which a reader meets no path of a spec.

    A path in brackets, which tells the spec's author where, is left out.
    """
    return _PATH.sub(lambda found: inline(found[0]), _ASIDE.sub("", told))
