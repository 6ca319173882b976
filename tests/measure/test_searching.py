"""The search for a boundary; its trials are in the tests of sessions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.runs import RunBuilder
from tests.test_goodput import record
from tokenwatt_site.errors import Interrupted
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.measure.searching import Budget, is_silent

TRIAL = RunBuilder().trials()[0]
ANSWERED = record()


@pytest.mark.parametrize(
    ("silent", "changes"),
    [
        (False, [{"status": Status.OK}, {"status": Status.TIMED_OUT}]),
        (True, [{"status": Status.TIMED_OUT}, {"status": Status.CENSORED}]),
        # Stopped at its first certain miss, before anything ended.
        (False, [{"status": Status.CENSORED}]),
        (True, [{"status": Status.CENSORED, "first_ns": None, "last_ns": None}]),
    ],
)
def test_an_engine_is_silent_only_if_nothing_was_answered(
    silent: bool, changes: list[dict[str, Any]]
) -> None:
    records = tuple(replace(ANSWERED, **change) for change in changes)
    assert is_silent(replace(TRIAL, records=records)) is silent


def test_a_budget_counts_from_its_beginning_and_says_what_it_has_no_time_for() -> None:
    now = [100.0]
    budget = Budget(600, lambda: now[0])
    budget.require(600, "a trial")
    now[0] += 480
    budget.require(120, "a trial")
    with pytest.raises(Interrupted) as caught:
        budget.require(120.5, "repeat 2")
    assert str(caught.value) == (
        "the budget of 10 min has no time left for repeat 2; found 2.0 min; expected 2.0 min"
    )
    Budget(None, lambda: now[0]).require(10**9, "a trial")
