"""Register the own signing key by name."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import ValidationError

from tokenwatt_site.errors import EnvironmentProblem, Problem, UsageError
from tokenwatt_site.schema import validation_problems
from tokenwatt_site.trust.keyring import RegisteredKey, key_folder, own_key
from tokenwatt_site.trust.signature import key_id


def add(name: str, folder: Path) -> Path:
    """Write the public half of the own key, with `name`, into a folder of registered keys.

    Raises:
        UsageError: the name is not fit to be shown, or the key is registered already.
        EnvironmentProblem: the folder cannot be written.
    """
    public = own_key(key_folder(os.environ)).public_key().public_bytes_raw()
    try:
        key = RegisteredKey(keyid=key_id(public), public_key=public.hex(), name=name)
    except ValidationError as error:
        raise UsageError(*validation_problems(error, source="keys add")) from error
    path = folder / f"{key.keyid.removeprefix('ed25519:')}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as handle:
            handle.write(json.dumps(key.to_json(), indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        if path.exists():
            raise UsageError(Problem("this key is registered already", file=str(path))) from error
        raise EnvironmentProblem(
            Problem(f"cannot be written ({error.strerror})", file=str(path))
        ) from error
    return path
