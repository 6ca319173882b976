"""The own signing key and the registered ones: make, register, list, replace, revoke."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tokenwatt_site.commands.output import not_written
from tokenwatt_site.errors import EnvironmentProblem, Problem, UsageError
from tokenwatt_site.files import put, put_new
from tokenwatt_site.trust.keyring import (
    KEY_FILE,
    KEY_FOLDER_VARIABLE,
    NEXT_KEY_FILE,
    Keyring,
    key_folder,
    own_id,
    own_key,
    replace_own_key,
)
from tokenwatt_site.trust.registration import (
    Registration,
    file_name,
    register,
    revocation_bytes,
    revocation_name,
    to_bytes,
    with_revocation,
    with_successor,
)
from tokenwatt_site.trust.registration import revoke as make_revocation

_ALONE = " (which does not say so, so it changes nothing)"
"""After the other key, where one of both alone tells of a succession."""


@dataclass(frozen=True, slots=True)
class Own:
    """The id of the own key, and where it is."""

    keyid: str
    path: Path


@dataclass(frozen=True, slots=True)
class Rotated:
    """The registrations that were written, the old key's first, and where the old key is kept."""

    written: tuple[Path, Path]
    kept: Path


def new() -> Own:
    """Make the own key where there is none.

    Raises:
        UsageError: there is one.
        EnvironmentProblem: it cannot be kept there.
    """
    place = key_folder(os.environ)
    path = place / KEY_FILE
    if _is_there(path):
        raise UsageError(
            Problem(
                "is there already, and a key is never overwritten",
                file=str(path),
                remedy="`tokenwatt-site keys rotate` replaces a registered key and keeps the old"
                " one; else move it away.",
            )
        )
    return Own(own_id(own_key(place)), path)


def add(
    name: str,
    folder: Path,
    *,
    organisation: str | None = None,
    until: str | None = None,
    follows: str | None = None,
) -> Path:
    """Register the own key in a folder of registered keys, signed with itself.

    Args:
        name: whose key it is; shown beside its runs.
        folder: where the registered keys are.
        organisation: to whom the owner belongs.
        until: the last day (2027-12-31, in UTC) on which it counts; None: for good.
        follows: the registered key that it takes over from, which has to name it too.

    Raises:
        UsageError: the name is not fit to be shown, the day is none or gone by, the key is
            registered already, or the one that it follows is not.
        InputError: a registration is not valid.
        EnvironmentProblem: the folder cannot be written.
    """
    key = own_key(key_folder(os.environ))
    path = folder / file_name(own_id(key))
    if os.path.lexists(path):
        remedy = "To register it otherwise, take that file out."
        raise UsageError(Problem("this key is registered already", file=str(path), remedy=remedy))
    ends = _end_of(until)
    if follows is not None:
        _registration_of(follows, Keyring.load(folder), folder)
    # No beginning: runs that it signed before it was registered are its owner's too.
    registration = register(
        key, name=name, organisation=organisation, not_after=ends, follows=follows
    )
    _write(path, to_bytes(registration), put_new)
    return path


def listed(folder: Path) -> list[str]:
    """Tell the own key and, a line each, the registered ones as they stand today.

    Raises:
        InputError: a registration is not valid.
        EnvironmentProblem: the own key, or its folder, cannot be read.
    """
    place, keyring, now = key_folder(os.environ), Keyring.load(folder), datetime.now(UTC)
    lines = [_own_line(place, keyring)]
    if (waiting := _waiting(place)) is not None:
        lines.append(
            f"a rotation to {waiting} is not finished; `tokenwatt-site keys rotate` goes on with it"
        )
    for key in sorted(keyring.keys.values(), key=lambda key: (key.name, key.keyid)):
        state = keyring.state(key.keyid, ended=now, witnessed=None, now=now).state
        lines.append(f"{key.keyid}  {state:<7}  {_described(key, keyring)}")
    return lines


def rotate(folder: Path, *, until: str | None = None) -> Rotated:
    """Put a new key in place of the own one, registered under the same name as its successor.

    Broken off at any point, it has lost nothing, and goes on when it is called again.

    Args:
        folder: where the registered keys are.
        until: the last day on which the new key counts; None: for good.

    Raises:
        UsageError: there is no own key, it is not registered, it was replaced before, or it is
            revoked; or the day is none or gone by.
        InputError: a registration is not valid.
        EnvironmentProblem: a folder cannot be written.
    """
    place, ends = key_folder(os.environ), _end_of(until)
    old = _existing(place)
    keyring = Keyring.load(folder)
    registration = _registration_of(own_id(old), keyring, folder)
    _expect_replaceable(registration, place)
    following = own_key(place, NEXT_KEY_FILE)
    paths = (folder / file_name(own_id(old)), folder / file_name(own_id(following)))
    # After each step both folders are valid, and what was done before a crash is not done again.
    if own_id(following) not in keyring.keys:
        successor = register(
            following,
            name=registration.name,
            organisation=registration.organisation,
            not_before=datetime.now(UTC),
            not_after=ends,
            follows=registration.keyid,
        )
        keyring = keyring.including(successor)
        _write(paths[1], to_bytes(successor), put_new)
    if registration.successor is None:
        registration = with_successor(registration, own_id(following), old)
        keyring.including(registration)
        _write(paths[0], to_bytes(registration), put)
    return Rotated(paths, replace_own_key(place))


def revoke(keyid: str | None, reason: str, folder: Path) -> Path:
    """Revoke a registered key, signed with the own key, which is that key or follows it.

    The revocation is a file beside the registration, which stays as it is.

    Args:
        keyid: the key; None: the own one.
        reason: shown beside the runs that it signed.
        folder: where the registered keys are.

    Raises:
        UsageError: there is no own key, the key is not registered, is revoked already or is not
            the own key's to revoke, or the reason is not fit to be shown.
        InputError: a registration is not valid.
        EnvironmentProblem: the folder cannot be written.
    """
    own = _existing(key_folder(os.environ))
    keyring = Keyring.load(folder)
    registration = _registration_of(keyid or own_id(own), keyring, folder)
    path = folder / revocation_name(registration.keyid)
    if registration.revoked is not None:
        raise UsageError(
            Problem("is revoked already", file=str(path), found=registration.revoked.at)
        )
    mine = keyring.keys.get(own_id(own))
    if mine is not None and mine.revoked is not None:
        raise UsageError(
            Problem(
                "the own key is revoked itself, and revokes no other",
                file=str(folder / revocation_name(mine.keyid)),
                found=mine.revoked.at,
            )
        )
    may = keyring.chain(registration.keyid)
    if own_id(own) not in may:
        raise UsageError(
            Problem(
                "the own key neither is this key nor follows it, so it cannot revoke it",
                file=str(folder / file_name(registration.keyid)),
                found=own_id(own),
                expected=" or ".join(may),
                remedy="Run this where one of these is the own key. Where all are lost, whoever"
                " publishes the site removes the registration.",
            )
        )
    revoked = make_revocation(
        registration,
        at=datetime.now(UTC),
        reason=reason,
        private_key=own,
        revocations=keyring.revocations_by(registration.keyid),
    )
    keyring.including(with_revocation(registration, revoked))
    _write(path, revocation_bytes(revoked), put_new)
    return path


def _end_of(day: str | None) -> datetime | None:
    if day is None:
        return None
    try:
        ends = datetime.combine(date.fromisoformat(day), time(23, 59, 59), UTC)
    except ValueError:
        raise UsageError(
            Problem("is no day", field="--until", found=day, expected="a day such as 2027-12-31")
        ) from None
    if ends <= datetime.now(UTC):
        raise UsageError(
            Problem("is gone by", field="--until", found=day, expected="today or a day to come")
        )
    return ends


def _existing(place: Path) -> Ed25519PrivateKey:
    path = place / KEY_FILE
    if not _is_there(path):
        raise UsageError(
            Problem(
                "there is no signing key here",
                file=str(path),
                remedy="`tokenwatt-site keys new` makes one.",
            )
        )
    return own_key(place)


def _is_there(path: Path) -> bool:
    """Tell whether there is a key; of a folder that cannot be looked into nobody knows.

    Raises:
        EnvironmentProblem: its folder is none, or may not be read.
    """
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise EnvironmentProblem(
            Problem(
                f"signing keys cannot be looked for here ({error.strerror})",
                file=str(path.parent),
                expected="a folder of yours, or none yet",
                remedy=f"Name another in {KEY_FOLDER_VARIABLE}.",
            )
        ) from error
    return True


def _waiting(place: Path) -> str | None:
    """Return the key of a rotation that was broken off, None where there is none."""
    if not _is_there(place / NEXT_KEY_FILE):
        return None
    return own_id(own_key(place, NEXT_KEY_FILE))


def _registration_of(keyid: str, keyring: Keyring, folder: Path) -> Registration:
    if (registration := keyring.keys.get(keyid)) is None:
        raise UsageError(
            Problem(
                "is not registered",
                file=str(folder),
                found=keyid,
                remedy="`tokenwatt-site keys list` shows which are; `keys add NAME` registers the"
                " own one.",
            )
        )
    return registration


def _expect_replaceable(registration: Registration, place: Path) -> None:
    if registration.successor is not None:
        if registration.successor != _waiting(place):
            raise UsageError(
                Problem(
                    "was replaced already, by a key that is not here",
                    file=str(place / KEY_FILE),
                    found=registration.successor,
                    remedy=f"Put the {KEY_FILE} of that key in its place.",
                )
            )
    elif registration.revoked is not None:
        # Whoever stole it could name a successor too.
        raise UsageError(
            Problem(
                "is revoked, so it names no successor any more",
                file=str(place / KEY_FILE),
                found=registration.keyid,
                remedy="Move it away; then `tokenwatt-site keys new` and `keys add NAME`.",
            )
        )


def _own_line(place: Path, keyring: Keyring) -> str:
    if not _is_there(place / KEY_FILE):
        return f"own key: none in {place}; `tokenwatt-site keys new` makes one"
    keyid = own_id(own_key(place))
    registration = keyring.keys.get(keyid)
    known = "not registered here" if registration is None else f"registered as {registration.owner}"
    return f"own key: {keyid} in {place}, {known}"


def _described(key: Registration, keyring: Keyring) -> str:
    parts = [key.owner]
    if key.not_before is not None:
        parts.append(f"from {key.not_before}")
    if key.not_after is not None:
        parts.append(f"until {key.not_after}")
    if key.successor is not None:
        agreed = key.successor in keyring.successors(key.keyid)
        parts.append(f"followed by {key.successor}{'' if agreed else _ALONE}")
    if key.follows is not None:
        agreed = key.keyid in keyring.successors(key.follows)
        parts.append(f"follows {key.follows}{'' if agreed else _ALONE}")
    if key.revoked is not None:
        parts.append(f"revoked at {key.revoked.at} ({key.revoked.reason})")
    return ", ".join(parts)


def _write(path: Path, data: bytes, write: Callable[[Path, bytes], None]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, data)
    except OSError as error:
        raise not_written(path, error) from error
