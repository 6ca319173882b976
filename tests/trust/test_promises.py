"""Which runs were committed to, and by whom that was seen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.runs import RunBuilder, a_key, keyring_of
from tests.trust.test_commitment import an_opening, changed
from tokenwatt_site.journal import Entry
from tokenwatt_site.trials import Evidence
from tokenwatt_site.trust.commitment import commit, opening_digest, parse
from tokenwatt_site.trust.held import first_trial_of
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.promises import Found, Promised, weigh
from tokenwatt_site.trust.registration import register
from tokenwatt_site.trust.signature import key_id
from tokenwatt_site.trust.statement import Signed, sign
from tokenwatt_site.trust.statement import parse as parse_statement

NOW = datetime(2026, 1, 2, tzinfo=UTC)
OWN, LAB, STRANGER = a_key(1), a_key(2), a_key(3)
FIRST_TRIAL = "2026-01-01T00:10:00.000000Z"


def id_of(key: Ed25519PrivateKey) -> str:
    return key_id(key.public_key().public_bytes_raw())


@dataclass(frozen=True)
class Run:
    keyid: str
    evidence: Evidence

    @property
    def opening(self) -> str:
        return opening_digest(self.evidence.journal[0])

    @property
    def first_trial(self) -> datetime | None:
        return first_trial_of(self.evidence.journal)


def a_run(key: Ed25519PrivateKey = OWN, **opening: Any) -> Run:
    first = an_opening(**opening)
    trial = Entry(seq=1, at=FIRST_TRIAL, event="trial_start", prev="0" * 64, data={})
    return Run(id_of(key), Evidence(journal=(first, trial), requests=(), power=None))


def found(*said: Signed, key: Ed25519PrivateKey = OWN, **opening: Any) -> Found:
    data = commit(an_opening(**opening), key)
    return Found(Path("a.commit.json"), parse(data, "a.commit.json"), said)


def countersigned(at: str, key: Ed25519PrivateKey = LAB, of: Found | None = None) -> Signed:
    digest = (of or found()).committed.digest
    return parse_statement(sign("countersigned", digest, {}, key, at), "x")


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    return keyring_of(tmp_path, OWN, LAB)


def promised(keyring: Keyring, run: Run, *there: Found) -> Promised:
    (told,), refused = weigh([run], there, keyring=keyring, now=NOW)
    assert refused == ()
    return told


def test_a_run_without_a_commitment_was_not_committed_to(keyring: Keyring) -> None:
    told = promised(keyring, a_run())
    assert (told.commitment, told.before, told.handed_out) == (None, False, 0)
    assert told.first_trial == datetime(2026, 1, 1, 0, 10, tzinfo=UTC)


def test_t3_alone_a_commitment_is_its_publisher_s_own_word(keyring: Keyring) -> None:
    told = promised(keyring, a_run(), found())
    assert told.commitment == found()
    assert (told.witness, told.before) == (None, False)


def test_t3_a_trusted_countersignature_from_before_the_first_trial_shows_it(
    keyring: Keyring,
) -> None:
    told = promised(keyring, a_run(), found(countersigned("2026-01-01T00:05:00Z")))
    assert told.witness is not None
    assert (told.witness.name, told.before) == ("Lab 2", True)


def test_t7_a_countersignature_from_after_the_first_trial_is_no_before(keyring: Keyring) -> None:
    late = countersigned("2026-01-01T00:10:01Z")
    told = promised(keyring, a_run(), found(late))
    assert told.witness is not None
    assert not told.before
    early = countersigned("2026-01-01T00:09:59Z")
    assert promised(keyring, a_run(), found(late, early)).before


@pytest.mark.parametrize(
    "signed",
    [
        countersigned("2026-01-01T00:05:00Z", OWN),
        countersigned("2026-01-01T00:05:00Z", STRANGER),
        countersigned((NOW + timedelta(days=2)).strftime("%Y-%m-%dT%H:%M:%SZ")),
        countersigned("2025-12-31T23:54:59Z"),
    ],
    ids=["by the own key", "by an unknown key", "dated in the future", "before the commitment"],
)
def test_t3_what_anybody_could_countersign_shows_nothing(keyring: Keyring, signed: Signed) -> None:
    assert promised(keyring, a_run(), found(signed)).witness is None


def test_t12_a_key_that_has_ended_is_no_witness_of_a_commitment(keyring: Keyring) -> None:
    seen = found(countersigned("2026-01-01T00:05:00Z"))
    assert promised(keyring, a_run(), seen).before
    ended = register(LAB, name="Lab 2", not_after=datetime(2026, 1, 1, 12, tzinfo=UTC))
    assert promised(keyring.including(ended), a_run(), seen).witness is None


def test_t7_a_witness_whose_clock_is_a_little_slow_has_seen_it(keyring: Keyring) -> None:
    assert found().committed.commitment.at == "2026-01-01T00:00:00.000000Z"
    told = promised(keyring, a_run(), found(countersigned("2025-12-31T23:55:00Z")))
    assert told.before


def test_t7_what_is_dated_before_the_commitment_does_not_hide_who_saw_it(keyring: Keyring) -> None:
    early, late = countersigned("2025-01-01T00:00:00Z"), countersigned("2026-01-01T00:20:00Z")
    told = promised(keyring, a_run(), found(early, late))
    assert told.witness is not None
    assert (f"{told.witness.at:%H:%M}", told.before) == ("00:20", False)


def test_a_dispute_of_a_commitment_is_no_witness(keyring: Keyring) -> None:
    digest, said = found().committed.digest, {"reason": "too fast", "url": None}
    line = sign("disputed", digest, said, LAB, "2026-01-01T00:05:00Z")
    assert promised(keyring, a_run(), found(parse_statement(line, "x"))).witness is None


def test_of_two_copies_the_one_that_was_seen_first_counts(keyring: Keyring) -> None:
    late = found(countersigned("2026-01-01T00:20:00Z"))
    early = found(countersigned("2026-01-01T00:05:00Z"))
    for there in ((late, early, found()), (found(), early, late)):
        told = promised(keyring, a_run(), *there)
        assert (told.commitment, told.before) == (early, True)
        assert (told.handed_out, told.kept) == (1, 1)


def test_t3_commitments_of_a_key_without_a_run_are_counted(keyring: Keyring) -> None:
    others = [found(nonce=f"{n:02x}" * 32) for n in range(3)]
    foreign = found(key=STRANGER)
    told = promised(keyring, a_run(), found(), *others, foreign)
    assert (told.handed_out, told.kept) == (4, 1)
    uncommitted = promised(keyring, a_run(nonce="ee" * 32), found(), *others)
    assert uncommitted.commitment is None
    assert (uncommitted.handed_out, uncommitted.kept) == (4, 0)


def test_another_s_commitment_to_the_same_line_is_not_the_run_s(keyring: Keyring) -> None:
    assert promised(keyring, a_run(), found(key=STRANGER)).commitment is None


def test_t3_a_commitment_that_tells_another_plan_than_its_digest_is_of_is_refused(
    keyring: Keyring,
) -> None:
    data = changed(lambda told: told["opening"].update(configuration="another"))
    lying = Found(Path("lie.commit.json"), parse(data, "lie"))
    (told,), refused = weigh([a_run()], [lying, found()], keyring=keyring, now=NOW)
    assert told.commitment == found()
    ((path, error),) = refused
    assert path == lying.path
    assert "lie.commit.json: opening.configuration: is not what" in str(error)


def test_a_run_of_which_no_trial_began_was_committed_to_before(keyring: Keyring) -> None:
    first = an_opening()
    run = Run(id_of(OWN), Evidence(journal=(first,), requests=(), power=None))
    told = promised(keyring, run, found(countersigned("2026-01-01T00:05:00Z")))
    assert told.before
    assert RunBuilder().spec.to_json() == first.data["spec"]
