"""Replies to the questions of one repeat, on disk as they come."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType

from tokenwatt_site.errors import EnvironmentProblem, InputError, Problem
from tokenwatt_site.files import whole_lines
from tokenwatt_site.measure.accuracy.task import Reply


class KeptReplies:
    """A file to which each reply is appended, a line of JSON, before anything else is done with it.

    It is work in progress: evidence is made of it when all replies are there.
    """

    def __init__(self, path: Path) -> None:
        """Open `path`, which need not exist; its folder must.

        A last line that a crash cut was never acknowledged, and is removed.

        Raises:
            InputError: a line of it is no reply.
            EnvironmentProblem: it cannot be written.
        """
        self._path = path
        self._kept: dict[int, Reply] = {}
        try:
            data = whole_lines(path)
        except OSError as error:
            raise self._not_written(error) from error
        self._size = len(data)
        for number, line in enumerate(data.splitlines(), start=1):
            reply = self._read(line, number)
            self._kept[reply.question] = reply

    @property
    def replies(self) -> Mapping[int, Reply]:
        """The last one to each question, by its number."""
        return MappingProxyType(self._kept)

    def keep(self, reply: Reply) -> None:
        """Have a reply on disk when this returns; it takes the place of one that failed before.

        Raises:
            EnvironmentProblem: the disk is full or not writable; the file is as it was.
        """
        # ASCII, so that half a surrogate pair, which engines do send, has a spelling.
        line = json.dumps(asdict(reply)).encode("ascii") + b"\n"
        try:
            handle = self._path.open("ab")
            try:
                with handle:
                    handle.write(line)
                    handle.flush()
                    os.fsync(handle.fileno())
            except BaseException:
                os.truncate(self._path, self._size)
                raise
        except OSError as error:
            raise self._not_written(error) from error
        self._size += len(line)
        self._kept[reply.question] = reply

    def _read(self, line: bytes, number: int) -> Reply:
        try:
            return Reply(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise InputError(
                Problem(
                    "is no reply to a question",
                    file=str(self._path),
                    line=number,
                    remedy="Remove the line: its question is asked again.",
                )
            ) from error

    def _not_written(self, error: OSError) -> EnvironmentProblem:
        return EnvironmentProblem(
            Problem(f"replies cannot be written ({error.strerror})", file=str(self._path))
        )
