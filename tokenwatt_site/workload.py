"""Workloads as integers: the same draws on every platform, numbered, hashed, the same for all.

Row i of realisation r is made from the four 64-bit words of
SHA-256("tokenwatt/workload/1|<name>|<version>|<r>|<i>"): the first gives the gap before the row,
the second its input tokens, the third its output tokens. A word indexes an inverse-CDF table by
its top 10 bits and interpolates linearly by the next 32; no floating point takes part. The tables
come from a shipped table of normal quantiles and from `decimal`, whose ln and exp are exact.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import cache
from importlib import resources
from typing import NamedTuple

from tokenwatt_site.canonical import JsonValue, digest
from tokenwatt_site.errors import Problem, SpecError
from tokenwatt_site.spec import Fixed, Lengths, Lognormal, Setup

GENERATOR = "tokenwatt/workload/1"

CELLS = 1024
"""Cells of a table; it has one knot more."""

GAP_UNIT = 1 << 20
"""Gaps are in 1/GAP_UNIT of the mean gap."""

_LENGTH_UNIT = 1 << 16
_QUANTILE_UNIT = 1 << 40
_FRACTION_BITS = 32
_EXACT = Context(prec=50, rounding=ROUND_HALF_EVEN)
_Z90 = Decimal("1.281552")


class Row(NamedTuple):
    """One request: the gap before it in 1/GAP_UNIT of the mean gap, and its lengths in tokens."""

    gap: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Realisation:
    """A numbered draw: `lead_in` rows that fill the engine, `scored` rows, and a tail of load."""

    number: int
    lead_in: int
    scored: int
    rows: tuple[Row, ...]

    def due_ns(self, rate_urps: int) -> tuple[int, ...]:
        """Return when each row is due after the start, at `rate_urps` 1e-6 requests/s."""
        due = []
        elapsed = 0
        for row in self.rows:
            elapsed += row.gap
            due.append(elapsed * 10**15 // (rate_urps * GAP_UNIT))
        return tuple(due)

    @property
    def scored_rows(self) -> range:
        return range(self.lead_in, self.lead_in + self.scored)

    @property
    def mean_output_tokens(self) -> float:
        """Mean output tokens asked of the scored rows."""
        return sum(self.rows[i].output_tokens for i in self.scored_rows) / self.scored

    @property
    def mean_input_tokens(self) -> float:
        return sum(self.rows[i].input_tokens for i in self.scored_rows) / self.scored

    @property
    def hash(self) -> str:
        return digest({"number": self.number, "rows": [list(row) for row in self.rows]})


@dataclass(frozen=True, slots=True)
class Workload:
    """A family of realisations: two length distributions and Poisson arrivals."""

    name: str
    version: int
    input_tokens: Lengths
    output_tokens: Lengths

    def definition(self) -> JsonValue:
        """Return everything that decides the draws, tables by digest."""
        return {
            "generator": GENERATOR,
            "name": self.name,
            "version": self.version,
            "arrival": "poisson",
            "input_tokens": self.input_tokens.to_json(),
            "output_tokens": self.output_tokens.to_json(),
            "input_table": digest(list(length_table(self.input_tokens))),
            "output_table": digest(list(length_table(self.output_tokens))),
            "gap_table": digest(list(gap_table())),
        }

    @property
    def hash(self) -> str:
        return digest(self.definition())

    def realisation(self, number: int, *, lead_in: int, scored: int, tail: int) -> Realisation:
        """Draw realisation `number`, the same rows for the same number always."""
        inputs, outputs = length_table(self.input_tokens), length_table(self.output_tokens)
        rows = []
        for index in range(lead_in + scored + tail):
            text = f"{GENERATOR}|{self.name}|{self.version}|{number}|{index}"
            gap, given, asked, _ = struct.unpack(">4Q", hashlib.sha256(text.encode()).digest())
            rows.append(Row(exponential(gap), _length(inputs, given), _length(outputs, asked)))
        return Realisation(number, lead_in, scored, tuple(rows))


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


def workload_of(setup: Setup) -> Workload:
    """Return the workload that a setup names.

    Raises:
        SpecError: a known name with other distributions, or a hash that is not the generator's.
    """
    identity = setup.workload
    workload = Workload(identity.name, identity.version, setup.input_tokens, setup.output_tokens)
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
    if identity.hash != workload.hash:
        raise SpecError(
            Problem(
                "is not the digest of this workload's definition",
                field="setup.workload.hash",
                found=identity.hash,
                expected=workload.hash,
            )
        )
    return workload


def _lengths_text(workload: Workload) -> str:
    """Return lengths as they are written in a spec."""
    fields = {"input_tokens": workload.input_tokens, "output_tokens": workload.output_tokens}
    return ", ".join(
        f"{name} {{{', '.join(f'{key}: {value}' for key, value in lengths.to_json().items())}}}"
        for name, lengths in fields.items()
    )


@cache
def normal_quantiles() -> tuple[int, ...]:
    """Return normal quantiles in 2^-40 at p = 1/4096, 1/1024 ... 1023/1024, 4095/4096."""
    text = resources.files("tokenwatt_site").joinpath("normal_quantiles.json").read_text("utf-8")
    return tuple(json.loads(text))


@cache
def length_table(lengths: Lengths) -> tuple[int, ...]:
    """Return the inverse CDF of a length distribution at its CELLS + 1 knots, in 2^-16 tokens.

    Lognormal: median x exp(sigma z), sigma = ln(p90/median) / 1.281552, clipped to [min, max].
    """
    if isinstance(lengths, Fixed):
        return (lengths.tokens * _LENGTH_UNIT,) * (CELLS + 1)
    median = Decimal(lengths.median)
    sigma = _EXACT.divide(_EXACT.ln(_EXACT.divide(Decimal(lengths.p90), median)), _Z90)
    table = []
    for quantile in normal_quantiles():
        z = _EXACT.divide(Decimal(quantile), Decimal(_QUANTILE_UNIT))
        tokens = _EXACT.multiply(median, _EXACT.exp(_EXACT.multiply(sigma, z)))
        tokens = min(max(tokens, Decimal(lengths.min)), Decimal(lengths.max))
        table.append(
            int(_EXACT.multiply(tokens, Decimal(_LENGTH_UNIT)).to_integral_value(ROUND_HALF_EVEN))
        )
    return tuple(table)


@cache
def gap_table() -> tuple[int, ...]:
    """Return -ln(m) for m = 1/2 ... 1 in CELLS steps, in 2^-20, for `exponential`."""
    return tuple(
        int(
            _EXACT.multiply(
                -_EXACT.ln(_EXACT.divide(Decimal(CELLS + i), Decimal(2 * CELLS))), Decimal(GAP_UNIT)
            ).to_integral_value(ROUND_HALF_EVEN)
        )
        for i in range(CELLS + 1)
    )


_LN2_FINE = int(
    _EXACT.multiply(_EXACT.ln(Decimal(2)), Decimal(GAP_UNIT**2)).to_integral_value(ROUND_HALF_EVEN)
)
"""ln 2 in 2^-40, so that 64 of them are still right to a gap unit."""


def exponential(word: int) -> int:
    """Turn a uniform 64-bit word into an exponential draw of mean GAP_UNIT.

    u = (word + 1) / 2^64 = m 2^-k with m in [1/2, 1), so -ln u = k ln 2 - ln m: the tail is exact
    where a table over u would end. The largest word is u = 1.
    """
    u = word + 1
    if u == 1 << 64:
        return 0
    k = 64 - u.bit_length()
    scaled = u << k  # in [2^63, 2^64)
    return k * _LN2_FINE // GAP_UNIT + _interpolate(gap_table(), (scaled - (1 << 63)) << 1)


def _length(table: Sequence[int], word: int) -> int:
    return (_interpolate(table, word) + _LENGTH_UNIT // 2) // _LENGTH_UNIT


def _interpolate(table: Sequence[int], word: int) -> int:
    cell = word >> 54
    fraction = (word >> (54 - _FRACTION_BITS)) & ((1 << _FRACTION_BITS) - 1)
    low, high = table[cell], table[cell + 1]
    return low + ((high - low) * fraction >> _FRACTION_BITS)
