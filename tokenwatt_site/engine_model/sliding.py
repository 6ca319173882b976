"""Windows that slide over a played load: which of them keep an SLO."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenwatt_site.engine_model.load import Count, Played, missed
from tokenwatt_site.engine_model.steps import Ints
from tokenwatt_site.spec import Objective


def windows_kept(
    slo: Sequence[Objective],
    played: Played,
    n_out: Ints,
    scored: slice,
    *,
    length_ns: int,
    step_ns: int,
) -> tuple[bool, ...]:
    """Tell of each window whether it passes every objective.

    Windows begin every `step_ns` from the first scored arrival on, and end by the last one; in a
    window is what comes due from its begin to before its end. Empty where none fits.
    """
    due = played.due_ns
    begins = np.array(
        range(int(due[scored][0]), int(due[scored][-1]) - length_ns + 1, step_ns), np.int64
    )
    low, high = np.searchsorted(due, begins), np.searchsorted(due, begins + length_ns)
    kept = np.ones(len(begins), bool)
    for objective in slo:
        misses, n = counted(objective, played, n_out, low, high)
        passed = [Count(int(m), int(k)).passes(objective) for m, k in zip(misses, n, strict=True)]
        kept &= np.array(passed, bool)
    return tuple(kept.tolist())


def counted(
    objective: Objective, played: Played, n_out: Ints, low: Ints, high: Ints
) -> tuple[Ints, Ints]:
    """Count, from each row of `low` to before that of `high`, what misses, and what could."""
    defined = n_out > 1 if objective.metric == "tpot" else np.ones(len(n_out), bool)
    return _within(missed(objective, played, n_out), low, high), _within(defined, low, high)


def _within(told: np.ndarray, low: Ints, high: Ints) -> Ints:
    sums: Ints = np.zeros(len(told) + 1, np.int64)
    np.cumsum(told, out=sums[1:])
    found: Ints = sums[high] - sums[low]
    return found
