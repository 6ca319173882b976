"""Tests of trust.succession."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import a_key, revoked_key
from tokenwatt_site.trust.registration import (
    Registration,
    file_name,
    register,
    revocation_name,
    with_successor,
)
from tokenwatt_site.trust.signature import key_id
from tokenwatt_site.trust.succession import chain_problems, successors

EARLY, LATE = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)


def id_of(seed: int) -> str:
    return key_id(a_key(seed).public_key().public_bytes_raw())


def key(seed: int, successor: int | None = None, *, follows: int | None = None) -> Registration:
    before = None if follows is None else id_of(follows)
    registration = register(a_key(seed), name=f"Lab {seed}", follows=before)
    if successor is None:
        return registration
    return with_successor(registration, id_of(successor), a_key(seed))


def revoked(
    registration: Registration, *before: Registration, by: int, at: datetime = EARLY
) -> Registration:
    """Revoke a key that has revoked those before."""
    told = [each.revoked for each in before if each.revoked is not None]
    return revoked_key(registration, at=at, reason="lost", private_key=a_key(by), revocations=told)


def problems(*keys: Registration, unreadable: Sequence[int] = ()) -> list[str]:
    files = {file_name(key.keyid) for key in keys} | {file_name(id_of(seed)) for seed in unreadable}
    return [str(problem) for problem in chain_problems({key.keyid: key for key in keys}, files)]


def test_the_keys_that_follow_are_told_in_order() -> None:
    chain = (key(1, 2), key(2, 3, follows=1), key(3, follows=2), key(4))
    keys = {key.keyid: key for key in chain}
    assert successors(keys, id_of(1)) == (id_of(2), id_of(3))
    assert successors(keys, id_of(3)) == ()
    assert successors(keys, id_of(9)) == ()


@pytest.mark.parametrize(
    ("named", "other"),
    [
        (key(1, 2), key(2)),
        (key(1), key(2, follows=1)),
        (key(1, 2), key(2, follows=3)),
        (key(1, 3), key(2, follows=1)),
    ],
    ids=["named alone", "following alone", "following another", "naming another"],
)
def test_t12_one_follows_another_only_where_both_say_so(
    named: Registration, other: Registration
) -> None:
    keys = {each.keyid: each for each in (named, other, key(3))}
    assert successors(keys, id_of(1)) == ()
    assert problems(named, other, key(3)) == []


def test_t12_a_key_that_names_another_s_is_not_revoked_by_it_nor_revokes_it() -> None:
    (problem,) = problems(revoked(key(1, 2), by=2), key(2))
    assert "by: is neither this key nor one that follows it" in problem


def test_a_successor_that_is_not_registered_is_named_with_the_file_it_lacks() -> None:
    (problem,) = problems(key(1, 2))
    assert problem == (
        f"{file_name(id_of(1))}: successor: is not registered; found {id_of(2)};"
        f" expected {file_name(id_of(2))} beside it"
    )


def test_a_successor_whose_own_file_is_bad_is_not_called_missing() -> None:
    assert problems(key(1, 2), unreadable=[2]) == []


@pytest.mark.parametrize("length", [1, 2, 3])
def test_keys_that_follow_each_other_in_a_circle_are_refused(length: int) -> None:
    circle = [
        key(seed, seed % length + 1, follows=(seed - 2) % length + 1)
        for seed in range(1, length + 1)
    ]
    told = problems(*circle, key(8, 1), key(9))
    assert len(told) == length
    for seed in range(1, length + 1):
        (one,) = (line for line in told if line.startswith(file_name(id_of(seed))))
        assert "successor: leads back to this key" in one


@given(st.lists(st.none() | st.integers(0, 5), min_size=6, max_size=6))
def test_a_key_is_in_a_circle_where_following_it_comes_back(following: list[int | None]) -> None:
    # Of several that name it, a key follows the first.
    before = [following.index(at) if at in following else None for at in range(6)]
    keys = [
        key(
            at + 1,
            None if to is None else to + 1,
            follows=None if (first := before[at]) is None else first + 1,
        )
        for at, to in enumerate(following)
    ]
    agreed = [
        to if to is not None and before[to] == at else None for at, to in enumerate(following)
    ]
    expected = set()
    for start in range(6):
        at: int | None = agreed[start]
        for _ in range(6):
            if at is None or at == start:
                break
            at = agreed[at]
        if at == start:
            expected.add(file_name(id_of(start + 1)))
    assert {line.partition(":")[0] for line in problems(*keys)} == expected


@pytest.mark.parametrize("by", [1, 2, 3])
def test_a_key_is_revoked_by_itself_or_by_one_that_follows_it(by: int) -> None:
    chain = (revoked(key(1, 2), by=by), key(2, 3, follows=1), key(3, follows=2))
    assert problems(*chain) == []


@pytest.mark.parametrize("by", [1, 4])
def test_a_key_before_it_or_a_stranger_cannot_revoke_it(by: int) -> None:
    second = revoked(key(2, 3, follows=1), by=by)
    (problem,) = problems(key(1, 2), second, key(3, follows=2), key(4))
    assert problem.startswith(f"{revocation_name(id_of(2))}: by: is neither this key nor one")
    assert f"found {id_of(by)}; expected {id_of(2)} or {id_of(3)}" in problem


def test_f18_a_revocation_that_was_changed_is_refused() -> None:
    registration = revoked(key(1, 2), by=2)
    assert registration.revoked is not None
    later = registration.revoked.model_copy(update={"at": "2026-12-01T00:00:00Z"})
    changed = registration.model_copy(update={"revoked": later})
    (problem,) = problems(changed, key(2, follows=1))
    assert "sig: does not fit" in problem


def test_f18_the_revocation_of_another_key_revokes_nothing() -> None:
    taken = revoked(key(1, 2), by=2).revoked
    other = key(3, 2).model_copy(update={"revoked": taken})
    (problem,) = problems(other, key(2, follows=3))
    assert "sig: does not fit" in problem


@pytest.mark.parametrize(
    "signed_after",
    [key(1, 2), key(1, follows=2), register(a_key(1), name="Somebody else")],
    ids=["another successor", "another before it", "another name"],
)
def test_t12_what_a_revoked_key_signs_about_itself_is_refused(signed_after: Registration) -> None:
    revocation = revoked(key(1), by=1).revoked
    changed = signed_after.model_copy(update={"revoked": revocation})
    (problem,) = problems(changed, key(2, follows=1))
    assert problem.startswith(f"{file_name(id_of(1))}: was changed after its key was revoked")


@pytest.mark.parametrize("at", [EARLY, LATE], ids=["backdated", "dated after"])
@pytest.mark.parametrize("by", [2, 3])
def test_t12_a_key_that_is_revoked_itself_revokes_no_other_whatever_date_it_writes(
    at: datetime, by: int
) -> None:
    first = revoked(key(1, 2), by=2, at=at)
    second = revoked(key(2, 3, follows=1), by=by, at=datetime(2026, 3, 15, tzinfo=UTC))
    (problem,) = problems(first, second, key(3, follows=2))
    assert problem.startswith(f"{revocation_name(id_of(1))}: by: was revoked itself, and that")
    assert "revoked at 2026-03-15T00:00:00Z" in problem
    assert f"in revocations of {revocation_name(id_of(2))}" in problem


@pytest.mark.parametrize("by", [2, 3])
def test_what_a_key_had_revoked_stays_revoked_where_its_own_revocation_says_so(by: int) -> None:
    first = revoked(key(1, 2), by=2)
    second = revoked(key(2, 3, follows=1), first, by=by)
    assert problems(first, second, key(3, follows=2)) == []
    again = revoked(key(1, 2), by=2, at=LATE)
    assert len(problems(again, second, key(3, follows=2))) == 1


def test_a_revocation_past_a_key_whose_file_is_bad_is_not_judged() -> None:
    assert problems(revoked(key(1, 2), by=3), key(3), unreadable=[2]) == []
