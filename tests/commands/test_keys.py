"""Registering the own key."""

import pytest

from tests.support.runs import RunBuilder
from tokenwatt_site.commands import keys
from tokenwatt_site.commands.verify import verify
from tokenwatt_site.errors import EnvironmentProblem, UsageError
from tokenwatt_site.trust.keyring import Keyring, key_folder, own_key


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(tmp_path / "own"))
    return own_key(key_folder({"TOKENWATT_KEY_DIR": str(tmp_path / "own")}))


def test_a_run_signed_with_a_registered_key_shows_its_name(tmp_path, own):
    path = RunBuilder(key=own).write(tmp_path / "runs")
    assert verify(path, tmp_path / "keys").key_state == "unknown"
    keys.add("A test laboratory", tmp_path / "keys")
    checked = verify(path, tmp_path / "keys")
    assert (checked.key_state, checked.signer) == ("known", "A test laboratory")


def test_a_key_is_registered_once(tmp_path):
    first = keys.add("One", tmp_path / "keys")
    before = first.read_bytes()
    with pytest.raises(UsageError, match="registered already"):
        keys.add("Two", tmp_path / "keys")
    assert first.read_bytes() == before


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 400])
def test_a_name_that_cannot_be_shown_is_refused(name, tmp_path):
    with pytest.raises(UsageError, match="name"):
        keys.add(name, tmp_path / "keys")
    assert not (tmp_path / "keys").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "keys").write_text("a file", encoding="utf-8")
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        keys.add("One", tmp_path / "keys")


def test_a_file_that_is_no_registered_key_is_not_passed_over(tmp_path):
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "me.pem").write_text("a key", encoding="utf-8")
    with pytest.raises(UsageError, match=r"me\.pem.*keys add"):
        Keyring.load(tmp_path / "keys")
