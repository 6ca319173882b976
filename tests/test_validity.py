"""What is no measurement is INVALID with its reason; everything else passes or fails."""

from dataclasses import replace

import pytest

from tests.support.runs import RunBuilder, conversation_spec, small_spec, spec_in_mode, trace_spec
from tests.test_claims import evidence_of
from tokenwatt_site.errors import SpecError
from tokenwatt_site.evidence import Status
from tokenwatt_site.trace import Request, encode, parse
from tokenwatt_site.trials import read_trials
from tokenwatt_site.validity import fault, highest_rate_urps, require_playable, verdict
from tokenwatt_site.workload import workload_of

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


def unsent(r):
    return None if r.row % 9 == 0 else r.sent_ns


INVALID = {
    "engine died": ({}, {"engine_alive": False}, "the engine died"),
    "a11 late sends": (
        {"sent_ns": lambda r: r.due_ns + 8 * MS},
        {},
        "p99 dispatch lag 8.00 ms, limit 7.50 ms",
    ),
    "a12 not sent": (
        {"status": lambda r: Status.NOT_SENT if r.row % 9 == 0 else r.status, "sent_ns": unsent},
        {},
        "could not be sent",
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
        {"end_ns": lambda r: r.end_ns + (10**12 if r.row == 24 else 0)},
        {},
        "raise protocol.tail",
    ),
    "a20 nothing to measure": (
        {"first_tokens": lambda r: r.output_tokens},
        {},
        "TPOT p90 was measured on no request",
    ),
    "load that failed": (
        {"status": lambda r: Status.HTTP_ERROR if r.row < 5 else r.status},
        {},
        "lead-in and tail requests failed",
    ),
    "other launch": ({}, {"abandoned": True}, "done again from its start"),
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


def chat_trial(cached, *, overhead=0, shared=24):
    spec = conversation_spec(3, 4, shared, protocol__tail=80)
    seen = trial_of(spec=spec)
    told = zip(seen.records, seen.realisation.sent_before(), strict=True)
    records = tuple(replace(r, cached_tokens=cached(r, known)) for r, known in told)
    return spec, replace(seen, records=records, chat_overhead=overhead)


def test_what_a_conversation_has_sent_before_may_be_cached():
    assert verdict(*chat_trial(lambda _, known: known)) == ("PASS", None)


def test_a10_beyond_what_was_sent_before_a_conversation_is_allowed_no_more_than_others():
    spec, trial = chat_trial(lambda r, known: known + (r.prompt_asked - known) // 50)
    assert verdict(spec, trial)[0] == "PASS"
    outcome, why = verdict(*chat_trial(lambda r, known: known + (r.prompt_asked - known) // 4))
    assert (outcome, "beyond what was sent before" in why) == ("INVALID", True)


def test_what_was_cached_of_a_prompt_whose_length_is_not_known_decides_nothing():
    spec, trial = chat_trial(lambda _, known: known)
    cut = [
        replace(r, prompt_tokens=None, cached_tokens=60, status=Status.CENSORED)
        if r.row > 24
        else r
        for r in trial.records
    ]
    assert verdict(spec, replace(trial, records=tuple(cut)))[0] == "PASS"


def test_a10_what_one_conversation_leaves_uncached_excuses_no_other():
    def uneven(r, known):
        return min(r.prompt_tokens, known + 40) if r.row % 2 else 0

    assert verdict(*chat_trial(uneven))[0] == "INVALID"


def test_the_template_before_a_shared_prefix_is_cached_with_it():
    def with_template(r, known):
        return min(r.prompt_tokens, known + 8) if known else 0

    assert verdict(*chat_trial(with_template))[0] == "INVALID"
    assert verdict(*chat_trial(with_template, overhead=8))[0] == "PASS"


def played(arrivals_s, **changes):
    found = [Request(round(at * 1e9), 20, 8) for at in arrivals_s]
    trace = parse(encode(found), source="t")
    spec = trace_spec(trace, **changes)
    return spec, workload_of(spec.setup, trace)


def test_a_trace_whose_parts_take_time_can_be_played():
    require_playable(*played(range(170), protocol__repeats=2))
    require_playable(small_spec(), workload_of(small_spec().setup))


@pytest.mark.parametrize("between_s", [0, 1e-5])
def test_a_trace_whose_scored_rows_are_one_burst_cannot_be_played(between_s):
    # Of the second repeat: 5 rows of lead-in, then 20 scored ones.
    burst = [90 + i * between_s for i in range(20)]
    arrivals = [*range(90), *burst, *range(100, 160)]
    with pytest.raises(SpecError, match="the scored rows of repeat 2 all come at once"):
        require_playable(*played(arrivals, protocol__repeats=2))


def test_a_trace_whose_lead_in_is_one_burst_fills_no_engine():
    quick = {"mode": "quick", "repeats": 2, "scored": 600, "lead_in": 20, "tail": 20}
    arrivals = [0] * 21 + [float(i) for i in range(1, 1260)]
    changes = {f"protocol__{key}": value for key, value in quick.items()}
    with pytest.raises(SpecError, match="the lead-in of repeat 1 all come at once"):
        require_playable(*played(arrivals, **changes))


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


def test_an_engine_that_refuses_connections_fails_and_is_not_the_client_s_fault():
    refused = edited(status=Status.DISCONNECTED, sent_ns=None, first_ns=None, last_ns=None)
    assert verdict(SPEC, trial_of(refused))[0] == "FAIL"


def test_only_the_client_s_faults_are_worth_another_try():
    late = trial_of(edited(sent_ns=lambda r: r.due_ns + 8 * MS))
    cached = trial_of(edited(cached_tokens=lambda r: r.prompt_asked))
    assert fault(SPEC, late).transient
    assert not fault(SPEC, cached).transient


def test_a_short_chat_prompt_is_held_against_the_template_it_came_in():
    longer = edited(prompt_tokens=lambda r: max(r.prompt_asked, 31))
    assert verdict(SPEC, trial_of(longer))[0] == "INVALID"
    assert verdict(SPEC, trial_of(longer, chat_overhead=30))[0] == "PASS"


def test_the_highest_rate_still_fills_engine_and_window():
    spec = spec_in_mode("quick")
    drawn = workload_of(spec.setup).realisation(1, lead_in=80, scored=600, tail=120)
    rate = highest_rate_urps(spec, drawn)
    builder = replace(BUILDER, spec=spec, rates_urps=(rate,))
    assert verdict(spec, read_trials(spec, evidence_of(builder))[0])[0] != "INVALID"
    faster = replace(BUILDER, spec=spec, rates_urps=(rate + rate // 1000,))
    assert verdict(spec, read_trials(spec, evidence_of(faster))[0])[0] == "INVALID"


def test_a_lead_in_that_does_not_fill_the_engine_is_no_measurement():
    quick = {"mode": "quick", "repeats": 2, "scored": 600, "lead_in": 0, "tail": 120}
    spec = small_spec(**{f"protocol__{key}": value for key, value in quick.items()})
    builder = replace(BUILDER, spec=spec, rates_urps=(500_000,))
    outcome, why = verdict(spec, read_trials(spec, evidence_of(builder))[0])
    assert (outcome, "lead-in" in why) == ("INVALID", True)
