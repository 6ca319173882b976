"""What is no measurement is INVALID with its reason; everything else passes or fails."""

import itertools
import re
from dataclasses import replace

import pytest

from tests.claims.test_derive import evidence_of
from tests.support.runs import (
    HELD,
    RunBuilder,
    conversation_spec,
    small_spec,
    spec_in_mode,
    trace_spec,
)
from tokenwatt_site.errors import SpecError
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.trace import TraceLine, encode, parse
from tokenwatt_site.trials import read_trials
from tokenwatt_site.validity import (
    fault,
    highest_load_urps,
    highest_passing,
    highest_rate_urps,
    require_playable,
    verdict,
)
from tokenwatt_site.windows import windows_of
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


def test_the_highest_passing_trial_is_one_on_the_rows_that_were_offered_last():
    passed = trial_of()
    upper = replace(passed.band, low_urps=5)
    higher = replace(passed, rate_urps=600_000, number=2)
    lower = replace(passed, number=3, band=upper)
    assert highest_passing(SPEC, [passed, higher]) == higher
    assert highest_passing(SPEC, [passed, higher, lower]) == lower
    assert highest_passing(SPEC, []) is None


MS = 1_000_000


def connected(*, dialled_ms, connected_ms):
    """Every request waited for a connection from then to then after it was due."""
    return {
        "dialled_ns": lambda r: r.due_ns + round(dialled_ms * MS),
        "connected_ns": lambda r: r.due_ns + round(connected_ms * MS),
        "sent_ns": lambda r: r.due_ns + round(connected_ms * MS),
    }


def unsent(r):
    return None if r.row % 9 == 0 else r.sent_ns


def lost(status):
    """One scored request of the 85 never got to be sent."""
    return {
        "status": lambda r: status if r.row == 7 else r.status,
        **{
            name: lambda r, name=name: None if r.row == 7 else getattr(r, name)
            for name in ("sent_ns", "first_ns", "last_ns")
        },
    }


USED = "it used 12% of its processor"


INVALID = {
    "engine died": ({}, {"engine_alive": False}, "engine: it died"),
    "a11 late sends": (
        {"sent_ns": lambda r: r.due_ns + 8 * MS},
        {"client_cpu_ppm": 974_000},
        "client: p99 dispatch lag 8.00 ms, limit 7.50 ms; it used 97% of its processor",
    ),
    "late connections": (
        connected(dialled_ms=0.5, connected_ms=8),
        {},
        (
            "network or engine: p99 dispatch lag 8.00 ms, limit 7.50 ms; waiting for connections"
            " took 7.50 ms, the client itself 0.50 ms"
        ),
    ),
    "late connections of a late client": (
        connected(dialled_ms=9, connected_ms=12),
        {"client_cpu_ppm": 1_000_000},
        (
            "client: p99 dispatch lag 12.00 ms, limit 7.50 ms; 9.00 ms of it its own; it used 100%"
            " of its processor"
        ),
    ),
    "connections of a second try": (
        {
            "sent_ns": lambda r: r.due_ns + 8 * MS,
            "dialled_ns": lambda r: r.due_ns + 9 * MS,
            "connected_ns": lambda r: r.due_ns + 20 * MS,
        },
        {},
        f"client: p99 dispatch lag 8.00 ms, limit 7.50 ms; {USED}",
    ),
    "late connections of a client without a processor": (
        connected(dialled_ms=0.5, connected_ms=8),
        {"client_cpu_ppm": 960_000},
        (
            "client or network or engine: p99 dispatch lag 8.00 ms, limit 7.50 ms; waiting for"
            " connections took 7.50 ms, the client itself 0.50 ms, but it used 96% of its processor"
        ),
    ),
    "late connections of a client that did not look": (
        connected(dialled_ms=0.5, connected_ms=8) | {"uncertainty_ns": 3 * MS},
        {},
        (
            "client or network or engine: p99 dispatch lag 8.00 ms, limit 7.50 ms; waiting for"
            " connections took 7.50 ms, the client itself 0.50 ms, but it did not look at its"
            " sockets for 3.00 ms"
        ),
    ),
    "a12 not sent": (
        {"status": lambda r: Status.NOT_SENT if r.row % 9 == 0 else r.status, "sent_ns": unsent},
        {},
        f"client: 10 of 85 requests could not be sent, for want of its own; {USED}",
    ),
    "a12 one that got no connection": (
        lost(Status.DISCONNECTED),
        {},
        "network or engine: 1 of 85 requests could not be sent: they got no connection",
    ),
    "a12 one that waited for a connection until its time was out": (
        lost(Status.TIMED_OUT),
        {},
        "network or engine: 1 of 85 requests could not be sent: they got no connection",
    ),
    "a12 not sent for both reasons": (
        {
            "status": lambda r: {0: Status.NOT_SENT, 9: Status.DISCONNECTED}.get(
                r.row % 18, r.status
            ),
            "sent_ns": unsent,
        },
        {},
        (
            "client or network or engine: 10 of 85 requests could not be sent; 5 of them for want"
            " of the client's own, the others got no connection"
        ),
    ),
    "a wall clock that was set": (
        {},
        {"clock_step_ns": 5_100_000},
        (
            "client: its wall clock was set during the trial, by 5.10 ms, limit 1.00 ms, and the"
            " stamps with it"
        ),
    ),
    "a client process that was lost": (
        {},
        {"lost": "worker 2 of 3 ended by signal 9", "offset_bounds_ns": (0, 0, 0)},
        "client: worker 2 of 3 ended by signal 9",
    ),
    "client processes without one clock": (
        {},
        {"offset_bounds_ns": (30_000, 1_200_000)},
        ("client: the clock of worker 2 of 2 may have been off by 1.20 ms, limit 1.00 ms"),
    ),
    "stamps of a client that did not look": (
        {"uncertainty_ns": 8 * MS},
        {"client_cpu_ppm": 880_000},
        (
            "client: p99 stamp uncertainty 8.00 ms, limit 7.50 ms, so long it did not look; it used"
            " 88% of its processor"
        ),
    ),
    "a10 cached prompts": (
        {"cached_tokens": lambda r: r.prompt_asked // 2},
        {},
        re.compile(r"engine: \d+ of \d+ prompt tokens came from its cache"),
    ),
    "other prompt lengths": (
        {"prompt_tokens": lambda r: r.prompt_asked + 3},
        {},
        re.compile(r"engine: 85 prompts had another length \(asked \d+ tokens, engine saw \d+\)"),
    ),
    "longer answers": (
        {"output_tokens": lambda r: r.output_tokens + 1},
        {},
        "engine: 85 answers had more tokens than were asked for",
    ),
    "tail too short": (
        {"end_ns": lambda r: r.end_ns + (10**12 if r.row == 24 else 0)},
        {},
        "spec: the tail ended before the last scored request; raise protocol.tail",
    ),
    "a20 nothing to measure": (
        {"first_tokens": lambda r: r.output_tokens},
        {},
        "spec or engine: TPOT p90 was measured on no request",
    ),
    "load that the engine refused": (
        {"status": lambda r: Status.HTTP_ERROR if r.row < 5 else r.status},
        {},
        "engine: 5 of 65 lead-in and tail requests failed",
    ),
    "load that was lost on the way": (
        {"status": lambda r: Status.DISCONNECTED if r.row < 5 else r.status},
        {},
        "network or engine: 5 of 65 lead-in and tail requests failed",
    ),
    "more than half of what the client held": (
        {},
        {"self_test": HELD.model_copy(update={"requests_urps": 900_000})},
        "client: its self-test allows 0.45 requests/s, half of what it held; 0.5 were offered",
    ),
    "other launch": (
        {},
        {"abandoned": True},
        "measurement: broken off; the repeat was done again from its start",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_a_trial_that_is_no_measurement_is_invalid_with_its_reason(case):
    changes, fields, reason = INVALID[case]
    outcome, why = verdict(SPEC, trial_of(edited(**changes), **fields))
    assert outcome == "INVALID"
    assert reason.fullmatch(why) if isinstance(reason, re.Pattern) else reason == why


STRICT = small_spec(
    setup__slo=[
        {"metric": "ttft", "quantile": 0.9, "limit_ms": 200.0},
        {"metric": "tpot", "quantile": 0.9, "limit_ms": 150.0},
    ]
)
VAGUE = "p99 stamp uncertainty 1.50 ms, limit 1.00 ms"


@pytest.mark.parametrize(
    ("stamps", "reason"),
    [
        (
            "kernel",
            (
                f"network or engine: {VAGUE}: several tokens came in one read, though the client"
                " looked in time"
            ),
        ),
        ("user space", f"client: {VAGUE}; it has no stamps of the kernel; {USED}"),
    ],
)
def test_vague_stamps_of_a_client_that_looked_in_time_are_its_fault_only_without_the_kernel_s(
    stamps, reason
):
    vague = edited(uncertainty_ns=1_500_000)
    trial = trial_of(vague, spec=STRICT, stamps=stamps)
    assert verdict(STRICT, trial) == ("INVALID", reason)


def test_late_connections_over_tls_may_be_the_client_s_own_fault():
    secure = small_spec(endpoint__start="attach", endpoint__url="https://engine.example")
    trial = trial_of(edited(**connected(dialled_ms=0.5, connected_ms=8)), spec=secure)
    outcome, why = verdict(secure, trial)
    assert outcome == "INVALID"
    assert why.startswith("client or network or engine: p99 dispatch lag 8.00 ms")
    assert why.endswith("but a TLS handshake takes its processor too")


def test_a12_a_request_that_was_not_sent_was_late_for_as_long_as_it_was_not():
    spec = spec_in_mode("quick")
    builder = replace(BUILDER, spec=spec, rates_urps=(500_000,))
    trial = read_trials(spec, evidence_of(builder))[0]
    last = trial.records[-1]
    never = replace(
        last,
        dialled_ns=last.due_ns,
        sent_ns=None,
        first_ns=None,
        last_ns=None,
        end_ns=last.due_ns + 20_000 * MS,
        status=Status.TIMED_OUT,
    )
    records = (*trial.records[:-1], never)
    outcome, why = verdict(spec, replace(trial, records=records))
    assert outcome == "INVALID"
    assert why.startswith("network or engine: lateness of the last send 20000.00 ms, limit ")


def test_a_wall_clock_that_was_set_by_a_millisecond_is_within_the_limit():
    assert verdict(SPEC, trial_of(clock_step_ns=MS)) == ("PASS", None)
    assert fault(SPEC, trial_of(clock_step_ns=MS + 1)).transient


def test_half_of_what_the_client_held_may_be_offered():
    drawn = trial_of().realisation
    events = HELD.model_copy(update={"events_per_s": 1000})
    assert highest_load_urps(events, drawn) == int(1000 / 2 / drawn.mean_output_tokens * 1e6)
    requests = HELD.model_copy(update={"requests_urps": 7})
    assert highest_load_urps(requests, drawn) == 3
    just = HELD.model_copy(update={"requests_urps": 1_000_000})
    assert verdict(SPEC, trial_of(self_test=just))[0] == "PASS"


def test_the_highest_rate_is_what_spec_and_client_both_allow():
    drawn = trial_of().realisation
    little = HELD.model_copy(update={"requests_urps": 3_000_000})
    assert highest_rate_urps(SPEC, drawn, None) == 64_000_000
    assert highest_rate_urps(SPEC, drawn, HELD) == 64_000_000
    assert highest_rate_urps(SPEC, drawn, little) == 1_500_000


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


def test_the_template_that_a_chat_begins_with_is_cached_though_no_prompt_is_repeated():
    trial = trial_of(edited(cached_tokens=lambda r: min(r.prompt_asked, 8)))
    assert verdict(SPEC, trial)[0] == "INVALID"
    assert verdict(SPEC, replace(trial, chat_overhead=8)) == ("PASS", None)
    assert verdict(SPEC, replace(trial, chat_overhead=7))[0] == "INVALID"


def test_the_template_before_a_shared_prefix_is_cached_with_it():
    def with_template(r, known):
        return min(r.prompt_tokens, known + 8) if known else 0

    assert verdict(*chat_trial(with_template))[0] == "INVALID"
    assert verdict(*chat_trial(with_template, overhead=8))[0] == "PASS"


def played(arrivals_s, **changes):
    found = [TraceLine(round(at * 1e9), 20, 8) for at in arrivals_s]
    trace = parse(encode(found), source="t")
    spec = trace_spec(trace, **changes)
    return spec, windows_of(spec, trace)


def test_a_trace_whose_parts_take_time_can_be_played():
    require_playable(*played(range(170), protocol__repeats=2))
    require_playable(small_spec(), windows_of(small_spec()))


def apart(first, last, between_s, rows):
    """Arrivals a second apart, but for those of these rows."""
    gaps = [between_s if first < row <= last else 1 for row in range(1, rows)]
    return list(itertools.accumulate(gaps, initial=0))


@pytest.mark.parametrize(
    ("between_s", "words"),
    [
        (0, "all come at once"),
        (1e-5, "came at 8.88e+04 times the rate of the whole trace; 0.5 to 2 times it may be"),
        (0.4, "came at 2.33 times"),
        (0.5, None),
        (2, None),
        (2.5, "came at 0.467 times"),
        (3, "came at 0.408 times"),
    ],
)
def test_scored_rows_much_denser_or_sparser_than_their_trace_cannot_be_played(between_s, words):
    # Of the second repeat: 5 rows of lead-in, then 20 scored ones.
    asked = played(apart(90, 109, between_s, 170), protocol__repeats=2)
    if words is None:
        require_playable(*asked)
        return
    with pytest.raises(SpecError, match="trace: the scored rows of repeat 2 " + re.escape(words)):
        require_playable(*asked)


@pytest.mark.parametrize(
    ("between_s", "words"),
    [
        (0, "takes no time"),
        (0.4, "came at 2.5 times"),
        (0.5, None),
        (2, None),
        (3, "came at 0.333"),
    ],
)
def test_a_lead_in_much_denser_or_sparser_than_the_scored_rows_does_not_stand_for_them(
    between_s, words
):
    quick = {"mode": "quick", "repeats": 2, "scored": 600, "lead_in": 20, "tail": 20}
    changes = {f"protocol__{key}": value for key, value in quick.items()}
    asked = played(apart(0, 20, between_s, 1280), **changes)
    if words is None:
        require_playable(*asked)
        return
    with pytest.raises(SpecError, match=f"trace: the lead-in of repeat 1 {words}"):
        require_playable(*asked)


def test_one_late_last_send_is_caught_though_p99_is_not():
    spec = spec_in_mode("quick")
    builder = replace(BUILDER, spec=spec, rates_urps=(500_000,))
    trial = read_trials(spec, evidence_of(builder))[0]
    last = trial.records[-1]
    late = replace(last, sent_ns=last.due_ns + 20_000 * MS)
    records = (*trial.records[:-1], late)
    outcome, why = verdict(spec, replace(trial, records=records, client_cpu_ppm=50_000))
    assert outcome == "INVALID"
    assert why.startswith("client: lateness of the last send 20000.00 ms, limit ")
    assert why.endswith("; it used 5% of its processor")
    waited = replace(late, dialled_ns=last.due_ns, connected_ns=late.sent_ns)
    _, why = verdict(spec, replace(trial, records=(*trial.records[:-1], waited)))
    assert why.startswith("network or engine: lateness of the last send 20000.00 ms, limit ")


def test_quick_and_full_modes_need_a_window_of_two_minutes():
    spec = spec_in_mode("quick")
    builder = replace(BUILDER, spec=spec, rates_urps=(40_000_000,))
    outcome, why = verdict(spec, read_trials(spec, evidence_of(builder))[0])
    assert outcome == "INVALID"
    assert why.startswith("spec: window of ")
    assert why.endswith("at least 120 s are needed")


def test_an_engine_that_refuses_connections_was_not_under_the_load_that_was_planned():
    refused = edited(status=Status.DISCONNECTED, sent_ns=None, first_ns=None, last_ns=None)
    why = "network or engine: 85 of 85 requests could not be sent: they got no connection"
    assert verdict(SPEC, trial_of(refused)) == ("INVALID", why)


def test_only_faults_of_client_and_network_are_worth_another_try():
    late = trial_of(edited(sent_ns=lambda r: r.due_ns + 8 * MS))
    assert fault(SPEC, trial_of(edited(**connected(dialled_ms=0, connected_ms=8)))).transient
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
    rate = highest_rate_urps(spec, drawn, None)
    builder = replace(BUILDER, spec=spec, rates_urps=(rate,))
    assert verdict(spec, read_trials(spec, evidence_of(builder))[0])[0] != "INVALID"
    faster = replace(BUILDER, spec=spec, rates_urps=(rate + rate // 1000,))
    assert verdict(spec, read_trials(spec, evidence_of(faster))[0])[0] == "INVALID"


def test_a_lead_in_that_does_not_fill_the_engine_is_no_measurement():
    quick = {"mode": "quick", "repeats": 2, "scored": 600, "lead_in": 0, "tail": 120}
    spec = small_spec(**{f"protocol__{key}": value for key, value in quick.items()})
    builder = replace(BUILDER, spec=spec, rates_urps=(500_000,))
    outcome, why = verdict(spec, read_trials(spec, evidence_of(builder))[0])
    assert outcome == "INVALID"
    assert why.startswith("spec: lead-in of 0 s, at least ")


def test_a_chosen_window_is_offered_up_to_the_rate_that_it_was_made_for():
    quick = {"mode": "quick", "repeats": 2, "scored": 600, "lead_in": 0, "tail": 120}
    spec = small_spec(**{f"protocol__{key}": value for key, value in quick.items()})
    builder = replace(BUILDER, spec=spec, rates_urps=(500_000,))
    unfilled = read_trials(spec, evidence_of(builder))[0]
    for highest_urps, outcome in ((500_000, "PASS"), (499_999, "INVALID")):
        made = replace(unfilled.realisation, highest_urps=highest_urps)
        assert highest_rate_urps(spec, made, None) == highest_urps
        found, why = verdict(spec, replace(unfilled, realisation=made))
        assert found == outcome
        if outcome == "INVALID":
            assert why == (
                "spec: its window is for rates up to 0.499999 requests/s; 0.5 were offered"
            )
    beyond = replace(unfilled.realisation, highest_urps=10**9)
    assert highest_rate_urps(spec, beyond, None) == spec.protocol.max_urps
