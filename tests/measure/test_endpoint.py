from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenwatt_site
from tests.measure.stub_engine import Answer, StubEngine, as_json, serving
from tokenwatt_site.errors import EngineError
from tokenwatt_site.measure import endpoint
from tokenwatt_site.measure.endpoint import EngineFacts, _llama_build, answers, read_back
from tokenwatt_site.measure.endpoint import request_body as body_of
from tokenwatt_site.measure.engine import free_port

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


def test_a_completion_is_asked_for_by_ids_and_with_a_fixed_length() -> None:
    assert json.loads(body_of("completions", "m", (5, 6), 7)) == {
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
    body = json.loads(body_of("chat", "m", "some words", 7))

    assert body["messages"] == [{"role": "user", "content": "some words"}]
    assert "prompt" not in body


@pytest.mark.parametrize(
    ("get", "facts"),
    [
        (LLAMA, EngineFacts("llama.cpp", "b6789", "abcdef01", ("toy", "t"), 1024, 49152, None)),
        (
            VLLM,
            EngineFacts("vLLM", "0.32.0", None, ("m",), 8192, None, "2026-12-01T17:31:40.000000Z"),
        ),
        (SGLANG, EngineFacts("SGLang", "0.6.1", None, ("m",), 4096, None, None)),
        ({}, EngineFacts(None, None, None, (), None, None, None)),
        (
            {"/version": as_json({"version": "1.2"})},
            EngineFacts(None, "1.2", None, (), None, None, None),
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
    content = json.dumps(value).encode()
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, content=content))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(endpoint, "_client", lambda: httpx2.Client(transport=transport))
        facts = read_back("http://engine")

    assert all(isinstance(name, str) for name in facts.models)
    assert facts.context_tokens is None or facts.context_tokens > 0


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"null"])
def test_an_answer_that_is_no_object_says_nothing(raw: bytes) -> None:
    with serving(StubEngine(get={"/v1/models": (200, {}, raw)})) as url:
        assert read_back(url).models == ()


@pytest.mark.parametrize("text", ["-1", "1e400", "99999999999999999", "...", "1"])
def test_an_odd_start_time_is_not_a_failure(text: str) -> None:
    get: dict[str, Answer] = {
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


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    with serving(StubEngine(get=VLLM)) as url:
        assert read_back(url).name == "vLLM"


def test_no_other_module_uses_the_http_library() -> None:
    users = set()
    for path in Path(tokenwatt_site.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            users |= {path.name for name in names if name.split(".")[0] == "httpx2"}

    assert users == {"endpoint.py"}
