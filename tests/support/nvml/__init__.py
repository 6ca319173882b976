"""A scripted NVIDIA machine behind the real binding: the test writes a page, the library plays it.

`scripted_nvml.c` exports what pynvml loads and answers from a page of memory; `ScriptedMachine`
writes that page. The structures here mirror those of the C file. No time passes by itself: `pass_`
moves it, and so does a call that a rule makes slow.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("scripted_nvml.c")
LIBRARY = "libnvidia-ml.so.1"
PAGE_VARIABLE = "SCRIPTED_NVML"
"""Environment variable with the path of the page; the library reads it when NVML is opened."""

TICK_NS = 100_000_000
"""How often a board refreshes its counter and its watts."""

NOT_SUPPORTED, NO_PERMISSION, GPU_IS_LOST = 3, 4, 15

_TEXT = 96
_BOARDS, _INSTANCES, _PROCESSES, _RULES = 16, 7, 16, 32


class Tick(NamedTuple):
    """What a board shows from one refresh to the next.

    Attributes:
        energy_mj: its counter.
        traffic_ns: for how long, in all, its memory bus was in use.
        average_mw: over the last second.
        instant_mw: at the moment.
    """

    energy_mj: int
    traffic_ns: int
    average_mw: int
    instant_mw: int


def steady(watts: float, seconds: float, *, start_mj: int = 1_000, bus: float = 0.5) -> list[Tick]:
    """Return the tape of a board that draws `watts` all the time, its bus in use by that share."""
    mw = round(watts * 1000)
    return [
        Tick(start_mj + mw * number // 10, round(bus * number * TICK_NS), mw, mw)
        for number in range(round(seconds * 1e9 / TICK_NS) + 1)
    ]


@dataclass
class ScriptedBoard:
    """One board: an H200 unless said otherwise. `*_scopes` are bits, 1 GPU and 2 module."""

    uuid: str = "GPU-11111111-1111-1111-1111-111111111111"
    name: str = "NVIDIA H200"
    bus_id: str = "00000000:19:00.0"
    instances: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    mig: bool = False
    capability: tuple[int, int] = (9, 0)
    limit_mw: int = 700_000
    default_limit_mw: int = 700_000
    bus_bits: int = 6144
    max_memory_mhz: int = 3201
    memory_mhz: int = 3201
    sm_mhz: int = 1980
    reasons: int = 0
    celsius: int = 41
    ecc: bool = True
    persistence: bool = True
    gpm: bool = True
    virtualization: int = 0
    average_scopes: int = 1
    instant_scopes: int = 1
    zero_scopes: int = 0
    memory_bytes: int = 150_754_820_096
    tape: list[Tick] = field(default_factory=lambda: steady(310, 10))


def eight_boards(**changes: object) -> list[ScriptedBoard]:
    """Return the boards of a usual server; no two ids of it begin alike."""
    return [
        ScriptedBoard(
            uuid=f"GPU-{n}{n}{n}{n}{n}{n}{n}{n}-0000-0000-0000-000000000000",
            bus_id=f"00000000:{16 * n + 10:02X}:00.0",
            **changes,  # type: ignore[arg-type]
        )
        for n in range(8)
    ]


class ScriptedMachine:
    """The page of a machine in a file; every board has a tape of its own, all of one length."""

    def __init__(
        self, path: Path, boards: Sequence[ScriptedBoard], *, driver: str = "595.91.07"
    ) -> None:
        self.path = path
        (ticks,) = {len(board.tape) for board in boards} or {1}
        size = ctypes.sizeof(_Page) + ctypes.sizeof(_Tick) * ticks * len(boards)
        path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            memory = mmap.mmap(file.fileno(), size)
        self._page = _Page.from_buffer(memory)
        self._page.tick_ns, self._page.tick_count = TICK_NS, ticks
        self._page.driver = driver.encode()
        self._page.board_count = len(boards)
        tape = (_Tick * (ticks * len(boards))).from_buffer(memory, ctypes.sizeof(_Page))
        for number, board in enumerate(boards):
            self._write(number, board)
            for at, tick in enumerate(board.tape):
                tape[number * ticks + at] = tuple(tick)

    def now_ns(self) -> int:
        """Return the machine's time."""
        return int(self._page.time_ns)

    def pass_(self, ns: int) -> None:
        """Let time pass."""
        self._page.time_ns += ns

    def run_with_the_real_clock(self) -> None:
        """Bind the machine's time to the monotonic clock: it is 0 now."""
        self._page.start_ns = time.monotonic_ns()

    def rule(
        self, function: str, *, code: int = 0, board: int | None = None, delay_ns: int = 0
    ) -> None:
        """Let a function, by its exported name, fail with `code` or take `delay_ns`."""
        rule = self._page.rules[self._page.rule_count]
        rule.function = function.encode()
        rule.code, rule.delay_ns = code, delay_ns
        rule.board = -1 if board is None else board
        self._page.rule_count += 1

    def forget_rules(self) -> None:
        self._page.rule_count = 0

    def change(self, board: int, **values: int) -> None:
        """Change numbers of a board, by the names of `ScriptedBoard`."""
        for name, value in values.items():
            if not hasattr(_Board, name):
                raise AttributeError(name)
            setattr(self._page.boards[board], name, value)

    @property
    def open(self) -> int:
        """How often NVML was opened and not closed again."""
        return int(self._page.open)

    @property
    def samples(self) -> int:
        """GPM samples that were allocated and not freed."""
        return int(self._page.samples)

    def _write(self, number: int, board: ScriptedBoard) -> None:
        into = self._page.boards[number]
        for name, _ in _Board._fields_:
            value = getattr(board, name, None)
            if isinstance(value, str):
                setattr(into, name, value.encode())
            elif isinstance(value, int):
                setattr(into, name, int(value))
        into.major, into.minor = board.capability
        into.pid_count, into.instance_count = len(board.pids), len(board.instances)
        for at, pid in enumerate(board.pids):
            into.pids[at] = pid
        for at, instance in enumerate(board.instances):
            into.instances[at].value = instance.encode()


def build(folder: Path) -> Path:
    """Compile the library into `folder` under the name that pynvml loads; return its path."""
    library = folder / LIBRARY
    compiler = os.environ.get("CC", "cc")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", library, SOURCE],
        check=True,
    )
    return library


class _Tick(ctypes.Structure):
    _fields_ = (
        ("energy_mj", ctypes.c_uint64),
        ("traffic_ns", ctypes.c_uint64),
        ("average_mw", ctypes.c_uint32),
        ("instant_mw", ctypes.c_uint32),
    )


class _Rule(ctypes.Structure):
    _fields_ = (
        ("function", ctypes.c_char * _TEXT),
        ("delay_ns", ctypes.c_uint64),
        ("board", ctypes.c_int32),
        ("code", ctypes.c_int32),
    )


class _Board(ctypes.Structure):
    _fields_ = (
        ("uuid", ctypes.c_char * _TEXT),
        ("name", ctypes.c_char * _TEXT),
        ("bus_id", ctypes.c_char * 32),
        ("instances", (ctypes.c_char * _TEXT) * _INSTANCES),
        ("reasons", ctypes.c_uint64),
        ("memory_bytes", ctypes.c_uint64),
        ("pids", ctypes.c_uint32 * _PROCESSES),
        *(
            (name, ctypes.c_uint32)
            for name in (
                *("pid_count", "instance_count", "mig", "major", "minor", "limit_mw"),
                *("default_limit_mw", "bus_bits", "max_memory_mhz", "memory_mhz", "sm_mhz"),
                *("celsius", "ecc", "persistence", "gpm", "virtualization"),
                *("average_scopes", "instant_scopes", "zero_scopes"),
            )
        ),
    )


class _Page(ctypes.Structure):
    _fields_ = (
        ("time_ns", ctypes.c_uint64),
        ("start_ns", ctypes.c_uint64),
        ("tick_ns", ctypes.c_uint64),
        ("tick_count", ctypes.c_uint64),
        ("open", ctypes.c_int64),
        ("samples", ctypes.c_int64),
        ("driver", ctypes.c_char * 80),
        ("board_count", ctypes.c_uint32),
        ("rule_count", ctypes.c_uint32),
        ("rules", _Rule * _RULES),
        ("boards", _Board * _BOARDS),
    )
