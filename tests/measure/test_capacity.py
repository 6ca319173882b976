"""The search of the self-test, against clients and servers that are a formula."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import HELD, ToyEngine, small_spec, spec_in_mode
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.goodput import quantile
from tokenwatt_site.measure.capacity import (
    EMITTER_LAG_NS,
    MAX_RATES,
    MAX_TOKENS,
    SPARE_TRIES,
    AnswerShape,
    Attempt,
    Recorded,
    Truth,
    due_ns,
    highest_held,
    rates_to_try,
)
from tokenwatt_site.validity import Tolerances, highest_load_urps, highest_rate_urps
from tokenwatt_site.workload import NAMED, workload_of

SPEC = small_spec()
TOLERANCES = Tolerances.of(SPEC)
MS = 1_000_000


def drawn(spec=SPEC):
    protocol = spec.protocol
    return workload_of(spec.setup).realisation(
        1, lead_in=protocol.lead_in, scored=protocol.scored, tail=protocol.tail
    )


GOOD = Attempt(
    requests_urps=0,
    events_per_s=0,
    scored=100,
    on_time=100,
    lag_p99_ns=200_000,
    first_error_p99_ns=30_000,
    last_error_p99_ns=30_000,
    uncertainty_p99_ns=100,
    emitter_lag_p99_ns=400_000,
    stamps="kernel",
)


class Twin:
    """A client that holds up to one rate beside a server that is on time up to another."""

    def __init__(self, client_urps, emitter_urps=10**15):
        self.client_urps, self.emitter_urps = client_urps, emitter_urps
        self.disturbed = 0
        self.tried = []

    def __call__(self, urps):
        self.tried.append(urps)
        late = urps > self.client_urps or self.disturbed > 0
        self.disturbed -= 1
        return replace(
            GOOD,
            requests_urps=urps,
            events_per_s=urps * 16 // 1_000_000,
            lag_p99_ns=50 * MS if late else 200_000,
            emitter_lag_p99_ns=50 * MS if urps > self.emitter_urps else 400_000,
        )


RATES = (8_000_000, 16_000_000, 32_000_000)


def test_all_that_was_asked_is_held_by_a_client_that_can():
    twin = Twin(10**9)
    found = highest_held(RATES, twin, TOLERANCES)
    assert (found.limited_by, found.requests_urps, found.events_per_s) == ("asked", 32_000_000, 512)
    assert (found.dispatch_lag_p99_ns, found.first_token_error_p99_ns) == (200_000, 30_000)
    assert twin.tried == list(RATES)


def test_the_highest_rate_that_a_client_held_counts_with_its_own_errors():
    twin = Twin(20_000_000)
    found = highest_held(RATES, twin, TOLERANCES)
    assert (found.limited_by, found.requests_urps) == ("client", 16_000_000)
    assert found.dispatch_lag_p99_ns == 200_000
    assert twin.tried == [*RATES, *[RATES[-1]] * SPARE_TRIES]


def test_a_server_that_falls_behind_says_nothing_about_the_client():
    found = highest_held(RATES, Twin(10**9, emitter_urps=10_000_000), TOLERANCES)
    assert (found.limited_by, found.requests_urps) == ("emitter", 8_000_000)


def test_a_client_that_holds_nothing_is_said_to_with_its_errors():
    found = highest_held(RATES, Twin(0), TOLERANCES)
    assert (found.limited_by, found.requests_urps, found.events_per_s) == ("client", 0, 0)
    assert found.dispatch_lag_p99_ns == 50 * MS


def test_a_moment_of_other_load_costs_one_try_and_no_more():
    twin = Twin(10**9)
    twin.disturbed = 1
    assert highest_held(RATES, twin, TOLERANCES).limited_by == "asked"
    assert twin.tried == [RATES[0], *RATES]


@given(client=st.integers(0, 40_000_000), emitter=st.integers(0, 40_000_000))
def test_the_search_gives_what_a_look_at_every_rate_would(client, emitter):
    found = highest_held(RATES, Twin(client, emitter), TOLERANCES)
    held = [urps for urps in RATES if urps <= min(client, emitter)]
    assert found.requests_urps == max(held, default=0)
    refused = next((urps for urps in RATES if urps not in held), None)
    expected = "asked" if refused is None else "emitter" if refused > emitter else "client"
    assert found.limited_by == expected


NOT_HELD = {
    "lag": {"lag_p99_ns": TOLERANCES.lag_ns + 1},
    "first token": {"first_error_p99_ns": TOLERANCES.stamp_ns + 1},
    "last token": {"last_error_p99_ns": TOLERANCES.stamp_ns + 1},
    "uncertainty": {"uncertainty_p99_ns": TOLERANCES.stamp_ns + 1},
    "nothing known": {"first_error_p99_ns": None},
    "late or lost": {"scored": 1000, "on_time": 994},
    "late server": {"emitter_lag_p99_ns": EMITTER_LAG_NS + 1},
}


@pytest.mark.parametrize("case", NOT_HELD)
def test_a_load_is_held_within_every_tolerance_and_beyond_none(case):
    at_the_limit = replace(
        GOOD,
        scored=1000,
        on_time=995,
        lag_p99_ns=TOLERANCES.lag_ns,
        first_error_p99_ns=TOLERANCES.stamp_ns,
        last_error_p99_ns=TOLERANCES.stamp_ns,
        uncertainty_p99_ns=TOLERANCES.stamp_ns,
        emitter_lag_p99_ns=EMITTER_LAG_NS,
    )
    assert at_the_limit.held(TOLERANCES)
    assert not replace(at_the_limit, **NOT_HELD[case]).held(TOLERANCES)


def test_the_tolerances_are_those_of_a_trial():
    assert (TOLERANCES.lag_ns, TOLERANCES.stamp_ns) == (7_500_000, 7_500_000)
    slo = [{"metric": "tpot", "quantile": 0.9, "limit_ms": 150.0}]
    assert Tolerances.of(small_spec(setup__slo=slo)) == Tolerances(MS, MS)
    slo = [{"metric": "ttft", "quantile": 0.9, "limit_ms": 100.0}]
    assert Tolerances.of(small_spec(setup__slo=slo)) == Tolerances(MS, 500_000)


CHAT = NAMED["chat-mix-v1"]
SPECS = {
    "demo": small_spec(),
    "quick": spec_in_mode("quick"),
    "slow engine": small_spec(protocol__start_rate=0.01, protocol__max_rate=0.1),
    "fast engine": small_spec(protocol__start_rate=1.0, protocol__max_rate=100_000.0),
    "start at the top": small_spec(protocol__start_rate=64.0),
    "long answers": small_spec(
        setup__workload={"name": CHAT.name, "version": CHAT.version, "hash": CHAT.hash},
        setup__input_tokens=CHAT.input_tokens.to_json(),
        setup__output_tokens=CHAT.output_tokens.to_json(),
        protocol__max_rate=7.3,
    ),
}


@pytest.mark.parametrize("case", SPECS)
def test_rates_rise_to_twice_what_the_spec_may_ask_in_few_steps(case):
    spec = SPECS[case]
    realisation = drawn(spec)
    shape = AnswerShape.of(spec, realisation)
    most = highest_rate_urps(spec, realisation, None)
    rates = rates_to_try(spec, realisation, shape, most)
    assert list(rates) == sorted(set(rates))
    assert len(rates) <= MAX_RATES
    top = HELD.model_copy(
        update={
            "requests_urps": rates[-1],
            "events_per_s": rates[-1] * shape.tokens // 1_000_000,
        }
    )
    assert highest_rate_urps(spec, realisation, top) == most
    low = top.model_copy(
        update={"requests_urps": rates[0], "events_per_s": rates[0] * shape.tokens // 1_000_000}
    )
    start = min(round(spec.protocol.start_rate * 1e6), most)
    assert highest_load_urps(low, realisation) >= start


@given(urps=st.integers(1_000_000, 3_000_000_000))
def test_requests_of_a_try_come_at_its_rate_with_the_gaps_of_the_workload(urps):
    due = due_ns(drawn(), urps)
    assert due[0] == 0
    assert list(due) == sorted(due)
    assert len(due) == max(12, urps * 800 * MS // 10**15)
    assert due[-1] < len(due) * 1e15 / urps
    gaps = [row.gap for row in drawn().rows[:3]]
    assert (due[2] - due[1]) / due[1] == pytest.approx(gaps[1] / gaps[0], rel=1e-3)


def test_an_answer_of_the_test_is_short_and_no_faster_than_the_limit_allows():
    shape = AnswerShape.of(SPEC, drawn())
    assert shape.tokens == 17
    assert shape.full_ns < 400 * MS
    quick = small_spec(
        setup__slo=[
            {"metric": "ttft", "quantile": 0.9, "limit_ms": 100.0},
            {"metric": "tpot", "quantile": 0.9, "limit_ms": 2.0},
        ]
    )
    assert AnswerShape.of(quick, drawn()).interval_ns == 2 * MS
    assert shape.tokens < MAX_TOKENS


SHAPE = AnswerShape(tokens=16, interval_ns=20 * MS, input_tokens=10)
DUE = tuple(n * 50 * MS for n in range(20))


def attempt(edit=lambda records: records, truth=None):
    template = next(ToyEngine().serve(drawn(), 1_000_000, repeat=0, trial=0))
    records = [
        replace(
            template,
            row=row,
            due_ns=due,
            sent_ns=due + row * 1000,
            first_ns=due + 30 * MS,
            last_ns=due + 400 * MS,
            uncertainty_ns=row,
        )
        for row, due in enumerate(DUE)
    ]
    epoch_ns = 10**15
    truth = truth or {
        row: (epoch_ns + due + 30 * MS - row * 10, epoch_ns + due + 400 * MS + row * 20)
        for row, due in enumerate(DUE)
    }
    return Attempt.of(
        Recorded(tuple(edit(records)), epoch_ns, "kernel"),
        Truth(1234, truth),
        shape=SHAPE,
        urps=20_000_000,
        due=DUE,
        tolerances=TOLERANCES,
    )


def test_what_the_client_told_is_held_against_the_truth_once_the_load_is_full():
    found = attempt()
    assert SHAPE.full_ns == 320 * MS
    assert found == Attempt(
        requests_urps=20_000_000,
        events_per_s=320,
        scored=13,
        on_time=13,
        lag_p99_ns=19_000,
        first_error_p99_ns=190,
        last_error_p99_ns=380,
        uncertainty_p99_ns=19,
        emitter_lag_p99_ns=1234,
        stamps="kernel",
    )
    assert found.held(TOLERANCES)


LOST = {
    "not sent": lambda rs: [replace(r, sent_ns=None) if r.row == 12 else r for r in rs],
    "late": lambda rs: [replace(r, sent_ns=r.due_ns + 8 * MS) if r.row == 12 else r for r in rs],
    "failed": lambda rs: [
        replace(r, status=Status.TIMED_OUT, last_ns=None) if r.row == 12 else r for r in rs
    ],
    "not reached": lambda rs: [r for r in rs if r.row < 19],
}


@pytest.mark.parametrize("case", LOST)
def test_a_request_that_was_late_or_lost_is_not_on_time(case):
    found = attempt(LOST[case])
    assert (found.scored, found.on_time) == (13, 12)
    assert not found.held(TOLERANCES)


def test_nothing_that_can_be_compared_is_not_held():
    found = attempt(truth={99: (1, 2)})
    assert (found.on_time, found.first_error_p99_ns) == (0, None)
    assert not found.held(TOLERANCES)


def test_the_truth_of_two_processes_has_the_rows_of_both_and_the_lag_of_the_later():
    ours, theirs = Truth(5, {1: (10, 20), 3: (30, 40)}), Truth(7, {2: (15, 25)})
    both = Truth(7, {1: (10, 20), 2: (15, 25), 3: (30, 40)})
    assert Truth.merged([ours, theirs]) == Truth.merged([theirs, ours]) == both
    assert Truth.merged([ours]) == ours
    assert Truth.merged([ours, Truth(0, {})]) == ours


@given(st.lists(st.lists(st.integers(0, 10**9), min_size=1, max_size=300), min_size=1, max_size=4))
def test_processes_are_never_called_on_time_when_all_their_tokens_together_are_not(lags):
    merged = Truth.merged([Truth(quantile(process, 0.99), {}) for process in lags])
    assert merged.lag_p99_ns >= quantile([lag for process in lags for lag in process], 0.99)
