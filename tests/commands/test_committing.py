"""What is handed out before a measurement, and what of it is kept with the run."""

import json

import pytest
from typer.testing import CliRunner

from tests.measure.test_session import Lab, interrupt, lab  # noqa: F401  # a fixture
from tests.support.runs import small_spec_dict
from tokenwatt_site import cli
from tokenwatt_site.commands import keys
from tokenwatt_site.commands.committing import publisher_nonce
from tokenwatt_site.commands.verify import verify
from tokenwatt_site.errors import UsageError
from tokenwatt_site.measure import searching, session
from tokenwatt_site.prompts import trial_key
from tokenwatt_site.trust.commitment import check_belongs, parse
from tokenwatt_site.trust.keyring import own_id, own_key

runner = CliRunner()
GIVEN = "ab" * 32


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(tmp_path / "keys"))
    (tmp_path / "a.spec.yaml").write_text(json.dumps(small_spec_dict()), encoding="utf-8")
    return tmp_path


def call(*words):
    return runner.invoke(cli.app, [str(word) for word in words])


def measure(*words):
    return call("measure", "--spec", "a.spec.yaml", *words)


def read(path):
    return parse(path.read_bytes(), str(path))


def test_the_commitment_is_there_before_the_engine_is_launched_and_belongs_to_the_run(
    here,
    lab,  # noqa: F811
    monkeypatch,
):
    seen = []

    def launched(*args, **options):
        seen.append((here / "f.json").read_bytes())
        return lab.engine(*args, **options)

    monkeypatch.setattr(session, "launch", launched)
    done = measure("--commit-to", "f.json", "--out", "runs/a.json")
    assert done.exit_code == 0, done.stderr
    assert "committed to f.json" in done.stderr
    run = verify(here / "runs/a.json")
    committed = read(here / "f.json")
    check_belongs(committed, run.evidence.journal[0], run.keyid)
    assert seen == [(here / "f.json").read_bytes()]
    assert (here / "runs/a.commit.json").read_bytes() == (here / "f.json").read_bytes()
    told = f"committed to at {committed.commitment.at}, by its key's own word; nobody else saw it"
    assert told in call("verify", "runs/a.json").stdout


def test_a_measurement_that_committed_to_nothing_has_no_commitment_beside_it(here, lab):  # noqa: F811
    assert measure("--out", "runs/a.json").exit_code == 0
    assert [path.name for path in (here / "runs").glob("*.json")] == ["a.json"]


def test_a_commitment_never_replaces_a_file(here, lab):  # noqa: F811
    (here / "f.json").write_text("precious", encoding="utf-8")
    done = measure("--commit-to", "f.json")
    assert (done.exit_code, lab.launches) == (2, 0)
    assert (here / "f.json").read_text(encoding="utf-8") == "precious"


def test_a_place_that_cannot_be_written_is_said_before_anything_is_begun(here, lab):  # noqa: F811
    (here / "file").write_text("x", encoding="utf-8")
    done = measure("--commit-to", "file/f.json")
    assert (done.exit_code, lab.launches) == (3, 0)
    assert "--commit-to" in done.stderr
    assert not (here / ".tokenwatt").exists()


def test_it_may_be_handed_out_under_the_name_that_it_has_beside_the_run(here, lab):  # noqa: F811
    done = measure("--commit-to", "runs/a.commit.json", "--out", "runs/a.json")
    assert done.exit_code == 0, done.stderr
    run = verify(here / "runs/a.json")
    check_belongs(read(here / "runs/a.commit.json"), run.evidence.journal[0], run.keyid)


def test_a_run_whose_commitment_has_no_place_is_not_written_and_says_why(here, lab):  # noqa: F811
    (here / "runs").mkdir()
    (here / "runs/a.commit.json").write_text("precious", encoding="utf-8")
    done = measure("--commit-to", "f.json", "--out", "runs/a.json")
    assert done.exit_code == 3
    assert "runs/a.commit.json: is another file than this run's commitment" in done.stderr
    assert "measure --resume" in done.stderr
    assert (here / "runs/a.commit.json").read_text(encoding="utf-8") == "precious"
    assert not (here / "runs/a.json").exists()


def test_c1_what_is_broken_off_before_its_first_launch_keeps_its_commitment(
    here,
    lab,  # noqa: F811
    monkeypatch,
):
    def broken(*_args, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(session, "launch", broken)
        done = measure("--commit-to", "f.json")
    assert done.exit_code == 130
    (folder,) = (here / ".tokenwatt").iterdir()
    assert f"measure --resume .tokenwatt/{folder.name}" in done.stderr
    again = call("measure", "--resume", folder, "--out", "runs/a.json")
    assert again.exit_code == 0, again.stderr
    assert (here / "runs/a.commit.json").read_bytes() == (here / "f.json").read_bytes()
    assert verify(here / "runs/a.json")


def test_what_is_gone_on_with_commits_to_nothing_new(here, lab):  # noqa: F811
    lab.before_trial = interrupt(2)
    assert measure().exit_code == 130
    (folder,) = (here / ".tokenwatt").iterdir()
    for words in (("--commit-to", "f.json"), ("--nonce", GIVEN)):
        done = call("measure", "--resume", folder, *words)
        assert done.exit_code == 2
        assert "leave them out" in done.stderr


def test_t4_a_publisher_s_nonce_decides_the_prompts_with_the_own_one(
    here,
    lab,  # noqa: F811
    monkeypatch,
):
    nonces = []

    def run_trial(*args, nonce, **options):
        nonces.append(nonce)
        return lab.run_trial(*args, **options)

    monkeypatch.setattr(searching, "run_trial", run_trial)
    done = measure("--nonce", GIVEN.upper(), "--out", "runs/a.json")
    assert done.exit_code == 0, done.stderr
    opening = verify(here / "runs/a.json").evidence.journal[0].data
    assert opening["publisher_nonce"] == GIVEN
    assert opening["seed_rule"] == "HMAC-SHA256(nonce publisher_nonce, configuration|repeat|trial)"
    assert set(nonces) == {opening["nonce"] + GIVEN}
    own = opening["nonce"]
    assert trial_key(own + GIVEN, "c", 1, 1) != trial_key(own, "c", 1, 1)


@pytest.mark.parametrize("text", ["", "00" * 15, "0" * 33, "00" * 65, "zz" * 32, "0x" + "00" * 16])
def test_what_is_no_nonce_is_refused(text):
    with pytest.raises(UsageError, match="--nonce: is no nonce"):
        publisher_nonce(text)


def attested(here, path, key, *words):
    """State something with the key of somebody else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENWATT_KEY_DIR", str(here / key))
        return call("attest", *words, path)


def test_t3_a_commitment_is_countersigned_by_somebody_else_before_its_run_is_there(
    here,
    lab,  # noqa: F811
    monkeypatch,
):
    def launched(*args, **options):
        assert attested(here, "f.json", "lab", "countersigned").exit_code == 0
        return lab.engine(*args, **options)

    monkeypatch.setattr(session, "launch", launched)
    assert measure("--commit-to", "f.json", "--out", "runs/a.json").exit_code == 0
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(here / "lab"))
    assert call("keys", "add", "Lab", "--keys", "keyring").exit_code == 0
    (here / "f.att.jsonl").rename(here / "runs/a.commit.att.jsonl")
    told = call("verify", "runs/a.json", "--keys", "keyring").stdout
    promised = verify(here / "runs/a.json", here / "keyring").promised
    at = f"{promised.witness.at:%Y-%m-%d %H:%M}"
    assert f"; Lab saw it at {at}, before the first trial began" in told
    assert promised.witness.name == "Lab"
    assert promised.witness.at < promised.first_trial
    assert promised.before


def test_a_commitment_is_not_countersigned_by_its_own_key_nor_disputed(here, lab):  # noqa: F811
    assert measure("--commit-to", "f.json").exit_code == 0
    own = attested(here, "f.json", "keys", "countersigned")
    assert own.exit_code == 2
    assert "it is the publisher's own word" in own.stderr
    disputed = attested(here, "f.json", "lab", "disputed", "--reason", "x")
    assert disputed.exit_code == 2
    assert "is a commitment, of which only the time is stated" in disputed.stderr
    assert not (here / "f.att.jsonl").exists()


def test_verify_says_what_a_commitment_is_of(here, lab):  # noqa: F811
    assert measure("--commit-to", "f.json").exit_code == 0
    done = call("verify", "f.json")
    assert done.exit_code == 0, done.stderr
    assert "f.json: verified, a commitment to a run of toy-135m-cpu-toy-" in done.stdout
    (here / "f.json").write_bytes((here / "f.json").read_bytes().replace(b"vnd.tokenwatt", b"vnd"))
    assert call("verify", "f.json").exit_code == 6


def test_a_measurement_that_goes_on_after_a_rotation_is_signed_with_the_key_it_began_under(
    here,
    lab,  # noqa: F811
):
    began = own_id(own_key(here / "keys"))
    keys.add("Lab", folder=here / "registered")
    lab.before_trial = interrupt(2)
    assert measure("--commit-to", "f.json").exit_code == 130
    keys.rotate(here / "registered")
    (folder,) = (here / ".tokenwatt").iterdir()
    done = call("measure", "--resume", folder, "--out", "runs/a.json")
    assert done.exit_code == 0, done.stderr
    run = verify(here / "runs/a.json")
    assert run.keyid == began != own_id(own_key(here / "keys"))
    assert run.evidence.journal[0].data["keyid"] == began
    assert run.promised.commitment is not None


def test_a_measurement_whose_key_is_not_here_goes_on_nowhere_and_says_whose_it_is(
    here,
    lab,  # noqa: F811
    monkeypatch,
):
    lab.before_trial = interrupt(2)
    assert measure().exit_code == 130
    began = own_id(own_key(here / "keys"))
    (folder,) = (here / ".tokenwatt").iterdir()
    before = (folder / "journal.jsonl").read_bytes()
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(here / "other"))
    done = call("measure", "--resume", folder)
    assert done.exit_code == 3
    assert began in done.stderr
    assert "TOKENWATT_KEY_DIR" in done.stderr
    assert (folder / "journal.jsonl").read_bytes() == before
