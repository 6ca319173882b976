"""Write a first spec from what an endpoint, instruments and a model's files tell.

What none of them tells is asked, in at most five questions, and else "not recorded".
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import yaml

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.commands.hardware import Hardware, OpenNvml, Question, hardware, open_nvml
from tokenwatt_site.commands.model_facts import ModelFacts, model_facts
from tokenwatt_site.commands.output import require_absent, write_new
from tokenwatt_site.errors import Problem, UsageError
from tokenwatt_site.measure.endpoint import EngineFacts, read_back
from tokenwatt_site.spec import NOT_RECORDED, Spec, parse_spec
from tokenwatt_site.workload import NAMED

Ask: TypeAlias = Callable[[str], str]
"""Asks the user; an empty answer takes the default, which the question shows in brackets."""

MAX_QUESTIONS = 5
WORKLOAD = "chat-mix-v1"

SAFE_VOCABULARY = 32000
"""Where the engine does not tell: ids below this exist in nearly every vocabulary."""

SCHEMA = "spec.schema.json"
"""Beside a spec: what `spec schema` printed, for the editor."""

_MODELINE = f"# yaml-language-server: $schema={SCHEMA}\n"
_NO_SCHEMA = f"""\
# An editor completes and checks this file with `tokenwatt-site spec schema > {SCHEMA}` beside it
# and the first line `{_MODELINE.rstrip()}`.
"""
_HEADER = """\
# Written by `tokenwatt-site init`; look through it before measuring.
# "not recorded" is a value: it is printed on the report, and such a report is not ranked.
# Prompts are token ids. Where the engine takes text alone, write in endpoint `prompt: text` (or
# `api: chat`), and `tokenizer: PATH` of the model's tokenizer.json, so that lengths are exact;
# without it the engine's own /tokenize is asked.
# Bandwidth is modelled where parallelism (prefill_decode_split: none, unless they are apart) and
# quantization.kv_cache are told, and endpoint.model_files names a folder; `spec check` says more.
# An accuracy gate asks questions of the same engine: write in accuracy_gate `task: gsm8k`,
# `shots: 5`, the number of questions, and in max_drop_points how much lower than a baseline's the
# score may be; `spec check` then prints the lines that are missing. `accuracy: {data: FILE.jsonl}`,
# beside setup, asks questions of your own.
# In protocol, start_rate is that of the first trial, in requests/s: the nearer to what the engine
# can hold, the less time a search takes; `tokenwatt-site plan` tells how much. Runs that rank have
# `mode: full` and 3 `repeats` or more. Each repeat needs a launch of its own: where a command can
# restart the engine, write it in endpoint, such as `restart: [docker, restart, NAME]`.
# Replicas that are to be asked apart: write in endpoint, in the place of url, `urls: [...]` with
# one address of each, and in parallelism how many replicas there are.
# Other loads: fixed lengths, conversation: {turns, spread, shared_prefix_tokens}, or a trace, for
# which `tokenwatt-site spec trace FILE --out TRACE.jsonl` prints the lines. They have no chosen
# windows, so protocol says how many rows each trial has: lead_in, scored and tail.
"""
_INSTRUMENTS = """\
# Instruments of other machines: write in the place of `instruments: []` as many as there are of
# these. Those of setup.power.sensor carry the energy that is published, all others are read beside.
# `nvml` and `amd` take the url of an nvidia_gpu_exporter or a device-metrics-exporter.
# Boards of a prefill/decode split get their energy by role from `board_roles: {prefill: [GPU-...],
# decode: [GPU-...]}`, beside setup.
# instruments:
#   - sensor: dcgm
#     url: http://NODE:9400/metrics
#   - sensor: redfish
#     url: https://BMC/redfish/v1/Chassis/1
#     user_variable: BMC_USER
#     password_variable: BMC_PASSWORD
"""


def init(
    url: str,
    out: Path,
    ask: Ask,
    opener: OpenNvml = open_nvml,
    *,
    api_key_variable: str | None = None,
    gpus: Sequence[str] = (),
    model_files: Path | None = None,
) -> Path:
    """Write a valid spec for the engine at `url` to `out`.

    Boards and processors are read only when the engine is on this machine: those on which its
    processes are seen, or that are named.

    Args:
        url: base of the engine, without /v1.
        out: file to write; never overwritten.
        ask: asks the user; called at most MAX_QUESTIONS times.
        opener: opens NVML; a stand-in for tests.
        api_key_variable: the environment variable with the engine's key; None sends none.
        gpus: the engine's boards, by UUID or its beginning.
        model_files: the folder of the model's config.json, as the spec will name it.

    Raises:
        UsageError: `out` is there already, `url` is no address that a spec may hold, the variable
            is not set, or the model's files cannot be read.
        EngineError: no engine answers at `url`.
        SpecError: an answer that a spec may not hold.
        EnvironmentProblem: no board is named so, or `out` cannot be written; nothing is left.
    """
    require_absent(out)
    base = url.rstrip("/")
    facts = read_back(base, api_key_variable)
    model = ModelFacts() if model_files is None else model_facts(model_files)

    def question(text: str, default: str) -> str:
        return ask(f"{text} [{default}]:").strip() or default

    boards = hardware(base, question, opener, gpus)
    draft = _draft(base, facts, boards, model, question)
    if api_key_variable is not None:
        draft["endpoint"]["api_key_variable"] = api_key_variable
    if model_files is not None:
        draft["endpoint"]["model_files"] = str(model_files)
    spec = parse_spec(draft, source=str(out))
    notes = [*boards.notes, *([model.note] if model.note is not None else [])]
    told = "".join(f"# {note}\n" for note in notes)
    schema = _MODELINE if (out.parent / SCHEMA).is_file() else _NO_SCHEMA
    write_new(out, (schema + _HEADER + told + spec_yaml(spec) + _INSTRUMENTS).encode())
    return out


def spec_yaml(spec: Spec) -> str:
    """Return a spec as YAML that `load_spec` reads back equal."""
    # Null has no spelling in the YAML subset of specs: an absent key says the same.
    return yaml.safe_dump(
        _without_nulls(spec.to_json()), sort_keys=False, allow_unicode=True, width=1000
    )


def _draft(
    base: str, facts: EngineFacts, hardware: Hardware, model: ModelFacts, ask: Question
) -> JsonValue:
    served = facts.models[0]
    name, _, revision = ask(
        "Model as published, with its revision (name@revision)", served
    ).partition("@")
    told = f"{model.weights}/{model.kv_cache}" if model.weights != NOT_RECORDED else NOT_RECORDED
    weights, _, kv_cache = ask(
        "Formats of weights and KV cache (such as fp8/bf16)", told
    ).partition("/")
    command = ask("Command line that started the engine", NOT_RECORDED)
    parallelism = _parallelism(
        ask(
            "Parallelism as replicas x tensor x pipeline x expert x data, and /SPLIT where prefill"
            " and decode are apart (such as 1x4x1x1x1 or 1x8x1x1x1/1P1D)",
            NOT_RECORDED,
        )
    )
    workload = NAMED[WORKLOAD]
    accelerator = hardware.accelerator
    boards = accelerator["model"]
    if accelerator["count"]:
        boards = f"{accelerator['count']}× {boards}"
    elif boards == NOT_RECORDED:
        boards = facts.name or "an unnamed engine"
    return {
        "spec_schema": 1,
        "title": f"{name} on {boards}",
        "label": re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:64] or "engine",
        "setup": {
            "setup_schema": 1,
            "accelerator": accelerator,
            "driver": hardware.driver,
            "host_kind": hardware.host_kind,
            "power": hardware.power,
            "engine": {
                "name": facts.name or NOT_RECORDED,
                "version": facts.version or NOT_RECORDED,
                "build": facts.build or NOT_RECORDED,
                "image_digest": NOT_RECORDED,
                "argv": NOT_RECORDED if command == NOT_RECORDED else _split(command),
                "environment": {},
            },
            "kernel_libraries": NOT_RECORDED,
            "model": {
                "name": name,
                "revision": revision or NOT_RECORDED,
                "architecture": model.architecture,
                "digest": model.digest,
            },
            "quantization": {"weights": weights, "kv_cache": kv_cache or NOT_RECORDED},
            "parallelism": parallelism,
            "workload": {
                "name": workload.name,
                "version": workload.version,
                "hash": workload.hash,
            },
            "input_tokens": workload.input_tokens.to_json(),
            "output_tokens": workload.output_tokens.to_json(),
            "arrival": "poisson",
            "slo": [
                {"metric": "ttft", "quantile": 0.99, "limit_ms": 2000},
                {"metric": "tpot", "quantile": 0.99, "limit_ms": 50},
            ],
            "accuracy_gate": {"task": "none", "shots": 0, "questions": 0, "max_drop_points": 0},
        },
        "endpoint": {
            "start": "attach",
            "url": base,
            "api": "completions",
            "model": served,
            "vocabulary": facts.vocabulary or SAFE_VOCABULARY,
        },
        # No rows: those of the windows that were chosen for the workload, at every rate.
        "protocol": {
            "mode": "quick",
            "repeats": 2,
            "start_rate": 1,
            "request_timeout_s": 600,
        },
    }


def _split(command: str) -> Sequence[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise UsageError(
            Problem(f"is no command line: {error}", field="setup.engine.argv", found=command)
        ) from error


def _parallelism(answer: str) -> JsonValue:
    """Return the field of an answer; without one, that of a board, and a split that is not told."""
    if answer == NOT_RECORDED:
        return {**dict.fromkeys(_WIDTHS, 1), "prefill_decode_split": NOT_RECORDED}
    told, _, split = answer.replace(" ", "").partition("/")
    parts = told.split("x")
    if len(parts) != 5 or not all(re.fullmatch(r"[1-9][0-9]{0,4}", part) for part in parts):
        raise UsageError(
            Problem(
                "is not five numbers",
                field="setup.parallelism",
                found=answer,
                expected="such as 1x4x1x1x1",
            )
        )
    widths = dict(zip(_WIDTHS, map(int, parts), strict=True))
    return {**widths, "prefill_decode_split": split or "none"}


_WIDTHS = ("replicas", "tensor", "pipeline", "expert", "data")


def _without_nulls(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value
