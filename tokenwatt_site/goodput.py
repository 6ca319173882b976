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

from tokenwatt_site.evidence.records import RequestRecord, Status
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


def carries(q: float, n: int) -> bool:
    """Tell whether n values carry a quantile: one lies above it, so that it is no maximum."""
    return rank(q, n) < n


def fewest(q: float) -> int:
    """Return how many values carry a quantile: 100 for p99, 10 for p90."""
    return math.ceil(1 / (1 - Fraction(repr(q))))


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
    return _nearest(record.last_ns - record.first_ns, steps) if steps > 0 else None


def _nearest(dividend: int, divisor: int) -> int:
    """Return the nearest integer to a quotient, of two that are as near the even one."""
    below, rest = divmod(dividend, divisor)
    return below + (2 * rest > divisor or (2 * rest == divisor and below % 2 == 1))


def e2e_ns(record: RequestRecord) -> int | None:
    return record.end_ns - record.due_ns if record.status is Status.OK else None


METRIC_OF = {
    "ttft": ttft_ns,
    "ttft_from_send": _from_send_ns,
    "tpot": tpot_ns,
    "e2e": e2e_ns,
}


class Tally:
    """The requests of one objective that ended, counted as they come.

    A request that failed, was never sent or came out short misses every objective.
    """

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._known: list[int] = []  # sorted where it is looked at
        self._failed = self._undefined = 0

    def add(self, record: RequestRecord) -> None:
        """Count a scored request that ended; a CENSORED one did not."""
        value = METRIC_OF[self._objective.metric](record)
        if record.status is not Status.OK:
            self._failed += 1
        elif value is None:
            self._undefined += 1
        else:
            self._known.append(value)

    def running_ns(self) -> int | None:
        """Return the objective's order statistic over what was added; see `order_statistic`."""
        self._known.sort()
        n = len(self._known) + self._failed
        return at_quantile(self._known, n, self._objective.quantile)

    def judgement(self, still: Sequence[RequestRecord] = (), pending: int = 0) -> Judgement:
        """Judge the objective; works on finished and on running trials alike.

        Args:
            still: the scored requests that came due and did not end: CENSORED. One misses when
                what is known already puts it beyond the limit, and is undecided otherwise.
            pending: how many more are scored; they are undecided.
        """
        limit = self._objective.limit_ns
        self._known.sort()
        late = sum(_least(self._objective, record) > limit for record in still)
        undecided = len(still) - late + pending
        n = len(self._known) + self._failed + len(still) + pending
        misses = self._failed + late + len(self._known) - bisect_right(self._known, limit)
        value_ns = None
        if undecided == 0:
            value_ns = at_quantile(self._known, n, self._objective.quantile)
        return Judgement(self._objective, n, self._undefined, misses, undecided, value_ns)


def judge(objective: Objective, scored: Sequence[RequestRecord], pending: int = 0) -> Judgement:
    """Judge one objective over scored requests, ended or CENSORED; see `Tally`."""
    tally = Tally(objective)
    for record in scored:
        if record.status is not Status.CENSORED:
            tally.add(record)
    return tally.judgement([r for r in scored if r.status is Status.CENSORED], pending)


def sorted_values(metric: str, scored: Sequence[RequestRecord]) -> list[int]:
    """Return the values of `metric` in ns, ascending, over the requests that ended well."""
    of = METRIC_OF[metric]
    ended = (of(record) for record in scored if record.status is Status.OK)
    return sorted(value for value in ended if value is not None)


def defined(metric: str, scored: Sequence[RequestRecord]) -> int:
    """Return over how many requests `order_statistic` goes."""
    failed = sum(record.status is not Status.OK for record in scored)
    return len(sorted_values(metric, scored)) + failed


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


def within_all(
    objectives: Sequence[Objective], records: Sequence[RequestRecord]
) -> list[RequestRecord]:
    """Return the requests that meet every objective; an undefined metric is no miss."""
    within = [record for record in records if record.status is Status.OK]
    for objective in objectives:
        of, limit = METRIC_OF[objective.metric], objective.limit_ns
        within = [r for r in within if (value := of(r)) is None or value <= limit]
    return within


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
