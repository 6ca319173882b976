"""An engine's own counters, from its Prometheus text. Pure.

What the engines count, and where that is less than one would think:

- vLLM: a step is counted when it made a token, so one that only took a part of a long prompt is
  not; with a warm batch there is none such. Prompt tokens are also those found in the cache.
- SGLang: forward passes, of prompts too where the label `mode` tells them (older: decode alone).
  Tokens are counted when a request ends. With `--enable-metrics-for-all-schedulers` each tensor
  rank repeats its group's series: one of them is taken.
- llama.cpp (with `--metrics`): calls of `llama_decode`, each over all slots; one takes a prompt
  that the kernels cut further. Tokens of prompts and of answers are counted at their ends, and
  numbers have six digits.
- TGI: forward passes, of prompts and of tokens; tokens are counted when a request ends.

Others (TensorRT-LLM among them) export no steps under a name that is known here. A counter that
falls is an engine that started anew; here it is taken as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence.engine import EngineSample
from tokenwatt_site.measure.prometheus import Metrics, Sample, parse

Column: TypeAlias = Literal[
    "steps", "prompt_tokens", "output_tokens", "running", "waiting", "kv_ppm", "read_mb"
]

# Of each column the series that mean it, the newer name first.
_ENGINES: tuple[dict[Column, tuple[str, ...]], ...] = (
    {
        "steps": ("vllm:iteration_tokens_total_count",),
        "prompt_tokens": ("vllm:prompt_tokens_total",),
        "output_tokens": ("vllm:generation_tokens_total",),
        "running": ("vllm:num_requests_running",),
        "waiting": ("vllm:num_requests_waiting",),
        "kv_ppm": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        "read_mb": ("vllm:estimated_read_bytes_per_gpu_total",),
    },
    {
        "steps": ("sglang:cuda_graph_passes_total",),
        "prompt_tokens": ("sglang:prompt_tokens_total",),
        "output_tokens": ("sglang:generation_tokens_total",),
        "running": ("sglang:num_running_reqs",),
        "waiting": ("sglang:num_queue_reqs",),
        "kv_ppm": ("sglang:token_usage",),
        "read_mb": ("sglang:estimated_read_bytes_per_gpu_total",),
    },
    {
        "steps": ("llamacpp:n_decode_total",),
        "prompt_tokens": ("llamacpp:prompt_tokens_total",),
        "output_tokens": ("llamacpp:tokens_predicted_total",),
        "running": ("llamacpp:requests_processing",),
        "waiting": ("llamacpp:requests_deferred",),
        "kv_ppm": ("llamacpp:kv_cache_usage_ratio",),
    },
    {
        "steps": ("tgi_batch_inference_count",),
        "prompt_tokens": ("tgi_request_input_length_sum",),
        "output_tokens": ("tgi_request_generated_tokens_sum",),
        "running": ("tgi_batch_current_size",),
        "waiting": ("tgi_queue_size",),
    },
)

_RANK = ("engine", "dp_rank")
_COPY = ("tp_rank", "pp_rank", "moe_ep_rank")


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


# How ranks are put together, how many of ours one of the engine's is, and the most of a rank.
_RULES: dict[Column, tuple[Callable[[list[float]], float], float, float]] = {
    "steps": (_mean, 1, 2**53 - 1),
    "prompt_tokens": (math.fsum, 1, 2**53 - 1),
    "output_tokens": (math.fsum, 1, 2**53 - 1),
    "running": (math.fsum, 1, 2**53 - 1),
    "waiting": (math.fsum, 1, 2**53 - 1),
    "kv_ppm": (_mean, 1e6, 1),
    "read_mb": (_mean, 1e-6, 1e6 * (2**53 - 1)),
}


@dataclass(frozen=True, slots=True)
class Counters:
    """Which series of an engine are read; `names` is what `EngineLog.names` keeps."""

    names: dict[Column, str]

    @classmethod
    def of(cls, text: bytes) -> Counters | None:
        """Return the counters in what an engine said at /metrics; None: none that is known."""
        told = _parsed(text)
        if told is None:
            return None
        for engine in _ENGINES:
            names = {
                column: name
                for column, candidates in engine.items()
                if (name := next((n for n in candidates if n in told), None)) is not None
            }
            if names:
                return cls(names)
        return None

    def read(self, text: bytes | None, at_ns: int) -> EngineSample:
        """Return what they said in `text`; what is not there, or is no count, is None.

        Args:
            text: what the engine said at /metrics; None: nothing.
            at_ns: when, the middle of asking.
        """
        told = None if text is None else _parsed(text)
        if told is None:
            return EngineSample(at_ns)
        values = {column: _value(told, name, column) for column, name in self.names.items()}
        if not values.get("read_mb"):
            # An engine that does not estimate its traffic may export the counter, at 0.
            values["read_mb"] = None
        return EngineSample(at_ns, **values)


def _parsed(text: bytes) -> Metrics | None:
    try:
        return parse(text, source="the engine's metrics")
    except InputError:
        return None


def _value(told: Metrics, name: str, column: Column) -> int | None:
    put_together, scale, most = _RULES[column]
    ranks = _by_rank(told.samples(name))
    if not ranks or not all(0 <= value <= most for value in ranks):
        return None
    return round(put_together(ranks) * scale)


def _by_rank(samples: Iterable[Sample]) -> list[float]:
    """Return the value of each data-parallel rank.

    Series of a rank that differ by other labels (a kind of pass, a model) are parts of it. Those
    of its tensor and pipeline ranks are copies, and a copy may lag: the largest is the latest.
    """
    ranks: dict[tuple[str | None, ...], dict[tuple[str | None, ...], float]] = {}
    for sample in samples:
        copies = ranks.setdefault(tuple(map(sample.labels.get, _RANK)), {})
        copy = tuple(map(sample.labels.get, _COPY))
        copies[copy] = copies.get(copy, 0.0) + sample.value
    return [max(copies.values()) for copies in ranks.values()]
