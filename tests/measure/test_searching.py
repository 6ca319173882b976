"""The search for a boundary; its trials are in the tests of sessions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.runs import RunBuilder
from tests.test_goodput import record
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.measure.searching import is_silent

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
