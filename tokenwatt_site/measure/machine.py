"""What this machine is to a measurement, apart from its boards; None is not known."""

from __future__ import annotations

import ctypes
import os
import resource
import select
import shutil
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from tokenwatt_site.canonical import clean_text
from tokenwatt_site.measure.connection import Connection

_STA_UNSYNC = 0x40  # linux/timex.h
_ANSWER_MS = 1000
_TRIES, _PAUSE_S = 20, 0.005


@dataclass(frozen=True, slots=True)
class WallClock:
    """How the kernel sees its own clock.

    Attributes:
        disciplined: whether a time service keeps it.
        most_off_us: how far the kernel thinks it may be off at most.
    """

    disciplined: bool
    most_off_us: int


@dataclass(frozen=True, slots=True)
class Folder:
    """A place to write to; `free_bytes` and `writable` are those of the nearest that is there."""

    path: Path
    free_bytes: int
    writable: bool


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts of this machine.

    Attributes:
        wall_clock: of the kernel.
        kernel_stamps: whether the kernel says when bytes arrived.
        cpus: that this process may use.
        load: runnable tasks, the mean of the last minute.
        governors: how processors choose their clocks, each way once.
        descriptors: files and connections that this process may have open.
        ports: local ports for connections to one engine.
        can_listen: whether a port of the loopback can be opened.
        folders: where a measurement writes.
    """

    wall_clock: WallClock | None
    kernel_stamps: bool
    cpus: int
    load: float | None
    governors: tuple[str, ...]
    descriptors: int
    ports: int | None
    can_listen: bool
    folders: tuple[Folder, ...]


def look(folders: Iterable[Path]) -> Machine:
    """Return what this machine is; nothing is changed, and no folder is made."""
    stamped = _kernel_stamps()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return Machine(
        wall_clock=_wall_clock(),
        kernel_stamps=bool(stamped),
        cpus=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1,
        load=_load(),
        governors=governors(),
        descriptors=sys.maxsize if hard == resource.RLIM_INFINITY else hard,
        ports=ports(),
        can_listen=stamped is not None,
        folders=tuple(folder(path) for path in folders),
    )


def folder(path: Path) -> Folder:
    """Return what is known of a folder that may not be there yet."""
    nearest = path.absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    return Folder(path, shutil.disk_usage(nearest).free, writable)


def governors(root: Path = Path("/sys/devices/system/cpu")) -> tuple[str, ...]:
    """Return the governors of the processors' clocks; empty where none is told."""
    found = set()
    for file in root.glob("cpu[0-9]*/cpufreq/scaling_governor"):
        with suppress(OSError):
            found.add(clean_text(file.read_text("ascii", "replace")))
    return tuple(sorted(found - {""}))


def ports(file: Path = Path("/proc/sys/net/ipv4/ip_local_port_range")) -> int | None:
    """Return how many local ports the kernel gives to connections that choose none."""
    try:
        low, high = map(int, file.read_text("ascii").split())
    except (OSError, ValueError):
        return None
    return max(0, high - low + 1)


class _Timex(ctypes.Structure):
    """`struct timex` up to `status`, and room for the rest of it."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def _wall_clock() -> WallClock | None:
    """Ask the kernel; with `modes` 0, adjtimex changes nothing and needs no right."""
    if sys.platform != "linux":
        return None
    told = _Timex()
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.byref(told))
    except (OSError, AttributeError):
        return None
    if state < 0:  # containers may forbid the call
        return None
    return WallClock(not told.status & _STA_UNSYNC, int(told.maxerror))


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _kernel_stamps() -> bool | None:
    """Tell whether bytes over the loopback come with a stamp; None: no port can be opened.

    The kernel begins to stamp a moment after the first socket asks for it.
    """
    try:
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen(1)
            with closing(Connection(socket.AF_INET, server.getsockname())) as ours:
                theirs, _ = server.accept()
                with closing(theirs):
                    return any(_stamped(theirs, ours) for _ in range(_TRIES))
    except OSError:
        return None


def _stamped(theirs: socket.socket, ours: Connection) -> bool:
    theirs.sendall(b"x")
    waiting = select.poll()
    waiting.register(ours.descriptor, select.POLLIN)
    waiting.poll(_ANSWER_MS)
    stamped = ours.receive()[1] is not None
    if not stamped:
        time.sleep(_PAUSE_S)
    return stamped
