"""Replicas that are asked apart: the rows of each, and what launches and trials tell of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.support.runs import RunBuilder, replica_spec
from tokenwatt_site.errors import InputError
from tokenwatt_site.journal import GENESIS, Entry
from tokenwatt_site.replicas import (
    Replica,
    after_trial,
    at_launch,
    changed_replica,
    replica_of,
    starts,
)

ONE = Replica(engine="toy", version="1.0", build="b", models=("m",), started="2026-01-01T00:00:00Z")


def line(replicas: Any = ..., **data: Any) -> Entry:
    told = data if replicas is ... else data | {"replicas": replicas}
    return Entry(seq=3, at="2026-01-01T00:00:00Z", event="launch", prev=GENESIS, data=told)


def test_rows_are_dealt_out_in_turn() -> None:
    assert [replica_of(row, 3) for row in range(5)] == [0, 1, 2, 0, 1]
    assert Counter(replica_of(row, 1) for row in range(9)) == {0: 9}


def test_a_launch_tells_of_each_replica_and_a_trial_of_one_that_is_gone() -> None:
    told = [ONE.to_json(), ONE.to_json()]
    assert at_launch(line(told), 2) == (ONE, ONE)
    assert after_trial(line([ONE.to_json(), None]), 2) == (ONE, None)
    assert at_launch(line(), 1) == after_trial(line(), 1) == ()
    assert starts(line(told), 2) == (ONE.started, ONE.started)
    assert starts(line(engine_started="x"), 1) == ("x",)
    assert starts(line(engine_started=None), 1) == (None,)


@pytest.mark.parametrize(
    ("replicas", "count"),
    [
        ([ONE.to_json()], 2),
        ([ONE.to_json(), None], 2),
        ([ONE.to_json(), {"version": "1.0"}], 2),
        ([ONE.to_json() | {"models": "m"}, ONE.to_json()], 2),
        (None, 2),
        (..., 2),
        ([], 1),
        (None, 1),
    ],
)
def test_what_is_not_told_of_each_is_refused(replicas: Any, count: int) -> None:
    with pytest.raises(InputError, match=r"journal line 3\.replicas"):
        at_launch(line(replicas), count)


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (ONE, None),
        (ONE.model_copy(update={"started": None, "version": None}), None),
        (None, "replica 2 of 2 does not answer any more"),
        (ONE.model_copy(update={"started": "later"}), "replica 2 of 2 was started again"),
        (
            ONE.model_copy(update={"version": "1.1"}),
            "replica 2 of 2 is not the engine any more that it was",
        ),
    ],
)
def test_a_replica_that_is_not_what_it_was_is_named(now: Replica | None, told: str | None) -> None:
    assert changed_replica((ONE, ONE), (ONE, now)) == told
    assert changed_replica((), ()) is None


def test_a_trial_after_which_one_is_gone_is_of_an_engine_that_died() -> None:
    builder = RunBuilder(spec=replica_spec(2))
    assert {(trial.engine_alive, trial.changed) for trial in builder.trials()} == {(True, None)}
