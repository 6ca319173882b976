"""Tests of trust.checked and trust.held: what passed before need not be verified again."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import KEYID, RunBuilder, a_key, keyring_of, small_spec, write_signed
from tokenwatt_site.errors import InputError
from tokenwatt_site.trust import checked as checked_module
from tokenwatt_site.trust import held as held_module
from tokenwatt_site.trust import verify
from tokenwatt_site.trust.checked import Checked
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import ValidatedRun, read_tree, verify_run


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return RunBuilder().write(tmp_path_factory.mktemp("plain"))


@pytest.fixture
def runs(pristine: Path, tmp_path: Path) -> Path:
    """A folder with one run, of which the cache in `cache/` beside it knows."""
    shutil.copytree(pristine.parent, tmp_path / "runs" / "one")
    assert len(tree(tmp_path / "runs")) == 1
    return tmp_path / "runs"


def tree(runs: Path, keyring: Keyring | None = None) -> tuple[ValidatedRun, ...]:
    return read_tree(runs, keyring or Keyring(), Checked(runs.parent / "cache")).valid


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were verified, from here on."""
    seen: list[Path] = []
    whole = verify._verified

    def counting(path: Path, *args: Any, **kwargs: Any) -> ValidatedRun:
        seen.append(path)
        return whole(path, *args, **kwargs)

    monkeypatch.setattr(verify, "_verified", counting)
    return seen


def test_a_run_that_passed_is_not_verified_again_and_is_the_same(
    runs: Path, counted: list[Path]
) -> None:
    fresh = verify_run(runs / "one" / "run.json", root=runs, keyring=Keyring())
    counted.clear()
    [again] = tree(runs)
    assert counted == []
    assert (again.run, again.claims, again.evidence) == (fresh.run, fresh.claims, fresh.evidence)
    told = ("path", "run_id", "level", "keyid", "standing", "promised", "ended", "opening")
    assert [getattr(again, name) for name in told] == [getattr(fresh, name) for name in told]
    assert again.first_trial == fresh.first_trial
    assert held_but_packed(again) == held_but_packed(fresh)


def held_but_packed(run: ValidatedRun) -> dict[str, Any]:
    names = [field.name for field in fields(run.held) if field.name != "packed"]
    return {name: getattr(run.held, name) for name in names}


def test_a_run_that_moved_is_known_where_it_is_now(runs: Path, counted: list[Path]) -> None:
    (runs / "one").rename(runs / "two")
    [run] = tree(runs)
    assert (run.path, counted) == (runs / "two" / "run.json", [])
    assert run.evidence.requests


def test_only_the_file_that_is_new_is_verified(runs: Path, counted: list[Path]) -> None:
    added = RunBuilder(spec=small_spec(setup__driver="other"), day=2).write(runs / "two")
    assert len(tree(runs)) == 2
    assert counted == [added]


def test_the_key_is_looked_up_every_time(runs: Path, tmp_path: Path, counted: list[Path]) -> None:
    [run] = tree(runs, keyring_of(tmp_path / "keys", a_key()))
    assert (run.signer, run.keyid, counted) == ("Lab 1", KEYID, [])
    assert tree(runs)[0].signer is None


def evidence_of(runs: Path, role: str) -> Path:
    entries = json.loads((runs / "one" / "run.json").read_text())["evidence"]
    [path] = [entry["path"] for entry in entries if entry["role"] == role]
    return runs / "one" / str(path)


def test_evidence_that_is_gone_or_other_is_found_out(runs: Path) -> None:
    requests = evidence_of(runs, "requests")
    data = gzip.decompress(requests.read_bytes())
    requests.write_bytes(gzip.compress(data.replace(b"1", b"2", 1)))
    assert tree(runs) == ()
    requests.unlink()
    assert tree(runs) == ()


def test_evidence_that_was_only_packed_anew_is_verified_again(
    runs: Path, counted: list[Path]
) -> None:
    requests = evidence_of(runs, "requests")
    requests.write_bytes(gzip.compress(gzip.decompress(requests.read_bytes()), 1))
    assert len(tree(runs)) == 1
    assert len(counted) == 1


def test_a_link_in_the_place_of_known_evidence_is_refused(runs: Path, tmp_path: Path) -> None:
    folder = runs / "one" / "evidence"
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert tree(runs) == ()


def test_a_run_file_that_is_a_link_is_refused_though_its_bytes_are_known(
    runs: Path, tmp_path: Path
) -> None:
    file = runs / "one" / "run.json"
    file.symlink_to(file.rename(tmp_path / "run.json"))
    assert tree(runs) == ()


def test_a_run_that_tells_other_numbers_is_refused_though_its_evidence_is_known(
    runs: Path, counted: list[Path]
) -> None:
    file = runs / "one" / "run.json"
    value = json.loads(file.read_text())
    del value["signatures"]
    value["claims"]["slo_met"] = not value["claims"]["slo_met"]
    write_signed(file, value, a_key())
    for _ in range(2):
        assert tree(runs) == ()
    assert counted == [file, file]


def test_other_code_knows_nothing(
    runs: Path, counted: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked_module, "code_digest", lambda: "0" * 64)
    assert len(tree(runs)) == 1
    assert len(counted) == 1


def test_entries_that_were_deleted_cost_a_verification_and_nothing_else(
    runs: Path, counted: list[Path]
) -> None:
    shutil.rmtree(runs.parent / "cache")
    assert len(tree(runs)) == 1
    assert len(counted) == 1


def test_a_known_run_whose_entry_is_deleted_meanwhile_is_an_error_that_says_so(runs: Path) -> None:
    [run] = tree(runs)
    shutil.rmtree(runs.parent / "cache")
    with pytest.raises(InputError, match="what was kept of this run is gone"):
        _ = run.run


def test_evidence_that_changes_after_the_check_is_an_error_and_not_another_number(
    runs: Path,
) -> None:
    [run] = tree(runs)
    evidence_of(runs, "journal").unlink()
    with pytest.raises(InputError, match="cannot be read"):
        _ = run.evidence


def test_few_runs_are_unpacked_at_a_time(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    latest = held_module._Latest(2, lambda held: made.append(id(held)) or held.run)  # type: ignore[func-returns-value]
    several = [tree(runs)[0].held for _ in range(3)]
    for held in (*several, several[2], several[1], several[0]):
        assert latest.get(held) == several[0].run
    assert made == [*map(id, several), id(several[0])]


def test_numbers_that_differ_in_the_last_bits_are_held_as_they_were_recomputed(
    pristine: Path,
) -> None:
    run = verify_run(pristine, root=pristine.parent, keyring=Keyring())
    first, *others = run.claims.metrics
    nearly = first.model_copy(update={"reason": "recomputed"})
    claims = run.claims.model_copy(update={"metrics": (nearly, *others)})
    held = held_module.Held.of(pristine, run.run, claims, run.evidence)
    unpacked, numbers = held_module._unpacked(held)
    assert (unpacked, numbers) == (run.run, claims)
