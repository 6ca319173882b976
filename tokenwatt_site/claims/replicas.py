"""What each replica of an engine did, where they are asked apart; and what is not known of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenwatt_site.accuracy_spec import NO_TASK
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.goodput import carries, defined, order_statistic
from tokenwatt_site.journal import Entry
from tokenwatt_site.replicas import at_launch, replica_of
from tokenwatt_site.run import NotCovered, ReplicaClaim
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Trial, launches_of

_P99 = 0.99


def replica_claims(
    spec: Spec, journal: Sequence[Entry], tops: Sequence[Trial]
) -> tuple[ReplicaClaim, ...] | None:
    """Return what each replica did in the windows at the highest passing rates.

    Returns:
        One for each address of the spec, in its order; None where one engine was asked.
    """
    count = spec.endpoint.replicas
    if count == 1:
        return None
    told = [at_launch(line, count) for own in launches_of(journal).values() for line in own]
    scored = [record for trial in tops for record in trial.scored]
    claims = []
    for place in range(count):
        own = [record for record in scored if replica_of(record.row, count) == place]
        versions = dict.fromkeys(launch[place].version for launch in told)
        claims.append(
            ReplicaClaim(
                number=place + 1,
                version=", ".join(filter(None, versions)) or None,
                requests=len(own),
                percent=100 * len(own) / len(scored) if scored else None,
                failed=sum(record.status is not Status.OK for record in own),
                ttft_p99_ms=_p99_ms("ttft", own),
                tpot_p99_ms=_p99_ms("tpot", own),
            )
        )
    return tuple(claims)


def _p99_ms(key: str, own: Sequence[RequestRecord]) -> float | None:
    value = order_statistic(key, own, _P99)
    if value is None or not carries(_P99, defined(key, own)):
        return None
    return value / 1e6


def replica_caveats(spec: Spec, *, modelled: bool) -> tuple[NotCovered, ...]:
    """Return what is not known of the replicas of a setup; nothing where there is one.

    Args:
        spec: says how many there are, and how many were asked apart.
        modelled: whether the long run is that of an engine model.
    """
    told = _not_known(spec, modelled=modelled)
    return tuple(NotCovered(what=what, why=why) for what, why in told)


def _not_known(spec: Spec, *, modelled: bool) -> Iterator[tuple[str, str]]:
    declared, asked = spec.setup.parallelism.replicas, spec.endpoint.replicas
    if declared == 1:
        return
    if asked == 1:
        yield (
            f"What each of the {declared} replicas did",
            (
                "One address was asked, behind which requests are shared out. The share of each"
                " replica, its version and whether it failed are not seen from there: what was read"
                " back is of whichever answered."
            ),
        )
        return
    yield (
        "A balancer before the replicas",
        (
            f"Row i of a trial was sent to replica i mod {asked}, whatever each had open. One that"
            " looks at their load may hold more, one that costs time less."
        ),
    )
    yield (
        "The engine's own counters",
        f"A step, a batch and a queue are of one process; those of {asked} were not put together.",
    )
    if modelled:
        yield (
            "The order of rows in the long run",
            "The engine model sends each request to the replica that has least to do.",
        )
    if spec.setup.accuracy_gate.task != NO_TASK:
        yield (
            "The answers of every replica",
            "The questions of the accuracy gate were asked of the first.",
        )
