from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.pages.conftest import board_spec
from tests.support.runs import a_trace, conversation_spec, small_spec, trace_spec
from tokenwatt_site.pages import setup
from tokenwatt_site.run import ReadBack
from tokenwatt_site.spec import Setup

CHANGED = {
    "accelerator.model": "Other board",
    "accelerator.count": 8,
    "accelerator.memory_gib": 81,
    "accelerator.rated_bandwidth_gb_s": 3350.0,
    "accelerator.power_limit_w": 650.0,
    "driver": "other driver",
    "host_kind": "other host",
    "engine.name": "other engine",
    "engine.version": "9.9",
    "engine.build": "other build",
    "engine.image_digest": "sha256:other",
    "engine.argv": ["--other"],
    "engine.environment": {"OTHER": "1 2"},
    "kernel_libraries": ["other kernels"],
    "model.name": "other model",
    "model.revision": "r2",
    "model.architecture": "moe",
    "model.digest": "sha256:" + "2" * 64,
    "quantization.weights": "FP8",
    "quantization.kv_cache": "FP4",
    "parallelism.replicas": 2,
    "parallelism.tensor": 3,
    "parallelism.pipeline": 4,
    "parallelism.expert": 5,
    "parallelism.data": 6,
    "parallelism.prefill_decode_split": "2+2",
    "workload.name": "other-mix",
    "workload.version": 7,
    "workload.hash": "3" * 64,
    "input_tokens": {"kind": "fixed", "tokens": 77},
    "output_tokens": {"kind": "fixed", "tokens": 78},
    "slo": [{"metric": "e2e", "quantile": 0.5, "limit_ms": 900.0}],
    "power.sensor": "none",
    "power.scope": "module",
    "power.rate_hz": 0.5,
    "accuracy_gate.task": "other-task",
    "accuracy_gate.shots": 9,
    "accuracy_gate.questions": 123,
    "accuracy_gate.max_drop_points": 2.5,
}


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of a setup that can be changed one by one."""
    stop = path in CHANGED
    if isinstance(value, dict) and not stop:
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else key)
    else:
        yield path


def changed(path: str) -> Setup:
    value = board_spec().setup.to_json()
    *parents, last = path.split(".")
    place = value
    for key in parents:
        place = place[key]
    place[last] = CHANGED[path]
    if path == "power.sensor":
        place |= {"scope": "none", "rate_hz": 0}
    return Setup.model_validate_json(json.dumps(value))


def words(value: Setup) -> list[str]:
    return [f"{row.field}: {row.declared}" for row in setup.rows(value, ())]


def test_the_table_of_changes_names_every_identity_field() -> None:
    found = set(leaves(board_spec().setup.to_json()))
    assert found - set(CHANGED) == {"setup_schema", "arrival"}


@pytest.mark.parametrize("path", CHANGED)
def test_h9_every_identity_field_is_shown(path: str) -> None:
    assert words(changed(path)) != words(board_spec().setup)


def test_what_was_read_back_stands_beside_what_was_declared() -> None:
    entries = (
        ReadBack(field="setup.driver", declared="none", observed="595.91", state="read back"),
        ReadBack(field="clocks.sm", declared="-", observed="1980 MHz", state="read back"),
    )
    rows = {row.field: row for row in setup.rows(board_spec().setup, entries)}
    assert (rows["Driver / runtime"].observed, rows["Driver / runtime"].state) == (
        "595.91",
        "read back",
    )
    assert rows["Host"].state == "declared"
    assert rows["clocks.sm"].observed == "1980 MHz"


def test_a_line_of_several_fields_is_read_back_only_when_all_of_them_were() -> None:
    name = ReadBack(field="setup.engine.name", declared="toy", observed="toy", state="read back")
    version = name.model_copy(update={"field": "setup.engine.version", "observed": "1.0"})
    for entries, state in (([name], "read back in part"), ([name, version], "read back")):
        rows = {row.field: row for row in setup.rows(board_spec().setup, entries)}
        assert rows["Engine"].state == state


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("driver", "Driver / runtime"),
        ("accelerator__model", "Accelerator"),
        ("engine__version", "Engine"),
        ("engine__argv", "Command line"),
        ("model__architecture", "Model"),
        ("quantization__weights", "Quantization"),
        ("quantization__kv_cache", "Quantization"),
        ("parallelism__prefill_decode_split", "Parallelism"),
        ("accuracy_gate__questions", "Accuracy gate"),
    ],
)
def test_a7_a_line_with_anything_not_recorded_in_it_says_so(path: str, field: str) -> None:
    value = board_spec().setup.to_json()
    *parents, last = path.split("__")
    place = value
    for key in parents:
        place = place[key]
    place[last] = "not recorded"
    rows = setup.rows(Setup.model_validate_json(json.dumps(value)), ())
    assert [row.field for row in rows if row.state == "not recorded"] == [field]
    assert "not recorded" in next(row.declared for row in rows if row.field == field)


def test_what_was_read_back_does_not_hide_what_was_not_recorded() -> None:
    entry = ReadBack(field="setup.engine.name", declared="toy", observed="toy", state="read back")
    value = board_spec(setup__engine__version="not recorded").setup
    row = next(r for r in setup.rows(value, (entry,)) if r.field == "Engine")
    assert (row.observed, row.state) == ("toy", "not recorded")


def test_figures_of_a_board_are_no_gap_in_the_record_of_a_cpu() -> None:
    rows = {row.field: row for row in setup.rows(small_spec().setup, ())}
    for field in ("Rated HBM BW", "Power limit"):
        assert (rows[field].declared, rows[field].state) == ("not recorded (CPU)", "declared")
    assert rows["Memory"].state == "not recorded"


def test_conversations_and_traces_are_shown_where_there_are_any() -> None:
    plain = {row.field: row.declared for row in setup.rows(small_spec().setup, ())}
    assert "Conversations" not in plain
    said = {row.field: row.declared for row in setup.rows(conversation_spec(3, 4, 24).setup, ())}
    assert said["Conversations"] == "3 turns, 4 requests apart · shared prefix of 24 tokens"
    assert said["Input tokens"].startswith("new in each turn: median 32")
    played = {row.field: row.declared for row in setup.rows(trace_spec(a_trace(100)).setup, ())}
    assert played["Arrival"] == "Trace, its time scaled, rate swept to SLO boundary"
    assert "as in the trace" in played["Output tokens"]


def test_the_window_and_what_the_bus_carries_stand_beside_what_was_declared() -> None:
    seen = setup.Seen(window_s=121.7, bus_gb_s=4916.736)
    rows = {row.field: row for row in setup.rows(board_spec().setup, (), seen)}
    assert rows["Power source"].declared == (
        "GPU board power sum (NVIDIA) · 1 Hz · windows of 122 s"
    )
    assert (rows["Rated HBM BW"].declared, rows["Rated HBM BW"].observed) == (
        "4.8 TB/s per GPU",
        "bus × clock 4.917 TB/s per GPU",
    )
    assert rows["Rated HBM BW"].state == "declared"
