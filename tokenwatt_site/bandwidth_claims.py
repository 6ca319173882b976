"""Published numbers of memory traffic and of the distance to the boards' limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenwatt_site.energy import WindowEnergy
from tokenwatt_site.pooled import absent
from tokenwatt_site.run import MetricClaim, Outcome
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Evidence, Trial


@dataclass(frozen=True, slots=True)
class BandwidthClaims:
    """What model, engine counters and boards carry."""

    metrics: tuple[MetricClaim, ...]
    outcomes: tuple[Outcome, ...]


def bandwidth_claims(
    spec: Spec, evidence: Evidence, tops: Sequence[Trial], energies: Sequence[WindowEnergy]
) -> BandwidthClaims:
    """Return memory traffic over the windows of `tops`, one trial for each repeat that passed.

    Args:
        spec: says boards, parallelism and quantization.
        evidence: model files, engine counters, boards.
        tops: the trials.
        energies: of each of their windows, in order; empty where no board was read.
    """
    why = "bytes per decode step are neither modelled nor measured by this version"
    return BandwidthClaims((absent("mbu", why),), ())
