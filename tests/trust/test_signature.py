"""Tests of trust.signature."""

from __future__ import annotations

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]  # no __all__

from tokenwatt_site.errors import VerificationError
from tokenwatt_site.run import PAYLOAD_TYPE, Signature
from tokenwatt_site.trust.signature import (
    check,
    fits,
    is_small_order,
    key_id,
    key_problems,
    pae,
    sign,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
BODY = b'{"a":1}'
P = 2**255 - 19


def test_pae_is_the_example_of_the_dsse_specification() -> None:
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_key_id_is_the_start_of_the_digest_of_the_raw_key() -> None:
    raw = KEY.public_key().public_bytes_raw()
    assert key_id(raw) == "ed25519:" + hashlib.sha256(raw).hexdigest()[:32]


@given(st.binary(max_size=200))
def test_what_was_signed_checks(body: bytes) -> None:
    check(body, sign(body, KEY))


@given(st.binary(min_size=1, max_size=200), st.data())
def test_any_flipped_bit_of_the_body_fails(body: bytes, data: st.DataObject) -> None:
    signature = sign(body, KEY)
    position = data.draw(st.integers(0, 8 * len(body) - 1))
    changed = bytearray(body)
    changed[position // 8] ^= 1 << position % 8
    with pytest.raises(VerificationError, match="check 4"):
        check(bytes(changed), signature)


@given(st.integers(0, 8 * 64 - 1))
def test_any_flipped_bit_of_the_signature_fails(position: int) -> None:
    signature = sign(BODY, KEY)
    changed = bytearray.fromhex(signature.sig)
    changed[position // 8] ^= 1 << position % 8
    with pytest.raises(VerificationError, match="does not fit"):
        check(BODY, signature.model_copy(update={"sig": changed.hex()}))


@given(st.integers(0, 8 * 32 - 1))
def test_any_flipped_bit_of_the_key_fails_even_with_its_own_id(position: int) -> None:
    signature = sign(BODY, KEY)
    changed = bytearray.fromhex(signature.public_key)
    changed[position // 8] ^= 1 << position % 8
    with pytest.raises(VerificationError, match="check 4"):
        check(
            BODY,
            Signature(keyid=key_id(bytes(changed)), public_key=changed.hex(), sig=signature.sig),
        )


def test_a_key_id_that_is_not_the_keys_fails() -> None:
    signature = sign(BODY, KEY).model_copy(update={"keyid": "ed25519:" + "0" * 32})
    with pytest.raises(VerificationError, match=r"signatures\.0\.keyid"):
        check(BODY, signature)


def test_f18_a_signature_over_another_payload_type_fails() -> None:
    raw = KEY.public_key().public_bytes_raw()
    other = KEY.sign(pae("application/vnd.in-toto+json", BODY))
    with pytest.raises(VerificationError, match="signed as something else"):
        check(BODY, Signature(keyid=key_id(raw), public_key=raw.hex(), sig=other.hex()))


def test_f18_a_signature_over_the_bare_body_fails() -> None:
    raw = KEY.public_key().public_bytes_raw()
    with pytest.raises(VerificationError):
        check(BODY, Signature(keyid=key_id(raw), public_key=raw.hex(), sig=KEY.sign(BODY).hex()))


# The curve -x^2 + y^2 = 1 + d x^2 y^2 (RFC 8032, 5.1), written out to derive the refused keys.
D = -121665 * pow(121666, -1, P) % P


def add(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    (x1, y1), (x2, y2) = a, b
    k = D * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + x2 * y1) * pow(1 + k, -1, P) % P
    y = (y1 * y2 + x1 * x2) * pow(1 - k, -1, P) % P
    return x, y


def decode(encoding: bytes) -> tuple[int, int] | None:
    """Decode leniently, as OpenSSL does: y may be p or more, x = 0 may have its sign bit set."""
    number = int.from_bytes(encoding, "little")
    sign_bit, y = number >> 255, (number & (1 << 255) - 1) % P
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    if x * x % P != square:
        return None
    return (P - x) % P if x % 2 != sign_bit else x, y


def times_8(point: tuple[int, int]) -> tuple[int, int]:
    for _ in range(3):
        point = add(point, point)
    return point


def small_order_encodings() -> set[bytes]:
    """Every 32-byte string that decodes to a point of order 1, 2, 4 or 8."""
    # L times any point has an order that divides 8; y = 3.. until one has order 8 itself.
    group_order = 2**252 + 27742317777372353535851937790883648493
    torsion: set[tuple[int, int]] = set()
    y = 2
    while len(torsion) < 8:
        y += 1
        point = decode(y.to_bytes(32, "little"))
        if point is None:
            continue
        total, power, bits = (0, 1), point, group_order
        while bits:
            total = add(total, power) if bits & 1 else total
            power, bits = add(power, power), bits >> 1
        torsion = {(0, 1)}
        multiple = total
        while multiple != (0, 1):
            torsion.add(multiple)
            multiple = add(multiple, total)
    ys = {y for _, y in torsion}
    candidates = ys | {y + P for y in ys if y + P < 1 << 255}
    return {(y | sign_bit << 255).to_bytes(32, "little") for y in candidates for sign_bit in (0, 1)}


def test_f21_exactly_the_14_encodings_of_small_order_are_refused() -> None:
    encodings = small_order_encodings()
    assert len(encodings) == 14
    for encoding in encodings:
        point = decode(encoding)
        assert point is not None
        assert times_8(point) == (0, 1)
        assert is_small_order(encoding)
        signature = Signature(keyid=key_id(encoding), public_key=encoding.hex(), sig="00" * 64)
        with pytest.raises(VerificationError, match="small order"):
            check(BODY, signature)


def test_all_that_is_wrong_with_a_key_is_told_with_file_and_fields() -> None:
    identity, wrong = (1).to_bytes(32, "little"), f"ed25519:{'0' * 32}"
    told = [str(p) for p in key_problems(wrong, identity, fields=("id", "key"), source="x")]
    assert told == [
        f"x: id: is not the id of the key in key; found {wrong}; expected {key_id(identity)}",
        f"x: key: is a key of small order, under which anyone can sign; found {identity.hex()}",
    ]
    public = KEY.public_key().public_bytes_raw()
    assert key_problems(key_id(public), public, fields=("id", "key")) == ()


@given(st.binary(min_size=32, max_size=32))
def test_f21_other_points_are_not_called_small(encoding: bytes) -> None:
    point = decode(encoding)
    assert is_small_order(encoding) == (point is not None and times_8(point) == (0, 1))


def test_f21_a_keyless_forgery_under_the_identity_key_is_what_the_refusal_prevents() -> None:
    identity = (1).to_bytes(32, "little")
    forged = identity + bytes(32)
    # The library below us accepts it for any message: this line states why the list exists.
    Ed25519PublicKey.from_public_bytes(identity).verify(forged, pae(PAYLOAD_TYPE, BODY))
    with pytest.raises(VerificationError, match="small order"):
        check(
            BODY,
            Signature(keyid=key_id(identity), public_key=identity.hex(), sig=forged.hex()),
        )


def test_a_signature_in_a_dsse_envelope_verifies_with_stock_securesystemslib() -> None:
    signature = sign(BODY, KEY)
    envelope = Envelope.from_dict(
        {
            "payload": base64.b64encode(BODY).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [
                {
                    "keyid": signature.keyid,
                    "sig": base64.b64encode(bytes.fromhex(signature.sig)).decode(),
                }
            ],
        }
    )
    key = SSlibKey(signature.keyid, "ed25519", "ed25519", {"public": signature.public_key})
    assert set(envelope.verify([key], 1)) == {signature.keyid}


def test_f18_what_was_signed_as_one_type_fits_as_no_other() -> None:
    raw = KEY.public_key().public_bytes_raw()
    sig = KEY.sign(pae("application/vnd.example+json", BODY))
    assert fits(sig, "application/vnd.example+json", BODY, raw)
    assert not fits(sig, PAYLOAD_TYPE, BODY, raw)
    assert not fits(sig, "application/vnd.example+json", BODY + b" ", raw)
    assert not fits(sig[:-1], "application/vnd.example+json", BODY, raw)
    assert not fits(sig, "application/vnd.example+json", BODY, raw[:-1])


def test_f21_nothing_fits_under_a_key_of_small_order() -> None:
    identity = (1).to_bytes(32, "little")
    assert not fits(identity + bytes(32), PAYLOAD_TYPE, BODY, identity)
