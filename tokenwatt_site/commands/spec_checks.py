"""Whether what a spec names is there: its engine, instruments, model files and limits."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from tokenwatt_site.accuracy_spec import NO_TASK
from tokenwatt_site.commands.check import plan_gate, ranking_text, windows_text
from tokenwatt_site.commands.checks import Check, of_error
from tokenwatt_site.commands.measure import RUNS_FOLDER, read_model_files, read_trace
from tokenwatt_site.commands.model_facts import why_not_modelled
from tokenwatt_site.commands.reference import find_reference
from tokenwatt_site.commands.verify import KEYS_FOLDER
from tokenwatt_site.errors import EnvironmentProblem, UsageError
from tokenwatt_site.measure.accuracy.tasks import require_asked
from tokenwatt_site.measure.endpoint import EngineFacts
from tokenwatt_site.measure.power import Boards, OpenedMeters, PowerMeter, open_meters
from tokenwatt_site.measure.power.selection import ORDER, VISIBLE
from tokenwatt_site.measure.preflight import compare, require_descriptors
from tokenwatt_site.measure.processes import variables
from tokenwatt_site.measure.roster import require_alike
from tokenwatt_site.model_shape.config import describe
from tokenwatt_site.model_shape.document import ModelDocument, headers_digest
from tokenwatt_site.spec import Spec
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.windows import Windows, windows_of


def spec_checks(
    path: Path, spec: Spec, facts: Sequence[EngineFacts], engine: Collection[int]
) -> Iterator[Check]:
    """Try what a spec names; nothing is measured.

    Args:
        path: of the spec, as `read_spec` took it.
        spec: what that made of it.
        facts: what its engine says of itself, or each of its replicas; empty: none answers yet.
        engine: the engine's processes; empty where they are not seen.
    """
    yield Check("ok", "spec", f"configuration {spec.configuration_id}")
    document = windows = None
    try:
        windows = windows_of(spec, read_trace(path, spec))
        document = read_model_files(path, spec)
    except UsageError as error:
        yield from of_error("fail", "spec", error)
    if document is not None:
        yield _described(spec, document)
    if windows is not None:
        yield _windows(spec, windows)
        try:
            band = windows.band_at(spec.protocol.start_urps)
            require_descriptors(spec.protocol, band, spec.endpoint.replicas)
        except EnvironmentProblem as error:
            yield from of_error("fail", "open files", error)
    yield Check("ok", "ranking", ranking_text(spec))
    yield from _command(spec)
    yield from _gate(path, spec)
    opened = None
    try:
        opened = open_meters(spec, _boards(spec, engine))
    except (EnvironmentProblem, UsageError) as error:
        yield from of_error("fail", "instruments", error)
    if opened is not None:
        yield from _instruments(spec, opened)
    if facts:
        yield from _as_declared(spec, facts, opened, document)
    if opened is not None:
        opened.close()


def _windows(spec: Spec, windows: Windows) -> Check:
    text = windows_text(spec, windows)
    if windows.chosen or spec.protocol.mode == "demo":
        return Check("ok", "windows", text)
    return Check(
        "warn",
        "windows",
        text,
        "chat-mix-v1 has chosen ones, where protocol leaves out lead_in, scored and tail.",
    )


def _described(spec: Spec, document: ModelDocument) -> Check:
    if (why := why_not_modelled(spec, document)) is not None:
        return Check("warn", "model files", f"bandwidth is not modelled: {why}")
    shape, stored = describe(document)
    total = stored.total(shape) / 1e9
    return Check(
        "ok",
        "model files",
        f"{shape.name}, {shape.parameters / 1e9:,.2f}e9 parameters, {total:,.2f} GB by its"
        f" {stored.source}",
    )


def _command(spec: Spec) -> Iterator[Check]:
    argv, endpoint = spec.setup.engine.argv, spec.endpoint
    if endpoint.start == "launch" and isinstance(argv, tuple):
        path = spec.setup.engine.environment.get("PATH")
        yield _runs("engine", "setup.engine.argv", argv[0], path)
    if endpoint.restart is not None:
        yield _runs("restart", "endpoint.restart", endpoint.restart[0], None)


def _runs(about: str, field: str, command: str, path: str | None) -> Check:
    found = command.replace("{python}", sys.executable)
    if shutil.which(found, path=path) is None:
        return Check(
            "fail",
            about,
            f"{found} is not a command that can be run here",
            f"Install it, or name its full path in {field}.",
        )
    return Check("ok", about, f"started by {command}")


def _gate(path: Path, spec: Spec) -> Iterator[Check]:
    gate = spec.setup.accuracy_gate
    if gate.task == NO_TASK:
        return
    try:
        task = plan_gate(path, spec)
        if gate.asked is None:
            yield Check(
                "fail",
                "accuracy gate",
                "setup.accuracy_gate does not say what is asked, word for word",
                f"`tokenwatt-site spec check {path}` prints the lines that are missing.",
            )
            return
        require_asked(gate, task)
        reference = find_reference(spec, RUNS_FOLDER, Keyring.load(KEYS_FOLDER))
    except (EnvironmentProblem, UsageError) as error:
        yield from of_error("fail", "accuracy gate", error)
        return
    yield Check("ok", "accuracy gate", f"{gate.label}, {gate.questions:,} questions, as asked")
    if reference is not None:
        found = f"run {reference.run_id[:12]} of {reference.configuration}"
        yield Check("ok", "reference", found)
    elif spec.role != "baseline":
        yield Check(
            "warn",
            "reference",
            f"no run under {RUNS_FOLDER} is a baseline that was asked the same",
            "Measure one with --role baseline first, or the score stands alone.",
        )


def _boards(spec: Spec, engine: Collection[int]) -> Boards:
    pids = tuple(sorted(engine))
    environment = {**variables(pids, (VISIBLE, ORDER)), **spec.setup.engine.environment}
    return Boards(pids=pids, environment=environment, final=spec.endpoint.start == "attach")


def _instruments(spec: Spec, opened: OpenedMeters) -> Iterator[Check]:
    sensor = spec.setup.power.sensor
    for meter in opened.primary:
        yield _meter("power", meter)
    if sensor == "none":
        yield Check("ok", "power", "the spec asks for none")
    elif opened.reason is not None:
        yield Check("warn", "power", f"not covered: {opened.reason}")
    elif not opened.primary:
        yield Check("ok", "power", f"{sensor}; the engine's boards are told apart when it runs")
    for number, meter in opened.beside:
        yield _meter(f"instrument {number}", meter)
    for number, reason in enumerate(opened.reasons, 1):
        if reason is not None and spec.instruments[number - 1].sensor != sensor:
            yield Check("warn", f"instrument {number}", f"not covered: {reason}")


def _meter(about: str, meter: PowerMeter) -> Check:
    count = len(meter.boards())
    averaged = "over a time that is not told"
    if meter.averaging_ns is not None:
        averaged = f"over {meter.averaging_ns / 1e9:g} s"
    return Check(
        "ok",
        about,
        f"{meter.sensor}, scope {meter.scope}, {count} board{'s' if count != 1 else ''},"
        f" watts averaged {averaged}",
    )


def _as_declared(
    spec: Spec,
    facts: Sequence[EngineFacts],
    opened: OpenedMeters | None,
    document: ModelDocument | None,
) -> Iterator[Check]:
    meters = opened.primary if opened is not None else ()
    digest = headers_digest(document) if document is not None else None
    try:
        require_alike(spec, facts)
        rows = compare(spec, facts[0], meters, digest)
    except EnvironmentProblem as error:
        yield from of_error("fail", "read back", error)
    else:
        seen = sum(row.state == "read back" for row in rows)
        yield Check(
            "ok", "read back", f"{seen} fields are as declared, {len(rows) - seen} not told"
        )
    needed = spec.setup.longest_prompt + spec.setup.output_tokens.longest
    told = [each.context_tokens for each in facts if each.context_tokens is not None]
    if told and min(told) < needed:
        yield Check(
            "fail",
            "engine's context",
            f"{min(told):,} tokens, and the longest prompt and answer have {needed:,}",
            "Start the engine with more context; it would cut answers silently.",
        )
