"""The shape of a file of evidence: a header in JSON, then rows of integers.

Every row is an array of integers (null = not seen), most of them differences, so that 45,000
requests fit in about 1.7 MB once packed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from pydantic import ValidationError

from tokenwatt_site.canonical import JsonValue, canonical_bytes, load_json
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.schema import Model, valid, validation_problems

MAX_LINE_BYTES = 1 << 20
MAX_ROWS = 2_000_000
"""More than 60 boards tell in nine hours, once a second."""

_COMPACT = json.JSONEncoder(separators=(",", ":"))
_SORTED = json.JSONEncoder(separators=(",", ":"), sort_keys=True, ensure_ascii=False)
_CHUNK_BYTES = 1 << 16
# Short integers: what is in range is seen from their length, and none has a second spelling.
PLAIN_INTEGER = rb"(?:0|-?[1-9][0-9]{0,14})"
_PLAIN = re.compile(rb"(?:\[(?:null|%b)(?:,(?:null|%b))*+\]\n)*+" % ((PLAIN_INTEGER,) * 2))


def encode(header: JsonValue, rows: Iterable[list[int | None]]) -> bytes:
    return canonical_bytes(header) + b"\n" + b"".join(map(line_of, rows))


def timed_rows(samples: Iterable[Any], columns: Sequence[str]) -> Iterator[list[int | None]]:
    """Yield the row of each sample: how long after the one before, then what `columns` name.

    `columns` are those of the header; the first is of `at_ns`, the others are attributes.
    """
    told = attrgetter(*columns[1:])
    previous = 0
    for sample in samples:
        yield [sample.at_ns - previous, *told(sample)]
        previous = sample.at_ns


def line_of(row: list[int | None]) -> bytes:
    return _COMPACT.encode(row).encode() + b"\n"


def decode(data: bytes, source: str) -> tuple[JsonValue, Iterator[tuple[int, list[int]]]]:
    header, start = _begin(data, source, most=MAX_ROWS, counted="rows")
    if not isinstance(header, dict):
        raise InputError(Problem("the first line is no header", file=source, line=1))
    return header, json_lines(data, start, _PLAIN, source=source, limit=MAX_LINE_BYTES)


def _begin(data: bytes, source: str, *, most: int, counted: str) -> tuple[JsonValue, int]:
    """Return the header of a whole file, and where its second line begins."""
    if not data.endswith(b"\n"):
        raise InputError(Problem("the last line is cut", file=source))
    if (found := data.count(b"\n") - 1) > most:
        raise InputError(
            Problem(
                f"has more {counted} than are read",
                file=source,
                found=f"{found:,}",
                expected=f"at most {most:,}",
            )
        )
    start = data.index(b"\n") + 1
    return load_json(data[: start - 1], source=f"{source}:1", limit=MAX_LINE_BYTES), start


def json_lines(
    data: bytes, start: int, plain: re.Pattern[bytes], *, source: str, limit: int
) -> Iterator[tuple[int, JsonValue]]:
    """Yield the number and the value of every line of JSON from the second on.

    What `plain` matches is read in bulk: it takes a tenth of the time of a strict load by line. All
    else is loaded strictly, line by line.

    Args:
        data: a whole file; it ends with a line feed.
        start: where its second line begins.
        plain: matches whole lines that every reader of JSON understands in the same way.
        source: name of the file, for errors.
        limit: longest line that is read, in bytes.

    Raises:
        InputError: see `canonical.load_json`.
    """
    number = 2
    while start < len(data):
        end = data.find(b"\n", start + _CHUNK_BYTES) + 1 or len(data)
        chunk = data[start:end]
        values: Iterable[JsonValue]
        if end - start <= 2 * _CHUNK_BYTES and plain.fullmatch(chunk):
            values = json.loads(b"[%b]" % chunk[:-1].replace(b"\n", b","))
        else:
            values = (
                load_json(line, source=f"{source}:{each}", limit=limit)
                for each, line in enumerate(chunk[:-1].split(b"\n"), start=number)
            )
        for value in values:
            yield number, value
            number += 1
        start = end


Header = TypeVar("Header", bound=Model)
Object = TypeVar("Object", bound=Model)


def encode_objects(header: Model, objects: Iterable[Model]) -> bytes:
    """Return a header and one line of canonical JSON for each object.

    No field is a fraction, and no key but a name of ours: so this is RFC 8785, in a tenth of the
    time of `canonical_bytes`.
    """
    return b"".join(_object_line(each) + b"\n" for each in (header, *objects))


def _object_line(each: Model) -> bytes:
    return _SORTED.encode(each.to_json()).encode()


def read_objects(
    model: type[Object],
    data: bytes,
    *,
    source: str,
    most: int,
    limit: int,
    plain: re.Pattern[bytes] | None = None,
) -> tuple[JsonValue, Iterator[tuple[int, Object]]]:
    """Return the header of what `encode_objects` wrote, and the objects with their lines.

    Each line must be the one that `encode_objects` writes, so that what is read has one form.

    Args:
        model: what each object is.
        data: a whole file.
        source: name of the file, for errors.
        most: how many objects are read.
        limit: longest line that is read, in bytes.
        plain: matches lines of the form that is written: every key once, whole numbers with one
            spelling, strings without needless escapes. They are spared the strict load, which takes
            ten times as long; what characters a string may have is then for `model` to say.

    Raises:
        InputError: naming the line, and the field where there is one.
    """
    header, start = _begin(data, source, most=most, counted="lines")

    def objects() -> Iterator[tuple[int, Object]]:
        for number, line in enumerate(data[start:].split(b"\n")[:-1], start=2):
            place = f"{source}:{number}"
            known = plain is not None and len(line) <= limit and plain.fullmatch(line)
            if not known:
                load_json(line, source=place, limit=limit)
            try:
                found = model.model_validate_json(line)
            except ValidationError as error:
                raise InputError(*validation_problems(error, source=place)) from error
            if not (known and line.isascii()) and _object_line(found) != line:
                raise InputError(
                    Problem("is not in canonical form", file=place, expected="RFC 8785, all fields")
                )
            yield number, found

    return header, objects()


def read_header(model: type[Header], raw: JsonValue, name: str, source: str) -> Header:
    """Return the first line of a file, which is of the format `name`.

    Raises:
        InputError: it is of another format, or a field is not what the format has there.
    """
    require_format(raw, name, source)
    return valid(model, raw, f"{source}:1")


def require_format(header: JsonValue, name: str, source: str) -> None:
    """Refuse a file of another format, and say what to do.

    Raises:
        InputError: with both names.
    """
    found = header.get("format") if isinstance(header, dict) else None
    if found != name:
        raise InputError(
            Problem(
                "has a format that this version does not read",
                file=source,
                line=1,
                field="format",
                found=repr(found)[:80],
                expected=repr(name),
                remedy="Read it with the version that wrote it, or measure again with this one.",
            )
        )


def expect(found: JsonValue, expected: JsonValue, source: str) -> None:
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


def checked(
    rows: Iterable[tuple[int, JsonValue]], width: int, nullable: set[int], source: str
) -> Iterator[tuple[int, list[Any]]]:
    """Yield rows, each an array of so many integers, or null in the columns that may be.

    Raises:
        InputError: the first row that is none, and the column where there is one.
    """
    # Of a hundred thousand rows there are a few kinds: each is looked at once.
    known: set[tuple[type, ...]] = set()
    for line, row in rows:
        kinds = tuple(map(type, row)) if isinstance(row, list) else ()
        if kinds not in known:
            _check_row(row, width, nullable, source, line)
            known.add(kinds)
        yield line, row


def _check_row(row: JsonValue, width: int, nullable: set[int], source: str, line: int) -> None:
    if not isinstance(row, list) or len(row) != width:
        raise InputError(Problem(f"is no array of {width} values", file=source, line=line))
    for column, value in enumerate(row):
        if type(value) is not int and not (value is None and column in nullable):
            raise InputError(
                Problem(f"column {column} is no integer", file=source, line=line, found=repr(value))
            )
