"""What was read and not yet parsed, in the order it came: in memory, and beyond that in a file."""

from __future__ import annotations

import struct
import tempfile
from collections import deque
from pathlib import Path
from typing import BinaryIO, TypeAlias

from tokenwatt_site.errors import EnvironmentProblem, Problem

MEMORY_READS = 100_000
"""Some 50 MB with the usual events of 250 bytes."""

_FILE_BYTES = 256 << 10  # written or read at once: a few tenths of a millisecond
_HEADER = struct.Struct("<IqqqI")

Read: TypeAlias = tuple[int, int, int, int, bytes]
"""(exchange, stamp_ns, exact_ns, merged_ns, body), see `StreamParser.feed`.

`exchange` is its number in the trial. An empty body says that it ended.
"""


class ReadLog:
    """First in, first out. Memory is bounded: when it is full, what comes goes to a file.

    The file has no name and goes with the process.
    """

    def __init__(self, folder: Path | None = None, memory_reads: int = MEMORY_READS) -> None:
        """Keep up to `memory_reads` in memory, the others in `folder` (None: the system's)."""
        self._folder = folder
        self._memory_reads = memory_reads
        self._first: deque[Read] = deque()
        self._file: BinaryIO | None = None
        self._file_at = self._file_end = 0
        self._last = bytearray()  # of what is in or before the file, the newest

    def __bool__(self) -> bool:
        return bool(self._first)

    @property
    def known_ns(self) -> int:
        """Return until when nothing that came is unparsed; there must be a read.

        What was read later came later than the poll before the oldest read.
        """
        return self._first[0][1] - self._first[0][3]

    def append(self, read: Read) -> None:
        """Add a read.

        Raises:
            EnvironmentProblem: the file cannot be written.
        """
        if self._file is None:
            if len(self._first) < self._memory_reads:
                self._first.append(read)
                return
            self._file = self._opened()
        body = read[4]
        self._last += _HEADER.pack(*read[:4], len(body))
        self._last += body
        if len(self._last) >= _FILE_BYTES:
            self._spill(self._file)

    def popleft(self) -> Read:
        """Remove the oldest read and return it; there must be one."""
        read = self._first.popleft()
        if not self._first and self._file is not None:
            self._refill(self._file)
        return read

    def close(self) -> None:
        """Forget what is in the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> BinaryIO:
        try:
            return tempfile.TemporaryFile(dir=self._folder, buffering=0)
        except OSError as error:
            raise self._problem(error) from error

    def _spill(self, file: BinaryIO) -> None:
        try:
            file.seek(self._file_end)
            left = memoryview(self._last)
            while left:
                left = left[file.write(left) :]
        except OSError as error:
            raise self._problem(error) from error
        self._file_end += len(self._last)
        self._last = bytearray()

    def _refill(self, file: BinaryIO) -> None:
        """Take the oldest part of the file into memory, or what is left, and close the file."""
        if self._file_at == self._file_end:
            self._unpack(self._last)
            self._last = bytearray()
            self._file_at = self._file_end = 0
            self.close()
            return
        file.seek(self._file_at)
        self._file_at += self._unpack(file.read(_FILE_BYTES))

    def _unpack(self, data: bytes | bytearray) -> int:
        """Append the whole reads in `data` to those in memory; return how many bytes they had."""
        at = 0
        while at + _HEADER.size <= len(data):
            *head, size = _HEADER.unpack_from(data, at)
            end = at + _HEADER.size + size
            if end > len(data):
                break
            exchange, stamp_ns, exact_ns, merged_ns = head
            body = bytes(data[at + _HEADER.size : end])
            self._first.append((exchange, stamp_ns, exact_ns, merged_ns, body))
            at = end
        return at

    def _problem(self, error: OSError) -> EnvironmentProblem:
        return EnvironmentProblem(
            Problem(
                f"what was read and not yet parsed cannot be kept ({error.strerror})",
                file=str(self._folder or tempfile.gettempdir()),
                remedy="Make room there, or lower protocol.max_rate.",
            )
        )
