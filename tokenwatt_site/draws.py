"""Integer draws: the tables of the distributions, and how a 64-bit word indexes them.

A word indexes an inverse-CDF table by its top 10 bits and interpolates linearly by the next 32; no
floating point takes part. The tables come from a shipped table of normal quantiles and from
`decimal`, whose ln and exp are exact.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import cache
from importlib import resources

from tokenwatt_site.lengths import Fixed, Lengths, Traced

CELLS = 1024
"""Cells of a table; it has one knot more."""

GAP_UNIT = 1 << 20
"""Gaps are in 1/GAP_UNIT of the mean gap."""

_LENGTH_UNIT = 1 << 16
_QUANTILE_UNIT = 1 << 40
_FRACTION_BITS = 32
_EXACT = Context(prec=50, rounding=ROUND_HALF_EVEN)
_Z90 = Decimal("1.281552")


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
    if isinstance(lengths, Traced):
        raise TypeError("the lengths of a trace are not drawn")
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


def length(table: Sequence[int], word: int) -> int:
    """Turn a uniform 64-bit word into tokens by a `length_table`, rounded to the nearest."""
    return (_interpolate(table, word) + _LENGTH_UNIT // 2) // _LENGTH_UNIT


def _interpolate(table: Sequence[int], word: int) -> int:
    cell = word >> 54
    fraction = (word >> (54 - _FRACTION_BITS)) & ((1 << _FRACTION_BITS) - 1)
    low, high = table[cell], table[cell + 1]
    return low + ((high - low) * fraction >> _FRACTION_BITS)
