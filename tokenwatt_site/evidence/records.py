"""One record per request: what the client saw of it, and the format it is kept in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from tokenwatt_site.canonical import JsonValue, canonical_bytes
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.columns import checked, decode, expect, line_of, require_format

# History of the format. 1: first. 2: when a connection was dialled for and ready.
REQUESTS_FORMAT = "tokenwatt/requests/2"


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
        return b"".join(line_of(self._row(record)) for record in records)

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


_STATUS_BY_CODE = {int(status): status for status in Status}


def encode_requests(records: Iterable[RequestRecord]) -> bytes:
    """Return the uncompressed evidence bytes of `records`, in the order given."""
    writer = RequestWriter()
    return writer.header() + writer.lines(records)


def decode_requests(data: bytes, *, source: str) -> tuple[RequestRecord, ...]:
    """Read what `encode_requests` wrote.

    Raises:
        InputError: another format, a wrong number of columns, or a value that is no integer.
    """
    header, rows = decode(data, source)
    require_format(header, REQUESTS_FORMAT, source)
    expect(header, {"format": REQUESTS_FORMAT, "columns": list(_REQUEST_COLUMNS)}, source)
    records = []
    trial, previous = None, 0
    nullable = {4, 5, 6, 7, 8, 11, 12, 14, 15}
    for line, row in checked(rows, len(_REQUEST_COLUMNS), nullable, source):
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
