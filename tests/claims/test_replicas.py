"""What each replica did, made from the rows that it was sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.claims.test_derive import evidence_of
from tests.support.runs import RunBuilder, gated_spec, replica_spec, small_spec
from tests.test_trials import changed
from tokenwatt_site.claims.derive import derive
from tokenwatt_site.claims.replicas import replica_caveats
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.goodput import quantile
from tokenwatt_site.run import Claims, TrialClaim

SPEC = replica_spec(2, protocol__scored=300, protocol__tail=60)
BUILDER = RunBuilder(spec=SPEC, rates_urps=(200_000,))


def fail_one(records: list[RequestRecord]) -> list[RequestRecord]:
    """Row 6 is of the first replica, and scored."""
    return [replace(r, status=Status.HTTP_ERROR) if r.row == 6 else r for r in records]


def test_each_replica_has_its_share_its_failures_and_its_quantiles() -> None:
    first, second = derive(SPEC, evidence_of(BUILDER, fail_one)).replicas or ()
    scored = [r for r in BUILDER.requests() if 5 <= r.row < 305]
    own = [r.first_ns - r.due_ns for r in scored if r.row % 2 == 1 and r.first_ns]
    assert (first.number, first.version, first.requests, first.failed) == (1, "1.0", 150, 1)
    assert (second.requests, second.failed, second.percent) == (150, 0, 50.0)
    assert second.ttft_p99_ms == quantile(own, 0.99) / 1e6
    # A request that failed stands above all others, and p99 of 150 is the second highest.
    assert (
        first.ttft_p99_ms
        == max(
            r.first_ns - r.due_ns for r in scored if r.row % 2 == 0 and r.row != 6 and r.first_ns
        )
        / 1e6
    )


def test_too_few_requests_carry_no_quantile_and_no_trial_has_no_share() -> None:
    spec = replica_spec(3)
    claims = derive(spec, evidence_of(RunBuilder(spec=spec, rates_urps=(500_000,))))
    assert [r.requests for r in claims.replicas or ()] == [7, 6, 7]
    assert {r.ttft_p99_ms for r in claims.replicas or ()} == {None}
    none = derive(spec, evidence_of(RunBuilder(spec=spec, rates_urps=(60_000_000,))))
    assert {(r.requests, r.percent) for r in none.replicas or ()} == {(0, None)}


def test_one_engine_has_no_replicas_and_its_claims_say_nothing_of_them() -> None:
    claims = derive(small_spec(), evidence_of(RunBuilder(rates_urps=(500_000,))))
    assert claims.replicas is None
    assert "replicas" not in claims.to_json()


def test_a_replica_that_is_gone_after_a_trial_is_named_in_its_verdict() -> None:
    evidence = evidence_of(BUILDER)
    told = next(line.data["replicas"] for line in evidence.journal if line.event == "trial_end")

    def claims(after: list[object]) -> Claims:
        journal = changed(evidence, "trial_end", replicas=after)
        return derive(SPEC, replace(evidence, journal=journal))

    (trial,) = claims([told[0], None]).trials
    assert (trial.verdict, trial.reason) == (
        "INVALID",
        "engine: replica 2 of 2 does not answer any more",
    )
    (trial,) = claims([told[0] | {"started": "later"}, told[1]]).trials
    assert trial.reason == "engine: replica 1 of 2 was started again"


def test_failures_of_one_replica_alone_are_said_to_be_its() -> None:
    def fail(rows: range) -> TrialClaim:
        def edit(records: list[RequestRecord]) -> list[RequestRecord]:
            lost = {"status": Status.DISCONNECTED}
            return [replace(r, **lost) if r.row in rows else r for r in records]

        (trial,) = derive(SPEC, evidence_of(BUILDER, edit)).trials
        return trial

    one, both = fail(range(11, 150, 2)), fail(range(11, 150))
    assert one.verdict == both.verdict == "FAIL"
    assert (one.reason or "").endswith("70 disconnected; all of replica 2 of 2")
    assert (both.reason or "").endswith("139 disconnected")


def test_requests_that_one_replica_alone_did_not_take_are_said_to_be_its() -> None:
    def edit(records: list[RequestRecord]) -> list[RequestRecord]:
        unsent = {"status": Status.DISCONNECTED, "sent_ns": None, "first_ns": None, "last_ns": None}
        return [replace(r, **unsent) if r.row % 2 else r for r in records]

    (trial,) = derive(SPEC, evidence_of(BUILDER, edit)).trials
    assert trial.reason == (
        "network or engine: 182 of 365 requests could not be sent, all of replica 2 of 2: they got"
        " no connection"
    )


@pytest.mark.parametrize("asked_apart", [True, False])
def test_what_is_not_known_of_replicas_is_told(asked_apart: bool) -> None:
    gate = gated_spec().setup.accuracy_gate.to_json()
    behind = small_spec(setup__parallelism__replicas=3, setup__accuracy_gate=gate)
    spec = replica_spec(3, setup__accuracy_gate=gate) if asked_apart else behind
    told = {each.what for each in replica_caveats(spec, modelled=True)}
    assert told == (
        {
            "A balancer before the replicas",
            "The engine's own counters",
            "The order of rows in the long run",
            "The answers of every replica",
        }
        if asked_apart
        else {"What each of the 3 replicas did"}
    )
    assert replica_caveats(small_spec(), modelled=True) == ()
