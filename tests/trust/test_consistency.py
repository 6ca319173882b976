"""Tests of trust.consistency; what it decides for whole runs is in test_verify."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import RunBuilder, ToyEngine, small_spec
from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence import RequestRecord, Status
from tokenwatt_site.journal import GENESIS, Line
from tokenwatt_site.run import Run
from tokenwatt_site.trust.consistency import (
    CLOCK_SLACK_NS,
    check_dates,
    check_requests,
    first_difference,
)
from tokenwatt_site.workload import workload_of

SPEC = small_spec()
GOOD = next(
    ToyEngine().serve(
        workload_of(SPEC.setup).realisation(1, lead_in=0, scored=10, tail=1),
        1_000_000,
        repeat=1,
        trial=1,
    )
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


def naive_equal(a: Any, b: Any) -> bool:
    if type(a) is float or type(b) is float:
        if type(a) not in (int, float) or type(b) not in (int, float):
            return False
        exact_a, exact_b = Fraction(a), Fraction(b)
        return abs(exact_a - exact_b) <= Fraction(5, 10**7) * max(abs(exact_a), abs(exact_b))
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return set(a) == set(b) and all(naive_equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(naive_equal, a, b))
    return bool(a == b)


@given(VALUES, VALUES)
def test_two_values_differ_exactly_where_a_slow_comparison_says_so(a: Any, b: Any) -> None:
    assert (first_difference(a, b, "x") is None) == naive_equal(a, b)


@given(VALUES)
def test_a_value_does_not_differ_from_itself(value: Any) -> None:
    assert first_difference(value, value, "x") is None


@given(
    st.floats(1e-300, 1e15),
    st.sampled_from([(1 + 4e-7, True), (1 - 4e-7, True), (1 + 6e-7, False), (1 - 6e-7, False)]),
)
def test_f26_fractions_are_equal_within_5e_7_at_every_size(
    value: float, factor: tuple[float, bool]
) -> None:
    assert (first_difference(value, value * factor[0], "x") is None) == factor[1]
    assert (first_difference(value * factor[0], value, "x") is None) == factor[1]


def test_f26_integers_have_no_tolerance() -> None:
    assert first_difference(10**9, 10**9 + 1, "x") == ("x", 10**9, 10**9 + 1)


def test_a_truth_value_is_no_number() -> None:
    assert first_difference(True, 1.0, "x") == ("x", True, 1.0)
    assert first_difference(1, True, "x") == ("x", 1, True)


def test_not_a_number_equals_nothing() -> None:
    assert first_difference(1.0, math.nan, "x") is not None


def test_the_first_difference_is_named_by_its_path() -> None:
    a = {"m": [{"v": 1.0}, {"v": 2.0}], "n": [1]}
    assert first_difference(a, {"m": [{"v": 1.0}, {"v": 3.0}], "n": [2]}, "c") == (
        "c.m.1.v",
        2.0,
        3.0,
    )
    assert first_difference(a, {"m": [], "n": [2]}, "c") == ("c.m.length", 2, 0)


def test_what_a_sound_engine_answers_is_plausible() -> None:
    check_requests([GOOD])


def test_a_request_that_was_never_answered_is_plausible() -> None:
    check_requests(
        [
            replace(
                GOOD,
                sent_ns=None,
                first_ns=None,
                last_ns=None,
                prompt_tokens=None,
                cached_tokens=None,
                output_tokens=None,
                first_tokens=None,
                events=0,
                status=Status.NOT_SENT,
            )
        ]
    )


def test_clocks_may_disagree_by_their_slack() -> None:
    assert GOOD.sent_ns is not None
    sent = GOOD.due_ns - CLOCK_SLACK_NS
    check_requests([replace(GOOD, sent_ns=sent)])


SENT, FIRST, LAST = GOOD.sent_ns or 0, GOOD.first_ns or 0, GOOD.last_ns or 0
IMPLAUSIBLE: dict[str, RequestRecord] = {
    "before it was due": replace(GOOD, sent_ns=GOOD.due_ns - CLOCK_SLACK_NS - 1),
    "answered before it was sent": replace(GOOD, first_ns=SENT - CLOCK_SLACK_NS - 1),
    "answered before it was sent, or never": replace(
        GOOD, sent_ns=None, status=Status.DISCONNECTED
    ),
    "last token before its first": replace(GOOD, last_ns=FIRST - 1),
    "last token before its first, or none": replace(GOOD, last_ns=None, status=Status.DISCONNECTED),
    "ended before its last token": replace(GOOD, end_ns=LAST - CLOCK_SLACK_NS - 1),
    "ended before it was sent": replace(
        GOOD, first_ns=None, last_ns=None, end_ns=0, sent_ns=10**9, status=Status.TIMED_OUT
    ),
    "more tokens than were asked": replace(GOOD, output_asked=1),
    "more tokens in its first event": replace(GOOD, first_tokens=(GOOD.output_tokens or 0) + 1),
    "more cached prompt tokens": replace(GOOD, cached_tokens=GOOD.prompt_asked + 1),
    "cached tokens and no prompt": replace(GOOD, cached_tokens=1, prompt_tokens=None),
    "negative time": replace(GOOD, uncertainty_ns=-1),
    "negative due": replace(GOOD, due_ns=-1),
    "negative count": replace(GOOD, events=-1),
    "negative tokens": replace(GOOD, prompt_tokens=-1, cached_tokens=None),
    "complete without a time": replace(GOOD, first_ns=None, last_ns=None),
    "complete without tokens": replace(GOOD, output_tokens=None),
    "complete and short": replace(GOOD, output_tokens=1, output_asked=2),
}


@pytest.mark.parametrize("record", IMPLAUSIBLE.values(), ids=IMPLAUSIBLE)
def test_a_request_that_does_what_none_can_do_is_refused(record: RequestRecord) -> None:
    with pytest.raises(InputError, match=r"requests\.1 \(repeat 1, trial 1\)"):
        check_requests([GOOD, record])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = RunBuilder().write(tmp_path_factory.mktemp("run"))
    return Run.model_validate_json(path.read_bytes())


def dated(run: Run, *dates: str) -> tuple[Run, tuple[Line, ...]]:
    """Return the run and a journal with these dates, the first and last being the run's."""
    lines = tuple(
        Line(seq=seq, at=at, event="open", prev=GENESIS, data={}) for seq, at in enumerate(dates)
    )
    conditions = run.conditions.model_copy(update={"started": dates[0], "ended": dates[-1]})
    return run.model_copy(update={"conditions": conditions}), lines


NOON = "2026-01-01T12:00:00.000000Z"


@pytest.mark.parametrize(
    "text", ["2026-01-01T12:00:00Z", "2026-01-01T12:00:00.123456Z", "2026-01-01T12:00:00+00:00"]
)
def test_utc_dates_are_dates(run: Run, text: str) -> None:
    check_dates(*dated(run, text, text))


def test_the_clock_may_be_set_back_between(run: Run) -> None:
    check_dates(*dated(run, NOON, "2026-01-01T11:59:59Z", NOON))


def test_a_run_that_ends_before_it_starts_is_refused(run: Run) -> None:
    with pytest.raises(InputError, match="before the start"):
        check_dates(*dated(run, NOON, "2026-01-01T11:59:59Z"))


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00:00+02:00", "<b>"],
)
def test_other_dates_are_refused(run: Run, text: str) -> None:
    with pytest.raises(InputError, match=r"journal line 1\.at"):
        check_dates(*dated(run, NOON, text, NOON))


def test_the_builder_makes_the_same_bytes_from_the_same_settings(tmp_path: Path) -> None:
    first = RunBuilder().write(tmp_path / "a")
    second = RunBuilder().write(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
