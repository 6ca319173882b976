"""`spec check`: whether a spec is valid, which configuration it names, and what it would take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tokenwatt_site.caveats import not_recorded
from tokenwatt_site.commands.measure import read_model_files, read_spec, read_trace
from tokenwatt_site.commands.model_facts import why_not_modelled
from tokenwatt_site.spec import Spec
from tokenwatt_site.trace import Trace


@dataclass(frozen=True, slots=True)
class Checked:
    """The configuration that a valid spec names, and lines for a person."""

    configuration: str
    lines: tuple[str, ...]


def check(file: Path) -> Checked:
    """Check a spec, looked for as `measure` does, with the trace and the model files that it names.

    Raises:
        UsageError: see `read_spec`, `read_trace` and `read_model_files`.
        EnvironmentProblem: see `read_spec`.
    """
    spec = read_spec(file)
    trace = read_trace(file, spec)
    document = read_model_files(file, spec)
    lines = [_plan_text(spec), _workload_text(spec, trace)]
    if document is not None and (why := why_not_modelled(spec, document)) is not None:
        lines.append(f"bandwidth will not be modelled: {why}")
    return Checked(spec.configuration_id, tuple(lines))


def _plan_text(spec: Spec) -> str:
    protocol, unknown = spec.protocol, not_recorded(spec.setup.to_json())
    minutes = (protocol.lead_in + protocol.scored) / protocol.start_rate / 60
    text = (
        f"{protocol.mode} mode, {protocol.repeats} repeat{'s' if protocol.repeats != 1 else ''};"
        f" a trial at start_rate takes about {minutes:.1f} minutes, a repeat 5 to 8 trials"
    )
    return f"{text}; {len(unknown)} fields not recorded" if unknown else text


def _workload_text(spec: Spec, trace: Trace | None) -> str:
    setup, rows = spec.setup, spec.protocol.rows
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
