"""What the readings of the boards do not cover, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.energy.window import WindowEnergy
from tokenwatt_site.evidence.power import Board, PowerLog
from tokenwatt_site.meters import EXPORTED_SENSORS, GPU_SCOPES, PowerSensor
from tokenwatt_site.run import NotCovered
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Evidence

GAIN_ERROR_PERCENT = 5
"""Of the meter of a board by NVIDIA, linear and different between boards of one model (arXiv
2312.02741)."""


def power_caveats(
    spec: Spec, evidence: Evidence, energies: Sequence[WindowEnergy]
) -> tuple[NotCovered, ...]:
    """Return the caveats of the published energy; `energies` are of the windows it is made of."""
    log = evidence.power
    if log is None:
        return ()
    told = (
        *_of_second_readings(spec, evidence),
        *_of_meters(log, energies),
        *_of_readings(spec, log, energies),
        *_of_clock(evidence),
        *_of_instruments(evidence),
        *(_of_boards(log.boards) if log.scope in GPU_SCOPES else ()),
    )
    return tuple(NotCovered(what=what, why=why) for what, why in told)


def why_not_read(evidence: Evidence, sensor: PowerSensor) -> str | None:
    """Return why an instrument that the spec asks for could not be read; None: it could."""
    told = evidence.journal[0].data.get("instruments") if evidence.journal else None
    for item in told if isinstance(told, list) else ():
        if isinstance(item, dict) and item.get("sensor") == sensor and item.get("reason"):
            return str(item["reason"])
    return None


def _of_second_readings(spec: Spec, evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Tell of second instruments of the boards; those of processors and hosts are metrics."""
    for sensor in dict.fromkeys(i.sensor for i in spec.instruments):
        if sensor not in {spec.setup.power.sensor, "rapl", "redfish"}:
            why = why_not_read(evidence, sensor)
            if why is not None:
                yield f"The boards' energy by {sensor} too", f"Not measured: {why}."


def _of_meters(log: PowerLog, energies: Sequence[WindowEnergy]) -> Iterator[tuple[str, str]]:
    known = [energy for energy in energies if energy.energy_mj is not None]
    if known and log.sensor not in {"nvml", "dcgm"}:
        yield (
            "How far the instrument may be off as a whole",
            "No such error of it is known, and none is in any interval here.",
        )
    elif known:
        yield (
            "Gain error of the boards",
            (
                f"The meter of a board may be off by ±{GAIN_ERROR_PERCENT}%, the same way in every"
                " repeat, so that no interval here holds it. It cancels only on the same boards."
            ),
        )
    boards = [board for energy in known for board in energy.by_board]
    by_watts = sum(board.source == "power" for board in boards)
    if by_watts:
        yield (
            "Energy by the boards' own counters",
            (
                f"In {by_watts} of {len(boards)} windows of a board there was none that could be"
                " used: its energy is the integral of its watts, read every"
                f" {log.period_ns / 1e9:g} s."
            ),
        )
    if alone := sum(board.source == "counter" and not board.checked for board in boards):
        yield (
            "Counters held against watts",
            (
                f"In {alone} of {len(boards)} windows of a board its watts were not read, not often"
                " enough, or as means over more than 10% of the window: the counter stands alone."
            ),
        )


def _of_instruments(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Tell what instruments themselves left out, each once, and which did not answer to the end."""
    lines = [entry.data for entry in evidence.journal if entry.event == "repeat_end"]
    for line in lines:
        for name in _texts(line.get("hung")):
            yield (
                f"Readings of {name} to the end of repeat {line.get('repeat')}",
                "It stopped answering. What it had told until then counts.",
            )
    for note in dict.fromkeys(note for line in lines for note in _texts(line.get("notes"))):
        yield "All that an instrument tells", f"{note}."


def _texts(told: JsonValue) -> list[str]:
    return [item for item in told if isinstance(item, str)] if isinstance(told, list) else []


def _of_readings(
    spec: Spec, log: PowerLog, energies: Sequence[WindowEnergy]
) -> Iterator[tuple[str, str]]:
    gaps = [gap for energy in energies if (gap := energy.longest_gap_ns) is not None]
    if gaps and max(gaps) >= 2 * log.period_ns:
        yield (
            "Power between readings",
            (
                f"The longest gap between two readings was {max(gaps) / 1e9:.1f} s;"
                f" {log.period_ns / 1e9:g} s was asked for.{_by_node(log, energies)}"
            ),
        )
    exported = log.sensor in EXPORTED_SENSORS
    if exported and any(i.sensor == log.sensor and i.url is not None for i in spec.instruments):
        yield (
            "When the boards were read",
            (
                "An exporter gives what it read last, at a period of its own, so that a reading is"
                " older than its time here by up to the time between two scrapes."
            ),
        )


def _by_node(log: PowerLog, energies: Sequence[WindowEnergy]) -> str:
    """Say the longest gap of each of several nodes; nothing of one."""
    longest: dict[int, int] = {}
    for energy in energies:
        for board, found in zip(log.boards, energy.by_board, strict=True):
            if board.node is not None and found.longest_gap_ns is not None:
                longest[board.node] = max(longest.get(board.node, 0), found.longest_gap_ns)
    told = ", ".join(f"{gap / 1e9:.1f} s on node {node}" for node, gap in sorted(longest.items()))
    return f" It was {told}." if told else ""


def _of_clock(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Tell how well the time of a reading is known, where several nodes are read on one clock."""
    longest: list[int] = []
    for line in evidence.journal:
        told = line.data.get("read_within_ns") if line.event == "repeat_end" else None
        if isinstance(told, list) and all(type(ns) is int for ns in told):
            pairs = zip_longest(longest, told, fillvalue=0)
            longest = [max(pair) for pair in pairs]
    if longest:
        nodes = ", ".join(f"{ns / 1e9:.3f} s of node {n}" for n, ns in enumerate(longest, 1))
        yield (
            "The moment of a reading on another node",
            (
                "All are on the clock of the machine that asked. A reading came within the time"
                f" that asking for it took, at most {nodes}."
            ),
        )


def _of_boards(boards: Sequence[Board]) -> Iterator[tuple[str, str]]:
    n = len(boards)
    if named := sum(board.chosen == "by name" for board in boards):
        yield (
            "That the engine ran on these boards alone",
            f"{_of(named, n)} declared by the publisher: no process of the engine was seen there.",
        )
    if shared := sum(bool(board.others) for board in boards):
        processes = sum(board.others or 0 for board in boards)
        yield (
            "Boards without other processes",
            (
                f"{processes} beside the engine's own were on {_of(shared, n)}; their watts and"
                " traffic are in these numbers. A monitor alone can lift idle watts."
            ),
        )
    if unknown := sum(board.others is None for board in boards):
        yield (
            "Whether other processes used the boards",
            f"The driver does not tell for {_of(unknown, n)}.",
        )
    if limited := [
        b for b in boards if b.limit_mw and b.default_limit_mw not in {None, b.limit_mw}
    ]:
        pairs = sorted({(b.limit_mw or 0, b.default_limit_mw or 0) for b in limited})
        told = ", ".join(f"{a / 1e3:g} W where {b / 1e3:g} W is the default" for a, b in pairs)
        yield "Boards at their default power limit", f"{_of(len(limited), n)}: {told}."
    if without := sum(board.ecc is False for board in boards):
        yield "Memory with error correction", f"It was off on {_of(without, n)}."
    if unloaded := sum(board.persistence is False for board in boards):
        yield (
            "A driver that stays loaded",
            (
                f"Persistence mode was off on {_of(unloaded, n)}: counters may start again when no"
                " process uses a board."
            ),
        )


def _of(count: int, n: int) -> str:
    return f"{count} of {n} board{'s' if n != 1 else ''}"


def host_caveats(evidence: Evidence) -> tuple[NotCovered, ...]:
    """Say of hosts, also of those beside, that nobody knows of what time their watts are."""
    logs = [log for log in (evidence.power, *evidence.beside) if log is not None]
    unknown = any(
        log.scope == "host"
        and log.averaging_ns is None
        and all(sample.energy_mj is None for sample in log.samples)
        for log in logs
    )
    why = (
        "Its management controller does not tell. Watts of before a window may be in it, and those"
        " of its end be missing."
    )
    what = "How long the host's watts are averaged"
    return (NotCovered(what=what, why=why),) if unknown else ()
