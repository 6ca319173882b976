"""What load does to answers: those under load held against the same prompts asked alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from tokenwatt_site.accuracy_gate import wilson
from tokenwatt_site.claims.pooled import absent
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.under_load import Compared
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.run import MetricClaim, UnderLoadClaim
from tokenwatt_site.trials import Evidence

_KEY = "load_difference"


def under_load_claims(evidence: Evidence) -> tuple[UnderLoadClaim, ...]:
    """Return what came out of each trial whose answers were held against the same alone.

    Raises:
        InputError: a trial that the journal does not name.
    """
    log = evidence.under_load
    own: dict[tuple[int, int], list[Compared]] = {}
    for item in log.compared if log else ():
        own.setdefault((item.repeat, item.trial), []).append(item)
    rates = {
        (line.data["repeat"], line.data["trial"]): line.data["rate_urps"]
        for line in evidence.journal
        if line.event == "trial_start"
    }
    if unknown := sorted(own.keys() - rates.keys()):
        raise InputError(
            Problem(
                "is of a trial that the journal does not name",
                field="under-load",
                found="repeat {}, trial {}".format(*unknown[0]),
            )
        )
    return tuple(_claim(*key, rates[key], own[key]) for key in sorted(own))


def _claim(repeat: int, trial: int, rate_urps: int, items: Sequence[Compared]) -> UnderLoadClaim:
    pairs = [item for item in items if item.loaded is not None and item.alone is not None]
    differing = [item for item in pairs if item.loaded != item.alone]
    twice = [item for item in items if item.alone is not None and item.again is not None]
    shares = [100 * item.same_chars / item.chars for item in differing if item.chars]
    low, high = wilson(len(differing), len(pairs)) if pairs else (None, None)
    return UnderLoadClaim(
        repeat=repeat,
        trial=trial,
        rate_urps=rate_urps,
        compared=len(pairs),
        differing=len(differing),
        percent=100 * len(differing) / len(pairs) if pairs else None,
        low=None if low is None else 100 * low,
        high=None if high is None else 100 * high,
        compared_alone=len(twice),
        differing_alone=sum(item.alone != item.again for item in twice),
        same_percent=statistics.median(shares) if shares else None,
        cached=any(item.cached_tokens for item in items),
    )


def load_difference(claims: Sequence[UnderLoadClaim]) -> MetricClaim:
    """Return the share of all answers compared that differ, or the reason why there is none.

    The rows are drawn anew in each repeat, so that the interval is of all of them together.
    """
    shares = [claim.percent for claim in claims if claim.percent is not None]
    compared = sum(claim.compared for claim in claims)
    differing = sum(claim.differing for claim in claims)
    if not claims:
        return absent(_KEY, "no answer under load was held against the same prompt asked alone")
    if not compared:
        return absent(_KEY, "no prompt had a whole answer both under load and alone")
    low, high = wilson(differing, compared)
    return MetricClaim(
        key=_KEY,
        label=METRICS[_KEY].label,
        value=100 * differing / compared,
        repeats=tuple(shares),
        low=100 * low,
        high=100 * high,
    )


def under_load_caveats(
    evidence: Evidence, claims: Sequence[UnderLoadClaim]
) -> Iterator[tuple[str, str]]:
    """Yield what the comparison does not cover, and why."""
    items = evidence.under_load.compared if evidence.under_load else ()
    n = len(items)
    loaded, alone = (
        sum(getattr(item, name) is None for item in items) for name in ("loaded", "alone")
    )
    if loaded or alone:
        yield (
            "All the answers that were to be compared under load",
            f"Of {n}, {loaded} did not come whole under load and {alone} not when asked alone.",
        )
    if differing := sum(claim.differing_alone for claim in claims):
        twice = sum(claim.compared_alone for claim in claims)
        yield (
            "That it is the load that changes answers",
            (
                f"{differing} of {twice} prompts gave two texts when asked alone twice: the engine"
                " does not compute the same each time."
            ),
        )
    if cached := sum(bool(item.cached_tokens) for item in items):
        yield (
            "That prompts were computed anew when asked alone",
            (
                f"The engine took a part of {cached} of {n} from its cache, where it may be as it"
                " was computed under load; then it stands on both sides of the comparison."
            ),
        )
