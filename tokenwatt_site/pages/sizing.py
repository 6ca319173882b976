"""What a load takes of a measured configuration: whole setups, watts, energy, money, CO2. Pure.

`assets/plan.js` has the same formulas, operation for operation, and tests hold one to the other. A
number has the interval that follows from those of the boundary and of the power.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from tokenwatt_site.pages.unranked import GATE_WORDS

_SLACK = 1e-12
"""Relative; else 11.000000000000002 requests/s would take two setups that hold 11."""

_DAYS_A_MONTH = 365 / 12

BARRED = frozenset(
    {
        *("unpublished", "withdrawn", "superseded", "disputed", "simulated", "interrupted"),
        *("key", "physics", "slo"),
    }
)
"""Codes of exclusions with which a configuration answers nothing; with others it stands apart."""

BARRED_GATES = frozenset(GATE_WORDS[outcome] for outcome in ("failed", "inconclusive"))
"""Of the exclusions for accuracy those that bar, by the words of their tag."""

OUT: Mapping[str, str] = MappingProxyType(
    {
        "workload": "another workload",
        "objectives": "SLO on other quantities",
        "looser": "measured with a looser SLO than asked",
        "unpublished": "not published yet",
        "withdrawn": "withdrawn",
        "superseded": "superseded",
        "disputed": "disputed",
        "simulated": "simulated",
        "interrupted": "interrupted",
        "key": "key not trusted here",
        "physics": "a number that physics forbids",
        "accuracy": "accuracy gate not passed",
        "slo": "SLO kept at no rate",
        "boundary": "no boundary",
    }
)
"""Why a configuration does not answer -> words to count by."""


@dataclass(frozen=True, slots=True)
class Number:
    """A value and its interval; `low` and `high` are None where there is none."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def sure(self) -> bool:
        return self.low is not None and self.high is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What the reader gives.

    Attributes:
        load: mean over the hours of load, in requests/s; or output tokens a day.
        per_day: whether `load` is output tokens a day.
        peak: peak load / mean load.
        headroom: percent of the peak that is kept free.
        hours: a day in which there is load and the cards run; in the others they are off.
        pue: energy of the building / energy measured.
        per_kwh: money; None: not given.
        per_card_hour: money for a card, or for a machine without cards; None: not given.
        g_per_kwh: grams of CO2; None: not given.
    """

    load: float
    per_day: bool = False
    peak: float = 1
    headroom: float = 0
    hours: float = 24
    pue: float = 1
    per_kwh: float | None = None
    per_card_hour: float | None = None
    g_per_kwh: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What was measured of one setup; None: it was not.

    Attributes:
        cards: of the whole setup; 1 where it is a machine without cards.
        rate: requests/s at the boundary.
        goodput: output tokens/s there.
        corrected: whether both are of the long run.
        measured_rate: requests/s at the measured boundary, near which power was measured.
        measured_goodput: output tokens/s there.
        power: watts there.
        idle: watts with the engine loaded and no request.
    """

    cards: int
    rate: Number | None
    goodput: Number | None
    corrected: bool
    measured_rate: Number | None
    measured_goodput: Number | None
    power: Number | None
    idle: Number | None

    @staticmethod
    def of(row: Mapping[str, Any]) -> Offer:
        """Read a row of the catalogue."""

        def number(key: str) -> Number | None:
            cell = row["cells"].get(key)
            if cell is None or cell["value"] is None:
                return None
            return Number(cell["value"], cell["low"], cell["high"])

        corrected = number("long_run_goodput") is not None and number("long_run_rate") is not None
        return Offer(
            cards=row["cards"] or 1,
            rate=number("long_run_rate" if corrected else "boundary_rate"),
            goodput=number("long_run_goodput" if corrected else "goodput"),
            corrected=corrected,
            measured_rate=number("boundary_rate"),
            measured_goodput=number("goodput"),
            power=number("board_power"),
            idle=number("idle_power"),
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What the load takes.

    Attributes:
        figures: by name: setups, cards, watts (mean over the hours of load), full_watts (all setups
            at the boundary), kwh_day (with the PUE), electricity_day, cards_day, money_day,
            money_month, per_million (money for as many output tokens), co2_day (kg). None: power
            was not measured, or the reader gave no price or factor.
        utilisation: mean load / what that many setups hold, by the boundary's interval.
        tokens_day: output tokens.
        linear: whether watts lie on a line between idle and boundary; else all setups are taken to
            draw what they draw at the boundary.
    """

    figures: Mapping[str, Number | None]
    utilisation: Number
    tokens_day: float
    linear: bool

    @property
    def cards(self) -> Number:
        return cast("Number", self.figures["cards"])


def size(ask: Ask, offer: Offer) -> Answer | None:
    """Return what a load takes; None: the configuration has no boundary."""
    capacity = offer.goodput if ask.per_day else offer.rate
    measured = (offer.measured_goodput if ask.per_day else offer.measured_rate) or capacity
    if capacity is None or measured is None or offer.rate is None or offer.goodput is None:
        return None
    seconds = 3600 * ask.hours
    mean = ask.load / seconds if ask.per_day else ask.load
    per_request = offer.goodput.value / offer.rate.value
    tokens = ask.load if ask.per_day else ask.load * seconds * per_request
    load = _Load(ask, mean, mean * ask.peak * (1 + ask.headroom / 100), tokens, offer.cards)

    middle = load.figures(capacity.value, measured.value, _value(offer.power), _value(offer.idle))
    low: Mapping[str, float | None] = {}
    high: Mapping[str, float | None] = {}
    if capacity.low is not None and capacity.high is not None:
        powers = (offer.power, offer.idle)
        sure = all(power is None or power.sure for power in powers)
        least = [power.low if power and sure else None for power in powers]
        most = [power.high if power and sure else None for power in powers]
        low = load.figures(capacity.high, measured.high or measured.value, *least)
        high = load.figures(capacity.low, measured.low or measured.value, *most)
    setups = middle["setups"] or 1
    return Answer(
        figures={
            key: None if value is None else Number(value, low.get(key), high.get(key))
            for key, value in middle.items()
        },
        utilisation=Number(
            mean / (setups * capacity.value),
            None if capacity.high is None else mean / (setups * capacity.high),
            None if capacity.low is None else mean / (setups * capacity.low),
        ),
        tokens_day=tokens,
        linear=offer.power is not None and offer.idle is not None,
    )


def _value(number: Number | None) -> float | None:
    return None if number is None else number.value


@dataclass(frozen=True, slots=True)
class _Load:
    """A load and what it is multiplied with; `mean` and `need` in the unit of the capacity."""

    ask: Ask
    mean: float
    need: float
    tokens: float
    cards: int

    def figures(
        self, capacity: float, measured: float, power: float | None, idle: float | None
    ) -> dict[str, float | None]:
        ask = self.ask
        setups = float(max(1, math.ceil(self.need / capacity * (1 - _SLACK))))
        cards = setups * self.cards
        watts = self._watts(setups, measured, power, idle)
        kwh = None if watts is None else watts * ask.hours * ask.pue / 1000
        electricity = None if kwh is None or ask.per_kwh is None else kwh * ask.per_kwh
        rent = None if ask.per_card_hour is None else cards * ask.hours * ask.per_card_hour
        money = _sum(electricity, rent)
        if ask.per_kwh is not None and electricity is None:
            # Half of what was asked for would look like the cheapest of all.
            money = None
        return {
            "setups": setups,
            "cards": cards,
            "watts": watts,
            "full_watts": None if power is None else setups * power,
            "kwh_day": kwh,
            "electricity_day": electricity,
            "cards_day": rent,
            "money_day": money,
            "money_month": None if money is None else money * _DAYS_A_MONTH,
            "per_million": None if money is None else money / self.tokens * 1e6,
            "co2_day": None if kwh is None or ask.g_per_kwh is None else kwh * ask.g_per_kwh / 1000,
        }

    def _watts(
        self, setups: float, measured: float, power: float | None, idle: float | None
    ) -> float | None:
        if power is None:
            return None
        # Where the two cannot be told apart a load costs nothing, and never less.
        floor = power if idle is None else min(idle, power)
        busy = min(setups, self.mean / measured)
        return setups * floor + (power - floor) * busy


def _sum(*parts: float | None) -> float | None:
    known = [part for part in parts if part is not None]
    return math.fsum(known) if known else None


def why_out(
    row: Mapping[str, Any],
    section: Mapping[str, Any],
    workload: tuple[str, str],
    slo: Sequence[Mapping[str, Any]],
) -> tuple[str, str] | None:
    """Return why a configuration does not answer: a code of OUT and a sentence; None: it does.

    Args:
        row: of the catalogue.
        section: its section there.
        workload: name and hash that are asked for.
        slo: the objectives that are asked for. Who was measured with the same or tighter limits on
            the same quantities answers.
    """
    if (section["workload"], section["workload_hash"]) != workload:
        return "workload", f"measured with {section['workload']}"
    limits = {(o["metric"], o["quantile"]): o["limit_ms"] for o in section["objectives"]}
    measured = f"measured with {' and '.join(section['slo'])}"
    if any((o["metric"], o["quantile"]) not in limits for o in slo):
        return "objectives", measured
    if any(limits[o["metric"], o["quantile"]] > o["limit_ms"] for o in slo):
        return "looser", measured
    for code, words, *tag in row["excluded"]:
        if code in BARRED or (code == "accuracy" and BARRED_GATES.issuperset(tag)):
            return code, words
    offer = Offer.of(row)
    if offer.rate is None or offer.goodput is None:
        return "boundary", row["cells"]["goodput"]["reason"]
    return None
