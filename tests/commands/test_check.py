"""What a spec would take, before it is measured."""

import json

import pytest

from tests.conftest import ROOT
from tests.support.runs import (
    MODES,
    RunBuilder,
    a_trace,
    answers_of,
    as_written,
    gated_spec,
    gpu_spec,
    small_spec,
    trace_spec,
)
from tests.support.safetensors_files import LLAMA
from tokenwatt_site.canonical import load_yaml
from tokenwatt_site.commands import check as module
from tokenwatt_site.commands.check import check
from tokenwatt_site.commands.outlook import outlook
from tokenwatt_site.errors import SpecError, UsageError
from tokenwatt_site.measure.accuracy.task import Question, Task
from tokenwatt_site.spec import load_spec, parse_spec
from tokenwatt_site.windows import windows_of


@pytest.fixture
def written(tmp_path):
    def write(spec):
        path = tmp_path / "a.spec.yaml"
        path.write_text(as_written(spec), encoding="utf-8")
        return path

    return write


def test_a_valid_spec_is_told_with_its_configuration_its_windows_and_whether_it_can_rank(written):
    checked = check(written(small_spec()))
    assert checked.configuration == small_spec().configuration_id
    plan, workload, windows, ranking = checked.lines
    assert plan == "demo mode, 1 repeat; `tokenwatt-site plan` tells trials, minutes and cost"
    assert workload.startswith("demo-mix-v1: 85 requests a trial, the longest prompt")
    assert windows.startswith(
        "at start_rate, 1 requests/s, a lead-in of 5 s and a window of 20 s, 20 requests scored;"
        " the rows are those of the spec"
    )
    assert ranking == (
        "a run would not be ranked: demo mode, and only full ranks; 3 fields not recorded"
    )


def test_chosen_windows_are_told_with_the_band_of_the_first_trial():
    spec = load_spec(ROOT / "specs" / "lambda-deepseek-v4.1-flash-tp4-dp1.spec.yaml")
    windows = windows_of(spec)
    text = module.windows_text(spec, windows)
    assert text.startswith("at start_rate, 3.9 requests/s, a lead-in of ")
    here = f"for the long run, here for 2 to 4 requests/s, in {len(windows.bands)} bands from"
    assert here in text


@pytest.mark.parametrize("mode", ["quick", "full"])
def test_only_a_full_spec_with_every_field_recorded_can_rank(written, mode):
    board = {"memory_gib": 8, "rated_bandwidth_gb_s": 20.0, "power_limit_w": 65.0}
    board = {"model": "CPU", "count": 1} | board
    changes = {f"protocol__{key}": value for key, value in MODES[mode].items()}
    ranking = check(written(small_spec(setup__accelerator=board, **changes))).lines[3]
    assert ranking.startswith("a run can be ranked") == (mode == "full")


def test_several_repeats_are_counted(written):
    protocol = {f"protocol__{key}": value for key, value in MODES["full"].items()}
    assert check(written(small_spec(**protocol))).lines[0].startswith("full mode, 3 repeats;")


@pytest.mark.parametrize(("rows", "enough"), [(100, "1 repeat"), (180, "2 repeats")])
def test_a_trace_is_told_with_the_repeats_that_it_is_enough_for(written, tmp_path, rows, enough):
    trace = a_trace(rows)
    (tmp_path / "toy-trace.jsonl").write_bytes(trace.data)
    lines = check(written(trace_spec(trace))).lines
    assert lines[1].endswith(f"the trace has {rows} rows, enough for {enough}")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"setup__parallelism__prefill_decode_split": "not recorded"}, ["split: not recorded"]),
        ({"setup__quantization__kv_cache": "not recorded"}, ["kv_cache: not recorded"]),
        ({"setup__parallelism__tensor": 1}, ["how 2 boards hold replicas: 1, tensor: 1"]),
    ],
)
def test_what_keeps_bandwidth_from_being_modelled_is_told_before_the_run(
    written, tmp_path, monkeypatch, changed, said
):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps(LLAMA), "utf-8")
    monkeypatch.chdir(tmp_path)
    modelled = {"setup__quantization__kv_cache": "bf16", "setup__parallelism__tensor": 2}
    spec = gpu_spec(**{"endpoint__model_files": "m", **modelled, **changed})
    more = check(written(spec)).lines[4:]
    for line, words in zip(more, said, strict=True):
        assert line.startswith("bandwidth will not be modelled: ")
        assert words in line


def test_a_trace_that_is_not_there_is_no_valid_spec(written):
    with pytest.raises(UsageError):
        check(written(trace_spec(a_trace(100))))


@pytest.fixture
def planned(monkeypatch, tmp_path):
    """The task that `gated_spec` asks, in the place of the harness; in an empty folder."""
    gate = gated_spec().setup.accuracy_gate
    questions = tuple(Question(n, "0" * 64, "1 + 1 =", "1" * 64) for n in range(gate.questions))
    task = Task(gate.task, gate.shots, gate.asked, "generate", questions)
    monkeypatch.setattr(module, "plan_gate", lambda *_: task)
    monkeypatch.chdir(tmp_path)
    return task


def test_what_a_gate_asks_is_printed_as_the_lines_that_a_spec_lacks(written, planned):
    value = gated_spec().to_json()
    del value["setup"]["accuracy_gate"]["asked"]
    checked = check(written(parse_spec(value, source="test")))
    assert checked.configuration == gated_spec().configuration_id
    gate = f"accuracy_gate:\n    task: sums\n{checked.missing}\n".encode()
    lines, _ = load_yaml(gate, source="test")
    assert lines["accuracy_gate"] == {"task": "sums", "asked": planned.asked.to_json()}


def test_a_gate_is_told_with_what_it_can_settle_and_what_it_is_compared_with(written, planned):
    spec = gated_spec(role="candidate", max_drop_points=10.0)
    alone = check(written(spec))
    assert alone.missing == ""
    assert alone.configuration == spec.configuration_id
    assert alone.lines[4:6] == tuple(f"gate sums-0shot: {line}" for line in outlook(20, 10.0))
    assert alone.lines[6].startswith("gate sums-0shot: no run under runs is a baseline")
    baseline = gated_spec()
    log = answers_of(baseline, [n < 15 for n in range(20)])
    RunBuilder(spec=baseline, simulated=False, accuracy=log).write(module.RUNS_FOLDER / "a")
    assert (
        f"of {baseline.configuration_id}: 15 of 20 right (75.0%)" in check(written(spec)).lines[6]
    )
    assert check(written(baseline)).lines[6].endswith("a baseline: others are compared with it")


def test_a_gate_that_asks_something_else_than_the_harness_makes_is_no_valid_spec(written, planned):
    spec = gated_spec(setup__accuracy_gate__asked__max_tokens=63)
    with pytest.raises(SpecError, match=r"setup\.accuracy_gate\.asked"):
        check(written(spec))
