"""Our own signing key, and the keys whose owners the site knows by name.

A key is never trusted because a run carries it: a run signed with a key that is not registered is
valid, and its key is called unknown.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from pydantic import Field, ValidationError

from tokenwatt_site.canonical import canonical_bytes, load_json, read_file
from tokenwatt_site.errors import EnvironmentProblem, InputError, Problem
from tokenwatt_site.files import put_new
from tokenwatt_site.schema import Line, Model, validation_problems
from tokenwatt_site.trust.signature import is_small_order, key_id

KEY_FILE = "ed25519.key"
KEY_FOLDER_VARIABLE = "TOKENWATT_KEY_DIR"
_MAX_KEY_BYTES = 4096


class RegisteredKey(Model):
    """A file of site_src/keys/: whose key this is. `name` is shown beside the runs it signed."""

    keyid: Annotated[str, Field(pattern=r"^ed25519:[0-9a-f]{32}$")]
    public_key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    name: Line


@dataclass(frozen=True, slots=True)
class Keyring:
    """The registered keys by key id."""

    keys: Mapping[str, RegisteredKey] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> Keyring:
        """Read every file of `folder`; a folder that is not there registers no key.

        Raises:
            InputError: a file stands where the folder should be, or one problem for each file that
                is not a valid registration: not strict JSON, a key id that is not the key's, a key
                of small order, or a key registered before.
        """
        keys: dict[str, RegisteredKey] = {}
        problems: list[Problem] = []
        if folder.exists() and not folder.is_dir():
            raise InputError(Problem("is no folder of registered keys", file=str(folder)))
        for path in sorted(folder.glob("[!.]*")):
            if path.suffix != ".json":
                problems.append(
                    Problem(
                        "is no registered key",
                        file=str(path),
                        expected="files in .json alone",
                        remedy="`tokenwatt-site keys add NAME` writes one.",
                    )
                )
                continue
            try:
                key = _registered(path)
            except InputError as error:
                problems += error.problems
                continue
            if key.keyid in keys:
                problems.append(
                    Problem("registers a key a second time", file=str(path), found=key.keyid)
                )
            keys[key.keyid] = key
        if problems:
            raise InputError(*problems)
        return cls(MappingProxyType(keys))

    def name_of(self, keyid: str) -> str | None:
        """Return the registered name of a key, None when it is unknown."""
        key = self.keys.get(keyid)
        return key.name if key else None


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


def own_key(folder: Path) -> Ed25519PrivateKey:
    """Return the key in `folder`, made there at first use (folder mode 700, file mode 600).

    Raises:
        EnvironmentProblem: the folder cannot be written, others can read the key or change the
            folder, or the file is no unencrypted Ed25519 key in PEM.
    """
    path = folder / KEY_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_open_to_others(folder, 0o022, "others can change this folder", "700")
        if not os.path.lexists(path):
            _make(path)
        _refuse_open_to_others(path, 0o077, "others can read this signing key", "600")
        data = read_file(path, limit=_MAX_KEY_BYTES)
    except OSError as error:
        raise EnvironmentProblem(
            Problem(
                f"the signing key cannot be kept here ({error.strerror})",
                file=str(path),
                remedy=f"Name a folder of yours in {KEY_FOLDER_VARIABLE}.",
            )
        ) from error
    except InputError as error:
        raise EnvironmentProblem(*error.problems) from error
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise EnvironmentProblem(_not_a_key(path)) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise EnvironmentProblem(_not_a_key(path))
    return key


def _registered(path: Path) -> RegisteredKey:
    value = load_json(read_file(path), source=str(path))
    try:
        key = RegisteredKey.model_validate_json(canonical_bytes(value))
    except ValidationError as error:
        raise InputError(*validation_problems(error, source=str(path))) from error
    public_key = bytes.fromhex(key.public_key)
    if (expected := key_id(public_key)) != key.keyid:
        raise InputError(
            Problem(
                "is not the id of the key beside it",
                file=str(path),
                field="keyid",
                found=key.keyid,
                expected=expected,
            )
        )
    if is_small_order(public_key):
        raise InputError(
            Problem(
                "is a key of small order, under which anyone can sign",
                file=str(path),
                field="public_key",
                found=key.public_key,
            )
        )
    return key


def _make(path: Path) -> None:
    pem = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
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
