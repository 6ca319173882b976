"""The trials of a run are those that its journal and its realisation plan, or it is refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.claims.test_derive import evidence_of
from tests.support.runs import HELD, RunBuilder, small_spec
from tests.test_goodput import record
from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.trials import Told, prompt_tokens_in_window, read_trials

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


def changed(evidence, event, **changes):
    """Change the data of every line of this event; None takes a field away."""
    return tuple(
        entry.model_copy(
            update={"data": {k: v for k, v in (entry.data | changes).items() if v is not None}}
        )
        if entry.event == event
        else entry
        for entry in evidence.journal
    )


def test_a_trial_knows_what_the_client_held_and_used():
    trial = read_trials(SPEC, evidence_of(BUILDER))[0]
    assert (trial.self_test, trial.stamps) == (HELD, "kernel")
    assert (trial.client_cpu_ppm, trial.clock_step_ns) == (123_456, 0)


@pytest.mark.parametrize("field", ["client_cpu_ppm", "clock_step_ns"])
@pytest.mark.parametrize("value", [None, 0.5, -1, "1"])
def test_a_journal_that_does_not_tell_of_the_client_is_refused(field, value):
    evidence = evidence_of(BUILDER)
    journal = changed(evidence, "trial_end", **{field: value})
    with pytest.raises(InputError, match=field):
        read_trials(SPEC, replace(evidence, journal=journal))


SEVERAL = {"offset_bounds_ns": [20_000, 31_000]}


def test_a_trial_of_several_client_processes_tells_of_their_clocks_and_of_who_was_lost():
    evidence = evidence_of(BUILDER)
    journal = changed(evidence, "trial_end", **SEVERAL, lost="worker 1 of 2 ended by signal 9")
    several = replace(evidence, journal=journal)
    trial, alone = read_trials(SPEC, several)[0], read_trials(SPEC, evidence)[0]
    assert (trial.offset_bounds_ns, trial.lost) == (
        (20_000, 31_000),
        "worker 1 of 2 ended by signal 9",
    )
    assert (alone.offset_bounds_ns, alone.lost) == ((), None)
    assert (Told.by(journal).workers, Told.by(evidence.journal).workers) == (2, None)
    cut = several.requests[:1]
    assert len(read_trials(SPEC, replace(several, requests=cut))[0].records) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("offset_bounds_ns", 5),
        ("offset_bounds_ns", [5]),
        ("offset_bounds_ns", [5, -1]),
        ("offset_bounds_ns", [5, True]),
        ("offset_bounds_ns", [5] * 1025),
        ("lost", 1),
    ],
)
def test_a_journal_that_does_not_tell_of_client_processes_in_order_is_refused(field, value):
    evidence = evidence_of(BUILDER)
    journal = changed(evidence, "trial_end", **{field: value})
    with pytest.raises(InputError, match=field):
        read_trials(SPEC, replace(evidence, journal=journal))


NO_SELF_TESTS = {
    "nothing": (None, "self_test"),
    "a word": ("fast", "self_test"),
    "a field missing": (
        {k: v for k, v in HELD.to_json().items() if k != "stamps"},
        "self_test.stamps",
    ),
    "a rate that is a fraction": (
        HELD.to_json() | {"requests_urps": 1.5},
        "self_test.requests_urps",
    ),
    "a rate below nothing": (HELD.to_json() | {"events_per_s": -1}, "self_test.events_per_s"),
    "another field": (HELD.to_json() | {"more": 1}, "self_test.more"),
    "another limit": (HELD.to_json() | {"limited_by": "nobody"}, "self_test.limited_by"),
}


@pytest.mark.parametrize("case", NO_SELF_TESTS)
def test_a_self_test_that_is_none_is_refused_with_its_place(case):
    told, place = NO_SELF_TESTS[case]
    evidence = evidence_of(BUILDER)
    journal = changed(evidence, "launch", self_test=told)
    with pytest.raises(InputError, match=rf"journal line 1\.{place}: is no self-test"):
        read_trials(SPEC, replace(evidence, journal=journal))


def test_what_is_told_of_the_client_is_the_repeat_that_held_least():
    evidence = evidence_of(BUILDER)
    launch = evidence.journal[1]
    less = HELD.model_copy(update={"events_per_s": 5})

    def with_launch(*, repeat=2, **data):
        more = launch.model_copy(update={"data": data | {"repeat": repeat}})
        return Told.by((*evidence.journal, more))

    assert Told.by(evidence.journal).self_test == HELD
    assert with_launch(self_test=less.to_json()).self_test == less
    with pytest.raises(InputError, match="self_test"):
        with_launch()
    more = HELD.model_copy(update={"events_per_s": 10**6})
    assert with_launch(repeat=1, self_test=more.to_json()).self_test == more
    with pytest.raises(InputError, match="no launch"):
        Told.by(evidence.journal[:1])


answers = st.tuples(
    st.none() | st.integers(0, 100), st.integers(0, 50), st.none() | st.integers(0, 9)
)


@given(st.lists(answers, max_size=10), st.integers(0, 60), st.integers(0, 60))
def test_b14_prompt_tokens_count_where_their_answer_began_told_or_as_asked(rows, start, length):
    records = [
        record(
            first_ns=first, last_ns=None if first is None else first + span, prompt_tokens=prompt
        )
        for first, span, prompt in rows
    ]
    asked = record().prompt_asked
    naive = sum(
        (asked if prompt is None else prompt) * (first in range(start, start + length + 1))
        for first, _, prompt in rows
    )
    assert prompt_tokens_in_window(records, start, start + length) == naive
