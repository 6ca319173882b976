"""Bytes that took work to make, each under the digest of all that they follow from.

An entry is used only under its own key: whoever asks has worked the key out from what is there now,
and an entry that was cut, copied under another name or left by other code is as if it were not
there. So a folder of entries may be deleted at any time. Whoever can write into it can change the
code as well; nobody else has a say in it.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tokenwatt_site.canonical import digest, read_file, sha256_hex
from tokenwatt_site.errors import InputError

_MAX_ENTRY_BYTES = 64 << 20
_DIGEST_CHARS = 64

CODE: Final = frozenset({".py", ".json", ".toml"})
"""What numbers can depend on: code, and the tables and windows beside it."""

_COMPUTES = ("numpy", "numba", "pydantic", "pydantic_core", "cryptography", "rfc8785")


class Cache:
    """Entries of one kind, each in a file of its own."""

    def __init__(self, folder: Path, kind: str) -> None:
        """Keep them in `folder`, which is made with the first; `kind` ends their names."""
        self._folder = folder
        self._ending = f".{kind}"
        self._used: set[str] = set()

    def find(self, key: str) -> bytes | None:
        """Return what was kept under a key; None where nothing that can be used is."""
        path = self._path(key)
        try:
            stored = read_file(path, limit=_MAX_ENTRY_BYTES)
        except InputError:
            return None
        data = stored[_DIGEST_CHARS:]
        if stored[:_DIGEST_CHARS] != _sealed(key, data):
            return None
        self._used.add(path.name)
        return data

    def keep(self, key: str, data: bytes) -> None:
        """Keep bytes under a key; a folder that cannot be written keeps nothing."""
        path = self._path(key)
        self._used.add(path.name)
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            # Not put to the disk at once: after a loss of power a cut entry is not found.
            partial.write_bytes(_sealed(key, data) + data)
            partial.replace(path)

    def drop_unused(self) -> None:
        """Remove the entries of this kind that were neither found nor kept since it was made."""
        with suppress(OSError):
            for entry in os.scandir(self._folder):
                if entry.name.endswith(self._ending) and entry.name not in self._used:
                    Path(entry.path).unlink()

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{self._ending}"


def _sealed(key: str, data: bytes) -> bytes:
    return sha256_hex(key.encode() + data).encode()


@cache
def code_digest(endings: frozenset[str] = CODE, distributions: tuple[str, ...] = _COMPUTES) -> str:
    """Return the digest of all that computes: this package, what it computes with, Python itself.

    Args:
        endings: which files of the package count.
        distributions: the packages that it computes with.
    """
    package = Path(__file__).resolve().parent
    sources = {
        path.relative_to(package).as_posix(): sha256_hex(path.read_bytes())
        for path in _files(package)
        if path.suffix in endings
    }
    versions = {name: version(name) for name in distributions}
    return digest({"sources": sources, "versions": versions, "python": sys.version})


def _files(package: Path) -> Iterable[Path]:
    return (path for path in sorted(package.rglob("*")) if path.is_file())
