"""Trials: the plan is checked, and what is no measurement is INVALID with its reason."""

from dataclasses import replace

import pytest

from tests.support.runs import RunBuilder, small_spec, spec_in_mode
from tests.test_claims import evidence_of
from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence import Status
from tokenwatt_site.trials import read_trials, verdict

SPEC = small_spec()
BUILDER = RunBuilder(spec=SPEC, rates_urps=(500_000,))


def trial_of(edit=lambda records: records, *, spec=SPEC, **changes):
    builder = replace(BUILDER, spec=spec)
    return replace(read_trials(spec, evidence_of(builder, edit))[0], **changes)


def edited(**changes):
    """Change the fields of every record; a callable gets the record."""
    return lambda records: [
        replace(r, **{k: v(r) if callable(v) else v for k, v in changes.items()}) for r in records
    ]


def test_a19_a_sound_trial_has_exactly_one_verdict():
    assert verdict(SPEC, trial_of()) == ("PASS", None)


MS = 1_000_000
INVALID = {
    "engine died": ({}, {"engine_alive": False}, "the engine died"),
    "a11 late sends": (
        {"sent_ns": lambda r: r.due_ns + 8 * MS},
        {},
        "p99 dispatch lag 8.00 ms, limit 7.50 ms",
    ),
    "a12 not sent": (
        {"sent_ns": lambda r: None if r.row % 9 == 0 else r.sent_ns},
        {},
        "requests were sent",
    ),
    "stamps too vague": ({"uncertainty_ns": 8 * MS}, {}, "p99 stamp uncertainty 8.00 ms"),
    "a10 cached prompts": (
        {"cached_tokens": lambda r: r.prompt_asked // 2},
        {},
        "came from the engine's cache",
    ),
    "other prompt lengths": (
        {"prompt_tokens": lambda r: r.prompt_asked + 3},
        {},
        "prompts had another length",
    ),
    "tail too short": (
        {"status": lambda r: Status.CENSORED if r.row == 24 else r.status},
        {"tail_ran_out": True},
        "raise protocol.tail",
    ),
    "other launch": ({}, {"abandoned": True}, "done again on another"),
    "never decided": (
        {"status": lambda r: Status.CENSORED if r.row == 24 else r.status},
        {},
        "before its verdict was certain",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_a_trial_that_is_no_measurement_is_invalid_with_its_reason(case):
    changes, fields, reason = INVALID[case]
    outcome, why = verdict(SPEC, trial_of(edited(**changes), **fields))
    assert outcome == "INVALID"
    assert reason in why


def test_small_deviations_of_prompt_length_and_cache_are_tolerated():
    changes = {"prompt_tokens": lambda r: r.prompt_asked + 2, "cached_tokens": 0}
    assert verdict(SPEC, trial_of(edited(**changes)))[0] == "PASS"


def test_one_late_last_send_is_caught_though_p99_is_not():
    spec = spec_in_mode("quick")
    builder = replace(BUILDER, spec=spec, rates_urps=(500_000,))
    trial = read_trials(spec, evidence_of(builder))[0]
    last = trial.records[-1]
    late = replace(last, sent_ns=last.due_ns + 20_000 * MS)
    outcome, why = verdict(spec, replace(trial, records=(*trial.records[:-1], late)))
    assert (outcome, "last send" in why) == ("INVALID", True)


def test_quick_and_full_modes_need_a_window_of_two_minutes():
    spec = spec_in_mode("quick")
    builder = replace(BUILDER, spec=spec, rates_urps=(40_000_000,))
    outcome, why = verdict(spec, read_trials(spec, evidence_of(builder))[0])
    assert outcome == "INVALID"
    assert "at least 120 s" in why


PLAN_BREAKS = {
    "a row left out": lambda rs: [r for r in rs if r.row != 7],
    "a row twice": lambda rs: [*rs[:8], *rs[7:]],
    "rows swapped": lambda rs: [rs[1], rs[0], *rs[2:]],
    "another due time": lambda rs: [replace(rs[0], due_ns=rs[0].due_ns + 1), *rs[1:]],
    "a shorter prompt": lambda rs: [replace(rs[0], prompt_asked=rs[0].prompt_asked - 1), *rs[1:]],
    "a shorter answer": lambda rs: [replace(rs[0], output_asked=rs[0].output_asked - 1), *rs[1:]],
    "scored rows missing": lambda rs: rs[:20],
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
