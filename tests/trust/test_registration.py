"""Tests of trust.registration."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]  # no __all__

from tests.support.runs import a_key, revoked_key
from tokenwatt_site.canonical import canonical_bytes
from tokenwatt_site.errors import InputError
from tokenwatt_site.run import PAYLOAD_TYPE
from tokenwatt_site.trust.registration import (
    KEY_TYPE,
    Registration,
    file_name,
    is_revocation_of,
    parse,
    parse_revocation,
    register,
    revocation_bytes,
    to_bytes,
    with_successor,
)
from tokenwatt_site.trust.signature import key_id, pae

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
YEAR = timedelta(days=365)
SECOND = key_id(a_key(2).public_key().public_bytes_raw())


def lab(**changes: Any) -> Registration:
    return register(a_key(1), **{"name": "Lab 1"} | changes)


def document(**changes: Any) -> dict[str, Any]:
    value: dict[str, Any] = lab().to_json() | changes
    return value


def signed(value: dict[str, Any], *, seed: int = 1, payload_type: str = KEY_TYPE) -> dict[str, Any]:
    """Sign a document of any content, as its owner could."""
    body = {name: item for name, item in value.items() if name not in {"signature", "revoked"}}
    sig = a_key(seed).sign(pae(payload_type, canonical_bytes(body)))
    return value | {"signature": sig.hex()}


def refusal(value: Any) -> str:
    with pytest.raises(InputError) as caught:
        parse(json.dumps(value).encode(), "file.json")
    return str(caught.value)


def test_a_registration_reads_back_as_it_was_written() -> None:
    written = lab(name="Labør", organisation="Org", not_before=AT, not_after=AT + YEAR)
    assert parse(to_bytes(written), "a.json") == written
    assert written.owner == "Labør (Org)"
    assert lab().owner == "Lab 1"


def test_the_file_of_a_key_has_the_digits_of_its_id() -> None:
    assert file_name("ed25519:0123456789abcdef0123456789abcdef") == (
        "0123456789abcdef0123456789abcdef.json"
    )


def test_times_are_written_in_utc_and_whole_seconds() -> None:
    local = AT.replace(microsecond=999_999).astimezone(timezone(timedelta(hours=2)))
    assert lab(not_before=local).not_before == "2026-03-04T05:06:07Z"


def test_the_signature_is_over_all_but_itself() -> None:
    assert lab().to_json() == signed(lab().to_json())


def test_a_registration_in_a_dsse_envelope_verifies_with_stock_securesystemslib() -> None:
    registration = lab()
    value = registration.to_json()
    body = canonical_bytes({k: v for k, v in value.items() if k not in {"signature", "revoked"}})
    envelope = Envelope.from_dict(
        {
            "payload": base64.b64encode(body).decode(),
            "payloadType": KEY_TYPE,
            "signatures": [
                {
                    "keyid": registration.keyid,
                    "sig": base64.b64encode(bytes.fromhex(registration.signature)).decode(),
                }
            ],
        }
    )
    key = SSlibKey(registration.keyid, "ed25519", "ed25519", {"public": registration.public_key})
    assert set(envelope.verify([key], 1)) == {registration.keyid}


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Another"},
        {"organisation": "Another"},
        {"not_before": "2026-01-01T00:00:00Z"},
        {"not_after": "2027-01-01T00:00:00Z"},
        {"successor": SECOND},
        {"follows": SECOND},
    ],
    ids=lambda change: next(iter(change)),
)
def test_f18_what_was_changed_after_signing_is_refused(change: dict[str, Any]) -> None:
    assert "file.json: signature: does not fit" in refusal(document(**change))
    assert parse(json.dumps(signed(document(**change))).encode(), "file.json")


def test_nobody_registers_a_key_that_they_do_not_hold() -> None:
    assert "signature: does not fit" in refusal(signed(document(), seed=2))


def test_f18_a_signature_of_a_run_registers_nothing() -> None:
    assert "signature: does not fit" in refusal(signed(document(), payload_type=PAYLOAD_TYPE))


def test_a_successor_is_named_by_the_key_itself_and_by_no_other() -> None:
    assert with_successor(lab(), SECOND, a_key(1)).successor == SECOND
    with pytest.raises(InputError, match="signed with another key"):
        with_successor(lab(), SECOND, a_key(2))


def test_f21_a_key_of_small_order_is_refused_although_its_signature_fits() -> None:
    identity = (1).to_bytes(32, "little")
    forged = identity + bytes(32)
    value = document(keyid=key_id(identity), public_key=identity.hex(), signature=forged.hex())
    body = {name: item for name, item in value.items() if name not in {"signature", "revoked"}}
    # The library below us accepts it: this line states what the refusal is for.
    Ed25519PublicKey.from_public_bytes(identity).verify(
        forged, pae(KEY_TYPE, canonical_bytes(body))
    )
    assert "public_key: is a key of small order" in refusal(value)


def test_a_bad_id_and_a_bad_signature_are_told_together() -> None:
    told = refusal(document(keyid=SECOND))
    assert f"keyid: is not the id of the key in public_key; found {SECOND}" in told
    assert "signature: does not fit" in told


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keyid": "ed25519:" + "0" * 31}, "keyid: is not valid"),
        ({"public_key": "00"}, "public_key: is not valid"),
        ({"signature": "00"}, "signature: is not valid"),
        ({"extra": 1}, "extra: is not a field"),
        ({"name": ""}, "name: is not valid"),
        ({"name": "two\nlines"}, "one line"),
        ({"name": "a\u202eb"}, "invisible"),
        ({"name": "hf_abcdefghijklmnopqrst"}, "secret"),
        ({"organisation": ""}, "organisation: is not valid"),
        ({"not_before": "2026-03-04"}, "not_before: is not valid"),
        ({"not_before": "2026-03-04T05:06:07+00:00"}, "not_before: is not valid"),
        ({"not_before": "2026-02-30T00:00:00Z"}, "a date that the calendar has"),
        (
            {"not_before": "2026-03-04T00:00:00Z", "not_after": "2026-03-04T00:00:00Z"},
            "not_after later than not_before",
        ),
        ({"revoked": {"reason": "lost"}}, "revoked: is in a file of its own"),
        ({"key_schema": "tokenwatt/key/2"}, "keys add NAME"),
        ({"key_schema": None}, "keys add NAME"),
    ],
)
def test_what_is_not_of_the_schema_is_refused_however_well_it_is_signed(
    change: dict[str, Any], message: str
) -> None:
    told = refusal(signed(document(**change)) | change)
    assert message in told
    assert "file.json" in told


def test_a_registration_from_before_keys_said_what_they_follow_is_read_as_it_was() -> None:
    value = document()
    assert not {"follows", "revoked"} & value.keys()
    assert parse(json.dumps(value | {"revoked": None}).encode(), "a.json").follows is None
    follower = lab(follows=SECOND)
    assert parse(to_bytes(follower), "a.json").follows == SECOND


@pytest.mark.parametrize("field", sorted({*Registration.model_fields} - {"follows", "revoked"}))
def test_no_field_may_be_left_out(field: str) -> None:
    value = document()
    del value[field]
    assert field in refusal(value)


@pytest.mark.parametrize(
    "data",
    [b"", b"[", b"[]", b"null", b'{"name": "a", "name": "b"}', b" " * 20_000, b"\xff"],
)
def test_what_is_no_strict_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(InputError, match=r"a\.json"):
        parse(data, "a.json")


@given(st.binary(max_size=400))
def test_whatever_bytes_there_are_only_ours_is_raised(data: bytes) -> None:
    with pytest.raises(InputError):
        parse(data, "a.json")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=40).map(bytes.hex),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("at"), inner, max_size=1),
    max_leaves=4,
)


@given(st.sampled_from([*Registration.model_fields, "other"]), VALUES)
def test_a_field_with_any_other_value_is_refused(field: str, value: Any) -> None:
    if value != (lab().to_json() | {"follows": None, "revoked": None}).get(field, "nothing"):
        refusal(document(**{field: value}))


WRITTEN = lab(organisation="Org", not_before=AT)


@given(st.integers(0, 8 * len(to_bytes(WRITTEN)) - 1))
def test_a_flipped_bit_is_refused_or_changes_nothing(position: int) -> None:
    changed = bytearray(to_bytes(WRITTEN))
    changed[position // 8] ^= 1 << position % 8
    try:
        read = parse(bytes(changed), "a.json")
    except InputError:
        return
    assert read == WRITTEN


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 400, "a\u202eb", "e\u0301", "\ud800"])
def test_a_name_that_the_loader_would_refuse_is_not_registered(name: str) -> None:
    with pytest.raises(InputError):
        lab(name=name)


def test_a_key_that_would_end_before_it_begins_is_not_registered() -> None:
    with pytest.raises(InputError, match="later than not_before"):
        lab(not_before=AT, not_after=AT - YEAR)


def test_a_revocation_is_of_one_registration_by_one_key_in_these_words() -> None:
    registration = revoked_key(lab(), at=AT, reason="lost", private_key=a_key(2))
    revoked = registration.revoked
    assert revoked is not None
    assert (revoked.at, revoked.reason, revoked.by) == ("2026-03-04T05:06:07Z", "lost", SECOND)
    assert (revoked.keyid, revoked.registration) == (lab().keyid, lab().digest)
    second = a_key(2).public_key().public_bytes_raw().hex()
    assert is_revocation_of(revoked, registration.keyid, second)
    assert not is_revocation_of(revoked, SECOND, second)
    assert not is_revocation_of(revoked, registration.keyid, registration.public_key)
    for change in (
        {"at": "2026-03-04T05:06:08Z"},
        {"reason": "stolen"},
        {"by": "ed25519:0"},
        {"registration": "0" * 64},
    ):
        other = revoked.model_copy(update=change)
        assert not is_revocation_of(other, registration.keyid, second)


def test_a_revocation_leaves_the_registration_as_it_was_signed() -> None:
    registration = revoked_key(lab(), at=AT, reason="lost", private_key=a_key(2))
    assert to_bytes(registration) == to_bytes(lab())
    assert registration.revoked is not None
    data = revocation_bytes(registration.revoked)
    assert parse_revocation(data, "a.json") == registration.revoked


@pytest.mark.parametrize("reason", ["", "two\nlines", "a\u202eb", "\udcff"])
def test_a_reason_that_the_loader_would_refuse_is_not_signed(reason: str) -> None:
    with pytest.raises(InputError, match="reason"):
        revoked_key(lab(), at=AT, reason=reason, private_key=a_key())
