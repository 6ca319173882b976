"""Measuring somebody's run again: what is shown, started, compared and stated."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tests.commands.test_published import site
from tests.measure.test_begun import gpu, powered
from tests.measure.test_session import Lab, interrupt, lab  # noqa: F401  # a fixture
from tests.support.runs import (
    RunBuilder,
    ToyEngine,
    a_key,
    a_trace,
    gpu_spec,
    keyring_of,
    played_power,
    trace_spec,
)
from tests.support.runs import small_spec as spec_of
from tokenwatt_site import cli
from tokenwatt_site.commands import own_spec as own_module
from tokenwatt_site.commands.own_spec import Own, own_spec
from tokenwatt_site.commands.verify import verify
from tokenwatt_site.configuration import group
from tokenwatt_site.errors import SpecError, UsageError
from tokenwatt_site.evidence.power import Board
from tokenwatt_site.lengths import Fixed
from tokenwatt_site.measure import session
from tokenwatt_site.measure.endpoint import EngineFacts
from tokenwatt_site.pages import facts
from tokenwatt_site.trust import statement
from tokenwatt_site.trust.beside import append, path_beside
from tokenwatt_site.trust.keyring import own_key
from tokenwatt_site.trust.verify import read_tree
from tokenwatt_site.workload import Workload

runner = CliRunner()
HOST = ("--host-kind", "test machine")
LIKE = {"protocol__repeats": 3, "setup__host_kind": "test machine"}


def small_spec(**changes):
    return spec_of(**{**LIKE, **changes})


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(tmp_path / "keys"))
    return tmp_path


def call(*words, **options):
    return runner.invoke(cli.app, [str(word) for word in words], **options)


def published(folder, name="original.json", **builder):
    """A run of somebody else."""
    values = {"spec": small_spec(), "simulated": False, "key": a_key(7)}
    return RunBuilder(**values | builder).write(folder, name)


def stated(path):
    return statement.parse(path.read_bytes(), str(path))


def test_a_run_is_verified_measured_again_compared_and_stated_beside_the_original(
    here,
    lab,  # noqa: F811
):
    original = published(here / "theirs")
    done = call("reproduce", original, "--yes", *HOST)
    outcome, run, statements = done.stdout.splitlines()
    assert done.exit_code == {"reproduced": 0, "inconclusive": 10}[outcome.partition(":")[0]]
    again, first = verify(here / run), verify(original)
    assert again.run.configuration == first.run.configuration
    assert statements == str(original.with_suffix(".att.jsonl"))
    signed = stated(original.with_suffix(".att.jsonl"))
    assert (signed.kind, signed.run_id, signed.keyid) == ("reproduced", first.run_id, again.keyid)
    assert signed.said.run == again.run_id
    assert signed.said.outcome == outcome.partition(":")[0]
    assert "SLO goodput is " in outcome
    for part in (
        f"run {first.run_id[:12]} of {first.run.configuration}",
        "toy-cpu: demo mode, 3 repeats",
        "in all",
        "the original took",
        "it starts on this machine: '{python}' -m toy --port '{port}'",
        "gives no badge, since the original records no UUID of a board",
    ):
        assert part in done.stderr


def of_fixed_lengths(make=small_spec):
    """A spec whose goodput is the boundary alone: every answer has as many tokens."""
    prompts, answers = (Fixed(kind="fixed", tokens=count) for count in (64, 20))
    workload = Workload("all-alike", 1, prompts, answers)
    return make(
        setup__workload={"name": workload.name, "version": 1, "hash": workload.hash},
        setup__input_tokens=prompts.to_json(),
        setup__output_tokens=answers.to_json(),
        **LIKE,
    )


class SharpEngine(ToyEngine):
    """Answers at once up to a rate, and too late beyond it, whatever the rows are."""

    def serve(self, realisation, rate_urps, *, repeat, trial):
        late_ns = 100_000_000 if rate_urps <= self.slots else 5_000_000_000
        engine = ToyEngine(slots=1000, prefill_ns=late_ns, step_ns=20_000_000)
        return engine.serve(realisation, rate_urps, repeat=repeat, trial=trial)


def at_boundary(urps):
    """What a run tells of whose repeats all have the same boundary."""
    return {"engine": SharpEngine(slots=urps), "rates_urps": (urps, round(urps * 1.1))}


@pytest.mark.parametrize(
    ("faster", "outcome", "code"),
    [(1.01, "reproduced", 0), (1.05, "contradicted", 11), (0.9, "contradicted", 11)],
)
def test_each_outcome_has_its_exit_code_and_its_statement(here, faster, outcome, code):
    spec, key = of_fixed_lengths(), own_key(here / "keys")
    original = published(here / "theirs", spec=spec, **at_boundary(2_000_000))
    own = at_boundary(round(faster * 2_000_000))
    again = published(here / "ours", spec=spec, key=key, **own)
    done = call("reproduce", original, "--measured", again)
    assert done.exit_code == code, done.stderr
    assert done.stdout.startswith(f"{outcome}: SLO goodput is {faster:.3f} of the original's")
    assert stated(original.with_suffix(".att.jsonl")).said.outcome == outcome


def on_boards(folder, name, key, *uuids, day=1):
    """A run on two boards of these UUIDs."""
    spec = of_fixed_lengths(gpu_spec)
    made = RunBuilder(spec=spec, simulated=False, key=key, day=day, **at_boundary(2_000_000))
    boards = tuple(Board(uuid=uuid, name="Toy GPU", limit_mw=400_000) for uuid in uuids)
    return replace(made, power=replace(played_power(made), boards=boards)).write(folder, name)


@pytest.mark.parametrize(
    ("boards", "badge"),
    [(("GPU-3", "GPU-4"), "Reproduced 1× by others"), (("GPU-2", "GPU-3"), "Rerun under 1")],
)
def test_f22_a_reproduction_by_others_is_on_the_original_s_page_and_one_on_its_board_is_not(
    here, boards, badge
):
    theirs, ours = a_key(7), own_key(here / "keys")
    keyring = keyring_of(here / "registered", theirs, ours)
    original = on_boards(here / "runs", "theirs.json", theirs, "GPU-1", "GPU-2")
    again = on_boards(here / "runs", "ours.json", ours, *boards, day=2)
    done = call("reproduce", original, "--measured", again)
    assert done.exit_code == 0, done.stderr
    tree = read_tree(here / "runs", keyring)
    assert tree.refused == ()
    (configuration,) = group(tree.valid)
    assert configuration.headline.path == original
    told = {fact.id: fact.label for fact in facts.facts(configuration)}
    assert told["reproduced"].startswith(badge)
    assert ("ratio 1.000 [1.000, 1.000]" in told["reproduced"]) == badge.startswith("Reproduced")
    assert ("gives no badge, since both ran on gpu-2" in done.stderr) == badge.startswith("Rerun")


def test_too_few_launches_are_told_before_and_are_inconclusive(here, lab):  # noqa: F811
    original = published(here / "theirs", spec=small_spec(protocol__repeats=1))
    done = call("reproduce", original, "--yes", *HOST)
    assert done.exit_code == 10
    assert "nothing can come out but inconclusive" in done.stderr
    assert "from 1 against 1 launches" in done.stdout


def test_nothing_is_started_before_somebody_agrees(here, lab):  # noqa: F811
    original = published(here / "theirs")
    for answer in ("", "n\n"):
        done = call("reproduce", original, input=answer)
        assert done.exit_code == 2
        assert "nothing was started" in done.stderr
        assert "it starts on this machine" in done.stderr
    assert lab.launches == 0
    assert not (here / "runs").exists()


def test_a_run_that_does_not_verify_is_not_measured_again(here, lab):  # noqa: F811
    original = published(here / "theirs")
    original.write_bytes(original.read_bytes().replace(b'"toy-135m"', b'"toy-136m"'))
    done = call("reproduce", original, "--yes", *HOST)
    assert (done.exit_code, lab.launches) == (6, 0)
    assert "check 4" in done.stderr


def test_f15_the_command_that_a_run_would_start_is_shown_quoted(here, lab):  # noqa: F811
    argv = ["{python}", "-c", "$(rm -rf ~); `id`", "{port}"]
    environment = {"A": "x; y"}
    spec = small_spec(setup__engine__argv=argv, setup__engine__environment=environment)
    done = call("reproduce", published(here / "theirs", spec=spec))
    assert "starts on this machine: 'A=x; y' '{python}' -c '$(rm -rf ~); `id`' '{port}'" in (
        done.stderr
    )
    assert lab.launches == 0


def test_the_statement_about_a_run_of_another_site_lies_beside_the_own_run(here, lab):  # noqa: F811
    published(here / "site", "run.json")
    with site(here / "site") as address:
        done = call("reproduce", f"{address}/run.json", "--yes", *HOST, "--out", "out/again.json")
    assert done.exit_code in {0, 10}, done.stderr
    _, run, statements = done.stdout.splitlines()
    first = verify(here / "site/run.json")
    assert (run, statements) == ("out/again.json", "out/again.statement.jsonl")
    assert stated(here / statements).run_id == first.run_id
    assert not (here / "site/run.att.jsonl").exists()
    assert "send its publisher out/again.json" in done.stderr


def test_a_trace_comes_with_the_run(here, lab):  # noqa: F811
    spec = trace_spec(a_trace(200), setup__host_kind="test machine")
    original = published(here / "theirs", spec=spec, trace=a_trace(200))
    done = call("reproduce", original, "--yes", *HOST)
    assert done.exit_code == 10, done.stderr
    assert verify(here / done.stdout.splitlines()[1]).evidence.trace == a_trace(200)


def test_another_setup_by_its_read_back_is_not_comparable_and_every_field_is_listed(
    here,
    lab,  # noqa: F811
    monkeypatch,
):
    facts = EngineFacts("toy", "2.0", "other", ("toy-135m",), 4096, 32000, None)
    monkeypatch.setattr(session, "read_back_all", lambda *_: (facts,))
    original = published(here / "theirs")
    done = call("reproduce", original, "--yes", *HOST)
    assert done.exit_code == 12
    assert "setup.engine.version: is not what runs there; found 2.0 (observed)" in done.stderr
    assert "setup.engine.build: is not what runs there" in done.stderr
    assert done.stdout == ""
    assert not original.with_suffix(".att.jsonl").exists()


def test_an_own_run_that_is_there_is_compared_without_measuring(here, lab):  # noqa: F811
    original = published(here / "theirs")
    own = own_key(here / "keys")
    again = published(here / "ours", "mine.json", key=own, day=2)
    done = call("reproduce", original, "--measured", again)
    assert done.exit_code in {0, 10}, done.stderr
    assert lab.launches == 0
    statements = original.with_suffix(".att.jsonl")
    assert stated(statements).said.run == verify(again).run_id
    once_more = call("reproduce", original, "--measured", again)
    assert (once_more.exit_code, once_more.stdout) == (done.exit_code, done.stdout)
    assert stated(statements)


def test_an_own_run_of_another_setup_is_not_comparable(here):
    other = small_spec(setup__engine__version="1.1", setup__driver="other")
    again = published(here / "ours", spec=other, key=own_key(here / "keys"))
    done = call("reproduce", published(here / "theirs"), "--measured", again)
    assert done.exit_code == 12
    assert "setup.engine.version: differs" in done.stderr
    assert "found '1.1'; expected '1.0'" in done.stderr
    assert "setup.driver" not in done.stderr


def test_f22_nobody_states_what_came_out_of_somebody_else_s_run(here):
    own_key(here / "keys")
    original = published(here / "theirs")
    again = published(here / "others", key=a_key(8))
    done = call("reproduce", original, "--measured", again)
    assert done.exit_code == 2
    assert "is not your run" in done.stderr
    assert not original.with_suffix(".att.jsonl").exists()


def test_f22_a_run_of_the_own_key_is_told_to_give_no_badge_before_and_after(here, lab):  # noqa: F811
    original = published(here / "ours", key=own_key(here / "keys"))
    done = call("reproduce", original, "--yes", *HOST)
    assert done.exit_code in {0, 10}, done.stderr
    assert "the original is signed with your own key" in done.stderr
    assert "gives no badge, since both are signed with the same key" in done.stderr


def test_what_was_broken_off_tells_how_it_is_compared_when_it_is_done(here, lab):  # noqa: F811
    lab.before_trial = interrupt(3)
    done = call("reproduce", published(here / "theirs"), "--yes", *HOST)
    assert done.exit_code == 130
    assert "measure --resume .tokenwatt/" in done.stderr
    assert "reproduce theirs/original.json --measured RUN.json" not in done.stderr
    assert f"reproduce {here}/theirs/original.json --measured RUN.json" in done.stderr


def test_what_is_stated_about_the_original_is_told_before(here):
    original = published(here / "theirs")
    run_id, said = verify(original).run_id, {"reason": "The clocks were locked."}
    line = statement.sign("withdrawn", run_id, said, a_key(7), "2026-02-01T00:00:00Z")
    append(path_beside(original), line)
    done = call("reproduce", original)
    assert "withdrawn by unknown key" in done.stderr
    assert "The clocks were locked." in done.stderr


def test_driver_and_host_are_those_of_this_machine_and_listed(here, lab):  # noqa: F811
    spec = small_spec(setup__host_kind="elsewhere")
    done = call("reproduce", published(here / "theirs", spec=spec), "--yes")
    assert done.exit_code in {0, 10}, done.stderr
    listed = "setup.host_kind: 'not recorded' here, 'elsewhere' in the original"
    assert done.stderr.count(f"differs, as it may: {listed}") == 2
    run = json.loads((here / done.stdout.splitlines()[1]).read_bytes())
    assert run["spec"]["setup"]["host_kind"] == "not recorded"


def no_answer(_question):
    return ""


HOSTILE = {
    "endpoint__start": "attach",
    "endpoint__url": "https://theirs.example.org",
    "endpoint__api_key_variable": "HOME",
    "endpoint__restart": ["sh", "-c", "echo"],
    "instruments": [{"sensor": "dcgm", "url": "http://10.0.0.1:9400/metrics"}],
    "note": "theirs",
}


def test_no_address_variable_or_command_of_another_s_endpoint_is_taken_over():
    own = own_spec(spec_of(**HOSTILE), Own(url="http://127.0.0.1:8000/"), no_answer)
    assert own.endpoint.url == "http://127.0.0.1:8000"
    assert own.endpoint.api_key_variable is None
    assert own.endpoint.restart is None
    assert own.instruments == ()
    assert own.note == ""
    with_key = Own(url="http://127.0.0.1:8000", api_key_variable="OUR_KEY")
    assert own_spec(spec_of(**HOSTILE), with_key, no_answer).endpoint.api_key_variable == "OUR_KEY"


def test_an_engine_that_ran_already_needs_the_address_of_one_here():
    with pytest.raises(UsageError, match="give the address with --url"):
        own_spec(spec_of(**HOSTILE), Own(), no_answer)
    with pytest.raises(SpecError, match="url"):
        own_spec(spec_of(**HOSTILE), Own(url="nowhere"), no_answer)


def test_power_that_is_read_over_the_network_is_measured_with_instruments_of_one_s_own():
    power = {"sensor": "dcgm", "scope": "gpu", "rate_hz": 1}
    spec = spec_of(**{**HOSTILE, "setup__power": power})
    with pytest.raises(UsageError, match="compare with --measured"):
        own_spec(spec, Own(url="http://127.0.0.1:8000"), no_answer)


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ("CUDA 12.8 / 570.86.15", "CUDA 12.8 / 570.86.15"),
        ("570.86.15", "570.86.15"),
        ("CUDA 12.8 / 570.86.1", "570.86.15"),
        ("not recorded", "570.86.15"),
    ],
)
def test_the_driver_is_told_as_the_original_does_where_it_is_the_same(
    lab,  # noqa: F811
    monkeypatch,
    declared,
    found,
):
    meter = gpu()
    monkeypatch.setattr(type(meter), "driver", "570.86.15")
    lab.meters["nvml"] = meter
    monkeypatch.setattr(own_module, "open_meters", lab.open_meters)
    own = own_spec(powered(setup__driver=declared), Own(host_kind="here"), no_answer)
    assert own.setup.driver == found
    assert own.setup.host_kind == "here"


def test_a_driver_that_nothing_tells_is_what_the_user_says_or_not_recorded(
    lab,  # noqa: F811
    monkeypatch,
):
    monkeypatch.setattr(own_module, "open_meters", lab.open_meters)
    spec = powered(setup__driver="570")
    assert own_spec(spec, Own(), no_answer).setup.driver == "not recorded"
    assert own_spec(spec, Own(driver="580"), no_answer).setup.driver == "580"


def test_the_kind_of_host_is_asked_for(here):
    asked = []

    def answer(question):
        asked.append(question)
        return " a rack "

    own = own_spec(spec_of(), Own(), answer)
    assert own.setup.host_kind == "a rack"
    assert "test machine in the original" in asked[0]
