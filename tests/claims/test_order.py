"""The order in which an engine begins to answer, against a slow count of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import answered_whole
from tokenwatt_site.claims.order import Order, order_of, overtaken
from tokenwatt_site.engine_model.load import Played
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.spec import Objective
from tokenwatt_site.workload import Row

P99 = Objective(metric="ttft", quantile=0.99, limit_ms=2000)
P90 = Objective(metric="tpot", quantile=0.9, limit_ms=50)
STEP_NS = 1000
ROW = Row(1, 10, 5, 0)


def slowly(first_ns: list[int], step_ns: int) -> int:
    return sum(
        any(later + step_ns < first for later in first_ns[place + 1 :])
        for place, first in enumerate(first_ns)
    )


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(0, 10))
def test_who_is_overtaken_is_counted_as_by_looking_at_all_pairs(first_ns, step_ns):
    assert overtaken(first_ns, step_ns) == slowly(first_ns, step_ns)


def records_of(first_ns, step_ns=STEP_NS):
    return tuple(
        answered_whole((1, 1), row, ROW, due_ns=row, first_ns=at, last_ns=at + 4 * step_ns)
        for row, at in enumerate(first_ns)
    )


def played(first_ns):
    first = np.array(first_ns, np.int64)
    return Played(np.arange(len(first)), first, first + 4 * STEP_NS, 0)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 9000)), min_size=1, max_size=20),
        max_size=4,
    )
)
def test_trials_are_counted_one_by_one_with_the_model_s_own_beside(trials):
    pairs = [tuple(map(list, zip(*trial, strict=True))) for trial in trials]
    found = order_of((records_of(seen), played(own)) for seen, own in pairs)
    assert found == Order(
        requests=sum(map(len, trials)),
        seen=sum(slowly(seen, STEP_NS) for seen, _ in pairs),
        modelled=sum(slowly(own, STEP_NS) for _, own in pairs),
    )


def test_what_comes_in_one_step_has_no_order_and_a_step_is_the_median_time_per_token():
    in_one_step, later = [5000, 4000], [5001, 4000]
    assert order_of([(records_of(in_one_step), played([0, 0]))]).seen == 0
    assert order_of([(records_of(later), played([0, 0]))]).seen == 1
    mixed = records_of(later, 10)[:1] + records_of(later, 1001)[1:]
    assert order_of([(mixed, played([0, 0]))]).seen == 1  # the lower of two medians


def test_requests_without_a_first_token_are_in_neither_order():
    records = list(records_of([9000, 5000, 1000]))
    records[2] = replace(records[2], first_ns=None, last_ns=None, status=Status.TIMED_OUT)
    assert order_of([(records, played([9000, 5000, 1000]))]) == Order(2, 1, 1)


def test_a_request_that_was_still_being_answered_has_its_place():
    records = list(records_of([9000, 5000, 9000]))
    records[1] = replace(records[1], output_tokens=None, status=Status.CENSORED)
    assert order_of([(records, played([1, 2, 3]))]) == Order(3, 1, 0)


def test_answers_of_one_token_tell_no_step_and_so_no_order():
    records = [replace(r, output_tokens=1) for r in records_of([9000, 5000])]
    assert order_of([(records, played([1, 2]))]) == Order(0, 0, 0)
    assert Order(0, 0, 0).refusal([P99]) is None


@pytest.mark.parametrize(
    ("order", "slo", "refused"),
    [
        (Order(1000, 10, 0), [P90, P99], False),
        (Order(1000, 11, 0), [P90, P99], True),
        (Order(1000, 11, 0), [P90], False),
        (Order(1000, 101, 0), [P90], True),
        (Order(1000, 30, 20), [P99], False),
        (Order(1000, 0, 500), [P99], False),
        (Order(1000, 31, 20), [P99], True),
    ],
)
def test_as_many_may_be_overtaken_beyond_the_model_s_as_may_miss_the_strictest_objective(
    order, slo, refused
):
    assert (order.refusal(slo) is not None) == refused


def test_a_refusal_tells_both_shares_and_what_is_allowed():
    assert Order(2000, 216, 10).refusal([P90, P99]) == (
        "the engine does not keep the order of its model: 10.8% of requests were overtaken by later"
        " ones, 0.5% in the model, by more than a step; 1% more may be, as many as may miss the SLO"
    )
