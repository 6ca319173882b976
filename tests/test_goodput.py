"""TTFT, TPOT, E2E, the verdict and the boundary, against slow oracles."""

import dataclasses
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.goodput import (
    boundary_urps,
    bracket,
    carries,
    decide,
    e2e_ns,
    fewest,
    judge,
    order_statistic,
    quantile,
    rank,
    tpot_ns,
    ttft_ns,
    within_all,
)
from tokenwatt_site.spec import Objective

MS = 1_000_000


def record(**changes):
    base = RequestRecord(
        repeat=1,
        trial=1,
        row=0,
        due_ns=1_000 * MS,
        dialled_ns=None,
        connected_ns=None,
        sent_ns=1_001 * MS,
        first_ns=1_200 * MS,
        last_ns=2_200 * MS,
        end_ns=2_201 * MS,
        prompt_asked=10,
        prompt_tokens=10,
        cached_tokens=0,
        output_asked=11,
        output_tokens=11,
        first_tokens=1,
        events=11,
        uncertainty_ns=0,
        status=Status.OK,
    )
    return dataclasses.replace(base, **changes)


def objective(metric="ttft", q=0.9, limit_ms=200.0):
    return Objective(metric=metric, quantile=q, limit_ms=limit_ms)


def test_a11_ttft_counts_from_the_scheduled_arrival_not_from_the_send():
    assert ttft_ns(record(sent_ns=1_190 * MS)) == 200 * MS


def test_a3_tpot_does_not_include_ttft():
    assert tpot_ns(record()) == 100 * MS


def test_a4_tokens_of_the_first_event_are_not_steps():
    assert tpot_ns(record(first_tokens=3, output_tokens=11)) == 125 * MS


def test_tpot_is_undefined_when_all_tokens_came_in_one_event():
    assert tpot_ns(record(first_tokens=11, last_ns=1_200 * MS)) is None


def test_e2e_counts_to_the_end_of_the_answer():
    assert e2e_ns(record()) == 1_201 * MS


@given(st.integers(1, 999), st.integers(1, 3000))
def test_a_rank_is_the_ceiling_of_q_n_with_q_as_written(thousandths, n):
    assert rank(thousandths / 1000, n) == math.ceil(Fraction(thousandths, 1000) * n)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_is_the_smallest_value_that_enough_values_do_not_exceed(values, q):
    found = quantile(values, q)
    need = math.ceil(Fraction(repr(q)) * len(values))
    assert sum(v <= found for v in values) >= need
    assert all(sum(v <= lower for v in values) < need for lower in values if lower < found)


latencies = st.lists(st.one_of(st.none(), st.integers(1, 400)), min_size=10, max_size=80)


@given(latencies, st.sampled_from([0.5, 0.9, 0.99]))
def test_an_objective_passes_exactly_when_its_quantile_is_within_the_limit(values, q):
    records = [
        record(status=Status.DISCONNECTED, first_ns=None)
        if v is None
        else record(first_ns=(1_000 + v) * MS)
        for v in values
    ]
    judged = judge(objective(q=q), records)
    as_infinite = sorted(math.inf if v is None else v for v in values)
    value = as_infinite[math.ceil(Fraction(repr(q)) * len(values)) - 1]
    assert (judged.outcome == "PASS") == (value <= 200)
    assert judged.value_ns == (None if value == math.inf else value * MS)


@pytest.mark.parametrize("status", [s for s in Status if s not in {Status.OK, Status.CENSORED}])
@pytest.mark.parametrize("metric", ["ttft", "tpot", "e2e"])
def test_a2_every_failure_misses_every_objective(status, metric):
    judged = judge(objective(metric, limit_ms=1e6), [record(status=status)] * 10)
    assert (judged.misses, judged.outcome) == (10, "FAIL")


def test_undefined_tpot_is_left_out_of_n_and_counted():
    one_event = record(first_tokens=11, last_ns=1_200 * MS)
    judged = judge(objective("tpot", limit_ms=101.0), [one_event, *[record()] * 10])
    assert (judged.n, judged.undefined, judged.misses) == (10, 1, 0)


def test_a_censored_request_that_is_late_already_is_a_miss():
    waiting = record(status=Status.CENSORED, first_ns=None, last_ns=None, output_tokens=None)
    late = dataclasses.replace(waiting, end_ns=1_000 * MS + 201 * MS)
    early = dataclasses.replace(waiting, end_ns=1_000 * MS + 199 * MS)
    assert judge(objective(), [late]).misses == 1
    assert judge(objective(), [early]).undecided == 1
    assert judge(objective("e2e"), [late]).misses == 1
    assert judge(objective("tpot"), [late]).undecided == 1


def test_a_censored_request_with_a_first_token_is_held_to_what_tpot_can_still_become():
    running = record(
        status=Status.CENSORED, output_tokens=None, last_ns=2_200 * MS, end_ns=9_000 * MS
    )
    assert judge(objective("tpot", limit_ms=99.0), [running]).misses == 1
    assert judge(objective("tpot", limit_ms=100.0), [running]).undecided == 1
    assert judge(objective("ttft"), [running]).undecided == 1


outcome_of = st.lists(st.tuples(st.integers(1, 400), st.booleans()), min_size=10, max_size=60)


@given(outcome_of, st.data())
def test_a_certain_fail_stays_a_fail_whatever_comes_later(values, data):
    final = [record(row=i, first_ns=(1_000 + v) * MS) for i, (v, _) in enumerate(values)]
    seen = data.draw(st.integers(0, len(final)))
    now = 1_000 + data.draw(st.integers(0, 400))
    partial = [
        r
        if (r.first_ns or 0) <= now * MS
        else dataclasses.replace(
            r, status=Status.CENSORED, first_ns=None, last_ns=None, end_ns=now * MS
        )
        for r in final[:seen]
    ]
    early = judge(objective(), partial, pending=len(final) - seen)
    if early.outcome != "UNDECIDED":
        assert early.outcome == judge(objective(), final).outcome


def test_a_quantile_over_failures_too_falls_on_them_or_below():
    good, bad = record(), record(status=Status.SHORT_OUTPUT)
    assert order_statistic("ttft", [good] * 9 + [bad], 0.9) == 200 * MS
    assert order_statistic("ttft", [good] * 8 + [bad] * 2, 0.9) is None
    assert order_statistic("ttft", [], 0.9) is None


def test_a20_an_objective_that_nothing_measured_is_known_to_be_none():
    one_event = record(first_tokens=11, last_ns=1_200 * MS)
    assert not judge(objective("tpot"), [one_event] * 10).measured
    assert judge(objective("ttft"), [one_event] * 10).measured


def test_one_failed_objective_decides_and_all_must_pass():
    passed = judge(objective(limit_ms=200.0), [record()] * 10)
    failed = judge(objective(limit_ms=199.0), [record()] * 10)
    open_ = judge(objective(), [record()] * 5, pending=5)
    assert decide([passed, passed]) == "PASS"
    assert decide([passed, open_, failed]) == "FAIL"
    assert decide([passed, open_]) == "UNDECIDED"


def test_joint_attainment_needs_every_objective_and_forgives_an_undefined_one():
    slo = [objective(limit_ms=200.0), objective("tpot", limit_ms=100.0)]
    within = [record(), record(first_tokens=11, last_ns=1_200 * MS)]
    beyond = [record(last_ns=2_300 * MS), record(status=Status.SHORT_OUTPUT)]
    assert within_all(slo, [within[0], *beyond, within[1]]) == within


def test_a_rate_that_failed_below_one_that_passed_decides():
    assert bracket([1, 2, 5], [3, 9]) == (2, 3)
    assert bracket([5], [3]) == (None, 3)
    assert bracket([], []) == (None, None)


@given(st.integers(1, 10**12), st.integers(1, 10**12))
def test_the_boundary_is_the_geometric_mean_of_the_bracket(low, high):
    found = boundary_urps(low, high)
    assert found**2 <= low * high < (found + 1) ** 2


def test_an_open_bracket_has_no_boundary():
    assert boundary_urps(None, 5) is None
    assert boundary_urps(5, None) is None


@given(st.integers(0, 10**12), st.integers(1, 5000))
def test_tpot_is_the_nearest_nanosecond_and_of_two_the_even_one(span, steps):
    r = record(first_ns=0, last_ns=span, first_tokens=1, output_tokens=1 + steps)
    assert tpot_ns(r) == round(Fraction(span, steps))


@given(st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99, 0.999]), st.integers(1, 3000))
def test_h8_a_quantile_is_carried_where_a_value_lies_above_it(q, n):
    assert carries(q, n) == (n - rank(q, n) >= 1)
    assert carries(q, n) == (n >= fewest(q))
