"""Which of several reproductions of one run count, whatever the order in which they are told. Pure.

Of one publisher the weightiest rerun counts: one that came to something before one that did not,
then the one of more launches, then the newest. So neither a thin first rerun bars a better one, nor
does whoever measures until it pleases get more than one.

A board counts once for each outcome, under whatever keys. Only for the same one: UUIDs are public,
and a rerun that claims those of another must not take another outcome away. Of reruns that share
boards and outcome, those count first that share with the fewest others, so that one that claims
many boards does not stand in the place of several; then what others witnessed, the earliest first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tokenwatt_site.comparability import Outcome


@dataclass(frozen=True, slots=True)
class Rerun:
    """A run that says something about another, and itself stands.

    Attributes:
        run_id: its id.
        publisher: the last of the keys that follow each other, of which one signed it.
        boards: the UUIDs of its boards.
        outcome: what comparing both comes to.
        launches: how many of its launches were compared.
        ended: when it ended, by its own clock.
        witnessed: when others saw it; None: nobody did.
    """

    run_id: str
    publisher: str
    boards: frozenset[str]
    outcome: Outcome
    launches: int
    ended: datetime
    witnessed: datetime | None


def surplus(reruns: Mapping[str, Rerun]) -> dict[str, str]:
    """Return why some do not count beside the others; what is not named counts.

    Args:
        reruns: by the digest of the statement that tells of each.
    """
    why_not: dict[str, str] = {}
    best: dict[str, str] = {}
    for name in sorted(reruns, key=lambda name: (_weight(reruns[name]), name), reverse=True):
        first = best.setdefault(reruns[name].publisher, name)
        if first != name:
            why_not[name] = f"its publisher is counted already, by run {reruns[first].run_id[:12]}"
    rivals = {
        name: {o for o in best.values() if o != name and _shared(reruns[name], reruns[o])}
        for name in best.values()
    }
    counted: list[str] = []
    for name in sorted(rivals, key=lambda name: (len(rivals[name]), _seen(reruns[name]), name)):
        rival = next((other for other in counted if other in rivals[name]), None)
        if rival is None:
            counted.append(name)
        else:
            shared = sorted(_shared(reruns[name], reruns[rival]))
            why_not[name] = f"its boards are counted already: {', '.join(shared)}"
    return why_not


def _weight(rerun: Rerun) -> tuple[bool, int, datetime, str]:
    return rerun.outcome != "inconclusive", rerun.launches, rerun.ended, rerun.run_id


def _seen(rerun: Rerun) -> tuple[bool, datetime, str]:
    return rerun.witnessed is None, rerun.witnessed or rerun.ended, rerun.run_id


def _shared(one: Rerun, other: Rerun) -> frozenset[str]:
    """Return the boards that count once for both: there are none where they come to another."""
    return one.boards & other.boards if one.outcome == other.outcome else frozenset()
