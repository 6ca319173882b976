"""The command line: what goes where, and with which exit code."""

import json
import re

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from tests.conftest import ROOT
from tests.measure.test_begun import gpu, powered
from tests.measure.test_session import Lab, interrupt, lab  # noqa: F401  # a fixture
from tests.support.runs import (
    RunBuilder,
    a_key,
    a_trace,
    as_written,
    conversation_spec,
    small_spec_dict,
    trace_spec,
)
from tests.support.statements import state
from tests.support.tokenizer_files import metaspace
from tokenwatt_site import __version__, cli
from tokenwatt_site.canonical import load_yaml
from tokenwatt_site.commands.check import Checked
from tokenwatt_site.measure.fleet.coordinator import Fleet
from tokenwatt_site.prompts import COMMON_WORDS

runner = CliRunner()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(tmp_path / "keys"))
    (tmp_path / "a.spec.yaml").write_text(json.dumps(small_spec_dict()), encoding="utf-8")
    return tmp_path


def call(*words, app=cli.app):
    return runner.invoke(app, [str(word) for word in words])


def test_measure_prints_the_run_file_and_nothing_else_on_standard_output(here, lab):  # noqa: F811
    done = call("measure", "--spec", "a.spec.yaml")
    assert done.exit_code == 0, done.stderr
    (path,) = (here / "runs").glob("*/*.json")
    assert done.stdout == f"{path.relative_to(here)}\n"
    assert "SLO goodput" in done.stderr


def test_workers_are_processes_that_send_and_the_run_says_how_many(here, lab):  # noqa: F811
    lab.several = ((20_000, 30_000), None)
    done = call("measure", "--spec", "a.spec.yaml", "--workers", 2)
    assert done.exit_code == 0, done.stderr
    assert isinstance(lab.client.__self__, Fleet)
    (path,) = (here / "runs").glob("*/*.json")
    assert json.loads(path.read_bytes())["conditions"]["workers"] == 2
    assert call("measure", "--spec", "a.spec.yaml", "--workers", 0).exit_code == 2


def test_a_budget_that_holds_no_repeat_ends_before_the_launch(here, lab):  # noqa: F811
    # The first repeat takes 45 s at least, with a launch and its trials.
    spent = call("measure", "--spec", "a.spec.yaml", "--budget", "1m")
    assert spent.exit_code == 0, spent.stderr
    (here / "a.spec.yaml").write_text(
        json.dumps(small_spec_dict(protocol__scored=200)), encoding="utf-8"
    )
    spent = call("measure", "--spec", "a.spec.yaml", "--budget", "1m")
    assert spent.exit_code == 130
    assert "the budget of 1 min has no time left for repeat 1" in spent.stderr
    assert lab.launches == 1
    refused = call("measure", "--spec", "a.spec.yaml", "--budget", "soon")
    assert refused.exit_code == 2
    assert "--budget" in refused.stderr


def test_the_short_command_takes_the_reproduce_lines_of_the_example(here, lab):  # noqa: F811
    run = call(
        *("run", "--spec", "a.spec.yaml", "--label", "x-1", "--role", "baseline"),
        *("--out", "runs/x-1.json"),
        app=cli.short_app,
    )
    assert run.exit_code == 0, run.stderr
    assert json.loads((here / "runs/x-1.json").read_bytes())["spec"]["role"] == "baseline"
    report = call("report", "runs/x-1.json", "--title", "A & B", app=cli.short_app)
    assert report.exit_code == 0, report.stderr
    assert "A &amp; B" in (here / report.stdout.strip()).read_text(encoding="utf-8")


def test_boards_are_named_once_and_not_again_when_a_measurement_goes_on(here, lab):  # noqa: F811
    (here / "a.spec.yaml").write_text(as_written(powered()), encoding="utf-8")
    lab.meters["nvml"] = gpu
    lab.before_trial = interrupt(2)
    broken = call("measure", "--spec", "a.spec.yaml", "--gpus", "GPU-1")
    assert broken.exit_code == 130, broken.stderr
    (folder,) = (here / ".tokenwatt").iterdir()
    lab.before_trial = lambda _: None
    again = call("measure", "--resume", folder, "--gpus", "GPU-1")
    assert again.exit_code == 2
    assert "leave them out" in again.stderr
    done = call("measure", "--resume", folder)
    assert done.exit_code == 0, done.stderr
    run = json.loads((here / done.stdout.strip()).read_bytes())
    assert run["conditions"]["board_uuids"] == ["GPU-1"]


def test_boards_that_nothing_reads_are_refused(here, lab):  # noqa: F811
    done = call("measure", "--spec", "a.spec.yaml", "--gpus", "GPU-1")
    assert done.exit_code == 2
    assert "no instrument of the spec reads boards" in done.stderr
    assert lab.launches == 0


def test_files_of_a_model_that_are_not_there_are_said_before_anything_is_started(
    here,
    lab,  # noqa: F811
):
    spec = small_spec_dict(endpoint__model_files="models/toy")
    (here / "a.spec.yaml").write_text(json.dumps(spec), encoding="utf-8")
    done = call("measure", "--spec", "a.spec.yaml")
    assert done.exit_code == 2
    assert "endpoint.model_files: is not there; found models/toy" in done.stderr
    assert lab.launches == 0


def test_verify_says_what_it_checked_and_who_signed(here):
    path = RunBuilder().write(here / "runs")
    done = call("verify", path)
    assert done.exit_code == 0
    assert "verified" in done.stdout
    assert "unknown key" in done.stdout


def test_c2_verify_looks_at_every_file_and_exits_with_6_when_one_fails(here):
    good = RunBuilder().write(here / "runs")
    bad = here / "runs" / "cut.json"
    bad.write_bytes(good.read_bytes()[: good.stat().st_size // 2])
    done = call("verify", bad, good)
    assert done.exit_code == 6
    assert "NOT VERIFIED" in done.stderr
    assert "check 2" in done.stderr
    assert str(good) in done.stdout


def test_verify_tells_what_is_stated_and_whether_it_counts(here):
    path = RunBuilder().write(here / "runs")
    state(path, "withdrawn", a_key())
    state(path, "disputed", a_key(9))
    done = call("verify", path)
    assert done.exit_code == 0
    verified, withdrawn, disputed = done.stdout.splitlines()
    assert verified.startswith(f"{path}: verified")
    assert withdrawn.startswith("  2026-02-01 10:00 withdrawn by unknown key ed25519:")
    assert withdrawn.endswith(": the driver was another one")
    assert disputed.endswith(
        ": too fast for its clocks (changes nothing: its key is not registered)"
    )


def test_statements_that_are_not_valid_fail_beside_a_run_that_is_verified(here):
    path = RunBuilder().write(here / "runs")
    path.with_name("run.att.jsonl").write_bytes(b"garbage\n")
    done = call("verify", path)
    assert done.exit_code == 6
    assert "verified" in done.stdout
    assert "run.att.jsonl: NOT VERIFIED, and what is wrong in it is left out" in done.stderr
    assert "run.att.jsonl:1: is no statement, or was cut" in done.stderr


def test_attest_prints_the_file_of_the_statements_and_says_what_they_need(here):
    path = RunBuilder().write(here / "runs")
    done = call("attest", "disputed", path, "--reason", "too fast")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == f"{path.with_name('run.att.jsonl')}\n"
    assert "is not registered" in done.stderr
    assert "disputed by unknown key" in call("verify", path).stdout
    again = call("attest", "withdrawn", path, "--reason", "not mine")
    assert again.exit_code == 2
    assert "only the run's own key" in again.stderr
    assert call("attest", "liked", path).exit_code == 2


def test_verify_tells_a_quoted_publication_from_a_run(here):
    record = ROOT / "runs/published/deepseek-v4.1-flash-4x-h200-quick.json"
    done = call("verify", record)
    assert done.exit_code == 0
    assert "quoted as published, nothing to recompute" in done.stdout


CODES = {
    "no such spec": (("measure", "--spec", "none.yaml"), 2),
    "neither spec nor resume": (("measure",), 2),
    "resume with a label": (("measure", "--resume", ".", "--label", "x"), 2),
    "nothing to resume": (("measure", "--resume", "."), 2),
    "unknown option": (("measure", "--fast"), 2),
    "no engine": (("init", "--url", "http://127.0.0.1:9"), 3),
    "no board of that name": (("init", "--url", "http://127.0.0.1:9", "--gpus", ","), 2),
    "no spec to look at": (("doctor", "none.yaml"), 2),
    "no file to verify": (("verify", "none.json"), 6),
    "demo outside a checkout": (("demo",), 2),
}


@pytest.mark.parametrize("case", CODES)
def test_c7_every_kind_of_failure_has_its_exit_code_and_no_traceback(case, here):
    words, code = CODES[case]
    done = call(*words)
    assert done.exit_code == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_spec_check_names_the_configuration(here):
    done = call("spec", "check", "a.spec.yaml")
    assert done.exit_code == 0
    assert "valid, configuration toy-135m-cpu-toy-" in done.stdout


def test_spec_schema_takes_the_shipped_specs_and_refuses_what_is_none():
    done = call("spec", "schema")
    validator = Draft202012Validator(json.loads(done.stdout))
    validator.check_schema(validator.schema)
    for path in sorted((ROOT / "specs").glob("*.spec.yaml")):
        value, _ = load_yaml(path.read_bytes(), source=str(path))
        validator.validate(value)
        setup = value["setup"]
        for wrong in (
            value | {"titel": "x"},
            value | {"setup": setup | {"arrival": "uniform"}},
            value | {"protocol": value["protocol"] | {"repeats": 0}},
            {name: item for name, item in value.items() if name != "label"},
        ):
            assert not validator.is_valid(wrong)


def test_spec_check_prints_the_lines_that_a_gate_lacks_and_nothing_else_beside_the_name(
    here, monkeypatch
):
    lacking = Checked("toy-0", ("gate sums: so many questions",), "    asked:\n      api: chat")
    monkeypatch.setattr(cli.check_command, "check", lambda _: lacking)
    done = call("spec", "check", "a.spec.yaml")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ("a.spec.yaml: valid, configuration toy-0\n    asked:\n      api: chat\n")
    assert "write below it" in done.stderr


def test_spec_trace_prints_the_lines_of_a_spec_and_tells_the_rest_apart(here):
    (here / "source").write_bytes(a_trace(200).data)
    done = call("spec", "trace", "source", "--out", "toy-trace.jsonl")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(
        "trace: toy-trace.jsonl\nsetup:\n  workload:\n    name: toy-trace"
    )
    assert "200 rows, 98.0 s, 2.031 requests/s" in done.stderr
    assert call("spec", "trace", "source", "--out", "toy-trace.jsonl").exit_code == 2


def test_spec_check_tells_how_many_repeats_a_trace_holds_and_what_a_conversation_asks(here):
    (here / "toy-trace.jsonl").write_bytes(a_trace(200).data)
    for name, spec in (
        ("t.spec.yaml", trace_spec(a_trace(200))),
        ("c.spec.yaml", conversation_spec(3, 4, 24)),
        ("r.spec.yaml", trace_spec(a_trace(200), protocol__repeats=3)),
    ):
        (here / name).write_text(as_written(spec), encoding="utf-8")
    done = call("spec", "check", "t.spec.yaml", "c.spec.yaml")
    assert done.exit_code == 0, done.stderr
    assert "85 requests a trial" in done.stderr
    assert "the trace has 200 rows, enough for 2 repeats" in done.stderr
    assert "the longest prompt 408 tokens" in done.stderr
    assert "3 turns, 4 requests apart" in done.stderr
    short = call("spec", "check", "r.spec.yaml")
    assert short.exit_code == 2
    assert "enough for 2 of the repeats, 85 rows each" in short.stderr


def test_a_trace_is_measured_by_the_command_and_again_by_its_run_file(here, lab):  # noqa: F811
    (here / "toy-trace.jsonl").write_bytes(a_trace(200).data)
    (here / "t.spec.yaml").write_text(as_written(trace_spec(a_trace(200))), encoding="utf-8")
    done = call("measure", "--spec", "t.spec.yaml", "--out", "runs/one.json")
    assert done.exit_code == 0, done.stderr
    (here / "toy-trace.jsonl").unlink()
    again = call("measure", "--spec", "runs/one.json", "--out", "runs/two.json")
    assert again.exit_code == 0, again.stderr
    assert call("verify", "runs/one.json", "runs/two.json").exit_code == 0


def test_spec_check_names_file_field_found_and_expected(here):
    spec = small_spec_dict(setup__accelerator__count=-1)
    (here / "b.spec.yaml").write_text(json.dumps(spec), encoding="utf-8")
    done = call("spec", "check", "b.spec.yaml")
    assert done.exit_code == 2
    for part in ("b.spec.yaml:1", "setup.accelerator.count", "found -1", "greater than or equal"):
        assert part in done.stderr


def test_spec_check_reads_the_tokenizer_that_a_spec_names(here):
    spec = small_spec_dict(endpoint__api="chat", endpoint__tokenizer="m/tokenizer.json")
    (here / "b.spec.yaml").write_text(json.dumps(spec), encoding="utf-8")
    absent = call("spec", "check", "b.spec.yaml")
    (here / "m").mkdir()
    (here / "m/tokenizer.json").write_text(metaspace(("one", "two")), encoding="utf-8")
    small = call("spec", "check", "b.spec.yaml")
    (here / "m/tokenizer.json").write_text(metaspace(COMMON_WORDS), encoding="utf-8")
    assert (absent.exit_code, small.exit_code) == (2, 2)
    assert "m/tokenizer.json: endpoint.tokenizer: cannot be read" in absent.stderr
    assert "m/tokenizer.json: too few words are one token each; found" in small.stderr
    assert call("spec", "check", "b.spec.yaml").exit_code == 0


def test_c2_spec_check_looks_at_every_file(here):
    (here / "bad.yaml").write_text("title: 3\n", encoding="utf-8")
    done = call("spec", "check", "bad.yaml", "a.spec.yaml", "none.yaml")
    assert done.exit_code == 2
    assert "a.spec.yaml: valid" in done.stdout
    assert "bad.yaml" in done.stderr
    assert "none.yaml" in done.stderr


def test_a_report_never_replaces_a_run(here):
    path = RunBuilder().write(here / "runs")
    before = path.read_bytes()
    assert call("report", path, "--out", path).exit_code == 2
    assert path.read_bytes() == before
    assert call("report", path, "--title", "a\u202eb").exit_code == 2
    assert call("report", path, "--title", "").exit_code == 2


def test_the_version_is_told(here):
    assert call("--version").stdout.strip() == __version__


def test_a_summary_has_units(here, lab):  # noqa: F811
    done = call("measure", "--spec", "a.spec.yaml")
    assert re.search(r"TTFT p90: [\d.,]+ ms", done.stderr)
    assert "Tokens per joule: no number (" in done.stderr


def test_an_interrupt_exits_with_130_and_says_how_to_go_on(here, lab):  # noqa: F811
    def interrupt(number):
        if number == 2:
            raise KeyboardInterrupt

    lab.before_trial = interrupt
    done = call("measure", "--spec", "a.spec.yaml")
    assert done.exit_code == 130
    (work,) = (here / ".tokenwatt").iterdir()
    assert f"measure --resume {work.relative_to(here)}" in done.stderr
    assert call("verify", work / "run.json").exit_code == 0
    lab.before_trial = lambda _: None
    again = call("measure", "--resume", work.relative_to(here))
    assert again.exit_code == 0, again.stderr


def test_a_run_that_was_interrupted_says_so_in_its_file(here, lab):  # noqa: F811
    lab.before_trial = _interrupt_third
    call("measure", "--spec", "a.spec.yaml")
    (run,) = (here / ".tokenwatt").glob("*/run.json")
    document = json.loads(run.read_bytes())
    assert document["status"] == "interrupted"
    assert len(document["claims"]["trials"]) == 2


def _interrupt_third(number):
    if number == 3:
        raise KeyboardInterrupt
