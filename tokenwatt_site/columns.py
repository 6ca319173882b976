"""The shape of a file of evidence: a header in JSON, then rows of integers.

Every row is an array of integers (null = not seen), most of them differences, so that 45,000
requests fit in about 1.7 MB once packed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from tokenwatt_site.canonical import JsonValue, canonical_bytes, load_json
from tokenwatt_site.errors import InputError, Problem

MAX_LINE_BYTES = 1 << 20


def encode(header: JsonValue, rows: Iterable[list[int | None]]) -> bytes:
    return canonical_bytes(header) + b"\n" + b"".join(map(line_of, rows))


def line_of(row: list[int | None]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def decode(data: bytes, source: str) -> tuple[JsonValue, Iterator[tuple[int, list[int]]]]:
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


def check_row(row: JsonValue, width: int, nullable: set[int], source: str, line: int) -> None:
    if not isinstance(row, list) or len(row) != width:
        raise InputError(Problem(f"is no array of {width} values", file=source, line=line))
    for column, value in enumerate(row):
        if type(value) is not int and not (value is None and column in nullable):
            raise InputError(
                Problem(f"column {column} is no integer", file=source, line=line, found=repr(value))
            )
