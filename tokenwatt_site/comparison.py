"""Two or more configurations side by side: what differs, what may be divided, and what it shows.

Pure. Reads results as they are published (`pages.detail`), so that the script of the page does the
same with the same data. The first one is the baseline: every other is divided by it, and none where
that would answer no question: a number of another workload, another boundary of power, another
length of window. The reason then stands where the ratio would.

Repeat r offers realisation r to everyone. Where both sides offered the same rows the ratio is
paired, so that luck of the rows cancels; else it is Welch's, of two independent sets of launches.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tokenwatt_site.accuracy_gate import Paired, drop_interval
from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.run import LONG_RUN_METRICS
from tokenwatt_site.spec import NOT_RECORDED
from tokenwatt_site.statistics import SYSTEMATIC, Comparison, Ratio, against, paired

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

MIN_LAUNCHES = 3
"""On either side; from fewer there is no interval."""

REFERENCE_CARDS = 64

# Of a ratio of two long-run numbers: the models of both may be off, each by itself.
_OF_BOTH = math.sqrt(2) * SYSTEMATIC
_NORMAL = {95: 1.959964, 90: 1.644854}

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


def compare(details: Sequence[Detail]) -> Compared:
    """Compare with the first. Sides are called A, B, C and so on in what is said.

    Raises:
        ValueError: fewer than two.
    """
    if len(details) < 2:
        raise ValueError("a comparison takes two")
    baseline, *others = details
    recorded = [detail["setup"] for detail in details if not detail["quoted"]]
    paths = dict.fromkeys(path for setup in recorded for path in setup)
    differ = {path for path in paths if any(s.get(path) != recorded[0].get(path) for s in recorded)}
    return Compared(
        fields=tuple(
            Field(path, tuple(detail["setup"].get(path) for detail in details))
            for path in paths
            if path in differ
        ),
        equal=tuple(path for path in paths if path not in differ),
        pairs=tuple(_pair(baseline, other, letter(i)) for i, other in enumerate(others, start=1)),
    )


def letter(index: int) -> str:
    """Name a side: A is the baseline."""
    return chr(ord("A") + index)


def _pair(a: Detail, b: Detail, name: str) -> Pair:
    ones, others = a["setup"], b["setup"]
    known = not a["quoted"] and not b["quoted"]
    paths = tuple(dict.fromkeys((*ones, *others))) if known else ()
    differing = tuple(path for path in paths if ones.get(path) != others.get(path))
    unknown = tuple(path for path in paths if ones.get(path) == others.get(path) == NOT_RECORDED)
    refused = _refused(a, b, name)
    alike = known and a["simulated"] == b["simulated"] and _same_windows(a, b)
    found = [*_rows(a, b, name), *_latency(a, b)] if refused is None else []
    order = (THROUGHPUT, LATENCY, ENERGY, BANDWIDTH)
    found.sort(key=lambda row: order.index(row.group))
    told = [row for row in found if row.baseline is not None or row.other is not None]
    rows = tuple(row for row in found if row in told or row.group == LATENCY)
    return Pair(
        refused=refused,
        differing=differing,
        unknown=unknown,
        controlled=alike and len(differing) == 1,
        rows=rows,
        absent=tuple((row.label, row.reason or "") for row in found if row not in rows),
        cards=_cards(a, b, rows, refused),
        accuracy=_accuracy(a, b, name),
    )


# ---------- what may be divided


def _refused(a: Detail, b: Detail, name: str) -> str | None:
    """Say why no number of the load may be divided; None: some may."""
    if b["quoted"]:
        return "an earlier publication can only be the baseline: nothing of it was recomputed"
    if a["simulated"] != b["simulated"]:
        which = "A" if a["simulated"] else name
        return f"{which} was simulated and the other measured: a simulated number is about nothing"
    if (why := _other_workload(a, b)) is not None:
        return why
    if a["slo"] is None:
        return "A tells no SLO in words that can be compared"
    if _limits(a) != _limits(b):
        return f"another SLO: {b['slo_text']} against {a['slo_text']}"
    return None


def _other_workload(a: Detail, b: Detail) -> str | None:
    ones, others = a["workload"], b["workload"]
    if ones["name"] is None:
        return "A names no workload"
    if ones["name"] != others["name"]:
        return f"another workload: {others['name']} against {ones['name']}"
    if not a["quoted"] and ones["hash"] != others["hash"]:
        return f"another workload of the name {ones['name']}: its hash differs"
    return None


def _limits(detail: Detail) -> list[tuple[str, float]]:
    return sorted((each["label"], each["limit_ms"]) for each in detail["slo"])


def _same_windows(a: Detail, b: Detail) -> bool:
    return bool(a["mode"] == b["mode"] and a["rows"] == b["rows"])


def _barred(key: str, a: Detail, b: Detail) -> str | None:
    """Say why this number of two sides of one question is not divided, whatever it is."""
    if key in KINDS[ENERGY] and a["power_scope"] != b["power_scope"]:
        # H28: two boundaries of one energy are two things.
        told = a["power_scope"] or "one that is not told"
        return f"another boundary of power: {b['power_scope']} against {told}"
    if a["quoted"]:
        return None
    if a["mode"] != b["mode"]:
        few = a if a["launches"] < b["launches"] else b
        told = f"{few['mode']} mode has too few launches for an interval"
        if key not in WHOLE:
            told = f"{b['mode']} mode against {a['mode']}: windows of another length"
        return told
    if key not in WHOLE and a["rows"] != b["rows"]:
        return "windows of another length: short ones overstate more"
    return None


# ---------- ratios


def _rows(a: Detail, b: Detail, name: str) -> Iterator[Row]:
    for group, keys in KINDS.items():
        for key in keys:
            one, other = _number(a, key), _number(b, key)
            why = _barred(key, a, b) or _missing(one, other, name)
            if why is None:
                yield _divided(group, key, one, other, _pairs(a, b, one, other))
            else:
                yield Row(group, key, other["label"], one["value"], other["value"], reason=why)


def _number(detail: Detail, key: str) -> Detail:
    """Return the first number with this key: of several quantiles the SLO's own is first."""
    for metric in detail["metrics"]:
        if metric["key"] == key:
            return dict(metric)
    reason = "not told" if detail["quoted"] else "the run does not tell"
    return {"label": METRICS[key].label, "value": None, "repeats": [], "reason": reason}


def _missing(one: Detail, other: Detail, name: str) -> str | None:
    told = [
        f"{side}: {number['reason']}"
        for side, number in (("A", one), (name, other))
        if number["value"] is None
    ]
    if len(told) == 2 and one["reason"] == other["reason"]:
        return str(one["reason"])
    if told:
        return "; ".join(told)
    if min(*_values(one), *_values(other)) <= 0:
        return "a ratio takes numbers above 0"
    return None


def _values(number: Detail) -> list[float]:
    """Return a number of each launch; of a quoted one the number itself."""
    return list(number["repeats"]) or [number["value"]]


def _pairs(a: Detail, b: Detail, one: Detail, other: Detail) -> int:
    """Count the repeats, from the first, that offered both the same rows; 0: do not pair them.

    A number that a repeat lacks would shift those behind it.
    """
    if a["quoted"] or not _same_windows(a, b):
        return 0
    n = min(len(a["realisations"]), len(b["realisations"]))
    whole = all(len(m["repeats"]) == len(d["realisations"]) for m, d in ((one, a), (other, b)))
    same = a["realisations"][:n] == b["realisations"][:n]
    return n if whole and same else 0


def _divided(group: str, key: str, one: Detail, other: Detail, pairs: int) -> Row:
    ones, others = _values(one), _values(other)
    if pairs:
        ones, others = ones[:pairs], others[:pairs]
    ratio, level = _ratio(ones, others, paired_rows=pairs > 0)
    if key in LONG_RUN_METRICS:
        ratio = _widened(ratio, level)
    return Row(
        group=group,
        key=key,
        label=other["label"],
        baseline=one["value"],
        other=other["value"],
        ratio=ratio,
        level=None if ratio.low is None else level,
        paired=pairs > 0,
        launches=(len(one["repeats"][: len(ones)]), len(others)),
        word=ratio.compared(METRICS[key].better),
    )


def _ratio(
    ones: Sequence[float], others: Sequence[float], *, paired_rows: bool
) -> tuple[Ratio, Level]:
    if paired_rows:
        return paired(others, ones), 95
    return against(others, ones), 90


def _widened(ratio: Ratio, level: Level) -> Ratio:
    """Add what the engine models of both sides may be off by, which no repeat shows."""
    if ratio.low is None or ratio.high is None:
        return ratio
    half = math.log(ratio.high / ratio.value)
    half = math.hypot(half, _OF_BOTH * _NORMAL[level] / _NORMAL[95])
    return Ratio(ratio.value, ratio.value * math.exp(-half), ratio.value * math.exp(half))


def _latency(a: Detail, b: Detail) -> Iterator[Row]:
    """Yield the SLO's latencies at the highest rate that every repeat of both was offered.

    At the boundary of each side they are near their limits, however fast it is.
    """
    pairs = min(len(a["realisations"]), len(b["realisations"])) if not a["quoted"] else 0
    if not _same_windows(a, b) or a["realisations"][:pairs] != b["realisations"][:pairs]:
        pairs = 0
    for objective in b["slo"]:
        label, key = objective["label"], objective["metric"]
        told = [_offered(side, label, pairs) for side in (a, b)] if pairs else [{}, {}]
        rates = sorted(set(told[0]) & set(told[1]))
        if not rates:
            why = "no rate was offered to both in every repeat, on the same rows"
            yield Row(LATENCY, key, label, None, None, reason=why)
            continue
        ones, others = told[0][rates[-1]], told[1][rates[-1]]
        ratio, level = _ratio(ones, others, paired_rows=True)
        yield Row(
            group=LATENCY,
            key=key,
            label=f"{label} at {rates[-1] / 1e6:.4g} requests/s",
            baseline=_mean(ones),
            other=_mean(others),
            ratio=ratio,
            level=None if ratio.low is None else level,
            paired=True,
            launches=(pairs, pairs),
            word=ratio.compared("lower"),
        )


def _offered(detail: Detail, label: str, repeats: int) -> dict[int, list[float]]:
    """Rate -> the latency of each repeat, for rates at which every one of them tells it."""
    found: dict[int, dict[int, float]] = {}
    for trial in detail["trials"]:
        value = trial["ms"].get(label)
        if trial["repeat"] <= repeats and value is not None and value > 0:
            found.setdefault(trial["rate_urps"], {}).setdefault(trial["repeat"], value)
    return {
        rate: [by_repeat[r] for r in sorted(by_repeat)]
        for rate, by_repeat in found.items()
        if len(by_repeat) == repeats
    }


def _mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


# ---------- cards and answers


def _cards(a: Detail, b: Detail, rows: Iterable[Row], refused: str | None) -> Cards:
    divided = {row.key: row.ratio for row in rows if row.ratio is not None}
    key = next((k for k in ("long_run_goodput", "goodput") if k in divided), None)
    counts = a["cards"], b["cards"]
    if refused is not None or key is None:
        return Cards(reason=refused or "no goodput of both can be divided")
    if None in counts:
        why = "there is no accelerator card" if a["cpu"] or b["cpu"] else "cards are not told"
        return Cards(key, reason=why)
    share = counts[0] / counts[1]
    low, high = divided[key].low, divided[key].high
    per_card = Ratio(
        divided[key].value * share,
        None if low is None else low * share,
        None if high is None else high * share,
    )
    return Cards(
        of=key,
        per_card=per_card,
        value=cards(per_card.value),
        low=None if per_card.high is None else cards(per_card.high),
        high=None if per_card.low is None else cards(per_card.low),
    )


def cards(per_card: float) -> int:
    """Cards that give the goodput of REFERENCE_CARDS of the baseline (DESIGN 6), rounded up.

    Args:
        per_card: goodput of one card / of one card of the baseline.
    """
    needed = REFERENCE_CARDS / per_card
    # A ratio of equals went through logarithms, and may be above 1 by its last bits.
    return math.ceil(needed * (1 - 1e-12))


def _accuracy(a: Detail, b: Detail, name: str) -> Accuracy:
    if (why := _no_accuracy(a, b, name)) is not None:
        one, other = (_number(side, "accuracy")["value"] for side in (a, b))
        return Accuracy(baseline=one, other=other, reason=why)
    right = [_right(side["answers"]) for side in (a, b)]
    found = Paired.of(*right)
    low, high = (-100 * end for end in reversed(drop_interval(found)))
    word: Comparison = "no difference shown"
    if low > 0 or high < 0:
        word = "better" if low > 0 else "worse"
    gate = b["setup"]
    return Accuracy(
        task=f"{gate['accuracy_gate.task']}-{gate['accuracy_gate.shots']}shot",
        questions=found.n,
        baseline=100 * sum(right[0]) / found.n,
        other=100 * sum(right[1]) / found.n,
        points=-100 * found.drop,
        low=low,
        high=high,
        worse=found.worse,
        better=found.better,
        word=word,
    )


def _no_accuracy(a: Detail, b: Detail, name: str) -> str | None:
    if a["quoted"] or b["quoted"]:
        return "a publication without its answers: they cannot be paired question by question"
    if a["simulated"] != b["simulated"]:
        return "answers of a simulated engine are made up"
    for side, detail in (("A", a), (name, b)):
        if detail["answers"] is None:
            return f"{side}: {detail['gate']['text']}"
    if other := [p for p in _asked(a) if a["setup"].get(p) != b["setup"].get(p)]:
        return f"they answered other questions: {', '.join(other)}"
    return None


def _asked(detail: Detail) -> list[str]:
    allowed = "accuracy_gate.max_drop_points"
    return [p for p in detail["setup"] if p.startswith("accuracy_gate.") and p != allowed]


def _right(answers: Detail) -> list[bool]:
    packed = base64.b64decode(answers["correct"])
    return [bool(packed[i // 8] & 128 >> i % 8) for i in range(answers["questions"])]
