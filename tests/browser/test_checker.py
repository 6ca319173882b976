"""Runs verified in JavaScript against Python: the same checks fail, the same numbers come out."""

from __future__ import annotations

import base64
import json
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from playwright.sync_api import Browser, Page

from tests.browser.checker import VERIFY, checked, failed_at, open_checker
from tests.browser.conftest import LONG
from tests.claims.test_derive import evidence_of
from tests.conftest import ROOT
from tests.pages.conftest import FaultyEngine, a_power_log, board_spec
from tests.support.runs import (
    ModelEngine,
    RunBuilder,
    ToyEngine,
    a_key,
    conversation_spec,
    gpu_spec,
    keyring_of,
    played_power,
    replica_spec,
    small_spec,
    spec_in_mode,
    write_signed,
)
from tests.trust.test_played import of_trace
from tests.trust.test_verify import (
    ABSURD_JOURNALS,
    LIES_ABOUT_CLAIMS,
    LIES_ABOUT_CONDITIONS,
    LYING_JOURNALS,
    LYING_REQUESTS,
    ResumedRunBuilder,
    Talkative,
    alter,
    altered,
    document,
    evidence_file,
    gunzip,
    gzip,
    put,
    scaled,
    two_repeats,
)
from tokenwatt_site.claims.derive import derive
from tokenwatt_site.draws import gap_table, length_table
from tokenwatt_site.engine_model.document import encode_model_fit
from tokenwatt_site.errors import VerificationError
from tokenwatt_site.evidence.power import PowerLog
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.evidence.store import store
from tokenwatt_site.journal import GENESIS, Entry
from tokenwatt_site.lengths import Fixed, Lognormal
from tokenwatt_site.run import PAYLOAD_TYPE, Claims, MetricClaim, signed_bytes
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.signature import key_id, pae
from tokenwatt_site.trust.verify import verify_run
from tokenwatt_site.windows import WINDOW_DRAW, windows_of
from tokenwatt_site.workload import NAMED

pytestmark = pytest.mark.browser

Edit = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checker")


@pytest.fixture(scope="module")
def page(chromium: Browser, folder: Path) -> Iterator[Page]:
    opened = open_checker(chromium, folder, keyring_of(folder / "keys", a_key(2)))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return RunBuilder().write(tmp_path_factory.mktemp("pristine"))


def failing_check(path: Path) -> int:
    """Return the number of the check by which Python refuses a run."""
    with pytest.raises(VerificationError) as caught:
        verify_run(path, root=path.parent, keyring=Keyring())
    return caught.value.check


def near(value: float | None, relative: float) -> Any:
    return None if value is None else pytest.approx(value, rel=relative)


def made(report: dict[str, Any]) -> dict[tuple[str, str], float | None]:
    return {(one["key"], one["label"]): one["made"] for one in report["numbers"]}


# --- what Python accepts


def with_power(builder: RunBuilder, **changes: Any) -> RunBuilder:
    return replace(builder, power=played_power(builder, **changes))


def watts_alone(averaging_ns: int) -> PowerLog:
    log = played_power(RunBuilder(spec=gpu_spec()))
    samples = tuple(replace(sample, energy_mj=None) for sample in log.samples)
    return replace(log, samples=samples, averaging_ns=averaging_ns)


class Choppy(ToyEngine):
    """Answers whose end is not seen, whose tokens come at once, or of one token."""

    def serve(self, *args: Any, **named: Any) -> Iterator[Any]:
        for record in super().serve(*args, **named):
            kind = record.row % 7
            if kind == 3:
                yield replace(record, first_tokens=record.output_tokens)
            elif kind == 5:
                yield replace(record, dialled_ns=record.due_ns, connected_ns=record.due_ns + 10_000)
            else:
                yield record


HONEST: dict[str, RunBuilder] = {
    "demo": RunBuilder(),
    "measured, another key": RunBuilder(simulated=False, key=a_key(3)),
    "no failing rate": RunBuilder(rates_urps=(500_000,)),
    "no passing rate": RunBuilder(rates_urps=(60_000_000,)),
    "errors": RunBuilder(engine=FaultyEngine()),
    "tokens at once, connections": RunBuilder(engine=Choppy()),
    "too many tokens": RunBuilder(rates_urps=(500_000,), engine=Talkative()),
    "interrupted and resumed": ResumedRunBuilder(first_trial=2),
    "two repeats": two_repeats(),
    "quick": RunBuilder(spec=spec_in_mode("quick")),
    "full": RunBuilder(spec=spec_in_mode("full")),
    "conversations": RunBuilder(spec=conversation_spec(3, 4, 24)),
    "boards": RunBuilder(spec=board_spec(), power=a_power_log()),
    "boards and idle": with_power(RunBuilder(spec=gpu_spec(), idle_s=60)),
    "boards in three repeats": with_power(
        RunBuilder(
            spec=gpu_spec(protocol__repeats=3, protocol__mode="demo"), idle_s=60, spread=(1, 1.2, 1)
        )
    ),
    "boards above their limit": with_power(RunBuilder(spec=gpu_spec()), load_mw=900_000),
    "boards below their idle": with_power(
        RunBuilder(spec=gpu_spec(), idle_s=60), load_mw=50_000, idle_mw=100_000
    ),
    "watts alone": RunBuilder(spec=gpu_spec(), power=watts_alone(10**8)),
    "watts averaged too long": RunBuilder(spec=gpu_spec(), power=watts_alone(60 * 10**9)),
}


@pytest.mark.parametrize("builder", HONEST.values(), ids=HONEST)
def test_every_number_that_javascript_makes_is_that_of_python(
    page: Page, tmp_path: Path, builder: RunBuilder
) -> None:
    path = builder.write(tmp_path)
    run = verify_run(path, root=tmp_path, keyring=Keyring())
    report = checked(page, path, run_id=run.run_id)
    assert failed_at(report) is None, report["checks"][-1]
    assert [check["outcome"] for check in report["checks"]] == ["passed"] * 10
    assert report["runId"] == run.run_id
    claimed = {(claim.key, claim.label): claim.value for claim in run.claims.metrics}
    for name, value in made(report).items():
        assert value == near(claimed[name], 1e-9), name
    assert {key for key, _ in made(report)} >= {"goodput", "boundary_rate", "ttft", "tpot", "e2e"}
    found = report["made"]
    assert [t["verdict"] for t in found["trials"]] == [t.verdict for t in run.claims.trials]
    assert [t["energy_j"] for t in found["trials"]] == [
        near(t.energy_j, 1e-9) for t in run.claims.trials
    ]
    assert [d["values_ms"] for d in found["distributions"]] == [
        pytest.approx(d.values_ms, rel=1e-12) for d in run.claims.distributions
    ]


def test_the_cases_above_have_numbers_and_reasons_of_every_kind() -> None:
    def energy(name: str) -> list[MetricClaim]:
        builder = HONEST[name]
        claims: Claims = builder_claims(builder)
        return [c for c in claims.metrics if c.key in {"tokens_per_joule", "idle_power"}]

    assert [c.value is None for c in energy("boards and idle")] == [False, False]
    assert energy("watts alone")[0].value is not None
    assert [c.value is None for c in energy("boards in three repeats")] == [False, False]
    for name in ("boards above their limit", "boards below their idle", "watts averaged too long"):
        assert energy(name)[0].value is None, name


def builder_claims(builder: RunBuilder) -> Claims:
    lines = [
        Entry(
            seq=seq, at=f"2026-01-01T00:00:{seq:02}.000000Z", event=event, prev=GENESIS, data=data
        )
        for seq, (event, data) in enumerate(builder.journal_plan())
    ]
    return derive(builder.spec, builder.evidence(lines, builder.requests()))


# --- what Python refuses


@pytest.mark.parametrize("change", LYING_JOURNALS.values(), ids=LYING_JOURNALS)
def test_t2_a_journal_that_does_not_fit_its_run_fails_here_too(
    page: Page, tmp_path: Path, change: Any
) -> None:
    path = RunBuilder(edit_journal=change).write(tmp_path)
    found = failed_at(checked(page, path))
    assert found is not None
    assert found[0] == 7, found


@pytest.mark.parametrize("change", ABSURD_JOURNALS.values(), ids=ABSURD_JOURNALS)
def test_b14_what_is_absurd_fails_here_too(page: Page, tmp_path: Path, change: Any) -> None:
    path = RunBuilder(edit_journal=change).write(tmp_path)
    found = failed_at(checked(page, path))
    assert found is not None
    assert found[0] == failing_check(path), found


@pytest.mark.parametrize(
    "builder", [case[0] for case in LIES_ABOUT_CONDITIONS.values()], ids=LIES_ABOUT_CONDITIONS
)
def test_b17_conditions_that_the_journal_does_not_tell_fail_here_too(
    page: Page, tmp_path: Path, builder: RunBuilder
) -> None:
    path = builder.write(tmp_path)
    found = failed_at(checked(page, path))
    assert found is not None
    assert found[0] == 7, found


@pytest.mark.parametrize("change", LYING_REQUESTS.values(), ids=LYING_REQUESTS)
def test_t5_requests_that_are_not_the_planned_ones_fail_here_too(
    page: Page, tmp_path: Path, change: Any
) -> None:
    path = RunBuilder(edit_requests=change).write(tmp_path)
    found = failed_at(checked(page, path))
    assert found is not None
    assert found[0] == 8, found


ONLY_BUILDER = {"a caveat dropped", "a reason"}
"""Words; they are made by the builder alone, and the page says so."""


@pytest.mark.parametrize("name", LIES_ABOUT_CLAIMS)
def test_t1_claims_that_do_not_follow_fail_here_too(page: Page, tmp_path: Path, name: str) -> None:
    path = RunBuilder(edit_document=LIES_ABOUT_CLAIMS[name]).write(tmp_path)
    found = failed_at(checked(page, path))
    assert (found is None) == (name in ONLY_BUILDER)
    if found is not None:
        assert found[0] == 10


@pytest.mark.parametrize(
    ("factor", "holds"), [(1 + 4e-7, True), (1 + 6e-7, False), (1 - 6e-7, False)]
)
def test_f26_a_claim_is_held_to_the_same_tolerance(
    page: Page, tmp_path: Path, factor: float, holds: bool
) -> None:
    report = checked(page, RunBuilder(edit_document=scaled(factor)).write(tmp_path))
    found = failed_at(report)
    if holds:
        assert found is None
        return
    assert found is not None
    assert found[0] == 10
    assert "SLO goodput.value: claimed" in found[1]
    assert [n["label"] for n in report["numbers"] if n["differs"]] == ["SLO goodput"]


def test_t1_a_failure_that_is_claimed_and_did_not_happen_fails(page: Page, tmp_path: Path) -> None:
    change = put("claims", "trials", 0, "failures", value={"timed_out": 1})
    found = failed_at(checked(page, RunBuilder(edit_document=change).write(tmp_path)))
    assert found is not None
    assert "claims.trials.0.failures" in found[1]


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "ended before its last token": {"end_ns": 0},
    "a negative count": {"events": -1},
    "sent before it was due": {"sent_ns": 0},
    "more cached than prompt": {"cached_tokens": 10**6},
    "a negative uncertainty": {"uncertainty_ns": -1},
    "complete without its tokens": {"output_tokens": 1},
    "more at first than in all": {"first_tokens": 10**6},
    "connected before it was dialled": {"dialled_ns": 10**10, "connected_ns": 10**9},
    "a status of none": {"status": 9},
    "a last token alone": {"first_ns": None},
}


@pytest.mark.parametrize("change", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_t9_a_request_that_cannot_have_been_fails_here_too(
    page: Page, tmp_path: Path, change: dict[str, Any]
) -> None:
    path = RunBuilder(edit_requests=alter(**change)).write(tmp_path)
    found = failed_at(checked(page, path))
    assert found is not None
    assert found[0] == failing_check(path), found


def test_client_processes_that_the_run_does_not_tell_of_fail_here_too(
    page: Page, tmp_path: Path
) -> None:
    edit = altered("trial_end", 1, offset_bounds_ns=[9, 9])
    path = RunBuilder(edit_journal=edit).write(tmp_path)
    found = failed_at(checked(page, path))
    assert found is not None
    assert found[0] == failing_check(path) == 7


def test_what_each_replica_did_is_made_again_and_held_against_the_claims(
    page: Page, tmp_path: Path
) -> None:
    spec = replica_spec(2, protocol__scored=300)
    report = checked(page, RunBuilder(spec=spec).write(tmp_path / "true"))
    claims = derive(spec, evidence_of(RunBuilder(spec=spec))).to_json()
    assert failed_at(report) is None
    assert report["made"]["replicas"] == claims["replicas"]
    assert claims["replicas"][0]["ttft_p99_ms"] is not None
    lie = put("claims", "replicas", 1, "failed", value=3)
    found = failed_at(checked(page, RunBuilder(spec=spec, edit_document=lie).write(tmp_path / "x")))
    assert found is not None
    assert (found[0], "claims.replicas.1.failed" in found[1]) == (10, True)


@pytest.mark.parametrize(
    ("change", "changed"), [({"started": None}, False), ({"started": "x"}, True), (None, True)]
)
def test_a_trial_after_which_a_replica_is_another_is_invalid_here_too(
    page: Page, tmp_path: Path, change: dict[str, Any] | None, changed: bool
) -> None:
    builder = RunBuilder(spec=replica_spec(2))
    (told,) = (d["replicas"] for e, d in builder.journal_plan() if e == "launch")
    after = [told[0], None if change is None else told[1] | change]
    path = replace(builder, edit_journal=altered("trial_end", 1, replicas=after)).write(tmp_path)
    report = checked(page, path)
    assert (failed_at(report) is not None) is changed
    if changed:
        assert report["checks"][-1]["number"] == failing_check(path) == 10


@pytest.mark.parametrize("event", ["launch", "trial_end"])
def test_a_line_that_does_not_tell_of_every_replica_fails_here_too(
    page: Page, tmp_path: Path, event: str
) -> None:
    edit = altered(event, replicas=[None, {}])
    path = RunBuilder(spec=replica_spec(2), edit_journal=edit).write(tmp_path)
    found = failed_at(checked(page, path))
    assert found is not None
    assert found[0] == failing_check(path)


def test_b19_a_trial_that_begins_before_the_one_before_ended_fails(
    page: Page, tmp_path: Path
) -> None:
    edit = altered("trial_end", 1, epoch_ns=10**12)
    path = RunBuilder(edit_journal=edit).write(tmp_path)
    found = failed_at(checked(page, path))
    assert found is not None
    assert found[0] == failing_check(path) == 9


LIES_ABOUT_IDENTITY: dict[str, Edit] = {
    "another configuration id": put("configuration", value="x-000000000000"),
    "another driver": put("spec", "setup", "driver", value="580"),
    "an evidence path outside": put("evidence", 0, "path", value="../../x"),
    "a role twice": put("evidence", 1, "role", value="requests"),
    "a negative size": put("evidence", 0, "bytes", value=-1),
    "another head": put("journal_head", value="1" * 64),
    "no claims": put("claims", value=None),
    "no spec": put("spec", value=None),
}


@pytest.mark.parametrize("change", LIES_ABOUT_IDENTITY.values(), ids=LIES_ABOUT_IDENTITY)
def test_f23_a_signed_document_of_the_wrong_shape_fails(
    page: Page, tmp_path: Path, change: Edit
) -> None:
    path = RunBuilder(edit_document=change).write(tmp_path)
    assert failing_check(path)
    assert failed_at(checked(page, path)) is not None


# --- the signature


def test_a_run_that_another_signed_again_fails(page: Page, pristine: Path) -> None:
    again = signed_again(
        pristine, lambda body: told(raw(a_key(2)), a_key(2).sign(pae(PAYLOAD_TYPE, body)))
    )
    found = failed_at(checked(page, again))
    assert found is not None
    assert found[0] == failing_check(again) == 7
    assert "keyid" in found[1]


def signed_again(path: Path, sign: Callable[[bytes], dict[str, str]]) -> Path:
    """Put another signature on a run, as it is."""
    value = document(path)
    value["signatures"] = [sign(signed_bytes(value))]
    other = path.with_name("signed.json")
    other.write_text(json.dumps(value), encoding="utf-8")
    return other


def told(key: bytes, sig: bytes) -> dict[str, str]:
    return {"keyid": key_id(key), "public_key": key.hex(), "sig": sig.hex()}


P = 2**255 - 19
ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
SMALL = [
    (y | sign << 255).to_bytes(32, "little")
    for y in (0, 1, P - 1, P, P + 1, ORDER_8, P - ORDER_8)
    for sign in (0, 1)
]


@pytest.mark.parametrize("key", SMALL, ids=[key.hex()[:8] for key in SMALL])
def test_f21_a_forgery_under_a_small_order_key_fails(
    page: Page, pristine: Path, key: bytes
) -> None:
    path = signed_again(pristine, lambda _: told(key, (1).to_bytes(32, "little") + bytes(32)))
    found = failed_at(checked(page, path))
    assert found is not None
    assert found[0] == failing_check(path) == 4
    assert "small order" in found[1]


def raw(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


WRONG_SIGNATURES: dict[str, Callable[[bytes], dict[str, str]]] = {
    "f18 another payload type": lambda body: told(
        raw(a_key()), a_key().sign(pae("application/vnd.in-toto+json", body))
    ),
    "no payload type": lambda body: told(raw(a_key()), a_key().sign(body)),
    "f18 of another document": lambda body: told(raw(a_key()), a_key().sign(body + b" ")),
    "another key": lambda body: told(raw(a_key(2)), a_key().sign(body)),
    "a key id of another": lambda body: (
        told(raw(a_key()), a_key().sign(body)) | {"keyid": key_id(raw(a_key(2)))}
    ),
    "no point of the curve": lambda _: told(b"\x02" + bytes(31), bytes(64)),
    "a short signature": lambda _: told(raw(a_key()), bytes(63)),
}


@pytest.mark.parametrize("sign", WRONG_SIGNATURES.values(), ids=WRONG_SIGNATURES)
def test_f18_a_signature_that_is_not_of_this_run_fails(
    page: Page, pristine: Path, sign: Callable[[bytes], dict[str, str]]
) -> None:
    path = signed_again(pristine, sign)
    found = failed_at(checked(page, path))
    assert found is not None
    assert found[0] == failing_check(path) == 4


def test_any_flipped_bit_of_a_run_file_fails_or_is_no_other_document(
    page: Page, pristine: Path
) -> None:
    rng = random.Random(11)
    whole, path = pristine.read_bytes(), pristine.with_name("flipped.json")
    for _ in range(60):
        changed = bytearray(whole)
        changed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        try:
            same = signed_bytes(document(path)) == signed_bytes(document(pristine))
        except ValueError:
            same = False
        report = run_alone(page, path, pristine)
        assert (report is None) == same


def run_alone(page: Page, path: Path, original: Path) -> tuple[int, str] | None:
    """Check a run file that may be no JSON, with the evidence of the one that it was."""
    evidence = {
        entry["path"]: base64.b64encode((original.parent / entry["path"]).read_bytes()).decode()
        for entry in document(original)["evidence"]
    }
    run = base64.b64encode(path.read_bytes()).decode()
    return failed_at(page.evaluate(VERIFY, [run, evidence, None, False]))


def test_f19_a_registered_key_is_called_by_its_name_and_another_unknown(
    page: Page, tmp_path: Path, pristine: Path
) -> None:
    known = checked(page, RunBuilder(key=a_key(2)).write(tmp_path))
    assert known["key"]["known"] is True
    assert "Lab 1" in known["key"]["words"]
    unknown = checked(page, pristine)
    assert unknown["key"]["known"] is False
    assert "not registered on this site" in unknown["checks"][3]["text"]


@pytest.mark.parametrize(
    ("registered", "known", "words"),
    [
        ({"organisation": "Example Lab"}, True, "Lab 1, Example Lab"),
        ({"not_before": "2026-01-01T00:00:00Z"}, True, "valid from 2026"),
        ({"not_before": "2026-01-02T00:00:00Z"}, False, "valid from 2026-01-02"),
        ({"not_after": "2999-01-01T00:00:00Z"}, True, "valid until 2999"),
        ({"not_after": "2026-01-01T00:00:00Z"}, False, "valid until 2026"),
        (
            {"revoked": {"at": "2026-05-01T00:00:00Z", "reason": "lost"}},
            False,
            "revoked at 2026-05",
        ),
    ],
)
def test_f19_what_the_register_says_of_a_key_is_told(
    page: Page, tmp_path: Path, registered: dict[str, Any], known: bool, words: str
) -> None:
    path, keyid = RunBuilder(key=a_key(2)).write(tmp_path), key_id(raw(a_key(2)))
    change = "([id, more]) => { globalThis.before = {...TokenwattVerifyData.keys[id]};"
    page.evaluate(
        f"{change} Object.assign(TokenwattVerifyData.keys[id], more); }}", [keyid, registered]
    )
    try:
        key = checked(page, path)["key"]
    finally:
        page.evaluate("id => { TokenwattVerifyData.keys[id] = before; }", keyid)
    assert key["known"] is known
    assert words in key["words"]


def test_another_run_than_the_page_names_fails(page: Page, pristine: Path) -> None:
    found = failed_at(checked(page, pristine, run_id="0" * 64))
    assert found is not None
    assert found[0] == 3
    assert "the page names " + "0" * 64 in found[1]


# --- evidence


def test_f25_evidence_that_is_not_there_is_no_failure_and_no_pass(
    page: Page, tmp_path: Path
) -> None:
    path = RunBuilder().write(tmp_path)
    evidence_file(path, "requests").unlink()
    last = checked(page, path)["checks"][-1]
    assert (last["number"], last["outcome"]) == (6, "open")
    assert "requests" in last["text"]


@pytest.mark.parametrize("role", ["requests", "journal"])
def test_f25_one_changed_byte_of_evidence_fails(page: Page, pristine: Path, role: str) -> None:
    data = bytearray(gunzip(evidence_file(pristine, role)))
    data[len(data) // 2] ^= 1
    found = failed_at(checked(page, pristine, **{role: gzip(bytes(data))}))
    assert found is not None
    assert found[0] == 6
    assert "has the digest" in found[1]


def test_f11_a_bomb_is_stopped_at_the_stated_size(page: Page, pristine: Path) -> None:
    bomb = gzip(bytes(30 << 20))
    found = failed_at(checked(page, pristine, requests=bomb))
    assert found is not None
    assert "inflates beyond" in found[1]


def with_evidence(path: Path, role: str, data: bytes) -> Path:
    """Sign a run again with another piece of evidence, in a file beside it."""
    entry = store(path.parent / "evidence", role, data)
    value = document(path)
    value["evidence"] = [entry.to_json() if e["role"] == role else e for e in value["evidence"]]
    return write_signed(path.with_name("other.json"), value, a_key())


def packings(data: bytes) -> dict[str, bytes]:
    whole = gzip(data)
    return {
        "cut": whole[:-5],
        "two members": whole + gzip(b""),
        "junk behind": whole + b"x",
        "zlib": zlib.compress(data),
        "nothing": b"",
        "less": gzip(data[:-10]),
    }


@pytest.mark.parametrize("kind", packings(b"data of any kind"))
def test_f11_what_is_not_one_whole_gzip_member_fails(page: Page, pristine: Path, kind: str) -> None:
    packed = packings(gunzip(evidence_file(pristine, "requests")))[kind]
    found = failed_at(checked(page, pristine, requests=packed))
    assert found is not None
    assert found[0] == 6


def test_evidence_that_a_server_unpacked_on_the_way_holds_by_its_digest(
    page: Page, pristine: Path
) -> None:
    data = gunzip(evidence_file(pristine, "requests"))
    assert failed_at(checked(page, pristine, requests=data)) is None
    found = failed_at(checked(page, pristine, requests=data[:-2] + b" \n"))
    assert found is not None
    assert "has the digest" in found[1]


@pytest.mark.parametrize(
    ("old", "new", "reads"),
    [
        (b"]\n", b" ]\n", True),
        (b",null,", b",9007199254740992,", False),
        (b"[1,1,0,", b"[1,1,0.0,", False),
        (b"[1,1,0,", b"[1,1,-0,", False),
        (b"[1,1,0,", b"[1,1,00,", False),
        (b"[1,1,0,", b"[1,1,null,", False),
        (b"[1,1,0,", b"[1,1,0,0,", False),
        (b"[1,1,0,", b'[1,1,"0",', False),
        (b"tokenwatt/requests/2", b"tokenwatt/requests/1", False),
    ],
)
def test_rows_are_read_and_refused_as_python_does(
    page: Page, pristine: Path, old: bytes, new: bytes, reads: bool
) -> None:
    data = gunzip(evidence_file(pristine, "requests"))
    assert old in data
    path = with_evidence(pristine, "requests", data.replace(old, new, 1))
    found = failed_at(checked(page, path))
    if reads:
        assert found is None
        assert verify_run(path, root=path.parent, keyring=Keyring())
    else:
        assert found is not None
        assert found[0] == failing_check(path) == 6


# --- draws


def test_the_tables_of_every_distribution_are_those_of_python(page: Page) -> None:
    lengths: list[Lognormal | Fixed] = [Fixed(kind="fixed", tokens=17)]
    lengths += [length for w in NAMED.values() for length in (w.input_tokens, w.output_tokens)]  # type: ignore[misc]  # those of a name are drawn
    lengths += [
        Lognormal(kind="lognormal", median=median, p90=p90, min=1, max=most)
        for median, p90, most in ((1, 2, 10), (3, 1000, 10**6), (1000, 1001, 1002), (7, 8, 10**7))
    ]
    found = page.evaluate(
        "all => all.map(l => TokenwattWorkload.lengthTable(l,"
        " TokenwattVerifyData.normalQuantiles).map(String))",
        [length.to_json() for length in lengths],
    )
    assert found == [[str(knot) for knot in length_table(length)] for length in lengths]
    gaps = page.evaluate("TokenwattWorkload.gapTable().map(String)")
    assert gaps == [str(gap) for gap in gap_table()]


def test_chosen_windows_are_drawn_to_the_same_rows(page: Page) -> None:
    chat = NAMED["chat-mix-v1"]
    spec = small_spec(
        setup__workload={"name": chat.name, "version": chat.version, "hash": chat.hash},
        setup__input_tokens=chat.input_tokens.to_json(),
        setup__output_tokens=chat.output_tokens.to_json(),
        setup__slo=[{"metric": "tpot", "quantile": 0.99, "limit_ms": 50.0}],
        protocol={"mode": "quick", "repeats": 2, "start_rate": 1.0, "request_timeout_s": 30.0},
    )
    windows = windows_of(spec)
    band = windows.bands[3]
    wanted = windows.realisation(2, band)
    found = page.evaluate(
        "([spec, low]) => { const w = TokenwattWorkload.windows(spec, TokenwattVerifyData);"
        " const one = w.realisation(2, w.bandFrom(low));"
        " return [TokenwattWorkload.realisationHash(one), one.highestUrps, one.meanOut,"
        " TokenwattWorkload.sentBefore(one)]; }",
        [spec.to_json(), band.low_urps],
    )
    assert found == [
        wanted.hash,
        wanted.highest_urps,
        wanted.mean_output_tokens,
        list(wanted.sent_before()),
    ]
    assert WINDOW_DRAW == 1


def test_another_table_than_the_workload_names_fails(page: Page, pristine: Path) -> None:
    page.evaluate("TokenwattVerifyData.normalQuantiles[500] += 1e9")
    try:
        found = failed_at(checked(page, pristine))
    finally:
        page.evaluate("TokenwattVerifyData.normalQuantiles[500] -= 1e9")
    assert found is not None
    assert found[0] == 5
    assert "setup.workload.hash" in found[1]


# --- the long run


def test_the_replay_comes_to_the_claims_of_the_long_run(page: Page, long_run: Path) -> None:
    replay = checked(page, long_run, replay=True)["replay"]
    assert replay["outcome"] == "passed"
    assert [one["key"] for one in replay["numbers"]] == ["long_run_goodput", "long_run_rate"]
    assert all(one["made"] is not None and not one["differs"] for one in replay["numbers"])
    for lie, place in OTHER_CLAIMS.items():
        told = page.evaluate(REPLAY_AGAIN, lie)
        assert told["outcome"] == "failed", lie
        assert place in told["text"], lie


OTHER_CLAIMS = {
    "c => { c.metrics[0].value *= 1.01; }": "Long-run SLO goodput.value",
    "c => { c.long_run.outcome = 'refused'; }": "claims.long_run.outcome",
    "c => { c.long_run.drift_percent += 0.1; }": "claims.long_run.drift_percent",
    "c => { c.long_run.misses[3].percent[0] += 0.1; }": "claims.long_run.misses.3.percent.0",
    "c => { c.long_run.repeats[1].model_urps += 1; }": "claims.long_run.repeats.1.model_urps",
    "c => { c.long_run.windows_kept_percent = null; }": "claims.long_run.windows_kept_percent",
    "c => { c.long_run.trials[0].tpot_percent += 0.1; }": "claims.long_run.trials.0.tpot_percent",
}
"""Changes of claims, and the place that is named for each."""

REPLAY_AGAIN = """
async lie => {
  const report = lastReport, claims = report.run.document.claims, honest = JSON.stringify(claims);
  globalThis.replayed ??= await TokenwattReplay.replay(report.run, report.run.data, async () => {});
  const real = TokenwattReplay.replay;
  TokenwattReplay.replay = async () => replayed;
  eval(lie)(claims);
  try { return await TokenwattVerify.replay(report, async () => {}); } finally {
    TokenwattReplay.replay = real;
    report.run.document.claims = JSON.parse(honest);
  }
}
"""


def test_a_boundary_that_the_model_does_not_show_fails_in_the_replay(
    page: Page, long_run: Path
) -> None:
    fit = LONG.fitted
    assert fit is not None
    first = fit.fits[0].boundaries[1]
    moved = first.model_copy(
        update={"pass_urps": first.pass_urps * 2, "fail_urps": first.pass_urps * 2 + 1}
    )
    boundaries = tuple(moved if b is first else b for b in fit.fits[0].boundaries)
    wrong = fit.model_copy(
        update={"fits": (fit.fits[0].model_copy(update={"boundaries": boundaries}), *fit.fits[1:])}
    )
    path = with_evidence(long_run, "engine-model", encode_model_fit(wrong))
    found = checked(page, path, replay=True)["replay"]
    assert found["outcome"] == "failed"
    assert "does not show when it is replayed" in found["text"]
    assert failing_check(path) == 10


def test_the_replay_refuses_a_model_whose_order_the_engine_does_not_keep(
    page: Page, tmp_path: Path
) -> None:
    late = ModelEngine(late_ns=400_000_000)
    path = replace(LONG, engine=late).write(tmp_path)
    told = json.loads(path.read_text())["claims"]["long_run"]
    assert told["outcome"] == "refused"
    assert "does not keep the order" in told["text"]
    replay = checked(page, path, replay=True)["replay"]
    assert replay["outcome"] == "passed"
    assert all(one["made"] is None for one in replay["numbers"])


def test_a_run_without_a_model_has_nothing_to_replay(page: Page, pristine: Path) -> None:
    replay = checked(page, pristine, replay=True)["replay"]
    assert replay["outcome"] == "passed"
    assert [one["made"] for one in replay["numbers"]] == [None, None]


def test_a_run_of_a_trace_is_checked_as_far_as_it_goes_and_says_so(
    page: Page, tmp_path: Path
) -> None:
    report = checked(page, of_trace().write(tmp_path))
    assert failed_at(report) is None
    outcomes = [check["outcome"] for check in report["checks"]]
    assert outcomes == [*["passed"] * 7, "open", "passed", "open"]
    assert "plays a trace" in report["checks"][9]["text"]


def test_the_statuses_have_the_names_that_claims_give_them(page: Page) -> None:
    failures = page.evaluate("TokenwattTrials.FAILURES")
    wanted = [None if s in {Status.OK, Status.CENSORED} else s.name.lower() for s in Status]
    assert failures == wanted


REAL = [
    path
    for path in sorted((ROOT / "runs").glob("**/*.json"))
    if b'"run_schema"' in path.read_bytes()
]
"""The measured runs that this project publishes."""


@pytest.mark.parametrize("path", REAL, ids=[str(path.relative_to(ROOT)) for path in REAL])
def test_a_run_that_was_really_measured_is_verified_with_its_replay(page: Page, path: Path) -> None:
    report = checked(page, path, replay=True)
    assert [check["outcome"] for check in report["checks"]] == ["passed"] * 10, report["checks"]
    assert report["replay"]["outcome"] == "passed", report["replay"]
