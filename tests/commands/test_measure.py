"""From a spec to a signed run file, with an engine that is a formula."""

import json
import stat

import pytest

from tests.measure.test_begun import gpu, package, powered
from tests.measure.test_instruments import counting, llama_cpp
from tests.measure.test_session import Lab, lab  # noqa: F401  # a fixture
from tests.support.runs import as_written, small_spec, small_spec_dict
from tokenwatt_site.commands import measure as command
from tokenwatt_site.commands import signing
from tokenwatt_site.commands.verify import verify
from tokenwatt_site.errors import EnvironmentProblem, SpecError, UsageError
from tokenwatt_site.measure.session import Events
from tokenwatt_site.model_shape.document import headers_digest
from tokenwatt_site.model_shape.folder import read_model


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(tmp_path / "keys"))
    return tmp_path


def write_spec(path, **changes):
    path.parent.mkdir(parents=True, exist_ok=True)
    # JSON is YAML.
    path.write_text(json.dumps(small_spec_dict(**changes)), encoding="utf-8")
    return path


def measured(spec, **options):
    said = []
    return command.measure_and_sign(
        spec, command.new_folder(spec), Events(lambda _: None, said.append), **options
    )


def test_the_run_file_is_named_by_its_id_and_verifies(here, lab):  # noqa: F811
    path, run = measured(small_spec())
    assert path.parent.name == run.configuration
    assert path.stem == run.run_id[:12]
    assert verify(path).run_id == run.run_id


def test_out_decides_the_place_and_evidence_lies_beside_it(here, lab):  # noqa: F811
    path, _ = measured(small_spec(), out=here / "results" / "one.json")
    assert path == here / "results" / "one.json"
    # Requests, journal, answers under load.
    assert len(list((here / "results" / "evidence").glob("*.jsonl.gz"))) == 3
    assert verify(path).key_state == "unknown"


def test_the_key_is_made_at_first_use_and_is_readable_by_the_owner_alone(here, lab):  # noqa: F811
    measured(small_spec())
    (key,) = (here / "keys").iterdir()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = key.read_bytes()
    measured(small_spec(setup__driver="other"))
    assert key.read_bytes() == before


def test_an_existing_run_file_is_never_overwritten(here, lab):  # noqa: F811
    out = here / "one.json"
    out.write_text("precious", encoding="utf-8")
    with pytest.raises(UsageError, match="is there already"):
        measured(small_spec(), out=out)
    assert out.read_text(encoding="utf-8") == "precious"
    assert lab.trials == 0


def test_a_run_file_that_appeared_in_the_meantime_is_not_overwritten(here, lab):  # noqa: F811
    out = here / "one.json"
    lab.before_trial = lambda _: out.write_text("of another", encoding="utf-8")
    with pytest.raises(EnvironmentProblem, match=r"File exists.*measure --resume"):
        measured(small_spec(), out=out)
    assert out.read_text(encoding="utf-8") == "of another"
    assert not list(here.glob(".*partial"))


def test_an_out_that_the_site_would_not_find_is_refused(here, lab):  # noqa: F811
    with pytest.raises(UsageError, match=r"a name in \.json"):
        measured(small_spec(), out=here / "results")


def test_a_place_that_cannot_be_written_is_said_before_measuring(here, lab):  # noqa: F811
    (here / "runs").write_text("a file where a folder should be", encoding="utf-8")
    with pytest.raises(EnvironmentProblem, match="is not writable"):
        measured(small_spec())
    assert lab.trials == 0


def test_a_disk_full_at_the_end_tells_how_to_go_on(here, lab, monkeypatch):  # noqa: F811
    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(signing, "store", full)
    with pytest.raises(EnvironmentProblem, match="measure --resume"):
        measured(small_spec())
    monkeypatch.undo()


def test_specs_are_looked_for_here_then_in_specs(here):
    write_spec(here / "specs" / "a.spec.yaml", label="in-specs")
    assert command.read_spec(command.Path("a.spec.yaml")).label == "in-specs"
    write_spec(here / "a.spec.yaml", label="here")
    assert command.read_spec(command.Path("a.spec.yaml")).label == "here"


def test_a_spec_that_is_nowhere_is_named(here):
    with pytest.raises(UsageError, match=r"nowhere\.spec\.yaml: there is no such spec"):
        command.read_spec(command.Path("nowhere.spec.yaml"))


def test_label_and_role_on_the_command_line_do_not_change_the_configuration(here):
    path = write_spec(here / "a.spec.yaml")
    plain = command.read_spec(path)
    other = command.read_spec(path, label="mine", role="candidate")
    assert (other.label, other.role) == ("mine", "candidate")
    assert other.configuration_id == plain.configuration_id


def test_a_label_that_is_no_label_is_refused_with_its_field(here):
    path = write_spec(here / "a.spec.yaml")
    with pytest.raises(SpecError, match="label"):
        command.read_spec(path, label="no spaces please")


def test_a_resumed_measurement_has_the_spec_it_was_begun_with(here, lab):  # noqa: F811
    spec = small_spec(label="mine")
    folder = command.new_folder(spec)
    command.measure_and_sign(spec, folder, Events(lambda _: None, lambda _: None))
    assert command.resumed_spec(folder) == spec


def test_a_finished_measurement_that_is_resumed_tells_where_its_run_is(here, lab):  # noqa: F811
    spec, said = small_spec(), []
    folder = command.new_folder(spec)
    first, _ = command.measure_and_sign(spec, folder, Events(lambda _: None, lambda _: None))
    before = first.read_bytes()
    again, _ = command.measure_and_sign(spec, folder, Events(lambda _: None, said.append))
    assert (again, again.read_bytes()) == (first, before)
    assert any("is finished, and its run was written before" in line for line in said)


@pytest.mark.parametrize("line", ["{}", "[]", '{"data": 3}', "3"])
def test_a_journal_without_a_spec_cannot_be_resumed(here, line):
    (here / "journal.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match="does not begin with a spec"):
        command.resumed_spec(here)


def test_a_wrong_workload_hash_is_named_with_its_file(here):
    workload = {"name": "demo-mix-v1", "version": 1, "hash": "0" * 64}
    path = write_spec(here / "a.spec.yaml", setup__workload=workload)
    with pytest.raises(SpecError, match=r"a\.spec\.yaml: setup\.workload\.hash"):
        command.read_spec(path)


def test_a_folder_without_a_measurement_cannot_be_resumed(here):
    with pytest.raises(UsageError, match="holds no measurement"):
        command.resumed_spec(here)


def test_a_run_file_can_be_measured_again_by_itself(here, lab):  # noqa: F811
    path, run = measured(small_spec())
    again = command.read_spec(path, label="again")
    assert again.configuration_id == run.configuration
    assert again.label == "again"


def test_a_json_file_that_is_no_run_holds_no_spec(here):
    (here / "x.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match="holds no spec"):
        command.read_spec(here / "x.json")


def model_folder(folder):
    """A model of one tensor, as its files lie on a disk."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "toy"}), encoding="utf-8")
    header = {"head": {"dtype": "BF16", "shape": [4, 2], "data_offsets": [0, 16]}}
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(16)
    (folder / "model.safetensors").write_bytes(data)
    return headers_digest(read_model(folder))


def test_a_run_with_every_kind_of_evidence_is_signed_and_verifies(here, lab):  # noqa: F811
    digest = model_folder(here / "models/toy")
    lab.meters |= {"nvml": gpu, "rapl": package}
    lab.counters = lambda: counting(lambda: llama_cpp(lab.clock.now_ns() // 10**9, running=0))
    instruments = [{"sensor": "rapl"}, {"sensor": "redfish", "url": "https://bmc/x"}]
    spec = powered(
        instruments=instruments,
        endpoint__model_files="models/toy",
        setup__model__digest=digest,
        protocol__repeats=2,
    )
    path = here / "a.spec.yaml"
    path.write_text(as_written(spec), encoding="utf-8")
    model = command.read_model_files(path, command.read_spec(path))
    out, run = measured(spec, model=model, gpus=("GPU-1",))
    assert {entry.role for entry in run.evidence} == {
        *("requests", "journal", "power", "power-beside-1", "engine", "model", "under-load")
    }
    checked = verify(out)
    assert checked.evidence.model == model
    assert [log.sensor for log in checked.evidence.beside] == ["rapl"]
    assert checked.claims.metric("board_power").value == pytest.approx(300)
    assert checked.claims.metric("tokens_per_joule").value > 0

    # The run file alone is enough to measure again, also where the folder is not.
    (here / "models").rename(here / "elsewhere")
    assert command.read_model_files(out, command.read_spec(out)) == model
    with pytest.raises(UsageError, match=r"a\.spec\.yaml: endpoint\.model_files: is not there"):
        command.read_model_files(path, command.read_spec(path))


def test_a_model_whose_files_are_not_whole_is_named_with_the_file_that_is_not(here):
    model_folder(here / "models/toy")
    whole = (here / "models/toy/model.safetensors").read_bytes()
    (here / "models/toy/model.safetensors").write_bytes(whole[:20])
    path = write_spec(here / "a.spec.yaml", endpoint__model_files="models/toy")
    told = r"a\.spec\.yaml: endpoint\.model_files: models/toy/model\.safetensors: is cut"
    with pytest.raises(UsageError, match=told):
        command.read_model_files(path, command.read_spec(path))


def test_a_spec_without_model_files_reads_none(here):
    path = write_spec(here / "a.spec.yaml")
    assert command.read_model_files(path, command.read_spec(path)) is None


def test_boards_are_named_by_uuids_with_commas():
    assert command.named_boards(None, small_spec()) == ()
    assert command.named_boards("GPU-1a, GPU-2b", powered()) == ("GPU-1a", "GPU-2b")
    beside = small_spec(instruments=[{"sensor": "nvml"}])
    assert command.named_boards("GPU-1a", beside) == ("GPU-1a",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no list of boards"),
        ("0,1", "no list of boards"),
        ("GPU-1,,GPU-2", "no list of boards"),
        ("GPU-1,GPU-1", "each once"),
    ],
)
def test_a_list_that_names_no_boards_is_refused(text, told):
    with pytest.raises(UsageError, match=told):
        command.named_boards(text, powered())


def test_boards_are_not_named_where_nothing_reads_boards():
    with pytest.raises(UsageError, match=r"found setup\.power\.sensor: none"):
        command.named_boards("GPU-1", small_spec())
