from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.runs import HELD, small_spec, small_spec_dict
from tokenwatt_site.canonical import canonical_bytes, load_json, sha256_hex
from tokenwatt_site.errors import InputError
from tokenwatt_site.run import (
    BoardClaim,
    ClaimsOnlyRecord,
    GateClaim,
    LongRunClaim,
    MetricClaim,
    Run,
    signed_bytes,
)

NO_GATE = GateClaim(outcome="none", text="no accuracy gate was asked for")


def document(**changes: Any) -> dict[str, Any]:
    """A run as it is written, with nothing measured."""
    spec = small_spec()
    return {
        "run_schema": "tokenwatt/run/1",
        "simulated": True,
        "status": "complete",
        "spec": spec.to_json(),
        "configuration": spec.configuration_id,
        "conditions": {
            "started": "2026-12-01T12:00:00.000000Z",
            "ended": "2026-12-01T12:01:00.000000Z",
            "platform": "Linux",
            "processors": 2,
            "python": "3.11.7",
            "tool_version": "0.1.0",
            "board_uuids": [],
            "read_back": [],
            "stamps": "user space",
            "self_test": HELD.to_json(),
        },
        "claims": {
            "slo_met": False,
            "trials": [],
            "repeats": [],
            "metrics": [
                {
                    "key": "goodput",
                    "label": "SLO goodput",
                    "value": 2047.25,
                    "repeats": [2047.25],
                    "low": None,
                    "high": None,
                    "new_launch_low": None,
                    "new_launch_high": None,
                    "reason": None,
                }
            ],
            "distributions": [],
            "boards": [],
            "outcomes": [],
            "accuracy": [],
            "gate": NO_GATE.to_json(),
            "under_load": [],
            "long_run": LongRunClaim(outcome="none", text="no model").to_json(),
            "not_covered": [],
        },
        "evidence": [],
        "journal_head": "0" * 64,
        "signatures": [],
        **changes,
    }


def test_a_run_comes_back_from_its_own_json() -> None:
    run = Run.model_validate_json(canonical_bytes(document()))
    assert run.to_json() == document()
    assert Run.model_validate_json(canonical_bytes(run.to_json())) == run


def test_the_run_id_covers_everything_but_the_signatures() -> None:
    signature = {
        "keyid": "ed25519:" + "0" * 32,
        "public_key": "1" * 64,
        "sig": "2" * 128,
    }
    bare = Run.model_validate_json(canonical_bytes(document()))
    signed = Run.model_validate_json(canonical_bytes(document(signatures=[signature])))
    assert bare.run_id == signed.run_id == sha256_hex(signed_bytes(document()))
    assert bare.signed_bytes() == signed_bytes(document(signatures=[signature]))
    assert b"signatures" not in bare.signed_bytes()


@given(st.sampled_from(["simulated", "status", "configuration", "journal_head"]))
def test_any_other_field_changes_the_run_id(field: str) -> None:
    other = {
        "simulated": False,
        "status": "interrupted",
        "configuration": "x",
        "journal_head": "1" * 64,
    }
    changed = document(**{field: other[field]})
    assert sha256_hex(signed_bytes(changed)) != sha256_hex(signed_bytes(document()))


def test_a_run_has_at_most_one_signature() -> None:
    one = {"keyid": "ed25519:" + "0" * 32, "public_key": "1" * 64, "sig": "2" * 128}
    with pytest.raises(ValidationError):
        Run.model_validate_json(canonical_bytes(document(signatures=[one, one])))


BAD_RUNS: dict[str, dict[str, Any]] = {
    "other_schema": {"run_schema": "tokenwatt/run/2"},
    "unknown_field": {"more": 1},
    "status": {"status": "done"},
    "simulated_as_number": {"simulated": 1},
    "head": {"journal_head": "x"},
    "keyid": {"signatures": [{"keyid": "rsa:1", "public_key": "1" * 64, "sig": "2" * 128}]},
    "upper_case_sig": {
        "signatures": [
            {"keyid": "ed25519:" + "0" * 32, "public_key": "1" * 64, "sig": "A" * 128},
        ]
    },
    "spec": {"spec": small_spec_dict(setup__driver="")},
    "evidence_outside": {
        "evidence": [{"role": "r", "path": "p", "sha256": "../x", "bytes": 1, "lines": 1}]
    },
    "evidence_negative": {
        "evidence": [{"role": "r", "path": "p", "sha256": "0" * 64, "bytes": -1, "lines": 1}]
    },
}


@pytest.mark.parametrize("changes", BAD_RUNS.values(), ids=BAD_RUNS)
def test_a_run_of_another_form_does_not_exist(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Run.model_validate_json(canonical_bytes(document(**changes)))


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_f26_a_flipped_byte_is_no_run_or_another_run(at: int, flip: int) -> None:
    raw = bytearray(signed_bytes(document()))
    raw[at % len(raw)] ^= flip
    try:
        value = load_json(bytes(raw), source="x")
        changed = canonical_bytes(value)
    except InputError:
        return
    assert sha256_hex(changed) != sha256_hex(signed_bytes(document()))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_is_no_claim(value: float) -> None:
    with pytest.raises(ValidationError):
        MetricClaim(key="mbu", label="MBU", value=value, repeats=())
    with pytest.raises(ValidationError):
        MetricClaim(key="mbu", label="MBU", value=None, repeats=(value,))


def test_a_claim_is_found_by_its_key() -> None:
    claims = Run.model_validate_json(canonical_bytes(document())).claims
    assert claims.metric("goodput").value == 2047.25
    with pytest.raises(KeyError):
        claims.metric("mbu")


def test_watts_and_joules_of_each_board_are_numbers_that_are_recomputed() -> None:
    claims = Run.model_validate_json(canonical_bytes(document())).claims
    board = BoardClaim(
        repeat=1,
        uuid="GPU-0",
        name="Toy",
        energy_j=1200.0,
        mean_power_w=300.0,
        limit_w=400.0,
        sm_mhz=None,
        memory_mhz=None,
        celsius=None,
        held_back=(("power limit", 0.5),),
    )
    more = claims.model_copy(update={"boards": (board,)})
    assert more.numbers == claims.numbers + 2
    assert type(more).model_validate_json(canonical_bytes(more.to_json())) == more


RECORD: dict[str, Any] = {
    "record_schema": "tokenwatt/claims-only/1",
    "id": "example",
    "title": "An example",
    "published": "2026-10-27",
    "source": "a page",
    "column": "one",
    "summary": "What it says.\nIn two lines.",
    "results_note": "Each value is the median of 2 runs.",
    "charts": [],
    "numbers_note": "note",
    "numbers": [{"metric": "MBU", "text": "61%"}],
    "setup_note": "note",
    "setup": [],
    "not_covered_note": "note",
    "not_covered": ["power"],
    "reproduce_note": "note",
    "reproduce": ["run it"],
    "our_notes": [],
}


@pytest.mark.parametrize(
    ("changes", "valid"),
    [
        ({}, True),
        ({"id": "../../x"}, False),
        ({"id": "a%2fb"}, False),
        ({"id": "/etc/x"}, False),
        ({"id": ".git"}, False),
        ({"id": "x" * 65}, False),
        ({"published": "yesterday"}, False),
        ({"title": "two\nlines"}, False),
        ({"summary": "x" * 4001}, False),
        ({"title": "x" * 100_000}, False),
        ({"numbers": [{"metric": "m", "text": "t"}] * 61}, False),
    ],
)
def test_f9_a_quoted_record_is_bounded_and_its_id_is_plain(
    changes: dict[str, Any], valid: bool
) -> None:
    raw = json.dumps({**RECORD, **changes})
    if valid:
        assert ClaimsOnlyRecord.model_validate_json(raw).numbers[0].text == "61%"
    else:
        with pytest.raises(ValidationError):
            ClaimsOnlyRecord.model_validate_json(raw)
