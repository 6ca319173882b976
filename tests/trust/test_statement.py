"""Tests of trust.statement."""

from __future__ import annotations

import base64
import contextlib
import json
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError as StockRefusal
from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]  # no __all__

from tests.support.runs import a_key
from tokenwatt_site.canonical import canonical_bytes
from tokenwatt_site.errors import InputError
from tokenwatt_site.trust.predicates import Kind, Reproduced
from tokenwatt_site.trust.signature import key_id, pae
from tokenwatt_site.trust.statement import PAYLOAD_TYPE, parse, sign

RUN, OTHER = "a" * 64, "b" * 64
MADE = "2026-02-01T10:00:00Z"
SAID: dict[Kind, dict[str, Any]] = {
    "recomputed": {"level": "model", "numbers": 97, "tool_version": "0.1"},
    "reproduced": {"run": OTHER, "outcome": "reproduced"},
    "countersigned": {},
    "disputed": {"reason": "too fast", "url": "https://example.org/issues/1"},
    "settled": {"dispute": OTHER, "reason": "it was the cable"},
    "withdrawn": {"reason": "wrong driver"},
    "superseded": {"by": OTHER, "reason": "more launches"},
    "seen": {"statement": OTHER},
}
KINDS = list(SAID)


def line(
    kind: Kind = "disputed",
    *,
    run_id: str = RUN,
    seed: int = 1,
    made: str = MADE,
    **said: Any,
) -> bytes:
    return sign(kind, run_id, SAID[kind] | said, a_key(seed), made)


def opened(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return envelope and statement of a line."""
    envelope = json.loads(data)
    return envelope, json.loads(base64.b64decode(envelope["payload"]))


def sealed(
    document: Any,
    key: Ed25519PrivateKey | None = None,
    payload_type: str = PAYLOAD_TYPE,
    **changes: Any,
) -> bytes:
    """Return a line whose signature fits, around any document: one who lies."""
    key = key or a_key()
    payload = document if isinstance(document, bytes) else canonical_bytes(document)
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [
            {
                "keyid": key_id(key.public_key().public_bytes_raw()),
                "sig": base64.b64encode(key.sign(pae(payload_type, payload))).decode(),
            }
        ],
    }
    return canonical_bytes(envelope | changes) + b"\n"


def refused(data: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        parse(data, "x.att.jsonl")
    assert "x.att.jsonl" in str(caught.value)


@pytest.mark.parametrize("reason", ["\udcff too fast", "too\ud800fast", "a\u202eb"])
def test_a_reason_that_is_no_text_is_named(reason: str) -> None:
    with pytest.raises(InputError, match=r"predicate\.reason: holds the character U\+"):
        line(reason=reason)


def test_a_payload_that_is_not_utf_8_is_named() -> None:
    _, document = opened(line())
    payload = canonical_bytes(document).replace(b"too fast", b"too \xffast")
    refused(sealed(payload), "payload: is not UTF-8 at byte")


# --- what is signed


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_signed_is_read_as_it_was_said(kind: Kind) -> None:
    signed = parse(line(kind), "x")
    assert (signed.kind, signed.run_id) == (kind, RUN)
    assert signed.keyid == key_id(a_key().public_key().public_bytes_raw())
    assert {k: v for k, v in signed.said.to_json().items() if k in SAID[kind]} == SAID[kind]
    assert signed.made.isoformat() == "2026-02-01T10:00:00+00:00"
    assert signed.line + b"\n" == line(kind)
    assert signed.reason == SAID[kind].get("reason")


def test_a_statement_is_named_by_what_it_says_and_who_says_it_whenever() -> None:
    first = parse(line(), "x")
    said = {k: v for k, v in first.said.to_json().items() if k != "made"}
    assert first.digest == sha256(canonical_bytes(["disputed", RUN, said])).hexdigest()
    assert parse(line(made="2026-01-01T00:00:00Z"), "x").digest == first.digest
    others = (line("withdrawn"), line(reason="too hot"), line(run_id=OTHER), line(seed=2))
    assert len({first.digest, *(parse(other, "x").digest for other in others)}) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_verifies_with_stock_securesystemslib(kind: Kind) -> None:
    public = a_key().public_key().public_bytes_raw()
    ours = SSlibKey(key_id(public), "ed25519", "ed25519", {"public": public.hex()})
    envelope = Envelope.from_dict(json.loads(line(kind)))
    assert set(envelope.verify([ours], 1)) == {ours.keyid}
    envelope.payload += b" "
    with pytest.raises(StockRefusal):
        envelope.verify([ours], 1)


def test_the_payload_is_an_in_toto_statement_about_the_run() -> None:
    _, document = opened(line("reproduced"))
    assert document == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": f"run {RUN[:12]}", "digest": {"sha256": RUN}}],
        "predicateType": "urn:tokenwatt:reproduced:1",
        "predicate": {
            "made": MADE,
            "outcome": "reproduced",
            "public_key": a_key().public_key().public_bytes_raw().hex(),
            "run": OTHER,
        },
    }


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("disputed", {"reason": ""}, "reason"),
        ("disputed", {"reason": "two\nlines"}, "one line"),
        ("disputed", {"reason": "x" * 301}, "reason"),
        ("disputed", {"reason": "see \u202egnp.exe"}, "invisible"),
        ("disputed", {"reason": "token hf_abcdefghijklmnopqrstuv"}, "secret"),
        ("disputed", {"url": "http://example.org/"}, "url"),
        ("disputed", {"url": "javascript:alert(1)"}, "url"),
        ("disputed", {"url": "https://user:secret@example.org/"}, "url"),
        ("disputed", {"url": "https://example.org/ x"}, "url"),
        ("disputed", {"url": 'https://example.org/"onclick="x'}, "url"),
        ("disputed", {"url": "https://\u0435xample.org/"}, "url"),
        ("disputed", {"made": "2026-02-30T10:00:00Z"}, "calendar"),
        ("disputed", {"made": "2026-02-01T10:00:00+01:00"}, "made"),
        ("superseded", {"by": "runs/x.json"}, "by"),
        ("settled", {"dispute": "all"}, "dispute"),
        ("settled", {"reason": ""}, "reason"),
        ("reproduced", {"outcome": "not comparable"}, "outcome"),
        ("recomputed", {"level": "some"}, "level"),
        ("recomputed", {"numbers": -1}, "numbers"),
        ("countersigned", {"reason": "for fun"}, "reason"),
    ],
)
def test_f17_what_may_not_be_published_is_never_signed(
    kind: Kind, changes: dict[str, Any], words: str
) -> None:
    made = changes.pop("made", MADE)
    with pytest.raises(InputError, match=words):
        line(kind, made=made, **changes)


# --- what is refused


@given(st.integers(0, 8 * (len(line()) - 1) - 1))
def test_any_flipped_bit_of_a_line_is_refused(position: int) -> None:
    changed = bytearray(line())
    changed[position // 8] ^= 1 << position % 8
    with pytest.raises(InputError):
        parse(bytes(changed), "x")


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from([RUN, MADE, PAYLOAD_TYPE, "urn:tokenwatt:withdrawn:1", "AA==", "AB=="]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_as_input(data: bytes) -> None:
    for attempt in (data, data + b"\n", line() + data, data + line()):
        with contextlib.suppress(InputError):
            parse(attempt, "x")


@settings(max_examples=30)  # each is drawn as a whole document, which takes its time
@given(ANYTHING)
def test_any_document_that_somebody_signed_is_read_or_refused_as_input(document: Any) -> None:
    try:
        payload = json.dumps(document).encode()
    except UnicodeEncodeError:
        return
    with pytest.raises(InputError):
        parse(sealed(payload), "x")


@given(st.sampled_from(KINDS), st.data())
def test_any_value_in_any_field_is_read_or_refused_as_input(kind: Kind, data: Any) -> None:
    _, document = opened(line(kind))
    place: Any = data.draw(
        st.sampled_from(
            [document, document["subject"][0], document["subject"][0]["digest"]]
            + [document["predicate"]] * 3
        )
    )
    place[data.draw(st.sampled_from([*place, "extra"]))] = data.draw(ANYTHING)
    try:
        payload = json.dumps(document, sort_keys=True, separators=(",", ":"))
        signed = parse(sealed(payload.encode()), "x")
    except InputError:
        return
    # What is accepted is what its own kind says, word for word.
    assert signed.said.to_json() == document["predicate"]
    assert document["predicateType"] == f"urn:tokenwatt:{signed.kind}:1"


def test_f18_a_statement_signed_as_another_payload_type_is_refused() -> None:
    _, document = opened(line())
    refused(sealed(document, payload_type="application/vnd.tokenwatt.run.v1+json"), "does not fit")


def test_f18_a_signature_copied_to_another_statement_is_refused() -> None:
    ours, _ = opened(line())
    theirs, _ = opened(line(reason="another"))
    copied = ours | {"signatures": theirs["signatures"]}
    refused(canonical_bytes(copied) + b"\n", "does not fit")


def test_f21_a_statement_under_a_key_of_small_order_is_refused() -> None:
    identity = (1).to_bytes(32, "little")
    _, document = opened(line())
    document["predicate"]["public_key"] = identity.hex()
    forged = base64.b64encode(identity + bytes(32)).decode()
    signatures = [{"keyid": key_id(identity), "sig": forged}]
    refused(sealed(document, signatures=signatures), "small order")


def test_a_key_id_that_is_not_of_the_key_inside_is_refused() -> None:
    _, document = opened(line())
    refused(
        sealed(document, a_key(2)),
        "signatures.0.keyid: is not the id of the key in predicate.public_key",
    )


@pytest.mark.parametrize("count", [0, 2])
def test_a_line_has_one_signature(count: int) -> None:
    envelope, _ = opened(line())
    refused(
        canonical_bytes(envelope | {"signatures": envelope["signatures"] * count}) + b"\n",
        "signatures",
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"_type": "https://in-toto.io/Statement/v0.1"}, "_type"),
        ({"predicateType": "urn:tokenwatt:disputed:2"}, "this version"),
        ({"predicateType": "https://slsa.dev/provenance/v1"}, "this version"),
        ({"subject": []}, "subject"),
        ({"subject": [{"name": "x", "digest": {"sha256": RUN}}] * 2}, "subject"),
        ({"subject": [{"name": "x", "digest": {"sha256": RUN, "sha1": "0" * 40}}]}, "sha1"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_statement_of_another_shape_is_refused(changes: dict[str, Any], words: str) -> None:
    _, document = opened(line())
    refused(sealed(document | changes), words)


def test_a_layout_that_is_not_canonical_is_refused() -> None:
    envelope, document = opened(line())
    refused(json.dumps(envelope).encode() + b"\n", "the line is not canonical")
    refused(sealed(json.dumps(document).encode()), "the payload is not canonical")


def test_f1_a_key_twice_in_the_payload_is_refused() -> None:
    _, document = opened(line())
    twice = canonical_bytes(document).replace(b'"reason":', b'"reason":"innocent","reason":')
    refused(sealed(twice), "twice")


def test_base64_with_bits_left_over_is_refused() -> None:
    envelope, _ = opened(line())
    sig = envelope["signatures"][0]["sig"]
    assert sig.endswith("==")
    # The last letter before the padding has four bits that decode to nothing.
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    other = sig[:-3] + letters[letters.index(sig[-3]) ^ 1] + "=="
    assert base64.b64decode(other) == base64.b64decode(sig)
    envelope["signatures"][0]["sig"] = other
    refused(canonical_bytes(envelope) + b"\n", "is not base64")


def test_f23_a_long_line_is_refused() -> None:
    refused(b'{"payload":"' + b"A" * 9000 + b'"}\n', "too large")


def test_two_lines_are_not_one() -> None:
    refused(line() + line("withdrawn"), "not valid JSON")


def test_a_line_is_read_without_its_end_too() -> None:
    assert parse(line()[:-1], "x") == parse(line(), "x")


def test_a_reproduction_names_the_other_run() -> None:
    signed = parse(line("reproduced"), "x")
    assert isinstance(signed.said, Reproduced)
    assert (signed.said.run, signed.said.outcome) == (OTHER, "reproduced")
