"""`doctor`: what this machine and an engine can be measured with, and what stands in the way."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from tokenwatt_site.accuracy_spec import NO_TASK
from tokenwatt_site.commands.board_checks import board_checks
from tokenwatt_site.commands.checks import Check, engine_checks, machine_checks, of_error
from tokenwatt_site.commands.measure import RUNS_FOLDER, WORK_FOLDER, read_spec
from tokenwatt_site.commands.spec_checks import spec_checks
from tokenwatt_site.errors import EnvironmentProblem
from tokenwatt_site.measure.counters import Counters
from tokenwatt_site.measure.endpoint import EngineFacts, metrics, read_back
from tokenwatt_site.measure.machine import folder, look
from tokenwatt_site.measure.power.amd import AmdMeter
from tokenwatt_site.measure.power.rapl import RaplMeter
from tokenwatt_site.measure.power.survey import Survey, survey
from tokenwatt_site.measure.processes import serving
from tokenwatt_site.spec import Spec
from tokenwatt_site.trust.keyring import KEY_FILE, KEY_FOLDER_VARIABLE, key_folder, own_key
from tokenwatt_site.trust.signature import key_id

_AMD_DEVICE = Path("/dev/kfd")
HARNESS = "lm-eval"


def doctor(
    url: str | None = None,
    *,
    api_key_variable: str | None = None,
    spec: Path | None = None,
    boards: Callable[[], Survey] = survey,
) -> tuple[Check, ...]:
    """Look at this machine, at an engine and at what a spec names; change nothing.

    Args:
        url: base of an engine, without /v1; None: that of the spec, where it is attached to one.
        api_key_variable: the environment variable with the engine's key; None: that of the spec.
        spec: a spec or run file, looked for as `measure` does.
        boards: looks at NVIDIA boards; a stand-in for tests.

    Raises:
        UsageError: the spec is not there or not valid, `url` is no address that can be asked, or
            the variable is not set.
    """
    wanted = None if spec is None else read_spec(spec)
    if wanted is not None:
        api_key_variable = api_key_variable or wanted.endpoint.api_key_variable
    addresses = wanted.endpoint.addresses if wanted is not None else ()
    bases = [each.rstrip("/") for each in (addresses if url is None else (url,))]
    engine: frozenset[int] = frozenset().union(*map(serving, bases))
    checks = [*_boards(boards, engine), *_processor_power()]
    answered = []
    if not bases:
        checks.append(Check("ok", "engine", "not asked; --url URL looks at one"))
    for base in bases:
        facts, said = _engine(base, api_key_variable)
        answered += [] if facts is None else [facts]
        checks += said
    checks += machine_checks(look((WORK_FOLDER, RUNS_FOLDER)))
    checks.append(_key())
    checks.append(_harness(wanted))
    if spec is not None and wanted is not None:
        checks += spec_checks(spec, wanted, answered, engine)
    return tuple(checks)


def _boards(look_at: Callable[[], Survey], engine: frozenset[int]) -> Iterator[Check]:
    amd = list(_amd())
    try:
        yield from board_checks(look_at(), engine)
    except EnvironmentProblem as error:
        if not amd:
            yield Check(
                "warn",
                "GPU",
                f"no board by NVIDIA can be read, and power is not covered: {error}",
                "Where there is a board, install its driver and give this process access to it.",
            )
    yield from amd


def _amd() -> Iterator[Check]:
    if not _AMD_DEVICE.exists():
        return
    try:
        meter = AmdMeter()
    except EnvironmentProblem as error:
        yield from of_error("warn", "AMD GPU", error)
        return
    try:
        yield Check("ok", "driver", f"AMD {meter.driver or 'of a version that is not told'}")
        for place, board in enumerate(meter.boards()):
            yield Check("ok", f"AMD GPU {place}", f"{board.name}, {board.uuid}")
        for note in meter.notes:
            yield Check("warn", "AMD GPU", note)
    finally:
        meter.close()


def _processor_power() -> Iterator[Check]:
    try:
        meter = RaplMeter()
    except EnvironmentProblem as error:
        yield from of_error("warn", "RAPL", error)
    else:
        yield Check("ok", "RAPL", ", ".join(board.name for board in meter.boards()))


def _engine(url: str, api_key_variable: str | None) -> tuple[EngineFacts | None, list[Check]]:
    try:
        facts = read_back(url, api_key_variable)
    except EnvironmentProblem as error:
        return None, list(of_error("fail", "engine", error))
    said = metrics(url, api_key_variable)
    counters = None if said is None else Counters.of(said)
    return facts, list(engine_checks(url, facts, counters))


def _harness(spec: Spec | None) -> Check:
    """Look for what makes the questions of a gate; importing it would take seconds."""
    try:
        return Check("ok", HARNESS, metadata.version(HARNESS))
    except metadata.PackageNotFoundError:
        pass
    if spec is None or spec.setup.accuracy_gate.task == NO_TASK:
        return Check("ok", HARNESS, "not installed; only an accuracy gate needs it")
    return Check(
        "fail",
        HARNESS,
        "not installed, and the spec asks for an accuracy gate",
        "pip install 'tokenwatt-site[accuracy]'",
    )


def _key() -> Check:
    """Look at the signing key; one that is not there is made when a run is signed, not now."""
    place = key_folder(os.environ)
    path = place / KEY_FILE
    try:
        if os.path.lexists(path):
            known = key_id(own_key(place).public_key().public_bytes_raw())
            return Check("ok", "signing key", f"{known} in {path}")
        if folder(place).writable:
            return Check("ok", "signing key", f"none yet; the first run makes {path}")
    except EnvironmentProblem as error:
        return next(of_error("fail", "signing key", error))
    return Check(
        "fail",
        "signing key",
        f"none, and {place} cannot be made",
        f"Name a folder of yours in {KEY_FOLDER_VARIABLE}.",
    )
