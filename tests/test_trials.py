"""The trials of a run are those that its journal and its realisation plan, or it is refused."""

from dataclasses import replace

import pytest

from tests.support.runs import RunBuilder, small_spec
from tests.test_claims import evidence_of
from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence import Status
from tokenwatt_site.trials import read_trials

SPEC = small_spec()
BUILDER = RunBuilder(spec=SPEC, rates_urps=(500_000,))


PLAN_BREAKS = {
    "a row left out": lambda rs: [r for r in rs if r.row != 7],
    "a row twice": lambda rs: [*rs[:8], *rs[7:]],
    "rows swapped": lambda rs: [rs[1], rs[0], *rs[2:]],
    "another due time": lambda rs: [replace(rs[0], due_ns=rs[0].due_ns + 1), *rs[1:]],
    "a shorter prompt": lambda rs: [replace(rs[0], prompt_asked=rs[0].prompt_asked - 1), *rs[1:]],
    "a shorter answer": lambda rs: [replace(rs[0], output_asked=rs[0].output_asked - 1), *rs[1:]],
    "scored rows missing": lambda rs: rs[:20],
    "all rows missing": lambda _: [],
    "undecided": lambda rs: [
        replace(r, status=Status.CENSORED, first_ns=None) if r.row == 24 else r for r in rs
    ],
    "a trial of nobody": lambda rs: [*rs, replace(rs[0], trial=9)],
}


@pytest.mark.parametrize("case", PLAN_BREAKS)
def test_requests_that_are_not_the_planned_ones_are_refused(case):
    with pytest.raises(InputError):
        read_trials(SPEC, evidence_of(BUILDER, PLAN_BREAKS[case]))


def test_a_journal_of_another_configuration_is_refused():
    other = small_spec(setup__driver="another")
    with pytest.raises(InputError, match="another configuration"):
        read_trials(other, evidence_of(BUILDER))


def test_trials_before_a_second_launch_of_their_repeat_are_abandoned():
    evidence = evidence_of(BUILDER)
    again = evidence.journal[1].model_copy(update={"seq": 99})
    trials = read_trials(SPEC, replace(evidence, journal=(*evidence.journal, again)))
    assert [t.abandoned for t in trials] == [True]


def test_deleted_tail_rows_are_missed():
    def cut(records):
        late = [replace(r, end_ns=r.end_ns + 10**11) if r.row == 24 else r for r in records]
        return late[:25]

    with pytest.raises(InputError, match="rows are missing"):
        read_trials(SPEC, evidence_of(BUILDER, cut))


def test_a_journal_with_a_rate_of_nothing_is_refused():
    evidence = evidence_of(BUILDER)
    journal = tuple(
        entry.model_copy(update={"data": {**entry.data, "rate_urps": 0}})
        if entry.event == "trial_start"
        else entry
        for entry in evidence.journal
    )
    with pytest.raises(InputError, match="rate_urps"):
        read_trials(SPEC, replace(evidence, journal=journal))
