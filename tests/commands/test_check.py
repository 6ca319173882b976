"""What a spec would take, before it is measured."""

import pytest

from tests.support.runs import MODES, a_trace, as_written, small_spec, trace_spec
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


def test_a_trace_that_is_not_there_is_no_valid_spec(written):
    with pytest.raises(UsageError):
        check(written(trace_spec(a_trace(100))))
