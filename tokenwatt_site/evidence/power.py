"""What an instrument read of its boards: samples, spans of memory traffic, and their format.

A board is whatever the instrument tells apart: a GPU, a module, a processor package, a whole node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.columns import (
    checked,
    decode,
    encode,
    expect,
    read_header,
    timed_rows,
)
from tokenwatt_site.meters import PowerScope, PowerSensor
from tokenwatt_site.schema import GrowingModel, Line, Model

# History of the format. 1: one sensor's watts and counters. 2: scope, period, what each board is
# and what else it tells; spans of memory traffic.
POWER_FORMAT = "tokenwatt/power/2"

MAX_BOARDS = 512
LIMIT_WITHIN_W = 0.5
"""A power limit may be this far from the one that a setup declares, which is in whole watts."""

Natural = Annotated[int, Field(ge=0)]


class Board(GrowingModel):
    """One board as it was at the start; None is not known.

    Attributes:
        uuid: by which the board is known: a GPU's UUID, the path of a package, the id of a chassis.
        name: as the driver tells it.
        chosen: how the board came into the log: the engine's processes were seen on it, the user
            named it, or it is all that the instrument has.
        pci: bus id.
        limit_mw: power limit that is enforced.
        default_limit_mw: power limit that the board comes with.
        bus_bits: width of the memory bus.
        memory_mhz: highest memory clock, so that 2 x bus_bits x memory_mhz / 8 is what the bus
            can carry.
        ecc: whether error correction is on.
        persistence: whether the driver stays loaded without a client.
        others: processes on the board beside the engine's own; their watts are in ours.
        node: on which of several it is, by the place of who told of it first, from 1.
    """

    younger = frozenset({"node"})

    uuid: Line
    name: Line
    chosen: Literal["by process", "by name", "all there are"] = "all there are"
    pci: Line | None = None
    limit_mw: Natural | None = None
    default_limit_mw: Natural | None = None
    bus_bits: Natural | None = None
    memory_mhz: Natural | None = None
    ecc: bool | None = None
    persistence: bool | None = None
    others: Natural | None = None
    node: Natural | None = None

    @property
    def bus_bytes_s(self) -> int | None:
        """Bytes per second of bus × clock, both edges of the clock; None: not known."""
        if not self.bus_bits or not self.memory_mhz:
            return None
        return self.bus_bits * 2 * self.memory_mhz * 1_000_000 // 8


def is_masked(uuid: str) -> bool:
    """Tell whether a UUID is all zeros, as some exporters write it, so that it names no board."""
    return not set(uuid.removeprefix("GPU-")) - set("0-")


@dataclass(frozen=True, slots=True)
class PowerSample:
    """One reading of one board. `at_ns` is on the clock of the journal's `epoch_ns`.

    Attributes:
        at_ns: when it was read.
        board: its place in `PowerLog.boards`.
        power_mw: mean over the instrument's own averaging time.
        energy_mj: counter since some start.
        instant_mw: momentary.
        dram_ppm: mean use of the memory bus since the sample before, reads and writes, in 1e-6
            of what the bus can carry.
        sm_mhz: clock of the multiprocessors.
        memory_mhz: clock of the memory.
        reasons: why the clocks are what they are, as NVML's bits.
        celsius: temperature of the chip.
    """

    at_ns: int
    board: int
    power_mw: int | None
    energy_mj: int | None
    instant_mw: int | None = None
    dram_ppm: int | None = None
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    reasons: int | None = None
    celsius: int | None = None


_BOARD_MW = 10_000_000
_HOST_MW = 1_000_000_000
MOST_DRAM_PPM = 10_000_000
"""No bus carries ten times what it can; beyond this a reading is none."""

_BOUNDS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "power_mw": (0, _BOARD_MW),
        "instant_mw": (0, _BOARD_MW),
        "energy_mj": (0, 1 << 53),
        "dram_ppm": (0, MOST_DRAM_PPM),
        "sm_mhz": (0, 100_000),
        "memory_mhz": (0, 100_000),
        "reasons": (0, 1 << 53),
        "celsius": (-100, 200),
    }
)
_HOST_BOUNDS = MappingProxyType({**_BOUNDS, "power_mw": (0, _HOST_MW), "instant_mw": (0, _HOST_MW)})


def impossible(sample: PowerSample, scope: PowerScope) -> tuple[str, ...]:
    """Return the columns that hold what no instrument of this scope can have read.

    What is odd within these bounds is judged where claims are made.
    """
    return tuple(
        name
        for name, (least, most) in _bounds(scope).items()
        if (value := getattr(sample, name)) is not None and not least <= value <= most
    )


def possible(samples: Sequence[PowerSample], scope: PowerScope) -> bool:
    """Return whether all samples hold what can be read: column by column, in a third of the time.

    `impossible` says of a sample what it holds that cannot.
    """
    for name, (least, most) in _bounds(scope).items():
        told = [value for value in map(attrgetter(name), samples) if value is not None]
        if told and not (least <= min(told) and max(told) <= most):
            return False
    return True


def _bounds(scope: PowerScope) -> Mapping[str, tuple[int, int]]:
    return _HOST_BOUNDS if scope == "host" else _BOUNDS


class DramSpan(Model):
    """Mean use of one board's memory bus from `start_ns` to `end_ns`, measured as one pair."""

    board: Natural
    start_ns: Natural
    end_ns: Natural
    ppm: Natural


class _PowerHeader(Model):
    format: Literal["tokenwatt/power/2"]
    columns: tuple[str, ...]
    sensor: PowerSensor
    scope: PowerScope
    period_ns: Natural
    averaging_ns: Natural | None
    boards: Annotated[tuple[Board, ...], Field(max_length=MAX_BOARDS)]
    spans: tuple[DramSpan, ...]


@dataclass(frozen=True)
class PowerLog:
    """All that one instrument read in a run.

    Attributes:
        sensor: its kind, as in `spec.PowerSource`.
        scope: what a reading covers.
        period_ns: time between readings that was asked for.
        averaging_ns: over how long the instrument itself averages its watts; None: not known.
        boards: what it told apart.
        samples: in order of time.
        spans: of the scored windows, where the boards tell their memory traffic.
    """

    sensor: PowerSensor
    scope: PowerScope
    period_ns: int
    averaging_ns: int | None
    boards: tuple[Board, ...]
    samples: tuple[PowerSample, ...]
    spans: tuple[DramSpan, ...] = ()

    def of_board(self, board: int) -> Sequence[PowerSample]:
        """Return the samples of one board, in order of time."""
        return self._by_board[board]

    @cached_property
    def _by_board(self) -> tuple[list[PowerSample], ...]:
        # Asked for once per board and window.
        found: tuple[list[PowerSample], ...] = tuple([] for _ in self.boards)
        for sample in self.samples:
            found[sample.board].append(sample)
        return found


_COLUMNS = (
    "at_ns-previous_at_ns",
    "board",
    "power_mw",
    "energy_mj",
    "instant_mw",
    "dram_ppm",
    "sm_mhz",
    "memory_mhz",
    "reasons",
    "celsius",
)
_NULLABLE = set(range(2, len(_COLUMNS)))


def encode_power(log: PowerLog) -> bytes:
    """Return the uncompressed evidence bytes of a power log."""
    header = {
        "format": POWER_FORMAT,
        "columns": list(_COLUMNS),
        "sensor": log.sensor,
        "scope": log.scope,
        "period_ns": log.period_ns,
        "averaging_ns": log.averaging_ns,
        "boards": [board.to_json() for board in log.boards],
        "spans": [span.to_json() for span in log.spans],
    }
    return encode(header, timed_rows(log.samples, _COLUMNS))


def decode_power(data: bytes, *, source: str) -> PowerLog:
    """Read what `encode_power` wrote.

    Raises:
        InputError: another format, or a sample or span of a board that the header does not name.
    """
    raw, rows = decode(data, source)
    header = read_header(_PowerHeader, raw, POWER_FORMAT, source)
    expect(list(header.columns), list(_COLUMNS), source)
    for span in header.spans:
        _require_board(header, span.board, source, 1)
    samples = []
    previous = 0
    for line, row in checked(rows, len(_COLUMNS), _NULLABLE, source):
        previous += row[0]
        _require_board(header, row[1], source, line)
        samples.append(PowerSample(previous, *row[1:]))
    return PowerLog(
        sensor=header.sensor,
        scope=header.scope,
        period_ns=header.period_ns,
        averaging_ns=header.averaging_ns,
        boards=header.boards,
        samples=tuple(samples),
        spans=header.spans,
    )


def _require_board(header: _PowerHeader, board: int, source: str, line: int) -> None:
    if not 0 <= board < len(header.boards):
        raise InputError(Problem(f"board {board} is not in the header", file=source, line=line))
