"""derive against a naive recomputation of every number, straight from the definitions."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import HELD, RunBuilder, conversation_spec, small_spec, spec_in_mode
from tests.test_goodput import record
from tokenwatt_site.claims.derive import derive
from tokenwatt_site.evidence.power import Board, PowerLog, PowerSample
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.journal import Entry
from tokenwatt_site.trials import tokens_in_window
from tokenwatt_site.workload import workload_of


def evidence_of(builder, edit=lambda records: records, power=None):
    """Return the evidence of a builder without writing it."""
    lines = tuple(
        Entry(seq=i, at=f"2026-01-01T00:00:{i:02}Z", event=event, prev="0" * 64, data=data)
        for i, (event, data) in enumerate(builder.journal_plan())
    )
    evidence = builder.evidence(lines, edit(builder.requests()))
    return evidence if power is None else replace(evidence, power=power)


def cached_claims(cached):
    builder = RunBuilder(spec=conversation_spec(3, 4, 24))
    claims = derive(
        builder.spec,
        evidence_of(builder, lambda rs: [replace(r, cached_tokens=cached(r)) for r in rs]),
    )
    return builder, claims


def test_how_much_of_the_prompts_was_cached_is_a_number_where_conversations_are_declared():
    builder, claims = cached_claims(lambda r: 24 if r.row else 0)
    top = max(t.rate_urps for t in claims.trials if t.verdict == "PASS")
    rows = workload_of(builder.spec.setup).realisation(1, lead_in=5, scored=20, tail=60).rows[5:25]
    naive = 100 * 24 * 20 / sum(row.input_tokens for row in rows)
    assert claims.metric("highest_pass_rate").value == top / 1e6
    assert claims.metric("cached_prompt_share").value == pytest.approx(naive, rel=1e-12)


def test_a_request_of_unknown_prompt_length_is_in_neither_part_of_the_share():
    def half_told(r):
        return replace(r, cached_tokens=24, prompt_tokens=None if r.row == 7 else r.prompt_tokens)

    builder = RunBuilder(spec=conversation_spec(3, 4, 48))
    records = [half_told(r) for r in builder.requests() if r.trial == 1]
    scored = [r for r in records if 5 <= r.row < 25 and r.prompt_tokens]
    claims = derive(builder.spec, evidence_of(builder, lambda rs: [half_told(r) for r in rs]))
    naive = 100 * 24 * 19 / sum(r.prompt_tokens for r in scored)
    assert claims.metric("cached_prompt_share").value == pytest.approx(naive, rel=1e-12)


def test_an_engine_that_tells_nothing_of_its_cache_leaves_no_number_and_a_reason():
    _, claims = cached_claims(lambda _: None)
    assert claims.metric("cached_prompt_share").reason == "the engine does not tell"


def test_a_plain_run_has_no_number_of_the_cache():
    builder = RunBuilder(spec=small_spec())
    keys = {claim.key for claim in derive(builder.spec, evidence_of(builder)).metrics}
    assert "cached_prompt_share" not in keys


@pytest.fixture(scope="module")
def demo():
    builder = RunBuilder(spec=small_spec())
    return builder, evidence_of(builder)


@pytest.fixture(scope="module")
def full():
    builder = RunBuilder(spec=spec_in_mode("full"))
    return builder, evidence_of(builder)


def naive_quantile(values, q):
    return sorted(values)[math.ceil(Fraction(repr(q)) * len(values)) - 1]


def test_every_headline_number_of_a_demo_run_follows_from_its_records(demo):
    builder, evidence = demo
    spec = builder.spec
    claims = derive(spec, evidence)
    _, low, high = sorted({t.rate_urps for t in claims.trials})
    scored = [r for r in evidence.requests if r.trial == 2 and 5 <= r.row < 25]
    rate = math.sqrt(low * high) / 1e6
    asked = sum(r.output_asked for r in scored) / 20
    assert claims.metric("boundary_rate").value == pytest.approx(rate, rel=1e-6)
    assert claims.metric("highest_pass_rate").value == low / 1e6
    assert claims.metric("goodput").value == pytest.approx(rate * asked, rel=1e-6)
    assert claims.metric("input_throughput").value == pytest.approx(
        rate * sum(r.prompt_asked for r in scored) / 20, rel=1e-6
    )
    assert claims.metric("ttft").value == pytest.approx(
        naive_quantile([(r.first_ns - r.due_ns) / 1e6 for r in scored], 0.9)
    )
    assert claims.metric("tpot").value == pytest.approx(
        naive_quantile(
            [(r.last_ns - r.first_ns) / (r.output_tokens - 1) / 1e6 for r in scored], 0.9
        )
    )
    assert claims.metric("complete").value == 100
    assert claims.slo_met


def test_labels_take_the_quantile_from_the_spec(demo):
    builder, evidence = demo
    labels = [m.label for m in derive(builder.spec, evidence).metrics]
    assert {"TTFT p90", "TPOT p90", "TTFT from send p90", "E2E p50"} <= set(labels)


def test_goodput_is_multiplied_by_the_share_of_requests_that_completed(demo):
    builder, evidence = demo
    whole = derive(builder.spec, evidence).metric("goodput").value

    def lose_one(records):
        return [
            replace(r, status=Status.DISCONNECTED, first_ns=None, last_ns=None, output_tokens=None)
            if (r.trial, r.row) == (2, 10)
            else r
            for r in records
        ]

    claims = derive(builder.spec, evidence_of(builder, lose_one))
    assert claims.metric("complete").value == 95
    assert claims.metric("goodput").value == pytest.approx(whole * 0.95)


def test_three_launches_are_pooled_with_an_interval_and_a_band(full):
    builder, evidence = full
    goodput = derive(builder.spec, evidence).metric("goodput")
    logs = [math.log(x) for x in goodput.repeats]
    mean = sum(logs) / 3
    sd = math.sqrt(sum((x - mean) ** 2 for x in logs) / 2)
    assert len(goodput.repeats) == 3
    assert goodput.value == pytest.approx(math.exp(mean))
    assert goodput.low == pytest.approx(math.exp(mean - 4.302653 * sd / math.sqrt(3)))
    assert goodput.new_launch_high == pytest.approx(
        math.exp(mean + 4.302653 * sd * math.sqrt(4 / 3))
    )


def test_every_trial_is_there_with_its_verdict_and_its_objectives(demo):
    builder, evidence = demo
    trials = derive(builder.spec, evidence).trials
    assert [t.verdict for t in trials] == ["PASS", "PASS", "FAIL"]
    assert "miss" in trials[2].reason
    for trial in trials:
        for objective in trial.objectives:
            assert objective.allowed == objective.n - math.ceil(Fraction(9, 10) * objective.n)
            assert objective.passed == (objective.misses <= objective.allowed)


def test_the_output_rate_of_a_trial_is_what_arrived_in_its_scored_window(demo):
    builder, evidence = demo
    for trial in derive(builder.spec, evidence).trials:
        records = [r for r in evidence.requests if r.trial == trial.trial]
        begin, end = (next(r.due_ns for r in records if r.row == row) for row in (5, 24))
        slices, arrived = 20_000, 0.0
        for r in records:
            # Of each answer the first token at once, the others evenly, in thin slices of time.
            step = (r.last_ns - r.first_ns) / slices
            inside = sum(begin <= r.first_ns + (i + 0.5) * step <= end for i in range(slices))
            arrived += (r.output_tokens - 1) * inside / slices + (begin <= r.first_ns <= end)
        rate = None if trial.stopped_early else pytest.approx(arrived / (end - begin) * 1e9, 1e-3)
        assert trial.output_tokens_per_s == rate


def test_distributions_are_order_statistics_of_the_highest_passing_trial(demo):
    builder, evidence = demo
    ttft = next(d for d in derive(builder.spec, evidence).distributions if d.key == "ttft")
    scored = [r for r in evidence.requests if r.trial == 2 and 5 <= r.row < 25]
    values = [(r.first_ns - r.due_ns) / 1e6 for r in scored]
    assert ttft.n == 20
    assert ttft.values_ms == tuple(naive_quantile(values, (i + 1) / 100) for i in range(100))


def test_a16_lead_in_and_tail_are_not_scored(demo):
    builder, evidence = demo

    def spoil(records):
        return [
            replace(r, first_ns=r.first_ns + 10**12, last_ns=r.last_ns + 10**12)
            if r.row < 5 or r.row >= 25
            else r
            for r in records
        ]

    before, after = (
        derive(builder.spec, e).metric("ttft") for e in (evidence, evidence_of(builder, spoil))
    )
    assert before == after


def test_a_boundary_that_was_never_crossed_is_not_a_number_but_a_reason():
    builder = RunBuilder(spec=small_spec(), rates_urps=(500_000,))
    goodput = derive(builder.spec, evidence_of(builder)).metric("goodput")
    assert goodput.value is None
    assert "no trial broke the SLO, up to 0.5" in goodput.reason


def test_an_slo_that_was_never_met_says_so():
    builder = RunBuilder(spec=small_spec(), rates_urps=(90_000_000,))
    claims = derive(builder.spec, evidence_of(builder))
    assert not claims.slo_met
    assert "no trial met the SLO, down to 90" in claims.metric("goodput").reason
    assert claims.metric("ttft").value is None


def test_a_client_that_held_no_more_is_the_reason_of_an_open_boundary():
    held = HELD.model_copy(update={"requests_urps": 1_000_000})
    builder = RunBuilder(spec=small_spec(), rates_urps=(500_000,), self_test=held)
    claims = derive(builder.spec, evidence_of(builder))
    assert claims.trials[0].verdict == "PASS"
    assert claims.metric("goodput").reason == (
        "no trial broke the SLO, up to 0.5 requests/s; the client holds no more, by its self-test"
    )


def test_the_share_of_the_client_s_processor_is_claimed_where_it_was_counted(demo):
    builder, evidence = demo
    assert {t.client_cpu_percent for t in derive(builder.spec, evidence).trials} == {12.3456}


def test_a_bracket_wider_than_the_mode_asks_for_gives_no_boundary():
    builder = RunBuilder(spec=small_spec(), rates_urps=(500_000, 50_000_000))
    assert (
        "wider than the 1.15" in derive(builder.spec, evidence_of(builder)).metric("goodput").reason
    )


def test_what_was_not_measured_stands_under_not_covered_with_its_reason(demo):
    builder, evidence = demo
    covered = {n.what: n.why for n in derive(builder.spec, evidence).not_covered}
    assert "no power sensor" in covered["Tokens per joule"]
    assert "Accuracy" in covered
    assert "accelerator.memory_gib" in covered["Setup fields that were not recorded"]
    assert "The long run" in covered


def powered(builder, watts, counter=True):
    """Two boards of `watts` each, read once a second for the whole of trial 2."""
    realisation = workload_of(builder.spec.setup).realisation(1, lead_in=5, scored=20, tail=60)
    rate = next(rate for _, trial, rate in builder._trials() if trial == 2)
    seconds = realisation.due_ns(rate)[-1] // 10**9 + 2
    return PowerLog(
        "nvml",
        "gpu",
        10**9,
        None,
        tuple(Board(uuid=f"GPU-{i}", name="Test board", limit_mw=700_000) for i in range(2)),
        tuple(
            PowerSample(
                2 * 10**12 + s * 10**9, board, watts * 1000, watts * 1000 * s if counter else None
            )
            for s in range(seconds)
            for board in range(2)
        ),
    )


@pytest.mark.parametrize("counter", [True, False])
def test_tokens_and_joules_come_from_the_same_window(counter):
    power = {"sensor": "nvml", "scope": "gpu", "rate_hz": 1.0}
    builder = RunBuilder(spec=small_spec(setup__power=power))
    evidence = evidence_of(builder, power=powered(builder, 300, counter=counter))
    claims = derive(builder.spec, evidence)
    records = [r for r in evidence.requests if r.trial == 2]
    start, end = records[5].due_ns, records[24].due_ns
    tokens = 0.0
    for r in records:
        arrivals = [
            r.first_ns + i * (r.last_ns - r.first_ns) / (r.output_tokens - 1)
            for i in range(r.output_tokens)
        ]
        tokens += sum(start <= t <= end for t in arrivals)
    joules = 600 * (end - start) / 1e9
    assert claims.metric("board_power").value == pytest.approx(600, rel=1e-6)
    assert claims.metric("tokens_per_joule").value == pytest.approx(tokens / joules, rel=0.03)
    assert claims.metric("joules_per_token").value == pytest.approx(
        1 / claims.metric("tokens_per_joule").value
    )


spans = st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(2, 30), st.integers(1, 3))


@given(st.lists(spans, max_size=8), st.integers(0, 150), st.integers(1, 150))
def test_tokens_in_a_window_equal_a_sum_over_thin_slices(answers, start, width):
    records = [
        record(first_ns=a * 1000, last_ns=(a + b) * 1000, output_tokens=n + k, first_tokens=k)
        for a, b, n, k in answers
    ]
    end = start + width
    naive = 0.0
    for a, b, n, k in answers:
        naive += (k if b else n + k) * (start <= a <= end)
        if b:
            hits = sum(start <= a + b * (i + 0.5) / 2000 <= end for i in range(2000))
            naive += n * hits / 2000
    found = tokens_in_window(records, start * 1000, end * 1000)
    assert found == pytest.approx(naive, abs=0.05 * max(1, len(answers)))


def test_a_rate_that_failed_below_one_that_passed_is_told_and_decides(demo):
    builder, _ = demo

    def slow_at_first(records):
        return [
            replace(
                r,
                first_ns=r.first_ns + 10**10,
                last_ns=r.last_ns + 10**10,
                end_ns=r.end_ns + 10**10,
            )
            if r.trial == 1
            else r
            for r in records
        ]

    claims = derive(builder.spec, evidence_of(builder, slow_at_first))
    assert [t.verdict for t in claims.trials] == ["FAIL", "PASS", "FAIL"]
    assert claims.repeats[0].lowest_fail_urps == claims.trials[0].rate_urps
    assert claims.repeats[0].highest_pass_urps is None
    [told] = [c.why for c in claims.not_covered if "every rate passes" in c.what]
    assert "trial 1 failed" in told
    assert "trial 2 passed above it" in told


def test_h8_a_quantile_that_the_requests_do_not_carry_is_withheld_with_the_reason():
    slo = [{"metric": "ttft", "quantile": 0.9, "limit_ms": 1500.0}]
    builder = RunBuilder(small_spec(setup__slo=slo, protocol__scored=12))

    def half_undefined(records):
        return [replace(r, first_tokens=r.output_tokens) if r.row % 2 else r for r in records]

    claims = derive(builder.spec, evidence_of(builder, half_undefined))
    found = {m.label: m for m in claims.metrics}
    assert found["TTFT p90"].value is not None
    assert found["TPOT p50"].value is not None
    assert found["TPOT p90"].value is None
    assert found["TPOT p90"].reason == (
        "withheld: 6 requests do not carry it; of fewer than 10 it is the maximum"
    )


def test_latency_and_power_say_at_which_rates_their_windows_were(demo, full):
    builder, evidence = demo
    claims = derive(builder.spec, evidence)
    rate = (claims.repeats[0].highest_pass_urps or 0) / 1e6
    assert claims.window_rates == f"at the highest passing rate: {rate:.4g} requests/s"
    builder, evidence = full
    told = derive(builder.spec, evidence).window_rates or ""
    assert told.startswith("at the highest passing rate of each repeat: ")
    assert told.count(",") == 1
