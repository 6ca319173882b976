"""The journal: what happened, in order, each line chained to the one before.

A line is canonical JSON {seq, at, event, prev, data}; `prev` is the SHA-256 of the line before it
(64 zeros for the first). The digest of the last line, the head, is signed with the run, so a line
cannot be dropped, added or changed afterwards. Every trial has a line at its start and at its end.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import ValidationError

from tokenwatt_site.canonical import JsonValue, canonical_bytes, load_json, sha256_hex
from tokenwatt_site.errors import EnvironmentProblem, InputError, Problem
from tokenwatt_site.evidence.columns import MAX_LINE_BYTES
from tokenwatt_site.files import whole_lines
from tokenwatt_site.schema import Model, Sha256

Event: TypeAlias = Literal[
    "open",
    "launch",
    "idle",
    "trial_start",
    "trial_end",
    "repeat_end",
    "under_load",
    "accuracy_start",
    "accuracy_end",
    "interrupted",
    "close",
]

MAX_LINES = 20_000
"""Ten for each of as many trials as are read."""

GENESIS = "0" * 64


class Entry(Model):
    """One line. `at` is UTC, RFC 3339 with microseconds, by the clock of the measuring machine."""

    seq: int
    at: str
    event: Event
    prev: Sha256
    data: dict[str, JsonValue]


class Journal:
    """Appends lines to a file, each on disk before the call returns."""

    def __init__(
        self,
        path: Path,
        now: Callable[[], str],
        clean: Callable[[dict[str, JsonValue]], dict[str, JsonValue]] = dict,
    ) -> None:
        """Open `path` for appending; an existing file is checked and continued.

        A last line that a crash cut was never acknowledged, and is removed.

        Args:
            path: the file; its folder must exist.
            now: gives the time of a line.
            clean: makes what a line tells fit to be published; default: as it is.

        Raises:
            InputError: the file is there and its chain is broken.
            EnvironmentProblem: the file cannot be written.
        """
        self._path = path
        self._now = now
        self._clean = clean
        try:
            data = whole_lines(path)
        except OSError as error:
            raise self._not_written(error) from error
        self._size = len(data)
        self.lines: list[Entry] = list(parse(data, str(path)))
        self._head = head(data)

    @property
    def head(self) -> str:
        """The digest of the last line."""
        return self._head

    def append(self, event: Event, **data: JsonValue) -> Entry:
        """Write one line and wait until it is on disk.

        Raises:
            InputError: `data` holds what `parse` would refuse; nothing is written.
            EnvironmentProblem: the disk is full or not writable; the file is as it was, as it is
                after an interrupt.
        """
        raw = canonical_bytes(
            {
                "seq": len(self.lines),
                "at": self._now(),
                "event": event,
                "prev": self._head,
                "data": self._clean(data),
            }
        )
        # What `parse` will read, so that a line it would refuse is never written.
        line = Entry.model_validate(load_json(raw, source=str(self._path), limit=MAX_LINE_BYTES))
        try:
            self._commit(line, raw + b"\n")
        except OSError as error:
            raise self._not_written(error) from error
        return line

    def _commit(self, line: Entry, data: bytes) -> None:
        """Have the line on disk and in `lines`, or in neither, whatever interrupts."""
        size, before = self._size, self._head
        handle = self._path.open("ab")
        try:
            # Closed before the cut: closing writes what is still buffered.
            with handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            self._size, self._head = size + len(data), sha256_hex(data[:-1])
            self.lines.append(line)
        except BaseException:
            # Half a line, or one that nobody counts, would break the chain for the next one.
            self._size, self._head = size, before
            del self.lines[line.seq :]
            os.truncate(self._path, size)
            raise

    def _not_written(self, error: OSError) -> EnvironmentProblem:
        return EnvironmentProblem(
            Problem(f"journal cannot be written ({error.strerror})", file=str(self._path))
        )


def parse(data: bytes, source: str) -> tuple[Entry, ...]:
    """Read a journal and check its chain.

    Raises:
        InputError: naming the first line that is cut, malformed, out of order or not chained.
    """
    if data and not data.endswith(b"\n"):
        raise InputError(Problem("the last line is cut", file=source))
    if (count := data.count(b"\n")) > MAX_LINES:
        limit = f"at most {MAX_LINES:,}"
        raise InputError(
            Problem("has more lines than are read", file=source, found=f"{count:,}", expected=limit)
        )
    lines: list[Entry] = []
    prev = GENESIS
    for number, raw in enumerate(data.split(b"\n")[:-1], start=1):
        value = load_json(raw, source=f"{source}:{number}", limit=MAX_LINE_BYTES)
        try:
            line = Entry.model_validate(value)
        except ValidationError as error:
            raise InputError(
                Problem(f"is no journal line: {error.errors()[0]['msg']}", file=source, line=number)
            ) from error
        if line.seq != number - 1 or line.prev != prev or canonical_bytes(value) != raw:
            raise InputError(
                Problem(
                    "the chain is broken here: a line was dropped, added or changed",
                    file=source,
                    line=number,
                    found=f"prev {line.prev}",
                    expected=f"prev {prev}",
                )
            )
        lines.append(line)
        prev = sha256_hex(raw)
    return tuple(lines)


def head(data: bytes) -> str:
    """Return the digest of the last line of journal bytes."""
    lines = data.rstrip(b"\n").rpartition(b"\n")
    return sha256_hex(lines[2]) if lines[2] else GENESIS
