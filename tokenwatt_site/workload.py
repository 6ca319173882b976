"""Workloads as integers: the same draws on every platform, numbered, hashed, the same for all.

Row i of realisation r is made from the four 64-bit words of
SHA-256("tokenwatt/workload/1|<name>|<version>|<r>|<i>"): the first gives the gap before the row,
the second its input tokens, the third its output tokens; `draws` makes integers of them.

The rows of a trace are its own lines: realisation r has the r-th part of it, its gaps in the mean
gap of its scored rows, so that those come at the rate that is offered. Rows that are turns of
conversations are drawn like all others; their prompts begin with what was said before.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from tokenwatt_site.canonical import JsonValue, digest
from tokenwatt_site.draws import GAP_UNIT, exponential, gap_table, length, length_table
from tokenwatt_site.errors import Problem, SpecError
from tokenwatt_site.lengths import Conversation, Lengths, Lognormal
from tokenwatt_site.spec import Setup
from tokenwatt_site.trace import Trace

GENERATOR = "tokenwatt/workload/1"


class Row(NamedTuple):
    """One request: the gap before it in 1/GAP_UNIT of the mean gap, and its lengths in tokens.

    `stream` numbers the endless text that the prompt is the beginning of, after the shared prefix:
    its conversation's, or one of its own.
    """

    gap: int
    input_tokens: int
    output_tokens: int
    stream: int


@dataclass(frozen=True, slots=True)
class Realisation:
    """A numbered draw: `lead_in` rows that fill the engine, `scored` rows, and a tail of load.

    All prompts begin with the same `shared_prefix` tokens. `highest_urps` is up to which rate it
    was made to be offered; None: nothing was, and its lead-in and window have to be looked at.
    """

    number: int
    lead_in: int
    scored: int
    rows: tuple[Row, ...]
    shared_prefix: int = 0
    highest_urps: int | None = None

    def due_ns(self, rate_urps: int) -> tuple[int, ...]:
        """Return when each row is due after the start, at `rate_urps` 1e-6 requests/s."""
        due = []
        elapsed = 0
        for row in self.rows:
            elapsed += row.gap
            due.append(elapsed * 10**15 // (rate_urps * GAP_UNIT))
        return tuple(due)

    def sent_before(self) -> tuple[int, ...]:
        """Return for each row how many tokens its prompt begins with that an earlier one had.

        That much an engine's cache can hold. The answers within a history are not in it before
        they were sent: the engine itself gave others.
        """
        longest: dict[int, int] = {}
        found = []
        for index, row in enumerate(self.rows):
            shared = self.shared_prefix if index else 0
            found.append(min(row.input_tokens, max(shared, longest.get(row.stream, 0))))
            longest[row.stream] = max(row.input_tokens, longest.get(row.stream, 0))
        return tuple(found)

    @property
    def scored_rows(self) -> range:
        return range(self.lead_in, self.lead_in + self.scored)

    @property
    def scored_lines(self) -> range:
        """Of the trace that it is a part of: the lines of its scored rows."""
        start = (self.number - 1) * len(self.rows)
        return range(start + self.lead_in, start + self.lead_in + self.scored)

    @property
    def lead_in_pace(self) -> Fraction | None:
        """Rate of the lead-in / rate that is offered; None where it takes no time."""
        gaps = sum(row.gap for row in self.rows[1 : self.lead_in + 1])
        return Fraction(self.lead_in * GAP_UNIT, gaps) if gaps else None

    @property
    def mean_output_tokens(self) -> float:
        """Mean output tokens asked of the scored rows."""
        return sum(self.rows[i].output_tokens for i in self.scored_rows) / self.scored

    @property
    def mean_input_tokens(self) -> float:
        return sum(self.rows[i].input_tokens for i in self.scored_rows) / self.scored

    @property
    def hash(self) -> str:
        return digest(
            {
                "number": self.number,
                "shared_prefix": self.shared_prefix,
                "rows": [list(row) for row in self.rows],
            }
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """A family of realisations: two length distributions and Poisson arrivals, or a trace."""

    name: str
    version: int
    input_tokens: Lengths
    output_tokens: Lengths
    conversation: Conversation | None = None
    trace: Trace | None = None

    def definition(self) -> JsonValue:
        """Return everything that decides the draws, tables by digest, a trace by its own."""
        value: dict[str, JsonValue] = {
            "generator": GENERATOR,
            "name": self.name,
            "version": self.version,
            "input_tokens": self.input_tokens.to_json(),
            "output_tokens": self.output_tokens.to_json(),
        }
        if self.trace is not None:
            return value | {"arrival": "trace", "trace": self.trace.sha256}
        value |= {
            "arrival": "poisson",
            "input_table": _length_digest(self.input_tokens),
            "output_table": _length_digest(self.output_tokens),
            "gap_table": _gap_digest(),
        }
        if self.conversation is not None:
            value["conversation"] = self.conversation.to_json()
        return value

    @property
    def hash(self) -> str:
        return digest(self.definition())

    def realisation(self, number: int, *, lead_in: int, scored: int, tail: int) -> Realisation:
        """Draw realisation `number`, the same rows for the same number always.

        Raises:
            SpecError: the trace ends before that many realisations, or the scored rows of this one
                all come at once, which is no rate.
        """
        count = lead_in + scored + tail
        if self.trace is not None:
            require_rows(self.trace, count, repeats=number)
            part = range((number - 1) * count, number * count)
            rows = _played(self.trace, part, part[lead_in : lead_in + scored], number)
        else:
            rows = self.rows(number, range(count))
        shared = 0
        if self.conversation is not None:
            rows, shared = _turns(rows, self.conversation), self.conversation.shared_prefix_tokens
        return Realisation(number, lead_in, scored, tuple(rows), shared)

    def rows(self, number: int, part: range) -> list[Row]:
        """Draw a part of the endless rows of draw `number`; the first of it has stream 0."""
        inputs, outputs = length_table(self.input_tokens), length_table(self.output_tokens)
        rows = []
        for stream, index in enumerate(part):
            text = f"{GENERATOR}|{self.name}|{self.version}|{number}|{index}"
            gap, given, asked, _ = struct.unpack(">4Q", hashlib.sha256(text.encode()).digest())
            drawn = exponential(gap), length(inputs, given), length(outputs, asked)
            rows.append(Row(*drawn, stream))
        return rows


@cache
def _length_digest(lengths: Lengths) -> str:
    return digest(list(length_table(lengths)))


@cache
def _gap_digest() -> str:
    return digest(list(gap_table()))


def _played(trace: Trace, part: range, scored: range, number: int) -> list[Row]:
    """Return the rows of one part of a trace; it starts with its first arrival."""
    if trace.pace(scored) is None:
        raise unplayable(f"the scored rows of repeat {number} all come at once")
    gaps = trace.gaps(GAP_UNIT, part, scored)
    requests = trace.requests[part.start : part.stop]
    return [
        Row(gap, request.input_tokens, request.output_tokens, index)
        for index, (gap, request) in enumerate(zip(gaps, requests, strict=True))
    ]


def unplayable(what: str) -> SpecError:
    """Return the error about a part of a trace that is no measurement, to raise."""
    return SpecError(
        Problem(
            what,
            field="trace",
            expected="arrivals in lead-in and window about as dense as in the whole trace",
            remedy="Give another part of the trace, or other lead_in, scored or tail.",
        )
    )


def _turns(rows: Sequence[Row], conversation: Conversation) -> list[Row]:
    """Return rows as turns of conversations; see `lengths.Conversation` for the layout."""
    spread, block = conversation.spread, conversation.spread * conversation.turns
    said: dict[int, int] = {}
    turns = []
    for index, row in enumerate(rows):
        stream = index // block * spread + index % spread
        before = said.get(stream, conversation.shared_prefix_tokens)
        turns.append(row._replace(input_tokens=before + row.input_tokens, stream=stream))
        said[stream] = before + row.input_tokens + row.output_tokens
    return turns


def require_rows(trace: Trace, rows: int, *, repeats: int) -> None:
    """See that a trace is long enough: no row of it is offered in two repeats.

    Raises:
        SpecError: it is not; says how many repeats it holds.
    """
    if (found := len(trace.requests)) < rows * repeats:
        raise SpecError(
            Problem(
                "the trace is too short",
                field="trace",
                found=f"{found:,} rows, enough for {found // rows} of the repeats,"
                f" {rows:,} rows each",
                expected=f"{rows * repeats:,} rows, for repeat {repeats}",
                remedy="Give a longer trace, or lower protocol.repeats, lead_in, scored or tail.",
            )
        )


def _lognormal(median: int, p90: int, minimum: int, maximum: int) -> Lognormal:
    return Lognormal(kind="lognormal", median=median, p90=p90, min=minimum, max=maximum)


NAMED = {
    workload.name: workload
    for workload in (
        Workload("chat-mix-v1", 1, _lognormal(1024, 4096, 1, 6144), _lognormal(256, 1024, 2, 1536)),
        Workload("demo-mix-v1", 1, _lognormal(32, 48, 4, 96), _lognormal(16, 24, 4, 48)),
    )
}
"""Workloads whose name fixes their distributions."""


def workload_of(setup: Setup, trace: Trace | None = None) -> Workload:
    """Return the workload that a setup names.

    Args:
        setup: names it, with its hash.
        trace: the trace of a setup with `arrival: trace`, which no other may have.

    Raises:
        SpecError: a known name with other distributions, lengths that are not those of the trace,
            a hash that is not that of the definition, a trace too few or too many.
    """
    identity = setup.workload
    if (setup.arrival == "trace") != (trace is not None):
        raise SpecError(
            Problem(
                "the trace is missing" if trace is None else "has a trace that nothing plays",
                field="trace",
                expected=f"what setup.arrival says: {setup.arrival}",
            )
        )
    workload = Workload(
        identity.name,
        identity.version,
        setup.input_tokens,
        setup.output_tokens,
        setup.conversation,
        trace,
    )
    known = NAMED.get(identity.name)
    if known is not None and known != workload:
        other = replace(workload, name="my-mix", version=1)
        raise SpecError(
            Problem(
                f"{identity.name} has lengths of its own",
                field="setup.workload.name",
                found=_lengths_text(workload),
                expected=_lengths_text(known),
                remedy=f"Give other lengths another name: name: {other.name}, version: 1,"
                f" hash: {other.hash}",
            )
        )
    problems = [] if trace is None else _other_lengths(setup, trace)
    if identity.hash != workload.hash:
        of_trace = f", of the trace with sha256 {trace.sha256}" if trace is not None else ""
        right = "" if problems else workload.hash  # else it would be that of wrong lengths
        problems.append(
            Problem(
                "is not the digest of this workload's definition",
                field="setup.workload.hash",
                found=identity.hash,
                expected=f"{right or 'the digest'}{of_trace}",
            )
        )
    if problems:
        raise SpecError(*problems)
    return workload


def _other_lengths(setup: Setup, trace: Trace) -> list[Problem]:
    return [
        Problem(
            "are not the lengths of the trace",
            field=f"setup.{field}",
            found=_flow(told),
            expected=_flow(found),
        )
        for field, told, found in (
            ("input_tokens", setup.input_tokens, trace.lengths("input_tokens")),
            ("output_tokens", setup.output_tokens, trace.lengths("output_tokens")),
        )
        if told != found
    ]


def _lengths_text(workload: Workload) -> str:
    """Return lengths, and what else may differ, as they are written in a spec."""
    fields: dict[str, Lengths | Conversation | None] = {
        "input_tokens": workload.input_tokens,
        "output_tokens": workload.output_tokens,
        "conversation": workload.conversation,
    }
    return ", ".join(f"{name} {_flow(value)}" for name, value in fields.items() if value)


def _flow(value: Lengths | Conversation) -> str:
    """Write a value as YAML on one line."""
    return f"{{{', '.join(f'{key}: {item}' for key, item in value.to_json().items())}}}"
