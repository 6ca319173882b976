"""What is asked of an engine outside the trials: whether it is ready, who it is, single probes.

The only user of the HTTP client library. The load itself goes through `client`, with the bytes
that `request_body` makes here, so a probe asks exactly what the trials ask.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Self

import httpx2

from tokenwatt_site.canonical import JsonValue, clean_text
from tokenwatt_site.errors import EngineError, Problem
from tokenwatt_site.measure.stream import StreamParser, StreamSummary, error_text
from tokenwatt_site.run import SIMULATED_ENGINE
from tokenwatt_site.spec import Spec

PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}

_CONTROL_TIMEOUT_S = 10.0


def request_body(
    api: Literal["completions", "chat"], model: str, prompt: Sequence[int] | str, output_tokens: int
) -> bytes:
    """Return the body of one streamed request for exactly `output_tokens` tokens.

    Greedy (temperature 0) with the end token ignored is what load tests use: the length is what
    the workload says, sampling costs the least, and the same prompt gives the same answer.
    Engines skip the fields they do not know: `min_tokens` (vLLM, SGLang), `ignore_eos` (all),
    `continuous_usage_stats` (vLLM) and `timings_per_token` (llama.cpp) tell how many tokens an
    event carries, `cache_prompt` false (llama.cpp) keeps a slot from reusing an earlier prompt.
    """
    asked: dict[str, JsonValue] = {
        "model": model,
        "max_tokens": output_tokens,
        "min_tokens": output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "cache_prompt": False,
        "timings_per_token": True,
    }
    if api == "chat":
        asked["messages"] = [{"role": "user", "content": prompt}]
    else:
        asked["prompt"] = prompt if isinstance(prompt, str) else list(prompt)
    return json.dumps(asked, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine says of itself; None where it says nothing that can be used.

    `context_tokens` is what one sequence may hold, prompt and answer together. `process_started`
    is UTC text. `vocabulary` is the number of token ids.
    """

    name: str | None
    version: str | None
    build: str | None
    models: tuple[str, ...]
    context_tokens: int | None
    vocabulary: int | None
    process_started: str | None


def answers(url: str, models_path: str = "/v1/models") -> bool:
    """Tell whether the engine at `url` is ready: /health, or its model list where there is none."""
    try:
        with _client() as client:
            status = client.get(f"{url}/health").status_code
            if status in {404, 405}:
                status = client.get(f"{url}{models_path}").status_code
    except httpx2.HTTPError:
        return False
    return status == 200


def read_back(url: str) -> EngineFacts:
    """Ask an engine who it is.

    Raises:
        EngineError: nothing answers at `url`.
    """
    with _client() as client, _engine_errors(url):
        models = client.get(f"{url}/v1/models")
        listed = _mapping(models)
        rows = [row for row in _rows(listed.get("data")) if isinstance(row.get("id"), str)]
        owners = {owner for row in rows if (owner := _text(row.get("owned_by")))}
        server = models.headers.get("server", "")
        names = [name for row in rows for name in (row["id"], *_texts(row.get("aliases")))]
        contexts = [n for row in rows if (n := _count(row.get("max_model_len")))]
        vocabulary = next(
            (n for row in rows if (n := _count(_inner(row.get("meta"), "n_vocab")))), None
        )
        name = version = build = None
        if "llama.cpp" in server or "llamacpp" in owners:
            name = "llama.cpp"
            props = _mapping(client.get(f"{url}/props"))
            version, build = _llama_build(props.get("build_info"))
            slot = _count(_inner(props.get("default_generation_settings"), "n_ctx"))
            contexts = [slot] if slot else contexts
        elif "sglang" in owners:
            name = "SGLang"
            version = _text(_mapping(client.get(f"{url}/get_server_info")).get("version"))
        else:
            known = {"vllm": "vLLM", SIMULATED_ENGINE: SIMULATED_ENGINE}
            name = next((known[owner] for owner in owners if owner in known), None)
            version = _text(_mapping(client.get(f"{url}/version")).get("version"))
        started = _process_start(client.get(f"{url}/metrics"))
    return EngineFacts(
        name=name,
        version=version,
        build=build,
        models=tuple(dict.fromkeys(clean_text(n) for n in names)),
        context_tokens=min(contexts) if contexts else None,
        vocabulary=vocabulary,
        process_started=started,
    )


@dataclass(frozen=True, slots=True)
class Reply:
    """Usage of one probe and how long it took."""

    prompt_tokens: int
    cached_tokens: int | None
    elapsed_s: float


class Prober:
    """Sends single requests as the trials send them."""

    def __init__(self, spec: Spec, url: str) -> None:
        self._api = spec.endpoint.api
        self._model = spec.endpoint.model
        self._url = f"{url}{PATHS[self._api]}"
        self._client = _client(spec.protocol.request_timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(self, prompt: Sequence[int] | str, tokens: int) -> Reply:
        """Ask for exactly `tokens` tokens.

        Raises:
            EngineError: refused, no usage, or another number of tokens.
        """
        begun = time.monotonic()
        summary, fault = self._send(self._model, prompt, tokens)
        elapsed_s = time.monotonic() - begun
        if fault is not None:
            raise EngineError(
                Problem(f"the engine refuses a probe: {fault}", field="endpoint", found=self._url)
            )
        if summary.prompt_tokens is None or summary.output_tokens is None:
            raise EngineError(
                Problem(
                    "the engine reports no usage, so tokens cannot be counted",
                    field="stream_options.include_usage",
                )
            )
        if summary.output_tokens != tokens:
            raise EngineError(
                Problem(
                    "the engine does not give the number of tokens asked for",
                    field="ignore_eos, min_tokens, max_tokens",
                    found=f"{summary.output_tokens} tokens for a prompt of {summary.prompt_tokens}",
                    expected=f"{tokens} tokens",
                    remedy="Use an engine that honours ignore_eos or min_tokens; if the prompt "
                    "and the answer together are long, give it more context.",
                )
            )
        return Reply(summary.prompt_tokens, summary.cached_tokens, elapsed_s)

    def accepts(self, model: str, prompt: Sequence[int] | str) -> bool:
        """Tell whether the engine answers under this model name."""
        return self._send(model, prompt, 2)[1] is None

    def _send(
        self, model: str, prompt: Sequence[int] | str, tokens: int
    ) -> tuple[StreamSummary, str | None]:
        """Return what a streamed answer said, and what went wrong."""
        parser = StreamParser()
        body = request_body(self._api, model, prompt, tokens)
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        with (
            _engine_errors(self._url),
            self._client.stream("POST", self._url, content=body, headers=headers) as response,
        ):
            if response.status_code != 200:
                data = response.read()
                text = error_text(data) or clean_text(data.decode("utf-8", "replace"))
                return parser.summary(), f"HTTP {response.status_code}: {text}"
            for piece in response.iter_raw():
                parser.feed(time.monotonic_ns(), 0, 0, piece)
        summary = parser.finish(time.monotonic_ns(), 0)
        return summary, summary.error


def _client(timeout_s: float = _CONTROL_TIMEOUT_S) -> httpx2.Client:
    return httpx2.Client(
        # A proxy of the environment must not stand between us and the engine.
        trust_env=False,
        timeout=httpx2.Timeout(timeout_s, connect=5.0),
        # A connection for each request: llama.cpp closes kept ones without notice after seconds,
        # and the library does not send again what it sent on a closed connection.
        limits=httpx2.Limits(max_keepalive_connections=0),
    )


@contextmanager
def _engine_errors(url: str) -> Iterator[None]:
    """The one place where errors of the HTTP library become ours."""
    try:
        yield
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise EngineError(
            Problem(
                f"no engine answers: {clean_text(str(error)) or type(error).__name__}",
                field="endpoint.url",
                found=url,
                remedy="Start the engine, or correct the address (without /v1).",
            )
        ) from error


def _mapping(response: httpx2.Response) -> dict[str, JsonValue]:
    if response.status_code != 200:
        return {}
    try:
        value = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _rows(value: JsonValue) -> list[dict[str, JsonValue]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _texts(value: JsonValue) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _inner(value: JsonValue, key: str) -> JsonValue:
    return value.get(key) if isinstance(value, dict) else None


def _count(value: JsonValue) -> int | None:
    return value if type(value) is int and value > 0 else None


def _text(value: JsonValue) -> str | None:
    return clean_text(value) or None if isinstance(value, str) else None


def _llama_build(build_info: JsonValue) -> tuple[str | None, str | None]:
    """Split "b4567-abcdef"; "b0-unknown" is what a build says that does not know itself."""
    number, _, commit = (_text(build_info) or "").partition("-")
    if not re.fullmatch(r"b[1-9][0-9]*", number):
        return None, None
    return number, commit if commit and commit != "unknown" else None


def _process_start(response: httpx2.Response) -> str | None:
    match = re.search(r"^process_start_time_seconds ([0-9.e+]+)$", response.text, re.MULTILINE)
    if match is None or response.status_code != 200:
        return None
    try:
        started = datetime.fromtimestamp(float(match[1]), UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return started.isoformat(timespec="microseconds").replace("+00:00", "Z")
