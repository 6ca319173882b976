"""Our own signing key, and the keys whose owners the site knows by name.

A key is never trusted because a run carries it: a run signed with a key that is not registered is
valid, and its key is called unknown.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tokenwatt_site.canonical import read_file
from tokenwatt_site.errors import EnvironmentProblem, InputError, Problem
from tokenwatt_site.files import put_new
from tokenwatt_site.trust.registration import (
    MAX_REGISTRATION_BYTES,
    Registration,
    Revocation,
    file_name,
    is_revocation_name,
    moment,
    parse,
    parse_revocation,
    revocation_name,
    with_revocation,
)
from tokenwatt_site.trust.signature import key_id
from tokenwatt_site.trust.succession import chain_problems, successors

KEY_FILE = "ed25519.key"
NEXT_KEY_FILE = "ed25519.next.key"
"""The key that a rotation is about to put in place of the own one."""
KEY_FOLDER_VARIABLE = "TOKENWATT_KEY_DIR"
_MAX_KEY_BYTES = 4096

KeyState: TypeAlias = Literal["known", "unknown", "expired", "revoked", "revoked later"]


@dataclass(frozen=True, slots=True)
class Standing:
    """What a key counts for, as the signer of one run.

    `text` goes on after "the key". `name` and `organisation` are as registered; None: there is
    none, and of an unknown key neither.
    """

    state: KeyState
    text: str
    name: str | None
    organisation: str | None

    @property
    def trusted(self) -> bool:
        """Whether what the key signed counts; "revoked later" is shown, and counts as known."""
        return self.state in {"known", "revoked later"}


@dataclass(frozen=True, slots=True)
class Keyring:
    """The registered keys by key id."""

    keys: Mapping[str, Registration] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> Keyring:
        """Read every file of `folder`; a folder that is not there registers no key.

        Raises:
            InputError: a file stands where the folder should be, or all that is wrong with its
                files: one is no valid registration or revocation or not called as its key, a
                successor or a key that is revoked is not registered, keys follow each other in a
                circle, or a revocation is not signed by one who may.
        """
        keys: dict[str, Registration] = {}
        revoked: list[Revocation] = []
        problems: list[Problem] = []
        if folder.exists() and not folder.is_dir():
            raise InputError(Problem("is no folder of registered keys", file=str(folder)))
        paths = sorted(folder.glob("[!.]*"))
        for path in paths:
            try:
                if is_revocation_name(path.name):
                    revoked.append(_revocation(path))
                else:
                    key = _registered(path)
                    keys[key.keyid] = key
            except InputError as error:
                problems += error.problems
        for each in revoked:
            if (found := keys.get(each.keyid)) is not None:
                keys[each.keyid] = with_revocation(found, each)
        # A key whose file is bad is in the list for that, and is not called missing as well.
        problems += (
            replace(problem, file=str(folder / str(problem.file)))
            for problem in chain_problems(keys, {path.name for path in paths})
        )
        if problems:
            raise InputError(*problems)
        return cls(MappingProxyType(keys))

    def including(self, registration: Registration) -> Keyring:
        """Return the keyring with this registration, in place of an earlier one of the key.

        Raises:
            InputError: all that would then be wrong between the keys.
        """
        keys = {**self.keys, registration.keyid: registration}
        if problems := list(chain_problems(keys, set(map(file_name, keys)))):
            raise InputError(*problems)
        return Keyring(MappingProxyType(keys))

    def successors(self, keyid: str) -> tuple[str, ...]:
        """Return the keys that follow a key, the next one first."""
        return successors(self.keys, keyid)

    def chain(self, keyid: str) -> tuple[str, ...]:
        """Return a key and those that follow it: of one publisher, for whom the last one stands."""
        return keyid, *self.successors(keyid)

    def revocations_by(self, keyid: str) -> tuple[Revocation, ...]:
        """Return the revocations of other keys that a key signed."""
        found = (key.revoked for key in self.keys.values() if key.keyid != keyid)
        return tuple(each for each in found if each is not None and each.by == keyid)

    def state(
        self, keyid: str, *, ended: datetime, witnessed: datetime | None, now: datetime
    ) -> Standing:
        """Say what the key counts for that signed a run.

        Whoever holds a key writes any date into a run: only a witnessed time shows that a run was
        there before its key ended or was revoked.

        Args:
            keyid: the key that signed it.
            ended: when the run says that it ended.
            witnessed: the time at which another key vouches that the run was there; None: none
                does.
            now: the clock of whoever asks.
        """
        key = self.keys.get(keyid)
        if key is None:
            return Standing("unknown", "is not registered", None, None)
        state, text = _state(key, ended=ended, witnessed=witnessed, now=now)
        return Standing(state, text, key.name, key.organisation)

    def of_statement(
        self, keyid: str, *, made: datetime, seen: datetime | None, now: datetime
    ) -> Standing:
        """Say what the key counts for that stated something, by its own word at `made`.

        It must have begun then and count to this day, or have counted when another saw the
        statement (`seen`): of one that has ended nobody knows when it signed.
        """
        return self.state(keyid, ended=made, witnessed=seen, now=max(made, now))


def key_folder(environment: Mapping[str, str]) -> Path:
    """Return where the own key lives.

    `$TOKENWATT_KEY_DIR` where set (the demo and the tests keep theirs apart), else
    `tokenwatt-site` in `$XDG_CONFIG_HOME`, else in `~/.config`.
    """
    if own := environment.get(KEY_FOLDER_VARIABLE):
        return Path(own)
    configuration = environment.get("XDG_CONFIG_HOME", "")
    # The XDG base directory specification has relative paths ignored.
    base = Path(configuration) if configuration.startswith("/") else Path.home() / ".config"
    return base / "tokenwatt-site"


def own_key(folder: Path, file: str = KEY_FILE) -> Ed25519PrivateKey:
    """Return the key in `folder`, made there at first use (folder mode 700, file mode 600).

    Raises:
        EnvironmentProblem: the folder cannot be written, others can read the key or change the
            folder, or the file is no unencrypted Ed25519 key in PEM.
    """
    path = folder / file
    try:
        with _kept_at(path):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _refuse_open_to_others(folder, 0o022, "others can change this folder", "700")
            if not os.path.lexists(path):
                _put_key(path, Ed25519PrivateKey.generate())
            _refuse_open_to_others(path, 0o077, "others can read this signing key", "600")
            data = read_file(path, limit=_MAX_KEY_BYTES)
    except InputError as error:
        raise EnvironmentProblem(*error.problems) from error
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise EnvironmentProblem(_not_a_key(path)) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise EnvironmentProblem(_not_a_key(path))
    return key


def signing_key(folder: Path, keyid: str) -> Ed25519PrivateKey:
    """Return the key that began a measurement: the own one, or one that a rotation kept beside it.

    Raises:
        EnvironmentProblem: as of `own_key`; or neither is that key.
    """
    own = own_key(folder)
    if (found := own_id(own)) == keyid:
        return own
    kept = folder / _kept_name(keyid)
    if os.path.lexists(kept) and own_id(earlier := own_key(folder, kept.name)) == keyid:
        return earlier
    raise EnvironmentProblem(
        Problem(
            "has not the key under which the measurement began, and only that signs it",
            file=str(folder),
            found=found,
            expected=keyid,
            remedy=f"Name the folder of that key in {KEY_FOLDER_VARIABLE}, or measure anew.",
        )
    )


def own_id(key: Ed25519PrivateKey) -> str:
    """Return the id of a signing key."""
    return key_id(key.public_key().public_bytes_raw())


def replace_own_key(folder: Path) -> Path:
    """Put the next key in place of the own one, which is kept beside under its id.

    A crash leaves the own key or the next one in its place, and neither is ever lost.

    Returns:
        The file in which the key that was replaced is kept.

    Raises:
        EnvironmentProblem: as of `own_key`; or another key stands where this one is to be kept.
    """
    old = own_key(folder)
    kept = folder / _kept_name(own_id(old))
    with _kept_at(kept):
        _put_key(kept, old)
    if own_id(own_key(folder, kept.name)) != own_id(old):
        raise EnvironmentProblem(
            Problem("is another key than its name says", file=str(kept), remedy="Move it away.")
        )
    with _kept_at(folder / KEY_FILE):
        (folder / NEXT_KEY_FILE).replace(folder / KEY_FILE)
    return kept


def _registered(path: Path) -> Registration:
    if path.suffix != ".json":
        raise InputError(
            Problem(
                "is no registered key",
                file=str(path),
                expected="files in .json alone",
                remedy="`tokenwatt-site keys add NAME` writes one.",
            )
        )
    key = parse(read_file(path, limit=MAX_REGISTRATION_BYTES), str(path))
    if path.name != (expected := file_name(key.keyid)):
        raise InputError(
            Problem("is not called as the key that it registers", file=str(path), expected=expected)
        )
    return key


def _revocation(path: Path) -> Revocation:
    revoked = parse_revocation(read_file(path, limit=MAX_REGISTRATION_BYTES), str(path))
    if path.name != (expected := revocation_name(revoked.keyid)):
        raise InputError(
            Problem("is not called as the key that it revokes", file=str(path), expected=expected)
        )
    registration = path.with_name(file_name(revoked.keyid))
    if not os.path.lexists(registration):
        raise InputError(
            Problem(
                "revokes a key that is not registered",
                file=str(path),
                expected=f"{registration.name} beside it, as it was when it was revoked",
            )
        )
    return revoked


def _state(
    key: Registration, *, ended: datetime, witnessed: datetime | None, now: datetime
) -> tuple[KeyState, str]:
    whose, revoked = f"is registered as {key.owner}", key.revoked
    told = "" if revoked is None else f" and was revoked at {revoked.at} ({revoked.reason})"
    begins = None if key.not_before is None else moment(key.not_before)
    ends = None if key.not_after is None else moment(key.not_after)
    if revoked is not None and (witnessed is None or witnessed >= moment(revoked.at)):
        return "revoked", whose + told
    witnessed_within = (
        witnessed is not None
        and (begins is None or begins <= witnessed)
        and (ends is None or witnessed <= ends)
    )
    if not witnessed_within:
        if begins is not None and ended < begins:
            return "expired", f"{whose} only from {key.not_before} on, after the run ended"
        if ends is not None and ends < now:
            return "expired", f"{whose} only until {key.not_after}, with no witness before that"
    if revoked is not None:
        return "revoked later", f"{whose}{told}, after the run was witnessed"
    return "known", whose


def _kept_name(keyid: str) -> str:
    return f"{keyid.replace(':', '-')}.key"


@contextlib.contextmanager
def _kept_at(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EnvironmentProblem(
            Problem(
                f"the signing key cannot be kept here ({error.strerror})",
                file=str(path),
                remedy=f"Name a folder of yours in {KEY_FOLDER_VARIABLE}.",
            )
        ) from error


def _put_key(path: Path, key: Ed25519PrivateKey) -> None:
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # Of two processes that start at once, both end with the first one's key.
    with contextlib.suppress(FileExistsError):
        put_new(path, pem, mode=0o600)


def _refuse_open_to_others(path: Path, bits: int, what: str, mode: str) -> None:
    if (found := stat.S_IMODE(path.lstat().st_mode)) & bits:
        raise EnvironmentProblem(
            Problem(
                what,
                file=str(path),
                found=f"mode {found:o}",
                expected=f"mode {mode}",
                remedy=f"Run: chmod {mode} {path}",
            )
        )


def _not_a_key(path: Path) -> Problem:
    return Problem(
        "is not an Ed25519 private key in unencrypted PEM (PKCS 8)",
        file=str(path),
        remedy="Move it away, and a new key is made at the next use.",
    )
