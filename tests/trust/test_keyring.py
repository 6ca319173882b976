"""Tests of trust.keyring."""

from __future__ import annotations

import json
import os
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import a_key, revoked_key
from tokenwatt_site.errors import EnvironmentProblem, InputError
from tokenwatt_site.trust.keyring import (
    KEY_FILE,
    NEXT_KEY_FILE,
    Keyring,
    Standing,
    key_folder,
    own_id,
    own_key,
    replace_own_key,
)
from tokenwatt_site.trust.registration import (
    Registration,
    file_name,
    register,
    revocation_bytes,
    revocation_name,
    to_bytes,
    with_successor,
)
from tokenwatt_site.trust.signature import key_id


def test_the_own_key_is_made_once_and_then_read(tmp_path: Path) -> None:
    first = own_key(tmp_path / "new" / "folder")
    second = own_key(tmp_path / "new" / "folder")
    assert first.private_bytes_raw() == second.private_bytes_raw()
    assert [entry.name for entry in (tmp_path / "new" / "folder").iterdir()] == [KEY_FILE]


def test_the_own_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    own_key(tmp_path / "keys")
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "keys" / KEY_FILE).stat().st_mode) == 0o600


def test_a_key_that_others_can_read_is_refused_with_the_command_to_run(tmp_path: Path) -> None:
    own_key(tmp_path)
    (tmp_path / KEY_FILE).chmod(0o640)
    with pytest.raises(EnvironmentProblem, match=f"chmod 600 {tmp_path}/{KEY_FILE}"):
        own_key(tmp_path)


def test_a_folder_that_others_can_change_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(EnvironmentProblem, match="chmod 700"):
        own_key(folder)


def test_two_processes_at_once_end_with_one_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both have seen that no key is there before either links its own.
    both = threading.Barrier(2)
    link = os.link

    def wait_then_link(source: Path, target: Path) -> None:
        both.wait(10)
        link(source, target)

    monkeypatch.setattr(os, "link", wait_then_link)
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(own_key(tmp_path).private_bytes_raw()))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert found[0] == found[1]
    assert [entry.name for entry in tmp_path.iterdir()] == [KEY_FILE]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a key",
        generate_private_key(SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        ),
        Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
        ),
        b"x" * 100_000,
    ],
    ids=["empty", "text", "another curve", "encrypted", "large"],
)
def test_a_file_that_is_no_key_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / KEY_FILE
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(EnvironmentProblem, match=KEY_FILE):
        own_key(tmp_path)
    assert path.read_bytes() == content


def test_a_key_behind_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    own_key(tmp_path / "real")
    (tmp_path / "other").mkdir(mode=0o700)
    (tmp_path / "other" / KEY_FILE).symlink_to(tmp_path / "real" / KEY_FILE)
    with pytest.raises(EnvironmentProblem):
        own_key(tmp_path / "other")


def test_a_folder_that_cannot_be_made_is_an_environment_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="TOKENWATT_KEY_DIR"):
        own_key(tmp_path / "file" / "keys")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TOKENWATT_KEY_DIR": "/k", "XDG_CONFIG_HOME": "/x"}, "/k"),
        ({"XDG_CONFIG_HOME": "/x"}, "/x/tokenwatt-site"),
        ({"XDG_CONFIG_HOME": "relative"}, "~/.config/tokenwatt-site"),
        ({}, "~/.config/tokenwatt-site"),
    ],
)
def test_the_key_folder_follows_the_environment(environment: dict[str, str], expected: str) -> None:
    assert key_folder(environment) == Path(expected).expanduser()


def test_the_next_key_takes_the_place_of_the_own_one_which_is_kept(tmp_path: Path) -> None:
    old, following = own_key(tmp_path), own_key(tmp_path, NEXT_KEY_FILE)
    kept = replace_own_key(tmp_path)
    assert own_key(tmp_path).private_bytes_raw() == following.private_bytes_raw()
    assert own_key(tmp_path, kept.name).private_bytes_raw() == old.private_bytes_raw()
    assert kept.name == f"ed25519-{own_id(old).removeprefix('ed25519:')}.key"
    assert {path.name for path in tmp_path.iterdir()} == {KEY_FILE, kept.name}
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_without_a_next_key_the_own_one_stays(tmp_path: Path) -> None:
    old = own_key(tmp_path)
    with pytest.raises(EnvironmentProblem, match=KEY_FILE):
        replace_own_key(tmp_path)
    assert own_key(tmp_path).private_bytes_raw() == old.private_bytes_raw()


def test_a_key_is_not_replaced_where_another_stands_in_the_place_to_keep_it(tmp_path: Path) -> None:
    old, following = own_key(tmp_path), own_key(tmp_path, NEXT_KEY_FILE)
    taken = f"ed25519-{own_id(old).removeprefix('ed25519:')}.key"
    stranger = own_key(tmp_path, taken)
    with pytest.raises(EnvironmentProblem, match="another key than its name says"):
        replace_own_key(tmp_path)
    assert own_key(tmp_path).private_bytes_raw() == old.private_bytes_raw()
    assert own_key(tmp_path, NEXT_KEY_FILE).private_bytes_raw() == following.private_bytes_raw()
    assert own_key(tmp_path, taken).private_bytes_raw() == stranger.private_bytes_raw()


ENDED, NOW = datetime(2026, 1, 10, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)


def day(month: int, of: int = 1) -> datetime:
    return datetime(2026, month, of, tzinfo=UTC)


def lab(
    seed: int = 1,
    *,
    begins: datetime | None = None,
    ends: datetime | None = None,
    revoked: datetime | None = None,
    by: int | None = None,
    successor: int | None = None,
    follows: int | None = None,
) -> Registration:
    registration = register(
        a_key(seed),
        name=f"Lab {seed}",
        organisation="Org",
        not_before=begins,
        not_after=ends,
        follows=None if follows is None else own_id(a_key(follows)),
    )
    if successor is not None:
        registration = with_successor(registration, own_id(a_key(successor)), a_key(seed))
    if revoked is not None:
        registration = revoked_key(
            registration, at=revoked, reason="stolen", private_key=a_key(by or seed)
        )
    return registration


def write(folder: Path, *registrations: Registration) -> None:
    for registration in registrations:
        (folder / file_name(registration.keyid)).write_bytes(to_bytes(registration))
        if registration.revoked is not None:
            revocation = folder / revocation_name(registration.keyid)
            revocation.write_bytes(revocation_bytes(registration.revoked))


def standing(
    registration: Registration,
    witnessed: datetime | None = None,
    *,
    ended: datetime = ENDED,
    now: datetime = NOW,
) -> Standing:
    keyring = Keyring().including(registration)
    return keyring.state(registration.keyid, ended=ended, witnessed=witnessed, now=now)


def test_registered_keys_have_names_and_others_have_none(tmp_path: Path) -> None:
    write(tmp_path, lab(1), lab(2))
    keyring = Keyring.load(tmp_path)
    asked = {"ended": ENDED, "witnessed": None, "now": NOW}
    known = keyring.state(lab(2).keyid, **asked)
    assert known == Standing("known", "is registered as Lab 2 (Org)", "Lab 2", "Org")
    unknown = keyring.state(lab(3).keyid, **asked)
    assert unknown == Standing("unknown", "is not registered", None, None)


@pytest.mark.parametrize(
    ("limits", "witnessed", "state"),
    [
        ({}, None, "known"),
        ({"begins": day(1), "ends": day(12)}, None, "known"),
        ({"begins": ENDED, "ends": NOW}, None, "known"),
        ({"ends": day(3)}, None, "expired"),
        ({"ends": day(3)}, day(4), "expired"),
        ({"ends": day(3)}, day(2), "known"),
        ({"ends": day(3)}, day(3), "known"),
        ({"begins": day(2)}, None, "expired"),
        ({"begins": day(2)}, day(1, 20), "expired"),
        ({"begins": day(2)}, day(2), "known"),
        ({"revoked": day(3)}, None, "revoked"),
        ({"revoked": day(3)}, day(4), "revoked"),
        ({"revoked": day(3)}, day(3), "revoked"),
        ({"revoked": day(3)}, day(2), "revoked later"),
        ({"revoked": day(3), "ends": day(4)}, day(2), "revoked later"),
        ({"revoked": day(3), "ends": day(2)}, day(2, 10), "expired"),
        ({"revoked": day(3), "ends": day(2)}, None, "revoked"),
    ],
)
def test_f19_a_key_stands_as_its_limits_and_the_witnessed_time_say(
    limits: dict[str, datetime], witnessed: datetime | None, state: str
) -> None:
    found = standing(lab(**limits), witnessed)
    assert found.state == state
    assert found.trusted == (state in {"known", "revoked later"})
    assert (found.name, found.organisation) == ("Lab 1", "Org")


@pytest.mark.parametrize(
    ("limits", "witnessed", "text"),
    [
        ({"ends": day(3)}, None, "only until 2026-03-01T00:00:00Z, with no witness before that"),
        ({"begins": day(2)}, None, "only from 2026-02-01T00:00:00Z on, after the run ended"),
        ({"revoked": day(3)}, None, "and was revoked at 2026-03-01T00:00:00Z (stolen)"),
        (
            {"revoked": day(3)},
            day(2),
            "and was revoked at 2026-03-01T00:00:00Z (stolen), after the run was witnessed",
        ),
    ],
)
def test_f19_the_text_says_why_a_key_stands_so(
    limits: dict[str, datetime], witnessed: datetime | None, text: str
) -> None:
    assert standing(lab(**limits), witnessed).text == f"is registered as Lab 1 (Org) {text}"


@given(st.datetimes(max_value=datetime(2026, 6, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_f19_without_a_witness_no_date_in_a_run_makes_an_ended_key_count(ended: datetime) -> None:
    assert standing(lab(ends=day(3)), ended=ended).state == "expired"
    assert standing(lab(revoked=day(3)), ended=ended).state == "revoked"


def test_an_absent_folder_registers_no_key(tmp_path: Path) -> None:
    assert Keyring.load(tmp_path / "none") == Keyring()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="keys: is no folder of registered keys"):
        Keyring.load(tmp_path / "keys")


def test_f21_a_registration_that_is_not_valid_is_refused(tmp_path: Path) -> None:
    identity = (1).to_bytes(32, "little")
    value = lab().to_json() | {
        "keyid": key_id(identity),
        "public_key": identity.hex(),
        "signature": (identity + bytes(32)).hex(),
    }
    (tmp_path / "bad.json").write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(InputError, match=r"bad\.json: public_key: is a key of small order"):
        Keyring.load(tmp_path)


def test_a_registration_is_called_as_its_key_so_that_no_key_has_two(tmp_path: Path) -> None:
    write(tmp_path, lab())
    (tmp_path / "second.json").write_bytes(to_bytes(lab()))
    name = file_name(lab().keyid)
    with pytest.raises(InputError, match=f"second.json: is not called as .*; expected {name}"):
        Keyring.load(tmp_path)


def test_all_bad_registrations_are_listed_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[", encoding="utf-8")
    (tmp_path / "b.txt").write_text("", encoding="utf-8")
    (tmp_path / "c.json").mkdir()
    write(tmp_path, lab(1, successor=9), lab(2), lab(3, revoked=day(3), by=2))
    with pytest.raises(InputError) as caught:
        Keyring.load(tmp_path)
    told = str(caught.value)
    bad = (file_name(lab(1).keyid), revocation_name(lab(3).keyid), "a.json", "b.txt", "c.json")
    assert all(f"{tmp_path}/{name}:" in told for name in bad)
    assert file_name(lab(2).keyid) not in told
    assert len(caught.value.problems) == len(bad)


def test_t12_no_registration_that_a_revoked_key_signs_ends_its_revocation(tmp_path: Path) -> None:
    write(tmp_path, lab(1, revoked=day(3)), lab(2, follows=1))
    assert Keyring.load(tmp_path).keys[lab(1).keyid].revoked is not None
    write(tmp_path, lab(1))
    assert Keyring.load(tmp_path).keys[lab(1).keyid].revoked is not None
    write(tmp_path, lab(1, successor=2))
    with pytest.raises(InputError, match="was changed after its key was revoked"):
        Keyring.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (revocation_name(lab(1).keyid), "revokes a key that is not registered"),
        (revocation_name(lab(2).keyid), "is not called as the key that it revokes"),
    ],
)
def test_a_revocation_stands_beside_the_registration_and_is_called_as_it(
    tmp_path: Path, name: str, words: str
) -> None:
    revocation = lab(1, revoked=day(3)).revoked
    assert revocation is not None
    (tmp_path / name).write_bytes(revocation_bytes(revocation))
    with pytest.raises(InputError, match=f"{name}: {words}"):
        Keyring.load(tmp_path)


def test_a_successor_whose_file_is_bad_is_in_the_list_once(tmp_path: Path) -> None:
    write(tmp_path, lab(1, successor=2))
    (tmp_path / file_name(lab(2).keyid)).write_text("{}", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        Keyring.load(tmp_path)
    assert len(caught.value.problems) == 1


def test_f10_a_registration_behind_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    write(tmp_path, lab())
    name = file_name(lab().keyid)
    (tmp_path / "keys" / name).symlink_to(tmp_path / name)
    with pytest.raises(InputError, match="cannot be read"):
        Keyring.load(tmp_path / "keys")


def test_the_keys_that_follow_a_key_are_its_successors(tmp_path: Path) -> None:
    first = lab(1, successor=2, revoked=day(3), by=2)
    write(tmp_path, first, lab(2, successor=3, follows=1), lab(3, follows=2))
    keyring = Keyring.load(tmp_path)
    assert keyring.successors(lab(1).keyid) == (lab(2).keyid, lab(3).keyid)


def test_a_keyring_takes_in_only_what_fits_the_others() -> None:
    second = lab(2, follows=1)
    keyring = Keyring().including(second).including(lab(1, successor=2))
    assert keyring.including(lab(1, successor=2, revoked=day(3), by=2)).keys[lab(1).keyid].revoked
    with pytest.raises(InputError, match="successor: is not registered"):
        keyring.including(lab(2, successor=3, follows=1))
    assert keyring.keys[second.keyid] == second
