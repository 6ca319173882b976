"""Tests of trust.verify."""

from __future__ import annotations

import ast
import copy
import dataclasses
import gc
import json
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenwatt_site
from tests.support.runs import (
    NONCE,
    JournalPlan,
    RunBuilder,
    ToyEngine,
    a_key,
    gpu_spec,
    host_power,
    keyring_of,
    played_counters,
    played_power,
    processor_power,
    replica_spec,
    revoked_key,
    small_spec,
    split_spec,
    steady_power,
    write_signed,
)
from tests.support.statements import line, on_boards, run_id_of, state
from tokenwatt_site.canonical import JsonValue, canonical_bytes, sha256_hex
from tokenwatt_site.errors import InputError, VerificationError
from tokenwatt_site.evidence.power import DramSpan
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.model_shape.document import ModelDocument
from tokenwatt_site.prompts import PUBLISHED_SEED_RULE, Ids, Words, common_words, nonce_of
from tokenwatt_site.run import RUN_SCHEMA, signed_bytes
from tokenwatt_site.spec import Spec
from tokenwatt_site.trust import consistency, verify
from tokenwatt_site.trust.beside import MAX_UNKNOWN, path_beside
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.registration import register
from tokenwatt_site.trust.signature import key_id
from tokenwatt_site.trust.verify import (
    ValidatedRun,
    load_claims_only,
    read_tree,
    settle,
    verify_run,
)
from tokenwatt_site.workload import Realisation, Workload

NO_KEYS = Keyring()


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One valid run, for tests that only read it."""
    return RunBuilder().write(tmp_path_factory.mktemp("pristine"))


def document(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def check(path: Path) -> ValidatedRun:
    return verify_run(path, root=path.parent, keyring=NO_KEYS)


def refused(path: Path, number: int, *words: str) -> None:
    """Expect that `path` is refused by this check, in words that contain these."""
    with pytest.raises(VerificationError) as caught:
        check(path)
    assert caught.value.check == number, str(caught.value)
    assert str(caught.value).startswith(f"check {number}: ")
    for word in words:
        assert word in str(caught.value)
    assert all(problem.file for problem in caught.value.problems)


def test_a_run_that_was_just_made_is_valid(pristine: Path) -> None:
    run = check(pristine)
    assert run.claims == run.run.claims
    assert run.claims.slo_met
    assert len(run.evidence.requests) > 0
    assert run.path == pristine


@pytest.mark.parametrize("collected", [True, False])
def test_garbage_is_collected_afterwards_as_it_was_before(pristine: Path, collected: bool) -> None:
    before = gc.isenabled()
    (gc.enable if collected else gc.disable)()
    try:
        check(pristine)
        assert gc.isenabled() is collected
    finally:
        (gc.enable if before else gc.disable)()


def test_the_run_id_is_the_digest_of_the_canonical_bytes_without_signatures(pristine: Path) -> None:
    value = document(pristine)
    del value["signatures"]
    assert check(pristine).run_id == sha256_hex(canonical_bytes(value))


def test_the_file_may_be_written_in_any_layout(pristine: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "evidence").mkdir()
    for piece in (pristine.parent / "evidence").iterdir():
        (folder / "evidence" / piece.name).write_bytes(piece.read_bytes())
    turned = dict(reversed(document(pristine).items()))
    (folder / "other name.json").write_text(json.dumps(turned, indent=7))
    assert check(folder / "other name.json").run_id == check(pristine).run_id


def test_a_registered_key_has_the_name_of_its_owner(pristine: Path, tmp_path: Path) -> None:
    run = verify_run(
        pristine, root=pristine.parent, keyring=keyring_of(tmp_path, a_key(2), a_key(1))
    )
    assert (run.key_state, run.signer) == ("known", "Lab 2")


def test_a_run_signed_with_a_foreign_key_is_valid_and_its_key_unknown(pristine: Path) -> None:
    run = check(pristine)
    assert (run.key_state, run.signer) == ("unknown", None)


def test_an_interrupted_run_with_a_trial_that_has_no_end_is_valid(tmp_path: Path) -> None:
    def cut(plan: JournalPlan) -> JournalPlan:
        begun: JournalPlan = [("trial_start", plan[-4][1] | {"trial": 4})]
        return [*plan[:-2], *begun, plan[-1]]

    run = check(RunBuilder(status="interrupted", edit_journal=cut).write(tmp_path))
    assert run.run.status == "interrupted"


class Talkative(ToyEngine):
    """Never knows when to stop."""

    def serve(
        self, realisation: Realisation, rate_urps: int, *, repeat: int, trial: int
    ) -> Iterator[RequestRecord]:
        for r in super().serve(realisation, rate_urps, repeat=repeat, trial=trial):
            yield replace(r, output_tokens=r.output_asked + 1)


def test_a_run_with_answers_longer_than_asked_is_verified_and_its_trial_invalid(
    tmp_path: Path,
) -> None:
    run = check(RunBuilder(rates_urps=(500_000,), engine=Talkative()).write(tmp_path))
    (trial,) = run.claims.trials
    assert (trial.verdict, trial.reason) == (
        "INVALID",
        "engine: 85 answers had more tokens than were asked for",
    )
    assert not run.claims.slo_met


class ResumedRunBuilder(RunBuilder):
    """The first trial was broken off, and the repeat launched again."""

    def journal_plan(self) -> JournalPlan:
        opening, launch, start, *rest = super().journal_plan()
        lost: JournalPlan = [launch, ("trial_start", start[1] | {"trial": 1}), ("interrupted", {})]
        return [opening, *lost, launch, start, *rest]


def test_a_run_that_was_interrupted_and_resumed_may_be_complete(tmp_path: Path) -> None:
    run = check(ResumedRunBuilder(first_trial=2).write(tmp_path))
    assert run.run.status == "complete"
    assert run.claims.slo_met


# --- (1) the file


def test_f10_a_run_behind_a_symbolic_link_is_refused(pristine: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").symlink_to(pristine)
    refused(tmp_path / "run.json", 1, "symbolic link")


def test_f10_a_run_in_a_linked_folder_is_refused(pristine: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(pristine.parent)
    with pytest.raises(VerificationError, match="check 1"):
        verify_run(tmp_path / "link" / pristine.name, root=tmp_path, keyring=NO_KEYS)


def test_f10_a_run_outside_the_root_is_refused(pristine: Path, tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="outside the folder"):
        verify_run(pristine, root=tmp_path, keyring=NO_KEYS)
    with pytest.raises(VerificationError, match="outside the folder"):
        verify_run(
            tmp_path / ".." / pristine.parent.name / pristine.name, root=tmp_path, keyring=NO_KEYS
        )


def test_f10_a_fifo_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.json")
    refused(tmp_path / "run.json", 1, "regular file")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "run.json", 1, "cannot be read")


def test_f3_a_file_of_50_mb_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with path.open("wb") as handle:
        handle.truncate(50 << 20)
    refused(path, 1, "too large")


# --- (2) strict JSON


HOSTILE_JSON = {
    "f1 a key twice": b'{"run_schema": "x", "run_schema": "y"}',
    "f2 NaN": b'{"run_schema": NaN}',
    "f2 infinite": b'{"run_schema": 1e400}',
    "f2 minus zero": b'{"run_schema": -0}',
    "f2 a large integer": b'{"run_schema": 9007199254740993}',
    "f3 deep": b"[" * 200_000,
    "f4 bidi": '{"run_schema": "a\u202eb"}'.encode(),
    "f4 zero width": '{"run_schema": "a\u200bb"}'.encode(),
    "f4 not NFC": '{"run_schema": "e\u0301"}'.encode(),
    "f4 lone surrogate": b'{"run_schema": "\\ud800"}',
    "byte order mark": b'\xef\xbb\xbf{"run_schema": "x"}',
    "not UTF-8": b'{"run_schema": "\xff"}',
    "empty": b"",
    "an array": b"[]",
    "another document": b'{"name": "package"}',
    "another version": b'{"run_schema": "tokenwatt/run/2"}',
}


@pytest.mark.parametrize("data", HOSTILE_JSON.values(), ids=HOSTILE_JSON)
def test_f1_f2_f3_f4_bytes_with_two_readings_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "run.json").write_bytes(data)
    refused(tmp_path / "run.json", 2, "run.json")


@given(share=st.floats(0, 0.999))
def test_a_file_cut_anywhere_is_refused(pristine: Path, share: float) -> None:
    data = pristine.read_bytes().rstrip()
    path = pristine.with_name("cut.json")
    path.write_bytes(data[: int(len(data) * share)])
    try:
        refused(path, 2)
    finally:
        path.unlink()


# --- (4) the signature


def edited(pristine: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Change a signed run without signing it again."""
    value = document(pristine)
    change(value)
    path = pristine.with_name("edited.json")
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_one_edited_digit_is_refused(pristine: Path) -> None:
    def edit(value: dict[str, Any]) -> None:
        metric(value, "goodput")["value"] *= 1.1

    refused(edited(pristine, edit), 4, "changed after signing")


@given(data=st.data())
def test_any_change_of_any_leaf_is_refused(pristine: Path, data: st.DataObject) -> None:
    def edit(value: Any) -> None:
        place: Any = value
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from([k for k in keys if k != "signatures"]))
            if not isinstance(place[key], dict | list) or not place[key]:
                break
            place = place[key]
        if key == "run_schema":
            place = value["spec"]
            key = "note"
        place[key] = "changed" if place[key] != "changed" else "again"

    refused(edited(pristine, edit), 4)


def test_f18_a_signature_copied_to_another_run_is_refused(pristine: Path, tmp_path: Path) -> None:
    other = document(RunBuilder(day=2).write(tmp_path))

    def edit(value: dict[str, Any]) -> None:
        value["signatures"] = other["signatures"]

    refused(edited(pristine, edit), 4, "does not fit")


@pytest.mark.parametrize("count", [0, 2])
def test_a_run_needs_exactly_one_signature(pristine: Path, count: int) -> None:
    def edit(value: dict[str, Any]) -> None:
        value["signatures"] *= count

    refused(edited(pristine, edit), 4, f"found {count}", "exactly 1")


@pytest.mark.parametrize("signatures", [None, {}, "x", [{}], [1], [{"keyid": "x"}]])
def test_signatures_of_another_shape_are_refused(pristine: Path, signatures: Any) -> None:
    def edit(value: dict[str, Any]) -> None:
        value["signatures"] = signatures

    refused(edited(pristine, edit), 4)


def test_a_run_without_the_key_signatures_is_refused(pristine: Path) -> None:
    refused(edited(pristine, lambda value: value.pop("signatures")), 4)


def test_f21_a_forgery_under_a_small_order_key_is_refused(pristine: Path) -> None:
    identity = (1).to_bytes(32, "little")

    def edit(value: dict[str, Any]) -> None:
        value["claims"]["slo_met"] = True
        value["signatures"] = [
            {
                "keyid": key_id(identity),
                "public_key": identity.hex(),
                "sig": (identity + bytes(32)).hex(),
            }
        ]

    refused(edited(pristine, edit), 4, "small order")


# --- (5) schema and identity, signed by one who lies


def put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return a change that sets the value at `path` of a document."""

    def change(target: Any) -> None:
        for part in path[:-1]:
            target = target[part]
        target[path[-1]] = value

    return change


LIES_ABOUT_IDENTITY = {
    "a field of no schema": (put("extra", value=1), "extra"),
    "a wrong type": (put("simulated", value="no"), "simulated"),
    "a client that was not tested": (put("conditions", "self_test", value=None), "self_test"),
    "a spec that is not valid": (put("spec", "protocol", "repeats", value=0), "repeats"),
    "a setup that is not valid": (put("spec", "setup", "driver", value="a\nb"), "driver"),
    "another configuration id": (put("configuration", value="x-000000000000"), "configuration"),
    "f9 a path as configuration": (put("configuration", value="../../x"), "configuration"),
    "another workload hash": (put("spec", "setup", "workload", "hash", value="0" * 64), ""),
    "f23 a label of 100,000": (put("spec", "label", value="a" * 100_000), "label"),
    "f23 a title of 100,000": (put("spec", "title", value="a" * 100_000), "title"),
    "f23 a platform of 100,000": (put("conditions", "platform", value="a" * 100_000), "platform"),
    "processors below zero": (put("conditions", "processors", value=-998), "processors"),
    "f10 an evidence path outside": (put("evidence", 0, "sha256", value="../../x"), "sha256"),
    "f11 a negative size": (put("evidence", 0, "bytes", value=-1), "bytes"),
}


@pytest.mark.parametrize(("change", "word"), LIES_ABOUT_IDENTITY.values(), ids=LIES_ABOUT_IDENTITY)
def test_f23_a_signed_document_of_the_wrong_shape_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], word: str
) -> None:
    refused(RunBuilder(edit_document=change).write(tmp_path), 5, word)


def test_a_workload_that_the_generator_does_not_draw_is_refused(tmp_path: Path) -> None:
    path = RunBuilder().write(tmp_path)
    value = document(path)
    setup = value["spec"]["setup"]
    setup["workload"]["hash"] = "0" * 64
    spec = Spec.model_validate_json(json.dumps(value["spec"]))
    value["configuration"] = spec.configuration_id
    refused(write_signed(path, value, a_key()), 5, "workload.hash")


@pytest.mark.parametrize(("repeats", "most"), [(1, 50_000), (10, 50_000), (100, 5_000)])
def test_b15_a_plan_of_more_rows_than_are_drawn_is_refused_undrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeats: int, most: int
) -> None:
    path = RunBuilder().write(tmp_path)
    value = document(path)
    protocol = value["spec"]["protocol"]
    protocol["repeats"] = repeats
    protocol["tail"] = most - protocol["lead_in"] - protocol["scored"]
    refused(write_signed(path, value, a_key()), 7, "another spec")
    protocol["tail"] += 1
    monkeypatch.delattr(Workload, "realisation")
    refused(write_signed(path, value, a_key()), 5, f"may be {most:,} rows")


HOSTILE_TEXT = {
    "f5": "<img src=x onerror=alert(1)>",
    "f6": "[x](javascript:alert(1))",
    "f7": "{{7*7}} {% include 'x' %}",
}


@pytest.mark.parametrize("text", HOSTILE_TEXT.values(), ids=HOSTILE_TEXT)
def test_f5_f6_f7_text_that_a_page_must_escape_is_valid_and_kept(tmp_path: Path, text: str) -> None:
    run = check(RunBuilder(spec=small_spec(title=text, note=text)).write(tmp_path))
    assert (run.run.spec.title, run.run.spec.note) == (text, text)


# --- (6) evidence


def evidence_file(path: Path, role: str) -> Path:
    entry = next(e for e in document(path)["evidence"] if e["role"] == role)
    return path.parent / str(entry["path"])


def gzip(data: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    return compressor.compress(data) + compressor.flush()


def gunzip(path: Path) -> bytes:
    return zlib.decompress(path.read_bytes(), 31)


def test_f25_evidence_that_is_gone_is_refused(tmp_path: Path) -> None:
    path = RunBuilder().write(tmp_path)
    evidence_file(path, "requests").unlink()
    refused(path, 6, "cannot be read")


@pytest.mark.parametrize("role", ["requests", "journal"])
def test_f25_one_changed_byte_of_evidence_is_refused(tmp_path: Path, role: str) -> None:
    path = RunBuilder().write(tmp_path)
    piece = evidence_file(path, role)
    data = bytearray(gunzip(piece))
    data[len(data) // 2] ^= 1
    piece.write_bytes(gzip(bytes(data)))
    refused(path, 6, "digest")


@pytest.mark.parametrize(("field", "by"), [("bytes", 1), ("bytes", -1), ("lines", 1)])
def test_f25_another_size_or_line_count_than_stated_is_refused(
    tmp_path: Path, field: str, by: int
) -> None:
    def change(value: dict[str, Any]) -> None:
        value["evidence"][0][field] += by

    refused(RunBuilder(edit_document=change).write(tmp_path), 6)


def test_f11_a_gzip_bomb_is_stopped_at_the_stated_size(tmp_path: Path) -> None:
    path = RunBuilder().write(tmp_path)
    evidence_file(path, "requests").write_bytes(gzip(bytes(1 << 20)))
    refused(path, 6, "stated size")


def test_f11_a_bomb_that_states_its_size_is_refused_unread(tmp_path: Path) -> None:
    change = put("evidence", 0, "bytes", value=verify.MAX_RUN_EVIDENCE_BYTES)
    path = RunBuilder(edit_document=change).write(tmp_path)
    evidence_file(path, "requests").unlink()
    refused(path, 6, "more evidence")


def test_f10_evidence_behind_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    path = RunBuilder().write(tmp_path / "a")
    piece = evidence_file(path, "requests")
    piece.rename(tmp_path / "elsewhere")
    piece.symlink_to(tmp_path / "elsewhere")
    refused(path, 6)


def test_f10_an_evidence_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    path = RunBuilder().write(tmp_path / "a")
    (path.parent / "evidence").rename(tmp_path / "elsewhere")
    (path.parent / "evidence").symlink_to(tmp_path / "elsewhere")
    refused(path, 6, "symbolic link")


def test_f10_an_evidence_fifo_is_refused_without_waiting(tmp_path: Path) -> None:
    path = RunBuilder().write(tmp_path)
    piece = evidence_file(path, "requests")
    piece.unlink()
    os.mkfifo(piece)
    refused(path, 6, "regular file")


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value["evidence"].pop(0),
        lambda value: value["evidence"].append(copy.deepcopy(value["evidence"][0])),
        lambda value: value["evidence"].clear(),
    ],
    ids=["one missing", "one twice", "none"],
)
def test_each_role_of_evidence_is_there_once(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    refused(RunBuilder(edit_document=change).write(tmp_path), 6, "roles")


def test_evidence_of_a_role_that_nothing_reads_is_refused(tmp_path: Path) -> None:
    def change(value: dict[str, Any]) -> None:
        value["evidence"].append({**value["evidence"][0], "role": "<script>"})

    refused(RunBuilder(edit_document=change).write(tmp_path), 6, "roles")


def test_evidence_under_another_role_than_its_format_is_refused(tmp_path: Path) -> None:
    def change(value: dict[str, Any]) -> None:
        roles = {"requests": "journal", "journal": "requests"}
        for entry in value["evidence"]:
            entry["role"] = roles[entry["role"]]

    refused(RunBuilder(edit_document=change).write(tmp_path), 6, "format")


# --- (7) the journal


def without(plan: JournalPlan, event: str, position: int = 0) -> JournalPlan:
    """Drop the event's line number `position`."""
    at = [i for i, (name, _) in enumerate(plan) if name == event][position]
    return [*plan[:at], *plan[at + 1 :]]


def altered(event: str, position: int = 0, **changes: Any) -> Callable[[JournalPlan], JournalPlan]:
    """Return an edit of the event's line number `position`."""

    def edit(plan: JournalPlan) -> JournalPlan:
        at = [i for i, (name, _) in enumerate(plan) if name == event][position]
        name, data = plan[at]
        return [*plan[:at], (name, data | changes), *plan[at + 1 :]]

    return edit


def and_a_trial_more(plan: JournalPlan) -> JournalPlan:
    """Add a repeat that the plan does not have."""
    _, launch, start, end = (dict(data) | {"repeat": 7, "trial": 77} for _, data in plan[:4])
    more: JournalPlan = [("launch", launch), ("trial_start", start), ("trial_end", end)]
    return [*plan[:-1], *more, plan[-1]]


def another_note(plan: JournalPlan) -> JournalPlan:
    return altered("open", spec={**plan[0][1]["spec"], "note": "x"})(plan)


LYING_JOURNALS: dict[str, Callable[[JournalPlan], JournalPlan]] = {
    "no opening": lambda plan: plan[1:],
    "opened twice": lambda plan: [plan[0], *plan],
    "opened later": lambda plan: [plan[1], plan[0], *plan[2:]],
    "another configuration": altered("open", configuration="x"),
    "no spec": altered("open", spec=None),
    "another spec": another_note,
    "b19 no nonce": altered("open", nonce=None),
    "b19 a short nonce": altered("open", nonce="00" * 31),
    "b19 a nonce that is no hex": altered("open", nonce="0g" * 32),
    "b19 a nonce with a line end": altered("open", nonce="00" * 32 + "\n"),
    "another key": altered("open", keyid="ed25519:" + "0" * 32),
    "no key where one is told": altered("open", keyid=None),
    "b19 another seed rule": altered("open", seed_rule="random"),
    "b19 the seed rule of two nonces, with one": altered("open", seed_rule=PUBLISHED_SEED_RULE),
    "t4 a publisher's nonce that the seed rule leaves out": altered(
        "open", publisher_nonce="ab" * 16
    ),
    "t4 a publisher's nonce that is none": altered(
        "open", seed_rule=PUBLISHED_SEED_RULE, publisher_nonce="ab" * 15
    ),
    "t4 a publisher's nonce of nothing": altered(
        "open", seed_rule=PUBLISHED_SEED_RULE, publisher_nonce=""
    ),
    "an end dropped": lambda plan: without(plan, "trial_end"),
    "a start dropped": lambda plan: without(plan, "trial_start"),
    "the last end dropped": lambda plan: without(plan, "trial_end", -1),
    "an end alone": lambda plan: [*plan[:2], plan[3], *plan[4:]],
    "a trial twice": lambda plan: [*plan[:4], *plan[2:]],
    "an end twice": lambda plan: [*plan[:4], plan[3], *plan[4:]],
    "a trial without a number": lambda plan: [
        *plan[:-2],
        ("trial_start", {}),
        ("trial_end", {}),
        *plan[-2:],
    ],
    "a trial whose number is a list": altered("trial_start", trial=[1]),
    "b19 another realisation": altered("trial_start", 1, realisation=2),
    "b19 no realisation": altered("trial_start", realisation=None),
    "b19 another draw": altered("trial_start", 2, realisation_hash="0" * 64),
    "no close": lambda plan: plan[:-1],
    "no launch": lambda plan: without(plan, "launch"),
    "the launch of another repeat": altered("launch", repeat=2),
    "b19 no end of a repeat": lambda plan: without(plan, "repeat_end"),
    "b19 the end of another repeat": altered("repeat_end", repeat=2),
    "b19 a trial after the end of its repeat": lambda plan: [
        *plan[:2],
        plan[-2],
        *plan[2:],
    ],
    "a start at the very end": lambda plan: [*plan, ("trial_start", {"repeat": 1, "trial": 77})],
    "a repeat beyond the plan": and_a_trial_more,
}


@pytest.mark.parametrize("change", LYING_JOURNALS.values(), ids=LYING_JOURNALS)
def test_a_journal_that_does_not_fit_its_run_is_refused(
    tmp_path: Path, change: Callable[[JournalPlan], JournalPlan]
) -> None:
    refused(RunBuilder(edit_journal=change).write(tmp_path), 7, "journal")


def test_t4_a_run_that_draws_from_a_publisher_s_nonce_too_verifies(tmp_path: Path) -> None:
    class Given(RunBuilder):
        def journal_plan(self) -> JournalPlan:
            told = {"seed_rule": PUBLISHED_SEED_RULE, "publisher_nonce": "ab" * 32}
            return altered("open", **told)(super().journal_plan())

    journal = check(Given().write(tmp_path)).evidence.journal
    assert nonce_of(journal[0]) == NONCE + "ab" * 32


def test_another_journal_head_than_signed_is_refused(tmp_path: Path) -> None:
    change = put("journal_head", value="1" * 64)
    refused(RunBuilder(edit_document=change).write(tmp_path), 7, "journal_head")


def test_an_interrupted_run_that_is_called_complete_is_refused(tmp_path: Path) -> None:
    change = put("status", value="complete")
    refused(
        RunBuilder(status="interrupted", edit_document=change).write(tmp_path), 7, "says complete"
    )


def test_a_complete_run_with_a_repeat_missing_is_refused(tmp_path: Path) -> None:
    def drop_second(plan: JournalPlan) -> JournalPlan:
        return [(event, data) for event, data in plan if data.get("repeat") != 2]

    builder = RunBuilder(spec=small_spec(protocol__repeats=2), edit_journal=drop_second)
    refused(builder.write(tmp_path), 7, "repeats [1]")


def two_repeats(**settings: Any) -> RunBuilder:
    return RunBuilder(spec=small_spec(protocol__repeats=2), **settings)


def test_b18_two_repeats_of_one_engine_process_are_refused(tmp_path: Path) -> None:
    plan = two_repeats().journal_plan()
    started = next(data["engine_started"] for event, data in plan if event == "launch")
    edit = altered("launch", 1, engine_started=started)
    refused(two_repeats(edit_journal=edit).write(tmp_path), 7, "engine_started", "repeat 1")


class UntoldRunBuilder(RunBuilder):
    """Of engines that do not tell when they were started."""

    def journal_plan(self) -> JournalPlan:
        plan = super().journal_plan()
        for launch in self._repeats:
            plan = altered("launch", launch - 1, engine_started=None)(plan)
        return plan


def test_b18_engines_that_do_not_tell_their_start_are_the_publisher_s_word(tmp_path: Path) -> None:
    builder = UntoldRunBuilder(spec=small_spec(protocol__repeats=2))
    assert check(builder.write(tmp_path)).run.status == "complete"


TEXT: dict[str, Any] = {"endpoint__api": "chat"}
FILE = TEXT | {"endpoint__tokenizer": "tokenizer.json"}


def by_file(words: Words) -> JsonValue:
    return replace(words, source="tokenizer file", tokenizer_sha256="5" * 64).to_json()


@pytest.mark.parametrize("changes", [{}, TEXT, FILE], ids=["ids", "text", "file"])
def test_prompts_that_the_spec_asks_with_are_accepted(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    check(RunBuilder(spec=small_spec(**changes)).write(tmp_path))


@pytest.mark.parametrize(
    ("changes", "told", "expected"),
    [
        ({}, common_words().to_json(), ("prompts.kind", "'ids'")),
        ({}, Ids(49152).to_json(), ("prompts.vocabulary", "49152", "32000")),
        ({}, None, ("prompts", "are no prompts")),
        ({}, {"kind": "ids", "vocabulary": 32000}, ("prompts.ids.first", "are no prompts")),
        (TEXT, Ids(32000).to_json(), ("prompts.kind", "'text'")),
        (TEXT, by_file(common_words()), ("prompts.source", "no tokenizer file")),
        (TEXT, {"kind": "text", "words": 199}, ("prompts.text", "are no prompts")),
        (FILE, common_words().to_json(), ("prompts.source", "expected a tokenizer file")),
    ],
)
def test_prompts_that_the_spec_does_not_ask_with_are_refused(
    tmp_path: Path, changes: dict[str, Any], told: JsonValue, expected: tuple[str, ...]
) -> None:
    edit = altered("launch", prompts=told)
    path = RunBuilder(spec=small_spec(**changes), edit_journal=edit).write(tmp_path)
    refused(path, 7, "journal line 1.prompts", *expected)


def test_b18_a_repeat_that_was_launched_again_may_follow_on_the_same_engine(tmp_path: Path) -> None:
    # Broken off before its first trial and resumed: both launches are of repeat 1.
    run = check(ResumedRunBuilder(first_trial=2).write(tmp_path))
    starts = [
        line.data["engine_started"] for line in run.evidence.journal if line.event == "launch"
    ]
    assert len(starts) == 2
    assert len(set(starts)) == 1


class ContinuedRunBuilder(RunBuilder):
    """A trial was broken off, and the repeat went on: its trials so far count."""

    def journal_plan(self) -> JournalPlan:
        opening, launch, start, end, *rest = super().journal_plan()
        goes_on: JournalPlan = [("interrupted", {}), ("launch", launch[1] | {"continues": True})]
        return [opening, launch, start, end, *goes_on, *rest]


ATTACHED = small_spec(endpoint__start="attach", endpoint__url="http://127.0.0.1:9")


def test_c1_trials_of_an_attached_process_that_a_repeat_went_on_with_count(tmp_path: Path) -> None:
    run = check(ContinuedRunBuilder(spec=ATTACHED).write(tmp_path))
    assert "INVALID" not in {trial.verdict for trial in run.claims.trials}
    assert len([n for n in run.evidence.journal if n.event == "launch"]) == 2


@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        (small_spec(), {}),
        (ATTACHED, {"engine_started": "2026-01-01T00:00:09Z"}),
        (ATTACHED, {"engine_started": None}),
    ],
)
def test_c1_what_goes_on_is_the_process_of_the_launch_before(
    tmp_path: Path, spec: Spec, changes: dict[str, Any]
) -> None:
    edit = altered("launch", 1, **changes)
    path = ContinuedRunBuilder(spec=spec, edit_journal=edit).write(tmp_path)
    refused(path, 7, "journal line 5 (launch)", "not known to be the same process")


ROW = {"field": "setup.driver", "declared": "none", "observed": None, "state": "declared"}
LIES_ABOUT_CONDITIONS: dict[str, tuple[RunBuilder, str]] = {
    "a simulated run is called measured": (
        RunBuilder(edit_document=put("simulated", value=False)),
        "simulated",
    ),
    "a measured run is called simulated": (
        RunBuilder(simulated=False, edit_document=put("simulated", value=True)),
        "simulated",
    ),
    "one launch of two was simulated": (
        two_repeats(
            simulated=False, edit_journal=altered("launch", 1, engine="tokenwatt-simulated")
        ),
        "simulated",
    ),
    "stamps of the kernel": (
        RunBuilder(edit_journal=altered("trial_end", 1, stamps="user space")),
        "conditions.stamps",
    ),
    "stamps of user space": (
        RunBuilder(edit_document=put("conditions", "stamps", value="user space")),
        "conditions.stamps",
    ),
    "something was read back": (
        RunBuilder(edit_document=put("conditions", "read_back", value=[ROW])),
        "conditions.read_back",
    ),
    "something else was read back": (
        RunBuilder(
            edit_journal=altered("launch", read_back=[ROW | {"observed": "580"}]),
            edit_document=put("conditions", "read_back", value=[ROW]),
        ),
        "conditions.read_back.0.observed",
    ),
    "a client that held more": (
        RunBuilder(edit_document=put("conditions", "self_test", "events_per_s", value=10**6)),
        "conditions.self_test.events_per_s",
    ),
    "a client of one process that was of two": (
        RunBuilder(edit_journal=altered("trial_end", 1, offset_bounds_ns=[9, 9])),
        "conditions.workers",
    ),
    "a client of two processes that was of one": (
        RunBuilder(edit_document=put("conditions", "workers", value=2)),
        "conditions.workers",
    ),
    "a test that no launch tells": (
        RunBuilder(edit_journal=altered("launch", self_test=None)),
        "journal line 1.self_test",
    ),
    "a template before token ids": (
        RunBuilder(edit_journal=altered("launch", chat_overhead=5)),
        "journal line 1.chat_overhead",
    ),
    "a launch without what was read back": (
        RunBuilder(edit_journal=altered("launch", read_back=None)),
        "conditions.read_back",
    ),
}


def test_roles_that_are_not_of_the_boards_that_were_read_are_refused(tmp_path: Path) -> None:
    sound = RunBuilder(spec=split_spec(), idle_s=12)
    path = replace(sound, power=played_power(sound)).write(tmp_path / "sound")
    assert [role.role for role in check(path).run.claims.roles or ()] == ["prefill", "decode"]
    roles = {"prefill": ["GPU-0"], "decode": ["GPU-7"]}
    builder = RunBuilder(spec=split_spec(board_roles=roles), idle_s=12)
    builder = replace(builder, power=played_power(builder))
    refused(builder.write(tmp_path / "other"), 9, "spec.board_roles")


REPLICA = {"engine": "toy", "version": "1.0", "build": "test", "models": ["toy-135m"]}
LIES_ABOUT_REPLICAS: dict[str, tuple[int, Callable[[JournalPlan], JournalPlan], str]] = {
    "replicas of one engine": (1, altered("trial_end", 1, replicas=[]), "journal line 5.replicas"),
    "a replica less": (
        2,
        altered("launch", replicas=[REPLICA | {"started": None}]),
        "journal line 1.replicas",
    ),
    "a replica that does not tell its start": (
        2,
        altered("launch", replicas=[REPLICA, REPLICA]),
        "journal line 1.replicas",
    ),
    "a replica of another version": (
        2,
        altered(
            "launch",
            replicas=[REPLICA | {"started": None, "version": told} for told in ("1.0", "1.1")],
        ),
        "journal line 1.replicas.1 (setup.engine.version)",
    ),
}


@pytest.mark.parametrize(
    ("count", "edit", "field"), LIES_ABOUT_REPLICAS.values(), ids=LIES_ABOUT_REPLICAS
)
def test_replicas_that_are_not_those_of_the_spec_are_refused(
    tmp_path: Path, count: int, edit: Callable[[JournalPlan], JournalPlan], field: str
) -> None:
    spec = small_spec() if count == 1 else replica_spec(count)
    refused(RunBuilder(spec=spec, edit_journal=edit).write(tmp_path), 7, field)


def test_a_repeat_on_a_replica_that_was_not_started_again_is_refused(tmp_path: Path) -> None:
    spec = replica_spec(2, protocol__repeats=2)

    def keep_second(plan: JournalPlan) -> JournalPlan:
        first, second = (data["replicas"] for event, data in plan if event == "launch")
        return altered("launch", 1, replicas=[second[0], first[1]])(plan)

    path = RunBuilder(spec=spec, edit_journal=keep_second).write(tmp_path)
    refused(path, 7, "engine_started")


@pytest.mark.parametrize(
    ("builder", "field"), LIES_ABOUT_CONDITIONS.values(), ids=LIES_ABOUT_CONDITIONS
)
def test_b17_conditions_that_the_journal_does_not_tell_are_refused(
    tmp_path: Path, builder: RunBuilder, field: str
) -> None:
    refused(builder.write(tmp_path), 7, field)


def test_b17_conditions_that_the_last_launch_tells_are_valid(tmp_path: Path) -> None:
    builder = two_repeats(
        edit_journal=altered("launch", 1, read_back=[ROW]),
        edit_document=put("conditions", "read_back", value=[ROW]),
    )
    assert check(builder.write(tmp_path)).run.conditions.read_back[0].field == "setup.driver"


def test_b15_more_trials_than_are_read_are_refused_undrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consistency, "MAX_TRIALS", 2)
    refused(RunBuilder().write(tmp_path), 7, "found 3", "at most 2")


# --- (8) requests


def drop(position: int) -> Callable[[list[RequestRecord]], list[RequestRecord]]:
    return lambda records: [*records[:position], *records[position + 1 :]]


def alter(**changes: int | None) -> Callable[[list[RequestRecord]], list[RequestRecord]]:
    return lambda records: [*records[:9], replace(records[9], **changes), *records[10:]]  # type: ignore[arg-type]  # names are checked by dataclasses


LYING_REQUESTS: dict[str, Callable[[list[RequestRecord]], list[RequestRecord]]] = {
    "a slow request dropped": drop(9),
    "a request twice": lambda records: [*records[:9], records[9], *records[9:]],
    "two swapped": lambda records: [*records[:9], records[10], records[9], *records[11:]],
    "another due time": lambda records: alter(due_ns=records[9].due_ns + 1)(records),
    "a shorter prompt": alter(prompt_asked=1),
    "a shorter answer": alter(output_asked=1),
    "a trial of no journal": lambda records: [*records, replace(records[0], trial=99)],
    "the last scored ones dropped": lambda records: [r for r in records if r.row < 15],
}


@pytest.mark.parametrize("change", LYING_REQUESTS.values(), ids=LYING_REQUESTS)
def test_requests_that_are_not_the_planned_ones_are_refused(
    tmp_path: Path, change: Callable[[list[RequestRecord]], list[RequestRecord]]
) -> None:
    refused(RunBuilder(edit_requests=change).write(tmp_path), 8, "requests")


def test_a_run_without_its_requests_is_refused(tmp_path: Path) -> None:
    path = RunBuilder(edit_requests=lambda records: records[:0]).write(tmp_path)
    with pytest.raises(VerificationError, match=r"check [89]: "):
        check(path)


# --- (10) recomputation


def metric(value: dict[str, Any], key: str) -> dict[str, Any]:
    found: dict[str, Any] = next(m for m in value["claims"]["metrics"] if m["key"] == key)
    return found


def scaled(factor: float) -> Callable[[dict[str, Any]], None]:
    def change(value: dict[str, Any]) -> None:
        metric(value, "goodput")["value"] *= factor

    return change


def test_f26_a_claim_that_is_off_by_4e_7_passes(tmp_path: Path) -> None:
    run = check(RunBuilder(edit_document=scaled(1 + 4e-7)).write(tmp_path))
    assert run.claims != run.run.claims


@pytest.mark.parametrize("factor", [1 + 6e-7, 1 - 6e-7])
def test_f26_a_claim_that_is_off_by_6e_7_is_refused(tmp_path: Path, factor: float) -> None:
    path = RunBuilder(edit_document=scaled(factor)).write(tmp_path)
    refused(path, 10, "claims.metrics.2.value", "found", "expected")


def test_f26_what_is_published_is_recomputed_and_not_what_the_file_says(tmp_path: Path) -> None:
    honest = check(RunBuilder().write(tmp_path / "a"))
    run = check(RunBuilder(edit_document=scaled(1 + 4e-7)).write(tmp_path / "b"))
    assert run.claims == honest.claims


LIES_ABOUT_CLAIMS = {
    "a verdict": put("claims", "trials", 2, "verdict", value="PASS"),
    "a count": put("claims", "trials", 0, "complete", value=19),
    "an integer by one": put("claims", "repeats", 0, "boundary_urps", value=1),
    "the SLO": put("claims", "slo_met", value=False),
    "a caveat dropped": lambda value: value["claims"]["not_covered"].pop(),
    "a trial dropped": lambda value: value["claims"]["trials"].pop(0),
    "a number without evidence": lambda value: metric(value, "board_power").update(value=5.0),
    "a number left out": lambda value: metric(value, "goodput").update(value=None),
    "a reason": lambda value: metric(value, "mbu").update(reason="secret"),
}


@pytest.mark.parametrize("change", LIES_ABOUT_CLAIMS.values(), ids=LIES_ABOUT_CLAIMS)
def test_claims_that_do_not_follow_from_the_evidence_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    refused(RunBuilder(edit_document=change).write(tmp_path), 10, "claims.")


def test_faster_requests_under_the_same_claims_are_refused(tmp_path: Path) -> None:
    def faster(records: list[RequestRecord]) -> list[RequestRecord]:
        return [
            replace(r, last_ns=r.last_ns - 1000, end_ns=r.end_ns - 1000) if r.last_ns else r
            for r in records
        ]

    refused(RunBuilder(edit_requests=faster).write(tmp_path), 10, "claims.")


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("/"), OverflowError("e"), KeyError("k"), TypeError(), ValueError()]
)
@pytest.mark.parametrize(
    ("number", "part"),
    [
        (6, "decoded"),
        (7, "check_journal"),
        (8, "read_trials"),
        (10, "recomputed"),
        (9, "check_requests"),
    ],
)
def test_b14_evidence_that_breaks_our_code_costs_this_run_alone(
    pristine: Path, monkeypatch: pytest.MonkeyPatch, number: int, part: str, error: Exception
) -> None:
    def broken(*args: object, **named: object) -> None:
        raise error

    monkeypatch.setattr(verify, part, broken)
    refused(pristine, number, type(error).__name__)


ABSURD_JOURNALS = {
    "a rate of 0": altered("trial_start", rate_urps=0),
    "a negative rate": altered("trial_start", rate_urps=-1),
    "a rate above all floats' integers": altered("trial_start", rate_urps=2**53 - 1),
    "a rate that is text": altered("trial_start", rate_urps="1"),
    "an epoch that is a list": altered("trial_end", epoch_ns=[]),
    "an overhead that is text": altered("launch", chat_overhead="1"),
    "a negative epoch": altered("trial_end", epoch_ns=-1),
}


@pytest.mark.parametrize("change", ABSURD_JOURNALS.values(), ids=ABSURD_JOURNALS)
def test_b14_a_signed_absurdity_leaves_the_other_runs_of_a_tree(
    tmp_path: Path, change: Callable[[JournalPlan], JournalPlan]
) -> None:
    RunBuilder().write(tmp_path / "good")
    bad = RunBuilder(day=2, edit_journal=change).write(tmp_path / "bad")
    tree = read_tree(tmp_path, NO_KEYS)
    assert len(tree.valid) == 1
    assert [path for path, _ in tree.refused] == [bad]
    assert isinstance(tree.refused[0][1], VerificationError)


# --- (9) plausibility


def test_an_implausible_request_is_refused_even_where_the_claims_agree(tmp_path: Path) -> None:
    # Request 0 is in the lead-in, so that no claim changes with its end.
    def earlier(records: list[RequestRecord]) -> list[RequestRecord]:
        assert records[0].last_ns is not None
        return [replace(records[0], end_ns=records[0].last_ns - 10_000_000), *records[1:]]

    refused(RunBuilder(edit_requests=earlier).write(tmp_path), 9, "before its last token")


def test_what_is_implausible_is_never_computed_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Trials that share their time share samples too: 2,000 of them would be read 2,000 times.
    monkeypatch.setattr(verify, "recomputed", lambda *_, **__: pytest.fail("was computed with"))
    edit = altered("trial_end", 1, epoch_ns=10**12)
    refused(RunBuilder(edit_journal=edit).write(tmp_path), 9, "trial 2")


@pytest.mark.parametrize("field", ["started", "ended"])
def test_other_dates_than_the_journal_has_are_refused(tmp_path: Path, field: str) -> None:
    change = put("conditions", field, value="2020-01-01T00:00:00Z")
    refused(RunBuilder(edit_document=change).write(tmp_path), 9, f"conditions.{field}")


@pytest.mark.parametrize("epoch_ns", [10**12, 10**12 + 1, 999_999_999_999, 0])
def test_b19_a_trial_that_begins_before_the_one_before_has_ended_is_refused(
    tmp_path: Path, epoch_ns: int
) -> None:
    edit = altered("trial_end", 1, epoch_ns=epoch_ns)
    refused(RunBuilder(edit_journal=edit).write(tmp_path), 9, "trial 2", "epoch_ns")


def test_b19_a_trial_may_begin_as_soon_as_the_one_before_has_ended(tmp_path: Path) -> None:
    builder = RunBuilder()
    end_ns = max(r.end_ns for r in builder.requests() if r.trial == 1)
    for early, valid in ((0, True), (1, False)):
        edit = altered("trial_end", 1, epoch_ns=10**12 + end_ns - early)
        path = replace(builder, edit_journal=edit).write(tmp_path / str(early))
        if valid:
            check(path)
        else:
            refused(path, 9, "trial 2")


def powered(**changes: Any) -> RunBuilder:
    settings: dict[str, Any] = {"spec": gpu_spec(), "power": steady_power(4000)} | changes
    return RunBuilder(**settings)


def test_a_run_with_power_is_valid_and_its_watts_are_recomputed(tmp_path: Path) -> None:
    run = check(powered().write(tmp_path))
    assert run.evidence.power is not None
    assert run.claims.metric("board_power").value == pytest.approx(600)


LIES_ABOUT_POWER = {
    "another scope": powered(power=replace(steady_power(4000), scope="module")),
    "another sensor": powered(power=replace(steady_power(4000), sensor="amd")),
    "no sensor": powered(power=replace(steady_power(4000), sensor="none")),
    "b7 more than a board can draw": powered(power=steady_power(4000, power_mw=3 * 10**8)),
    "other boards": powered(edit_document=put("conditions", "board_uuids", value=["GPU-0"])),
    "boards without a log": RunBuilder(
        edit_document=put("conditions", "board_uuids", value=["GPU-0"])
    ),
    "b16 fewer boards than the setup has": powered(power=steady_power(4000, boards=1)),
    "b16 more boards than the setup has": powered(power=steady_power(4000, boards=3)),
    "b16 no board": powered(power=steady_power(0, boards=0)),
    "samples out of order": powered(
        power=replace(
            steady_power(4000), samples=(steady_power(5).samples[-1], *steady_power(4000).samples)
        )
    ),
}


@pytest.mark.parametrize("builder", LIES_ABOUT_POWER.values(), ids=LIES_ABOUT_POWER)
def test_power_of_another_source_than_named_is_refused(tmp_path: Path, builder: RunBuilder) -> None:
    refused(builder.write(tmp_path), 9)


INSTRUMENTS = [
    {"sensor": "redfish", "url": "https://bmc.example/redfish/v1/Chassis/1"},
    {"sensor": "rapl"},
]


@cache
def instrumented() -> RunBuilder:
    """A run with every role of evidence that readings have."""
    spec = gpu_spec(instruments=INSTRUMENTS, endpoint__model_files="models/toy")
    bare = RunBuilder(spec=spec, idle_s=12)
    return replace(
        bare,
        power=played_power(bare),
        beside=(host_power(bare), processor_power(bare)),
        counters=played_counters(bare),
        model=ModelDocument({"model_type": "toy"}),
    )


def test_a_run_with_every_role_is_valid_and_all_of_it_is_decoded(tmp_path: Path) -> None:
    builder = instrumented()
    run = check(builder.write(tmp_path))
    assert run.evidence.beside == builder.beside
    assert run.evidence.engine == builder.counters
    assert run.evidence.model == builder.model
    assert run.claims.metric("idle_power").value == pytest.approx(200)
    assert run.claims.metric("host_power").value == pytest.approx(1500)


NOT_ASKED_FOR: dict[str, dict[str, Any]] = {
    "a model": {"endpoint__model_files": None},
    "a second log": {"instruments": INSTRUMENTS[:1]},
    "any log beside": {"instruments": []},
    "power": {"setup__power": {"sensor": "none", "scope": "none", "rate_hz": 0.0}},
}


@pytest.mark.parametrize("changes", NOT_ASKED_FOR.values(), ids=NOT_ASKED_FOR)
def test_evidence_that_the_spec_does_not_ask_for_is_refused(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    settings = {"instruments": INSTRUMENTS, "endpoint__model_files": "models/toy"}
    builder = replace(instrumented(), spec=gpu_spec(**settings | changes))
    refused(builder.write(tmp_path), 6, "does not have the roles that are read")


def role(old: str, new: str) -> Callable[[dict[str, Any]], None]:
    def change(value: dict[str, Any]) -> None:
        entry = next(entry for entry in value["evidence"] if entry["role"] == old)
        entry["role"] = new

    return change


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("engine", "counters"),
        ("power-beside-2", "power-beside-3"),
        ("power-beside-2", "power-beside-02"),
        ("power-beside-2", "power-beside-1"),
        ("power-beside-1", "power-beside-"),
    ],
)
def test_a_role_of_another_name_or_twice_is_refused(tmp_path: Path, old: str, new: str) -> None:
    path = replace(instrumented(), edit_document=role(old, new)).write(tmp_path)
    refused(path, 6, "does not have the roles that are read")


def test_a_log_beside_of_an_instrument_that_is_not_asked_for_is_refused(tmp_path: Path) -> None:
    twice = (instrumented().beside[0],) * 2
    path = replace(instrumented(), beside=twice).write(tmp_path)
    refused(path, 9, "found nvml, redfish, redfish; expected nvml, rapl, redfish")


def unread(sensor: str | None) -> Callable[[JournalPlan], JournalPlan]:
    """Let the journal say of an instrument (None: that of the energy) that it was not read."""

    def change(plan: JournalPlan) -> JournalPlan:
        (event, data), *rest = plan
        if sensor is None:
            return [(event, data | {"power_reason": "no permission"}), *rest]
        told = [{**i, "reason": "x" if i["sensor"] == sensor else None} for i in INSTRUMENTS]
        kept = [{"sensor": i["sensor"], "reason": i["reason"]} for i in told]
        return [(event, data | {"instruments": kept}), *rest]

    return change


def boards(**changes: Any) -> dict[str, Any]:
    """Changes to what the log says of its boards."""
    power = instrumented().power
    assert power is not None
    return {"boards": tuple(board.model_copy(update=changes) for board in power.boards)}


def spans(*told: tuple[int, int, int]) -> dict[str, Any]:
    return {
        "spans": tuple(
            DramSpan(board=0, start_ns=10**12 + start, end_ns=10**12 + end, ppm=ppm)
            for start, end, ppm in told
        )
    }


FORGED_POWER: dict[str, tuple[dict[str, Any], str]] = {
    "b5 a longer period, in which samples may be left out": (
        {"period_ns": 500 * 10**9},
        "is not that of setup.power.rate_hz",
    ),
    "b12 boards of another model": (boards(name="NVIDIA H200"), "is not the model"),
    "b21 another power limit": (boards(limit_mw=1_200_000), "is not the limit"),
    "b16 a span of more than any bus": (spans((0, 9, 10**8)), "is beyond any reading"),
    "b16 two spans of one time": (spans((0, 9, 1), (5, 20, 1)), "overlaps another of its board"),
}


@pytest.mark.parametrize(("changes", "words"), FORGED_POWER.values(), ids=FORGED_POWER)
def test_power_that_contradicts_the_spec_or_itself_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    power = instrumented().power
    assert power is not None
    forged = replace(instrumented(), power=replace(power, **changes))
    refused(forged.write(tmp_path), 9, words)


LEFT_OUT: dict[str, dict[str, Any]] = {
    "the log of the energy": {"power": None, "edit_journal": altered("open", power_reason=None)},
    "all logs beside it": {"beside": ()},
    "one of them": {"beside": instrumented().beside[1:]},
    "nothing, and the journal says so of one": {"edit_journal": unread("rapl")},
    "nothing, and the journal says so of the energy": {"edit_journal": unread(None)},
}


@pytest.mark.parametrize("changes", LEFT_OUT.values(), ids=LEFT_OUT)
def test_readings_are_those_that_the_journal_says_there_are(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    forged = replace(instrumented(), **changes)
    refused(forged.write(tmp_path), 9, "is not of the instruments that the journal says")


def test_an_interrupted_run_may_lack_readings(tmp_path: Path) -> None:
    check(replace(instrumented(), beside=(), status="interrupted").write(tmp_path))


def test_an_idle_span_too_short_to_be_read_is_refused(tmp_path: Path) -> None:
    refused(replace(instrumented(), idle_s=9).write(tmp_path), 9, "is shorter than 10 s")


def test_b8_an_engine_s_counter_that_runs_backwards_is_refused(tmp_path: Path) -> None:
    counters = instrumented().counters
    assert counters is not None
    first, *others = counters.samples
    backwards = replace(counters, samples=(replace(first, steps=10**6), *others))
    refused(replace(instrumented(), counters=backwards).write(tmp_path), 9, "runs backwards")


def test_a_span_without_load_that_overlaps_a_trial_is_refused(tmp_path: Path) -> None:
    def longer(plan: JournalPlan) -> JournalPlan:
        return [
            (event, data | {"end_ns": 10**12 + 1})
            if event == "idle" and data["when"] == "before"
            else (event, data)
            for event, data in plan
        ]

    # The span has no power to read there, so that claims stay what they were.
    bare = replace(instrumented(), power=None, edit_journal=longer)
    refused(bare.write(tmp_path), 9, "had ended")


@pytest.mark.parametrize(
    "told",
    [[], [{"sensor": "rapl"}, {"sensor": "redfish"}], [{"sensor": "redfish"}], None, "all"],
)
def test_an_opening_that_tells_of_other_instruments_is_refused(tmp_path: Path, told: Any) -> None:
    def other(plan: JournalPlan) -> JournalPlan:
        (event, data), *rest = plan
        return [(event, data | {"instruments": told}), *rest]

    refused(
        replace(instrumented(), edit_journal=other).write(tmp_path), 7, "journal line 0.instruments"
    )


# --- ValidatedRun


def test_a_validated_run_cannot_be_made_elsewhere(pristine: Path) -> None:
    run = check(pristine)
    fields = {f.name: getattr(run, f.name) for f in dataclasses.fields(run)}
    with pytest.raises(TypeError, match="verify alone"):
        ValidatedRun(**fields)
    with pytest.raises((TypeError, ValueError)):
        replace(run, run_id="0" * 64)


def test_only_trust_verify_constructs_validated_runs() -> None:
    package = Path(tokenwatt_site.__file__).parent
    makers = set()
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and "ValidatedRun" in ast.dump(node.func):
                makers.add(path.relative_to(package).as_posix())
            if isinstance(node, ast.Name | ast.Attribute) and "_MADE_HERE" in ast.dump(node):
                makers.add(path.relative_to(package).as_posix())
    assert makers == {"trust/verify.py"}


# --- claims-only records and trees


def record(**changes: Any) -> dict[str, Any]:
    return {
        "record_schema": "tokenwatt/claims-only/1",
        "id": "some-report",
        "title": "Some report",
        "published": "2026-10-27",
        "source": "report",
        "column": "4x",
        "summary": "Words.",
        "results_note": "n",
        "charts": [],
        "numbers_note": "n",
        "numbers": [{"metric": "TTFT", "text": "379 ms"}],
        "setup_note": "n",
        "setup": [],
        "not_covered_note": "n",
        "not_covered": [],
        "reproduce_note": "n",
        "reproduce": [],
        "our_notes": [],
    } | changes


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_a_claims_only_record_is_read_as_it_is(tmp_path: Path) -> None:
    quoted = load_claims_only(write(tmp_path / "x.json", record()))
    assert quoted.numbers[0].text == "379 ms"


@pytest.mark.parametrize(
    "value",
    [record(extra=1), record(id="../x"), record(id="CON"), record(title=""), [], {}],
)
def test_f9_a_claims_only_record_of_the_wrong_shape_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(InputError, match=r"x\.json"):
        load_claims_only(write(tmp_path / "x.json", value))


def test_a_tree_is_read_whatever_its_files_are_called(tmp_path: Path) -> None:
    RunBuilder().write(tmp_path / "deep" / "er", "notes.json")
    RunBuilder(day=2).write(tmp_path, "package.json")
    write(tmp_path / "z" / "record.json", record())
    tree = read_tree(tmp_path, NO_KEYS)
    assert [run.path.name for run in tree.valid] == ["notes.json", "package.json"]
    assert [quoted.id for _, quoted in tree.quoted] == ["some-report"]
    assert tree.refused == ()


def test_a_bad_file_is_named_and_the_rest_of_the_tree_read(tmp_path: Path) -> None:
    RunBuilder().write(tmp_path / "a")
    cut = RunBuilder(day=2).write(tmp_path / "b")
    cut.write_bytes(cut.read_bytes()[:1000])
    write(tmp_path / "c.json", record(id="../x"))
    write(tmp_path / "d.json", {"name": "neither"})
    os.mkfifo(tmp_path / "e.json")
    tree = read_tree(tmp_path, NO_KEYS)
    assert len(tree.valid) == 1
    assert [path.name for path, _ in tree.refused] == ["run.json", "c.json", "d.json", "e.json"]
    assert all(path.name in str(error) for path, error in tree.refused)


def test_the_second_copy_of_a_run_is_refused(tmp_path: Path) -> None:
    first = RunBuilder().write(tmp_path, "a.json")
    os.link(first, tmp_path / "b.json")
    tree = read_tree(tmp_path, NO_KEYS)
    assert [run.path.name for run in tree.valid] == ["a.json"]
    assert [path.name for path, _ in tree.refused] == ["b.json"]
    assert "a.json" in str(tree.refused[0][1])


def test_a_run_that_another_signed_again_does_not_displace_its_publisher(tmp_path: Path) -> None:
    original = RunBuilder(tells_key=False).write(tmp_path / "runs", "z.json")
    value = document(original)
    del value["signatures"]
    write_signed(tmp_path / "runs" / "a.json", value, a_key(9))
    tree = read_tree(tmp_path / "runs", keyring_of(tmp_path / "keys", a_key()))
    assert [run.path.name for run in tree.valid] == ["z.json"]
    assert [path.name for path, _ in tree.refused] == ["a.json"]


def test_a_run_that_another_publisher_signed_again_is_refused_and_cannot_be_withdrawn_by_them(
    tmp_path: Path,
) -> None:
    original = RunBuilder().write(tmp_path / "runs", "z.json")
    value = document(original)
    del value["signatures"]
    again = write_signed(tmp_path / "runs" / "a.json", value, a_key(2))
    state(again, "withdrawn", a_key(2))
    tree = read_tree(tmp_path / "runs", keyring_of(tmp_path / "keys", a_key(), a_key(2)))
    (run,) = tree.valid
    assert (run.path.name, run.standing.retracted) == ("z.json", False)
    found = [error for path, error in tree.refused if path == again]
    assert "another key than the one that signed" in str(found)


def test_of_two_equal_records_one_is_taken(tmp_path: Path) -> None:
    write(tmp_path / "a.json", record())
    write(tmp_path / "b.json", record())
    tree = read_tree(tmp_path, NO_KEYS)
    assert [path.name for path, _ in tree.quoted] == ["a.json"]
    assert [path.name for path, _ in tree.refused] == ["b.json"]


def test_of_records_that_say_different_things_under_one_id_none_is_taken(tmp_path: Path) -> None:
    write(tmp_path / "aa.json", record(title="Another"))
    write(tmp_path / "b.json", record())
    write(tmp_path / "c.json", record(id="other"))
    tree = read_tree(tmp_path, NO_KEYS)
    assert [path.name for path, _ in tree.quoted] == ["c.json"]
    assert {path.name: "also the id of another" in str(why) for path, why in tree.refused} == {
        "aa.json": True,
        "b.json": True,
    }


def test_a_dispute_is_not_got_rid_of_by_a_record_in_the_run_s_place(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    path = RunBuilder().write(runs, "a.json")
    said = state(path, "disputed", a_key(2))
    (runs / "b").mkdir()
    path.rename(runs / "b" / "a.json")
    (runs / "evidence").rename(runs / "b" / "evidence")
    write(path, record())
    tree = read_tree(runs, keyring_of(tmp_path / "keys", a_key(), a_key(2)))
    assert [where for where, _ in tree.refused] == [said]


def test_f10_links_in_a_tree_are_refused_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    RunBuilder().write(outside)
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "folder").symlink_to(outside)
    (runs / "file.json").symlink_to(outside / "run.json")
    (runs / "loop").symlink_to(runs)
    (runs / "nowhere.json").symlink_to(tmp_path / "nowhere")
    tree = read_tree(runs, NO_KEYS)
    assert tree.valid == ()
    assert sorted(path.name for path, _ in tree.refused) == [
        "file.json",
        "folder",
        "loop",
        "nowhere.json",
    ]


def test_a_folder_that_is_not_there_is_an_empty_tree(tmp_path: Path) -> None:
    assert read_tree(tmp_path / "none", NO_KEYS) == verify.Tree((), (), ())


# --- statements


def test_statements_beside_a_run_are_part_of_what_it_stands_for(tmp_path: Path) -> None:
    path = RunBuilder().write(tmp_path / "runs")
    keyring = keyring_of(tmp_path / "keys", a_key(), a_key(2))
    state(path, "disputed", a_key(2))
    state(path, "withdrawn", a_key())
    run = verify_run(path, root=path.parent, keyring=keyring)
    assert (run.standing.disputed, run.standing.retracted) == (True, True)
    assert run.standing.unread == ()
    (same,) = read_tree(tmp_path / "runs", keyring).valid
    assert same.standing == run.standing


BAD_STATEMENTS: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(b"garbage\n"),
    "a cut line": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "another run's": lambda path: path.write_bytes(line("disputed", "c" * 64, a_key(2))),
    "a link": lambda path: path.rename(path.with_name("x")) and path.symlink_to("x"),
    "a folder": lambda path: path.unlink() or path.mkdir(),
    "a gigabyte": lambda path: path.write_bytes(b"") or os.truncate(path, 1 << 30),
}


@pytest.mark.parametrize("change", BAD_STATEMENTS.values(), ids=BAD_STATEMENTS)
def test_f10_bad_statements_are_left_out_and_listed_and_the_run_stays(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    path = RunBuilder().write(tmp_path / "runs")
    keyring = keyring_of(tmp_path / "keys", a_key(), a_key(2))
    beside = state(path, "disputed", a_key(2))
    change(beside)
    tree = read_tree(tmp_path / "runs", keyring)
    (run,) = tree.valid
    assert (run.standing.told, run.standing.disputed) == ((), False)
    assert [where for where, _ in run.standing.unread] == [beside]
    assert [where for where, _ in tree.refused] == [beside]
    assert beside.name in str(tree.refused[0][1])


def test_a_dispute_does_not_go_away_by_renaming_copying_or_signing_again(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    keyring = keyring_of(tmp_path / "keys", a_key(), a_key(2))
    path = RunBuilder().write(runs, "b.json")
    state(path, "disputed", a_key(2))
    os.link(path, runs / "a.json")
    tree = read_tree(runs, keyring)
    assert [(run.path.name, run.standing.disputed) for run in tree.valid] == [("a.json", True)]
    path.unlink()
    tree = read_tree(runs, keyring)
    assert [where.name for where, _ in tree.refused] == ["b.att.jsonl"]


def test_a_bad_line_is_refused_and_the_dispute_beside_it_counts(tmp_path: Path) -> None:
    keyring = keyring_of(tmp_path / "keys", a_key(), a_key(2))
    path = RunBuilder().write(tmp_path / "runs")
    beside = state(path, "disputed", a_key(2))
    beside.write_bytes(b"garbage\n" + beside.read_bytes() + b"{cut")
    tree = read_tree(tmp_path / "runs", keyring)
    assert [run.standing.disputed for run in tree.valid] == [True]
    ((where, why),) = tree.refused
    assert (where, [problem.line for problem in why.problems]) == (beside, [1, 3])
    os.truncate(beside, 1 << 30)
    (run,) = read_tree(tmp_path / "runs", keyring).valid
    assert run.standing.disputed


def test_strangers_silence_neither_a_registered_key_nor_the_run_s_own(tmp_path: Path) -> None:
    path = RunBuilder().write(tmp_path)
    flood = [
        line("disputed", run_id_of(path), a_key(9), reason=f"reason {n}")
        for n in range(MAX_UNKNOWN + 1)
    ]
    path_beside(path).write_bytes(b"".join(flood))
    state(path, "withdrawn", a_key())
    state(path, "disputed", a_key(2))
    ours = keyring_of(tmp_path / "keys", a_key(2))
    (run,) = read_tree(tmp_path, ours).valid
    assert (run.standing.retracted, run.standing.disputed, run.standing.unheard) == (True, True, 1)


def test_statements_beside_a_run_that_is_refused_are_named_too(tmp_path: Path) -> None:
    path = RunBuilder().write(tmp_path)
    state(path, "disputed", a_key(2))
    path.write_bytes(path.read_bytes()[:1000])
    names = [where.name for where, _ in read_tree(tmp_path, NO_KEYS).refused]
    assert names == ["run.att.jsonl", "run.json"]


def test_f19_of_copies_one_of_a_key_that_counts_is_taken_and_not_a_revoked_one(
    tmp_path: Path,
) -> None:
    original = RunBuilder(tells_key=False).write(tmp_path / "runs", "z.json")
    value = document(original)
    del value["signatures"]
    write_signed(tmp_path / "runs" / "a.json", value, a_key(2))
    revoked = revoked_key(
        register(a_key(2), name="Lab 2"),
        at=datetime(2026, 1, 1, tzinfo=UTC),
        reason="lost",
        private_key=a_key(2),
    )
    keyring = Keyring().including(register(a_key(), name="Lab 1")).including(revoked)
    tree = read_tree(tmp_path / "runs", keyring)
    assert [(run.path.name, run.key_state) for run in tree.valid] == [("z.json", "known")]


def test_a_rerun_counts_where_both_runs_are_in_sight(tmp_path: Path) -> None:
    keyring = keyring_of(tmp_path / "keys", a_key(), a_key(2))
    runs = tmp_path / "runs"
    ours = on_boards(("GPU-a", "GPU-b")).write(runs / "ours")
    theirs = on_boards(("GPU-c", "GPU-d"), builder={"key": a_key(2)}).write(runs / "theirs")
    state(ours, "reproduced", a_key(2), run=run_id_of(theirs), outcome="inconclusive")
    alone = verify_run(ours, root=runs, keyring=keyring)
    assert "is not here" in str(alone.standing.told[0].why_not)
    other = verify_run(theirs, root=runs, keyring=keyring)
    for together in (settle([alone, other], keyring), read_tree(runs, keyring).valid):
        found = {run.path: run.standing for run in together}
        assert len(found[ours].counting("reproduced")) == 1
        assert found[theirs].told == ()


def test_f23_a_long_label_in_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="title"):
        load_claims_only(write(tmp_path / "x.json", record(title="a" * 100_000)))


def test_the_schema_of_the_builder_is_the_one_that_is_read(pristine: Path) -> None:
    assert document(pristine)["run_schema"] == RUN_SCHEMA
    assert signed_bytes(document(pristine)) == check(pristine).run.signed_bytes()
    assert all(r.status is Status.OK for r in check(pristine).evidence.requests)
