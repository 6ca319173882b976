"""What a spec would take, before it is measured."""

import json

import pytest

from tests.support.runs import MODES, a_trace, small_spec, small_spec_dict, trace_spec
from tokenwatt_site.commands.check import check
from tokenwatt_site.errors import UsageError


@pytest.fixture
def written(tmp_path):
    def write(value):
        path = tmp_path / "a.spec.yaml"
        path.write_text(json.dumps(value), encoding="utf-8")
        return path

    return write


def playing(trace):
    """A spec that plays `trace`, as a user would write it."""
    value = trace_spec(trace).to_json()
    del value["endpoint"]["url"]  # null has no spelling in a spec
    return value


def test_a_valid_spec_is_told_with_its_configuration_and_the_time_of_a_trial(written):
    checked = check(written(small_spec_dict()))
    assert checked.configuration == small_spec().configuration_id
    plan, workload = checked.lines
    assert plan.startswith("demo mode, 1 repeat; a trial at start_rate takes about 0.4 minutes")
    assert plan.endswith("3 fields not recorded")
    assert workload.startswith("demo-mix-v1: 85 requests a trial, the longest prompt")


def test_several_repeats_are_counted(written):
    protocol = {f"protocol__{key}": value for key, value in MODES["full"].items()}
    assert check(written(small_spec_dict(**protocol))).lines[0].startswith("full mode, 3 repeats;")


@pytest.mark.parametrize(("rows", "enough"), [(100, "1 repeat"), (180, "2 repeats")])
def test_a_trace_is_told_with_the_repeats_that_it_is_enough_for(written, tmp_path, rows, enough):
    trace = a_trace(rows)
    (tmp_path / "toy-trace.jsonl").write_bytes(trace.data)
    lines = check(written(playing(trace))).lines
    assert lines[1].endswith(f"the trace has {rows} rows, enough for {enough}")


def test_a_trace_that_is_not_there_is_no_valid_spec(written):
    with pytest.raises(UsageError):
        check(written(playing(a_trace(100))))
