"""Whether a run's numbers follow from its evidence, and how deep that was looked at: check 10.

The data level is every number but those that the replay of the engine model makes; the model level
is those too. A replay takes seconds and all else a part of one, so the data level comes first, and
nobody's processor is spent on a file that does not pass it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from tokenwatt_site.claims.derive import Evidence, derive_data
from tokenwatt_site.claims.long_run import LongRunClaims
from tokenwatt_site.run import Claims, Run
from tokenwatt_site.trials import Trial
from tokenwatt_site.trust.difference import expect_equal

Level: TypeAlias = Literal["data", "model"]
"""How deep a recomputation went. Without an engine model there is nothing to replay: "model"."""


def recomputed(
    run: Run,
    evidence: Evidence,
    trials: Sequence[Trial],
    *,
    level: Level,
) -> tuple[Claims, Level]:
    """Return the claims as they follow from the evidence, and on which level they do.

    On the data level those of the long run are the file's own.

    Args:
        run: what it claims is compared with what comes out.
        evidence: of the run.
        trials: what `read_trials` returns for the run.
        level: how deep to look.

    Raises:
        InputError: naming the first claim that does not follow, or what the engine model states
            and does not show.
        SpecError: the workload of the spec cannot be drawn.
    """
    data = derive_data(run.spec, evidence, trials)
    if evidence.model_fit is None:
        return _same(run, data.claims(data.replay())), "model"
    told = _same(run, data.claims(LongRunClaims.told_by(run.claims)))
    if level == "data":
        return told, level
    return _same(run, data.claims(data.replay())), level


def _same(run: Run, claims: Claims) -> Claims:
    what = "does not follow from the evidence"
    expect_equal("claims", run.claims.to_json(), claims.to_json(), what)
    return claims
