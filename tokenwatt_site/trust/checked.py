"""Runs that an earlier build verified, so that a site verifies only what changed.

Whether a run passes, and what its numbers come to, follows from the bytes of its file, of all of
its evidence and of our own code (and from the clock, but a date that was not in the future will not
be). What came out is kept under the digests of all of these. Where the file lies, which keys are
registered and what is stated about it are looked at every time. `tokenwatt-site verify` never looks
here, and nothing is kept of a file that was refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from tokenwatt_site.cache import Cache, code_digest
from tokenwatt_site.canonical import canonical_bytes, digest, read_file, sha256_hex
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.store import MAX_COMPRESSED_BYTES, EvidenceFile, address
from tokenwatt_site.schema import Model, Sha256
from tokenwatt_site.trust.held import Held


class _Piece(Model):
    """A file of evidence: the digest that is its name, and that of its bytes, which are gzip'd."""

    sha256: Sha256
    packed_sha256: Sha256


class _Facts(Model):
    """What is kept beside the packed run; the attributes of `Held`."""

    run_id: Sha256
    keyid: str
    evidence: tuple[_Piece, ...]
    configuration: str
    setup: Sha256
    simulated: bool
    ended: str
    opening: Sha256
    given_nonce: bool
    first_trial: str | None


class Checked:
    """Runs that passed every check, on the model level."""

    def __init__(self, folder: Path) -> None:
        """Keep them in `folder`, which is made with the first of them."""
        self._cache = Cache(folder, "run")

    def find(self, path: Path, data: bytes) -> tuple[str, str, Held] | None:
        """Return the id of a run, its key and what it holds; None where it has to be verified.

        Args:
            path: where its file lies now; its evidence is beside it.
            data: the bytes of its file.
        """
        key = _key(data)
        entry = self._cache.find(key)
        if entry is None:
            return None
        told, _, _ = entry.partition(b"\n")
        try:
            facts = _Facts.model_validate_json(told)
            for piece in facts.evidence:
                if _digest_of(path, piece.sha256) != piece.packed_sha256:
                    return None
        except (InputError, ValidationError):
            return None
        held = Held(
            path=path,
            files=tuple(address(piece.sha256) for piece in facts.evidence),
            packed=partial(self._packed, path, key),
            configuration=facts.configuration,
            setup=facts.setup,
            simulated=facts.simulated,
            ended=datetime.fromisoformat(facts.ended),
            opening=facts.opening,
            given_nonce=facts.given_nonce,
            first_trial=datetime.fromisoformat(facts.first_trial) if facts.first_trial else None,
        )
        return facts.run_id, facts.keyid, held

    def keep(
        self, data: bytes, run_id: str, keyid: str, held: Held, evidence: Sequence[EvidenceFile]
    ) -> None:
        """Keep what came out of a run that passed; nothing where its evidence changed meanwhile."""
        try:
            pieces = tuple(
                _Piece(sha256=entry.sha256, packed_sha256=_digest_of(held.path, entry.sha256))
                for entry in evidence
            )
        except InputError:
            return
        facts = _Facts(
            run_id=run_id,
            keyid=keyid,
            evidence=pieces,
            configuration=held.configuration,
            setup=held.setup,
            simulated=held.simulated,
            ended=held.ended.isoformat(),
            opening=held.opening,
            given_nonce=held.given_nonce,
            first_trial=held.first_trial.isoformat() if held.first_trial else None,
        )
        self._cache.keep(_key(data), canonical_bytes(facts.to_json()) + b"\n" + held.packed())

    def _packed(self, path: Path, key: str) -> bytes:
        # Not held: of ten thousand runs that would be 60 MB, and a rebuild asks for few.
        entry = self._cache.find(key)
        if entry is None:
            raise InputError(
                Problem(
                    "what was kept of this run is gone",
                    file=str(path),
                    remedy="Build again; nothing may empty .cache meanwhile.",
                )
            )
        return entry.partition(b"\n")[2]

    def drop_unused(self) -> None:
        """Remove what no longer belongs to any run."""
        self._cache.drop_unused()


def _key(data: bytes) -> str:
    return digest({"run": sha256_hex(data), "code": code_digest()})


def _digest_of(run_path: Path, sha256: str) -> str:
    path = run_path.parent / address(sha256)
    if path.parent.is_symlink():
        raise InputError(f"{path.parent} is a symbolic link")
    return sha256_hex(read_file(path, limit=MAX_COMPRESSED_BYTES))
