"""What a comparison tells beside its ratios: cards for equal goodput, and accuracy."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable

from tokenwatt_site.accuracy_gate import Paired, drop_interval
from tokenwatt_site.comparison.result import REFERENCE_CARDS, Accuracy, Cards, Detail, Row, number
from tokenwatt_site.statistics import Comparison, Ratio


def cards_of(a: Detail, b: Detail, rows: Iterable[Row], refused: str | None) -> Cards:
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


def accuracy_of(a: Detail, b: Detail, name: str) -> Accuracy:
    if (why := _no_accuracy(a, b, name)) is not None:
        one, other = (number(side, "accuracy")["value"] for side in (a, b))
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
