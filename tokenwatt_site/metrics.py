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
        "long_run_goodput",
        "Long-run SLO goodput",
        "output tok/s",
        "higher",
        "geometric",
        0,
        "Output tokens per second at the long-run boundary rate: that rate x mean output tokens"
        " asked in the long run x share of requests complete. Only this one ranks.",
    ),
    Metric(
        "long_run_rate",
        "Long-run boundary rate",
        "requests/s",
        "higher",
        "geometric",
        2,
        "The rate up to which the SLO holds over 200,000 requests: boundary rate x the engine"
        " model's boundary in the long run / the model's on the same realisation. Absent where the"
        " model is refused. Its interval holds a systematic 0.5%.",
    ),
    Metric(
        "goodput",
        "SLO goodput",
        "output tok/s",
        "higher",
        "geometric",
        0,
        "Output tokens per second at the boundary: boundary rate x mean output tokens asked x share"
        " of requests complete. Measured on the realisations; not corrected to the long run.",
    ),
    Metric(
        "boundary_rate",
        "Boundary rate",
        "requests/s",
        "higher",
        "geometric",
        2,
        "Geometric mean of the highest rate that passed and the lowest that failed the SLO, as"
        " measured on each realisation.",
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
        "joules_per_token_above_idle",
        "Energy per output token above idle",
        "J/output tok",
        "lower",
        "geometric",
        2,
        "(Energy of the boards in the window - idle watts x its length) / output tokens. Idle is"
        " measured with the engine loaded, before and after the load.",
    ),
    Metric(
        "joules_per_any_token",
        "Energy per token, prompt or output",
        "J/tok",
        "lower",
        "geometric",
        3,
        "Energy of the boards in the window / prompt and output tokens of the same window, prompt"
        " tokens where their answer began, as many as were asked where the engine does not tell."
        " Not additive with the energy per output token: both divide the whole energy.",
    ),
    Metric(
        "joules_per_slo_token",
        "Energy per output token within the SLO",
        "J/output tok",
        "lower",
        "geometric",
        2,
        "Energy of the boards in the window / output tokens delivered in it to requests that meet"
        " every objective.",
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
        "idle_power",
        "Loaded-idle board power",
        "W",
        "lower",
        "arithmetic",
        0,
        "Watts of all boards with the engine loaded and no request, before and after the load.",
    ),
    Metric(
        "cpu_power",
        "Processor package power",
        "W",
        "neither",
        "arithmetic",
        0,
        "Energy of the processor packages in the window / its length, by their own counters.",
    ),
    Metric(
        "host_power",
        "Host power",
        "W",
        "neither",
        "arithmetic",
        0,
        "Watts of the whole host in the window, as its management controller tells them.",
    ),
    Metric(
        "mbu",
        "Decode bandwidth utilization (MBU)",
        "% of rated",
        "higher",
        "arithmetic",
        0,
        "Modelled: bytes that the engine's steps must read (weights, routed experts, KV cache,"
        " state) / (time x boards x rated bandwidth). Activations, writes, prefill's own KV reads,"
        " draft models and traffic between boards are not in it; a prefix that prompts share counts"
        " for each of them. Upper: experts are taken to be reached evenly, which is the most that"
        " as many tokens can reach; a prompt is taken to reach them in one step.",
    ),
    Metric(
        "mbu_bus",
        "MBU of bus × clock",
        "% of bus × clock",
        "higher",
        "arithmetic",
        0,
        "As MBU, of what the memory bus carries at its highest clock, as the driver tells them.",
    ),
    Metric(
        "mbu_measured",
        "Measured memory traffic",
        "% of rated",
        "neither",
        "arithmetic",
        0,
        "Reads and writes of all processes on the boards over the window, by the boards' own"
        " counters, of the rated bandwidth. One pair of readings at the window's edges; by samples"
        " where there was none.",
    ),
    Metric(
        "mbu_measured_bus",
        "Measured memory traffic of bus × clock",
        "% of bus × clock",
        "neither",
        "arithmetic",
        0,
        "As measured memory traffic, of what the memory bus carries at its highest clock.",
    ),
    Metric(
        "mbu_engine",
        "MBU by the engine's own estimate",
        "% of rated",
        "neither",
        "arithmetic",
        0,
        "Bytes that the engine itself estimates to have read, of the rated bandwidth. Shown beside"
        " ours, never in its place.",
    ),
    Metric(
        "bus_bandwidth",
        "Memory bandwidth by bus × clock",
        "GB/s per board",
        "neither",
        "arithmetic",
        0,
        "Width of a board's memory bus x 2 x its highest clock / 8, as the driver tells them: what"
        " 100% of measured memory traffic is. Data sheets round it, or sell less.",
    ),
    Metric(
        "decode_batch",
        "Decode batch",
        "requests",
        "neither",
        "arithmetic",
        1,
        "Requests that were between their first and last token, on average over the window.",
    ),
    Metric(
        "step_rate",
        "Engine steps",
        "steps/s",
        "neither",
        "arithmetic",
        1,
        "Steps of the engine per second of the window: by its own counter where it exports one,"
        " else by how often an answer in the batch got an event, and one for each prompt that was"
        " alone.",
    ),
    Metric(
        "step_read",
        "Read per step",
        "GB",
        "neither",
        "arithmetic",
        2,
        "Modelled bytes of the window / its steps, over all boards.",
    ),
    Metric(
        "bandwidth_limit_rate",
        "Output rate at the bandwidth limit",
        "output tok/s",
        "neither",
        "geometric",
        0,
        "What these steps would deliver if each took only the time to read its bytes at the rated"
        " bandwidth: delivered rate / MBU.",
    ),
    Metric(
        "compute_share",
        "Share of the compute limit",
        "% of dense peak",
        "neither",
        "arithmetic",
        0,
        "(2 x active parameters x tokens computed + attention) / (time x boards x dense bf16 peak)."
        " The output matrix counts for output tokens alone.",
    ),
    Metric(
        "power_limit_share",
        "Share of the power limit",
        "% of enforced limit",
        "neither",
        "arithmetic",
        0,
        "Mean watts of the boards in the window / the limit that the driver enforces.",
    ),
    Metric(
        "dram_energy_share",
        "Share of energy that DRAM reads alone would take",
        "% of energy",
        "neither",
        "arithmetic",
        1,
        "Modelled bytes x 8 x 3.9 pJ/bit / energy of the boards. 3.9 pJ/bit is a published figure"
        " of HBM2, a reference and no proven bound.",
    ),
    Metric(
        "accuracy",
        "Accuracy",
        "% correct",
        "higher",
        "arithmetic",
        1,
        "Share of the task's questions that were answered right; a question without an answer is"
        " wrong. Asked in several repeats: their mean. Its interval (Wilson, 95%) is of the"
        " questions, not of launches.",
    ),
    Metric(
        "accuracy_drop",
        "Accuracy drop from the reference",
        "points",
        "lower",
        "arithmetic",
        2,
        "Points of 100 by which the score is below the reference's on the same questions, with the"
        " score interval of a paired difference (Tango, 95%). Negative: above it. Asked in several"
        " repeats: that of the worst.",
    ),
    Metric(
        "load_difference",
        "Answers that differ under load",
        "%",
        "lower",
        "arithmetic",
        1,
        "Share of the answers compared whose text under load is not that of the same prompt asked"
        " alone; greedy, so an engine that computes the same at any load has 0. Another text is not"
        " a worse one.",
    ),
)

METRICS: dict[str, Metric] = {metric.key: metric for metric in _ALL}
