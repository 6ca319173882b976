"""The metrics of an engine in Prometheus text, under vLLM's names.

Names, labels and meanings follow vLLM v0.26.0, buckets its `v1/metrics/loggers.py`. Ours differ in
one: a step's `iteration_tokens` are all tokens it computed, also those of unfinished prompts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from tokenwatt_site.simulate.engine import Engine, Generation, Step

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Reason: TypeAlias = Literal["stop", "length", "abort"]

_TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_ITL_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
_REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Histogram:
    """Counts of values up to each bound; the sum is of integers in `unit`, so it is exact."""

    def __init__(self, bounds: Sequence[float], unit: int = 1) -> None:
        self._bounds = bounds
        self._unit = unit
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0

    def observe(self, value: int) -> None:
        """Count one value, in 1/unit of what the bounds are in."""
        self._counts[bisect_left(self._bounds, value / self._unit)] += 1
        self._sum += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Yield the series, buckets cumulative as Prometheus has them."""
        total = 0
        for bound, count in zip((*map(float, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {float(total)}'
        yield f"{name}_count{{{labels}}} {float(total)}"
        yield f"{name}_sum{{{labels}}} {self._sum / self._unit}"


class Exposition:
    """Counts what one engine does. Times come from the engine; `started_s` is since the epoch."""

    def __init__(self, engine: Engine, model: str, started_s: float) -> None:
        self._engine = engine
        self._labels = f'engine="0",model_name="{_escaped(model)}"'
        self._started_s = started_s
        self._prompt_tokens = 0
        self._generation_tokens = 0
        self._ended: Counter[Reason] = Counter()
        ns = 10**9
        self._step_tokens = Histogram(_STEP_TOKENS)
        self._ttft, self._itl = Histogram(_TTFT_S, ns), Histogram(_ITL_S, ns)
        self._e2e, self._queue = Histogram(_REQUEST_S, ns), Histogram(_REQUEST_S, ns)

    def step(self, step: Step) -> None:
        self._step_tokens.observe(step.tokens)

    def token(self, generation: Generation) -> None:
        """Count the token that `generation` just got."""
        latest_ns, previous_ns = generation.latest_ns or 0, generation.previous_ns
        self._generation_tokens += 1
        if previous_ns is None:
            self._prompt_tokens += len(generation.request.prompt)
            self._ttft.observe(latest_ns - generation.request.arrival_ns)
        else:
            self._itl.observe(latest_ns - previous_ns)

    def ended(self, generation: Generation, reason: Reason) -> None:
        """Count a request that ended; the latencies of one that was broken off are not seen."""
        self._ended[reason] += 1
        if reason != "abort" and generation.latest_ns is not None:
            arrival_ns = generation.request.arrival_ns
            self._e2e.observe(generation.latest_ns - arrival_ns)
            self._queue.observe((generation.admitted_ns or arrival_ns) - arrival_ns)

    def text(self) -> str:
        return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        engine = self._engine
        yield "# HELP process_start_time_seconds Start time since the epoch, in seconds."
        yield "# TYPE process_start_time_seconds gauge"
        yield f"process_start_time_seconds {self._started_s:.3f}"
        gauges = (
            ("num_requests_running", "Requests in the batch.", engine.running),
            ("num_requests_waiting", "Requests in the queue.", engine.waiting),
            ("kv_cache_usage_perc", "KV cache in use; 1 is all of it.", engine.kv_usage),
        )
        counters = (
            ("num_preemptions", "Requests put back for want of KV cache.", engine.preemptions),
            ("prefix_cache_queries", "Prompt tokens looked up.", engine.prefix_queries),
            ("prefix_cache_hits", "Prompt tokens found.", engine.prefix_hits),
            ("prompt_tokens", "Prompt tokens of requests that got a token.", self._prompt_tokens),
            ("generation_tokens", "Tokens made.", self._generation_tokens),
        )
        for name, meaning, value in gauges:
            yield from _family(f"vllm:{name}", meaning, "gauge")
            yield f"vllm:{name}{{{self._labels}}} {float(value)}"
        for name, meaning, value in counters:
            yield from _family(f"vllm:{name}_total", meaning, "counter")
            yield f"vllm:{name}_total{{{self._labels}}} {float(value)}"
        yield from _family("vllm:request_success_total", "Requests that ended.", "counter")
        reasons: tuple[Reason, ...] = ("stop", "length", "abort")
        for reason in reasons:
            labels = f'finished_reason="{reason}",{self._labels}'
            yield f"vllm:request_success_total{{{labels}}} {float(self._ended[reason])}"
        histograms = (
            ("iteration_tokens_total", "Tokens computed per step.", self._step_tokens),
            ("time_to_first_token_seconds", "From arrival to the first token.", self._ttft),
            ("inter_token_latency_seconds", "Between two tokens of a request.", self._itl),
            ("e2e_request_latency_seconds", "From arrival to the last token.", self._e2e),
            ("request_queue_time_seconds", "From arrival to the first step.", self._queue),
        )
        for name, meaning, histogram in histograms:
            yield from _family(f"vllm:{name}", meaning, "histogram")
            yield from histogram.lines(f"vllm:{name}", self._labels)


def _family(name: str, meaning: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
