"""Processes of this machine, as Linux tells them in /proc; elsewhere there are none to see."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

PROC = Path("/proc")

_LISTENS = "0A"  # the kernel's number of TCP_LISTEN
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_here(url: str) -> bool:
    """Tell whether an address is on the loopback, so that what answers runs on this machine."""
    return urlsplit(url).hostname in _LOOPBACK


def serving(url: str) -> frozenset[int]:
    """Return the processes of the engine at `url`; empty where they are not seen, or not here.

    A tunnel, or the proxy of a container, may listen in its place; then it is that which is seen.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return frozenset()
    return listening(port) if port is not None and is_here(url) else frozenset()


def listening(port: int, root: Path = PROC) -> frozenset[int]:
    """Return the processes that listen at a TCP port of this machine, and all below them.

    An engine may compute in processes that its server started. Those of other users are not seen.
    """
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, root)}
    if not sockets:
        return frozenset()
    return below({pid for pid in _all(root) if _holds(root / str(pid) / "fd", sockets)}, root)


def below(pids: Collection[int], root: Path = PROC) -> frozenset[int]:
    """Return these processes with all that they started, directly or not, and that still run."""
    children: dict[int, list[int]] = {}
    for pid in _all(root):
        with suppress(OSError, IndexError, ValueError):
            # The name, in parentheses, may hold anything; the parent stands second after it.
            told = (root / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
            children.setdefault(int(told[1]), []).append(pid)
    found, left = set(pids), list(pids)
    while left:
        new = [pid for pid in children.get(left.pop(), ()) if pid not in found]
        found.update(new)
        left += new
    return frozenset(found)


def variables(
    pids: Collection[int], names: Collection[str], root: Path = PROC
) -> Mapping[str, str]:
    """Return the variables of these names that the processes were started with, and no other.

    Of processes that differ, the last one's counts.
    """
    found: dict[str, str] = {}
    for pid in sorted(pids):
        with suppress(OSError):
            for entry in (root / str(pid) / "environ").read_bytes().split(b"\0"):
                name, _, value = entry.decode("utf-8", "replace").partition("=")
                if name in names:
                    found[name] = value
    return found


def _all(root: Path) -> list[int]:
    try:
        return [int(entry.name) for entry in root.iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _inodes(port: int, root: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with suppress(OSError, IndexError, ValueError):
            for line in (root / "net" / table).read_text("ascii").splitlines()[1:]:
                told = line.split()
                if told[3] == _LISTENS and int(told[1].rpartition(":")[2], 16) == port:
                    yield told[9]


def _holds(folder: Path, sockets: Collection[str]) -> bool:
    with suppress(OSError):
        for entry in folder.iterdir():
            with suppress(OSError):
                if str(entry.readlink()) in sockets:
                    return True
    return False
