"""A commitment: which run it is of, and what of it is refused."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

from tests.support.runs import RunBuilder, a_key
from tokenwatt_site.canonical import canonical_bytes, sha256_hex
from tokenwatt_site.errors import InputError
from tokenwatt_site.journal import GENESIS, Entry
from tokenwatt_site.trust.commitment import (
    COMMITMENT_TYPE,
    Committed,
    check_belongs,
    commit,
    is_commitment,
    parse,
)
from tokenwatt_site.trust.signature import key_id, pae

KEY = a_key()
KEYID = key_id(KEY.public_key().public_bytes_raw())
NONCE = "0f" * 32


def an_opening(**changes: Any) -> Entry:
    event, data = RunBuilder().journal_plan()[0]
    at = "2026-01-01T00:00:00.000000Z"
    return Entry(seq=0, at=at, event=event, prev=GENESIS, data=data | {"nonce": NONCE} | changes)


DATA = commit(an_opening(), KEY)


def read(data: bytes = DATA) -> Committed:
    return parse(data, "x.commit.json")


def changed(
    change: Callable[[dict[str, Any]], None], *, anew: bool = True, of: Entry | None = None
) -> bytes:
    """A commitment that tells something else, signed anew or with the signature that it had."""
    envelope = json.loads(DATA if of is None else commit(of, KEY))
    payload = json.loads(b64decode(envelope["payload"]))
    change(payload)
    body = canonical_bytes(payload)
    envelope["payload"] = b64encode(body).decode()
    if anew:
        sig = KEY.sign(pae(COMMITMENT_TYPE, body))
        envelope["signatures"][0]["sig"] = b64encode(sig).decode()
    return canonical_bytes(envelope)


def test_it_tells_the_plan_before_and_the_nonce_by_its_digest_alone() -> None:
    told = read().commitment
    assert told.opening["spec"] == RunBuilder().spec.to_json()
    assert told.opening["configuration"] == RunBuilder().spec.configuration_id
    assert told.opening["seed_rule"].startswith("HMAC-SHA256(nonce")
    assert told.opening["nonce_sha256"] == sha256_hex(bytes.fromhex(NONCE))
    assert NONCE.encode() not in b64decode(json.loads(DATA)["payload"])


def test_it_belongs_to_the_run_whose_journal_begins_so_under_the_same_key() -> None:
    check_belongs(read(), an_opening(), KEYID)


@pytest.mark.parametrize(
    ("opening", "keyid", "field"),
    [
        (an_opening(nonce="1f" * 32), KEYID, "journal_head"),
        (an_opening(publisher_nonce="ab" * 32), KEYID, "journal_head"),
        (an_opening().model_copy(update={"at": "2026-01-01T00:00:01.000000Z"}), KEYID, "head"),
        (an_opening(), "ed25519:" + "0" * 32, "keyid"),
    ],
    ids=["another nonce", "another publisher's nonce", "another time", "another key"],
)
def test_t3_it_belongs_to_no_other_run(opening: Entry, keyid: str, field: str) -> None:
    with pytest.raises(InputError, match=field):
        check_belongs(read(), opening, keyid)


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told["opening"].update(configuration="another"),
        lambda told: told["opening"].update(nonce_sha256="0" * 64),
        lambda told: told.update(at="2025-01-01T00:00:00.000000Z"),
    ],
)
def test_t3_it_may_not_tell_another_plan_or_time_than_its_digest_is_of(
    change: Callable[[dict[str, Any]], None],
) -> None:
    with pytest.raises(InputError, match="is not what the run's journal begins with"):
        check_belongs(read(changed(change)), an_opening(), KEYID)


def test_stock_securesystemslib_verifies_it() -> None:
    value = json.loads(DATA)
    keyid = value["signatures"][0]["keyid"]
    public = {"public": KEY.public_key().public_bytes_raw().hex()}
    Envelope.from_dict(value).verify([SSlibKey(keyid, "ed25519", "ed25519", public)], 1)


def test_f18_a_signature_of_another_payload_type_is_refused() -> None:
    envelope = json.loads(DATA)
    body = b64decode(envelope["payload"])
    other = KEY.sign(pae("application/vnd.tokenwatt.run.v1+json", body))
    envelope["signatures"][0]["sig"] = b64encode(other).decode()
    with pytest.raises(InputError, match="does not fit"):
        read(canonical_bytes(envelope))


def test_f18_a_signature_on_a_changed_body_is_refused() -> None:
    with pytest.raises(InputError, match="does not fit"):
        read(changed(lambda told: told.update(at="2026-01-01T00:00:01Z"), anew=False))


def test_f21_a_key_of_small_order_is_refused() -> None:
    identity = (1).to_bytes(32, "little")

    def change(told: dict[str, Any]) -> None:
        told["public_key"] = identity.hex()

    envelope = json.loads(changed(change))
    envelope["signatures"][0]["keyid"] = key_id(identity)
    with pytest.raises(InputError, match="small order"):
        read(canonical_bytes(envelope))


def broken(**changes: Any) -> bytes:
    return canonical_bytes(json.loads(DATA) | changes)


BROKEN = {
    "no JSON": (b"{", "not valid JSON"),
    "another type": (broken(payloadType="application/json"), "payloadType"),
    "a field more": (broken(x=1), "not a field of the schema"),
    "no signature": (broken(signatures=[]), "signatures"),
    "two signatures": (broken(signatures=json.loads(DATA)["signatures"] * 2), "signatures"),
    "no time": (changed(lambda told: told.update(at="2026-02-30T00:00:00Z")), "at: is not valid"),
    "no base64": (broken(payload="*"), "is not base64"),
    "spare bits": (broken(payload="e31="), "is not base64"),
    "a payload of spaces": (broken(payload=b64encode(b'{ "a":1}').decode()), "canonical form"),
    "a payload of keys twice": (broken(payload=b64encode(b'{"a":1,"a":1}').decode()), "twice"),
    "another key's id": (
        broken(signatures=[{**json.loads(DATA)["signatures"][0], "keyid": "ed25519:" + "0" * 32}]),
        "is not the id of the key",
    ),
    "too large": (b" " * (1 << 21), "too large"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_could_be_read_in_two_ways_is_refused(case: str) -> None:
    data, words = BROKEN[case]
    with pytest.raises(InputError, match=words) as refused:
        read(data)
    assert all("x.commit.json" in (problem.file or "") for problem in refused.value.problems)


@given(st.integers(0, len(DATA) - 2), st.integers(1, 255))
def test_any_changed_byte_is_refused(place: int, by: int) -> None:
    data = bytearray(DATA)
    data[place] ^= by
    with pytest.raises(InputError):
        read(bytes(data))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_by_name(data: bytes) -> None:
    with pytest.raises(InputError):
        read(data)


def test_a_document_says_itself_that_it_is_a_commitment() -> None:
    assert is_commitment(json.loads(DATA))
    assert not is_commitment({"run_schema": "x"})
    assert not is_commitment([])
