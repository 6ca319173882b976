"""Files of statements, beside what they are about: lines are appended, and none is taken away.

Each line stands by itself. A bad one is named by its number and costs none of the others, so nobody
gets rid of what was said by adding to the file. Nor by adding a lot. A key that is known has
MAX_LINES for itself. Of lines under other keys, which change nothing, the first MAX_UNKNOWN are
kept to be shown, and the others counted. And the first MAX_BYTES of a file are read: what counted
goes on to count, whatever comes behind it. That there is more is told as a bad line is, and
`append` makes no such file: whoever publishes the site took it in, and can take strangers out.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tokenwatt_site.canonical import read_start
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.files import locked, put
from tokenwatt_site.trust.statement import Signed, parse

ENDING = ".att.jsonl"
MAX_BYTES = 2 << 20
"""Of a file; about 3,000 statements."""
MAX_LINES = 64
"""Of one known key in one file."""
MAX_UNKNOWN = 100
"""Of all other keys in one file."""

_MAX_NAMED = 20
_SHORTEST_LINE = 256  # key, signature and digest alone are longer
_LINE_END = b'"}]}'  # of every envelope as canonical JSON, and of none that is cut
_TAKE_OUT = "Have lines of keys that are not registered taken out."


@dataclass(frozen=True, slots=True)
class Lines:
    """What a file states.

    Attributes:
        signed: its statements, in their order.
        unheard: the gists of more statements by keys that are not known.
        problems: of the bad lines, each with its number; of many, the first ones and a count.
    """

    signed: tuple[Signed, ...]
    unheard: frozenset[bytes]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Stated:
    """What several files state.

    Attributes:
        signed: each statement once, with its earliest date.
        unheard: how many more there are by keys that are not known.
        unread: files that cannot be read or have bad lines, and what is wrong with them.
    """

    signed: tuple[Signed, ...]
    unheard: int
    unread: tuple[tuple[Path, InputError], ...]


def path_beside(run_path: Path) -> Path:
    """Return where the statements about a run are: beside its file, under the same stem."""
    return run_path.with_name(f"{run_path.stem}{ENDING}")


def read(data: bytes, source: str, *, run_id: str, known: Collection[str]) -> Lines:
    """Read the lines of a file, and check every signature.

    A line is bad that `parse` refuses, that is about another run, that says what the same key has
    said before, but for the date, or that is more than MAX_LINES of a known key. Of lines that say
    the same, the statement of the earliest date is kept.

    Args:
        data: the file; of a longer one than is read, at least a byte more than that.
        source: its name, for the problems.
        run_id: what it is about.
        known: the keys that are registered, and the one that signed the run.
    """
    hearing = _Hearing(source, run_id, known)
    *lines, rest = data[:MAX_BYTES].split(b"\n")
    if rest and len(data) <= MAX_BYTES:
        lines.append(rest)
    problems: list[Problem] = []
    more = 0
    for number, line in enumerate(lines, start=1):
        if not _is_whole(line) and len(problems) >= _MAX_NAMED:
            more += 1  # a million empty lines are counted at once
            continue
        try:
            hearing.hear(line, number)
        except InputError as error:
            if len(problems) < _MAX_NAMED:
                problems += error.problems
            else:
                more += 1
    if more:
        problems.append(Problem("has more bad lines", file=source, found=f"{more:,}"))
    if len(data) > MAX_BYTES:
        problems.append(
            Problem(
                "is behind what is read",
                file=source,
                line=len(lines) + 1,
                expected=f"at most {MAX_BYTES:,} bytes in the file",
                remedy=_TAKE_OUT,
            )
        )
    return Lines(tuple(hearing.signed), frozenset(hearing.unheard), tuple(problems))


def gather(paths: Iterable[Path], *, run_id: str, known: Collection[str]) -> Stated:
    """Return what files state about a run; there may be none of them.

    Args:
        paths: the files.
        run_id: what they are about.
        known: the keys that are registered, and the one that signed the run.
    """
    found: dict[bytes, Signed] = {}
    unheard: set[bytes] = set()
    unread: dict[Path, InputError] = {}
    for path in dict.fromkeys(paths):
        if not os.path.lexists(path):
            continue
        try:
            data = read_start(path, limit=MAX_BYTES)
        except InputError as error:
            unread[path] = error
            continue
        lines = read(data, str(path), run_id=run_id, known=known)
        for signed in lines.signed:
            found[signed.gist] = _earlier(found.get(signed.gist, signed), signed)
        unheard |= lines.unheard
        if lines.problems:
            unread[path] = InputError(*lines.problems)
    return Stated(tuple(found.values()), len(unheard - found.keys()), tuple(unread.items()))


def strays(paths: Iterable[Path], subjects: Iterable[Path]) -> Iterator[tuple[Path, InputError]]:
    """Yield files of statements beside nothing: whoever moves a run does not get rid of them.

    Args:
        paths: the files of statements.
        subjects: the runs and commitments that were read, which statements can be about.
    """
    attended = {path_beside(subject) for subject in subjects}
    for path in paths:
        if path not in attended:
            wanted = f"{path.name.removesuffix(ENDING)}.json beside it, a run that is valid"
            what = "has statements about a run that is not there"
            remedy = "Move it to its run, whatever that is called now."
            yield path, InputError(Problem(what, file=str(path), expected=wanted, remedy=remedy))


def append(path: Path, line: bytes) -> None:
    """Add the line of a statement, with its end, to a file, which is made where there is none.

    The file is as it was or has the whole line, whatever ends the process; of two processes that
    append at once, both lines are in it. What is there stays byte by byte, bad lines too; one that
    was cut gets its end first.

    Raises:
        InputError: the file cannot be read, or the line would be a bad one in it, or behind what is
            read.
        OSError: it cannot be written.
    """
    signed = parse(line, str(path))
    hearing = _Hearing(str(path), signed.run_id, {signed.keyid})
    with locked(path.parent):
        there = read_start(path, limit=MAX_BYTES) if os.path.lexists(path) else b""
        if there and not there.endswith(b"\n"):
            there += b"\n"
        if len(there) + len(line) > MAX_BYTES:
            raise InputError(
                Problem(
                    "has no room for one more line",
                    file=str(path),
                    expected=f"at most {MAX_BYTES:,} bytes",
                    remedy=_TAKE_OUT,
                )
            )
        lines = there.split(b"\n")[:-1]
        for number, each in enumerate(lines, start=1):
            if _is_whole(each):
                with suppress(InputError):
                    hearing.hear(each, number)
        hearing.hear(line.removesuffix(b"\n"), len(lines) + 1)
        put(path, there + line)


class _Hearing:
    """Takes the lines of one file, each as it comes."""

    def __init__(self, source: str, run_id: str, known: Collection[str]) -> None:
        self.signed: list[Signed] = []
        self.unheard: set[bytes] = set()
        self._source = source
        self._run_id = run_id
        self._known = known
        self._first: dict[bytes, int] = {}
        self._places: dict[bytes, int] = {}
        self._said: Counter[str | None] = Counter()

    def hear(self, line: bytes, number: int) -> None:
        """Take a line.

        Raises:
            InputError: it is bad, and as if it were not there.
        """
        try:
            self._hear(line, number)
        except InputError as error:
            raise InputError(*(replace(p, line=number) for p in error.problems)) from error

    def _hear(self, line: bytes, number: int) -> None:
        if not _is_whole(line):
            what = "is no statement, or was cut"
            raise InputError(Problem(what, file=self._source, found=f"{len(line):,} bytes"))
        signed = parse(line, self._source)
        if signed.run_id != self._run_id:
            raise InputError(
                Problem(
                    "is about another run",
                    file=self._source,
                    field="subject.0.digest.sha256",
                    found=signed.run_id,
                    expected=self._run_id,
                )
            )
        gist = signed.gist
        if gist in self._first:
            self._keep_earlier(signed, gist)
            raise InputError(
                Problem(
                    "says what the same key has said before",
                    file=self._source,
                    found=f"{signed.kind} by {signed.keyid}, as in line {self._first[gist]}",
                )
            )
        is_known = signed.keyid in self._known
        key = signed.keyid if is_known else None
        is_more = self._said[key] >= (MAX_LINES if is_known else MAX_UNKNOWN)
        if is_more and is_known:
            raise InputError(
                Problem(
                    f"is one more line of {signed.keyid} than is read",
                    file=self._source,
                    expected=f"at most {MAX_LINES}",
                )
            )
        self._first[gist] = number
        self._said[key] += 1
        if is_more:
            self.unheard.add(gist)
        else:
            self._places[gist] = len(self.signed)
            self.signed.append(signed)

    def _keep_earlier(self, signed: Signed, gist: bytes) -> None:
        """Put a statement in the place of one that says the same and is dated later."""
        if (place := self._places.get(gist)) is not None:
            self.signed[place] = _earlier(self.signed[place], signed)


def _earlier(one: Signed, other: Signed) -> Signed:
    return min(one, other, key=lambda signed: (signed.made, signed.digest))


def _is_whole(line: bytes) -> bool:
    return len(line) >= _SHORTEST_LINE and line.endswith(_LINE_END)
