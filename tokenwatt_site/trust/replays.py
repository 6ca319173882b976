"""Replays of the engine model that a site need not do again at every build.

A replay takes seconds, and comes to the same as long as the run, its evidence and our own code are
the same bytes. So what it came to is kept under the digest of all of these. It takes the place of a
replay and of nothing else: all other numbers are recomputed at every build, and what was kept is
held against the file like what was just replayed. Whoever can write into the folder can change the
code as well; nobody else has a say in it. `tokenwatt-site verify` never looks here.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

from pydantic import ValidationError

from tokenwatt_site.canonical import canonical_bytes, digest, load_json, read_file, sha256_hex
from tokenwatt_site.claims.long_run import LongRunClaims
from tokenwatt_site.errors import InputError
from tokenwatt_site.files import put
from tokenwatt_site.run import LongRunClaim, MetricClaim, Run
from tokenwatt_site.schema import Model, Sha256

_SOURCES = frozenset({".py", ".json", ".toml"})
"""What a replay can depend on: code, and the tables and windows beside it."""


class _Entry(Model):
    """What is kept; `key` is the name of its file too, which a copy would not have."""

    key: Sha256
    claim: LongRunClaim
    metrics: tuple[MetricClaim, ...]


class Replays:
    """Replays that were done, each in a file of its own."""

    def __init__(self, folder: Path) -> None:
        """Keep them in `folder`, which is made with the first of them."""
        self._folder = folder

    def find(self, run: Run, run_id: str) -> LongRunClaims | None:
        """Return what the replay of a run came to; None where nothing that can be used is kept.

        Args:
            run: the run.
            run_id: the digest of its own bytes.
        """
        key = _key(run, run_id)
        path = self._path(key)
        try:
            data = read_file(path)
            load_json(data, source=str(path))
            entry = _Entry.model_validate_json(data)
        except (InputError, ValidationError):
            return None  # absent, cut short or of another version
        return LongRunClaims(entry.claim, entry.metrics) if entry.key == key else None

    def keep(self, run: Run, run_id: str, found: LongRunClaims) -> None:
        """Keep what the replay of a run came to; a folder that cannot be written keeps nothing."""
        key = _key(run, run_id)
        entry = _Entry(key=key, claim=found.claim, metrics=found.metrics)
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            put(self._path(key), canonical_bytes(entry.to_json()))

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.replay.json"


def _key(run: Run, run_id: str) -> str:
    evidence = sorted([entry.role, entry.sha256] for entry in run.evidence)
    return digest({"run": run_id, "evidence": evidence, "code": code_digest()})


@cache
def code_digest() -> str:
    """Return the digest of all that computes: this package, numpy and numba, Python itself."""
    package = Path(__file__).resolve().parents[1]
    sources = {
        path.relative_to(package).as_posix(): sha256_hex(path.read_bytes())
        for path in sorted(package.rglob("*"))
        if path.suffix in _SOURCES and path.is_file()
    }
    versions = {name: version(name) for name in ("numpy", "numba")}
    return digest({"sources": sources, "versions": versions, "python": sys.version})
