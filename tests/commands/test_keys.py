"""Making, registering, listing, replacing and revoking signing keys."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.runs import RunBuilder, a_key
from tokenwatt_site import cli
from tokenwatt_site.commands import keys
from tokenwatt_site.commands.verify import verify
from tokenwatt_site.errors import EnvironmentProblem, InputError, UsageError
from tokenwatt_site.trust.keyring import (
    KEY_FILE,
    NEXT_KEY_FILE,
    Keyring,
    key_folder,
    own_id,
    own_key,
)
from tokenwatt_site.trust.registration import (
    file_name,
    parse,
    register,
    revocation_name,
    to_bytes,
    with_successor,
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return the folder of the own key, in which there is none yet."""
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(tmp_path / "own"))
    return key_folder(os.environ)


@pytest.fixture
def own(place):
    return own_key(place)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "keys"


@pytest.fixture
def registered(own, folder):
    """Register the own key, and return its id."""
    keys.add("Lab 1", folder, organisation="Org")
    return own_id(own)


def contents(*folders):
    return {path: path.read_bytes() for folder in folders for path in folder.iterdir()}


def register_stranger(folder, seed=9):
    registration = register(a_key(seed), name=f"Lab {seed}")
    (folder / file_name(registration.keyid)).write_bytes(to_bytes(registration))
    return registration.keyid


def test_a_key_is_made_where_there_is_none(place):
    made = keys.new()
    assert made.path == place / KEY_FILE
    assert made.keyid == own_id(own_key(place))


def test_a_key_that_is_there_is_never_overwritten(place, own):
    before = contents(place)
    with pytest.raises(UsageError, match="never overwritten"):
        keys.new()
    assert contents(place) == before


def test_a_run_signed_with_a_registered_key_shows_its_name(tmp_path, own, folder):
    path = RunBuilder(key=own).write(tmp_path / "runs")
    assert verify(path, folder).key_state == "unknown"
    keys.add("A test laboratory", folder)
    checked = verify(path, folder)
    assert (checked.key_state, checked.signer) == ("known", "A test laboratory")


def test_a_registration_tells_owner_organisation_and_last_day(own, folder):
    path = keys.add("Lab 1", folder, organisation="Org", until="2999-12-31")
    key = Keyring.load(folder).keys[own_id(own)]
    assert path == folder / file_name(key.keyid)
    assert (key.name, key.organisation) == ("Lab 1", "Org")
    assert (key.not_before, key.not_after) == (None, "2999-12-31T23:59:59Z")


def test_a_key_is_registered_once(own, folder):
    first = keys.add("One", folder)
    before = first.read_bytes()
    with pytest.raises(UsageError, match="registered already"):
        keys.add("Two", folder)
    assert first.read_bytes() == before


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 400, "a\u202eb"])
def test_a_name_that_cannot_be_shown_is_refused(name, own, folder):
    with pytest.raises(UsageError, match="name"):
        keys.add(name, folder)
    assert not folder.exists()


@pytest.mark.parametrize("day", ["2001-01-01", "soon", "2027-02-30"])
def test_a_last_day_that_is_none_or_gone_by_is_refused(day, own, folder):
    with pytest.raises(UsageError, match=f"--until: .*found {day}"):
        keys.add("Lab 1", folder, until=day)
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_named(own, folder):
    folder.write_text("a file", encoding="utf-8")
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        keys.add("One", folder)


def test_a_file_that_is_no_registered_key_is_not_passed_over(folder):
    folder.mkdir()
    (folder / "me.pem").write_text("a key", encoding="utf-8")
    with pytest.raises(UsageError, match=r"me\.pem.*keys add"):
        Keyring.load(folder)


def test_a_list_without_keys_says_how_to_make_one(place, folder):
    assert keys.listed(folder) == [f"own key: none in {place}; `tokenwatt-site keys new` makes one"]
    assert not place.exists()


@pytest.mark.parametrize("what", ["a file", "a link that leads to itself"])
def test_a_folder_of_keys_that_is_none_is_named_by_every_command(what, place, folder):
    if what == "a file":
        place.write_text("", encoding="utf-8")
    else:
        place.symlink_to(place)
    for words in (("list",), ("new",), ("rotate",), ("revoke", "--reason", "lost")):
        done = call(*words, *(() if words == ("new",) else ("--keys", folder)))
        assert (done.exit_code, done.stdout) == (3, ""), words
        assert f"{place}: signing keys cannot be looked for here" in done.stderr
        assert "TOKENWATT_KEY_DIR" in done.stderr


def test_a_key_that_cannot_be_read_is_named_by_a_list(place, folder):
    (place / KEY_FILE).mkdir(parents=True, mode=0o700)
    with pytest.raises(EnvironmentProblem, match=f"{KEY_FILE}: cannot be read"):
        keys.listed(folder)


def test_f19_a_list_shows_the_own_key_and_each_registered_one_as_it_stands(place, own, folder):
    folder.mkdir()
    stranger = register_stranger(folder)
    assert keys.listed(folder) == [
        f"own key: {own_id(own)} in {place}, not registered here",
        f"{stranger}  known    Lab 9",
    ]
    keys.add("Lab 1", folder, organisation="Org", until="2999-12-31")
    keys.revoke(None, "stolen", folder)
    key = Keyring.load(folder).keys[own_id(own)]
    until = "until 2999-12-31T23:59:59Z"
    assert keys.listed(folder) == [
        f"own key: {key.keyid} in {place}, registered as Lab 1 (Org)",
        f"{key.keyid}  revoked  Lab 1 (Org), {until}, revoked at {key.revoked.at} (stolen)",
        f"{stranger}  known    Lab 9",
    ]


def test_a_rotated_key_names_its_successor_of_the_same_name_and_is_kept(
    place, own, folder, registered
):
    rotated = keys.rotate(folder, until="2999-12-31")
    ring = Keyring.load(folder)
    following = ring.keys[own_id(own_key(place))]
    assert ring.successors(registered) == (following.keyid,)
    assert (following.name, following.organisation) == ("Lab 1", "Org")
    assert following.not_before is not None
    assert following.not_after == "2999-12-31T23:59:59Z"
    assert own_key(place, rotated.kept.name).private_bytes_raw() == own.private_bytes_raw()
    assert rotated.written == tuple(
        folder / file_name(keyid) for keyid in (registered, following.keyid)
    )
    assert {path.name for path in place.iterdir()} == {KEY_FILE, rotated.kept.name}
    told = {line.split()[0]: line.partition(", ")[2] for line in keys.listed(folder)[1:]}
    assert told[registered] == f"followed by {following.keyid}"
    assert told[following.keyid].endswith(f"follows {registered}")


def test_a_list_says_of_a_succession_that_one_key_alone_tells_that_it_changes_nothing(
    place, own, folder, registered
):
    stranger = register_stranger(folder)
    claimed = with_successor(Keyring.load(folder).keys[registered], stranger, own)
    (folder / file_name(registered)).write_bytes(to_bytes(claimed))
    (line,) = [each for each in keys.listed(folder)[1:] if each.startswith(registered)]
    assert line.endswith(f"{stranger} (which does not say so, so it changes nothing)")


def test_a_key_is_registered_as_following_one_that_is_registered(own, folder):
    folder.mkdir()
    stranger = register_stranger(folder)
    with pytest.raises(UsageError, match="is not registered; found ed25519:0"):
        keys.add("Lab 9", folder, follows="ed25519:0")
    keys.add("Lab 9", folder, follows=stranger)
    ring = Keyring.load(folder)
    assert ring.keys[own_id(own)].follows == stranger
    assert ring.successors(stranger) == ()  # it does not say so yet
    named = with_successor(ring.keys[stranger], own_id(own), a_key(9))
    assert ring.including(named).successors(stranger) == (own_id(own),)


def test_a_run_signed_before_a_rotation_counts_as_before(tmp_path, own, folder, registered):
    path = RunBuilder(key=own).write(tmp_path / "runs")
    keys.rotate(folder)
    checked = verify(path, folder)
    assert (checked.key_state, checked.signer) == ("known", "Lab 1")


class Crash(BaseException):
    """The process ends here; no handler of ours catches it."""


def crash_at(monkeypatch, step, *, after):
    """Have the process end when the name of a file changes for the `step`th time."""
    count = 0

    def crashing(act):
        def do(*args):
            nonlocal count
            count += 1
            if count == step and not after:
                raise Crash
            act(*args)
            if count == step:
                raise Crash

        return do

    monkeypatch.setattr(os, "link", crashing(os.link))
    monkeypatch.setattr(Path, "replace", crashing(Path.replace))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_a_rotation_that_crashes_loses_nothing_and_goes_on(step, after, place, folder, registered):
    old = own_key(place).private_bytes_raw()
    with pytest.MonkeyPatch.context() as patched:
        crash_at(patched, step, after=after)
        with pytest.raises(Crash):
            keys.rotate(folder)
    finished = step == 5 and after
    ring = Keyring.load(folder)
    assert registered in ring.keys
    assert (own_id(own_key(place)) == registered) == (not finished)
    assert old in {own_key(place, path.name).private_bytes_raw() for path in place.iterdir()}
    told = [line for line in keys.listed(folder) if "is not finished" in line]
    assert bool(told) == (place / NEXT_KEY_FILE).exists()

    if not finished:
        keys.rotate(folder)
    ring = Keyring.load(folder)
    following = own_id(own_key(place))
    assert ring.keys.keys() == {registered, following}
    assert ring.successors(registered) == (following,)
    kept = f"ed25519-{registered.removeprefix('ed25519:')}.key"
    assert {path.name for path in place.iterdir()} == {KEY_FILE, kept}
    assert own_key(place, kept).private_bytes_raw() == old


def test_a_key_that_is_not_registered_is_not_replaced(place, own, folder):
    before = contents(place)
    with pytest.raises(UsageError, match=r"is not registered.*keys add NAME"):
        keys.rotate(folder)
    assert contents(place) == before


def test_where_there_is_no_key_none_is_replaced_or_revoked(place, folder):
    for act in (lambda: keys.rotate(folder), lambda: keys.revoke(None, "lost", folder)):
        with pytest.raises(UsageError, match="keys new"):
            act()
    assert not place.exists()


def test_a_key_that_was_replaced_on_another_machine_is_not_replaced_again(
    place, own, folder, registered
):
    keys.rotate(folder)
    following = own_id(own_key(place))
    (place / KEY_FILE).unlink()
    (place / f"ed25519-{registered.removeprefix('ed25519:')}.key").rename(place / KEY_FILE)
    before = contents(place, folder)
    with pytest.raises(UsageError, match=f"was replaced already.*{following}"):
        keys.rotate(folder)
    assert contents(place, folder) == before


def test_nothing_is_written_among_registrations_of_which_one_is_bad(place, own, folder, registered):
    (folder / "bad.json").write_text("{}", encoding="utf-8")
    before = contents(place, folder)
    for act in (lambda: keys.rotate(folder), lambda: keys.revoke(None, "lost", folder)):
        with pytest.raises(InputError, match=r"bad\.json"):
            act()
    assert contents(place, folder) == before


def test_f19_a_run_of_a_revoked_key_is_valid_and_its_key_revoked(tmp_path, own, folder, registered):
    path = RunBuilder(key=own).write(tmp_path / "runs")
    assert keys.revoke(None, "stolen", folder) == folder / revocation_name(registered)
    checked = verify(path, folder)
    assert (checked.key_state, checked.signer) == ("revoked", "Lab 1")


def test_a_key_is_revoked_by_one_that_follows_it(place, own, folder, registered):
    keys.rotate(folder)
    keys.rotate(folder)
    keys.revoke(registered, "stolen", folder)
    revoked = Keyring.load(folder).keys[registered].revoked
    assert (revoked.by, revoked.reason) == (own_id(own_key(place)), "stolen")


def test_what_a_key_had_revoked_stays_so_when_it_is_revoked_itself(own, folder, registered):
    second = own_id_after(folder)
    keys.revoke(registered, "stolen", folder)
    own_id_after(folder)
    keys.revoke(second, "stolen too", folder)
    loaded = Keyring.load(folder).keys
    assert loaded[second].revoked.revocations == (loaded[registered].revoked.digest,)
    assert loaded[registered].revoked.revocations is None


def own_id_after(folder):
    """Rotate, and return the id of the key that is the own one then."""
    return parse(keys.rotate(folder).written[1].read_bytes(), "registration").keyid


def test_a_key_is_revoked_once(own, folder, registered):
    keys.revoke(None, "stolen", folder)
    before = contents(folder)
    with pytest.raises(UsageError, match="is revoked already"):
        keys.revoke(registered, "lost", folder)
    assert contents(folder) == before


def test_the_key_of_another_is_not_revoked(own, folder, registered):
    stranger = register_stranger(folder)
    before = contents(folder)
    with pytest.raises(UsageError, match="neither is this key nor follows it"):
        keys.revoke(stranger, "a competitor", folder)
    assert contents(folder) == before


def test_a_key_that_is_not_registered_is_not_revoked(own, folder, registered):
    with pytest.raises(UsageError, match="is not registered; found ed25519:0"):
        keys.revoke("ed25519:0", "lost", folder)


def test_a_revoked_key_revokes_no_other(own, folder, registered):
    keys.rotate(folder)
    keys.revoke(None, "stolen", folder)
    before = contents(folder)
    with pytest.raises(UsageError, match="the own key is revoked itself"):
        keys.revoke(registered, "stolen", folder)
    assert contents(folder) == before


def test_a_revoked_key_names_no_successor(place, own, folder, registered):
    keys.revoke(None, "stolen", folder)
    before = contents(place, folder)
    with pytest.raises(UsageError, match="is revoked, so it names no successor"):
        keys.rotate(folder)
    assert contents(place, folder) == before


@pytest.mark.parametrize("reason", ["", "two\nlines", "a\u202eb"])
def test_a_reason_that_cannot_be_shown_is_refused(reason, own, folder, registered):
    before = contents(folder)
    with pytest.raises(UsageError, match="reason"):
        keys.revoke(None, reason, folder)
    assert contents(folder) == before


def call(*words):
    return CliRunner().invoke(cli.app, ["keys", *map(str, words)])


def test_the_commands_print_what_they_made_and_nothing_else(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = call("new")
    assert made.exit_code == 0, made.stderr
    first = own_id(own_key(place))
    assert made.stdout == f"{first}\n"

    added = call("add", "Lab 1", "--organisation", "Org", "--until", "2999-12-31")
    assert added.stdout == f"site_src/keys/{file_name(first)}\n"

    rotated = call("rotate", "--until", "2999-06-30")
    second = own_id(own_key(place))
    assert rotated.stdout == "".join(
        f"site_src/keys/{file_name(keyid)}\n" for keyid in (first, second)
    )
    assert "the old key is kept in" in rotated.stderr

    revoked = call("revoke", first, "--reason", "stolen")
    assert revoked.stdout == f"site_src/keys/{revocation_name(first)}\n"
    listed = call("list").stdout.splitlines()
    assert listed[0] == f"own key: {second} in {place}, registered as Lab 1 (Org)"
    assert {line.split()[0]: line.split()[1] for line in listed[1:]} == {
        first: "revoked",
        second: "known",
    }


@pytest.mark.parametrize(
    "words",
    [
        ("new",),
        ("add",),
        ("add", "Lab 1", "--until", "soon"),
        ("rotate",),
        ("revoke",),
        ("revoke", "--reason", "lost"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_exits_with_2_and_changes_nothing(words, own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call(*words)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert not (tmp_path / "site_src").exists()


def test_verify_says_of_a_revoked_key_that_it_is(tmp_path, own, folder, registered):
    path = RunBuilder(key=own).write(tmp_path / "runs")
    keys.revoke(None, "stolen", folder)
    done = CliRunner().invoke(cli.app, ["verify", str(path), "--keys", str(folder)])
    assert done.exit_code == 0, done.stderr
    assert f"{registered} (Lab 1, revoked key)" in done.stdout
    assert json.loads((folder / revocation_name(registered)).read_bytes())["reason"] == "stolen"
