"""What is stated about the runs of a configuration: the table, what stands on top, the marks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.pages import text
from tokenwatt_site.pages.unranked import CODE_WORDS
from tokenwatt_site.statistics import Ratio
from tokenwatt_site.trust.keyring import KeyState
from tokenwatt_site.trust.predicates import (
    Disputed,
    Recomputed,
    Reproduced,
    Seen,
    Superseded,
)
from tokenwatt_site.trust.standing import RunStanding, Told
from tokenwatt_site.trust.verify import ValidatedRun

KEY_MARKS: dict[KeyState, str] = {
    "expired": "key expired",
    "revoked": "key revoked",
    "revoked later": "key revoked later",
}
"""State of a key that was registered once -> the words of its tag."""

Against: TypeAlias = Literal["withdrawn", "superseded", "disputed"]

AGAINST: tuple[Against, ...] = ("withdrawn", "superseded", "disputed")
"""What is told of a run before its numbers, the gravest first."""


@dataclass(frozen=True, slots=True)
class StatementRow:
    """A statement. `url`: where a dispute is discussed. `counts`: "yes", or why it does not.

    `marks` is what a reader has to know of the run that it is about.
    """

    made: str
    run_id: str
    marks: tuple[str, ...]
    kind: str
    by: str
    says: str
    url: str | None
    counts: str


def rows(configuration: Configuration) -> tuple[StatementRow, ...]:
    """Return the statements about the runs, also those that change nothing."""
    return tuple(
        _row(run, told, configuration.unpublished)
        for run in configuration.runs
        for told in run.standing.told
    )


def unheard(configuration: Configuration) -> int:
    """Return how many statements about the runs are not listed; all by keys nobody registered."""
    return sum(run.standing.unheard for run in configuration.runs)


def hidden(name: str, unpublished: frozenset[str]) -> tuple[str, ...]:
    """Return the tag of a run or statement that is not published: previews alone have any."""
    return (CODE_WORDS["unpublished"],) if name in unpublished else ()


def _row(run: ValidatedRun, told: Told, unpublished: frozenset[str]) -> StatementRow:
    said = told.signed.said
    return StatementRow(
        made=minute(told),
        run_id=run.run_id,
        marks=hidden(run.run_id, unpublished),
        kind=told.signed.kind,
        by=signer(told),
        says=says(told, unpublished),
        url=said.url if isinstance(said, Disputed) else None,
        counts=told.why_not or _yes(told),
    )


def _yes(told: Told) -> str:
    if told.seen is None:
        return "yes"
    return f"yes; others saw it, as {told.signed.digest[:12]}, at {told.seen:%Y-%m-%d %H:%M}"


def minute(told: Told) -> str:
    """When a statement was made, as its signer says."""
    return f"{told.signed.made:%Y-%m-%d %H:%M}"


def signer(told: Told) -> str:
    """Who signed a statement; a key that is not registered has no name."""
    return told.key.name or f"unknown key {told.signed.keyid}"


def says(told: Told, unpublished: frozenset[str] = frozenset()) -> str:
    """What a statement says beside its kind; it or a run that it names may be `unpublished`."""
    return _marked(_says(told, unpublished), told.signed.digest, unpublished)


def _says(told: Told, unpublished: frozenset[str]) -> str:
    said = told.signed.said

    def named(run_id: str) -> str:
        return _marked(run_id[:12], run_id, unpublished)

    if isinstance(said, Recomputed):
        level = "" if said.level == "model" else ", without the replay of the engine model"
        return f"{said.numbers:,} numbers{level}, by tokenwatt-site {said.tool_version}"
    if isinstance(said, Reproduced):
        found = "" if told.ratio is None else f", {ratio(told.ratio)}"
        return f"run {named(said.run)} {said.outcome}{found}"
    if isinstance(said, Superseded):
        return f"by run {named(said.by)}: {said.reason}"
    if isinstance(said, Seen):
        return f"statement {said.statement[:12]} was there"
    return told.signed.reason or "the run was there"


def _marked(words: str, name: str, unpublished: frozenset[str]) -> str:
    return " ".join((words, *(f"({word})" for word in hidden(name, unpublished))))


def ratio(value: Ratio) -> str:
    """Write new / original with its 90% interval."""
    if value.low is None or value.high is None:
        return f"ratio {value.value:.3f}, no interval"
    return f"ratio {value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"


def outcomes(found: Sequence[Told]) -> str:
    """Count what reruns came to, such as "reproduced 2×, inconclusive 1×"."""
    counted = Counter(t.signed.said.outcome for t in found if isinstance(t.signed.said, Reproduced))
    return ", ".join(f"{word} {n}×" for word, n in counted.most_common())


def together(found: Sequence[Told]) -> Ratio | None:
    """Return the geometric mean of several ratios, with all of their intervals in its own."""
    ratios = [told.ratio for told in found if told.ratio is not None]
    if not ratios:
        return None
    value = math.prod(each.value for each in ratios) ** (1 / len(ratios))
    lows = [each.low for each in ratios if each.low is not None]
    highs = [each.high for each in ratios if each.high is not None]
    if len(lows) < len(ratios) or len(highs) < len(ratios):
        return Ratio(value, None, None)
    return Ratio(value, min(lows), max(highs))


def notices(
    standing: RunStanding, unpublished: frozenset[str] = frozenset()
) -> Iterator[tuple[str, str]]:
    """Yield (lead, rest) of what stands above the numbers of a run."""
    for kind in AGAINST:
        for told in standing.counting(kind):
            said = says(told, unpublished)
            yield f"{kind.capitalize()}.", f"{signer(told)}, {minute(told)}: {said}."
    if not standing.key.trusted and standing.key.state != "unknown":
        yield f"{KEY_MARKS[standing.key.state].capitalize()}.", f"It {standing.key.text}."
    if standing.unread:
        what = text.counted(len(standing.unread), "file")
        yield (
            "Left out.",
            f"What failed verification in {what} of statements or commitments beside this run.",
        )


def marks(run: ValidatedRun, unpublished: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The tags of a run in a list: not published, what was stated against it, a key that ended."""
    standing = run.standing
    stated = [kind for kind in AGAINST if standing.counting(kind)]
    key = KEY_MARKS.get(standing.key.state)
    return (*hidden(run.run_id, unpublished), *stated, *([key] if key else []))
