"""A split of a data set that others made: a .jsonl file, one row a line.

Unlike a file of ours, its text may hold any character: it is read as the harness would have it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

from tokenwatt_site.canonical import JsonValue, read_file
from tokenwatt_site.errors import InputError, Problem

MAX_SPLIT_BYTES = 1 << 30


def read_split(path: Path) -> list[dict[str, JsonValue]]:
    """Read the rows of a split, all with the same fields.

    Raises:
        InputError: it cannot be read, or naming the line that is no such row.
    """
    try:
        data = read_file(path, limit=MAX_SPLIT_BYTES)
    except InputError as error:
        raise InputError(
            Problem(
                str(error),
                field="accuracy.data",
                remedy="Each split of the task is a file there, SPLIT.jsonl.",
            )
        ) from error
    rows: list[dict[str, JsonValue]] = []
    # Not splitlines: a string may hold what that takes for the end of a line.
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            row = json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            _refuse(path, number, f"is not valid JSON: {error}")
        if not isinstance(row, dict) or not row:
            _refuse(path, number, "is no object with fields")
        if rows and set(row) != set(rows[0]):
            _refuse(path, number, "has other fields than line 1")
        rows.append(row)
    return rows


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _refuse(path: Path, number: int, what: str) -> NoReturn:
    raise InputError(Problem(what, file=str(path), line=number))
