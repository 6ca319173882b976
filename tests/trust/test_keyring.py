"""Tests of trust.keyring."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from tokenwatt_site.errors import EnvironmentProblem, InputError
from tokenwatt_site.trust.keyring import KEY_FILE, Keyring, key_folder, own_key
from tokenwatt_site.trust.signature import key_id


def registration(seed: int = 1, **changes: Any) -> dict[str, Any]:
    raw = Ed25519PrivateKey.from_private_bytes(bytes([seed] * 32)).public_key().public_bytes_raw()
    return {"keyid": key_id(raw), "public_key": raw.hex(), "name": f"Lab {seed}"} | changes


def write(folder: Path, name: str, value: Any) -> None:
    (folder / name).write_text(json.dumps(value), encoding="utf-8")


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


def test_registered_keys_have_names_and_others_have_none(tmp_path: Path) -> None:
    write(tmp_path, "a.json", registration(1))
    write(tmp_path, "b.json", registration(2))
    keyring = Keyring.load(tmp_path)
    assert keyring.name_of(registration(2)["keyid"]) == "Lab 2"
    assert keyring.name_of(registration(3)["keyid"]) is None


def test_an_absent_folder_registers_no_key(tmp_path: Path) -> None:
    assert Keyring.load(tmp_path / "none") == Keyring()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(registration(keyid="ed25519:" + "0" * 32)), "not the id of the key"),
        (
            json.dumps(
                registration(public_key="01" + "00" * 31, keyid=key_id((1).to_bytes(32, "little")))
            ),
            "small order",
        ),
        (json.dumps(registration(extra=1)), "extra"),
        (json.dumps(registration(name="two\nlines")), "one line"),
        (json.dumps(registration(name="a\u202eb"), ensure_ascii=True), "invisible"),
        ('{"name": "a", "name": "b"}', "twice"),
        ("[", "not valid JSON"),
    ],
)
def test_f21_a_registration_that_is_not_valid_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "bad.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        Keyring.load(tmp_path)
    assert "bad.json" in str(caught.value)


def test_a_key_registered_twice_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.json", registration(1))
    write(tmp_path, "b.json", registration(1, name="Another lab"))
    with pytest.raises(InputError, match="second time"):
        Keyring.load(tmp_path)


def test_all_bad_registrations_are_listed_at_once(tmp_path: Path) -> None:
    write(tmp_path, "a.json", [])
    write(tmp_path, "b.json", {})
    with pytest.raises(InputError) as caught:
        Keyring.load(tmp_path)
    text = str(caught.value)
    assert "a.json" in text
    assert "b.json" in text
