"""What a run stands for: its key, and what the statements about it change. Pure.

A statement counts where its signature fits (`trust.statement`), its key is trusted, and its signer
is one who may say so. All others are kept too, each with the reason why it changes nothing:

- withdrawn, superseded: by the run's own key or one that follows it. Also by an own key that is not
  registered: who signed the run may take it back, whoever that is.
- countersigned: by another publisher, after the run ended, as long as its key counts. The earliest
  is the witnessed time.
- recomputed: by another publisher.
- reproduced: by the publisher of another run that is here and itself stands; the outcome is worked
  out again from both. Of one publisher the weightiest run counts, and boards once for each outcome
  (`trust.counting`).
- disputed: by any trusted key, until it is settled.
- settled: by the key of the dispute that it names, or one that follows it.
- seen: by another publisher than that of the run and that of the statement that it names, as long
  as its key counts. The earliest is when that statement was there.

Keys that follow each other are one publisher. A key that has ended, expired or revoked, states only
what was seen while it counted: whoever has it can write any date. But an expired one still takes
its own runs back, since none should return because time goes by; if it was stolen, revoke it.
In which order statements stand in their files decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from tokenwatt_site.comparability import (
    CheckedRun,
    Compared,
    compare,
    gpu_uuids,
    why_not_independent,
)
from tokenwatt_site.errors import TokenwattError
from tokenwatt_site.statistics import Ratio
from tokenwatt_site.trust.counting import Rerun, surplus
from tokenwatt_site.trust.keyring import Keyring, Standing
from tokenwatt_site.trust.plausibility import FUTURE_SLACK
from tokenwatt_site.trust.predicates import (
    Countersigned,
    Disputed,
    Kind,
    Recomputed,
    Reproduced,
    Seen,
    Settled,
    Superseded,
    Withdrawn,
)
from tokenwatt_site.trust.statement import Signed


@dataclass(frozen=True, slots=True)
class Told:
    """A statement about a run, and how the key stands that signed it.

    `why_not` says why it changes nothing, and is None where it counts. `ratio` is of a reproduction
    that counts: new / original. `seen` is when others saw the statement; None: none who counts did.
    """

    signed: Signed
    key: Standing
    why_not: str | None
    ratio: Ratio | None = None
    seen: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunStanding:
    """What is known of a run beside its numbers.

    Attributes:
        key: how the key stands that signed it.
        chain: that key's id, and the keys that follow it.
        told: the statements about it, by their dates.
        unheard: how many more there are, by keys that are not registered.
        unread: files of statements with bad lines, which were left out, and what is wrong there.
    """

    key: Standing
    chain: tuple[str, ...]
    told: tuple[Told, ...] = ()
    unheard: int = 0
    unread: tuple[tuple[Path, TokenwattError], ...] = ()

    def counting(self, kind: Kind) -> tuple[Told, ...]:
        """Return the statements of a kind that count."""
        return tuple(t for t in self.told if t.why_not is None and t.signed.kind == kind)

    @property
    def publisher(self) -> str:
        """The last of the keys that follow each other, which stands for all of them."""
        return self.chain[-1]

    @property
    def retracted(self) -> bool:
        """Whether its publisher took it back: withdrawn, or superseded by another run."""
        return bool(self.counting("withdrawn") or self.counting("superseded"))

    @property
    def disputed(self) -> bool:
        return bool(self.counting("disputed"))

    @property
    def witness(self) -> Told | None:
        """The earliest countersignature that counts."""
        return min(self.counting("countersigned"), key=lambda t: t.signed.made, default=None)


class Subject(CheckedRun, Protocol):
    """A run that passed every check, with its standing; `trust.verify` makes them."""

    @property
    def run_id(self) -> str: ...

    @property
    def ended(self) -> datetime: ...

    @property
    def standing(self) -> RunStanding: ...


def untold(keyid: str, ended: datetime, *, keyring: Keyring, now: datetime) -> RunStanding:
    """Return the standing of a run of which nothing is stated.

    Args:
        keyid: the key that signed it.
        ended: when it ended, by its own clock.
        keyring: the registered keys.
        now: the clock of whoever asks.
    """
    key = keyring.state(keyid, ended=ended, witnessed=None, now=now)
    return RunStanding(key=key, chain=keyring.chain(keyid))


def stand(
    run: Subject,
    statements: Sequence[Signed],
    *,
    among: Mapping[str, Subject],
    keyring: Keyring,
    now: datetime,
) -> RunStanding:
    """Return the standing of a run with what is stated about it.

    Args:
        run: what the statements are about.
        statements: their signatures fit, and they are about this run.
        among: the verified runs by id, of which a reproduction names one. They have their own
            standing, in which no reproduction needs to count.
        keyring: the registered keys.
        now: the clock of whoever asks.
    """
    told: list[Told] = []
    reruns: dict[str, Rerun] = {}
    sights = tuple(_sights(run, statements, keyring, now))
    seen = _earliest(sights)
    for signed in sorted(_others(statements), key=_by_date):
        at = seen.get(signed.digest)
        key = keyring.of_statement(signed.keyid, made=signed.made, seen=at, now=now)
        why_not = bar(run, signed, keyring=keyring, now=now) or _untrusted(signed, key)
        ratio = None
        if why_not is None and isinstance(signed.said, Reproduced):
            other = among.get(signed.said.run)
            if other is None:
                why_not = f"run {signed.said.run[:12]} is not here"
            elif signed.keyid not in other.standing.chain:
                # Nor by a key before it, which may be lost: others may have it.
                why_not = f"it is not by the publisher of run {signed.said.run[:12]}"
            else:
                compared = compare(run, other)
                ratio, why_not = _reproduction(run, other, signed.said, compared)
                if why_not is None:
                    reruns[signed.digest] = _rerun(other, compared)
        told.append(Told(signed, key, why_not, ratio, at))
    told = [*sights, *_settled(_counted(told, surplus(reruns)), keyring)]
    told.sort(key=lambda each: _by_date(each.signed))
    standing = replace(untold(run.keyid, run.ended, keyring=keyring, now=now), told=tuple(told))
    if (witness := standing.witness) is None:
        return standing
    witnessed = witness.signed.made
    key = keyring.state(run.keyid, ended=run.ended, witnessed=witnessed, now=now)
    return replace(standing, key=key)


def bar(run: Subject, signed: Signed, *, keyring: Keyring, now: datetime) -> str | None:
    """Say why a statement changes nothing, whoever trusts its key; None: nothing is against it.

    Of a reproduction this says only what does not take the other run, and of what was seen what
    does not take the other statement.
    """
    chain, signers = keyring.chain(run.keyid), keyring.chain(signed.keyid)
    ended = run.ended
    if not ended - FUTURE_SLACK <= signed.made <= now + FUTURE_SLACK:
        return f"it is dated {'in the future' if signed.made > now else 'before the run'}"
    match signed.said:
        case Withdrawn() | Superseded() if signed.keyid not in chain:
            return "only the run's own key, or one that follows it, takes a run back"
        case Superseded(by=by) if by == run.run_id:
            return "it names the run itself"
        case Reproduced() | Countersigned() | Recomputed() | Seen() if signers[-1] == chain[-1]:
            return "it is the publisher's own word"
        case Countersigned() if signed.made < ended:
            return "it is dated before the run ended"
    return None


def _sights(
    run: Subject, statements: Sequence[Signed], keyring: Keyring, now: datetime
) -> Iterator[Told]:
    """Yield what was seen of the others. Nothing is seen in its turn."""
    others = {each.digest: each for each in _others(statements)}
    for signed in statements:
        if isinstance(signed.said, Seen):
            key = keyring.of_statement(signed.keyid, made=signed.made, seen=None, now=now)
            why_not = bar(run, signed, keyring=keyring, now=now) or _untrusted(signed, key)
            other = others.get(signed.said.statement)
            yield Told(signed, key, why_not or _unseen(signed, other, keyring))


def _by_date(signed: Signed) -> tuple[datetime, str]:
    return signed.made, signed.digest


def _others(statements: Iterable[Signed]) -> Iterator[Signed]:
    return (each for each in statements if not isinstance(each.said, Seen))


def _unseen(signed: Signed, other: Signed | None, keyring: Keyring) -> str | None:
    if other is None:
        return "it names no other statement that is here"
    if keyring.chain(signed.keyid)[-1] == keyring.chain(other.keyid)[-1]:
        return "it is its signer's own word"
    if signed.made < other.made:
        return "it is dated before the statement that it names"
    return None


def _earliest(sights: Iterable[Told]) -> dict[str, datetime]:
    """Return when statements were first seen, by their digests."""
    seen: dict[str, datetime] = {}
    for told in sights:
        if told.why_not is None and isinstance(told.signed.said, Seen):
            named, made = told.signed.said.statement, told.signed.made
            seen[named] = min(made, seen.get(named, made))
    return seen


def _untrusted(signed: Signed, key: Standing) -> str | None:
    takes_back = isinstance(signed.said, Withdrawn | Superseded)
    # Only who signed a run takes it back without being registered: keys that follow are.
    if key.trusted or (takes_back and key.state in {"unknown", "expired"}):
        return None
    return {
        "unknown": "its key is not registered",
        "revoked": "its key was revoked, and nobody else saw it before that",
    }.get(key.state, "nobody else saw it while its key counted")


def _settled(told: Sequence[Told], keyring: Keyring) -> list[Told]:
    """Let the disputes go that were settled, in whatever order both stand."""
    disputes = {
        each.signed.digest: each.signed.keyid
        for each in told
        if each.why_not is None and isinstance(each.signed.said, Disputed)
    }
    why_not: dict[str, str] = {}
    for each in told:
        said = each.signed.said
        if each.why_not is not None or not isinstance(said, Settled):
            continue
        by = disputes.get(said.dispute)
        if by is None or each.signed.keyid not in keyring.chain(by):
            why_not[each.signed.digest] = "it names no dispute of its signer that counts"
        else:
            why_not.setdefault(said.dispute, f"its signer settled it: {said.reason}")
    return [replace(each, why_not=why_not.get(each.signed.digest, each.why_not)) for each in told]


def _counted(told: Sequence[Told], why_not: Mapping[str, str]) -> list[Told]:
    """Let the reproductions go for which there is another that counts."""
    return [
        replace(each, why_not=why, ratio=None)
        if (why := why_not.get(each.signed.digest)) is not None
        else each
        for each in told
    ]


def _reproduction(
    run: Subject, other: Subject, said: Reproduced, compared: Compared
) -> tuple[Ratio | None, str | None]:
    """Return new / original, or why a run does not count as a reproduction of another."""
    if doubts := "; ".join(_doubts(run, other)):
        return None, doubts
    if compared.outcome != said.outcome:
        return None, f"it says {said.outcome}, and comes to {compared.outcome}: {compared.text}"
    return compared.ratio, None


def _rerun(other: Subject, compared: Compared) -> Rerun:
    witness = other.standing.witness
    return Rerun(
        run_id=other.run_id,
        publisher=other.standing.publisher,
        boards=gpu_uuids(other.evidence),
        outcome=compared.outcome,
        launches=compared.launches[1],
        ended=other.ended,
        witnessed=None if witness is None else witness.signed.made,
    )


def _doubts(run: Subject, other: Subject) -> Iterator[str]:
    name, standing = f"run {other.run_id[:12]}", other.standing
    if run.run.simulated or other.run.simulated:
        yield "nothing was measured: the engine was simulated"
    if not standing.key.trusted:
        yield f"the key of {name} {standing.key.text}"
    if standing.retracted:
        yield f"{name} was taken back"
    if standing.disputed:
        yield f"{name} is disputed"
    yield from why_not_independent(run, other)
