"""Tests of trust.standing."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import RunBuilder, a_key, keyring_of, revoked_key
from tests.support.statements import MADE, on_boards, signed
from tokenwatt_site.trust.keyring import Keyring, own_id
from tokenwatt_site.trust.predicates import Kind, Reproduced
from tokenwatt_site.trust.registration import register, with_successor
from tokenwatt_site.trust.standing import RunStanding, stand
from tokenwatt_site.trust.statement import Signed
from tokenwatt_site.trust.verify import ValidatedRun, settle, verify_run

NOW = datetime(2026, 3, 1, tzinfo=UTC)
PUBLISHER, OTHER, THIRD, STRANGER = (a_key(seed) for seed in (1, 2, 3, 9))
KINDS: tuple[Kind, ...] = (
    "recomputed",
    "reproduced",
    "countersigned",
    "disputed",
    "settled",
    "withdrawn",
    "superseded",
    "seen",
)


@pytest.fixture(scope="module")
def keyring(tmp_path_factory: pytest.TempPathFactory) -> Keyring:
    """Lab 1, 2 and 3 are registered."""
    return keyring_of(tmp_path_factory.mktemp("keys"), PUBLISHER, OTHER, THIRD)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, keyring: Keyring) -> ValidatedRun:
    """A run of Lab 1."""
    folder = tmp_path_factory.mktemp("run")
    path = RunBuilder(simulated=False).write(folder)
    return verify_run(path, root=folder, keyring=keyring)


def standing(run: ValidatedRun, keyring: Keyring, *statements: Signed) -> RunStanding:
    return stand(run, statements, among={}, keyring=keyring, now=NOW)


def why_not(run: ValidatedRun, keyring: Keyring, kind: Kind, key: Any, **said: Any) -> str | None:
    (told,) = standing(run, keyring, signed(kind, run.run_id, key, **said)).told
    return told.why_not


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


# --- whose word counts


def test_a_run_of_which_nothing_is_stated_stands_by_its_key(
    run: ValidatedRun, keyring: Keyring
) -> None:
    found = standing(run, keyring)
    assert (found.key.state, found.key.name) == ("known", "Lab 1")
    assert (found.told, found.retracted, found.disputed, found.witness) == ((), False, False, None)
    assert found.publisher == run.keyid


@pytest.mark.parametrize("kind", KINDS)
def test_a_statement_of_an_unknown_key_is_kept_and_changes_nothing(
    run: ValidatedRun, keyring: Keyring, kind: Kind
) -> None:
    found = standing(run, keyring, signed(kind, run.run_id, STRANGER))
    (told,) = found.told
    assert told.key.state == "unknown"
    assert told.why_not is not None
    assert (found.retracted, found.disputed, found.witness) == (False, False, None)
    assert found.key == standing(run, keyring).key


@pytest.mark.parametrize("kind", ["withdrawn", "superseded"])
def test_only_the_publisher_takes_a_run_back(
    run: ValidatedRun, keyring: Keyring, kind: Kind
) -> None:
    assert why_not(run, keyring, kind, PUBLISHER) is None
    assert standing(run, keyring, signed(kind, run.run_id, PUBLISHER)).retracted
    assert "only the run's own key" in str(why_not(run, keyring, kind, OTHER))


def test_an_own_key_that_is_not_registered_takes_its_run_back_all_the_same(
    run: ValidatedRun,
) -> None:
    assert why_not(run, Keyring(), "withdrawn", PUBLISHER) is None
    assert why_not(run, Keyring(), "disputed", PUBLISHER) == "its key is not registered"


def test_a_run_does_not_supersede_itself(run: ValidatedRun, keyring: Keyring) -> None:
    assert why_not(run, keyring, "superseded", PUBLISHER, by=run.run_id) == (
        "it names the run itself"
    )


@pytest.mark.parametrize("key", [PUBLISHER, OTHER])
def test_any_registered_key_may_dispute(run: ValidatedRun, keyring: Keyring, key: Any) -> None:
    assert standing(run, keyring, signed("disputed", run.run_id, key)).disputed


def settling(dispute: Signed, key: Any, **said: Any) -> Signed:
    return signed("settled", dispute.run_id, key, dispute=dispute.digest, **said)


def test_who_disputed_settles_it_and_both_stay_to_be_seen(
    run: ValidatedRun, keyring: Keyring
) -> None:
    dispute = signed("disputed", run.run_id, OTHER)
    settled = settling(dispute, OTHER)
    for order in ((dispute, settled), (settled, dispute)):
        found = standing(run, keyring, *order)
        assert not found.disputed
        assert {t.signed for t in found.told} == set(order)
        assert {t.signed.kind: t.why_not for t in found.told} == {
            "disputed": "its signer settled it: it was the cable",
            "settled": None,
        }


def test_nobody_settles_what_another_disputed(run: ValidatedRun, keyring: Keyring) -> None:
    dispute = signed("disputed", run.run_id, OTHER)
    for key in (PUBLISHER, THIRD, STRANGER):
        found = standing(run, keyring, dispute, settling(dispute, key))
        assert found.disputed
        assert found.counting("settled") == ()
    reasons = {each.signed.kind: each.why_not for each in found.told}
    assert reasons["settled"] == "its key is not registered"


def test_one_dispute_is_settled_and_no_other_before_or_after(
    run: ValidatedRun, keyring: Keyring
) -> None:
    first = signed("disputed", run.run_id, OTHER)
    settled = settling(first, OTHER)
    for reason, made in (("too hot", "2026-01-15T00:00:00Z"), ("too hot", "2026-02-20T00:00:00Z")):
        other = signed("disputed", run.run_id, OTHER, reason=reason, made=made)
        found = standing(run, keyring, first, settled, other)
        assert [t.signed.reason for t in found.counting("disputed")] == ["too hot"]


def test_a_dispute_is_settled_by_the_key_that_follows_and_not_by_one_before(
    run: ValidatedRun,
) -> None:
    keyring = following()  # PUBLISHER, then OTHER
    old, new = signed("disputed", run.run_id, PUBLISHER), signed("disputed", run.run_id, OTHER)
    assert not standing(run, keyring, old, settling(old, OTHER)).disputed
    # The old key may be lost: others may have it.
    assert standing(run, keyring, new, settling(new, PUBLISHER)).disputed


def test_what_settles_nothing_that_counts_says_so(run: ValidatedRun, keyring: Keyring) -> None:
    withdrawal = signed("withdrawn", run.run_id, PUBLISHER)
    strange = signed("disputed", run.run_id, STRANGER)
    for named in (withdrawal, strange, signed("disputed", run.run_id, OTHER)):
        there = [named] if named.kind == "withdrawn" or named is strange else []
        found = standing(run, keyring, *there, settling(named, PUBLISHER))
        (told,) = (each for each in found.told if each.signed.kind == "settled")
        assert told.why_not == "it names no dispute of its signer that counts"
    assert standing(run, keyring, withdrawal, settling(withdrawal, PUBLISHER)).retracted


def test_a_revoked_key_settles_nothing_and_its_dispute_counts_no_more(
    run: ValidatedRun, keyring: Keyring
) -> None:
    dispute = signed("disputed", run.run_id, OTHER)
    lost = revoked_key(register(OTHER, name="Lab 2"), at=NOW, reason="lost", private_key=OTHER)
    found = standing(run, keyring.including(lost), dispute, settling(dispute, OTHER))
    assert [t.why_not for t in found.told] == [REVOKED] * 2


@pytest.mark.parametrize("kind", ["recomputed", "reproduced", "countersigned"])
def test_a_publisher_speaks_for_nobody_else(
    run: ValidatedRun, keyring: Keyring, kind: Kind
) -> None:
    assert why_not(run, keyring, kind, PUBLISHER) == "it is the publisher's own word"


def test_somebody_else_who_recomputed_counts(run: ValidatedRun, keyring: Keyring) -> None:
    assert why_not(run, keyring, "recomputed", OTHER) is None


def test_a_statement_from_the_future_changes_nothing(run: ValidatedRun, keyring: Keyring) -> None:
    for made, told in (("2026-03-01T20:00:00Z", None), ("2026-03-03T00:00:00Z", "dated in the")):
        why = why_not(run, keyring, "disputed", OTHER, made=made)
        assert why is None if told is None else told in str(why)


# --- keys that end, and time

REVOKED = "its key was revoked, and nobody else saw it before that"
ENDED = "nobody else saw it while its key counted"


def seeing(other: Signed, key: Any, **said: Any) -> Signed:
    return signed("seen", other.run_id, key, statement=other.digest, **said)


def following(*, revoked_at: str | None = None) -> Keyring:
    """A keyring in which Lab 1 goes on under the key of OTHER; THIRD is another lab."""
    keys = [
        register(OTHER, name="Lab 1", follows=own_id(PUBLISHER)),
        with_successor(register(PUBLISHER, name="Lab 1"), own_id(OTHER), PUBLISHER),
        register(THIRD, name="Lab 3"),
    ]
    if revoked_at is not None:
        keys[1] = revoked_key(keys[1], at=moment(revoked_at), reason="lost", private_key=OTHER)
    keyring = Keyring()
    for key in keys:
        keyring = keyring.including(key)
    return keyring


def test_the_key_that_follows_takes_a_run_back_and_is_no_other_publisher(
    run: ValidatedRun,
) -> None:
    keyring = following()
    assert why_not(run, keyring, "withdrawn", OTHER) is None
    for kind in ("recomputed", "reproduced", "countersigned"):
        assert why_not(run, keyring, kind, OTHER) == "it is the publisher's own word"
    assert stand(run, (), among={}, keyring=keyring, now=NOW).key.state == "known"


def test_a_key_before_the_run_s_own_does_not_take_it_back(
    tmp_path: Path,
) -> None:
    keyring = following()
    path = RunBuilder(key=OTHER).write(tmp_path)
    run = verify_run(path, root=tmp_path, keyring=keyring)
    assert "only the run's own key" in str(why_not(run, keyring, "withdrawn", PUBLISHER))


def test_f19_a_revoked_key_counts_for_what_was_witnessed_before(run: ValidatedRun) -> None:
    keyring = following(revoked_at="2026-02-10T00:00:00Z")
    assert standing(run, keyring).key.state == "revoked"
    for made, state in (
        ("2026-02-09T00:00:00Z", "revoked later"),
        ("2026-02-11T00:00:00Z", "revoked"),
    ):
        witness = signed("countersigned", run.run_id, THIRD, made=made)
        found = standing(run, keyring, witness)
        assert found.key.state == state
        assert found.key.trusted == (state == "revoked later")


def test_f19_an_expired_key_counts_for_what_was_witnessed_within(run: ValidatedRun) -> None:
    ends = moment("2026-02-10T00:00:00Z")
    keyring = Keyring().including(register(PUBLISHER, name="Lab 1", not_after=ends))
    keyring = keyring.including(register(THIRD, name="Lab 3"))
    assert standing(run, keyring).key.state == "expired"
    witness = signed("countersigned", run.run_id, THIRD, made="2026-02-09T00:00:00Z")
    assert standing(run, keyring, witness).key.state == "known"


def test_a_revoked_key_states_only_what_was_seen_before(
    run: ValidatedRun, keyring: Keyring
) -> None:
    lost = revoked_key(
        register(OTHER, name="Lab 2"),
        at=moment("2026-02-20T00:00:00Z"),
        reason="lost",
        private_key=OTHER,
    )
    after = keyring.including(lost)
    assert why_not(run, keyring, "disputed", OTHER) is None
    assert why_not(run, after, "disputed", OTHER) == REVOKED
    dispute = signed("disputed", run.run_id, OTHER)
    for made, why in (("2026-02-19T00:00:00Z", None), ("2026-02-21T00:00:00Z", REVOKED)):
        found = standing(run, after, dispute, seeing(dispute, THIRD, made=made))
        assert [t.why_not for t in found.told] == [why, None]


def test_t12_an_expired_key_states_only_what_was_seen_while_it_counted(
    run: ValidatedRun, keyring: Keyring
) -> None:
    ended = register(OTHER, name="Lab 2", not_after=moment("2026-02-10T00:00:00Z"))
    after = keyring.including(ended)
    for kind in ("recomputed", "countersigned", "disputed"):
        # Whoever has the key can write this date today.
        early = signed(kind, run.run_id, OTHER, made="2026-02-02T00:00:00Z")
        assert [t.why_not for t in standing(run, after, early).told] == [ENDED]
        for made, why in (("2026-02-09T00:00:00Z", None), ("2026-02-11T00:00:00Z", ENDED)):
            sight = seeing(early, THIRD, made=made)
            for order in ((early, sight), (sight, early)):
                told = {t.signed.kind: t for t in standing(run, after, *order).told}
                assert (told[kind].why_not, told["seen"].why_not) == (why, None)
                assert told[kind].seen == moment(made)
    still = keyring.including(register(OTHER, name="Lab 2", not_after=NOW))
    assert why_not(run, still, "disputed", OTHER) is None


def test_t12_a_date_that_is_written_anew_takes_no_sight_away(
    run: ValidatedRun, keyring: Keyring
) -> None:
    after = keyring.including(
        register(OTHER, name="Lab 2", not_after=moment("2026-02-10T00:00:00Z"))
    )
    dispute = signed("disputed", run.run_id, OTHER)
    sight = seeing(dispute, THIRD, made="2026-02-09T00:00:00Z")
    earlier = signed("disputed", run.run_id, OTHER, made="2026-01-20T00:00:00Z")
    assert standing(run, after, earlier, sight).disputed


def test_what_was_seen_is_told_by_others_about_others(run: ValidatedRun, keyring: Keyring) -> None:
    dispute = signed("disputed", run.run_id, OTHER)
    sight = seeing(dispute, THIRD)
    elsewhere = signed("disputed", run.run_id, OTHER, reason="too hot")
    for no_sight, why in (
        (seeing(dispute, PUBLISHER), "it is the publisher's own word"),
        (seeing(dispute, OTHER), "it is its signer's own word"),
        (seeing(dispute, STRANGER), "its key is not registered"),
        (seeing(dispute, THIRD, made="2026-01-31T00:00:00Z"), "it is dated before the statement"),
        (seeing(elsewhere, THIRD), "it names no other statement that is here"),
        (seeing(sight, OTHER), "it names no other statement that is here"),
    ):
        told = standing(run, keyring, dispute, sight, no_sight).told
        (found,) = (t.why_not for t in told if t.signed is no_sight)
        assert str(found).startswith(why)
        (at,) = (t.seen for t in told if t.signed is dispute)
        assert at == moment(MADE)


@pytest.mark.parametrize("kind", ["withdrawn", "superseded"])
def test_no_run_returns_because_the_key_that_took_it_back_expires(
    run: ValidatedRun, keyring: Keyring, kind: Kind
) -> None:
    ends = moment("2026-02-10T00:00:00Z")
    after = keyring.including(register(PUBLISHER, name="Lab 1", not_after=ends))
    assert why_not(run, after, kind, PUBLISHER) is None


def test_t12_a_key_that_has_ended_vouches_for_no_time_whatever_date_it_writes(
    run: ValidatedRun, keyring: Keyring
) -> None:
    ended = register(OTHER, name="Lab 2", not_after=moment("2026-02-10T00:00:00Z"))
    after = keyring.including(ended)
    early = signed("countersigned", run.run_id, OTHER, made="2026-02-02T00:00:00Z")
    late = signed("countersigned", run.run_id, THIRD, made="2026-02-20T00:00:00Z")
    found = standing(run, after, early, late)
    assert found.witness is not None
    assert found.witness.key.name == "Lab 3"
    assert found.told[0].why_not == ENDED
    still = keyring.including(register(OTHER, name="Lab 2", not_after=NOW))
    assert standing(run, still, early).witness is not None


def test_the_earliest_of_others_is_the_witness_and_none_is_before_the_end(
    run: ValidatedRun, keyring: Keyring
) -> None:
    made = {OTHER: "2026-02-03T00:00:00Z", THIRD: "2026-02-02T00:00:00Z"}
    statements = [signed("countersigned", run.run_id, key, made=at) for key, at in made.items()]
    statements.append(signed("countersigned", run.run_id, STRANGER, made="2026-01-15T00:00:00Z"))
    witness = standing(run, keyring, *statements).witness
    assert witness is not None
    assert (witness.key.name, witness.signed.made) == ("Lab 3", moment("2026-02-02T00:00:00Z"))
    assert why_not(run, keyring, "countersigned", OTHER, made="2026-01-01T00:00:00Z") == (
        "it is dated before the run ended"
    )
    for kind in ("countersigned", "disputed", "withdrawn"):
        key = a_key() if kind == "withdrawn" else OTHER
        found = why_not(run, keyring, kind, key, made="2025-12-30T00:00:00Z")
        assert found == "it is dated before the run"


# --- reproductions

Make = Callable[..., ValidatedRun]
OURS, THEIRS = ("GPU-a", "GPU-b"), ("GPU-c", "GPU-d")


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory, keyring: Keyring) -> Make:
    def made(uuids: tuple[str, str], key: Any, pace: float = 1.0, **changes: Any) -> ValidatedRun:
        folder = tmp_path_factory.mktemp("run")
        spread = (pace, 1.01 * pace, 0.99 * pace)
        builder = {"key": key, "spread": spread} | changes.pop("builder", {})
        path = on_boards(uuids, builder=builder, **changes).write(folder)
        return verify_run(path, root=folder, keyring=keyring)

    return made


@pytest.fixture(scope="module")
def original(make: Make) -> ValidatedRun:
    return make(OURS, PUBLISHER)


@pytest.fixture(scope="module")
def again(make: Make) -> ValidatedRun:
    """The same by Lab 2 on other boards, under another driver."""
    return make(THEIRS, OTHER, setup__driver="another")


def reproduced(
    original: ValidatedRun,
    *others: ValidatedRun,
    keyring: Keyring,
    outcome: str = "inconclusive",
    keys: tuple[Any, ...] = (OTHER, THIRD),
) -> RunStanding:
    """Return the standing of `original` where each of `others` says that it has this outcome."""
    statements = [
        signed("reproduced", original.run_id, key, run=other.run_id, outcome=outcome)
        for key, other in zip(keys, others, strict=False)
    ]
    among = {run.run_id: run for run in (original, *others)}
    return stand(original, statements, among=among, keyring=keyring, now=NOW)


def reason(found: RunStanding) -> str:
    (told,) = found.told
    assert told.ratio is None
    return str(told.why_not)


def test_a_rerun_by_others_on_other_boards_counts_with_its_ratio(
    original: ValidatedRun, again: ValidatedRun, keyring: Keyring
) -> None:
    found = reproduced(original, again, keyring=keyring)
    (told,) = found.counting("reproduced")
    assert told.ratio is not None
    assert told.ratio.low is not None
    assert told.ratio.high is not None
    assert told.ratio.low < told.ratio.value < told.ratio.high
    assert told.ratio.value == pytest.approx(1, abs=0.02)
    assert told.ratio.reproduced == "inconclusive"


def test_a_rerun_counts_by_what_it_comes_to_and_not_by_what_it_says(
    original: ValidatedRun, again: ValidatedRun, make: Make, keyring: Keyring
) -> None:
    words = "it says reproduced, and comes to inconclusive: "
    assert reason(reproduced(original, again, keyring=keyring, outcome="reproduced")).startswith(
        words
    )
    slow = make(THEIRS, OTHER, pace=1.5)
    told = reproduced(original, slow, keyring=keyring, outcome="contradicted").told[0]
    assert told.why_not is None
    assert told.ratio is not None
    assert told.ratio.reproduced == "contradicted"


def test_a_rerun_that_is_not_here_changes_nothing(
    original: ValidatedRun, again: ValidatedRun, keyring: Keyring
) -> None:
    named = signed("reproduced", original.run_id, OTHER, run=again.run_id, outcome="reproduced")
    (told,) = standing(original, keyring, named).told
    assert told.why_not == f"run {again.run_id[:12]} is not here"


@pytest.mark.parametrize("kind", ["recomputed", "countersigned"])
def test_t12_nobody_names_another_s_key_as_their_successor_to_take_its_word_away(
    run: ValidatedRun, keyring: Keyring, kind: Kind
) -> None:
    named = with_successor(register(PUBLISHER, name="Lab 1"), own_id(OTHER), PUBLISHER)
    claimed = keyring.including(named)
    assert why_not(run, claimed, kind, OTHER) is None
    assert stand(run, (), among={}, keyring=claimed, now=NOW).chain == (run.keyid,)
    assert "only the run's own key" in str(why_not(run, claimed, "withdrawn", OTHER))


def test_nobody_names_a_key_as_their_successor_and_speaks_for_it(
    original: ValidatedRun, again: ValidatedRun, keyring: Keyring
) -> None:
    claimed = with_successor(register(THIRD, name="Lab 3"), own_id(OTHER), THIRD)
    found = reproduced(original, again, keyring=keyring.including(claimed), keys=(THIRD,))
    assert "is not by the publisher of run" in reason(found)


def test_f22_the_same_key_the_same_boards_or_none_are_no_reproduction(
    original: ValidatedRun, run: ValidatedRun, make: Make, keyring: Keyring
) -> None:
    own = make(THEIRS, PUBLISHER)
    assert reason(reproduced(original, own, keyring=keyring, keys=(PUBLISHER,))) == (
        "it is the publisher's own word"
    )
    # Another key states what the publisher measured again.
    assert "is not by the publisher of run" in reason(reproduced(original, own, keyring=keyring))
    shared = make(("GPU-A", "GPU-e"), OTHER)
    assert "both ran on gpu-a" in reason(reproduced(original, shared, keyring=keyring))
    masked = make(("GPU-00000000-0000", "GPU-0"), OTHER)
    assert "the new run records no UUID of a board" in reason(
        reproduced(original, masked, keyring=keyring)
    )


def test_f22_a_run_on_a_processor_has_no_board_to_tell_it_from_another(
    tmp_path: Path, run: ValidatedRun, keyring: Keyring
) -> None:
    path = RunBuilder(simulated=False, key=OTHER, day=2).write(tmp_path)
    other = verify_run(path, root=tmp_path, keyring=keyring)
    assert "the original records no UUID of a board" in reason(
        reproduced(run, other, keyring=keyring)
    )


def why_nots(found: RunStanding) -> dict[str, str | None]:
    """Return why each rerun does not count, by its run."""
    said = [(t.signed.said, t.why_not) for t in found.told]
    return {each.run: why_not for each, why_not in said if isinstance(each, Reproduced)}


def test_the_order_of_statements_decides_nothing(
    original: ValidatedRun, again: ValidatedRun, make: Make, keyring: Keyring
) -> None:
    slow = make(THEIRS, THIRD, pace=1.5)
    dispute = signed("disputed", original.run_id, THIRD)
    statements = [
        signed("reproduced", original.run_id, OTHER, run=again.run_id, outcome="inconclusive"),
        signed("reproduced", original.run_id, THIRD, run=slow.run_id, outcome="contradicted"),
        signed("countersigned", original.run_id, OTHER),
        signed("countersigned", original.run_id, THIRD),
        dispute,
        settling(dispute, THIRD),
        settling(dispute, THIRD, reason="it was the fan"),
    ]
    among = {run.run_id: run for run in (original, again, slow)}
    found = stand(original, statements, among=among, keyring=keyring, now=NOW)
    # Of the same boards, but not of the same outcome: neither takes the other away.
    assert len(found.counting("reproduced")) == 2
    for seed in range(8):
        random.Random(seed).shuffle(statements)
        assert stand(original, statements, among=among, keyring=keyring, now=NOW) == found


def test_t12_one_lab_or_one_board_counts_once(
    original: ValidatedRun, again: ValidatedRun, make: Make, keyring: Keyring
) -> None:
    more = make(("GPU-e", "GPU-f"), OTHER, builder={"day": 2})
    found = reproduced(original, again, more, keyring=keyring, keys=(OTHER, OTHER))
    counted = f"its publisher is counted already, by run {more.run_id[:12]}"
    assert why_nots(found) == {more.run_id: None, again.run_id: counted}
    puppet = make(("GPU-d", "GPU-e"), THIRD, builder={"day": 2})
    found = reproduced(original, again, puppet, keyring=keyring)
    counted = "its boards are counted already: gpu-d"
    assert why_nots(found) == {again.run_id: None, puppet.run_id: counted}
    third = make(("GPU-e", "GPU-f"), THIRD)
    found = reproduced(original, again, third, keyring=keyring)
    assert len(found.counting("reproduced")) == 2


def test_another_setup_is_no_reproduction(
    original: ValidatedRun, make: Make, keyring: Keyring
) -> None:
    other = make(THEIRS, OTHER, setup__engine__version="2.0")
    told = reason(reproduced(original, other, keyring=keyring, outcome="reproduced"))
    assert "comes to not comparable: another setup: setup.engine.version" in told


def test_a_simulated_rerun_changes_nothing(
    original: ValidatedRun, make: Make, keyring: Keyring
) -> None:
    other = make(THEIRS, OTHER, builder={"simulated": True})
    assert "the engine was simulated" in reason(reproduced(original, other, keyring=keyring))


def test_a_rerun_that_was_taken_back_or_is_disputed_changes_nothing(
    original: ValidatedRun, again: ValidatedRun, keyring: Keyring
) -> None:
    for kind, words in (("withdrawn", "was taken back"), ("disputed", "is disputed")):
        against = signed(kind, again.run_id, OTHER)
        where = stand(again, [against], among={}, keyring=keyring, now=NOW)
        fallen = _with(again, where)
        assert words in reason(reproduced(original, fallen, keyring=keyring))


def _with(run: ValidatedRun, standing: RunStanding) -> ValidatedRun:
    changed = copy(run)
    object.__setattr__(changed, "standing", standing)
    return changed


def test_a_rerun_of_a_key_that_does_not_count_changes_nothing(
    original: ValidatedRun, again: ValidatedRun
) -> None:
    keyring = Keyring().including(register(OTHER, name="Lab 2"))
    (unknown,) = settle([again], Keyring())
    assert "is not registered" in reason(reproduced(original, unknown, keyring=keyring))
