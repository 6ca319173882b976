"""Sliding windows against a slow count of each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.engine_model.load import Played
from tokenwatt_site.engine_model.sliding import windows_kept
from tokenwatt_site.goodput import rank
from tokenwatt_site.spec import Objective

SLO = (
    Objective(metric="ttft", quantile=0.5, limit_ms=0.000010),
    Objective(metric="tpot", quantile=0.9, limit_ms=0.000003),
)
requests = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 20), st.integers(0, 30), st.integers(1, 6)),
    min_size=3,
    max_size=30,
)


def slowly(rows, low, high, length, step):
    due = np.cumsum([row[0] for row in rows]).tolist()
    kept = []
    for begin in range(due[low], due[high - 1] - length + 1, step):
        window = [row for row, at in zip(rows, due, strict=True) if begin <= at < begin + length]
        waits = [wait > 10 for _, wait, _, _ in window]
        spans = [round(span / (n - 1)) > 3 for _, _, span, n in window if n > 1]
        kept.append(
            all(
                misses and sum(misses) <= len(misses) - rank(o.quantile, len(misses))
                for misses, o in zip((waits, spans), SLO, strict=True)
            )
        )
    return tuple(kept)


@given(requests, st.integers(1, 40), st.integers(1, 9), st.data())
def test_each_window_is_judged_by_what_comes_due_in_it(rows, length, step, data):
    low = data.draw(st.integers(0, len(rows) - 2))
    high = data.draw(st.integers(low + 1, len(rows)))
    due = np.cumsum([row[0] for row in rows], dtype=np.int64)
    first = due + np.array([row[1] for row in rows], np.int64)
    last = first + np.array([row[2] for row in rows], np.int64)
    n_out = np.array([row[3] for row in rows], np.int64)
    found = windows_kept(
        SLO,
        Played(due, first, last, 0),
        n_out,
        slice(low, high),
        length_ns=length,
        step_ns=step,
    )
    assert tuple(bool(one) for one in found) == tuple(
        bool(one) for one in slowly(rows, low, high, length, step)
    )
