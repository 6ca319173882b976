"""A commitment: what a run is going to do, signed before anything of it is measured. Pure.

One DSSE envelope as a line of JSON, signed with the key of the run to come. It tells what the first
line of the run's journal tells (configuration, plan, seed rule, who is compared with) with a digest
in the place of the nonce, so that nobody can make the prompts before the run is published. And it
tells the digest of that line, by which a journal is found to be the one that was meant.

Alone it proves that the plan was not changed afterwards, and not when it was made: the publisher
can make one at any time until the run is signed. That it came before the first trial, only somebody
else can say: a trusted key that countersigned its digest, or whoever saw the file before. And of
commitments that were handed out, those without a run can be counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from tokenwatt_site.canonical import JsonValue, canonical_bytes, load_json, sha256_hex
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.journal import Entry
from tokenwatt_site.schema import Model, Sha256, valid
from tokenwatt_site.trust.difference import expect_equal
from tokenwatt_site.trust.registration import Moment
from tokenwatt_site.trust.signature import decoded, envelope, fits, key_problems

COMMITMENT_TYPE = "application/vnd.tokenwatt.commitment+json"
MAX_COMMITMENT_BYTES = 1 << 20
"""Of the file: a spec is most of it, in base64."""

NONCE_DIGEST = "nonce_sha256"
"""What stands in the place of the nonce: the SHA-256 of its bytes."""


class Commitment(Model):
    """What is signed.

    `journal_head` is the digest of the journal's first line, which was written at `at` by the clock
    of the measuring machine; `opening` is what that line tells, without the nonce.
    """

    # History of the format. 1: first.
    commitment_schema: Literal["tokenwatt/commitment/1"]
    journal_head: Sha256
    at: Moment
    opening: dict[str, JsonValue]
    public_key: Sha256


class _Signature(Model):
    keyid: Annotated[str, Field(pattern=r"^ed25519:[0-9a-f]{32}$")]
    sig: Annotated[str, Field(max_length=100)]


class _Envelope(Model):
    payloadType: Literal["application/vnd.tokenwatt.commitment+json"]  # noqa: N815  # DSSE's name
    payload: str
    signatures: Annotated[tuple[_Signature, ...], Field(min_length=1, max_length=1)]


@dataclass(frozen=True, slots=True)
class Committed:
    """A commitment whose signature fits; made by `parse` alone.

    `digest` is the SHA-256 of the signed bytes: what somebody else countersigns.
    """

    commitment: Commitment
    digest: str
    keyid: str


def path_beside(run_file: Path) -> Path:
    """Return where the commitment of a run file lies: `<stem>.commit.json` beside it."""
    return run_file.with_suffix(".commit.json")


def is_commitment(document: JsonValue) -> bool:
    """Tell whether a document says that it is one; nothing of it is believed yet."""
    return isinstance(document, dict) and document.get("payloadType") == COMMITMENT_TYPE


def commit(opening: Entry, private_key: Ed25519PrivateKey) -> bytes:
    """Return the file of a commitment to the run whose journal begins with `opening`."""
    public_key = private_key.public_key().public_bytes_raw()
    commitment = Commitment(
        commitment_schema="tokenwatt/commitment/1",
        journal_head=opening_digest(opening),
        at=opening.at,
        opening=_without_nonce(opening.data),
        public_key=public_key.hex(),
    )
    body = canonical_bytes(commitment.to_json())
    return envelope(COMMITMENT_TYPE, body, private_key) + b"\n"


def parse(data: bytes, source: str) -> Committed:
    """Read the file of a commitment and check its signature.

    Not checked: whose key it is, and whether a run belongs to it (see `check_belongs`).

    Raises:
        InputError: not strict JSON, another schema or another payload type, bytes that are not
            canonical, a key that is not the one of its id or has small order, or a signature that
            does not fit.
    """
    value = load_json(data, source=source, limit=MAX_COMMITMENT_BYTES)
    sealed = valid(_Envelope, value, source)
    body = decoded(sealed.payload, field="payload", source=source)
    document = load_json(body, source=f"{source}: payload", limit=MAX_COMMITMENT_BYTES)
    if canonical_bytes(document) != body:
        raise InputError(Problem("is not in canonical form", file=source, field="payload"))
    commitment = valid(Commitment, document, f"{source}: payload")
    (signed,) = sealed.signatures
    _check_signature(commitment, body, signed, source)
    return Committed(commitment, sha256_hex(body), signed.keyid)


def check_belongs(committed: Committed, opening: Entry, keyid: str) -> None:
    """Check that a run is the one that was committed to.

    Args:
        committed: what `parse` gave.
        opening: the first line of the run's journal.
        keyid: of the key that signed the run.

    Raises:
        InputError: it is signed with another key, or another journal begins so, or the commitment
            tells something else than that line.
    """
    commitment = committed.commitment
    expect_equal("keyid", committed.keyid, keyid, "is not the key of the run")
    what = "is not of the line with which the run's journal begins"
    expect_equal("journal_head", commitment.journal_head, opening_digest(opening), what)
    what = "is not what the run's journal begins with"
    expect_equal("at", commitment.at, opening.at, what)
    expect_equal("opening", commitment.opening, _without_nonce(opening.data), what)


def opening_digest(opening: Entry) -> str:
    """Return the digest of a journal's first line, by which its commitment is found."""
    return sha256_hex(canonical_bytes(opening.to_json()))


def _without_nonce(data: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    told = {name: item for name, item in data.items() if name != "nonce"}
    return told | {NONCE_DIGEST: sha256_hex(bytes.fromhex(str(data["nonce"])))}


def _check_signature(commitment: Commitment, body: bytes, signed: _Signature, source: str) -> None:
    public_key = bytes.fromhex(commitment.public_key)
    where = ("signatures.0.keyid", "payload.public_key")
    if problems := key_problems(signed.keyid, public_key, fields=where, source=source):
        raise InputError(*problems)
    sig = decoded(signed.sig, field="signatures.0.sig", source=source)
    if not fits(sig, COMMITMENT_TYPE, body, public_key):
        raise InputError(
            Problem(
                "does not fit: it was changed after signing, or signed as something else",
                file=source,
                field="signatures.0.sig",
                remedy="Publish the file as `measure --commit-to` wrote it.",
            )
        )
