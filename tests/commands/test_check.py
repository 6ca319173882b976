"""What a spec would take, before it is measured."""

import json

import pytest

from tests.support.runs import MODES, a_trace, as_written, gpu_spec, small_spec, trace_spec
from tests.support.safetensors_files import LLAMA
from tokenwatt_site.commands.check import check
from tokenwatt_site.errors import UsageError


@pytest.fixture
def written(tmp_path):
    def write(spec):
        path = tmp_path / "a.spec.yaml"
        path.write_text(as_written(spec), encoding="utf-8")
        return path

    return write


def test_a_valid_spec_is_told_with_its_configuration_and_the_time_of_a_trial(written):
    checked = check(written(small_spec()))
    assert checked.configuration == small_spec().configuration_id
    plan, workload = checked.lines
    assert plan.startswith("demo mode, 1 repeat; a trial at start_rate takes about 0.4 minutes")
    assert plan.endswith("3 fields not recorded")
    assert workload.startswith("demo-mix-v1: 85 requests a trial, the longest prompt")


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
    more = check(written(spec)).lines[2:]
    for line, words in zip(more, said, strict=True):
        assert line.startswith("bandwidth will not be modelled: ")
        assert words in line


def test_a_trace_that_is_not_there_is_no_valid_spec(written):
    with pytest.raises(UsageError):
        check(written(trace_spec(a_trace(100))))
