"""What a site may multiply energy with when it is read: a price, a grid's carbon, a PUE; all named.

None comes with this project: a price or a grid factor is a fact about a place and a time, and no
part of a measurement. Without them a page has kWh and no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from tokenwatt_site.pages import text
from tokenwatt_site.run import MetricClaim
from tokenwatt_site.schema import Line, Model

_J_PER_KWH = 3.6e6
_TOKENS = 1e6

Positive = Annotated[float, Field(ge=1e-6, le=1e9, allow_inf_nan=False)]


class Price(Model):
    """Money per kWh; `name` says whose price and when."""

    name: Line
    per_kwh: Positive
    currency: Line


class Grid(Model):
    """Grams of CO2 per kWh; `name` says which grid, which year and whose figure."""

    name: Line
    g_per_kwh: Positive


class Pue(Model):
    """Energy of the building / energy of its computers; `name` says which building and year."""

    name: Line
    factor: Annotated[float, Field(ge=1, le=10, allow_inf_nan=False)]


class Factors(Model):
    """What the site's configuration names; nothing by default."""

    price: Price | None = None
    grid: Grid | None = None
    pue: Pue | None = None


NO_FACTORS = Factors()

Row = tuple[str, str, str, str]
"""(label, value, unit, formula and where the factors are from)"""


def rows(claim: MetricClaim, factors: Factors) -> Iterator[Row]:
    """Yield what a million output tokens take, from the energy of one in J."""
    if not claim.value:
        return
    kwh = claim.value * _TOKENS / _J_PER_KWH
    yield (
        "Energy per million output tokens",
        _significant(kwh),
        "kWh/M output tok",
        "energy per output token ÷ 3.6",
    )
    pue, at = 1.0, "no PUE"
    if factors.pue is not None:
        pue, at = factors.pue.factor, f"PUE {factors.pue.factor:g} ({factors.pue.name})"
    if factors.price is not None:
        price = factors.price
        yield (
            "Price of that energy",
            _significant(kwh * pue * price.per_kwh),
            f"{price.currency}/M output tok",
            f"kWh × {at} × {price.per_kwh:g} {price.currency}/kWh ({price.name})",
        )
    if factors.grid is not None:
        grid = factors.grid
        yield (
            "CO2 of that energy",
            _significant(kwh * pue * grid.g_per_kwh),
            "gCO2/M output tok",
            f"kWh × {at} × {grid.g_per_kwh:g} g/kWh ({grid.name})",
        )


def _significant(value: float) -> str:
    """Three digits, or all before the point."""
    return text.number(value, max(0, 2 - math.floor(math.log10(value))))
