"""How numbers, rates, intervals and setup fields are written. Words only, no results are made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tokenwatt_site.field_words import in_words
from tokenwatt_site.lengths import Conversation, Fixed, Lengths, Lognormal
from tokenwatt_site.metrics import METRICS, Metric
from tokenwatt_site.run import Distribution, MetricClaim
from tokenwatt_site.spec import (
    NOT_RECORDED,
    Accelerator,
    Engine,
    Objective,
    Parallelism,
    Quantization,
)

NOT_MEASURED = "not measured"
NOT_CORRECTED = "not corrected"

LONG_RUN = frozenset({"long_run_goodput", "long_run_rate"})
"""Metrics that are worked out from what was measured; without a model there is nothing to print."""

OF_ANSWERS = frozenset({"accuracy", "accuracy_drop", "load_difference"})
"""Metrics whose interval is of the questions or answers, at any number of repeats."""


def number(value: float, decimals: int) -> str:
    """Write `value` with thousands separators and exactly `decimals` digits after the point."""
    return f"{value:,.{decimals}f}"


def amount(value: float, metric: Metric) -> str:
    """Write `value` with the decimals of its metric; a small value keeps two significant digits."""
    return rounded(value, metric.decimals)


def rounded(value: float, decimals: int) -> str:
    """Write `value` with so many decimals, or with more for two significant digits."""
    if 0 < abs(value) < 10:
        # Else 0.43 requests/s and 4 output tok/s would lose the digits that a reader compares.
        decimals = max(decimals, 1 - math.floor(math.log10(abs(value))))
    return number(value, decimals)


def rate(urps: int) -> str:
    """Write a rate given in 1e-6 requests/s."""
    value = urps / 1e6
    return number(value, 2 if value >= 1 else 3)


def milliseconds(value: float) -> str:
    """Write a latency limit: from a second on in seconds, else in ms."""
    if value >= 1000:
        return f"{value / 1000:g} s"
    return f"{value:g} ms"


def probability(p: float) -> str:
    """Write a p-value with two significant digits; what a float cannot hold is below 1e-300."""
    return f"{p:.2g}" if p else "below 1e-300"


def counted(n: int, one: str, several: str | None = None) -> str:
    """Such as "1 launch", "2 launches": `several` where it is not `one` with an s."""
    return f"{n:,} {one if n == 1 else several or f'{one}s'}"


def metric_of(claim: MetricClaim) -> Metric:
    """Return the registry's entry; a claim without one cannot be shown, for its unit is unknown."""
    return METRICS[claim.key]


def reason(claim: MetricClaim) -> str:
    """Say that there is no number and why; what a check barred was measured, and says so itself."""
    if claim.reason and claim.reason.startswith(("withheld", "INVALID")):
        return in_words(claim.reason)
    lacks = NOT_CORRECTED if claim.key in LONG_RUN else NOT_MEASURED
    return f"{lacks}: {in_words(claim.reason or 'no reason was recorded')}"


def sureness(claim: MetricClaim) -> str:
    """Say how sure a number is: n = 1 nothing, n = 2 the range, from n = 3 the intervals.

    What is of answers has its interval at any n, and no n of repeats.
    """
    n = len(claim.repeats)
    metric = metric_of(claim)
    if claim.key in OF_ANSWERS and claim.low is not None and claim.high is not None:
        return f"95% {amount(claim.low, metric)} to {amount(claim.high, metric)}"
    if n <= 1 or claim.low is None or claim.high is None:
        return f"n = {n}, no interval"
    low, high = amount(claim.low, metric), amount(claim.high, metric)
    if n == 2:
        return f"n = 2, range {low} to {high}"
    words = f"n = {n}, 95% CI of the mean {low} to {high}"
    if claim.new_launch_low is not None and claim.new_launch_high is not None:
        low, high = amount(claim.new_launch_low, metric), amount(claim.new_launch_high, metric)
        words += f"; a new launch {low} to {high}"
    return words


def joined(parts: Iterable[str]) -> str:
    """Join as in a sentence: a, b and c."""
    words = list(parts)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def slo(objectives: Iterable[Objective]) -> str:
    """Such as "TTFT p99 ≤ 2 s and TPOT p99 ≤ 50 ms"."""
    return joined(f"{o.label} ≤ {milliseconds(o.limit_ms)}" for o in objectives)


def boards(accelerator: Accelerator) -> str:
    """Such as "4× NVIDIA H200"; a CPU is not counted in boards."""
    if not recorded(accelerator.model):
        return "hardware that was not recorded"
    if accelerator.model.upper() == "CPU":
        return accelerator.model
    return f"{accelerator.count}× {accelerator.model}"


def engine(value: Engine) -> str:
    """Name and version."""
    name = value.name if recorded(value.name) else "an engine that was not recorded"
    return f"{name} {value.version if recorded(value.version) else '(version not recorded)'}"


def quantization(value: Quantization) -> tuple[str, str]:
    """Such as ("FP8 weights", "KV cache FP8")."""
    weights = f"{value.weights} weights" if recorded(value.weights) else "weights not recorded"
    return weights, f"KV cache {value.kv_cache}"


def quantity(value: float | str, unit: str) -> str:
    """A number with its unit, or the words "not recorded" as they are."""
    return value if isinstance(value, str) else f"{value:,g} {unit}"


def bandwidth(value: float | str) -> str:
    """Rated bandwidth per board; given in GB/s, read in TB/s."""
    return value if isinstance(value, str) else f"{value / 1000:g} TB/s per GPU"


def lengths(value: Lengths) -> str:
    """A distribution of token counts."""
    if isinstance(value, Fixed):
        return f"{value.tokens:,} for every request"
    if isinstance(value, Lognormal):
        shape = f"lognormal, clipped to {value.min:,} to {value.max:,}"
    else:
        shape = f"as in the trace, {value.min:,} to {value.max:,}"
    return f"median {value.median:,} · p90 {value.p90:,} · {shape}"


def conversation(value: Conversation) -> str:
    """What prompts repeat, such as "4 turns, 8 requests apart · shared prefix of 512 tokens"."""
    turns = f"{counted(value.turns, 'turn')}, {counted(value.spread, 'request')} apart"
    parts = [turns] if value.turns > 1 else []
    if value.shared_prefix_tokens:
        parts.append(f"shared prefix of {counted(value.shared_prefix_tokens, 'token')}")
    return " · ".join(parts)


def parallelism(value: Parallelism) -> str:
    """Such as "1 replica × TP4", with every axis that the setup names."""
    replicas = f"{value.replicas} replica{'s' if value.replicas != 1 else ''}"
    axes = f"TP{value.tensor} × PP{value.pipeline} × EP{value.expert} × DP{value.data}"
    return f"{replicas} × {axes} · prefill/decode split: {value.prefill_decode_split}"


def recorded(text: str) -> bool:
    return text != NOT_RECORDED


_FAILURES = {
    "http_error": ("HTTP error", "HTTP errors"),
    "stream_error": ("stream error", "stream errors"),
    "disconnected": ("disconnected", "disconnected"),
    "timed_out": ("timed out", "timed out"),
    "no_usage": ("without usage", "without usage"),
    "short_output": ("short output", "short outputs"),
    "not_sent": ("not sent", "not sent"),
}
"""`records.Status` in lower case -> (words for one, words for several)."""


def failures(counts: Mapping[str, int]) -> str:
    """Such as "8 HTTP errors, 2 disconnected", from counts by `records.Status` in lower case."""
    return ", ".join(f"{n:,} {_FAILURES[s][n != 1]}" for s, n in counts.items()) or "none"


def printable(text: str) -> str:
    """Escape what is not printable as `repr` does: a file's name may steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quantiles(distribution: Distribution) -> list[tuple[str, str]]:
    """The quantiles that a table shows; all hundred are in the run file."""
    shown = (1, 5, 10, 25, 50, 75, 90, 95, 99, 100)
    values = distribution.values_ms
    return [
        (f"p{p}", number(values[p - 1], 1) if p <= len(values) else "did not end well")
        for p in shown
    ]
