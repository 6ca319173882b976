"""What a comparison comes to: its parts, and the numbers that it divides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.run import LONG_RUN_METRICS
from tokenwatt_site.statistics import Comparison, Ratio

Detail: TypeAlias = Mapping[str, Any]
"""A result of the schema tokenwatt/result/1, or a quoted one, whose `quoted` is true."""

THROUGHPUT, ENERGY, BANDWIDTH = "Throughput", "Energy and power", "Memory bandwidth"
LATENCY = "Latency at one offered rate"

KINDS: Mapping[str, tuple[str, ...]] = {
    THROUGHPUT: (
        "long_run_goodput",
        "long_run_rate",
        "goodput",
        "boundary_rate",
        "input_throughput",
    ),
    ENERGY: (
        "tokens_per_joule",
        "joules_per_token",
        "joules_per_token_above_idle",
        "joules_per_any_token",
        "board_power",
        "idle_power",
    ),
    BANDWIDTH: ("mbu", "mbu_measured"),
}
"""Group -> keys of the registry that are divided, in the order of the page."""

WHOLE = frozenset({*LONG_RUN_METRICS, "idle_power"})
"""Keys of numbers that are of no window, so that its length says nothing of them."""

OF_BOARDS = ("accelerator.rated_bandwidth_gb_s", "accelerator.power_limit_w")
"""Setup fields that a CPU has nothing to record in."""

REFERENCE_CARDS = 64

Level: TypeAlias = Literal[95, 90]


@dataclass(frozen=True, slots=True)
class Row:
    """One number of both sides and its ratio, other / baseline; or why there is none.

    `launches` are those that the ratio is of, the baseline's first; a publication has none. `level`
    is that of its interval, in percent; None: it has none. `word` is None exactly where there is no
    ratio, and `reason` where there is one.
    """

    group: str
    key: str
    label: str
    baseline: float | None
    other: float | None
    reason: str | None = None
    ratio: Ratio | None = None
    level: Level | None = None
    paired: bool = False
    launches: tuple[int, int] = (0, 0)
    word: Comparison | None = None


@dataclass(frozen=True, slots=True)
class Cards:
    """How many cards of the other do the work of REFERENCE_CARDS of the baseline, rounded up.

    `of` is the key of the goodput that was divided; `per_card` is that of one card. `low` is the
    fewest and `high` the most that the interval allows.
    """

    of: str | None = None
    per_card: Ratio | None = None
    value: int | None = None
    low: int | None = None
    high: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Points of 100 by which the other answers more of the same questions right, with 95%.

    `worse` questions were right on the baseline alone, `better` on the other alone.
    """

    task: str | None = None
    questions: int | None = None
    baseline: float | None = None
    other: float | None = None
    points: float | None = None
    low: float | None = None
    high: float | None = None
    worse: int | None = None
    better: int | None = None
    word: Comparison | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """One of the others against the baseline.

    `refused` says why nothing of it may be divided. `differing` names the setup fields that differ,
    `unknown` those that neither records. `controlled`: exactly one differs, and how they were
    measured does not. `absent` are numbers that neither has, with the other's reason.
    """

    refused: str | None
    differing: tuple[str, ...]
    unknown: tuple[str, ...]
    controlled: bool
    rows: tuple[Row, ...]
    absent: tuple[tuple[str, str], ...]
    cards: Cards
    accuracy: Accuracy


@dataclass(frozen=True, slots=True)
class Field:
    """A setup field that differs, with its value on each side; None: it is absent there."""

    path: str
    values: tuple[JsonValue, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """`pairs` are the others, in their order; `fields` differ somewhere, `equal` do nowhere."""

    fields: tuple[Field, ...]
    equal: tuple[str, ...]
    pairs: tuple[Pair, ...]


def letter(index: int) -> str:
    """Name a side: A is the baseline."""
    return chr(ord("A") + index)


def number(detail: Detail, key: str) -> Detail:
    """Return the first number with this key: of several quantiles the SLO's own is first."""
    for metric in detail["metrics"]:
        if metric["key"] == key:
            return dict(metric)
    reason = "not told by the publication" if detail["quoted"] else "the run does not tell"
    return {"label": METRICS[key].label, "value": None, "repeats": [], "reason": reason}
