"""What is offered to a modelled engine, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tokenwatt_site.engine_model.compiled import Compiled
from tokenwatt_site.engine_model.model import EngineModel
from tokenwatt_site.engine_model.steps import MOST_STEPS, NONE, Ints, serve
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.goodput import rank
from tokenwatt_site.spec import Objective
from tokenwatt_site.workload import Realisation

MOST_BUCKETS = 1 << 23
"""Of all replicas: one for each token of the longest answer."""

_PART = 1 << 20


@dataclass(frozen=True)
class Load:
    """Rows of a realisation as columns: `elapsed` adds up the gaps, in 1/GAP_UNIT of the mean."""

    elapsed: Ints
    n_in: Ints
    n_out: Ints
    scored: slice

    @classmethod
    def of(cls, realisation: Realisation) -> Load:
        columns = np.array([row[:3] for row in realisation.rows], np.int64).reshape(-1, 3)
        rows = realisation.scored_rows
        return cls(
            elapsed=np.cumsum(columns[:, 0]),
            n_in=np.ascontiguousarray(columns[:, 1]),
            n_out=np.ascontiguousarray(columns[:, 2]),
            scored=slice(rows.start, rows.stop),
        )

    @cached_property
    def ring_size(self) -> int:
        return 1 << int(self.n_out.max()).bit_length()

    def due_ns(self, rate_urps: int) -> Ints:
        """Return what `Realisation.due_ns` returns; rates up to 1e5 requests/s."""
        return _due_ns(self.elapsed, rate_urps)


@dataclass(frozen=True, slots=True)
class Played:
    """When requests came due, began to be answered and ended, in ns; all of shape (n,)."""

    due_ns: Ints
    first_ns: Ints
    last_ns: Ints
    put_back: int


@dataclass(frozen=True, slots=True)
class Count:
    """How many of n scored requests miss an objective; where it is undefined, they are not of n."""

    misses: int
    n: int

    def passes(self, objective: Objective) -> bool:
        return self.n > 0 and self.misses <= self.n - rank(objective.quantile, self.n)


def play(model: EngineModel, load: Load, rate_urps: int) -> Played:
    """Answer a load at a rate, in 1e-6 requests/s.

    Raises:
        InputError: the model takes more steps, or room, than a replay is given.
    """
    if model.family.replicas * load.ring_size > MOST_BUCKETS:
        raise _too_much(model, "buckets for the answers to come", MOST_BUCKETS)
    due = load.due_ns(rate_urps)
    first, last, put_back = serve(
        due,
        load.n_in,
        load.n_out,
        np.array(model.prices.in_order, np.int64),
        np.array(model.family.limits, np.int64),
        load.ring_size,
    )
    if put_back == NONE:
        raise _too_much(model, "steps", MOST_STEPS * len(due))
    return Played(due, first, last, int(put_back))


def _too_much(model: EngineModel, what: str, most: int) -> InputError:
    told = {**model.family.to_json(), **model.prices.to_json()}
    return InputError(
        Problem(
            f"is an engine whose replay takes more {what} than it is given",
            field="engine model",
            found=str(told)[:200],
            expected=f"at most {most:,}",
        )
    )


def tpot_ns(played: Played, n_out: Ints) -> Ints:
    """Return times per output token to the nearest ns, as `goodput.tpot_ns`; 0 where undefined."""
    spans, steps = played.last_ns - played.first_ns, np.maximum(n_out - 1, 1)
    below, rest = np.divmod(spans, steps)
    up = (2 * rest > steps) | ((2 * rest == steps) & (below % 2 == 1))
    return np.where(n_out > 1, below + up, 0)


def missed(objective: Objective, played: Played, n_out: Ints) -> np.ndarray:
    """Tell of each request whether it misses an objective; one that is undefined does not."""
    if objective.metric == "ttft":
        values = played.first_ns - played.due_ns
    elif objective.metric == "e2e":
        values = played.last_ns - played.due_ns
    else:
        values = tpot_ns(played, n_out)
    return values > objective.limit_ns


def counts(
    slo: Sequence[Objective], played: Played, n_out: Ints, scored: slice
) -> tuple[Count, ...]:
    """Count the misses of each objective among the scored requests."""
    asked = n_out[scored]
    found = []
    for objective in slo:
        n = int(np.count_nonzero(asked > 1)) if objective.metric == "tpot" else len(asked)
        misses = missed(objective, played, n_out)[scored]
        found.append(Count(int(np.count_nonzero(misses)), n))
    return tuple(found)


def holds(model: EngineModel, load: Load, rate_urps: int, slo: Sequence[Objective]) -> bool:
    """Tell whether a modelled engine passes every objective at a rate."""
    found = counts(slo, play(model, load, rate_urps), load.n_out, load.scored)
    return all(count.passes(o) for count, o in zip(found, slo, strict=True))


@Compiled
def _due_ns(elapsed: Ints, rate_urps: int) -> Ints:
    # elapsed x 10^15 / (rate x 2^20) = elapsed x 5^15 / (rate x 2^5), of which the product is wider
    # than 64 bits: the quotient is taken of the factor first, and of the rest in two parts.
    divisor = rate_urps * 32
    whole, rest = 30517578125 // divisor, 30517578125 % divisor
    due = np.empty_like(elapsed)
    for i in range(len(elapsed)):
        high, low = elapsed[i] // _PART, elapsed[i] % _PART
        product = high * rest
        below, left = product // divisor, product % divisor
        due[i] = elapsed[i] * whole + below * _PART + (left * _PART + low * rest) // divisor
    return due
