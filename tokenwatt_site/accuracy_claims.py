"""What is claimed of a run's answers: scores, the gate's verdict, and what load does to answers."""

from __future__ import annotations

from dataclasses import dataclass

from tokenwatt_site.accuracy_spec import NO_TASK
from tokenwatt_site.pooled import absent
from tokenwatt_site.run import AccuracyClaim, GateClaim, MetricClaim, NotCovered, UnderLoadClaim
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Evidence


@dataclass(frozen=True, slots=True)
class AccuracyFound:
    """All that `accuracy_claims` makes; each part goes into `run.Claims` as it is."""

    metrics: tuple[MetricClaim, ...]
    accuracy: tuple[AccuracyClaim, ...]
    gate: GateClaim
    under_load: tuple[UnderLoadClaim, ...]
    not_covered: tuple[NotCovered, ...]


def accuracy_claims(spec: Spec, evidence: Evidence) -> AccuracyFound:
    """Derive what answers tell; every key is there, as a number or with the reason why not."""
    if spec.setup.accuracy_gate.task == NO_TASK:
        why = "no accuracy gate was asked for"
        gate = GateClaim(outcome="none", text=why)
    elif evidence.accuracy is None:
        why = "the accuracy gate was not run"
        gate = GateClaim(outcome="not run", text=why)
    else:
        raise NotImplementedError
    return AccuracyFound((absent("accuracy", why),), (), gate, (), ())
