"""What the instruments of this machine tell of the boards of an engine, as fields of a spec."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tokenwatt_site import accelerators
from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.errors import EnvironmentProblem
from tokenwatt_site.measure.power import NvmlMeter
from tokenwatt_site.measure.power.nvml import NvmlUnavailable, Select
from tokenwatt_site.measure.power.rapl import RaplMeter
from tokenwatt_site.measure.power.selection import ORDER, VISIBLE, Chosen, Present, choose
from tokenwatt_site.measure.processes import is_here, serving, variables
from tokenwatt_site.spec import NOT_RECORDED

Question: TypeAlias = Callable[[str, str], str]
"""Text and default to answer."""

OpenNvml: TypeAlias = Callable[[Select], NvmlMeter]

_NO_POWER = {"sensor": "none", "scope": "none", "rate_hz": 0}


@dataclass(frozen=True, slots=True)
class Hardware:
    """Fields of a setup, and notes for who reads the spec."""

    accelerator: dict[str, JsonValue]
    driver: str
    host_kind: str
    power: dict[str, JsonValue]
    notes: tuple[str, ...] = ()


def open_nvml(select: Select) -> NvmlMeter:
    """Open NVML for the boards that `select` chooses."""
    return NvmlMeter(select=select)


def hardware(url: str, ask: Question, opener: OpenNvml, gpus: Sequence[str] = ()) -> Hardware:
    """Return what instruments tell where the engine is on this machine, else what the user says.

    Args:
        url: base of the engine.
        ask: asks the user.
        opener: opens NVML.
        gpus: the engine's boards, where the user names them; by its processes else.

    Raises:
        ReadBackError: the engine's boards are not those that are named, or nothing is so called.
        NvmlUnavailable: boards are named, and none can be read.
    """
    if not is_here(url):
        note = "The engine is elsewhere, and no instrument of this machine reads its power."
        return _as_answered(ask, (note,), here=False)
    try:
        meter = opener(_selector(url, gpus))
    except NvmlUnavailable as error:
        if gpus:
            raise
        return _as_answered(ask, (f"NVML reads no board: {_line(error)}",), here=True)
    try:
        return _from_nvml(meter, ask)
    finally:
        meter.close()


def _selector(url: str, gpus: Sequence[str]) -> Select:
    pids = serving(url)
    environment = variables(pids, (VISIBLE, ORDER))

    def select(present: Sequence[Present]) -> tuple[Chosen, ...]:
        return choose(present, None, named=gpus, pids=pids, environment=environment)

    return select


def _from_nvml(meter: NvmlMeter, ask: Question) -> Hardware:
    boards = meter.boards()
    names = sorted({board.name for board in boards})
    limits = {board.limit_mw for board in boards}
    limit_mw = limits.pop() if len(limits) == 1 else None
    notes = ["Boards: " + ", ".join(f"{board.uuid} ({board.chosen})" for board in boards)]
    if len(boards) > 1 and boards[0].chosen == "all there are":
        notes.append(
            "These are all boards here, since the engine's processes are not seen on them; where it"
            " has fewer, write this spec again with --gpus UUID,..."
        )
    if boards[0].chosen == "by name":
        # Which boards are in use is no part of a configuration, so a spec has no place for it.
        uuids = ",".join(board.uuid for board in boards)
        notes.append(f"Measure with --gpus {uuids}, unless the engine's processes are seen then.")
    if limit_mw is None:
        notes.append("The boards have different power limits, or none that is told.")
    return Hardware(
        _accelerator(
            " + ".join(names),
            len(boards),
            meter.memory_gib(0) if len(names) == 1 else None,
            limit_mw,
        ),
        meter.driver or NOT_RECORDED,
        ask("Kind of host (provider and instance, not its name)", NOT_RECORDED),
        {"sensor": "nvml", "scope": meter.scope, "rate_hz": 1},
        tuple(notes),
    )


def _as_answered(ask: Question, notes: tuple[str, ...], *, here: bool) -> Hardware:
    answer = ask("Accelerators as count x name (such as 4x NVIDIA H200), or CPU", NOT_RECORDED)
    match = re.fullmatch(r"([1-9][0-9]{0,4})\s*x\s*(\S.*)", answer)
    count, model = (int(match[1]), match[2]) if match else (0, answer)
    power: dict[str, JsonValue] = dict(_NO_POWER)
    if here and model.upper() == "CPU":
        try:
            RaplMeter()
        except EnvironmentProblem as error:
            notes = (f"Power is not covered: {_line(error)}",)
        else:
            power, notes = {"sensor": "rapl", "scope": "cpu", "rate_hz": 1}, ()
    return Hardware(
        _accelerator(model, count, None, None), NOT_RECORDED, NOT_RECORDED, power, notes
    )


def _accelerator(
    model: str, count: int, memory_gib: int | None, limit_mw: int | None
) -> dict[str, JsonValue]:
    row = accelerators.find(model)
    return {
        "model": row.name if row else model,
        "count": count,
        "memory_gib": row.memory_gib if row else memory_gib or NOT_RECORDED,
        "rated_bandwidth_gb_s": row.rated_bandwidth_gb_s if row else NOT_RECORDED,
        "power_limit_w": NOT_RECORDED if limit_mw is None else limit_mw / 1000,
    }


def _line(error: EnvironmentProblem) -> str:
    return " ".join(str(error).split())
