"""The results of one side against the baseline: ratios, cards for equal goodput, accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from tokenwatt_site import statistics
from tokenwatt_site.comparison.result import (
    ENERGY,
    REFERENCE_CARDS,
    Accuracy,
    Cards,
    Detail,
    Pair,
    Row,
    letter,
)
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import text
from tokenwatt_site.pages.comparison_words import MARKS, Block, Parts, cell, head, interval, points
from tokenwatt_site.statistics import Ratio

_SIDE = {"higher": "↑ higher is better", "lower": "↓ lower is better", "neither": ""}

TICKS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000)

_WIDTH = 240.0

HOW_TO_READ = (
    "How to read: each mark is a ratio, its line the interval, the grey band within 3% of equal."
    " Line clear of 1: better or worse. Line inside the band: same within 3%. Otherwise no"
    " difference shown, which is not proof that there is none. A ratio without a line has too few"
    " launches for an interval."
)


def pair_blocks(details: Sequence[Detail], pair: Pair, index: int) -> Iterator[Block]:
    a, b, name = details[0], details[index], letter(index)
    yield {"kind": "h2", "id": f"results-{name}", "text": f"Results, {name} relative to A"}
    if pair.refused is not None:
        words = f"Not compared: {pair.refused}."
        yield {"kind": "p", "class": "tw-missing", "parts": [[words, ""]]}
    else:
        yield _results(a, b, pair, name)
        yield {"kind": "p", "class": "tw-fig-note", "parts": [[HOW_TO_READ, ""]]}
        if pair.absent:
            items = [f"{label}: {reason}" for label, reason in pair.absent]
            yield {"kind": "details", "summary": "Numbers that neither side has", "items": items}
        yield from _cards(pair.cards, a, name)
    yield from _accuracy(pair.accuracy, name)


def _results(a: Detail, b: Detail, pair: Pair, name: str) -> Block:
    scale = _scale(pair.rows)
    published = ", A as published and not recomputed" if a["quoted"] else ""
    return {
        "kind": "table",
        "label": f"Results, {name} relative to A",
        "class": "tw-cmp",
        "caption": f"{name} divided by A{published}. {_how(pair.rows)}",
        "heads": [
            head("Metric"),
            head(f"Verdict on {name}", "tw-wide-cell"),
            head(f"Ratio {name} / A, interval", "n"),
            head("Smaller than A, or larger", "tw-ratio", _axis(scale)),
            head("A", "n"),
            head(name, "n"),
        ],
        "groups": [
            {
                "name": _group(group, b),
                "rows": [_row(row, scale, a) for row in pair.rows if row.group == group],
            }
            for group in dict.fromkeys(row.group for row in pair.rows)
        ],
    }


def _group(group: str, b: Detail) -> str:
    words = b["power_words"]
    return f"{group}: {words}" if group == ENERGY and words else group


def _how(rows: Iterable[Row]) -> str:
    """Say how the intervals were made, each way once."""
    found = dict.fromkeys((row.paired, row.launches, row.level) for row in rows if row.ratio)
    told = []
    for is_paired, (ones, others), level in found:
        if ones == 0:
            words = f"one published value against n = {others}"
        elif is_paired:
            words = f"paired by realisation, n = {text.counted(others, 'pair')}"
        else:
            words = f"Welch on logarithms, n = {ones} and {others} launches"
        told.append(f"{words}, {f'{level}% interval' if level else 'no interval'}")
    sentences = "; ".join(told)
    return f"{sentences[:1].upper()}{sentences[1:]}." if told else ""


def _row(row: Row, scale: float, a: Detail) -> list[Block]:
    metric = METRICS[row.key]
    side = _SIDE[metric.better]
    small = f"{metric.unit}; {side}" if side else metric.unit
    values = [cell([[_amount(v, row.key), ""]], "n") for v in (row.baseline, row.other)]
    if row.ratio is None or row.word is None:
        why = cell([[f"not compared: {row.reason}", ""]], "tw-none tw-reason", span=3)
        return [cell([[row.label, ""]], "", small, key=row.key), why, *values]
    verdict = _verdict(row.word)
    sure = "as published, not recomputed" if a["quoted"] else interval(row.ratio)
    return [
        cell([[row.label, ""]], "", small, key=row.key, verdict=verdict),
        cell([], "tw-wide-cell", verdict=verdict),
        cell([[f"{row.ratio.value:.3f}", "b"]], "n", sure),
        cell([], "tw-ratio", bar=_bar(row.ratio, row.word, scale)),
        *values,
    ]


def _verdict(word: str) -> Block:
    cls, icon, _ = MARKS[word]
    return {"word": word, "class": cls, "icon": icon}


def _amount(value: float | None, key: str) -> str:
    return "–" if value is None else text.amount(value, METRICS[key])


def _scale(rows: Iterable[Row]) -> float:
    """Return how far the axis goes on either side of 1, on logs."""
    ends = [end for row in rows if row.ratio for end in (row.ratio.low, row.ratio.high)]
    ends += [row.ratio.value for row in rows if row.ratio]
    furthest = max((abs(math.log(end)) for end in ends if end is not None), default=0.0)
    return 1.1 * max(furthest, math.log(1.05))


def _at(value: float, scale: float) -> float:
    return round(_WIDTH / 2 * (1 + math.log(value) / scale), 1)


def _axis(scale: float) -> Block:
    tick = max(tick for tick in TICKS if math.log(tick) <= 0.95 * scale)
    ends = [[_at(1 / tick, scale), f"÷ {tick:g}"], [_at(1, scale), "1"]]
    return {"ticks": [*ends, [_at(tick, scale), f"× {tick:g}"]]}


def _bar(ratio: Ratio, word: str, scale: float) -> Block:
    band = [max(0.0, _at(1 / statistics.SAME, scale)), min(_WIDTH, _at(statistics.SAME, scale))]
    line = None
    if ratio.low is not None and ratio.high is not None:
        line = [_at(ratio.low, scale), _at(ratio.high, scale)]
    words = f"{word}: ratio {ratio.value:.3f}, {interval(ratio)}"
    at, shape = _at(ratio.value, scale), MARKS[word][2]
    return {"at": at, "line": line, "band": band, "shape": shape, "words": words}


def _cards(found: Cards, a: Detail, name: str) -> Iterator[Block]:
    yield {"kind": "h3", "id": f"cards-{name}", "text": "Cards for equal goodput"}
    if found.value is None or found.per_card is None or found.of is None:
        words = f"Not told: {found.reason}."
        yield {"kind": "p", "class": "tw-small", "parts": [[words, ""]]}
        return
    reference = REFERENCE_CARDS
    parts: Parts = [
        [f"{found.value:,} cards of {name}", "b"],
        [f" do the work of {reference} of A", ""],
    ]
    if found.low is not None and found.high is not None:
        parts.append([f" (by the interval {found.low:,} to {found.high:,})", ""])
    label = METRICS[found.of].label
    per_card = f"{found.per_card.value:.3f}"
    words = (
        f". {reference} ÷ the ratio of {label} per card, {per_card}, rounded up; all cards count."
    )
    published = " A is as published, not recomputed." if a["quoted"] else ""
    parts.append([f"{words}{published}", ""])
    yield {"kind": "p", "class": "", "parts": parts}


def _accuracy(found: Accuracy, name: str) -> Iterator[Block]:
    yield {"kind": "h3", "id": f"accuracy-{name}", "text": "Accuracy"}
    if found.points is None or found.low is None or found.high is None:
        words = f"Not compared: {found.reason}."
        yield {"kind": "p", "class": "tw-small", "parts": [[words, ""]]}
        return
    told = f"{points(found.points)} points, 95% interval {points(found.low)} to"
    scores = f"{found.other:.1f}% against {found.baseline:.1f}%"
    words = (
        f": {name} is at {scores} on the same {found.questions:,} questions of {found.task}:"
        f" {told} {points(found.high)}. {found.worse:,} were right on A alone,"
        f" {found.better:,} on {name} alone."
    )
    parts: Parts = [[str(found.word), "b"], [words, ""]]
    cls = f"tw-verdict--{MARKS[str(found.word)][0]}"
    yield {"kind": "p", "class": cls, "parts": parts}
