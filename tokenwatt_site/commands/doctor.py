"""`doctor`: what this machine and an engine can be measured with, and what stands in the way."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tokenwatt_site.commands.board_checks import board_checks
from tokenwatt_site.commands.checks import Check, engine_checks, machine_checks, of_error
from tokenwatt_site.commands.measure import RUNS_FOLDER, WORK_FOLDER
from tokenwatt_site.errors import EnvironmentProblem
from tokenwatt_site.measure.counters import Counters
from tokenwatt_site.measure.endpoint import EngineFacts, metrics, read_back
from tokenwatt_site.measure.machine import folder, look
from tokenwatt_site.measure.power.amd import AmdMeter
from tokenwatt_site.measure.power.rapl import RaplMeter
from tokenwatt_site.measure.power.survey import Survey, survey
from tokenwatt_site.measure.processes import serving
from tokenwatt_site.trust.keyring import KEY_FILE, KEY_FOLDER_VARIABLE, key_folder, own_key
from tokenwatt_site.trust.signature import key_id

_AMD_DEVICE = Path("/dev/kfd")


def doctor(
    url: str | None,
    *,
    api_key_variable: str | None = None,
    boards: Callable[[], Survey] = survey,
) -> tuple[Check, ...]:
    """Look at this machine, and at the engine at `url` where there is one; change nothing.

    Args:
        url: base of an engine, without /v1.
        api_key_variable: the environment variable with the engine's key; None sends none.
        boards: looks at NVIDIA boards; a stand-in for tests.

    Raises:
        UsageError: `url` is no address that can be asked, or the variable is not set.
    """
    base = None if url is None else url.rstrip("/")
    engine = serving(base) if base is not None else frozenset()
    checks = [*_boards(boards, engine), *_processor_power()]
    if base is None:
        checks.append(Check("ok", "engine", "not asked; --url URL looks at one"))
    else:
        checks += _engine(base, api_key_variable)
    checks += machine_checks(look((WORK_FOLDER, RUNS_FOLDER)))
    return (*checks, _key())


def _boards(look_at: Callable[[], Survey], engine: frozenset[int]) -> Iterator[Check]:
    amd = list(_amd())
    try:
        yield from board_checks(look_at(), engine)
    except EnvironmentProblem as error:
        if not amd:
            yield Check(
                "warn",
                "GPU",
                f"no GPU: power is not covered: {error}",
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


def _engine(url: str, api_key_variable: str | None) -> Iterator[Check]:
    try:
        facts: EngineFacts = read_back(url, api_key_variable)
    except EnvironmentProblem as error:
        yield from of_error("fail", "engine", error)
        return
    said = metrics(url, api_key_variable)
    yield from engine_checks(url, facts, None if said is None else Counters.of(said))


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
