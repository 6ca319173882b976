"""The commitment of a measurement: handed out before anything runs, and kept beside its run."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tokenwatt_site.canonical import read_file
from tokenwatt_site.commands.output import not_written, write_new
from tokenwatt_site.errors import EnvironmentProblem, Problem, UsageError
from tokenwatt_site.files import put, put_new
from tokenwatt_site.journal import Entry
from tokenwatt_site.prompts import PUBLISHER_NONCE
from tokenwatt_site.trust.commitment import MAX_COMMITMENT_BYTES, commit, path_beside

_FILE = "commitment.json"
"""In a work folder."""


def publisher_nonce(text: str | None) -> str | None:
    """Return the nonce of `--nonce` in lower case.

    Raises:
        UsageError: it is no such nonce.
    """
    if text is None:
        return None
    nonce = text.strip().lower()
    if not PUBLISHER_NONCE.fullmatch(nonce):
        raise UsageError(
            Problem(
                "is no nonce",
                field="--nonce",
                found=repr(text)[:80],
                expected="32 to 128 hexadecimal digits, two a byte, as the publisher gave them",
            )
        )
    return nonce


def committer(
    commit_to: Path, folder: Path, signer: Ed25519PrivateKey, say: Callable[[str], None]
) -> Callable[[Entry], None]:
    """Return what `session.measure` gives the first line of the journal to.

    It writes the commitment to `commit_to`, and keeps it in the work folder for the run to come.
    """

    def opened(opening: Entry) -> None:
        data = commit(opening, signer)
        try:
            put(folder / _FILE, data)
        except OSError as error:
            raise not_written(folder / _FILE, error) from error
        write_new(commit_to, data)
        later = shlex.join(["tokenwatt-site", "measure", "--resume", str(folder)])
        say(
            f"committed to {commit_to}: hand it out, or have it countersigned, before the first"
            f" trial begins. Ctrl-C gives time for that; then: {later}"
        )

    return opened


def publish_beside(folder: Path, run_file: Path, remedy: str) -> None:
    """Put the commitment of a measurement beside where its run will be, if there is one.

    Raises:
        EnvironmentProblem: another file has its name; with what to do then.
        OSError: it cannot be written.
    """
    kept = folder / _FILE
    if not kept.is_file():
        return
    path, data = path_beside(run_file), read_file(kept, limit=MAX_COMMITMENT_BYTES)
    try:
        put_new(path, data)
    except FileExistsError as error:
        # It may have been handed out under this name, or this be the same run written once more.
        if read_file(path, limit=MAX_COMMITMENT_BYTES) != data:
            raise EnvironmentProblem(
                Problem("is another file than this run's commitment", file=str(path), remedy=remedy)
            ) from error
