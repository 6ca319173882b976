"""What checks of physics said of the numbers, in the places where a reader meets the numbers."""

from __future__ import annotations

from tokenwatt_site.claims.energy import ENERGY_KEY, ENERGY_KEYS
from tokenwatt_site.claims.pooled import absent
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import text
from tokenwatt_site.run import Claims, Level, MetricClaim, Outcome

WORDS: dict[Level, str] = {
    "warn": "Warning",
    "not reconciled": "Not reconciled",
    "withheld": "Withheld",
    "INVALID": "INVALID",
}

_BARRED: set[Level] = {"withheld", "INVALID"}


def of(claims: Claims, key: str) -> tuple[Outcome, ...]:
    """Return what was said of one metric, or of the energy that it is made of, each once."""
    keys = {key, ENERGY_KEY} if key in ENERGY_KEYS else {key}
    return tuple(dict.fromkeys(o for o in claims.outcomes if o.key in keys))


def why(claims: Claims, claim: MetricClaim) -> str:
    """Say why there is no number: barred by a check, or not measured."""
    told = text.reason(claim)
    barred = [o for o in of(claims, claim.key) if o.level in _BARRED]
    if barred and told.startswith(text.NOT_MEASURED):
        return f"{barred[0].level}: {barred[0].text}"
    return told


def marks(claims: Claims, key: str) -> tuple[str, ...]:
    """Return the levels of what was said of one metric, once each, the gravest last."""
    said = {o.level for o in of(claims, key)}
    return tuple(words for level, words in WORDS.items() if level in said)


def noted(claims: Claims, *keys: str) -> str:
    """Name the levels of what was said of these metrics; its words stand once on the page."""
    said = {words for key in keys for words in marks(claims, key)}
    found = [words for words in WORDS.values() if words in said]
    return f"{text.joined(found)}: see Key figures." if found else ""


def listed(claims: Claims) -> tuple[tuple[str, str, str], ...]:
    """(how grave, label of the number, words) of everything that was said, the gravest first."""
    order = list(WORDS)
    told = sorted(claims.outcomes, key=lambda o: -order.index(o.level))
    return tuple(dict.fromkeys((WORDS[o.level], METRICS[o.key].label, o.text) for o in told))


def find(claims: Claims, key: str) -> MetricClaim:
    """Return the metric; where a run tells nothing of it, one that says so."""
    for claim in claims.metrics:
        if claim.key == key:
            return claim
    return absent(key, "the run does not tell")
