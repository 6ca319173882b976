"""A registration: whose a key is, how long it counts, what follows it; and that it was revoked.

The registration is signed with the key that it is of, so nobody registers a key that they do not
hold. A successor is named by the key itself, and says itself that it follows: nobody makes
another's key their own.

A revocation is a file of its own, signed by the key, or, since a key that was lost signs nothing
any more, by one that follows it. It tells the digest of the registration as that stood, and those
of the revocations of other keys that the key had signed, and the builder takes in no others:
whoever has the key afterwards can sign what they like under any date, and neither ends the
revocation by that, nor names another successor, nor revokes another key. Only who publishes the
site can take a revocation away.

Not checked here: how keys hang together (`trust.keyring`), and that the owner is who `name` says.
Who publishes the site checks that, when a registration is taken in.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Literal, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import AfterValidator, Field, model_validator

from tokenwatt_site.canonical import JsonValue, canonical_bytes, load_json, sha256_hex
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.schema import GrowingModel, Sha256, Words, valid
from tokenwatt_site.trust.signature import fits, is_small_order, key_id, key_problems, pae

KEY_SCHEMA = "tokenwatt/key/1"
REVOCATION_SCHEMA = "tokenwatt/key-revocation/1"
KEY_TYPE = "application/vnd.tokenwatt.key+json"
REVOCATION_TYPE = "application/vnd.tokenwatt.key-revocation+json"
MAX_REGISTRATION_BYTES = 16 << 10
_PREFIX = "ed25519:"
_REVOKED = ".revoked.json"


def moment(text: str) -> datetime:
    """Return the time that a `Moment` names."""
    return datetime.fromisoformat(text)


def utc(time: datetime) -> str:
    """Write a time as a `Moment`, in whole seconds."""
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _real(text: str) -> str:
    try:
        moment(text)  # "2026-02-30T00:00:00Z" has the form of one
    except ValueError:
        raise ValueError("a date that the calendar has") from None
    return text


KeyId = Annotated[str, Field(pattern=r"^ed25519:[0-9a-f]{32}$")]
Sig = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
Moment = Annotated[
    str,
    Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z$"),
    AfterValidator(_real),
]
"""A time in UTC, RFC 3339 with Z."""


class Revocation(GrowingModel):
    """That the key `keyid` counts no more from `at` on; said, and signed, by the key `by`.

    `registration` is the digest of what the key had signed about itself, `revocations` are those of
    the revocations of other keys that it had signed (None: it had signed none): no others count.
    """

    younger: ClassVar[frozenset[str]] = frozenset({"revocations"})

    revocation_schema: Literal["tokenwatt/key-revocation/1"]
    keyid: KeyId
    registration: Sha256
    revocations: tuple[Sha256, ...] | None = None
    at: Moment
    reason: Words
    by: KeyId
    sig: Sig

    @property
    def digest(self) -> str:
        """The SHA-256 of what was signed."""
        return sha256_hex(_told_bytes(self))


class Registration(GrowingModel):
    """A file of site_src/keys/. `name` is shown beside the runs that the key signed.

    The key counts for what was signed from `not_before` to `not_after`; null: without such a limit.
    It takes over from the key `follows`, if that names it as its `successor`. `revoked` is of a
    file of its own; registrations of before have null in its place.
    """

    younger: ClassVar[frozenset[str]] = frozenset({"follows", "revoked"})

    key_schema: Literal["tokenwatt/key/1"]
    keyid: KeyId
    public_key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    name: Words
    organisation: Words | None
    not_before: Moment | None
    not_after: Moment | None
    successor: KeyId | None
    follows: KeyId | None = None
    revoked: Revocation | None = None
    signature: Sig

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if (
            self.not_before is not None
            and self.not_after is not None
            and moment(self.not_after) <= moment(self.not_before)
        ):
            raise ValueError("not_after later than not_before")
        return self

    @property
    def owner(self) -> str:
        """The name, with the organisation where there is one."""
        return self.name if self.organisation is None else f"{self.name} ({self.organisation})"

    @property
    def digest(self) -> str:
        """The SHA-256 of what the key signed."""
        return sha256_hex(_signed_bytes(self.to_json()))


def file_name(keyid: str) -> str:
    """Return what the file of a key's registration is called."""
    return f"{keyid.removeprefix(_PREFIX)}.json"


def revocation_name(keyid: str) -> str:
    """Return what the file of a key's revocation is called."""
    return f"{keyid.removeprefix(_PREFIX)}{_REVOKED}"


def is_revocation_name(name: str) -> bool:
    """Tell whether a file is called as a revocation."""
    return name.endswith(_REVOKED)


def to_bytes(registration: Registration) -> bytes:
    """Return a registration as its file, to be read by people too."""
    return _file(registration.model_copy(update={"revoked": None}))


def revocation_bytes(revoked: Revocation) -> bytes:
    """Return a revocation as its file, to be read by people too."""
    return _file(revoked)


def _file(document: Registration | Revocation) -> bytes:
    return f"{json.dumps(document.to_json(), indent=1, ensure_ascii=False)}\n".encode()


def register(
    private_key: Ed25519PrivateKey,
    *,
    name: str,
    organisation: str | None = None,
    not_before: datetime | None = None,
    not_after: datetime | None = None,
    follows: str | None = None,
) -> Registration:
    """Register a key by the name of its owner, signed with the key.

    `follows` is the key that it takes over from, which has to name it too (`with_successor`).

    Raises:
        InputError: the name or the organisation is not fit to be shown, or the key would end before
            it begins.
    """
    public_key = private_key.public_key().public_bytes_raw()
    return _sealed(
        private_key,
        {
            "key_schema": KEY_SCHEMA,
            "keyid": key_id(public_key),
            "public_key": public_key.hex(),
            "name": name,
            "organisation": organisation,
            "not_before": None if not_before is None else utc(not_before),
            "not_after": None if not_after is None else utc(not_after),
            "successor": None,
            **({} if follows is None else {"follows": follows}),
        },
    )


def with_successor(
    registration: Registration, successor: str, private_key: Ed25519PrivateKey
) -> Registration:
    """Name the key that follows, signed anew with the key that the registration is of.

    Raises:
        InputError: `private_key` is another key's.
    """
    return _sealed(private_key, registration.to_json() | {"successor": successor})


def revoke(
    registration: Registration,
    *,
    at: datetime,
    reason: str,
    private_key: Ed25519PrivateKey,
    revocations: Collection[Revocation] = (),
) -> Revocation:
    """Return the revocation of a key, signed with it or with one that follows it.

    `revocations` are those of other keys that the key has signed, and that go on to count.
    Whether `private_key` may do so is for the keyring, which knows what follows what.

    Raises:
        InputError: the reason is not fit to be shown.
    """
    told = {
        "revocation_schema": REVOCATION_SCHEMA,
        "keyid": registration.keyid,
        "registration": registration.digest,
        **({"revocations": sorted(each.digest for each in revocations)} if revocations else {}),
        "at": utc(at),
        "reason": reason,
        "by": key_id(private_key.public_key().public_bytes_raw()),
    }
    sig = private_key.sign(pae(REVOCATION_TYPE, canonical_bytes(told)))
    # What the loader would refuse is never written.
    return parse_revocation(json.dumps(told | {"sig": sig.hex()}).encode(), "revocation")


def with_revocation(registration: Registration, revoked: Revocation) -> Registration:
    """Return a registration with what is in the file of its revocation."""
    return registration.model_copy(update={"revoked": revoked})


def is_revocation_of(revoked: Revocation, keyid: str, public_key: str) -> bool:
    """Say whether the holder of `public_key` (hex) revoked the key `keyid` in these words."""
    sig, body = bytes.fromhex(revoked.sig), _told_bytes(revoked)
    return revoked.keyid == keyid and fits(sig, REVOCATION_TYPE, body, bytes.fromhex(public_key))


def parse(data: bytes, source: str) -> Registration:
    """Read a registration and check that it is signed with the key that it is of.

    Raises:
        InputError: it is not strict JSON or not of the schema; the key id is not the key's; the key
            has small order; or the signature does not fit.
    """
    value = load_json(data, source=source, limit=MAX_REGISTRATION_BYTES)
    if not isinstance(value, dict) or value.get("key_schema") != KEY_SCHEMA:
        raise InputError(
            Problem(
                "is no registration that this version reads",
                file=source,
                expected=f'a JSON object with "key_schema": "{KEY_SCHEMA}"',
                remedy="Remove it, and have its owner run `tokenwatt-site keys add NAME`.",
            )
        )
    if value.get("revoked") is not None:
        raise InputError(
            Problem(
                "is in a file of its own, which the key cannot write anew",
                file=source,
                field="revoked",
                expected="no such field",
                remedy="Take it out, and have `tokenwatt-site keys revoke` write that file.",
            )
        )
    registration = valid(Registration, value, source)
    if problems := list(_problems(registration, source)):
        raise InputError(*problems)
    return registration


def parse_revocation(data: bytes, source: str) -> Revocation:
    """Read a revocation; whose it is, and that its signature fits, is for the keyring.

    Raises:
        InputError: it is not strict JSON or not of the schema.
    """
    value = load_json(data, source=source, limit=MAX_REGISTRATION_BYTES)
    return valid(Revocation, value, source)


def _problems(registration: Registration, source: str) -> Iterator[Problem]:
    public_key = bytes.fromhex(registration.public_key)
    where = ("keyid", "public_key")
    yield from key_problems(registration.keyid, public_key, fields=where, source=source)
    if is_small_order(public_key):
        return
    body = _signed_bytes(registration.to_json())
    if not fits(bytes.fromhex(registration.signature), KEY_TYPE, body, public_key):
        yield Problem(
            "does not fit: this was changed after signing, or signed with another key",
            file=source,
            field="signature",
            remedy="Fetch the file again from its owner.",
        )


def _signed_bytes(document: JsonValue) -> bytes:
    return canonical_bytes(
        {name: item for name, item in document.items() if name not in {"revoked", "signature"}}
    )


def _told_bytes(revoked: Revocation) -> bytes:
    return canonical_bytes({n: item for n, item in revoked.to_json().items() if n != "sig"})


def _sealed(private_key: Ed25519PrivateKey, document: JsonValue) -> Registration:
    sig = private_key.sign(pae(KEY_TYPE, _signed_bytes(document)))
    return _read_back(document | {"signature": sig.hex()})


def _read_back(document: JsonValue) -> Registration:
    # What the loader would refuse is never written.
    return parse(json.dumps(document).encode(), "registration")
