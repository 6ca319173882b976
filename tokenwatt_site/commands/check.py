"""`spec check`: whether a spec is valid, which configuration it names, and what it would take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tokenwatt_site.accuracy_spec import NO_TASK
from tokenwatt_site.claims.caveats import not_recorded
from tokenwatt_site.commands.measure import (
    RUNS_FOLDER,
    find_spec,
    read_model_files,
    read_spec,
    read_trace,
)
from tokenwatt_site.commands.model_facts import why_not_modelled
from tokenwatt_site.commands.outlook import outlook
from tokenwatt_site.commands.questions import data_folders
from tokenwatt_site.commands.reference import find_reference, score_of
from tokenwatt_site.commands.verify import KEYS_FOLDER
from tokenwatt_site.measure.accuracy.task import Task
from tokenwatt_site.measure.accuracy.tasks import asked_block, plan_task, require_asked
from tokenwatt_site.spec import Spec, parse_spec
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.windows import Windows, windows_of


@dataclass(frozen=True, slots=True)
class Checked:
    """The configuration that a valid spec names, and lines for a person.

    `missing` is what has to be written into the spec before it can be measured; empty: nothing.
    """

    configuration: str
    lines: tuple[str, ...]
    missing: str = ""


def check(file: Path) -> Checked:
    """Check a spec, looked for as `measure` does, with all that it names.

    The questions of its accuracy gate are made as for a measurement, which takes some seconds.

    Raises:
        UsageError: see `read_spec`, `read_trace`, `read_model_files`, `plan_gate` and
            `find_reference`.
        EnvironmentProblem: see `read_spec` and `plan_gate`.
    """
    spec = read_spec(file)
    trace = read_trace(file, spec)
    document = read_model_files(file, spec)
    windows = windows_of(spec, trace)
    lines = [_plan_text(spec, windows), _workload_text(spec, windows)]
    if document is not None and (why := why_not_modelled(spec, document)) is not None:
        lines.append(f"bandwidth will not be modelled: {why}")
    if spec.setup.accuracy_gate.task == NO_TASK:
        return Checked(spec.configuration_id, tuple(lines))
    task = plan_gate(file, spec)
    whole, missing = _with_asked(spec, task)
    lines += _gate_lines(whole, len(task.questions))
    return Checked(whole.configuration_id, tuple(lines), missing)


def plan_gate(name: Path, spec: Spec) -> Task:
    """Return what the gate of a spec asks.

    Args:
        name: the spec or the run file, as given to `read_spec`.
        spec: what that made of it.

    Raises:
        UsageError: no such task, or its data is not there or not readable.
        EnvironmentProblem: the harness fails.
    """
    gate, plan, api = spec.setup.accuracy_gate, spec.accuracy, spec.endpoint.api
    return plan_task(gate, plan, api, folders=data_folders(find_spec(name).parent))


def _plan_text(spec: Spec, windows: Windows) -> str:
    protocol, unknown = spec.protocol, not_recorded(spec.setup.to_json())
    band = windows.band_at(round(protocol.start_rate * 1e6))
    minutes = (band.lead_in + band.scored) / protocol.start_rate / 60
    text = (
        f"{protocol.mode} mode, {protocol.repeats} repeat{'s' if protocol.repeats != 1 else ''};"
        f" a trial at start_rate takes about {minutes:.1f} minutes, a repeat 5 to 8 trials"
    )
    return f"{text}; {len(unknown)} fields not recorded" if unknown else text


def _workload_text(spec: Spec, windows: Windows) -> str:
    setup, trace = spec.setup, windows.workload.trace
    rows = windows.band_at(round(spec.protocol.start_rate * 1e6)).rows
    text = (
        f"{setup.workload.name}: {rows:,} requests a trial, the longest prompt"
        f" {setup.longest_prompt:,} tokens and the longest answer {setup.output_tokens.longest:,}"
    )
    if setup.conversation is not None:
        text += f"; {setup.conversation.turns} turns, {setup.conversation.spread} requests apart"
    if trace is not None:
        held = len(trace.requests) // rows
        text += f"; the trace has {len(trace.requests):,} rows, enough for {held} repeat"
        text += "s" if held != 1 else ""
    return text


def _with_asked(spec: Spec, task: Task) -> tuple[Spec, str]:
    """Return the spec with `asked` in its gate, and the lines that are missing where it was not."""
    gate = spec.setup.accuracy_gate
    if gate.asked is not None:
        require_asked(gate, task)
        return spec, ""
    value = spec.to_json()
    value["setup"]["accuracy_gate"]["asked"] = task.asked.to_json()
    return parse_spec(value, source="spec check"), asked_block(task)


def _gate_lines(spec: Spec, questions: int) -> list[str]:
    gate = spec.setup.accuracy_gate
    lines = list(outlook(questions, gate.max_drop_points))
    reference = find_reference(spec, RUNS_FOLDER, Keyring.load(KEYS_FOLDER))
    if reference is not None:
        right = score_of(reference)
        lines.append(
            f"compared with run {reference.run_id[:12]} of {reference.configuration}:"
            f" {right:,} of {questions:,} right ({right / questions:.1%})"
        )
    elif spec.role == "baseline":
        lines.append("a baseline: others are compared with it")
    else:
        lines.append(
            f"no run under {RUNS_FOLDER} is a baseline that was asked the same: the score will"
            " stand alone"
        )
    return [f"gate {gate.label}: {line}" for line in lines]
