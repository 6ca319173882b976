"""Which runs were committed to before, who saw it, and which commitments have no run. Pure.

A commitment belongs to the run whose journal begins with the line that it tells, under the same
key. Its time is witnessed where a trusted key of somebody else, which counts to this day,
countersigned its digest; the earliest counts. One without a run is shown by its number: a run that
was left out, or is not done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.trials import Evidence
from tokenwatt_site.trust.commitment import Committed, check_belongs
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.plausibility import FUTURE_SLACK
from tokenwatt_site.trust.registration import moment
from tokenwatt_site.trust.statement import Signed

WITNESS_SLACK = timedelta(minutes=5)
"""How far a witness's clock may be behind the publisher's; Kerberos allows as much (RFC 4120, 8.2).

There is little time until the first trial, so a clock that is a little slow must not cost it the
witness. It gains nobody anything: any time before the first trial shows as much.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """A commitment where it lies, and what is stated about it."""

    path: Path
    committed: Committed
    statements: tuple[Signed, ...] = ()


@dataclass(frozen=True, slots=True)
class Witness:
    """Who countersigned a commitment, and when, by the witness's own word."""

    name: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Promised:
    """What a run's key committed to.

    Attributes:
        commitment: to this run; None: there is none.
        witness: of that.
        first_trial: when the run's first trial began, by its journal; None: none did.
        handed_out: how many runs the key committed to, as far as they are here.
        kept: how many of those runs are here.
    """

    commitment: Found | None = None
    witness: Witness | None = None
    first_trial: datetime | None = None
    handed_out: int = 0
    kept: int = 0

    @property
    def before(self) -> bool:
        """Whether somebody else saw the commitment before the first trial began.

        When that was is told by the publisher's clock.
        """
        if self.witness is None:
            return False
        return self.first_trial is None or self.witness.at < self.first_trial


NOTHING = Promised()


class Subject(Protocol):
    """A run that passed every check; `trust.verify` makes them."""

    @property
    def keyid(self) -> str: ...

    @property
    def opening(self) -> str: ...

    @property
    def first_trial(self) -> datetime | None: ...

    @property
    def evidence(self) -> Evidence: ...


def weigh(
    runs: Sequence[Subject], found: Sequence[Found], *, keyring: Keyring, now: datetime
) -> tuple[tuple[Promised, ...], tuple[tuple[Path, InputError], ...]]:
    """Return what was promised of each run, and the commitments that tell of a run what is not so.

    Args:
        runs: all that are here.
        found: all commitments that are here.
        keyring: the registered keys.
        now: the clock of whoever asks.
    """
    openings = {(run.keyid, run.opening): run for run in runs}
    refused: list[tuple[Path, InputError]] = []
    promises: dict[tuple[str, str], list[Found]] = {}
    for each in found:
        key = (each.committed.keyid, each.committed.commitment.journal_head)
        if (run := openings.get(key)) is not None:
            try:
                check_belongs(each.committed, run.evidence.journal[0], run.keyid)
            except InputError as error:
                refused.append((each.path, _in_file(error, each.path)))
                continue
        promises.setdefault(key, []).append(each)
    promised = tuple(_promised(run, promises, openings, keyring=keyring, now=now) for run in runs)
    return promised, tuple(refused)


def bar(committed: Committed, signed: Signed, *, keyring: Keyring, now: datetime) -> str | None:
    """Say why a statement is no witness of a commitment, whoever trusts its key; None: it is one.

    What is dated before the commitment cannot have seen it, but for WITNESS_SLACK.
    """
    if signed.kind != "countersigned":
        return "of a commitment only the time is stated"
    if keyring.chain(signed.keyid)[-1] == keyring.chain(committed.keyid)[-1]:
        return "it is the publisher's own word"
    if signed.made > now + FUTURE_SLACK:
        return "it is dated in the future"
    if signed.made + WITNESS_SLACK < moment(committed.commitment.at):
        return "it is dated before the commitment"
    return None


def _promised(
    run: Subject,
    promises: Mapping[tuple[str, str], Sequence[Found]],
    openings: Mapping[tuple[str, str], Subject],
    *,
    keyring: Keyring,
    now: datetime,
) -> Promised:
    own = [key for key in promises if key[0] == run.keyid]
    told = Promised(
        first_trial=run.first_trial,
        handed_out=len(own),
        kept=sum(key in openings for key in own),
    )
    best: tuple[Found, Witness | None] | None = None
    for each in promises.get((run.keyid, run.opening), ()):
        witness = _witness(each, keyring, now)
        if best is None or _is_earlier(witness, best[1]):
            best = each, witness
    if best is None:
        return told
    return Promised(*best, told.first_trial, told.handed_out, told.kept)


def _is_earlier(one: Witness | None, other: Witness | None) -> bool:
    return one is not None and (other is None or one.at < other.at)


def _witness(found: Found, keyring: Keyring, now: datetime) -> Witness | None:
    """Return the earliest countersignature by a trusted key of somebody else, that counts now."""
    seen = []
    for signed in found.statements:
        if bar(found.committed, signed, keyring=keyring, now=now) is not None:
            continue
        key = keyring.of_statement(signed.keyid, made=signed.made, seen=None, now=now)
        if key.trusted and key.name is not None:
            seen.append(Witness(key.name, signed.made))
    return min(seen, key=lambda witness: witness.at, default=None)


def _in_file(error: InputError, path: Path) -> InputError:
    return InputError(
        *(
            Problem(p.what, file=str(path), field=p.field, found=p.found, expected=p.expected)
            for p in error.problems
        )
    )
