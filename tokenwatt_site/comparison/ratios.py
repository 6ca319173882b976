"""Numbers of two sides divided, or the reason why they are not.

Repeat r offers realisation r to everyone. Where both sides offered the same rows the ratio is
paired, so that luck of the rows cancels; else it is Welch's, of two independent sets of launches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tokenwatt_site.comparison.result import (
    ENERGY,
    KINDS,
    LATENCY,
    THROUGHPUT,
    WHOLE,
    Detail,
    Level,
    Row,
    number,
)
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.run import LONG_RUN_METRICS
from tokenwatt_site.statistics import SYSTEMATIC, Ratio, against, paired

MIN_LAUNCHES = 3
"""On either side; from fewer there is no interval."""

# Of a ratio of two long-run numbers: the models of both may be off, each by itself.
_OF_BOTH = math.sqrt(2) * SYSTEMATIC
_NORMAL = {95: 1.959964, 90: 1.644854}


def same_windows(a: Detail, b: Detail) -> bool:
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
        return _of_two_modes(key, a, b)
    if key not in WHOLE and a["rows"] != b["rows"]:
        return "windows of another length: short ones overstate more"
    return None


def _of_two_modes(key: str, a: Detail, b: Detail) -> str | None:
    if key not in WHOLE:
        return f"{b['mode']} mode against {a['mode']}: windows of another length"
    few = a if a["launches"] < b["launches"] else b
    if (n := few["launches"]) < MIN_LAUNCHES:
        return f"{few['mode']} mode with n = {n}: an interval takes {MIN_LAUNCHES} launches"
    return None


def rows_of(a: Detail, b: Detail, name: str) -> Iterator[Row]:
    for group, keys in KINDS.items():
        for key in keys:
            one, other = number(a, key), number(b, key)
            why = _barred(key, a, b) or _missing(one, other, name)
            if why is None:
                yield _divided(group, key, one, other, _pairs(a, b, one, other))
            else:
                yield Row(group, key, other["label"], one["value"], other["value"], reason=why)


def goodput(a: Detail, b: Detail) -> Row:
    """Divide the goodput of two that answer one question: of the long run, else as measured."""
    rows = {row.key: row for row in rows_of(a, b, "B") if row.group == THROUGHPUT}
    lasting = rows["long_run_goodput"]
    return rows["goodput"] if lasting.ratio is None else lasting


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
    if a["quoted"] or not same_windows(a, b):
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


def latency(a: Detail, b: Detail) -> Iterator[Row]:
    """Yield the SLO's latencies at the highest rate that every repeat of both was offered.

    At the boundary of each side they are near their limits, however fast it is.
    """
    pairs = min(len(a["realisations"]), len(b["realisations"])) if not a["quoted"] else 0
    if not same_windows(a, b) or a["realisations"][:pairs] != b["realisations"][:pairs]:
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
