"""Ed25519 over the DSSE pre-authentication encoding (PAE) of a run's canonical bytes.

The payload type is signed with the bytes, so a signature made for one kind of document says nothing
about another. A run's signature, put into a DSSE envelope, verifies with any DSSE library.
Not checked here: whose key it is (`trust.keyring`) and what the bytes say (`trust.verify`).
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tokenwatt_site.canonical import canonical_bytes, sha256_hex
from tokenwatt_site.errors import InputError, Problem, VerificationError
from tokenwatt_site.run import PAYLOAD_TYPE, Signature

CHECK: Final = 4
"""The number of the signature's check in `trust.verify`."""

_P = 2**255 - 19
_ORDER_8_Y = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
# The y coordinates, as 255-bit integers, of the 8 points whose order divides 8: y = 1 (order 1),
# -1 (2), 0 (4), +-_ORDER_8_Y (8). p and p + 1 are second encodings of 0 and 1. With either sign bit
# that makes 14 keys; under 12 of them OpenSSL accepts signatures that nobody made.
_SMALL_ORDER_Y = frozenset({0, 1, _P - 1, _P, _P + 1, _ORDER_8_Y, _P - _ORDER_8_Y})


def pae(payload_type: str, body: bytes) -> bytes:
    """Return DSSEv1's pre-authentication encoding (secure-systems-lab/dsse, protocol.md)."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body)


def key_id(public_key: bytes) -> str:
    """Return `ed25519:` and the first 32 hex digits of the SHA-256 of the raw public key."""
    return f"ed25519:{sha256_hex(public_key)[:32]}"


def is_small_order(public_key: bytes) -> bool:
    """Say whether this encodes a point of order 1, 2, 4 or 8, under which anyone can sign."""
    return int.from_bytes(public_key, "little") & ((1 << 255) - 1) in _SMALL_ORDER_Y


def key_problems(
    keyid: str, public_key: bytes, *, fields: tuple[str, str], source: str | None = None
) -> tuple[Problem, ...]:
    """Return what is wrong with a key before anything signed with it is looked at.

    Args:
        keyid: what the file calls the key.
        public_key: the raw key that stands in the file.
        fields: where both stand there.
        source: the file; None: who raises them knows it.
    """
    keyid_field, key_field = fields
    problems = []
    if (expected := key_id(public_key)) != keyid:
        what = f"is not the id of the key in {key_field}"
        problems.append(
            Problem(what, file=source, field=keyid_field, found=keyid, expected=expected)
        )
    if is_small_order(public_key):
        what = "is a key of small order, under which anyone can sign"
        problems.append(Problem(what, file=source, field=key_field, found=public_key.hex()))
    return tuple(problems)


def envelope(payload_type: str, body: bytes, private_key: Ed25519PrivateKey) -> bytes:
    """Return the canonical JSON of a DSSE envelope around `body`, signed as `payload_type`."""
    public_key = private_key.public_key().public_bytes_raw()
    sig = private_key.sign(pae(payload_type, body))
    return canonical_bytes(
        {
            "payload": b64encode(body).decode(),
            "payloadType": payload_type,
            "signatures": [{"keyid": key_id(public_key), "sig": b64encode(sig).decode()}],
        }
    )


def decoded(text: str, *, field: str, source: str) -> bytes:
    """Return what stands in an envelope as base64.

    Raises:
        InputError: it is none, empty, or not the one way to write these bytes.
    """
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    # Bits that decoding drops would let one payload be written in several ways.
    if not data or b64encode(data).decode() != text:
        what = "is not base64 as DSSE writes it"
        raise InputError(Problem(what, file=source, field=field, found=text[:40]))
    return data


def fits(sig: bytes, payload_type: str, body: bytes, public_key: bytes) -> bool:
    """Say whether the holder of `public_key` signed `body` as `payload_type`.

    Under a key of small order nothing counts as signed.
    """
    if is_small_order(public_key):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(sig, pae(payload_type, body))
    except (InvalidSignature, ValueError):
        return False
    return True


def sign(body: bytes, private_key: Ed25519PrivateKey) -> Signature:
    """Sign the canonical bytes of a run."""
    public_key = private_key.public_key().public_bytes_raw()
    return Signature(
        keyid=key_id(public_key),
        public_key=public_key.hex(),
        sig=private_key.sign(pae(PAYLOAD_TYPE, body)).hex(),
    )


def check(body: bytes, signature: Signature) -> None:
    """Check that the holder of `signature.public_key` signed `body` as a run.

    Raises:
        VerificationError: check 4; the key id is not the key's, the key has small order, or the
            signature was made over other bytes, as another payload type or with another key.
    """
    public_key = bytes.fromhex(signature.public_key)
    keyid, key = "signatures.0.keyid", "signatures.0.public_key"
    if problems := key_problems(signature.keyid, public_key, fields=(keyid, key)):
        raise VerificationError(CHECK, *problems)
    if not fits(bytes.fromhex(signature.sig), PAYLOAD_TYPE, body, public_key):
        raise VerificationError(
            CHECK,
            Problem(
                "does not fit the document: it was changed after signing, or signed as something"
                " else or with another key",
                field="signatures.0.sig",
                remedy="Fetch the file again from its publisher.",
            ),
        )
