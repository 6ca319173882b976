"""What was seen: one record per request, power samples. All numbers are derived from these formats.

A file of evidence is gzip'd JSONL. The first line is an object that names the format and its
columns; every further line is an array of integers (null = not seen), most of them differences, so
that 45,000 requests fit in about 1.7 MB. Its address is the SHA-256 of the uncompressed bytes:
gzip output differs between zlib builds.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from tokenwatt_site.canonical import (
    JsonValue,
    canonical_bytes,
    load_json,
    read_file,
    sha256_hex,
)
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.files import put
from tokenwatt_site.schema import Line, Model, Sha256

REQUESTS_FORMAT = "tokenwatt/requests/2"
POWER_FORMAT = "tokenwatt/power/1"

MAX_COMPRESSED_BYTES = 64 << 20
MAX_EVIDENCE_BYTES = 512 << 20
MAX_LINE_BYTES = 1 << 20


class Status(IntEnum):
    """How a request ended. Everything but OK misses every objective; CENSORED is undecided."""

    OK = 0
    HTTP_ERROR = 1
    STREAM_ERROR = 2
    DISCONNECTED = 3
    TIMED_OUT = 4
    NO_USAGE = 5
    SHORT_OUTPUT = 6
    NOT_SENT = 7
    CENSORED = 8


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request of one trial. All `_ns` count from the start of its trial, on one clock.

    `due_ns` is the scheduled arrival, from which TTFT counts. `dialled_ns` is when a connection was
    opened for it and `connected_ns` when that was ready, TLS included; both are None where an open
    one was there, as is usual. `sent_ns` is just before its first byte was sent. `end_ns` is when
    the request ended or, when CENSORED, when we stopped looking. `first_tokens` is how many tokens
    the first event carried. `uncertainty_ns` bounds the error of `first_ns`: how long the bytes may
    have waited.
    """

    repeat: int
    trial: int
    row: int
    due_ns: int
    dialled_ns: int | None
    connected_ns: int | None
    sent_ns: int | None
    first_ns: int | None
    last_ns: int | None
    end_ns: int
    prompt_asked: int
    prompt_tokens: int | None
    cached_tokens: int | None
    output_asked: int
    output_tokens: int | None
    first_tokens: int | None
    events: int
    uncertainty_ns: int
    status: Status


@dataclass(frozen=True, slots=True)
class PowerSample:
    """One reading of one board. `at_ns` is on the clock of the journal's `epoch_ns`."""

    at_ns: int
    board: int
    power_mw: int | None
    energy_mj: int | None


class Board(Model):
    """A board whose power was read; `limit_mw` is the limit enforced at the start."""

    uuid: str
    name: str
    limit_mw: int | None


class _PowerHeader(Model):
    format: Literal["tokenwatt/power/1"]
    columns: tuple[str, ...]
    sensor: Line
    scope: Line
    boards: tuple[Board, ...]


@dataclass(frozen=True, slots=True)
class PowerLog:
    sensor: str
    scope: str
    boards: tuple[Board, ...]
    samples: tuple[PowerSample, ...]


_REQUEST_COLUMNS = (
    "repeat",
    "trial",
    "row",
    "due_ns-previous_due_ns",
    "dialled_ns-due_ns",
    "connected_ns-dialled_ns",
    "sent_ns-due_ns",
    "first_ns-due_ns",
    "last_ns-first_ns",
    "end_ns-due_ns",
    "prompt_asked",
    "prompt_tokens",
    "cached_tokens",
    "output_asked",
    "output_tokens",
    "first_tokens",
    "events",
    "uncertainty_ns",
    "status",
)
_POWER_COLUMNS = ("at_ns-previous_at_ns", "board", "power_mw", "energy_mj")


class RequestWriter:
    """Writes records as they come, all of them in one file."""

    def __init__(self) -> None:
        self._trial: tuple[int, int] | None = None
        self._previous_ns = 0

    def header(self) -> bytes:
        """Return the first line."""
        header: JsonValue = {"format": REQUESTS_FORMAT, "columns": list(_REQUEST_COLUMNS)}
        return canonical_bytes(header) + b"\n"

    def lines(self, records: Iterable[RequestRecord]) -> bytes:
        """Return the lines of the next records."""
        return b"".join(_line(self._row(record)) for record in records)

    def _row(self, r: RequestRecord) -> list[int | None]:
        if (r.repeat, r.trial) != self._trial:
            self._trial, self._previous_ns = (r.repeat, r.trial), 0
        row = [
            r.repeat,
            r.trial,
            r.row,
            r.due_ns - self._previous_ns,
            _less(r.dialled_ns, r.due_ns),
            _less(r.connected_ns, r.dialled_ns),
            _less(r.sent_ns, r.due_ns),
            _less(r.first_ns, r.due_ns),
            _less(r.last_ns, r.first_ns),
            r.end_ns - r.due_ns,
            r.prompt_asked,
            r.prompt_tokens,
            r.cached_tokens,
            r.output_asked,
            r.output_tokens,
            r.first_tokens,
            r.events,
            r.uncertainty_ns,
            int(r.status),
        ]
        self._previous_ns = r.due_ns
        return row


def encode_requests(records: Iterable[RequestRecord]) -> bytes:
    """Return the uncompressed evidence bytes of `records`, in the order given."""
    writer = RequestWriter()
    return writer.header() + writer.lines(records)


def decode_requests(data: bytes, *, source: str) -> tuple[RequestRecord, ...]:
    """Read what `encode_requests` wrote.

    Raises:
        InputError: another format, a wrong number of columns, or a value that is no integer.
    """
    header, rows = _decode(data, source)
    _expect(header, {"format": REQUESTS_FORMAT, "columns": list(_REQUEST_COLUMNS)}, source)
    records = []
    trial, previous = None, 0
    nullable = {4, 5, 6, 7, 8, 11, 12, 14, 15}
    for line, row in rows:
        _check_row(row, len(_REQUEST_COLUMNS), nullable, source, line)
        if (row[0], row[1]) != trial:
            trial, previous = (row[0], row[1]), 0
        due = previous + row[3]
        dialled, first = _plus(due, row[4]), _plus(due, row[7])
        if row[18] not in _STATUS_BY_CODE:
            raise InputError(Problem(f"unknown status {row[18]}", file=source, line=line))
        if row[8] is not None and first is None:
            raise InputError(Problem("a last token without a first", file=source, line=line))
        if row[5] is not None and dialled is None:
            raise InputError(Problem("connected without being dialled", file=source, line=line))
        records.append(
            RequestRecord(
                repeat=row[0],
                trial=row[1],
                row=row[2],
                due_ns=due,
                dialled_ns=dialled,
                connected_ns=_plus(dialled, row[5]),
                sent_ns=_plus(due, row[6]),
                first_ns=first,
                last_ns=_plus(first, row[8]),
                end_ns=due + row[9],
                prompt_asked=row[10],
                prompt_tokens=row[11],
                cached_tokens=row[12],
                output_asked=row[13],
                output_tokens=row[14],
                first_tokens=row[15],
                events=row[16],
                uncertainty_ns=row[17],
                status=_STATUS_BY_CODE[row[18]],
            )
        )
        previous = due
    return tuple(records)


def _less(value: int | None, base: int | None) -> int | None:
    return None if value is None or base is None else value - base


def _plus(base: int | None, difference: int | None) -> int | None:
    return None if base is None or difference is None else base + difference


def encode_power(log: PowerLog) -> bytes:
    """Return the uncompressed evidence bytes of a power log."""

    def rows() -> Iterator[list[int | None]]:
        previous = 0
        for s in log.samples:
            yield [s.at_ns - previous, s.board, s.power_mw, s.energy_mj]
            previous = s.at_ns

    header = {
        "format": POWER_FORMAT,
        "columns": list(_POWER_COLUMNS),
        "sensor": log.sensor,
        "scope": log.scope,
        "boards": [board.to_json() for board in log.boards],
    }
    return _encode(header, rows())


def decode_power(data: bytes, *, source: str) -> PowerLog:
    """Read what `encode_power` wrote.

    Raises:
        InputError: another format, or a sample of a board that the header does not name.
    """
    raw, rows = _decode(data, source)
    try:
        header = _PowerHeader.model_validate_json(canonical_bytes(raw))
    except ValidationError as error:
        raise InputError(
            Problem("the first line is no power header", file=source, line=1)
        ) from error
    _expect(list(header.columns), list(_POWER_COLUMNS), source)
    samples = []
    previous = 0
    for line, row in rows:
        _check_row(row, len(_POWER_COLUMNS), {2, 3}, source, line)
        previous += row[0]
        if not 0 <= row[1] < len(header.boards):
            raise InputError(
                Problem(f"board {row[1]} is not in the header", file=source, line=line)
            )
        samples.append(PowerSample(previous, row[1], row[2], row[3]))
    return PowerLog(header.sensor, header.scope, header.boards, tuple(samples))


class EvidenceFile(Model):
    """The entry of a run file that points at a piece of evidence. `bytes` are uncompressed."""

    role: Line
    path: str
    sha256: Sha256
    bytes: Annotated[int, Field(ge=0, le=MAX_EVIDENCE_BYTES)]
    lines: Annotated[int, Field(ge=0)]


def store(folder: Path, role: str, data: bytes) -> EvidenceFile:
    """Write `data` under its own digest into `folder` (made when absent), whole or not at all.

    Raises:
        OSError: the disk is full or not writable.
    """
    name = f"{sha256_hex(data)}.jsonl.gz"
    folder.mkdir(parents=True, exist_ok=True)
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    put(folder / name, compressor.compress(data) + compressor.flush())
    return EvidenceFile(
        role=role,
        path=f"evidence/{name}",
        sha256=sha256_hex(data),
        bytes=len(data),
        lines=data.count(b"\n"),
    )


def fetch(run_folder: Path, entry: EvidenceFile) -> bytes:
    """Return the uncompressed bytes of `entry`, checked against its digest, size and line count.

    Raises:
        InputError: the file is absent, no regular file, inflates beyond its stated size, has
            bytes after the gzip member, or is not what the entry says.
    """
    expected_path = f"evidence/{entry.sha256}.jsonl.gz"
    if entry.path != expected_path:
        # The address is the digest: nothing a run says can point outside its own folder.
        raise InputError(
            Problem(
                "is not the address of its digest",
                field=f"evidence.{entry.role}.path",
                found=repr(entry.path[:200]),
                expected=repr(expected_path),
                remedy=_UNCHANGED,
            )
        )
    path = run_folder / "evidence" / f"{entry.sha256}.jsonl.gz"
    if path.parent.is_symlink():
        raise InputError(Problem("is a symbolic link", file=str(path.parent)))
    packed = read_file(path, limit=MAX_COMPRESSED_BYTES)
    inflater = zlib.decompressobj(31)
    try:
        data = inflater.decompress(packed, entry.bytes + 1)
        whole = inflater.eof and not inflater.unused_data and not inflater.unconsumed_tail
    except zlib.error as error:
        raise InputError(Problem(f"is not gzip: {error}", file=str(path))) from error
    if len(data) != entry.bytes or not whole:
        raise InputError(
            Problem(
                "does not inflate to the stated size",
                file=str(path),
                field=f"evidence.{entry.role}.bytes",
                found=f"{len(data):,} bytes{'' if whole else ' and more'}",
                expected=f"{entry.bytes:,} bytes",
                remedy=_UNCHANGED,
            )
        )
    if (found := sha256_hex(data)) != entry.sha256:
        raise InputError(
            Problem(
                "has another digest",
                file=str(path),
                field=f"evidence.{entry.role}.sha256",
                found=found,
                expected=entry.sha256,
                remedy=_UNCHANGED,
            )
        )
    if (lines := data.count(b"\n")) != entry.lines:
        raise InputError(
            Problem(
                "has another number of lines",
                file=str(path),
                field=f"evidence.{entry.role}.lines",
                found=str(lines),
                expected=str(entry.lines),
                remedy=_UNCHANGED,
            )
        )
    return data


_UNCHANGED = "Publish the run file and its evidence as `measure` wrote them."

_STATUS_BY_CODE = {int(status): status for status in Status}


def _encode(header: JsonValue, rows: Iterable[list[int | None]]) -> bytes:
    return canonical_bytes(header) + b"\n" + b"".join(map(_line, rows))


def _line(row: list[int | None]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def _decode(data: bytes, source: str) -> tuple[JsonValue, Iterator[tuple[int, list[int]]]]:
    if not data.endswith(b"\n"):
        raise InputError(Problem("the last line is cut", file=source))
    lines = data[:-1].split(b"\n")
    header = load_json(lines[0], source=f"{source}:1", limit=MAX_LINE_BYTES)
    if not isinstance(header, dict):
        raise InputError(Problem("the first line is no header", file=source, line=1))

    def rows() -> Iterator[tuple[int, list[int]]]:
        for number, line in enumerate(lines[1:], start=2):
            yield number, load_json(line, source=f"{source}:{number}", limit=MAX_LINE_BYTES)

    return header, rows()


def _expect(found: JsonValue, expected: JsonValue, source: str) -> None:
    if found != expected:
        raise InputError(
            Problem(
                "another format",
                file=source,
                line=1,
                found=repr(found)[:200],
                expected=repr(expected),
            )
        )


def _check_row(row: JsonValue, width: int, nullable: set[int], source: str, line: int) -> None:
    if not isinstance(row, list) or len(row) != width:
        raise InputError(Problem(f"is no array of {width} values", file=source, line=line))
    for column, value in enumerate(row):
        if type(value) is not int and not (value is None and column in nullable):
            raise InputError(
                Problem(f"column {column} is no integer", file=source, line=line, found=repr(value))
            )
