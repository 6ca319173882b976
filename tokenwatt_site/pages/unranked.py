"""Why a row has no rank, in the few words of a tag."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.run import GateOutcome
from tokenwatt_site.trust.keyring import KeyState

CODE_WORDS = {
    "unpublished": "not published",
    "withdrawn": "withdrawn",
    "superseded": "superseded",
    "disputed": "disputed",
    "simulated": "simulated",
    "interrupted": "interrupted",
    "mode": "not full mode",
    "physics": "a number that physics forbids",
    "slo": "SLO not met",
    "launches": "too few launches",
    "long-run": "not corrected to the long run",
    "setup": "setup not fully recorded",
}
"""Code of an exclusion -> the words of its tag. Those of "accuracy" are GATE_WORDS, those of "key"
KEY_WORDS."""

KEY_WORDS: Mapping[KeyState, str] = MappingProxyType(
    {"unknown": "key not registered", "expired": "key expired", "revoked": "key revoked"}
)
"""State of a key that is not trusted -> the words of its tag."""

GATE_WORDS: Mapping[GateOutcome, str] = MappingProxyType(
    {
        "failed": "accuracy gate failed",
        "inconclusive": "accuracy gate inconclusive",
        "no reference": "no reference for accuracy",
        "not run": "accuracy gate not run",
        "none": "no accuracy gate",
        "passed": "accuracy reference not valid here",
    }
)
"""What the gate of a configuration that it keeps from ranking came to -> the words of its tag."""


def tags(configuration: Configuration) -> list[tuple[str, str, str]]:
    """Return (code, the reason in full, words of its tag), a gate that was failed first."""
    words = {
        **CODE_WORDS,
        "accuracy": GATE_WORDS.get(configuration.claims.gate.outcome, ""),
        "key": KEY_WORDS.get(configuration.headline.key_state, ""),
    }
    found = [(why.code, why.text, words[why.code]) for why in configuration.exclusions]
    return sorted(found, key=lambda tag: tag[2] != GATE_WORDS["failed"])
