"""The page that says what a load takes: its fields, and an example that reads without scripts.

Answers are made in the reader's browser, by `assets/sizing.js` from the catalogue; the example is
made here by the same formulas.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import instruments, sizing, text
from tokenwatt_site.pages.factors import Factors
from tokenwatt_site.pages.page import Page, render_template
from tokenwatt_site.pages.sizing import Answer, Ask, Number, Offer

SCRIPTS = ("sizing.js", "plan-form.js", "plan.js")
"""Scripts of the assets that it needs, in this order, after those of the catalogue."""

TITLE = "What should I run"

EXAMPLE_ROWS = 20
"""At most; all are there with scripts."""


@dataclass(frozen=True, slots=True)
class Field:
    """A number that the reader gives. `default` is empty where there is none, and it may stay so.

    `key` is its name in the address of the page.
    """

    key: str
    label: str
    unit: str
    least: float
    most: float
    default: str
    hint: str = ""


LOADS = {
    "requests": ("requests/s", 0.001, 1e6, "10"),
    "tokens": ("output tokens a day", 1, 1e15, "100000000"),
}
"""Unit of the load, by its name in the address -> (words, least, most, default)."""

TRAFFIC = (
    Field("peak", "Peak", "× the mean", 1, 100, "2"),
    Field("headroom", "Headroom", "% above the peak", 0, 900, "20"),
    Field("hours", "Hours a day", "h with load, off else", 0.25, 24, "24"),
)

SORTS = {"cards": "cards", "watts": "watts", "money": "money"}
"""What rows are sorted by, by its name in the address -> words."""


def prices(factors: Factors) -> tuple[Field, ...]:
    """Return the fields of money and carbon; the site's own factors are their defaults."""
    price, pue, grid = factors.price, factors.pue, factors.grid
    return (
        Field("price", "Electricity", "per kWh", 0, 1000,
              _default(price.per_kwh if price else None),
              price.name if price else ""),
        Field("card", "A card, or a machine", "per hour", 0, 10_000, ""),
        Field("pue", "PUE", "× the measured energy", 1, 10, _default(pue.factor if pue else 1),
              pue.name if pue else ""),
        Field("grid", "Carbon", "gCO2 per kWh", 0, 5000, _default(grid.g_per_kwh if grid else None),
              grid.name if grid else ""),
    )  # fmt: skip


def _default(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


@dataclass(frozen=True, slots=True)
class ExampleRow:
    title: str
    url: str
    marks: str
    cards: str
    watts: str
    kwh: str
    busy: str


@dataclass(frozen=True, slots=True)
class Example:
    """What stands without scripts: the default load on the first section's workload and SLO."""

    question: str
    rows: tuple[ExampleRow, ...]
    answering: int
    out: tuple[tuple[str, int], ...]


def render(catalogue: Mapping[str, Any], scripts: Sequence[str], root: str, named: Factors) -> Page:
    """Make the page.

    Args:
        catalogue: see `pages.catalogue`.
        scripts: URLs of the scripts, in order, relative to the page.
        root: URL of the root of the site, relative to the page.
        named: what the site multiplies energy with.
    """
    accelerators = sorted({row["facets"]["accelerator"] for row in catalogue["rows"]})
    told = {
        "root": root,
        "out": dict(sizing.OUT),
        "barred": sorted(sizing.BARRED),
        "gates": sorted(sizing.BARRED_GATES),
        "scopes": instruments.ONLY,
        "loads": LOADS,
    }
    return Page(
        title=TITLE,
        description="Cards, watts and money for a load within an SLO, from what was measured.",
        toc=(("plan-answer", "Answer"), ("plan-how", "How this is worked out")),
        html=render_template(
            "plan.html.j2",
            title=TITLE,
            told=json.dumps(told),
            loads=LOADS,
            traffic=TRAFFIC,
            prices=prices(named),
            currency=named.price.currency if named.price else "USD",
            accelerators=accelerators if len(accelerators) > 1 else (),
            sorts=SORTS,
            example=_example(catalogue, root, named),
            definition=METRICS["long_run_goodput"].definition,
            scripts=scripts,
        ),
        charts=(),
    )


def _example(catalogue: Mapping[str, Any], root: str, named: Factors) -> Example | None:
    sections = catalogue["sections"]
    if not sections:
        return None
    # The first question that has an answer.
    answered = {
        row["section"]
        for row in catalogue["rows"]
        if not _why_out(row, sections[row["section"]], sections[row["section"]])
    }
    first = sections[min(answered, default=0)]
    ask = default_ask(named)
    out: Counter[str] = Counter()
    found = []
    for row in catalogue["rows"]:
        section = sections[row["section"]]
        why = _why_out(row, section, first)
        answer = None if why else sizing.size(ask, Offer.of(row))
        if why is not None:
            out[sizing.OUT[why[0]]] += 1
        elif answer is not None:
            found.append((row, section, answer))
    found.sort(key=lambda one: (bool(one[0]["excluded"]), *_place(one[2]), one[0]["title"]))
    return Example(
        question=f"{ask.load:g} requests/s of {first['workload']} on average,"
        f" peaks of {ask.peak:g} times that, {ask.headroom:g}% headroom,"
        f" {' and '.join(first['slo'])}",
        rows=tuple(_row(*one, root) for one in found[:EXAMPLE_ROWS]),
        answering=len(found),
        out=tuple(out.most_common()),
    )


def _why_out(
    row: Mapping[str, Any], section: Mapping[str, Any], asked: Mapping[str, Any]
) -> tuple[str, str] | None:
    workload = asked["workload"], asked["workload_hash"]
    return sizing.why_out(row, section, workload, asked["objectives"])


def default_ask(named: Factors) -> Ask:
    """Return what the fields say before a reader touches them."""
    given = {f.key: float(f.default) for f in (*TRAFFIC, *prices(named)) if f.default}
    return Ask(
        load=float(LOADS["requests"][3]),
        peak=given["peak"],
        headroom=given["headroom"],
        hours=given["hours"],
        pue=given["pue"],
        per_kwh=given.get("price"),
        per_card_hour=given.get("card"),
        g_per_kwh=given.get("grid"),
    )


def _place(answer: Answer) -> tuple[float, float]:
    cards = answer.cards
    return cards.value, cards.value if cards.high is None else cards.high


def _row(
    row: Mapping[str, Any], section: Mapping[str, Any], answer: Answer, root: str
) -> ExampleRow:
    figures = answer.figures
    scope = instruments.ONLY.get(section["power_scope"], "")
    unit = "machine" if section["cpu"] else "card"
    watts = figures["watts"]
    return ExampleRow(
        title=row["title"],
        url=f"{root}/{row['url']}",
        marks=", ".join(_marks(row)),
        cards=f"{_range(answer.cards)} {unit}{'s' if answer.cards.value != 1 else ''}",
        watts="not measured" if watts is None else f"{_range(watts)} ({scope})",
        kwh="not measured" if figures["kwh_day"] is None else _range(figures["kwh_day"]),
        busy=f"{100 * answer.utilisation.value:.0f}%",
    )


def _marks(row: Mapping[str, Any]) -> Iterator[str]:
    for why in row["excluded"]:
        yield why[-1]


def _range(number: Number) -> str:
    low, high = number.low, number.high
    if low is None or high is None or _written(low) == _written(high):
        return _written(number.value)
    return f"{_written(low)} to {_written(high)}"


def _written(value: float) -> str:
    return text.number(value, 0) if value >= 100 or value == int(value) else f"{value:.3g}"
