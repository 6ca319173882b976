"""Stating something about a run with the own key."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.runs import RunBuilder, a_key, keyring_of
from tests.support.statements import state
from tokenwatt_site import __version__
from tokenwatt_site.commands import attest as command
from tokenwatt_site.commands.attest import Attested
from tokenwatt_site.commands.verify import verify
from tokenwatt_site.errors import EnvironmentProblem, InputError, UsageError, VerificationError
from tokenwatt_site.trust.beside import path_beside
from tokenwatt_site.trust.keyring import own_key
from tokenwatt_site.trust.predicates import Recomputed, Superseded

WHY = {"reason": "the driver was another one"}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ed25519PrivateKey:
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(tmp_path / "own"))
    return own_key(tmp_path / "own")


@pytest.fixture
def keys(tmp_path: Path, own: Ed25519PrivateKey) -> Path:
    """A folder in which the own key is Lab 1, and another one Lab 2."""
    keyring_of(tmp_path / "keys", own, a_key(2))
    return tmp_path / "keys"


@pytest.fixture
def mine(tmp_path: Path, own: Ed25519PrivateKey) -> Path:
    return RunBuilder(key=own).write(tmp_path / "mine")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    return RunBuilder(key=a_key(2)).write(tmp_path / "theirs")


def attest(kind: Any, path: Path, keys: Path, **options: Any) -> Attested:
    done = command.attest(kind, path, keys=keys, **options)
    assert done.path == path_beside(path)
    return done


def test_a_dispute_counts_at_once_and_its_run_stays_as_it_was(keys: Path, theirs: Path) -> None:
    before = theirs.read_bytes()
    done = attest("disputed", theirs, keys, **WHY, url="https://example.org/1")
    assert done.note is None
    assert verify(theirs, keys).standing.disputed
    assert theirs.read_bytes() == before


def test_an_own_run_is_withdrawn_or_superseded_and_nobody_else_s(
    keys: Path, mine: Path, theirs: Path, tmp_path: Path, own: Ed25519PrivateKey
) -> None:
    attest("withdrawn", mine, keys, **WHY)
    better = RunBuilder(key=own, day=2).write(tmp_path / "better")
    attest("superseded", mine, keys, reason="more launches", by=str(better))
    standing = verify(mine, keys).standing
    assert [t.signed.kind for t in standing.told] == ["withdrawn", "superseded"]
    assert standing.retracted
    said = standing.told[1].signed.said
    assert isinstance(said, Superseded)
    assert said.by == verify(better, keys).run_id
    with pytest.raises(UsageError, match="only the run's own key"):
        attest("withdrawn", theirs, keys, **WHY)
    assert not path_beside(theirs).exists()


def test_somebody_else_s_run_is_countersigned_and_recomputed_and_not_an_own_one(
    keys: Path, mine: Path, theirs: Path
) -> None:
    before = datetime.now(UTC)
    attest("countersigned", theirs, keys)
    attest("recomputed", theirs, keys)
    run = verify(theirs, keys)
    witness, recomputed = run.standing.told
    assert run.standing.witness == witness
    assert before <= witness.signed.made <= datetime.now(UTC)
    assert isinstance(recomputed.signed.said, Recomputed)
    assert recomputed.signed.said.numbers == run.claims.numbers > 0
    assert recomputed.signed.said.tool_version == __version__
    for kind in ("countersigned", "recomputed"):
        with pytest.raises(UsageError, match="the publisher's own word"):
            attest(kind, mine, keys)


def test_a_key_that_is_not_registered_is_told_that_its_word_does_not_count(
    tmp_path: Path, own: Ed25519PrivateKey, theirs: Path
) -> None:
    done = attest("disputed", theirs, tmp_path / "none", **WHY)
    assert "is not registered" in str(done.note)
    (told,) = verify(theirs, tmp_path / "none").standing.told
    assert told.why_not == "its key is not registered"


@pytest.mark.parametrize("damage", ["evidence", "run"])
def test_nothing_is_stated_about_a_run_that_fails_a_check(
    keys: Path, theirs: Path, damage: str
) -> None:
    if damage == "evidence":
        shutil.rmtree(theirs.parent / "evidence")
    else:
        theirs.write_bytes(theirs.read_bytes().replace(b'"label": "toy-cpu"', b'"label": "toy"'))
    with pytest.raises(VerificationError):
        attest("recomputed", theirs, keys)
    assert not path_beside(theirs).exists()


def test_a_thing_is_stated_once(keys: Path, theirs: Path) -> None:
    attest("disputed", theirs, keys, **WHY)
    before = path_beside(theirs).read_bytes()
    with pytest.raises(InputError, match="has said before"):
        attest("disputed", theirs, keys, **WHY)
    assert path_beside(theirs).read_bytes() == before
    attest("disputed", theirs, keys, reason="and too hot")
    assert [t.signed.reason for t in verify(theirs, keys).standing.told] == [
        WHY["reason"],
        "and too hot",
    ]


def test_a_dispute_is_settled_by_who_made_it_and_can_be_made_anew(keys: Path, theirs: Path) -> None:
    with pytest.raises(UsageError, match="it has no dispute here that is not settled"):
        attest("settled", theirs, keys, reason="it was the cable")
    attest("disputed", theirs, keys, **WHY)
    attest("disputed", theirs, keys, reason="and too hot")
    attest("settled", theirs, keys, reason="it was the cable")
    assert not verify(theirs, keys).standing.disputed
    assert len(path_beside(theirs).read_bytes().splitlines()) == 4
    with pytest.raises(UsageError, match="it has no dispute here that is not settled"):
        attest("settled", theirs, keys, reason="it was the cable, I am sure")
    attest("disputed", theirs, keys, reason="too hot again")
    assert verify(theirs, keys).standing.disputed
    attest("settled", theirs, keys, reason="it was the cable")
    assert not verify(theirs, keys).standing.disputed


def test_the_dispute_of_another_is_not_settled(keys: Path, theirs: Path) -> None:
    state(theirs, "disputed", a_key(2))
    with pytest.raises(UsageError, match="it has no dispute here"):
        attest("settled", theirs, keys, reason="it was the cable")
    assert verify(theirs, keys).standing.disputed


def test_what_others_stated_is_seen_once(keys: Path, theirs: Path, own: Ed25519PrivateKey) -> None:
    nothing = "there is no statement of others here that it has not seen yet"
    keyring_of(keys, own, a_key(2), a_key(3))
    state(theirs, "disputed", a_key(9))
    with pytest.raises(UsageError, match=nothing):
        attest("seen", theirs, keys)
    state(theirs, "disputed", a_key(3))
    state(theirs, "countersigned", a_key(3))
    attest("seen", theirs, keys)
    told = verify(theirs, keys).standing.told
    assert {t.signed.kind for t in told if t.seen is not None} == {"disputed", "countersigned"}
    assert [t.why_not for t in told if t.signed.kind == "seen"] == [None, None]
    with pytest.raises(UsageError, match=nothing):
        attest("seen", theirs, keys)


def test_nobody_is_kept_from_a_dispute_by_a_bad_line_of_others(keys: Path, theirs: Path) -> None:
    path_beside(theirs).write_bytes(b"garbage\n{cut")
    attest("disputed", theirs, keys, **WHY)
    assert path_beside(theirs).read_bytes().startswith(b'garbage\n{cut\n{"payload"')
    standing = verify(theirs, keys).standing
    assert standing.disputed
    ((_, why),) = standing.unread
    assert [problem.line for problem in why.problems] == [1, 2]


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("withdrawn", {}, "--reason: is needed for withdrawn"),
        ("settled", {}, "--reason: is needed for settled"),
        ("superseded", {"reason": "x"}, "--by: is needed for superseded"),
        ("countersigned", {"reason": "x"}, "--reason: is not for countersigned"),
        ("withdrawn", {"reason": "x", "url": "https://example.org"}, "--url: is not for withdrawn"),
        ("disputed", {"reason": "x", "by": "y"}, "--by: is not for disputed"),
        ("disputed", {"reason": "x", "url": "http://example.org"}, "url"),
        ("disputed", {"reason": "two\nlines"}, "one line"),
        ("superseded", {"reason": "x", "by": "none.json"}, r"none\.json"),
    ],
)
def test_an_option_that_does_not_fit_is_named_and_nothing_is_written(
    keys: Path, theirs: Path, kind: Any, options: dict[str, str], words: str
) -> None:
    with pytest.raises((UsageError, VerificationError), match=words):
        attest(kind, theirs, keys, **options)
    assert not path_beside(theirs).exists()


def test_a_file_that_cannot_be_written_is_named(
    keys: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tokenwatt_site.trust.beside.put", full)
    with pytest.raises(EnvironmentProblem, match=r"run\.att\.jsonl.*No space"):
        attest("disputed", theirs, keys, **WHY)
