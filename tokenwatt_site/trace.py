"""A trace: when requests came and how long they were, as JSONL. The file's bytes are its identity.

One object a line, with exactly these keys: `arrival_s`, seconds since the first line (so that the
first is 0, and none is less than the one before it), `input_tokens` and `output_tokens`. Every line
ends with a line feed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Literal, NamedTuple, NoReturn

from tokenwatt_site.canonical import JsonValue, load_json, sha256_hex
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.lengths import MAX_TOKENS, Traced
from tokenwatt_site.spec import MAX_ROWS

MAX_TRACE_BYTES = 8 << 20
MAX_ARRIVAL_S = 1_000_000
"""About 11 days: up to here a JSON number tells nanoseconds exactly."""

_MAX_LINE_BYTES = 1000
_KEYS = ("arrival_s", "input_tokens", "output_tokens")
_NS = 10**9


class TraceLine(NamedTuple):
    """One line of a trace, its arrival in ns since the first."""

    arrival_ns: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace that was read; `data` are the bytes it was read from. Two lines at least."""

    data: bytes
    requests: tuple[TraceLine, ...]

    @property
    def sha256(self) -> str:
        return sha256_hex(self.data)

    @property
    def duration_ns(self) -> int:
        """From the first arrival to the last; above 0."""
        return self.requests[-1].arrival_ns

    @property
    def mean_rate(self) -> float:
        """Requests per second of the trace itself."""
        return float(Fraction((len(self.requests) - 1) * _NS, self.duration_ns))

    def pace(self, part: range) -> Fraction | None:
        """Return the rate of the arrivals in `part` of the lines / that of the whole trace.

        None where it has no two arrivals apart.
        """
        span_ns = self._span_ns(part)
        mean_gap_ns = Fraction(self.duration_ns, len(self.requests) - 1)
        return (len(part) - 1) * mean_gap_ns / span_ns if span_ns else None

    def gaps(self, unit: int, part: range, mean: range) -> tuple[int, ...]:
        """Return the gaps before the lines of `part`, in 1/unit of the mean gap within `mean`.

        The first is 0: what was before it is no load. Arrivals are scaled, rounded down and
        subtracted, so that no rounding adds up. `mean` has two arrivals apart; see `pace`.
        """
        span_ns, intervals = self._span_ns(mean), len(mean) - 1
        arrivals = (self.requests[line].arrival_ns for line in part)
        at = [arrival_ns * intervals * unit // span_ns for arrival_ns in arrivals]
        return (0, *(b - a for a, b in pairwise(at)))

    def _span_ns(self, part: range) -> int:
        return self.requests[part[-1]].arrival_ns - self.requests[part[0]].arrival_ns

    def lengths(self, which: Literal["input_tokens", "output_tokens"]) -> Traced:
        """Return what a setup says of the prompts or the answers of this trace."""
        tokens = sorted(getattr(request, which) for request in self.requests)
        n = len(tokens)
        return Traced(
            kind="trace",
            median=tokens[(n + 1) // 2 - 1],
            p90=tokens[-(-9 * n // 10) - 1],
            min=tokens[0],
            max=tokens[-1],
        )


def parse(data: bytes, *, source: str) -> Trace:
    """Read a trace.

    Raises:
        InputError: naming the line, the field, what was found and what was expected.
    """
    requests = read_lines(data, source=source)
    if requests[0].arrival_ns != 0:
        refuse(
            "is not the start",
            source,
            1,
            "arrival_s",
            found=_seconds(requests[0].arrival_ns),
            expected="0: arrivals count from the first line",
            remedy="`tokenwatt-site spec trace FILE` writes it so.",
        )
    return Trace(data, requests)


def read_lines(data: bytes, *, source: str) -> tuple[TraceLine, ...]:
    """Read the lines of a trace whose first arrival need not be 0.

    Raises:
        InputError: see `parse`.
    """
    if len(data) > MAX_TRACE_BYTES:
        refuse("is too large", source, expected=f"at most {MAX_TRACE_BYTES:,} bytes")
    if not data.endswith(b"\n"):
        refuse("does not end with a line feed; it may be cut", source)
    count = data.count(b"\n")
    if not 2 <= count <= MAX_ROWS:
        refuse(
            "has another number of lines than a trace may have",
            source,
            found=f"{count:,}",
            expected=f"2 to {MAX_ROWS:,}",
        )
    return checked(
        (_request(line, source, n) for n, line in enumerate(data[:-1].split(b"\n"), start=1)),
        source=source,
    )


def checked(
    requests: Iterable[TraceLine], *, source: str, first_line: int = 1
) -> tuple[TraceLine, ...]:
    """Return the requests of consecutive lines, when they are in order and take some time.

    Raises:
        InputError: naming the line that goes back.
    """
    found = tuple(requests)
    for line, (before, request) in enumerate(pairwise(found), start=first_line + 1):
        if request.arrival_ns < before.arrival_ns:
            refuse(
                "is before the line above",
                source,
                line,
                "arrival_s",
                found=_seconds(request.arrival_ns),
                expected=f"at least {_seconds(before.arrival_ns)}",
            )
    if len(found) < 2 or found[-1].arrival_ns == found[0].arrival_ns:
        refuse(
            "has no two arrivals apart: there is no mean gap to scale", source, field="arrival_s"
        )
    return found


def encode(requests: Sequence[TraceLine]) -> bytes:
    """Return the bytes of a trace; arrivals count from the first of `requests`."""
    start = requests[0].arrival_ns
    return b"".join(
        b'{"arrival_s":%s,"input_tokens":%d,"output_tokens":%d}\n'
        % (_seconds(r.arrival_ns - start).encode(), r.input_tokens, r.output_tokens)
        for r in requests
    )


def _request(line: bytes, source: str, number: int) -> TraceLine:
    try:
        value = load_json(line, source=source, limit=_MAX_LINE_BYTES)
    except InputError as error:
        raise InputError(*(replace(p, line=number) for p in error.problems)) from error
    if not isinstance(value, dict) or set(value) != set(_KEYS):
        found = ", ".join(sorted(value))[:200] if isinstance(value, dict) else type(value).__name__
        refuse(
            "does not have the fields of a trace",
            source,
            number,
            found=found or "no fields",
            expected=f"an object with {', '.join(_KEYS)}",
        )
    return TraceLine(
        _arrival_ns(value["arrival_s"], source, number),
        token_count(value["input_tokens"], source, number, "input_tokens"),
        token_count(value["output_tokens"], source, number, "output_tokens"),
    )


def _arrival_ns(value: JsonValue, source: str, line: int) -> int:
    if type(value) not in (int, float) or not 0 <= value <= MAX_ARRIVAL_S:
        refuse(
            "is no time of arrival",
            source,
            line,
            "arrival_s",
            found=repr(value)[:80],
            expected=f"seconds, 0 to {MAX_ARRIVAL_S:,}",
        )
    # The shortest decimal that reads back equal, which every JSON reader agrees on.
    return int((Decimal(repr(value)) * _NS).to_integral_value(ROUND_HALF_EVEN))


def token_count(value: JsonValue, source: str, line: int, field: str) -> int:
    """Return a length that a line of any format tells.

    Raises:
        InputError: it is no whole number from 1 to MAX_TOKENS.
    """
    if type(value) is not int or not 1 <= value <= MAX_TOKENS:
        refuse(
            "is no number of tokens",
            source,
            line,
            field,
            found=repr(value)[:80],
            expected=f"a whole number, 1 to {MAX_TOKENS:,}",
        )
    return value


def _seconds(ns: int) -> str:
    return re.sub(r"\.?0*$", "", f"{ns // _NS}.{ns % _NS:09d}")


def refuse(
    what: str,
    source: str,
    line: int | None = None,
    field: str | None = None,
    *,
    found: str | None = None,
    expected: str | None = None,
    remedy: str | None = None,
) -> NoReturn:
    """Raise the InputError of a file in which arrivals and lengths stand."""
    raise InputError(
        Problem(
            what,
            file=source,
            line=line,
            field=field,
            found=found,
            expected=expected,
            remedy=remedy,
        )
    )
