"""Writing a file so that it is there whole or not at all, whatever ends the process or the power.

The bytes go to a hidden file in the same folder, reach the disk, and only then get their name.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def put(path: Path, data: bytes) -> None:
    """Write a file in place of what is there.

    Raises:
        OSError: the folder is not there or not writable, or the disk is full. What was there still
            is.
    """
    with _on_disk(path, data, 0o666) as partial:
        partial.replace(path)


def put_new(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write a file where none is; of two processes at once one does.

    Args:
        path: the file.
        data: what is in it.
        mode: who may read it, less the process's mask; from its first byte on.

    Raises:
        FileExistsError: there is one.
        OSError: as of `put`.
    """
    with _on_disk(path, data, mode) as partial:
        os.link(partial, path)  # fails where the name is taken; a rename would replace it


def whole_lines(path: Path) -> bytes:
    """Return a file to which lines are appended, empty where there is none.

    A last line that a crash cut was never acknowledged, and is removed.

    Raises:
        OSError: it cannot be read, or not written.
    """
    data = path.read_bytes() if path.exists() else b""
    size = data.rfind(b"\n") + 1
    if size < len(data):
        os.truncate(path, size)
    return data[:size]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep out of a folder, until this ends, every other process that asks for the same.

    Raises:
        OSError: the folder is not there or not readable.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _on_disk(path: Path, data: bytes, mode: int) -> Iterator[Path]:
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(partial, flags, mode), "wb") as handle:
            handle.write(data)
            handle.flush()
            # A name that outlives a power cut must not stand for an empty file.
            os.fsync(handle.fileno())
        yield partial
    finally:
        partial.unlink(missing_ok=True)
