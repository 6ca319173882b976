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
from tokenwatt_site.windows import Band, Windows, windows_of


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
    lines = [
        _plan_text(spec),
        _workload_text(spec, windows),
        windows_text(spec, windows),
        ranking_text(spec),
    ]
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


def windows_text(spec: Spec, windows: Windows) -> str:
    """Say which rows are offered at start_rate, how long they take, and who chose them."""
    start = spec.protocol.start_rate
    band = windows.band_at(round(start * 1e6))
    lead_s, window_s = band.lead_in / start, band.scored / start
    text = (
        f"at start_rate, {start:g} requests/s, a lead-in of {lead_s:,.0f} s and a window of"
        f" {window_s:,.0f} s, {band.scored:,} requests scored"
    )
    if not windows.chosen:
        return (
            f"{text}; the rows are those of the spec at every rate, and how well they stand for the"
            " long run is not known"
        )
    low, high = windows.bands[0].low_urps / 1e6, windows.bands[-1].high_urps / 1e6
    return (
        f"{text}; the windows were chosen to stand for the long run, here for {_band_text(band)},"
        f" in {len(windows.bands)} bands from {low:g} to {high:g}"
    )


def _band_text(band: Band) -> str:
    return f"{band.low_urps / 1e6:g} to {band.high_urps / 1e6:g} requests/s"


def unranked(spec: Spec) -> tuple[str, ...]:
    """Return what keeps any run of a spec from being ranked, as far as the spec tells."""
    reasons = []
    if spec.protocol.mode != "full":
        reasons.append(f"{spec.protocol.mode} mode, and only full ranks")
    if unknown := not_recorded(spec.setup.to_json()):
        reasons.append(f"{len(unknown)} field{'s' if len(unknown) != 1 else ''} not recorded")
    return tuple(reasons)


def ranking_text(spec: Spec) -> str:
    """Say whether a run of a spec could be ranked."""
    if reasons := unranked(spec):
        return f"a run would not be ranked: {'; '.join(reasons)}"
    return "a run can be ranked, where its long-run goodput is accepted and its gate passes"


def _plan_text(spec: Spec) -> str:
    protocol = spec.protocol
    return (
        f"{protocol.mode} mode, {protocol.repeats} repeat{'s' if protocol.repeats != 1 else ''};"
        " `tokenwatt-site plan` tells trials, minutes and cost"
    )


def _workload_text(spec: Spec, windows: Windows) -> str:
    setup, trace = spec.setup, windows.workload.trace
    rows = windows.band_at(spec.protocol.start_urps).rows
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
