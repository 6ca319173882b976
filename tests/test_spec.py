from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tests.conftest import ROOT
from tests.support.runs import (
    a_trace,
    conversation_spec,
    gated_spec,
    small_spec,
    small_spec_dict,
    trace_spec,
)
from tokenwatt_site.errors import InputError, SpecError
from tokenwatt_site.lengths import Lognormal
from tokenwatt_site.spec import (
    NOT_RECORDED,
    Objective,
    Setup,
    configuration_id,
    load_spec,
    parse_spec,
)


def written(folder: Path, value: dict[str, Any]) -> Path:
    path = folder / "x.spec.yaml"
    path.write_text(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))
    return path


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every plain value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path


def replaced(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    result = copy.deepcopy(value)
    place = result
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = new
    return result


def test_a_spec_is_read_from_yaml(tmp_path: Path) -> None:
    spec = load_spec(written(tmp_path, small_spec_dict()))
    assert spec == small_spec()


@pytest.mark.parametrize(
    ("changes", "field", "what", "found", "expected"),
    [
        ({"setup__accelerator__count": -1}, "setup.accelerator.count", "not valid", "-1", "0"),
        ({"setup__accelerator__count": "4"}, "setup.accelerator.count", "not valid", "'4'", "int"),
        ({"setup__accelerator__count": True}, "setup.accelerator.count", "not valid", "True", "in"),
        (
            {"setup__accelerator__memory_gib": "much"},
            "setup.accelerator.memory_gib",
            "not valid",
            "'much'",
            "or: Input should be 'not recorded'",
        ),
        ({"setup__driver": ""}, "setup.driver", "not valid", "''", "at least 1"),
        ({"setup__driver": "a\nb"}, "setup.driver", "not valid", r"'a\nb'", "one line"),
        ({"setup__driver": "x" * 301}, "setup.driver", "not valid", "xxx...", "at most 300"),
        ({"setup__slo": []}, "setup.slo", "not valid", "[]", "at least 1"),
        (
            {"setup__slo": [{"metric": "ttft", "quantile": 1.0, "limit_ms": 1.0}]},
            "setup.slo.0.quantile",
            "not valid",
            "1",
            "less than 1",
        ),
        ({"setup__arrival": "closed"}, "setup.arrival", "not valid", "'closed'", "'poisson'"),
        ({"setup__unknown": 1}, "setup.unknown", "is not a field", None, None),
        ({"spec_schema": 2}, "spec_schema", "not valid", "2", "1"),
        ({"label": "Not A Label"}, "label", "not valid", "'Not A Label'", "pattern"),
        ({"label": "../../x"}, "label", "not valid", "'../../x'", "pattern"),
        ({"label": "llam\u0430"}, "label", "not valid", "'llam\u0430'", "pattern"),
        ({"label": "x" * 100_000}, "label", "not valid", "xxx...", "pattern"),
        ({"protocol__scored": 5}, "protocol.scored", "not valid", "5", "10"),
        ({"protocol__mode": "fast"}, "protocol.mode", "not valid", "'fast'", "'demo', 'quick'"),
        ({"protocol__mode": "quick"}, "protocol", "not valid", None, "at least 600 scored"),
        ({"protocol__start_rate": 100.0}, "protocol", "not valid", None, "above max_rate"),
        ({"endpoint__url": "http://h:1"}, "endpoint", "not valid", None, "remove url"),
        ({"endpoint__start": "attach"}, "endpoint", "not valid", None, "needs url"),
        ({"setup__engine__argv": NOT_RECORDED}, "document", "not valid", None, "setup.engine.argv"),
        (
            {"setup__input_tokens": {"kind": "fixed", "tokens": 0}},
            "setup.input_tokens.tokens",
            "not valid",
            "0",
            "greater than or equal to 1",
        ),
        (
            {"setup__engine__argv": ["x", 5]},
            "setup.engine.argv.1",
            "not valid",
            "5",
            "valid string",
        ),
    ],
)
def test_a_broken_field_is_named_with_line_found_and_expected(  # noqa: PLR0917  # a table's columns
    tmp_path: Path,
    changes: dict[str, Any],
    field: str,
    what: str,
    found: str | None,
    expected: str | None,
) -> None:
    path = written(tmp_path, small_spec_dict(**changes))
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    (problem,) = caught.value.problems
    assert (problem.file, problem.field) == (str(path), field)
    assert what in problem.what
    assert (found is None) == (problem.found is None)
    assert found is None or found in (problem.found or "")
    assert (expected is None) == (problem.expected is None)
    assert expected is None or expected in (problem.expected or "")
    key = next((p for p in reversed(field.split(".")) if not p.isdigit()), "")
    assert problem.line is not None
    if field != "document" and "argv" not in field:
        # A mapping starts on the line after its key.
        near = path.read_text().splitlines()[max(problem.line - 2, 0) : problem.line]
        assert any(f"{key}:" in line for line in near)


def test_every_wrong_field_is_named_at_once() -> None:
    value = small_spec_dict(setup__driver="", protocol__scored=1, label="X")
    del value["setup"]["host_kind"]
    with pytest.raises(SpecError) as caught:
        parse_spec(value, source="x")
    problems = {p.field: p for p in caught.value.problems}
    assert set(problems) == {"setup.driver", "protocol.scored", "label", "setup.host_kind"}
    assert "not recorded" in (problems["setup.host_kind"].remedy or "")


@pytest.mark.parametrize("section", ["setup", "endpoint", "protocol"])
def test_a_missing_section_is_named(section: str) -> None:
    value = small_spec_dict()
    del value[section]
    with pytest.raises(SpecError) as caught:
        parse_spec(value, source="x")
    assert [(p.field, p.what) for p in caught.value.problems] == [(section, "is missing")]


@pytest.mark.parametrize("value", [None, [], "text", 5])
def test_a_document_that_is_no_mapping_is_refused(value: Any) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(value, source="x")
    assert caught.value.problems[0].field == "document"


def test_a_launch_that_does_not_say_where_to_listen_is_refused() -> None:
    with pytest.raises(SpecError, match="port"):
        small_spec(setup__engine__argv=["vllm", "serve"])


OTHER: dict[tuple[str | int, ...], Any] = {
    ("architecture",): "moe",
    ("hash",): "2" * 64,
    ("metric",): "e2e",
    ("quantile",): 0.95,
}
# Of the schema there is one value yet; arrival and conversation go with other fields (below).
ONLY = {("setup_schema",), ("arrival",)}
IDENTITY = [path for path in leaves(small_spec_dict()["setup"]) if path not in ONLY]


@pytest.mark.parametrize("path", IDENTITY, ids=lambda path: ".".join(map(str, path)))
def test_any_changed_setup_field_makes_another_configuration(path: tuple[str | int, ...]) -> None:
    value = small_spec_dict()
    old: Any = value["setup"]
    for part in path:
        old = old[part]
    if path[-1] == "kind":
        new = replaced(value, ("setup", *path[:-1]), {"kind": "fixed", "tokens": 32})
    elif path == ("slo", 0, "metric"):
        second = {**value["setup"]["slo"][1], "metric": "e2e"}
        new = replaced(replaced(value, ("setup", "slo", 1), second), ("setup", *path), "tpot")
    elif path[0] == "power":
        other = {"sensor": "nvml", "scope": "gpu", "rate_hz": 1.0}
        other |= {"scope": {"scope": "module"}, "rate_hz": {"rate_hz": 0.5}}.get(str(path[1]), {})
        new = replaced(value, ("setup", "power"), other)
    elif path[-1:] in OTHER:
        new = replaced(value, ("setup", *path), OTHER[path[-1:]])
    elif isinstance(old, (int, float)):
        step = 0.5 if isinstance(old, float) else 1
        new = replaced(value, ("setup", *path), old + step)
    elif path[:1] == ("accelerator",) and path[-1] != "model":
        new = replaced(value, ("setup", *path), 80)
    else:
        name = "x" if path[:1] == ("workload",) else f"{old} changed"
        new = replaced(value, ("setup", *path), name)
    changed = parse_spec(new, source="x")
    assert changed.configuration_id != small_spec().configuration_id
    assert changed.configuration_id[-13] == "-"


@pytest.mark.parametrize(
    "changes",
    [
        {"label": "other"},
        {"title": "Other"},
        {"note": "A note.\nTwo lines."},
        {"role": "candidate"},
        {"protocol__repeats": 2},
        {"protocol__scored": 700},
        {"protocol__mode": "full", "protocol__repeats": 3, "protocol__scored": 600},
        {"endpoint__ready_timeout_s": 5},
    ],
)
def test_what_is_not_identity_leaves_the_configuration(changes: dict[str, Any]) -> None:
    assert small_spec(**changes).configuration_id == small_spec().configuration_id


def test_a_number_written_as_integer_or_fraction_is_the_same_configuration(tmp_path: Path) -> None:
    text = written(tmp_path, small_spec_dict()).read_text()
    path = tmp_path / "y.spec.yaml"
    path.write_text(text.replace("1500.0", "1500"))
    assert load_spec(path).configuration_id == small_spec().configuration_id


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("DeepSeek-V4.1-Flash", "deepseek-v4-1-flash-cpu-toy"),
        ("../../etc/passwd", "etc-passwd-cpu-toy"),
        ("模型", "cpu-toy"),
        ("<img src=x>", "img-src-x-cpu-toy"),
        ("x" * 300, "x" * 51),
    ],
)
def test_f9_an_id_is_a_short_plain_name(name: str, slug: str) -> None:
    made = small_spec(setup__model__name=name).configuration_id
    assert made[:-13] == slug
    assert len(made) <= 64


def test_the_id_survives_a_round_trip_through_json() -> None:
    setup = small_spec().setup
    again = Setup.model_validate_json(setup.model_dump_json())
    assert configuration_id(again) == configuration_id(setup)


def test_a_setup_is_frozen() -> None:
    with pytest.raises(ValidationError):
        small_spec().setup.driver = "other"  # type: ignore[misc]  # that is the test


def test_the_same_objective_twice_is_refused() -> None:
    slo = [{"metric": "ttft", "quantile": 0.9, "limit_ms": ms} for ms in (1.0, 2.0)]
    with pytest.raises(SpecError, match="in this order"):
        small_spec(setup__slo=slo)


@pytest.mark.parametrize(
    ("quantile", "label"), [(0.99, "TTFT p99"), (0.9, "TTFT p90"), (0.999, "TTFT p99.9")]
)
def test_a_label_takes_its_quantile_from_the_spec(quantile: float, label: str) -> None:
    objective = Objective(metric="ttft", quantile=quantile, limit_ms=1500)
    assert objective.label == label
    assert objective.limit_ns == 1_500_000_000


@pytest.mark.parametrize(
    ("median", "p90", "low", "high"), [(10, 10, 1, 20), (10, 20, 11, 30), (10, 20, 1, 15)]
)
def test_a_lognormal_needs_its_numbers_in_order(median: int, p90: int, low: int, high: int) -> None:
    with pytest.raises(ValidationError, match="min <= median < p90 <= max"):
        Lognormal(kind="lognormal", median=median, p90=p90, min=low, max=high)


@pytest.mark.parametrize(("mode", "ratio"), [("demo", 1.15), ("quick", 1.05), ("full", 1.02)])
def test_the_bracket_is_as_narrow_as_the_mode_asks(mode: str, ratio: float) -> None:
    repeats = {"demo": 1, "quick": 2, "full": 3}[mode]
    spec = small_spec(protocol__mode=mode, protocol__repeats=repeats, protocol__scored=600)
    assert spec.protocol.bracket_ratio == ratio


@pytest.mark.parametrize(("mode", "repeats"), [("quick", 1), ("quick", 3), ("full", 2)])
def test_a_mode_fixes_how_often_is_measured(mode: str, repeats: int) -> None:
    with pytest.raises(SpecError, match="repeats"):
        small_spec(protocol__mode=mode, protocol__repeats=repeats, protocol__scored=600)


def test_a_spec_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        load_spec(tmp_path / "absent.yaml")


def test_a_conversation_and_a_trace_make_other_configurations() -> None:
    trace = a_trace(100)
    specs = (
        small_spec(),
        conversation_spec(2, 3, 5),
        conversation_spec(2, 3, 6),
        trace_spec(trace),
        trace_spec(a_trace(101)),
    )
    assert len({spec.configuration_id for spec in specs}) == len(specs)


def test_the_name_of_the_trace_s_file_is_no_identity() -> None:
    trace = a_trace(100)
    other = trace_spec(trace, trace="elsewhere/other.jsonl")
    assert other.configuration_id == trace_spec(trace).configuration_id


def test_a_setup_without_a_conversation_is_written_without_one_so_that_its_id_stands() -> None:
    assert "conversation" not in small_spec().to_json()["setup"]
    said = conversation_spec(2, 3, 5)
    assert said.to_json()["setup"]["conversation"]["turns"] == 2
    assert parse_spec(said.to_json(), source="x") == said
    played = trace_spec(a_trace(100))
    assert parse_spec(played.to_json(), source="x") == played


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../t.jsonl",
        "a/../t.jsonl",
        "./t.jsonl",
        "~/t.jsonl",
        "a//t",
        "C:\\t",
        "",
        "a b",
    ],
)
def test_a_trace_lies_below_its_spec_and_its_path_tells_nothing_of_the_machine(path: str) -> None:
    with pytest.raises(SpecError, match=r"trace: is not valid.*below the spec's own folder"):
        trace_spec(a_trace(100), trace=path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trace": "t.jsonl"}, "setup.arrival: trace goes with trace: FILE"),
        ({"setup__arrival": "trace"}, "goes with kind: trace"),
        ({"setup__output_tokens": a_trace(9).lengths("output_tokens").to_json()}, "kind: trace"),
        (
            {"setup__conversation": {"turns": 1, "spread": 1, "shared_prefix_tokens": 0}},
            "setup.conversation: is not valid",
        ),
    ],
)
def test_arrival_lengths_and_trace_go_together(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        small_spec(**changes)


def test_the_prompts_of_a_trace_are_whole() -> None:
    said = {"turns": 2, "spread": 1, "shared_prefix_tokens": 0}
    with pytest.raises(SpecError, match="conversation goes with poisson"):
        trace_spec(a_trace(100), setup__conversation=said)


def test_a_bad_number_of_a_trace_is_named_by_its_field() -> None:
    lengths = a_trace(9).lengths("input_tokens").to_json() | {"median": 0}
    with pytest.raises(SpecError, match=r"setup\.input_tokens\.median: is not valid"):
        trace_spec(a_trace(9), setup__input_tokens=lengths)


def test_shipped_configurations_keep_their_ids() -> None:
    ids = [load_spec(path).configuration_id for path in sorted((ROOT / "specs").glob("*.yaml"))]
    assert ids == [
        "smollm2-135m-instruct-cpu-llama-cpp-2066154df037",
        "smollm2-135m-instruct-cpu-llama-cpp-e58820a387e0",
        "deepseek-v4-1-flash-4x-nvidia-h200-vllm-c7c2b0fd8f0a",
        "smollm2-135m-instruct-cpu-llama-cpp-f341f3317fc1",
        "smollm2-135m-instruct-cpu-llama-cpp-8407c705fe22",
        "smollm2-135m-instruct-cpu-llama-cpp-35b954495e05",
        "smollm2-135m-instruct-cpu-llama-cpp-a3f48f7a0d81",
    ]


@pytest.mark.parametrize("value", ["TODO", None])
def test_a_workload_hash_that_is_not_known_yet_says_how_to_learn_it(value: str | None) -> None:
    spec = small_spec_dict()
    if value is None:
        del spec["setup"]["workload"]["hash"]
    else:
        spec["setup"]["workload"]["hash"] = value
    with pytest.raises(SpecError, match="Write 64 zeros"):
        parse_spec(spec, source="x")


def test_no_more_answers_are_asked_for_than_are_read() -> None:
    gated_spec(50_000, protocol__repeats=3, accuracy={"repeats": 2})
    with pytest.raises(
        SpecError, match=r"more than 100,000 answers: ask in fewer accuracy\.repeats"
    ):
        gated_spec(50_000, protocol__repeats=3, accuracy={"repeats": 3})


@pytest.mark.parametrize(("quantile", "fewest"), [(0.99, 100), (0.95, 20), (0.9, 10)])
def test_a20_a_quantile_that_the_scored_requests_do_not_carry_is_refused(
    quantile: float, fewest: int
) -> None:
    slo = [{"metric": "ttft", "quantile": quantile, "limit_ms": 1500.0}]
    small_spec(setup__slo=slo, protocol__scored=fewest)
    if fewest > 10:  # fewer are never scored
        with pytest.raises(SpecError, match=f"at least {fewest} scored requests"):
            small_spec(setup__slo=slo, protocol__scored=fewest - 1)
