"""Which loads the self-test tries, and when one counts as held. Pure; no input or output.

Rates go up by about doubling, from twice what the search begins with to twice what it may ever ask,
until one is not held. Held means what DESIGN 4 asks of a trial: at least 99.5% of the requests sent
on time, dispatch lag and stamp uncertainty within the spec's tolerances at the 99th percentile;
and, since here the truth is known, the error of first and last token within the latter as well.

Where the server of the test was late itself the rate was not offered, and says nothing about the
client: the test ends there, and what was held before is the least that the client holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.goodput import quantile
from tokenwatt_site.run import SelfTest
from tokenwatt_site.spec import Spec
from tokenwatt_site.validity import (
    MAX_HELD_SHARE,
    MIN_SENT_SHARE,
    Tolerances,
    lag_ns,
)
from tokenwatt_site.workload import Realisation

MAX_RATES = 40
"""From any start to any end by doubling. An attempt takes little more than a second: who holds a
thousand times what the search begins with is tested for some ten."""

SPARE_TRIES = 2
"""Of all rates together: a moment of other load on the machine is no verdict."""

EMITTER_LAG_NS = 20_000_000
"""p99 up to which the server of the test was on time: of a try's time, a fortieth."""

FIRST_NS = 20_000_000
MAX_TOKENS = 64
MAX_ANSWER_NS = 320_000_000
SPAN_NS = 800_000_000
LEAST_REQUESTS = 12
LEAST_URPS = 8_000_000
_NEARLY = 0.1


@dataclass(frozen=True, slots=True)
class Truth:
    """What the server of the test did in one attempt.

    Attributes:
        lag_p99_ns: how late its tokens were against its own schedule.
        tokens_ns: by row of each answer sent in full, when its first and its last token were handed
            to the kernel, by `time.monotonic_ns()`.
    """

    lag_p99_ns: int
    tokens_ns: Mapping[int, tuple[int, int]]

    @classmethod
    def merged(cls, truths: Sequence[Truth]) -> Truth:
        """Return the truth of a server of several processes, each of which answered its own rows.

        It was as late as the latest of them, which is never less than the p99 of all tokens: where
        one process is late, its share of the load was not offered, however small that is.
        """
        return cls(
            max(truth.lag_p99_ns for truth in truths),
            {row: tokens for truth in truths for row, tokens in truth.tokens_ns.items()},
        )


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """What is asked in the test: answers of so many tokens, one each `interval_ns`.

    They are like the workload's, but so short that a load is full within a third of a second. Then
    there are more requests for the same tokens, which is more for the client to do.
    """

    tokens: int
    interval_ns: int
    input_tokens: int

    @classmethod
    def of(cls, spec: Spec, realisation: Realisation) -> AnswerShape:
        tokens = min(math.ceil(realisation.mean_output_tokens), MAX_TOKENS)
        limits = [o.limit_ns for o in spec.setup.slo if o.metric == "tpot"]
        return cls(
            tokens=tokens,
            interval_ns=min(*limits, MAX_ANSWER_NS // tokens, MAX_ANSWER_NS),
            input_tokens=math.ceil(realisation.mean_input_tokens),
        )

    @property
    def full_ns(self) -> int:
        """How long after the first request is due the load is full."""
        return FIRST_NS + (self.tokens - 1) * self.interval_ns


def rates_to_try(
    spec: Spec, realisation: Realisation, shape: AnswerShape, most_urps: int
) -> tuple[int, ...]:
    """Return the rates of the test in 1e-6 requests/s, rising to what asks twice `most_urps`.

    At most MAX_RATES: where doubling would need more, the steps are greater.
    """
    # Of the test's short answers it takes more for the same tokens; rounded up, for the cap.
    share = max(Fraction(1), Fraction(realisation.mean_output_tokens) / shape.tokens)
    margin = math.ceil(Fraction(1_000_000, shape.tokens))

    def asking(urps: int) -> int:
        return max(LEAST_URPS, math.ceil(urps * share / MAX_HELD_SHARE) + margin)

    top = asking(most_urps)
    low = asking(min(spec.protocol.start_urps, most_urps))
    # A last step that doubles by a tenth more is no reason for another.
    steps = min(MAX_RATES - 1, math.ceil(math.log2(top / low) - _NEARLY))
    return (*(round(low * (top / low) ** (step / steps)) for step in range(steps)), top)


def due_ns(realisation: Realisation, urps: int) -> tuple[int, ...]:
    """Return when the requests of one rate are due: the workload's gaps, at exactly this rate."""
    count = max(LEAST_REQUESTS, urps * SPAN_NS // 10**15)
    wanted = count * 10**15 // urps
    gaps = [realisation.rows[i % len(realisation.rows)].gap for i in range(count)]
    total, elapsed, due = max(1, sum(gaps)), 0, []
    for gap in gaps:
        due.append(elapsed * wanted // total)
        elapsed += gap
    return tuple(due)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the client recorded of one attempt; `epoch_ns` is time 0 by `time.monotonic_ns()`."""

    records: tuple[RequestRecord, ...]
    epoch_ns: int
    stamps: Literal["kernel", "user space"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one rate gave, over the requests that came due once its load was full.

    `on_time` of `scored` were sent on time and answered in full. Errors are None where none was, so
    that there is nothing to compare.
    """

    requests_urps: int
    events_per_s: int
    scored: int
    on_time: int
    lag_p99_ns: int | None
    first_error_p99_ns: int | None
    last_error_p99_ns: int | None
    uncertainty_p99_ns: int | None
    emitter_lag_p99_ns: int
    stamps: Literal["kernel", "user space"]

    @property
    def offered(self) -> bool:
        """Whether the server of the test was on time, so that this rate was what was offered."""
        return self.emitter_lag_p99_ns <= EMITTER_LAG_NS

    def held(self, tolerances: Tolerances) -> bool:
        bounds = (
            (self.lag_p99_ns, tolerances.lag_ns),
            (self.first_error_p99_ns, tolerances.stamp_ns),
            (self.last_error_p99_ns, tolerances.stamp_ns),
            (self.uncertainty_p99_ns, tolerances.stamp_ns),
        )
        within = all(found is not None and found <= limit for found, limit in bounds)
        return self.offered and within and self.on_time >= MIN_SENT_SHARE * self.scored

    @classmethod
    def of(
        cls,
        recorded: Recorded,
        truth: Truth,
        *,
        shape: AnswerShape,
        urps: int,
        due: Sequence[int],
        tolerances: Tolerances,
    ) -> Attempt:
        """Hold what the client recorded of one attempt against the truth.

        Args:
            recorded: what the client recorded.
            truth: what the server did.
            shape: of the answers.
            urps: the rate, in 1e-6 requests/s.
            due: when requests were due, in ns, rising.
            tolerances: of the spec.
        """
        # Where all came due before the load was full, the later half stands for it.
        from_ns = min(shape.full_ns, due[len(due) // 2])
        lags: list[int] = []
        first: list[int] = []
        last: list[int] = []
        uncertain: list[int] = []
        on_time = 0
        for r in recorded.records:
            if r.due_ns < from_ns or r.sent_ns is None:
                continue
            lags.append(lag_ns(r))
            if r.status is not Status.OK or r.row not in truth.tokens_ns:
                continue
            on_time += lags[-1] <= tolerances.lag_ns
            first_ns, last_ns = truth.tokens_ns[r.row]
            first.append(abs(recorded.epoch_ns + (r.first_ns or 0) - first_ns))
            last.append(abs(recorded.epoch_ns + (r.last_ns or 0) - last_ns))
            uncertain.append(r.uncertainty_ns)
        return cls(
            requests_urps=urps,
            events_per_s=urps * shape.tokens // 1_000_000,
            scored=sum(due_ns >= from_ns for due_ns in due),
            on_time=on_time,
            lag_p99_ns=_p99(lags),
            first_error_p99_ns=_p99(first),
            last_error_p99_ns=_p99(last),
            uncertainty_p99_ns=_p99(uncertain),
            emitter_lag_p99_ns=truth.lag_p99_ns,
            stamps=recorded.stamps,
        )


def _p99(values: Sequence[int]) -> int | None:
    return quantile(values, 0.99) if values else None


def highest_held(
    rates_urps: Sequence[int], attempt: Callable[[int], Attempt], tolerances: Tolerances
) -> SelfTest:
    """Try rates, rising, until one is not held; return the highest that was.

    Args:
        rates_urps: what to try, in 1e-6 requests/s.
        attempt: offers one of them.
        tolerances: of the spec.
    """
    best: Attempt | None = None
    spare = SPARE_TRIES
    for urps in rates_urps:
        seen = attempt(urps)
        while not seen.held(tolerances) and spare > 0:
            spare -= 1
            seen = attempt(urps)
        if not seen.held(tolerances):
            return _result(best, seen, "client" if seen.offered else "emitter")
        best = seen
    return _result(best, seen, "asked")


def _result(
    best: Attempt | None, last: Attempt, limited_by: Literal["client", "emitter", "asked"]
) -> SelfTest:
    shown = best or last
    return SelfTest(
        events_per_s=best.events_per_s if best else 0,
        requests_urps=best.requests_urps if best else 0,
        first_token_error_p99_ns=shown.first_error_p99_ns,
        dispatch_lag_p99_ns=shown.lag_p99_ns,
        stamps=shown.stamps,
        limited_by=limited_by,
    )
