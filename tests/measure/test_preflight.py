from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.measure.stub_engine import (
    HEAD,
    Raw,
    StubEngine,
    dropped,
    endless,
    hanging,
    honest,
    serving,
    trickling,
)
from tests.support.runs import small_spec, small_spec_dict, split_spec
from tokenwatt_site.errors import EngineError, EnvironmentProblem, ReadBackError
from tokenwatt_site.evidence.power import Board
from tokenwatt_site.journal import Entry
from tokenwatt_site.measure.endpoint import EngineFacts
from tokenwatt_site.measure.power import ScriptedMeter
from tokenwatt_site.measure.preflight import (
    Preflight,
    as_one,
    compare,
    preflight,
    require_descriptors,
    require_new_launch,
    require_restart,
)
from tokenwatt_site.spec import HIGHEST_URPS, Spec, parse_spec
from tokenwatt_site.windows import Band

FACTS = EngineFacts("llama.cpp", "b1", "c0ffee", ("toy", "other"), 4096, None, None)
TOY = EngineFacts("toy", "1.0", "test", ("toy-135m",), 4096, None, None)
H200 = Board(uuid="GPU-1", name="NVIDIA H200", limit_mw=700_000)


def spec(**changes: Any) -> Spec:
    values = small_spec_dict()
    values["setup"]["engine"] |= {"name": "llama.cpp", "version": "b1", "build": "c0ffee"}
    values["endpoint"]["model"] = "toy"
    values["setup"]["input_tokens"] = {"kind": "fixed", "tokens": 100}
    values["setup"]["output_tokens"] = {"kind": "fixed", "tokens": 30}
    for path, value in changes.items():
        *folders, key = path.split("__")
        place = values
        for folder in folders:
            place = place[folder]
        place[key] = value
    return parse_spec(values, source="test")


def ids(number: int, tokens: int) -> list[int]:
    return [1000 * number + i for i in range(tokens)]


def words(number: int, tokens: int) -> str:
    return " ".join(f"w{number}" for _ in range(tokens))


def check(
    engine: StubEngine,
    asked: Spec | None = None,
    facts: EngineFacts = FACTS,
    counted_by: str | None = None,
) -> Preflight:
    asked = asked or spec()
    prompt = words if asked.endpoint.prompt_kind == "text" else ids
    with serving(engine) as url:
        return preflight(asked, url, facts, prompt, counted_by)


def using(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda body: honest(body, **changes)


def test_what_agrees_is_listed_as_read_back_and_the_rest_as_declared() -> None:
    rows = {row.field: row for row in compare(spec(), FACTS)}

    assert rows["setup.engine.version"].state == "read back"
    assert rows["endpoint.model"].observed == "toy, other"
    assert (rows["setup.driver"].observed, rows["setup.driver"].state) == (None, "declared")


@pytest.mark.parametrize(
    ("changes", "field", "found", "expected"),
    [
        ({"name": "vLLM"}, "setup.engine.name", "vLLM", "llama.cpp"),
        ({"version": "b2"}, "setup.engine.version", "b2", "b1"),
        ({"build": "deadbeef"}, "setup.engine.build", "deadbeef", "c0ffee"),
        ({"models": ("toy-2",)}, "endpoint.model", "toy-2", "toy"),
    ],
)
def test_a_mismatch_names_field_declared_and_observed(
    changes: dict[str, Any], field: str, found: str, expected: str
) -> None:
    with pytest.raises(ReadBackError) as caught:
        compare(spec(), replace(FACTS, **changes))

    (problem,) = caught.value.problems
    assert problem.field == field
    assert problem.found == f"{found} (observed)"
    assert problem.expected == f"{expected} (declared)"


def test_every_mismatch_is_told_at_once() -> None:
    with pytest.raises(ReadBackError) as caught:
        compare(spec(), replace(FACTS, version="b2", build="x"))

    assert len(caught.value.problems) == 2


def test_a_field_not_recorded_is_listed_with_what_was_seen() -> None:
    rows = {row.field: row for row in compare(spec(setup__engine__version="not recorded"), FACTS)}

    assert rows["setup.engine.version"].declared == "not recorded"
    assert rows["setup.engine.version"].observed == "b1"


def test_an_engine_that_says_nothing_is_declared_only() -> None:
    silent = EngineFacts(None, None, None, (), None, None, None)

    assert {row.state for row in compare(spec(), silent)} == {"declared"}


DIGEST = f"sha256:{'2' * 64}"


def boards_spec(**changes: Any) -> Spec:
    accelerator = {
        "model": "NVIDIA H200",
        "count": 2,
        "memory_gib": 141,
        "rated_bandwidth_gb_s": 4800,
        "power_limit_w": 700,
    } | changes
    return spec(
        setup__accelerator=accelerator,
        setup__model__digest=DIGEST,
        setup__driver="595.91.07 / CUDA 13.0",
        setup__power={"sensor": "nvml", "scope": "gpu", "rate_hz": 1},
    )


def other_h200(**changes: Any) -> Board:
    return H200.model_copy(update={"uuid": "GPU-2"} | changes)


def meter(*boards: Board, driver: str = "595.91.07", scope: str = "gpu") -> ScriptedMeter:
    scripted = ScriptedMeter(boards, [])
    scripted.driver, scripted.scope = driver, scope
    return scripted


@pytest.mark.parametrize("model", ["NVIDIA H200", "nvidia h200", "NVIDIA H200 SXM 141GB"])
def test_boards_and_driver_are_compared_by_either_name(model: str) -> None:
    rows = compare(boards_spec(model=model), FACTS, [meter(H200, other_h200())], DIGEST)

    assert {row.state for row in rows} == {"read back"}


@pytest.mark.parametrize(
    ("board", "driver", "field"),
    [
        (other_h200(name="NVIDIA H200 NVL"), "595.91.07", "accelerator.model"),
        (other_h200(limit_mw=600_000), "595.91.07", "power_limit_w"),
        (other_h200(), "595.91.08", "setup.driver"),
    ],
)
def test_a_board_that_differs_is_named(board: Board, driver: str, field: str) -> None:
    with pytest.raises(ReadBackError, match=field):
        compare(boards_spec(), FACTS, [meter(H200, board, driver=driver)])


def test_b11_a_missing_board_is_named() -> None:
    with pytest.raises(ReadBackError, match=r"accelerator\.count"):
        compare(boards_spec(), FACTS, [meter(H200)])


def test_b9_a_meter_with_another_scope_is_named() -> None:
    with pytest.raises(ReadBackError, match=r"setup\.power\.scope"):
        compare(boards_spec(), FACTS, [meter(H200, other_h200(), scope="module")])


def test_b2_a_board_that_two_exporters_tell_of_is_counted_once() -> None:
    nodes = [meter(H200, other_h200()), meter(other_h200())]
    rows = {row.field: row for row in compare(boards_spec(), FACTS, nodes)}

    assert rows["setup.accelerator.count"].observed == "2"


def test_an_exporter_of_another_kind_than_declared_is_named() -> None:
    other = ScriptedMeter([H200, other_h200()], [], sensor="dcgm")

    with pytest.raises(ReadBackError, match=r"setup\.power\.sensor.*dcgm"):
        compare(boards_spec(), FACTS, [other])


def test_packages_and_hosts_are_no_accelerators() -> None:
    asked = spec(setup__power={"sensor": "rapl", "scope": "cpu", "rate_hz": 1})
    packages = [Board(uuid="intel-rapl:0", name="package-0", limit_mw=250_000)]
    rows = {
        row.field: row
        for row in compare(asked, FACTS, [ScriptedMeter(packages, [], sensor="rapl", scope="cpu")])
    }

    assert rows["setup.power.scope"].state == "read back"
    for name in ("model", "count", "power_limit_w"):
        assert rows[f"setup.accelerator.{name}"].state == "declared"


def test_more_boards_than_declared_can_be_named_on_the_command_line() -> None:
    with pytest.raises(ReadBackError, match="--gpus"):
        compare(boards_spec(count=1), FACTS, [meter(H200, other_h200())])


def test_the_model_is_known_by_the_headers_of_its_files() -> None:
    rows = {row.field: row for row in compare(boards_spec(), FACTS, model_digest=DIGEST)}
    assert rows["setup.model.digest"].state == "read back"

    with pytest.raises(ReadBackError, match=r"setup\.model\.digest.*endpoint\.model_files"):
        compare(boards_spec(), FACTS, model_digest=f"sha256:{'3' * 64}")


def test_an_honest_engine_passes_and_fresh_prompts_stay_fresh() -> None:
    engine = StubEngine()

    found = check(engine)

    assert found == Preflight(
        accepts_unknown_model=False,
        chat_overhead_tokens=0,
        repeat_cached_tokens=0,
        longest_asked=True,
    )
    asked = [body["prompt"] for body in engine.bodies if isinstance(body["prompt"], list)]
    assert sum(asked.count(prompt) == 2 for prompt in asked) == 2  # one prompt, sent twice
    assert (len(asked[3]), engine.bodies[4]["max_tokens"]) == (100, 30)


def test_an_engine_that_takes_any_model_name_is_told() -> None:
    assert check(StubEngine(models=())).accepts_unknown_model


def test_the_tokens_of_a_chat_template_are_found() -> None:
    found = check(StubEngine(usage=using(overhead=31)), spec(endpoint__api="chat"))

    assert found.chat_overhead_tokens == 31


def test_the_token_that_begins_a_text_is_found() -> None:
    engine = StubEngine(usage=using(overhead=1))

    found = check(engine, spec(endpoint__prompt="text"), counted_by="t.json")

    assert found.chat_overhead_tokens == 1
    assert all(isinstance(body["prompt"], str) for body in engine.bodies)


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize(("more", "passes"), [(-1, False), (0, True), (1, False)])
def test_a13_what_a_tokenizer_counted_the_engine_counts_alike_to_the_token(
    api: str, more: int, passes: bool
) -> None:
    def odd(body: dict[str, Any]) -> dict[str, Any]:
        usage = honest(body, overhead=9)
        return usage | {
            "prompt_tokens": usage["prompt_tokens"] + (usage["prompt_tokens"] > 90) * more
        }

    asked = spec(endpoint__api=api, endpoint__prompt="text")
    assert check(StubEngine(usage=odd), asked).chat_overhead_tokens == 9
    if passes:
        check(StubEngine(usage=odd), asked, counted_by="models/t.json")
        return
    with pytest.raises(EngineError) as caught:
        check(StubEngine(usage=odd), asked, counted_by="models/t.json")
    (problem,) = caught.value.problems
    assert problem.found == f"{100 + more} tokens beside 9 that it adds"
    assert problem.expected == "100, as models/t.json counts"


def test_an_engine_that_refuses_token_ids_is_told_how_to_be_asked_with_text() -> None:
    refused = b'{"error": "inputs: expected a string"}'
    head = b"HTTP/1.1 422 Unprocessable Entity\r\nContent-Length: %d\r\n\r\n" % len(refused)
    with pytest.raises(EngineError, match=r"probe 2.*expected a string.*endpoint\.prompt: text"):
        check(StubEngine(raw={2: lambda _: iter([head + refused])}))


def test_words_that_are_not_one_token_each_are_refused() -> None:
    def double(body: dict[str, Any]) -> dict[str, Any]:
        usage = honest(body)
        return usage | {"prompt_tokens": 2 * usage["prompt_tokens"]}

    with pytest.raises(EngineError, match=r"usage\.prompt_tokens"):
        check(StubEngine(usage=double), spec(endpoint__api="chat"))


@pytest.mark.parametrize(("more", "passes"), [(2, True), (3, False)])
def test_a13_prompt_tokens_may_be_off_by_two_of_sixteen(more: int, passes: bool) -> None:
    engine = StubEngine(usage=using(overhead=more))
    if passes:
        check(engine)
        return
    with pytest.raises(EngineError, match="other prompt tokens"):
        check(engine)


@pytest.mark.parametrize("given", [4, 63, 65])
def test_an_engine_that_ends_where_it_likes_is_refused_by_field(given: int) -> None:
    def early(body: dict[str, Any]) -> dict[str, Any]:
        text = isinstance(body["prompt"], str)
        return honest(body) | {"completion_tokens": given if text else body["max_tokens"]}

    with pytest.raises(EngineError) as caught:
        check(StubEngine(usage=early))

    (problem,) = caught.value.problems
    assert problem.field == "ignore_eos, min_tokens, max_tokens"
    assert (problem.found, problem.expected) == (f"{given} tokens for a prompt of 9", "64 tokens")


def test_answers_cut_by_a_context_that_nobody_told_of_are_seen() -> None:
    def cut(body: dict[str, Any]) -> dict[str, Any]:
        usage = honest(body)
        room = 110 - usage["prompt_tokens"]
        return usage | {"completion_tokens": min(body["max_tokens"], room)}

    with pytest.raises(EngineError) as caught:
        check(StubEngine(usage=cut), facts=replace(FACTS, context_tokens=None))

    assert caught.value.problems[0].found == "10 tokens for a prompt of 100"


@pytest.mark.parametrize(("context", "fits"), [(130, True), (129, False)])
def test_a_context_too_small_for_the_workload_is_refused(context: int, fits: bool) -> None:
    facts = replace(FACTS, context_tokens=context)
    if fits:
        check(StubEngine(), facts=facts)
        return
    with pytest.raises(EngineError, match="found 129 tokens per sequence; expected at least 130"):
        check(StubEngine(), facts=facts)


def talking() -> Spec:
    said = {"turns": 3, "spread": 2, "shared_prefix_tokens": 50}
    return spec(setup__conversation=said)


@pytest.mark.parametrize(("context", "fits"), [(440, True), (439, False)])
def test_the_whole_of_a_conversation_counts_against_the_context(context: int, fits: bool) -> None:
    facts = replace(FACTS, context_tokens=context)
    if fits:
        assert check(StubEngine(), talking(), facts).longest_asked
        return
    with pytest.raises(EngineError, match="expected at least 440 tokens"):
        check(StubEngine(), talking(), facts)


def test_the_longest_prompt_of_a_conversation_is_tried() -> None:
    engine = StubEngine()
    assert check(engine, talking()).longest_asked
    tried = max((len(body["prompt"]), body["max_tokens"]) for body in engine.bodies)
    assert tried == (50 + 3 * 100 + 2 * 30, 30)


def test_the_template_of_a_chat_counts_against_the_context() -> None:
    with pytest.raises(EngineError, match="at least 161 tokens"):
        check(
            StubEngine(usage=using(overhead=31)),
            spec(endpoint__api="chat"),
            replace(FACTS, context_tokens=150),
        )


def test_a_fresh_prompt_that_counts_as_cached_is_refused() -> None:
    with pytest.raises(EngineError, match="cached_tokens"):
        check(StubEngine(usage=using(cached=16)))


def test_a_prompt_sent_twice_may_be_cached_and_that_is_told() -> None:
    seen: list[Any] = []

    def caching(body: dict[str, Any]) -> dict[str, Any]:
        again = body["prompt"] in seen
        seen.append(body["prompt"])
        return honest(body, cached=96 if again else 0)

    assert check(StubEngine(usage=caching)).repeat_cached_tokens == 96


def test_an_engine_that_does_not_count_cached_tokens_is_told() -> None:
    assert check(StubEngine(usage=using(cached=None))).repeat_cached_tokens is None


def test_a2_an_engine_without_usage_is_refused() -> None:
    with pytest.raises(EngineError, match=r"stream_options\.include_usage"):
        check(StubEngine(usage=lambda _: None))


def test_what_the_engine_answers_to_a_probe_it_refuses_is_shown() -> None:
    with pytest.raises(EngineError, match=r"HTTP 400: no such thing"):
        check(StubEngine(status=400))


def test_an_error_inside_the_stream_is_shown() -> None:
    with pytest.raises(EngineError, match="slot on fire"):
        check(StubEngine(error_event={"error": {"message": "slot on fire"}}))


def test_an_engine_that_is_gone_is_an_error_of_the_engine() -> None:
    with serving(StubEngine()) as url:
        pass

    with pytest.raises(EngineError, match="no engine answers"):
        preflight(spec(), url, FACTS, ids)


PROBES = [
    "probe 1, an answer of fixed length",
    "probe 2, a short prompt",
    "probe 3, a longer prompt",
    "probe 4, the longer prompt again",
    "probe 5, the longest prompt and answer",
    "probe 6, an unknown model name",
]


@pytest.mark.parametrize("number", range(1, 7))
def test_c3_an_answer_that_breaks_off_is_told_with_its_probe(number: int) -> None:
    with pytest.raises(EngineError) as caught:
        check(StubEngine(raw={number: dropped}))

    assert caught.value.problems[0].what.startswith(f"{PROBES[number - 1]}: the answer broke off")
    assert "Start the engine" not in str(caught.value)


def test_c3_an_answer_that_ends_with_its_connection_may_break_off_too() -> None:
    cut = HEAD + b'\r\ndata: {"choices":[{"text":"a"}]}\n\n'
    with pytest.raises(EngineError, match=r"probe 2, .*the answer broke off"):
        check(StubEngine(raw={2: lambda _: iter([cut])}))


@pytest.mark.parametrize("raw", [hanging, trickling(HEAD + b"\r\n"), trickling(HEAD + b"X: ")])
def test_c3_an_answer_that_does_not_end_is_told_with_its_probe(raw: Raw) -> None:
    with pytest.raises(EngineError) as caught:
        check(StubEngine(raw={1: raw}), spec(protocol__request_timeout_s=0.3))

    (problem,) = caught.value.problems
    assert problem.what == f"{PROBES[0]}: the answer did not end within 0.3 s"
    assert "Start the engine" not in str(caught.value)


def test_b2_an_answer_without_an_end_stops_the_preflight() -> None:
    with pytest.raises(EngineError, match=r"probe 2, .*larger than 4 MiB"):
        check(StubEngine(raw={2: endless}))


NO_COUNTS = [2**60, 2**53, -7, 1e30, 16.0, "x", "16", True, [16], {"n": 16}]


@pytest.mark.parametrize("value", NO_COUNTS, ids=repr)
@pytest.mark.parametrize(
    "field",
    [
        "prompt_tokens",
        "completion_tokens",
        "prompt_tokens_details.cached_tokens",
        "prompt_cache_hit_tokens",
    ],
)
def test_b9_usage_that_is_no_count_is_refused_by_field(field: str, value: Any) -> None:
    *folder, key = field.split(".")

    def odd(body: dict[str, Any]) -> dict[str, Any]:
        return honest(body) | ({folder[0]: {key: value}} if folder else {key: value})

    with pytest.raises(EngineError) as caught:
        check(StubEngine(usage=odd))

    (problem,) = caught.value.problems
    shown = {"[16]": "list", "{'n': 16}": "dict", "True": "true", "'x'": '"x"', "'16'": '"16"'}
    assert problem.field == f"usage.{field}"
    assert problem.found == shown.get(repr(value), repr(value))
    assert problem.expected == "a whole number from 0 to 2^53 - 1"


def test_b9_a_count_that_is_null_is_one_that_is_not_told() -> None:
    def nulls(body: dict[str, Any]) -> dict[str, Any]:
        return honest(body) | {"prompt_tokens_details": None, "prompt_cache_hit_tokens": None}

    assert check(StubEngine(usage=nulls)).repeat_cached_tokens is None


def test_an_answer_in_one_event_is_refused_where_tpot_is_asked_for() -> None:
    slo = [{"metric": "tpot", "quantile": 0.9, "limit_ms": 50}]
    with pytest.raises(EngineError) as caught:
        check(StubEngine(at_once=True), spec(setup__slo=slo))

    (problem,) = caught.value.problems
    assert (problem.field, problem.found) == ("setup.slo", "all 64 tokens in one event")
    assert problem.expected == "a stream token by token"


def test_an_answer_in_one_event_will_do_where_tpot_is_not_asked_for() -> None:
    slo = [{"metric": "e2e", "quantile": 0.9, "limit_ms": 1000}]

    assert check(StubEngine(at_once=True), spec(setup__slo=slo)).longest_asked


def test_the_longest_answer_is_left_out_when_it_would_take_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tokenwatt_site.measure.preflight._LONGEST_S", -1.0)
    engine = StubEngine()

    assert not check(engine).longest_asked
    assert max(body["max_tokens"] for body in engine.bodies) == 64


class Limits:
    """The limit of file descriptors of a process that is not this one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
        self.values = (soft, hard)
        monkeypatch.setattr(resource, "getrlimit", lambda _: self.values)
        monkeypatch.setattr(resource, "setrlimit", self._set)

    def _set(self, _: int, values: tuple[int, int]) -> None:
        self.values = values


# 8000 requests may be open at once: 8000 + 500 idle + 128 others.
ROWS = Band(0, HIGHEST_URPS, 4000, 2000, 2000)
BUSY = spec(protocol__max_rate=1000.0, protocol__request_timeout_s=60.0).protocol


@pytest.mark.parametrize(
    ("soft", "hard", "left"),
    [(1024, 20_000, 8628), (1024, 8628, 8628), (1024, resource.RLIM_INFINITY, 8628)]
    + [(soft, 20_000, soft) for soft in (8628, 20_000, resource.RLIM_INFINITY)],
)
def test_the_soft_limit_of_descriptors_is_raised_to_what_the_load_may_need(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, left: int
) -> None:
    limits = Limits(monkeypatch, soft, hard)
    require_descriptors(BUSY, ROWS)
    assert limits.values == (left, hard)


def test_a_hard_limit_below_what_the_load_may_need_is_refused_with_both_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = Limits(monkeypatch, 1024, 8627)
    with pytest.raises(EnvironmentProblem, match=r"limit of 8627 .* 8628, for 8000 requests"):
        require_descriptors(BUSY, ROWS)
    assert limits.values == (8627, 8627)


def test_no_more_requests_are_open_at_once_than_come_due_within_their_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = Limits(monkeypatch, 64, 8627)
    require_descriptors(BUSY.model_copy(update={"max_rate": 2.0}), ROWS)  # 2/s x 60 s
    assert limits.values == (120 + 7 + 128, 8627)


def sat(repeat: int, *, same_launch: bool | None) -> Entry:
    data = {"repeat": repeat, "same_launch": same_launch}
    return Entry(seq=0, at="", event="accuracy_start", prev="0" * 64, data=data)


ATTACHED = {"endpoint__start": "attach", "endpoint__url": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("lines", "restarts"),
    [
        ([], True),
        ([sat(1, same_launch=True)], True),
        ([sat(1, same_launch=True), sat(1, same_launch=None)], True),
        ([sat(1, same_launch=True), sat(1, same_launch=False)], False),
        ([sat(2, same_launch=False)], True),
    ],
)
def test_an_attached_engine_is_restarted_unless_it_was_since_its_trials(
    lines: list[Entry], restarts: bool
) -> None:
    spec = small_spec(protocol__repeats=2, **ATTACHED)
    if restarts:
        with pytest.raises(EnvironmentProblem, match="work: repeat 1 of 2 is done"):
            require_restart(spec, lines, 1, Path("work"))
    else:
        require_restart(spec, lines, 1, Path("work"))
    require_restart(spec, lines, 2, Path("work"))
    require_restart(small_spec(protocol__repeats=2), lines, 1, Path("work"))


def test_every_board_of_a_split_has_a_role_and_every_name_a_board() -> None:
    split = split_spec(setup__driver="not recorded")

    def compared(*uuids: str) -> None:
        boards = [Board(uuid=uuid, name="Toy GPU", limit_mw=400_000) for uuid in uuids]
        compare(split, TOY, [ScriptedMeter(boards, [])])

    compared("GPU-0", "GPU-1")
    with pytest.raises(ReadBackError) as caught:
        compared("GPU-0", "GPU-2")
    assert [(p.field, p.what, p.found) for p in caught.value.problems] == [
        ("board_roles", "leaves out boards", "GPU-2"),
        ("board_roles", "names boards that are not read", "gpu-1"),
    ]


PROBED = Preflight(False, 4, 0, longest_asked=True)


def test_the_probes_of_all_replicas_are_one_preflight() -> None:
    other = replace(PROBED, accepts_unknown_model=True, repeat_cached_tokens=None)
    assert as_one([PROBED]) == PROBED
    assert as_one([PROBED, other]) == Preflight(True, 4, None, longest_asked=True)
    with pytest.raises(EngineError, match="4, 5 tokens that each adds"):
        as_one([PROBED, replace(PROBED, chat_overhead_tokens=5)])


def test_a_replica_that_still_runs_since_another_repeat_is_named() -> None:
    told = {"engine": None, "version": None, "build": None, "models": ["m"]}
    replicas = [told | {"started": start} for start in ("a", "b")]
    data = {"repeat": 1, "engine_started": "a, b", "replicas": replicas}
    lines = [Entry(seq=1, at="now", event="launch", prev="0" * 64, data=data)]
    require_new_launch(lines, 2, ["c", "d"])
    require_new_launch(lines, 1, ["a", "b"])
    with pytest.raises(EnvironmentProblem, match="replica 2 of 2 still runs since repeat 1"):
        require_new_launch(lines, 2, ["b", "b"])
