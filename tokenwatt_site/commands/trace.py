"""`spec trace`: a trace from elsewhere as one of ours, with what a spec says of it.

Read are our own format, the Azure LLM inference traces (CSV: TIMESTAMP, ContextTokens,
GeneratedTokens) and the Mooncake traces (JSONL: timestamp in ms, input_length, output_length).
Prefixes that prompts shared, which Mooncake tells as hash_ids, have no place in ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from tokenwatt_site.canonical import load_json, read_file
from tokenwatt_site.commands.output import require_absent, write_new
from tokenwatt_site.errors import Problem, UsageError
from tokenwatt_site.evidence.columns import MAX_LINE_BYTES
from tokenwatt_site.spec import MAX_ROWS
from tokenwatt_site.trace import (
    MAX_ARRIVAL_S,
    Trace,
    TraceLine,
    checked,
    encode,
    parse,
    read_lines,
    refuse,
    token_count,
)
from tokenwatt_site.workload import Workload

MAX_SOURCE_BYTES = 64 << 20

_AZURE = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]
_MOONCAKE = {"timestamp", "input_length", "output_length"}
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:\+00:00)?")


@dataclass(frozen=True, slots=True)
class Written:
    """The file that was written, the trace in it, and the workload that it is."""

    path: Path
    trace: Trace
    workload: Workload

    @property
    def summary(self) -> tuple[str, ...]:
        """Lines for a person."""
        trace, rows = self.trace, len(self.trace.requests)
        told = [
            f"{rows:,} rows, {trace.duration_ns / 1e9:,.1f} s, {trace.mean_rate:.3f} requests/s"
        ]
        for name, lengths in (
            ("input", trace.lengths("input_tokens")),
            ("output", trace.lengths("output_tokens")),
        ):
            told.append(
                f"{name} tokens: median {lengths.median:,}, p90 {lengths.p90:,},"
                f" {lengths.min:,} to {lengths.max:,}"
            )
        return tuple(told)

    @property
    def spec_lines(self) -> str:
        """The lines of a spec that play this trace, as YAML."""
        fields = {"input_tokens": self.workload.input_tokens}
        fields["output_tokens"] = self.workload.output_tokens
        lengths = "".join(
            f"  {name}: {{{', '.join(f'{k}: {v}' for k, v in value.to_json().items())}}}\n"
            for name, value in fields.items()
        )
        return (
            f"trace: {self.path.name}\n"
            "setup:\n"
            "  workload:\n"
            f"    name: {self.workload.name}\n"
            f"    version: {self.workload.version}\n"
            f'    hash: "{self.workload.hash}"\n'
            f"{lengths}"
            "  arrival: trace"
        )


def convert(source: Path, out: Path) -> Written:
    """Read a trace in any of the formats and write it as ours, from its first arrival on.

    Args:
        source: the file to read.
        out: the file to write; never overwritten. Its name is the workload's.

    Raises:
        UsageError: `out` is there already, or is no name for a trace.
        InputError: naming the line and the field that is wrong.
        EnvironmentProblem: `out` cannot be written.
    """
    name = re.sub(r"[^a-z0-9]+", "-", out.stem.lower()).strip("-")[:64]
    if out.suffix != ".jsonl" or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", out.name):
        raise UsageError(
            Problem(
                "is not a name for a trace",
                field="--out",
                found=str(out),
                expected="a name in .jsonl of letters, digits, dot, dash and underscore",
            )
        )
    require_absent(out)
    data = encode(_requests(read_file(source, limit=MAX_SOURCE_BYTES), str(source)))
    # Read back: what is written is what a spec accepts.
    trace = parse(data, source=str(out))
    write_new(out, data)
    lengths = trace.lengths("input_tokens"), trace.lengths("output_tokens")
    return Written(out, trace, Workload(name or "trace", 1, *lengths, trace=trace))


def _requests(data: bytes, source: str) -> tuple[TraceLine, ...]:
    first = data.split(b"\n", 1)[0]
    if first.rstrip(b"\r") == ",".join(_AZURE).encode():
        return checked(_azure(data, source), source=source, first_line=2)
    if first.startswith(b"{") and _is_mooncake(first, source):
        return checked(_mooncake(data, source), source=source)
    return read_lines(data, source=source)


def _azure(data: bytes, source: str) -> Iterator[TraceLine]:
    rows = _lines(data, source)
    next(rows)
    for number, raw in rows:
        line = raw.decode("ascii", "replace")
        cells = line.split(",")
        match = _TIMESTAMP.fullmatch(cells[0]) if len(cells) == len(_AZURE) else None
        if match is None:
            _not_as_written(
                source, number, "TIMESTAMP", line, "2023-11-16 18:17:03.9799600,4808,10"
            )
        try:
            second = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
        except ValueError:
            _not_as_written(source, number, "TIMESTAMP", cells[0], "a date and a time")
        since_epoch = second - datetime(1970, 1, 1, tzinfo=UTC)
        whole = since_epoch.days * 86_400 + since_epoch.seconds
        counts = [int(cell) if re.fullmatch(r"\d{1,8}", cell) else None for cell in cells[1:]]
        yield TraceLine(
            whole * 10**9 + int((match[2] or "").ljust(9, "0")),
            token_count(counts[0], source, number, _AZURE[1]),
            token_count(counts[1], source, number, _AZURE[2]),
        )


def _is_mooncake(first: bytes, source: str) -> bool:
    value = load_json(first, source=source, limit=MAX_LINE_BYTES)
    return set(value) - {"hash_ids"} == _MOONCAKE


def _mooncake(data: bytes, source: str) -> Iterator[TraceLine]:
    for number, line in _lines(data, source):
        value = load_json(line, source=f"{source}:{number}", limit=MAX_LINE_BYTES)
        if not isinstance(value, dict) or not set(value) >= _MOONCAKE:
            _not_as_written(source, number, "keys", repr(value), ", ".join(sorted(_MOONCAKE)))
        stamp = value["timestamp"]
        if type(stamp) is not int or not 0 <= stamp <= MAX_ARRIVAL_S * 1000:
            _not_as_written(source, number, "timestamp", repr(stamp), "whole milliseconds")
        yield TraceLine(
            stamp * 10**6,
            token_count(value["input_length"], source, number, "input_length"),
            token_count(value["output_length"], source, number, "output_length"),
        )


def _lines(data: bytes, source: str) -> Iterator[tuple[int, bytes]]:
    lines = data.replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n")
    if len(lines) > MAX_ROWS + 1:
        refuse(
            "has more lines than a trace may have",
            source,
            found=f"{len(lines):,}",
            expected=f"at most {MAX_ROWS:,}",
            remedy=f"Cut it: head -n {MAX_ROWS} FILE.",
        )
    return enumerate(lines, start=1)


def _not_as_written(source: str, line: int, field: str, found: str, expected: str) -> NoReturn:
    refuse("is not as its format has it", source, line, field, found=found[:120], expected=expected)
