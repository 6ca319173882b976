"""The registry of metrics: what each number is called, its unit, its meaning, its formula.

Labels, units and definitions on every page, in every file and in the glossary come from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Better: TypeAlias = Literal["higher", "lower", "neither"]
Pooling: TypeAlias = Literal["geometric", "arithmetic"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a formula is set out: a section of a page in prose, and whose work it is if not ours.

    `cited` is what it is called, and its address.
    """

    page: str
    section: str
    cited: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """One kind of number. `decimals` is how many are shown, never how many are kept.

    `formula` is of one repeat; `pooling` says how repeats make one number. `is_not` says for what
    it is easily taken.
    """

    key: str
    label: str
    unit: str
    better: Better
    pooling: Pooling
    decimals: int
    definition: str
    formula: str
    source: Source
    is_not: str


_TIMING = Source("method.md", "Timing definitions")
_WORKLOADS = Source("method.md", "Workloads")
_LONG_RUN = Source("goodput.md", "What is done about it")
_ENERGY = Source("method.md", "Energy and power")
_BANDWIDTH = Source("method.md", "Memory bandwidth and distance to the limits")
_MBU = Source(
    "method.md",
    "Memory bandwidth and distance to the limits",
    (
        "the ratio is of Databricks, LLM Inference Performance Engineering: Best Practices (2023)",
        "https://www.databricks.com/blog/llm-inference-performance-engineering-best-practices",
    ),
)
_DRAM = Source(
    "method.md",
    "Memory bandwidth and distance to the limits",
    (
        "3.9 pJ/bit: O'Connor et al., Fine-Grained DRAM, MICRO-50 (2017)",
        "https://doi.org/10.1145/3123939.3124545",
    ),
)
_WILSON = Source(
    "method.md",
    "Accuracy",
    ("interval: Wilson (1927)", "https://doi.org/10.1080/01621459.1927.10502953"),
)
_TANGO = Source(
    "method.md",
    "Accuracy",
    (
        "interval: Tango (1998)",
        "https://doi.org/10.1002/(SICI)1097-0258(19980430)17:8%3C891::AID-SIM780%3E3.0.CO;2-B",
    ),
)


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
        "long-run boundary rate × mean output tokens asked in the long run × requests complete"
        " / scored requests",
        _LONG_RUN,
        "Not what was measured in one window, and not what an engine gives without a latency"
        " limit. Nothing stands here where the engine model was refused.",
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
        "boundary rate × model's boundary over 200,000 requests / model's boundary on the same"
        " window",
        _LONG_RUN,
        "Not a rate at which every ten minutes keep the SLO: misses cluster there too, and each"
        " report says how often.",
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
        "boundary rate × mean output tokens asked × requests complete / scored requests",
        _TIMING,
        "Not the tokens of the requests that met every limit, and not what the long run keeps:"
        " a short window overstates that.",
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
        "√(highest passing rate × lowest failing rate), of each repeat",
        _TIMING,
        "Not a rate that was offered: no trial ran at it. Not a concurrency.",
    ),
    Metric(
        "highest_pass_rate",
        "Highest passing rate",
        "requests/s",
        "higher",
        "geometric",
        2,
        "The highest offered rate at which every objective of the SLO held.",
        "max of the rates that passed, of those below the lowest that failed",
        _TIMING,
        "Not the most that the engine can serve: the boundary, where one was found, lies above it.",
    ),
    Metric(
        "input_throughput",
        "Input tokens at the boundary",
        "input tok/s",
        "higher",
        "geometric",
        0,
        "Boundary rate x mean input tokens asked.",
        "boundary rate × mean input tokens asked",
        _TIMING,
        "Not part of the goodput, which counts output tokens alone. Not a measured prefill speed.",
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
        "t(first content) - t(scheduled arrival); of n requests sorted[ceil(q × n) - 1]",
        _TIMING,
        "Not counted from when the client got round to sending. A role-only chunk, an empty"
        " delta or a comment is no first token.",
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
        "t(first content) - t(request written); of n requests sorted[ceil(q × n) - 1]",
        _TIMING,
        "Not what a user waits for, where a request waited to be sent.",
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
        "(t(last token) - t(first event)) / (tokens - tokens in the first event); of n requests"
        " sorted[ceil(q × n) - 1]",
        _TIMING,
        "Not the gap between two tokens: a mean over one answer hides a stall in it. Never"
        " includes TTFT.",
    ),
    Metric(
        "e2e",
        "E2E latency",
        "ms",
        "lower",
        "geometric",
        0,
        "End of the answer, counted from the scheduled arrival.",
        "t(end of the answer) - t(scheduled arrival); of n requests sorted[ceil(q × n) - 1]",
        _TIMING,
        "Not comparable between workloads: it grows with the number of tokens asked for.",
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
        "100 × requests within every limit / scored requests",
        _TIMING,
        "Not the share by which a trial passes or fails.",
    ),
    Metric(
        "complete",
        "Requests complete",
        "%",
        "higher",
        "arithmetic",
        1,
        "Share of scored requests that ended with all the tokens asked for.",
        "100 × requests with all tokens asked for / scored requests",
        _TIMING,
        "Not the share within the limits: a complete answer may be late.",
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
        "100 × Σ cached prompt tokens / Σ prompt tokens",
        _WORKLOADS,
        "Not counted here, but told by the engine. Not a hit rate of requests.",
    ),
    Metric(
        "tokens_per_joule",
        "Tokens per joule",
        "output tok/J",
        "higher",
        "geometric",
        2,
        "Output tokens delivered in the window / energy of the boards in the same window.",
        "N_out / E, of one window",
        _ENERGY,
        "Not the mean of ratios, and not per watt-hour of a wall socket: only what the"
        " instrument's scope covers.",
    ),
    Metric(
        "joules_per_token",
        "Energy per output token",
        "J/output tok",
        "lower",
        "geometric",
        2,
        "Energy of the boards in the window / output tokens delivered in the same window.",
        "E / N_out, of one window",
        _ENERGY,
        "Not the energy of making that token alone: all energy of the window is in it, prompts"
        " and idle too.",
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
        "(E - P_idle × T) / N_out, of one window",
        _ENERGY,
        "Not what is saved by switching off: the boards draw idle watts as long as the engine"
        " is loaded.",
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
        "E / (N_in + N_out), of one window",
        _ENERGY,
        "Not comparable between mixes of prompt and output, which take their tokens at"
        " different prices.",
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
        "E / N_out of requests within every limit, of one window",
        _ENERGY,
        "Not less than the energy per output token: the same joules over fewer tokens.",
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
        "E / T, of one window",
        _ENERGY,
        "Not the power of the server. Not the boards' rated or enforced limit.",
    ),
    Metric(
        "idle_power",
        "Loaded-idle board power",
        "W",
        "lower",
        "arithmetic",
        0,
        "Watts of all boards with the engine loaded and no request, before and after the load.",
        "(E_before / T_before + E_after / T_after) / 2, of the idle spans around the load",
        _ENERGY,
        "Not the power of an empty board: weights and cache are loaded, clocks may be up.",
    ),
    Metric(
        "cpu_power",
        "Processor package power",
        "W",
        "neither",
        "arithmetic",
        0,
        "Energy of the processor packages in the window / its length, by their own counters.",
        "E / T, of one window",
        _ENERGY,
        "Not added to the power of boards, and not in the energy per token.",
    ),
    Metric(
        "host_power",
        "Host power",
        "W",
        "neither",
        "arithmetic",
        0,
        "Watts of the whole host in the window, as its management controller tells them.",
        "E / T, of one window",
        _ENERGY,
        "Not added to the power of boards, which may be in it. Not what a data hall draws for it.",
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
        "100 × Σ over steps (W + experts reached × bytes + KV cache + state) / (T × boards ×"
        " rated bandwidth)",
        _MBU,
        "Not a reading of a counter. Not a share of what the bus can carry, which is more or"
        " less than rated.",
    ),
    Metric(
        "mbu_bus",
        "MBU of bus × clock",
        "% of bus × clock",
        "higher",
        "arithmetic",
        0,
        "As MBU, of what the memory bus carries at its highest clock, as the driver tells them.",
        "100 × modelled bytes / (T × Σ boards' bus × clock)",
        _MBU,
        "Not a share of the data sheet's figure.",
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
        "100 × Σ boards (share of the bus in use × bus × clock) / (boards × rated bandwidth)",
        _BANDWIDTH,
        "Not useful traffic alone: writes, activations and other processes are in it. More is"
        " not better.",
    ),
    Metric(
        "mbu_measured_bus",
        "Measured memory traffic of bus × clock",
        "% of bus × clock",
        "neither",
        "arithmetic",
        0,
        "As measured memory traffic, of what the memory bus carries at its highest clock.",
        "100 × Σ boards (share of the bus in use × bus × clock) / Σ boards' bus × clock",
        _BANDWIDTH,
        "Not a share of the data sheet's figure.",
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
        "100 × rise of the engine's own counter of bytes read × boards / (T × boards × rated"
        " bandwidth)",
        _BANDWIDTH,
        "Not checked by anything here but that it is possible.",
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
        "bus width in bits × 2 × highest memory clock / 8",
        _BANDWIDTH,
        "Not measured, and not what a program gets.",
    ),
    Metric(
        "decode_batch",
        "Decode batch",
        "requests",
        "neither",
        "arithmetic",
        1,
        "Requests that were between their first and last token, on average over the window.",
        "∫ requests between first and last token dt / T",
        _BANDWIDTH,
        "Not a setting, and not how many requests the engine holds: those that wait or are in"
        " prefill are not in it.",
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
        "rise of the engine's step counter / T; without one (∫ events of an answer in the batch"
        " dt + prompts alone) / T",
        _BANDWIDTH,
        "Not tokens per second: a step gives a token to each answer in the batch.",
    ),
    Metric(
        "step_read",
        "Read per step",
        "GB",
        "neither",
        "arithmetic",
        2,
        "Modelled bytes of the window / its steps, over all boards.",
        "modelled bytes of the window / steps of the window",
        _BANDWIDTH,
        "Not measured, and not of one board.",
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
        "delivered output rate / MBU",
        _BANDWIDTH,
        "Not a promise: with another batch the same model has another limit. Not corrected for"
        " prefill.",
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
        "100 × (2 × active parameters × tokens computed + attention) / (T × boards × dense bf16"
        " peak)",
        _BANDWIDTH,
        "Not how busy the boards' units are. Not of a peak for sparse matrices, or for weights"
        " narrower than bf16.",
    ),
    Metric(
        "power_limit_share",
        "Share of the power limit",
        "% of enforced limit",
        "neither",
        "arithmetic",
        0,
        "Mean watts of the boards in the window / the limit that the driver enforces.",
        "100 × board power / Σ enforced limits",
        _BANDWIDTH,
        "Not whether the boards were throttled: a mean below the limit may hide spells at it.",
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
        "100 × modelled bytes × 8 × 3.9 pJ / E",
        _DRAM,
        "Not measured, and no floor: of newer memory no vendor publishes a figure.",
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
        "100 × right answers / questions",
        _WILSON,
        "Not the quality of the model: one task, asked so, of this engine. Not comparable with"
        " the same task asked otherwise.",
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
        "100 × (right in the reference alone - right here alone) / questions",
        _TANGO,
        "Not a proof that nothing was lost: an interval that holds 0 may hold a loss too.",
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
        "100 × answers whose text differs / answers compared",
        _WILSON,
        "Not an error rate, and not of all answers: of a few scored rows, whose prompts are"
        " random tokens.",
    ),
)

METRICS: dict[str, Metric] = {metric.key: metric for metric in _ALL}
