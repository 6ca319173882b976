"""`attest`: sign a statement about a run, and put it beside the run file."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias

from tokenwatt_site import __version__
from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.commands.output import not_written
from tokenwatt_site.commands.verify import KEYS_FOLDER, committed
from tokenwatt_site.errors import Problem, UsageError
from tokenwatt_site.measure.clock import utc_text
from tokenwatt_site.trust import beside, promises, statement
from tokenwatt_site.trust.keyring import Keyring, key_folder, own_id, own_key
from tokenwatt_site.trust.predicates import Seen, Settled
from tokenwatt_site.trust.standing import bar
from tokenwatt_site.trust.verify import ValidatedRun, verify_run

Attestable: TypeAlias = Literal[
    "recomputed", "countersigned", "disputed", "settled", "withdrawn", "superseded", "seen"
]
"""Kinds that are stated by hand; `reproduce` states what it measured itself."""

_OPTIONS: dict[Attestable, frozenset[str]] = {
    "recomputed": frozenset(),
    "countersigned": frozenset(),
    "disputed": frozenset({"reason", "url"}),
    "settled": frozenset({"reason"}),
    "withdrawn": frozenset({"reason"}),
    "superseded": frozenset({"reason", "by"}),
    "seen": frozenset(),
}


_NOTHING: dict[Attestable, str] = {
    "settled": "it has no dispute here that is not settled",
    "seen": "there is no statement of others here that it has not seen yet",
}
"""Why nothing is stated where there is nothing to name."""


@dataclass(frozen=True, slots=True)
class Attested:
    """Where the statement is, and why it does not count as keys are registered here, or None."""

    path: Path
    note: str | None


def attest(
    kind: Attestable,
    run_path: Path,
    *,
    reason: str | None = None,
    by: str | None = None,
    url: str | None = None,
    keys: Path = KEYS_FOLDER,
) -> Attested:
    """Verify a run, state something about it with the own key, and append that to its statements.

    Of several disputes by the own key, or one before it, each is settled by a statement of its own.
    So is each statement seen that is by another publisher, under a key that counts.

    Args:
        kind: what is stated.
        run_path: the run file; its evidence lies beside it. All checks have to pass, whatever is
            stated. Or a commitment, which can be countersigned.
        reason: why it is disputed, settled, withdrawn or superseded.
        by: the run that supersedes it: its id, or its file, which is verified too.
        url: where a dispute is discussed.
        keys: folder of registered keys.

    Raises:
        UsageError: an option that the kind does not have or lacks; or the statement would change
            nothing, whoever trusts the own key.
        VerificationError: a run does not prove what it says.
        InputError: the reason is not fit to be published, this was stated before, or the file of
            statements takes no more of this key; it is as it was.
        EnvironmentProblem: the own key or the file cannot be read or written.
    """
    _check_options(kind, {"reason": reason, "by": by, "url": url})
    keyring, now = Keyring.load(keys), datetime.now(UTC)
    own = own_key(key_folder(os.environ))
    keyid = own_id(own)
    promise = committed(run_path)
    if promise is not None:
        _expect_countersigned(kind, run_path)
        lines = [statement.sign(kind, promise.digest, {}, own, utc_text(now))]
        signed = statement.parse(lines[0], str(run_path))
        why = promises.bar(promise, signed, keyring=keyring, now=now)
    else:
        run = verify_run(run_path, root=run_path.parent, keyring=keyring)
        by = _run_id(by, keyring)
        said: list[dict[str, JsonValue]]
        if kind == "settled":
            said = [{"dispute": d, "reason": reason} for d in _disputes(run, keyid, keyring)]
        elif kind == "seen":
            said = [{"statement": digest} for digest in _unseen(run, keyid, keyring)]
        else:
            said = [_said(kind, run, reason=reason, by=by, url=url)]
        lines = [statement.sign(kind, run.run_id, each, own, utc_text(now)) for each in said]
        why = _bar(run, lines, keyring=keyring, now=now) if lines else _NOTHING[kind]
    if why is not None:
        raise UsageError(
            Problem(f"would change nothing, since {why}", field=kind, found=f"key {keyid}")
        )
    path = beside.path_beside(run_path)
    try:
        for line in lines:
            beside.append(path, line)
    except OSError as error:
        raise not_written(path, error) from error
    key = keyring.state(keyid, ended=now, witnessed=None, now=now)
    note = None if key.trusted else f"it counts only where its key does; here that key {key.text}"
    return Attested(path, note)


def _check_options(kind: Attestable, given: dict[str, str | None]) -> None:
    wanted = _OPTIONS[kind]
    for name, value in given.items():
        if value is not None and name not in wanted:
            raise UsageError(Problem(f"is not for {kind}", field=f"--{name}"))
        if value is None and name in wanted - {"url"}:
            raise UsageError(Problem(f"is needed for {kind}", field=f"--{name}"))


def _expect_countersigned(kind: Attestable, path: Path) -> None:
    if kind != "countersigned":
        raise UsageError(
            Problem(
                "is a commitment, of which only the time is stated",
                file=str(path),
                found=kind,
                expected="countersigned",
            )
        )


def _disputes(run: ValidatedRun, keyid: str, keyring: Keyring) -> list[str]:
    """Return the disputes by a key, or by one that it follows, that are not settled yet."""
    told = [each.signed for each in run.standing.told]
    own = [signed for signed in told if keyid in keyring.chain(signed.keyid)]
    settled = {signed.said.dispute for signed in own if isinstance(signed.said, Settled)}
    return [s.digest for s in own if s.kind == "disputed" and s.digest not in settled]


def _unseen(run: ValidatedRun, keyid: str, keyring: Keyring) -> list[str]:
    """Return the statements of others whose keys count, which the own key did not see yet."""
    publisher = keyring.chain(keyid)[-1]
    told = [(each, keyring.chain(each.signed.keyid)[-1]) for each in run.standing.told]
    seen = {
        each.signed.said.statement
        for each, signer in told
        if signer == publisher and isinstance(each.signed.said, Seen)
    }
    return [
        each.signed.digest
        for each, signer in told
        if each.key.trusted
        and signer != publisher
        and each.signed.kind != "seen"
        and each.signed.digest not in seen
    ]


def _bar(run: ValidatedRun, lines: list[bytes], *, keyring: Keyring, now: datetime) -> str | None:
    signed = statement.parse(lines[0], str(run.path))
    return bar(run, signed, keyring=keyring, now=now)


def _said(
    kind: Attestable, run: ValidatedRun, *, reason: str | None, by: str | None, url: str | None
) -> dict[str, JsonValue]:
    if kind == "recomputed":
        return {"level": run.level, "numbers": run.numbers, "tool_version": __version__}
    told = {"reason": reason, "by": by, "url": url}
    return {name: told[name] for name in sorted(_OPTIONS[kind])}


def _run_id(by: str | None, keyring: Keyring) -> str | None:
    if by is None or re.fullmatch(r"[0-9a-f]{64}", by):
        return by
    path = Path(by)
    return verify_run(path, root=path.parent, keyring=keyring).run_id
