from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.measure.stub_engine import (
    HEAD,
    Answer,
    Raw,
    StubEngine,
    as_json,
    endless,
    hanging,
    serving,
    trickling,
)
from tests.support.runs import small_spec
from tokenwatt_site.errors import EngineError, UsageError
from tokenwatt_site.measure import control, endpoint
from tokenwatt_site.measure.endpoint import (
    EngineFacts,
    Prober,
    _llama_build,
    answers,
    metrics,
    read_back,
)
from tokenwatt_site.measure.endpoint import request_body as body_of
from tokenwatt_site.measure.engine import free_port

KEY = "k3y-0123456789abcdef"
LLAMA = {
    "/v1/models": as_json(
        {"data": [{"id": "toy", "aliases": ["toy", "t"], "meta": {"n_vocab": 49152}}]},
        Server="llama.cpp",
    ),
    "/props": as_json(
        {"build_info": "b6789-abcdef01", "default_generation_settings": {"n_ctx": 1024}}
    ),
    "/metrics": (200, {}, b"llamacpp:prompt_tokens_total 0\n"),
}
VLLM = {
    "/v1/models": as_json({"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 8192}]}),
    "/version": as_json({"version": "0.32.0"}),
    "/metrics": (200, {}, b"# TYPE x gauge\nprocess_start_time_seconds 1.7961463e+09\n"),
}
SGLANG = {
    "/v1/models": as_json({"data": [{"id": "m", "owned_by": "sglang", "max_model_len": 4096}]}),
    "/get_server_info": as_json({"version": "0.6.1", "model_path": "m"}),
}
PLAIN = {"/v1/models": as_json({"data": [{"id": "m"}]})}


def test_a_completion_is_asked_for_by_ids_and_with_a_fixed_length() -> None:
    assert json.loads(body_of("completions", "m", (5, 6), 7, may_be_cached=False)) == {
        "model": "m",
        "prompt": [5, 6],
        "max_tokens": 7,
        "min_tokens": 7,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "cache_prompt": False,
        "timings_per_token": True,
    }


def test_a_chat_is_one_message_of_the_user() -> None:
    body = json.loads(body_of("chat", "m", "some words", 7, may_be_cached=True))

    assert body["messages"] == [{"role": "user", "content": "some words"}]
    assert "prompt" not in body
    assert body["cache_prompt"] is True


@pytest.mark.parametrize(
    ("get", "facts"),
    [
        (LLAMA, EngineFacts("llama.cpp", "b6789", "abcdef01", ("toy", "t"), 1024, 49152, None)),
        (
            VLLM,
            EngineFacts("vLLM", "0.32.0", None, ("m",), 8192, None, "2026-12-01T17:31:40.000000Z"),
        ),
        (SGLANG, EngineFacts("SGLang", "0.6.1", None, ("m",), 4096, None, None)),
        (PLAIN, EngineFacts(None, None, None, ("m",), None, None, None)),
        (
            PLAIN | {"/version": as_json({"version": "1.2"})},
            EngineFacts(None, "1.2", None, ("m",), None, None, None),
        ),
    ],
)
def test_each_engine_tells_who_it_is(get: dict[str, Any], facts: EngineFacts) -> None:
    with serving(StubEngine(get=get)) as url:
        assert read_back(url) == facts


@pytest.mark.parametrize(
    ("build_info", "expected"),
    [
        ("b0-unknown", (None, None)),
        ("b6789-abcdef", ("b6789", "abcdef")),
        ("b6789", ("b6789", None)),
        ("b6789-unknown", ("b6789", None)),
        ("", (None, None)),
        (None, (None, None)),
        (7, (None, None)),
    ],
)
def test_a_llama_build_that_does_not_know_itself_is_not_observed(
    build_info: object, expected: tuple[str | None, str | None]
) -> None:
    assert _llama_build(build_info) == expected


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["version", "n_vocab", "n_ctx"]), inner, max_size=2)
        ),
        max_leaves=5,
    ).flatmap(
        lambda odd: st.sampled_from(
            [
                odd,
                {"data": odd},
                {"data": [odd]},
                {"data": [{"id": odd}]},
                *(
                    {"data": [{"id": "m", field: odd}], "version": odd, "build_info": odd}
                    for field in ("aliases", "meta", "max_model_len", "owned_by")
                ),
                {
                    "data": [{"id": "m", "owned_by": "llamacpp", "meta": {"n_vocab": odd}}],
                    "default_generation_settings": odd,
                },
            ]
        )
    )
)
def test_whatever_a_model_list_holds_reading_it_does_not_fail(value: object) -> None:
    answer = control.Answer(200, "application/json", "", json.dumps(value).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(endpoint, "request", lambda *_, **__: answer)
        try:
            facts = read_back("http://engine")
        except EngineError:
            return

    assert facts.models
    assert all(isinstance(name, str) and name for name in facts.models)
    assert facts.context_tokens is None or facts.context_tokens > 0


HTML = {"Content-Type": "text/html"}
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("models", "told"),
    [
        ((200, HTML, b"<html>"), "HTTP 200, text/html"),
        ((302, HTML | {"Location": "/login"}, b""), "HTTP 302, text/html"),
        ((404, {}, b""), "HTTP 404, no content type"),
        ((401, JSON, b'{"error": "no key"}'), "HTTP 401, application/json"),
        ((403, JSON, b"{}"), "HTTP 403, application/json"),
        *(
            ((200, JSON, raw), "HTTP 200, application/json")
            for raw in (
                b"",
                b"{",
                b"[]",
                b"\xff",
                b"[" * 100_000,
                b'{"data":' * 100_000,
                b"null",
                b'{"data": []}',
                b'{"data": [{"id": ""}]}',
                b'{"data": [{"id": "\\u0000"}]}',
            )
        ),
    ],
)
def test_b1_what_lists_no_model_is_no_engine_and_what_it_said_is_told(
    models: Answer, told: str
) -> None:
    with (
        serving(StubEngine(get={"/v1/models": models})) as url,
        pytest.raises(EngineError) as caught,
    ):
        read_back(url)

    (problem,) = caught.value.problems
    assert (problem.field, problem.found) == ("endpoint.url", f"{told} from {url}/v1/models")
    assert problem.remedy is not None
    assert ("endpoint.api_key_variable" in problem.remedy) == (models[0] in {401, 403})
    assert ("base of an engine, without /v1" in problem.remedy) == (models[0] not in {401, 403})


def test_an_engine_with_a_key_is_read_back_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", KEY)
    with serving(StubEngine(get=VLLM, key=KEY)) as url:
        assert read_back(url, "ENGINE_KEY").name == "vLLM"


def test_a_key_that_is_refused_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", KEY)
    with serving(StubEngine(get=VLLM, key="other")) as url, pytest.raises(EngineError) as caught:
        read_back(url, "ENGINE_KEY")

    assert "does not take the key in the environment variable ENGINE_KEY" in str(caught.value)
    assert "wrong=Bearer (key)" in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_probe_brings_the_key_and_does_not_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", KEY)
    spec = small_spec(endpoint__api_key_variable="ENGINE_KEY", endpoint__model="toy")
    engine = StubEngine(key=KEY)
    with serving(engine) as url:
        assert Prober(spec, url).ask("one", [1, 2], 3).prompt_tokens == 2
        engine.key = "other"
        with pytest.raises(EngineError) as caught:
            Prober(spec, url).ask("one", [1, 2], 3)

    assert "HTTP 401: wrong: Bearer (key)" in str(caught.value)
    assert KEY not in str(caught.value)


def test_b1_a_base_with_v1_at_its_end_is_told_to_leave_it_out() -> None:
    with serving(StubEngine(get=VLLM)) as url, pytest.raises(EngineError) as caught:
        read_back(f"{url}/v1")

    assert caught.value.problems[0].remedy == f"Give the base without /v1: {url}"


@pytest.mark.parametrize("url", ["http://engine:99999", "http://me:secret@engine"])
def test_d6_an_address_that_cannot_be_asked_is_refused_before_asking(url: str) -> None:
    with pytest.raises(UsageError):
        read_back(url)


@pytest.mark.parametrize("path", ["/v1/models", "/metrics"])
@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (hanging, "did not end within"),
        (trickling(HEAD + b"\r\n"), "did not end within"),
        (endless, "is larger than 4 MiB"),
    ],
    ids=["hanging", "trickling", "endless"],
)
def test_b2_no_answer_holds_the_reading_back_for_long(
    monkeypatch: pytest.MonkeyPatch, path: str, raw: Raw, what: str
) -> None:
    if raw is not endless:
        monkeypatch.setattr(endpoint, "_DEADLINE_S", 1.0)
    with (
        serving(StubEngine(get=VLLM, raw={path: raw})) as url,
        pytest.raises(EngineError, match=f"{what}.*{path}"),
    ):
        read_back(url)


@pytest.mark.parametrize("raw", [hanging, trickling(HEAD), endless])
def test_b2_an_engine_whose_health_does_not_end_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, raw: Raw
) -> None:
    monkeypatch.setattr(endpoint, "_DEADLINE_S", 0.5)
    with serving(StubEngine(raw={"/health": raw})) as url:
        assert not answers(url)


def test_metrics_are_the_text_of_the_engine_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_METRICS_DEADLINE_S", 30.0)
    monkeypatch.setenv("A_KEY", KEY)
    with serving(StubEngine(get=VLLM, key=KEY)) as url:
        assert metrics(url, "A_KEY") == VLLM["/metrics"][2]
        assert metrics(url) is None


@pytest.mark.parametrize("raw", [hanging, trickling(HEAD), endless])
def test_metrics_that_do_not_come_in_time_are_none(
    monkeypatch: pytest.MonkeyPatch, raw: Raw
) -> None:
    monkeypatch.setattr(endpoint, "_METRICS_DEADLINE_S", 0.3)
    with serving(StubEngine(raw={"/metrics": raw})) as url:
        assert metrics(url) is None


def test_an_engine_that_is_gone_has_no_metrics() -> None:
    assert metrics(f"http://127.0.0.1:{free_port()}") is None


@pytest.mark.parametrize("text", ["-1", "NaN", "1e400", "99999999999999999", "...", "1"])
def test_an_odd_start_time_is_not_a_failure(text: str) -> None:
    get: dict[str, Answer] = PLAIN | {
        "/metrics": (200, {}, f"process_start_time_seconds {text}\n".encode())
    }
    with serving(StubEngine(get=get)) as url:
        started = read_back(url).process_started

    assert started == ("1970-01-01T00:00:01.000000Z" if text == "1" else None)


@pytest.mark.parametrize(
    ("health", "models", "ready"),
    [(200, 404, True), (503, 200, False), (404, 200, True), (404, 503, False), (500, 200, False)],
)
def test_ready_is_what_health_says_or_the_model_list_without_it(
    health: int, models: int, ready: bool
) -> None:
    get: dict[str, Answer] = {"/health": (health, {}, b""), "/v1/models": (models, {}, b"")}
    with serving(StubEngine(get=get)) as url:
        assert answers(url) is ready


def test_nobody_there_is_not_ready_and_cannot_be_read_back() -> None:
    url = f"http://127.0.0.1:{free_port()}"

    assert not answers(url)
    with pytest.raises(EngineError, match="no engine answers"):
        read_back(url)
