"""Check this project's instruments on a real board: `python -m tests.gpu.check [--out FOLDER]`.

Prints a table to stderr and JSON to stdout. What it finds out: how often the energy counter is
refreshed, how far the average lags behind the momentary power, how many bytes per second 100% of
GPM's bus use are, what the board draws idle, without and with a CUDA context, and joules per bit.
With --out an engine is measured end to end too, where one is installed.

The counter is read quickly for 3 s, which a measurement never does: for its period, not for joules.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.gpu.engine import measured_end_to_end
from tests.gpu.figures import (
    Phase,
    full_bus_bytes_s,
    half_rise_ns,
    slope_pj_bit,
)
from tests.gpu.stream import Stream
from tokenwatt_site import __version__
from tokenwatt_site.errors import EnvironmentProblem, TokenwattError
from tokenwatt_site.evidence.power import PowerSample
from tokenwatt_site.measure.power.nvml import NvmlMeter
from tokenwatt_site.measure.power.survey import update_period_ns

IDLE_S, STREAM_S, DUTY_S, SETTLE_S = 12, 10, 6, 3
DUTIES = (0.25, 0.5, 0.75)
_QUICK_S, _STEP_S = 3.0, 5.0


def main(arguments: list[str] | None = None) -> int:
    """Return 0, or the exit code of what is missing here."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="new folder for the engine's log and its run")
    asked = parser.parse_args(arguments)
    try:
        found = check_board()
        if asked.out is not None:
            asked.out.mkdir(parents=True)
            found["end_to_end"] = measured_end_to_end(asked.out.resolve())
    except TokenwattError as error:
        sys.stderr.write(f"cannot be checked here: {error}\n")
        return error.exit_code
    sys.stderr.write(table(found))
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 0


def check_board() -> dict[str, Any]:
    """Check the first board.

    Raises:
        EnvironmentProblem: no board, no driver, or a board without a bus id.
    """
    meter = NvmlMeter()
    try:
        board = meter.boards()[0]
        if board.pci is None:
            raise EnvironmentProblem(f"{board.name} does not tell its bus id")
        # Before there is a context: it changes what the board draws.
        phases = [held(meter, "idle, no context", IDLE_S, lambda: 0)]
        stream = Stream(board.pci)
        try:
            return _streamed(meter, stream, phases)
        finally:
            stream.close()
    finally:
        meter.close()


def _streamed(meter: NvmlMeter, stream: Stream, phases: list[Phase]) -> dict[str, Any]:
    board = meter.boards()[0]

    def moved() -> int:
        return stream.moved_bytes

    time.sleep(SETTLE_S)
    idle = held(meter, "idle, with a context", IDLE_S, moved)
    quick = read_quickly(meter, _QUICK_S)
    before = read_quickly(meter, 1.0)
    with stream.running("copy"):
        step_ns = time.monotonic_ns()
        rise = [*before, *read_quickly(meter, _STEP_S)]
        copy = held(meter, "copy", STREAM_S, moved)
    with stream.running("write"):
        time.sleep(SETTLE_S)
        write = held(meter, "write", STREAM_S, moved)
    parts = []
    for duty in DUTIES:
        with stream.running("copy", duty):
            time.sleep(SETTLE_S)
            parts.append(held(meter, f"copy, {duty:.0%} of the time", DUTY_S, moved))
    average = [(s.at_ns, s.power_mw) for s in rise if s.power_mw is not None]
    instant = [(s.at_ns, s.instant_mw) for s in rise if s.instant_mw is not None]
    counter = [(s.at_ns, s.energy_mj) for s in quick if s.energy_mj is not None]
    return {
        "tool": __version__,
        "driver": meter.driver,
        "scope": meter.scope,
        "averaging_ns": meter.averaging_ns,
        "board": board.to_json(),
        "counter_period_ns": update_period_ns(counter),
        "average_half_rise_ns": half_rise_ns(average, step_ns),
        "instant_half_rise_ns": half_rise_ns(instant, step_ns),
        "bus_bytes_s": board.bus_bytes_s,
        "full_bus_bytes_s": {p.name: full_bus_bytes_s(p) for p in (copy, write)},
        "idle_w": {p.name: p.watts for p in (*phases, idle)},
        "pj_bit": slope_pj_bit([*parts, copy]),
        "phases": [
            {**asdict(p), "watts": p.watts, "bytes_s": p.bytes_s}
            for p in (*phases, idle, copy, write, *parts)
        ],
    }


def held(meter: NvmlMeter, name: str, seconds: int, moved: Callable[[], int]) -> Phase:
    """Read at both ends of `seconds` of the load that is running."""
    begun, first, bytes_before = meter.begin(_now), meter.read(_now)[0], moved()
    time.sleep(seconds)
    last, bytes_after = meter.read(_now)[0], moved()
    spans = meter.end(begun, _now)
    energy_mj = None
    if first.energy_mj is not None and last.energy_mj is not None:
        energy_mj = last.energy_mj - first.energy_mj
    used = next((span.ppm for span in spans if span.board == 0), None)
    return Phase(name, last.at_ns - first.at_ns, energy_mj, bytes_after - bytes_before, used)


def read_quickly(meter: NvmlMeter, seconds: float) -> list[PowerSample]:
    """Read the first board as fast as it answers."""
    until = time.monotonic() + seconds
    samples = []
    while time.monotonic() < until:
        samples.append(meter.read(_now)[0])
    return samples


def table(found: dict[str, Any]) -> str:
    """Return the figures as lines of text; "none" where the board does not tell."""

    def text(value: float | None, scale: float, unit: str) -> str:
        return "none" if value is None else f"{value * scale:,.4g} {unit}"

    rows = [
        ("board", f"{found['board']['name']}, driver {found['driver']}, scope {found['scope']}"),
        ("counter is refreshed every", text(found["counter_period_ns"], 1e-6, "ms")),
        ("average power is halfway after", text(found["average_half_rise_ns"], 1e-6, "ms")),
        ("momentary power is halfway after", text(found["instant_half_rise_ns"], 1e-6, "ms")),
        ("bus × clock", text(found["bus_bytes_s"], 1e-12, "TB/s")),
        *(
            (f"100% of GPM, by {name}", text(value, 1e-12, "TB/s"))
            for name, value in found["full_bus_bytes_s"].items()
        ),
        *((name, text(value, 1, "W")) for name, value in found["idle_w"].items()),
        ("per bit moved, at most", text(found["pj_bit"], 1, "pJ")),
    ]
    rows += [
        (phase["name"], f"{text(phase['bytes_s'], 1e-12, 'TB/s')}, {text(phase['watts'], 1, 'W')}")
        for phase in found["phases"]
    ]
    if (ended := found.get("end_to_end")) is not None:
        rows.append(("end to end", ended.get("run") or f"none: {ended['reason']}"))
    width = max(len(name) for name, _ in rows)
    return "".join(f"{name:<{width}}  {value}\n" for name, value in rows)


def _now() -> int:
    return time.monotonic_ns()


if __name__ == "__main__":
    sys.exit(main())
