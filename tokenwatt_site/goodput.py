"""From request records to TTFT, TPOT and E2E, to the verdict of a trial, to the boundary.

Definitions (DESIGN 4): TTFT = first_ns - due_ns. TPOT = (last_ns - first_ns) / (N - n_first),
undefined when N <= n_first. E2E = end_ns - due_ns. A quantile is an order statistic,
sorted[ceil(q n) - 1]. An objective passes when at most n - ceil(q n) of n requests miss it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from tokenwatt_site.evidence import RequestRecord, Status
from tokenwatt_site.spec import Objective

Outcome: TypeAlias = Literal["PASS", "FAIL", "UNDECIDED"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """How one objective stands over the scored requests of one trial.

    `n` counts the requests for which the metric is defined. `undecided` are censored requests that
    could still do either. `value_ns` is the order statistic, None while it could still move or when
    it is beyond what was seen to end.
    """

    objective: Objective
    n: int
    undefined: int
    misses: int
    undecided: int
    value_ns: int | None

    @property
    def allowed(self) -> int:
        """The most misses with which the objective passes: n - ceil(q n)."""
        return self.n - rank(self.objective.quantile, self.n)

    @property
    def measured(self) -> bool:
        """Whether any request could meet or miss it; an objective on nothing is no pass."""
        return self.n > 0

    @property
    def outcome(self) -> Outcome:
        if self.misses > self.allowed:
            return "FAIL"
        return "PASS" if self.undecided == 0 else "UNDECIDED"


def rank(quantile: float, n: int) -> int:
    """Return ceil(q n), with q as the decimal that was written: 0.99 x 100 is 99, not 100."""
    return math.ceil(Fraction(repr(quantile)) * n)


def quantile(values: Sequence[int], q: float) -> int:
    """Return the order statistic sorted[ceil(q n) - 1] of at least one value."""
    return sorted(values)[max(rank(q, len(values)), 1) - 1]


def _from_send_ns(record: RequestRecord) -> int | None:
    if record.first_ns is None or record.sent_ns is None:
        return None
    return record.first_ns - record.sent_ns


def ttft_ns(record: RequestRecord) -> int | None:
    return None if record.first_ns is None else record.first_ns - record.due_ns


def tpot_ns(record: RequestRecord) -> int | None:
    """Return the time per output token, to the nearest ns; None where it is undefined."""
    if record.first_ns is None or record.last_ns is None:
        return None
    if record.output_tokens is None or record.first_tokens is None:
        return None
    steps = record.output_tokens - record.first_tokens
    return round(Fraction(record.last_ns - record.first_ns, steps)) if steps > 0 else None


def e2e_ns(record: RequestRecord) -> int | None:
    return record.end_ns - record.due_ns if record.status is Status.OK else None


METRIC_OF = {
    "ttft": ttft_ns,
    "ttft_from_send": _from_send_ns,
    "tpot": tpot_ns,
    "e2e": e2e_ns,
}


def judge(objective: Objective, scored: Sequence[RequestRecord], pending: int = 0) -> Judgement:
    """Judge one objective; works on finished and on running trials alike.

    A request that failed, was never sent or came out short misses every objective. A censored one
    misses when what is already known puts it beyond the limit, and is undecided otherwise.

    Args:
        objective: metric, quantile and limit.
        scored: the scored requests that came due.
        pending: how many more are scored but did not come due; they are undecided.
    """
    limit = objective.limit_ns
    known = sorted_values(objective.metric, scored)
    beyond = undecided = 0
    for record in scored:
        if record.status is Status.CENSORED and _least(objective, record) <= limit:
            undecided += 1
        elif record.status is not Status.OK:
            beyond += 1
    undefined = len(scored) - len(known) - beyond - undecided
    undecided += pending
    n = len(scored) + pending - undefined
    misses = beyond + len(known) - bisect_right(known, limit)
    value_ns = at_quantile(known, n, objective.quantile) if undecided == 0 else None
    return Judgement(objective, n, undefined, misses, undecided, value_ns)


def sorted_values(metric: str, scored: Sequence[RequestRecord]) -> list[int]:
    """Return the values of `metric` in ns, ascending, over the requests that ended well."""
    of = METRIC_OF[metric]
    ended = (of(record) for record in scored if record.status is Status.OK)
    return sorted(value for value in ended if value is not None)


def order_statistic(metric: str, scored: Sequence[RequestRecord], q: float) -> int | None:
    """Return the q quantile in ns over all requests for which `metric` is defined.

    A request that did not end well stands above all that did; None when the quantile falls on one
    of those, or when there is none at all.
    """
    known = sorted_values(metric, scored)
    failed = sum(record.status is not Status.OK for record in scored)
    return at_quantile(known, len(known) + failed, q)


def at_quantile(known: Sequence[int], n: int, q: float) -> int | None:
    """Return the q quantile of n values of which `known`, ascending, are the lowest; or None."""
    position = max(rank(q, n), 1) - 1
    return known[position] if position < len(known) else None


def _least(objective: Objective, record: RequestRecord) -> int:
    """Return the least that a censored request's metric can still become, in ns."""
    if objective.metric == "e2e" or record.first_ns is None:
        age = record.end_ns - record.due_ns
        return age if objective.metric != "tpot" else 0
    if objective.metric == "ttft":
        return record.first_ns - record.due_ns
    # The last token may have come already, and only the end of the answer be missing.
    steps = record.output_asked - (record.first_tokens or 1)
    last_ns = record.first_ns if record.last_ns is None else record.last_ns
    return (last_ns - record.first_ns) // steps if steps > 0 else 0


def decide(judgements: Sequence[Judgement]) -> Outcome:
    """Combine objectives: one that fails decides; all must pass."""
    outcomes = {judgement.outcome for judgement in judgements}
    if "FAIL" in outcomes:
        return "FAIL"
    return "UNDECIDED" if "UNDECIDED" in outcomes else "PASS"


def meets_all(objectives: Sequence[Objective], record: RequestRecord) -> bool:
    """Tell whether one request meets every objective; an undefined metric is no miss."""
    if record.status is not Status.OK:
        return False
    values = ((METRIC_OF[o.metric](record), o.limit_ns) for o in objectives)
    return all(value is None or value <= limit for value, limit in values)


def bracket(
    passed_urps: Sequence[int], failed_urps: Sequence[int]
) -> tuple[int | None, int | None]:
    """Return (highest pass, lowest fail above it) of the rates of one repeat.

    A rate that failed below a rate that passed is a contradiction on one realisation (the engine is
    not deterministic): then the lowest fail decides, and only passes below it count.
    """
    low_fail = min(failed_urps, default=None)
    passes = [rate for rate in passed_urps if low_fail is None or rate < low_fail]
    return max(passes, default=None), low_fail


def boundary_urps(highest_pass: int | None, lowest_fail: int | None) -> int | None:
    """Return the geometric mean of the bracket, in 1e-6 requests/s; None while it is open."""
    if highest_pass is None or lowest_fail is None:
        return None
    return math.isqrt(highest_pass * lowest_fail)
