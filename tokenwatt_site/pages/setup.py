"""The setup as a table: every identity field, how it was declared and what was read back."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tokenwatt_site.accuracy_spec import AskedTask
from tokenwatt_site.claims.caveats import not_recorded
from tokenwatt_site.field_words import in_words
from tokenwatt_site.pages import answers, instruments, text
from tokenwatt_site.run import ReadBack
from tokenwatt_site.spec import NOT_RECORDED, Setup

_ARCHITECTURE = {
    "moe": "MoE",
    "dense": "dense",
    NOT_RECORDED: "architecture not recorded",
}
_RATED = "Rated HBM BW"
_LIMIT = "Power limit"
_UNITS = {_LIMIT: " W"}
"""Field -> unit of what was read back; the others are read back as text."""

_ON_A_CPU = f"{NOT_RECORDED} (CPU)"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the run itself tells of the boards beside what was read back; None: it does not.

    `window_s` is the shortest scored window at a highest passing rate, `bus_gb_s` what a board's
    memory bus carries at its highest clock.
    """

    window_s: float | None = None
    bus_gb_s: float | None = None


NOTHING_SEEN = Seen()


@dataclass(frozen=True, slots=True)
class SetupRow:
    """One line. `observed` is what engine or driver said, where it said something."""

    group: str
    field: str
    declared: str
    observed: str | None
    state: str
    code: bool = False


def rows(
    setup: Setup, read_back: Sequence[ReadBack], seen: Seen = NOTHING_SEEN
) -> tuple[SetupRow, ...]:
    """Return the lines in the order of the page; what was read back joins the field it is about.

    A line of several fields is "not recorded" as soon as one of them is.
    """
    absent = not_recorded(setup.to_json())
    left = {entry.field.removeprefix("setup."): entry for entry in read_back}
    result = []
    for group, field, declared, paths, code in _fields(setup, seen):
        found = [left.pop(path) for path in paths if path in left]
        unit = _UNITS.get(field, "")
        told = [f"{entry.observed}{unit}" for entry in found if entry.observed is not None]
        if field == _RATED and seen.bus_gb_s is not None:
            told.append(f"bus × clock {seen.bus_gb_s / 1e3:.3f} TB/s per GPU")
        observed = "; ".join(told)
        read = sum(entry.state == "read back" for entry in found)
        state = "declared"
        if declared != _ON_A_CPU and any(_about(name, paths) for name in absent):
            state = NOT_RECORDED
        elif read:
            state = "read back" if read == len(paths) else "read back in part"
        result.append(SetupRow(group, field, declared, observed or None, state, code))
    result += [
        SetupRow("Read back besides", in_words(name), entry.declared, entry.observed, entry.state)
        for name, entry in left.items()
    ]
    return tuple(result)


def _about(name: str, paths: Sequence[str]) -> bool:
    """Whether the field `name` is one of `paths` or within one."""
    return any(f"{name}.".startswith(f"{path}.") for path in paths)


_Field: TypeAlias = tuple[str, str, tuple[str, ...]]
"""(label, text, paths of the schema that were perhaps read back)"""


def _fields(setup: Setup, seen: Seen) -> Iterator[tuple[str, str, str, tuple[str, ...], bool]]:
    """Yield (group, label, text, paths of the schema, is code)."""
    for group, fields in (
        ("Hardware", _hardware(setup)),
        ("Engine", _engine(setup)),
        ("Model", _model(setup)),
        ("Workload and measurement", _workload(setup, seen)),
    ):
        for label, declared, paths in fields:
            yield group, label, declared, paths, label in _CODE


_CODE = {
    "Image digest",
    "Command line",
    "Environment",
    "Kernel libraries",
    "Model digest",
    "Workload hash",
    "Stop strings of the task",
    "Digest of the questions",
    "Digest of the prompts",
}


def _hardware(setup: Setup) -> Iterator[_Field]:
    board = setup.accelerator
    yield "Accelerator", text.boards(board), ("accelerator.model", "accelerator.count")
    yield "Memory", text.quantity(board.memory_gib, "GiB each"), ("accelerator.memory_gib",)
    rated = text.bandwidth(board.rated_bandwidth_gb_s)
    limit = text.quantity(board.power_limit_w, "W each")
    if setup.is_cpu:
        # Figures of a board: that a CPU has none is no gap in the record.
        rated, limit = (w if text.recorded(w) else _ON_A_CPU for w in (rated, limit))
    yield _RATED, rated, ("accelerator.rated_bandwidth_gb_s",)
    yield _LIMIT, limit, ("accelerator.power_limit_w",)
    yield "Driver / runtime", setup.driver, ("driver",)
    yield "Host", setup.host_kind, ("host_kind",)


def _engine(setup: Setup) -> Iterator[_Field]:
    engine, libraries = setup.engine, setup.kernel_libraries
    yield "Engine", text.engine(engine), ("engine.name", "engine.version")
    yield "Engine build", engine.build, ("engine.build",)
    yield "Image digest", engine.image_digest, ("engine.image_digest",)
    argv = engine.argv if isinstance(engine.argv, str) else shlex.join(engine.argv)
    yield "Command line", argv, ("engine.argv",)
    environment = " ".join(f"{k}={shlex.quote(v)}" for k, v in engine.environment.items())
    yield "Environment", environment or "none set", ("engine.environment",)
    named = libraries if isinstance(libraries, str) else " ".join(libraries) or "none named"
    yield "Kernel libraries", named, ("kernel_libraries",)


def _model(setup: Setup) -> Iterator[_Field]:
    model, quantization = setup.model, setup.quantization
    name = f"{model.name} ({_ARCHITECTURE[model.architecture]})"
    yield "Model", name, ("model.name", "model.architecture", "endpoint.model")
    yield "Revision", model.revision, ("model.revision",)
    yield "Model digest", model.digest, ("model.digest",)
    formats = ", ".join(text.quantization(quantization))
    yield "Quantization", formats, ("quantization.weights", "quantization.kv_cache")
    yield "Parallelism", text.parallelism(setup.parallelism), ("parallelism",)


def _workload(setup: Setup, seen: Seen) -> Iterator[_Field]:
    workload, gate = setup.workload, setup.accuracy_gate
    yield "Workload trace", f"{workload.name}, version {workload.version}", ()
    yield "Workload hash", workload.hash, ()
    new = "" if setup.conversation is None else "new in each turn: "
    yield "Input tokens", f"{new}{text.lengths(setup.input_tokens)}", ()
    yield "Output tokens", text.lengths(setup.output_tokens), ()
    if setup.conversation is not None:
        yield "Conversations", text.conversation(setup.conversation), ()
    scaled = ", its time scaled" if setup.arrival == "trace" else ""
    yield "Arrival", f"{setup.arrival.capitalize()}{scaled}, rate swept to SLO boundary", ()
    yield "SLO", text.slo(setup.slo), ()
    source = instruments.source(setup.power, seen.window_s)
    yield "Power source", source, ("power.sensor", "power.scope")
    known = not isinstance(gate.questions, str)
    questions = f"{gate.questions:,} questions" if known else f"questions {NOT_RECORDED}"
    asked = f"{gate.task}, {gate.shots} shots, {questions}"
    yield "Accuracy gate", f"{asked} · {answers.allowed(gate)}", ("accuracy_gate",)
    if gate.asked is not None:
        yield from _asked(gate.asked)
    yield "Setup schema", str(setup.setup_schema), ()


def _asked(asked: AskedTask) -> Iterator[_Field]:
    """What the gate asks, word for word: another harness or another prompt is another gate."""
    yield "Harness", asked.harness, ()
    yield "Task version", asked.task_version, ()
    yield "Interface of the task", asked.api, ()
    yield "Metric and filter", f"{asked.metric}, filter {asked.filter}", ()
    yield "Longest answer", f"{text.counted(asked.max_tokens, 'token')}, greedy", ()
    # As JSON: a stop string may be a line's end.
    stops = " ".join(json.dumps(stop, ensure_ascii=False) for stop in asked.stop)
    yield "Stop strings of the task", stops or "none", ()
    yield "Digest of the questions", f"sha256:{asked.data}", ()
    yield "Digest of the prompts", f"sha256:{asked.prompts}", ()
