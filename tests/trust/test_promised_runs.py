"""Commitments in a folder of runs: found by what they tell, and never in a good run's way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.runs import RunBuilder, a_key, keyring_of
from tests.trust.test_commitment import an_opening, changed
from tokenwatt_site.configuration import group
from tokenwatt_site.errors import InputError
from tokenwatt_site.pages import facts
from tokenwatt_site.trust import beside, statement
from tokenwatt_site.trust.commitment import commit, parse, path_beside
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import Tree, ValidatedRun, read_tree, verify_run

OWN, LAB = a_key(1), a_key(2)
BEFORE, AFTER = "2026-01-01T00:00:01Z", "2026-01-01T01:00:00Z"
"""The journal of a RunBuilder opens at 00:00:00; its first trial begins two seconds later."""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    return keyring_of(tmp_path / "keys", OWN, LAB)


def written(folder: Path) -> Path:
    return RunBuilder(simulated=False, key=OWN).write(folder)


def committed(run: Path, path: Path | None = None) -> Path:
    """Write the commitment to a run, beside it or elsewhere."""
    opening = verify_run(run, root=run.parent, keyring=Keyring()).evidence.journal[0]
    path = path or path_beside(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(commit(opening, OWN))
    return path


def countersign(path: Path, made: str, key: Ed25519PrivateKey = LAB) -> Path:
    digest = parse(path.read_bytes(), str(path)).digest
    said = beside.path_beside(path)
    beside.append(said, statement.sign("countersigned", digest, {}, key, made))
    return said


def alone(path: Path, keyring: Keyring) -> ValidatedRun:
    return verify_run(path, root=path.parent, keyring=keyring)


def only(tree: Tree) -> ValidatedRun:
    (run,) = tree.valid
    assert tree.refused == ()
    return run


def fact(run: ValidatedRun) -> facts.Fact:
    return next(f for f in facts.facts(group([run])[0]) if f.id == "committed")


def test_a_run_without_a_commitment_says_so(runs: Path, keyring: Keyring) -> None:
    run = written(runs)
    for checked in (alone(run, keyring), only(read_tree(runs, keyring))):
        assert checked.promised.commitment is None
        assert (fact(checked).kind, fact(checked).label) == ("no", "Not committed")


def test_t3_a_commitment_beside_a_run_is_shown_as_its_own_word(
    runs: Path, keyring: Keyring
) -> None:
    run = written(runs)
    path = committed(run)
    for checked in (alone(run, keyring), only(read_tree(runs, keyring))):
        assert checked.promised.commitment is not None
        assert checked.promised.commitment.path == path
        told = fact(checked)
        assert (told.kind, told.label) == ("warn", "Committed, own word")
        assert "committed to 1 run, 1 of them here" in told.does
        assert "nobody else saw" in told.does_not


def test_t3_countersigned_before_the_first_trial_it_was_committed_before_measuring(
    runs: Path, keyring: Keyring
) -> None:
    run = written(runs)
    countersign(committed(run), BEFORE)
    for checked in (alone(run, keyring), only(read_tree(runs, keyring))):
        assert checked.promised.before
        told = fact(checked)
        assert (told.kind, told.label) == ("yes", "Committed before measuring")
        assert told.does.startswith("Lab 2 countersigned")
        assert "no other run was made and left out" in told.does_not


def test_t7_countersigned_later_it_was_seen_too_late(runs: Path, keyring: Keyring) -> None:
    run = written(runs)
    countersign(committed(run), AFTER)
    told = fact(only(read_tree(runs, keyring)))
    assert (told.kind, told.label) == ("warn", "Committed, seen too late")


def test_in_a_folder_its_place_and_name_carry_no_meaning(runs: Path, keyring: Keyring) -> None:
    run = written(runs / "a")
    path = committed(run, runs / "elsewhere" / "promise.json")
    countersign(path, BEFORE)
    checked = only(read_tree(runs, keyring))
    assert checked.promised.commitment is not None
    assert checked.promised.commitment.path == path
    assert checked.promised.before
    assert alone(run, keyring).promised.commitment is None


def test_t3_commitments_without_a_run_are_no_fault_and_are_counted(
    runs: Path, keyring: Keyring
) -> None:
    run = written(runs)
    committed(run)
    for n in (1, 2):
        (runs / f"other-{n}.json").write_bytes(commit(an_opening(nonce=f"{n:02x}" * 32), OWN))
    checked = only(read_tree(runs, keyring))
    assert (checked.promised.handed_out, checked.promised.kept) == (3, 1)
    assert "committed to 3 runs, 1 of them here" in fact(checked).does


def test_a_commitment_that_is_not_valid_is_listed_and_the_run_stays(
    runs: Path, keyring: Keyring
) -> None:
    run = written(runs)
    path = committed(run)
    document = json.loads(path.read_bytes())
    document["signatures"][0]["sig"] = "AAAA"
    path.write_text(json.dumps(document), encoding="utf-8")
    tree = read_tree(runs, keyring)
    assert [each.path for each in tree.valid] == [run]
    ((refused, error),) = tree.refused
    assert refused == path
    assert "does not fit" in str(error)
    checked = alone(run, keyring)
    assert checked.promised.commitment is None
    assert [name for name, _ in checked.standing.unread] == [path]


def test_t3_a_commitment_that_lies_of_its_run_is_listed_and_the_run_stays(
    runs: Path, keyring: Keyring
) -> None:
    run = written(runs)
    opening = alone(run, keyring).evidence.journal[0]
    path = path_beside(run)
    lie = changed(lambda told: told["opening"].update(configuration="x"), of=opening)
    path.write_bytes(lie)
    tree = read_tree(runs, keyring)
    assert [each.path for each in tree.valid] == [run]
    assert tree.valid[0].promised.commitment is None
    assert [name for name, _ in tree.refused] == [path]
    assert [name for name, _ in alone(run, keyring).standing.unread] == [path]


def test_statements_about_a_commitment_that_are_not_valid_are_listed_alone(
    runs: Path, keyring: Keyring
) -> None:
    run = written(runs)
    said = countersign(committed(run), BEFORE)
    said.write_bytes(said.read_bytes()[:-2])
    tree = read_tree(runs, keyring)
    assert tree.valid[0].promised.commitment is not None
    assert tree.valid[0].promised.witness is None
    assert [name for name, _ in tree.refused] == [said]


def test_a_statement_about_another_digest_is_not_about_the_commitment(
    runs: Path, keyring: Keyring
) -> None:
    path = committed(written(runs))
    other = statement.sign("countersigned", "0" * 64, {}, LAB, BEFORE)
    beside.append(beside.path_beside(path), other)
    ((_, error),) = read_tree(runs, keyring).refused
    assert isinstance(error, InputError)
    assert "is about another run" in str(error)


def test_f10_a_commitment_behind_a_link_is_refused(
    runs: Path, keyring: Keyring, tmp_path: Path
) -> None:
    run = written(runs)
    real = committed(run, tmp_path / "promise.json")
    path_beside(run).symlink_to(real)
    tree = read_tree(runs, keyring)
    assert [name for name, _ in tree.refused] == [path_beside(run)]
    checked = alone(run, keyring)
    assert checked.promised.commitment is None
    assert len(checked.standing.unread) == 1


def test_f27_a_commitment_that_tells_of_somebody_s_home_is_refused(
    runs: Path, keyring: Keyring
) -> None:
    run = written(runs)
    path = runs / "other.json"
    path.write_bytes(commit(an_opening(nonce="01" * 32, note="/home/jane/models"), OWN))
    tree = read_tree(runs, keyring)
    assert [each.path for each in tree.valid] == [run]
    ((refused, error),) = tree.refused
    assert refused == path
    assert "opening.note: is a path in somebody's home" in str(error)
