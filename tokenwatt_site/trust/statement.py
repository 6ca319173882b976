"""Statements: what is signed about a run later, each one line of a file beside it. Pure.

A line is a DSSE envelope, as canonical JSON, around an in-toto Statement; its subject is the run,
by the digest of its signed bytes (`run_id`). Any DSSE library verifies it. The predicate carries
the public key, so that a line can be checked by itself; the key is not trusted for that.

Not checked here: whose key it is (`trust.keyring`), and what a statement changes
(`trust.standing`). Nor when it was made: `made` is what its signer says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from tokenwatt_site.canonical import JsonValue, canonical_bytes, load_json, sha256_hex
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.schema import Line, Model, Sha256, valid
from tokenwatt_site.trust.predicates import (
    KINDS,
    PREDICATES,
    Disputed,
    Kind,
    Predicate,
    Settled,
    Superseded,
    Withdrawn,
)
from tokenwatt_site.trust.registration import KeyId, moment
from tokenwatt_site.trust.signature import decoded, envelope, fits, key_problems

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"

MAX_LINE_BYTES = 8 << 10


class _Digest(Model):
    sha256: Sha256


class _Subject(Model):
    name: Line
    digest: _Digest


class Statement(Model):
    """An in-toto Statement about one run, its predicate not looked at yet."""

    statement_type: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: Annotated[tuple[_Subject, ...], Field(min_length=1, max_length=1)]
    predicate_type: str = Field(alias="predicateType")
    predicate: dict[str, JsonValue]


class _Sig(Model):
    keyid: KeyId
    sig: str


class _Envelope(Model):
    payload: str
    payload_type: Literal["application/vnd.in-toto+json"] = Field(alias="payloadType")
    signatures: Annotated[tuple[_Sig, ...], Field(min_length=1, max_length=1)]


@dataclass(frozen=True, slots=True)
class Signed:
    """A statement whose signature fits; `line` is its line, without the end of it."""

    kind: Kind
    run_id: str
    said: Predicate
    keyid: str
    line: bytes

    @property
    def made(self) -> datetime:
        return moment(self.said.made)

    @property
    def reason(self) -> str | None:
        """Why it is disputed, settled, withdrawn or superseded; None: it is of another kind."""
        match self.said:
            case Disputed() | Settled() | Withdrawn() | Superseded():
                return self.said.reason
        return None

    @property
    def digest(self) -> str:
        """What another statement names it by: the SHA-256 of its gist.

        Not of its line: its key can write that anew with another date at any time, and nothing that
        was said about it is lost by that.
        """
        return sha256_hex(self.gist)

    @property
    def gist(self) -> bytes:
        """What it says and who says it, whenever: the same for two that say the same."""
        said = self.said.to_json()
        del said["made"]
        return canonical_bytes([self.kind, self.run_id, said])


def sign(
    kind: Kind,
    run_id: str,
    said: Mapping[str, JsonValue],
    private_key: Ed25519PrivateKey,
    made: str,
) -> bytes:
    """Return the line of a statement, with its end.

    Args:
        kind: what is stated.
        run_id: of the run that it is about.
        said: the fields of the predicate, without `public_key` and `made`.
        private_key: who states it.
        made: when, RFC 3339 in UTC with Z.

    Raises:
        InputError: a field is missing, not one of this kind, or not fit to be published.
    """
    public_key = private_key.public_key().public_bytes_raw()
    payload = canonical_bytes(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": f"run {run_id[:12]}", "digest": {"sha256": run_id}}],
            "predicateType": f"urn:tokenwatt:{kind}:1",
            "predicate": {**said, "public_key": public_key.hex(), "made": made},
        }
    )
    line = envelope(PAYLOAD_TYPE, payload, private_key) + b"\n"
    parse(line, f"statement that it is {kind}")  # what is refused is never written
    return line


def parse(line: bytes, source: str) -> Signed:
    """Read the line of a statement, with its end or without, and check its signature.

    Raises:
        InputError: it is cut, too long, not canonical, no statement of ours, or signed under a key
            of small order or not by its key.
    """
    line = line.removesuffix(b"\n")
    value = load_json(line, source=source, limit=MAX_LINE_BYTES)
    sealed = valid(_Envelope, value, source)
    _expect_canonical(value, line, source, "the line")
    payload = decoded(sealed.payload, field="payload", source=source)
    document = _payload(payload, source)
    statement = valid(Statement, document, source)
    _expect_canonical(document, payload, source, "the payload")
    kind = KINDS.get(statement.predicate_type)
    if kind is None:
        raise InputError(
            Problem(
                "is no statement that this version reads",
                file=source,
                field="predicateType",
                found=repr(statement.predicate_type)[:80],
                expected=" or ".join(KINDS),
            )
        )
    said = valid(PREDICATES[kind], statement.predicate, source)
    (signature,) = sealed.signatures
    public_key = bytes.fromhex(said.public_key)
    where = ("signatures.0.keyid", "predicate.public_key")
    if problems := key_problems(signature.keyid, public_key, fields=where, source=source):
        raise InputError(*problems)
    sig = decoded(signature.sig, field="signatures.0.sig", source=source)
    if not fits(sig, PAYLOAD_TYPE, payload, public_key):
        raise InputError(
            Problem(
                "does not fit the statement: it was changed after signing, or signed as something"
                " else or with another key",
                file=source,
                field="signatures.0.sig",
                remedy="Ask its signer for the line as it was.",
            )
        )
    run_id = statement.subject[0].digest.sha256
    return Signed(kind=kind, run_id=run_id, said=said, keyid=signature.keyid, line=line)


def _payload(payload: bytes, source: str) -> JsonValue:
    try:
        return load_json(payload, source=source, limit=MAX_LINE_BYTES)
    except InputError as error:
        # What is no JSON at all has no field of its own.
        named = (replace(p, field=p.field or "payload") for p in error.problems)
        raise InputError(*named) from error


def _expect_canonical(value: JsonValue, data: bytes, source: str, what: str) -> None:
    if canonical_bytes(value) != data:
        raise InputError(Problem(f"{what} is not canonical JSON (RFC 8785)", file=source))
