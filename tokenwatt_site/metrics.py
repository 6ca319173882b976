"""The registry of metrics: what each number is called, its unit, its better side, its meaning.

Labels, units and definitions on every page, in every file and in the glossary come from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Better: TypeAlias = Literal["higher", "lower", "neither"]
Pooling: TypeAlias = Literal["geometric", "arithmetic"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One kind of number. `decimals` is how many are shown, never how many are kept."""

    key: str
    label: str
    unit: str
    better: Better
    pooling: Pooling
    decimals: int
    definition: str


_ALL = (
    Metric(
        "goodput",
        "SLO goodput",
        "output tok/s",
        "higher",
        "geometric",
        0,
        "Output tokens per second at the boundary: boundary rate x mean output tokens asked x share"
        " of requests complete. Measured on the realisation; not corrected to the long run.",
    ),
    Metric(
        "boundary_rate",
        "Boundary rate",
        "requests/s",
        "higher",
        "geometric",
        2,
        "Geometric mean of the highest rate that passed and the lowest that failed the SLO.",
    ),
    Metric(
        "highest_pass_rate",
        "Highest passing rate",
        "requests/s",
        "higher",
        "geometric",
        2,
        "The highest offered rate at which every objective of the SLO held.",
    ),
    Metric(
        "input_throughput",
        "Input tokens at the boundary",
        "input tok/s",
        "higher",
        "geometric",
        0,
        "Boundary rate x mean input tokens asked.",
    ),
    Metric(
        "ttft",
        "TTFT",
        "ms",
        "lower",
        "geometric",
        1,
        "Time to first token: first event that carries content, counted from the scheduled"
        " arrival.",
    ),
    Metric(
        "ttft_from_send",
        "TTFT from send",
        "ms",
        "lower",
        "geometric",
        1,
        "As TTFT, counted from the moment the request was written to the socket. Hides a late"
        " client; shown beside the headline, never in its place.",
    ),
    Metric(
        "tpot",
        "TPOT",
        "ms",
        "lower",
        "geometric",
        1,
        "Time per output token after the first event: (last - first) / (tokens - tokens in the"
        " first event). Undefined when all tokens came in one event.",
    ),
    Metric(
        "e2e",
        "E2E latency",
        "ms",
        "lower",
        "geometric",
        0,
        "End of the answer, counted from the scheduled arrival.",
    ),
    Metric(
        "attainment",
        "Requests within all limits",
        "%",
        "higher",
        "arithmetic",
        1,
        "Share of scored requests that meet every objective at the highest passing rate. Printed,"
        " never the criterion: each objective has its own quantile.",
    ),
    Metric(
        "complete",
        "Requests complete",
        "%",
        "higher",
        "arithmetic",
        1,
        "Share of scored requests that ended with all the tokens asked for.",
    ),
    Metric(
        "cached_prompt_share",
        "Prompt tokens from the cache",
        "%",
        "neither",
        "arithmetic",
        1,
        "Cached prompt tokens, as the engine tells them / prompt tokens of the scored requests at"
        " the highest passing rate. Only where conversations are declared: other prompts are new.",
    ),
    Metric(
        "tokens_per_joule",
        "Tokens per joule",
        "output tok/J",
        "higher",
        "geometric",
        2,
        "Output tokens delivered in the window / energy of the boards in the same window.",
    ),
    Metric(
        "joules_per_token",
        "Energy per output token",
        "J/output tok",
        "lower",
        "geometric",
        2,
        "Energy of the boards in the window / output tokens delivered in the same window.",
    ),
    Metric(
        "board_power",
        "GPU board power",
        "W",
        "neither",
        "arithmetic",
        0,
        "Energy of all boards in the window / its length. Boards only: no CPU, memory, NIC, fans or"
        " PSU.",
    ),
    Metric(
        "mbu",
        "Decode bandwidth utilization (MBU)",
        "% of rated",
        "higher",
        "arithmetic",
        0,
        "Bytes the decode steps must read / (time x boards x rated bandwidth).",
    ),
    Metric(
        "accuracy",
        "Accuracy",
        "% correct",
        "higher",
        "arithmetic",
        1,
        "Share of the gate's questions answered correctly by the same server in the same launch.",
    ),
)

METRICS: dict[str, Metric] = {metric.key: metric for metric in _ALL}
