"""What is asked of an engine outside the trials: whether it is ready, who it is, single probes.

The load itself goes through `client`, with the bytes that `request_body` makes here, so a probe
asks exactly what the trials ask.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tokenwatt_site.canonical import JsonValue, clean_text
from tokenwatt_site.endpoint import API_PATHS, Api
from tokenwatt_site.errors import EngineError, InputError, Problem
from tokenwatt_site.measure import prometheus
from tokenwatt_site.measure.clock import utc_text
from tokenwatt_site.measure.control import MAX_BYTES, Answer, request, require_address
from tokenwatt_site.measure.stream import EventSplitter, StreamParser, StreamSummary, error_text
from tokenwatt_site.run import SIMULATED_ENGINE
from tokenwatt_site.spec import Spec

_DEADLINE_S = 10.0
_METRICS_DEADLINE_S = 0.9  # asked once a second
_BYTES_PER_TOKEN = 2 << 10  # an event with usage and timings has below 1 KiB


def request_body(
    api: Api,
    model: str,
    prompt: Sequence[int] | str,
    output_tokens: int,
    *,
    may_be_cached: bool,
) -> bytes:
    """Return the body of one streamed request for exactly `output_tokens` tokens.

    Greedy (temperature 0) with the end token ignored is what load tests use: the length is what
    the workload says, sampling costs the least, and the same prompt gives the same answer.
    Engines skip the fields they do not know: `min_tokens` (vLLM, SGLang), `ignore_eos` (all),
    `continuous_usage_stats` (vLLM) and `timings_per_token` (llama.cpp) tell how many tokens an
    event carries, `cache_prompt` (llama.cpp) tells whether a slot may reuse an earlier prompt:
    never, where the workload repeats none of it.
    """
    asked: dict[str, JsonValue] = {
        "model": model,
        "max_tokens": output_tokens,
        "min_tokens": output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "cache_prompt": may_be_cached,
        "timings_per_token": True,
    }
    if api == "chat":
        asked["messages"] = [{"role": "user", "content": prompt}]
    else:
        asked["prompt"] = prompt if isinstance(prompt, str) else list(prompt)
    return json.dumps(asked, separators=(",", ":")).encode()


def metrics(url: str, api_key_variable: str | None = None) -> bytes | None:
    """Return what the engine at `url` says at /metrics; None: nothing in time, or nothing there."""
    try:
        answer = request(
            f"{url}/metrics",
            deadline_s=_METRICS_DEADLINE_S,
            api_key_variable=api_key_variable,
        )
    except EngineError:
        return None
    return answer.body if answer.status == 200 else None


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


def answers(url: str, models_path: str = "/v1/models", api_key_variable: str | None = None) -> bool:
    """Tell whether the engine at `url` is ready: /health, or its model list where there is none."""
    try:
        status = _get(f"{url}/health", api_key_variable).status
        if status in {404, 405}:
            status = _get(f"{url}{models_path}", api_key_variable).status
    except EngineError:
        return False
    return status == 200


def read_back(url: str, api_key_variable: str | None = None) -> EngineFacts:
    """Ask an engine who it is.

    Args:
        url: its base.
        api_key_variable: the environment variable with its key; None sends no key.

    Raises:
        UsageError: `url` is no address that can be asked, or the variable is not set.
        EngineError: nothing answers at `url`, what answers lists no model, or an answer has no end.
    """
    require_address(url)

    def ask(path: str) -> Answer:
        return _get(f"{url}{path}", api_key_variable)

    models = ask("/v1/models")
    rows = [row for row in _rows(_mapping(models).get("data")) if isinstance(row.get("id"), str)]
    told = [name for row in rows for name in (row["id"], *_texts(row.get("aliases")))]
    names = tuple(dict.fromkeys(cleaned for text in told if (cleaned := clean_text(text))))
    if not names:
        raise _no_engine(url, models, api_key_variable)
    owners = {owner for row in rows if (owner := _text(row.get("owned_by")))}
    contexts = [n for row in rows if (n := _count(row.get("max_model_len")))]
    vocabulary = next(
        (n for row in rows if (n := _count(_inner(row.get("meta"), "n_vocab")))), None
    )
    name = version = build = None
    if "llama.cpp" in models.server or "llamacpp" in owners:
        name = "llama.cpp"
        props = _mapping(ask("/props"))
        version, build = _llama_build(props.get("build_info"))
        slot = _count(_inner(props.get("default_generation_settings"), "n_ctx"))
        contexts = [slot] if slot else contexts
    elif "sglang" in owners:
        name = "SGLang"
        version = _text(_mapping(ask("/get_server_info")).get("version"))
    else:
        known = {"vllm": "vLLM", SIMULATED_ENGINE: SIMULATED_ENGINE}
        name = next((known[owner] for owner in owners if owner in known), None)
        version = _text(_mapping(ask("/version")).get("version"))
    return EngineFacts(
        name=name,
        version=version,
        build=build,
        models=names,
        context_tokens=min(contexts) if contexts else None,
        vocabulary=vocabulary,
        process_started=_process_start(ask("/metrics")),
    )


def _no_engine(url: str, models: Answer, api_key_variable: str | None) -> EngineError:
    remedy = "Give the base of an engine, without /v1, such as http://127.0.0.1:8000."
    if url.endswith("/v1"):
        remedy = f"Give the base without /v1: {url.removesuffix('/v1')}"
    elif models.status in {401, 403}:
        remedy = "It wants a key: endpoint.api_key_variable names the environment variable with it."
        if api_key_variable is not None:
            remedy = f"It does not take the key in the environment variable {api_key_variable}."
    kind = models.content_type or "no content type"
    return EngineError(
        Problem(
            "is no engine: it lists no model",
            field="endpoint.url",
            found=f"HTTP {models.status}, {kind} from {url}/v1/models",
            expected="HTTP 200 with the models as JSON",
            remedy=remedy,
        )
    )


@dataclass(frozen=True, slots=True)
class Reply:
    """Usage of one probe, in how many events its tokens came, and how long it took."""

    prompt_tokens: int
    cached_tokens: int | None
    events: int
    elapsed_s: float


class Prober:
    """Sends single requests as the trials send them; its errors say which probe it was."""

    def __init__(self, spec: Spec, url: str) -> None:
        self._api = spec.endpoint.api
        self._model = spec.endpoint.model
        self._may_be_cached = spec.setup.conversation is not None
        self._url = f"{url}{API_PATHS[self._api]}"
        self._key_variable = spec.endpoint.api_key_variable
        self._timeout_s = spec.protocol.request_timeout_s
        self._sent = 0

    def ask(self, name: str, prompt: Sequence[int] | str, tokens: int) -> Reply:
        """Ask for exactly `tokens` tokens; `name` is what errors call the probe.

        Raises:
            EngineError: refused, no whole answer, no usage, usage that is no count, or another
                number of tokens.
        """
        with self._named(name):
            begun = time.monotonic()
            summary, fault = self._send(self._model, prompt, tokens)
            elapsed_s = time.monotonic() - begun
            if fault is not None:
                raise EngineError(
                    Problem(
                        f"the engine refuses a probe: {fault}",
                        field="endpoint",
                        found=self._url,
                        remedy=None
                        if isinstance(prompt, str)
                        else "Where it takes no token ids: endpoint.prompt: text.",
                    )
                )
            prompt_tokens = self._require_tokens(summary, tokens)
        return Reply(prompt_tokens, summary.cached_tokens, summary.events, elapsed_s)

    def accepts(self, name: str, model: str, prompt: Sequence[int] | str) -> bool:
        """Tell whether the engine answers under this model name.

        Raises:
            EngineError: no whole answer.
        """
        with self._named(name):
            return self._send(model, prompt, 2)[1] is None

    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        self._sent += 1
        try:
            yield
        except EngineError as error:
            which = f"probe {self._sent}, {name}"
            raise EngineError(
                *(replace(problem, what=f"{which}: {problem.what}") for problem in error.problems)
            ) from error

    def _send(
        self, model: str, prompt: Sequence[int] | str, tokens: int
    ) -> tuple[StreamSummary, str | None]:
        """Return what a streamed answer said, and what went wrong."""
        answer = request(
            self._url,
            deadline_s=self._timeout_s,
            content=request_body(
                self._api, model, prompt, tokens, may_be_cached=self._may_be_cached
            ),
            max_bytes=max(MAX_BYTES, _BYTES_PER_TOKEN * tokens),
            api_key_variable=self._key_variable,
        )
        parser = StreamParser()
        if answer.status != 200:
            text = error_text(answer.body) or clean_text(answer.body.decode("utf-8", "replace"))
            return parser.summary(), f"HTTP {answer.status}: {text}"
        _require_counts(answer.body)
        parser.feed(0, 0, 0, answer.body)
        summary = parser.finish(0, 0)
        return summary, summary.error

    def _require_tokens(self, summary: StreamSummary, tokens: int) -> int:
        """Return the prompt tokens of an answer of `tokens` tokens."""
        got = summary.output_tokens
        if got != tokens and not (summary.ended or summary.finish_reason):
            # Where the end of the connection ends the answer, HTTP cannot tell that it broke off.
            raise EngineError(
                Problem(
                    "the answer broke off: no finish reason and no [DONE]",
                    field="endpoint.url",
                    found=self._url,
                    remedy="The engine's log may say why.",
                )
            )
        if summary.prompt_tokens is None or got is None:
            raise EngineError(
                Problem(
                    "the engine reports no usage, so tokens cannot be counted",
                    field="stream_options.include_usage",
                )
            )
        if got != tokens:
            raise EngineError(
                Problem(
                    "the engine does not give the number of tokens asked for",
                    field="ignore_eos, min_tokens, max_tokens",
                    found=f"{got} tokens for a prompt of {summary.prompt_tokens}",
                    expected=f"{tokens} tokens",
                    remedy="Use an engine that honours ignore_eos or min_tokens; if the prompt "
                    "and the answer together are long, give it more context.",
                )
            )
        return summary.prompt_tokens


_COUNTS = (
    ("prompt_tokens",),
    ("completion_tokens",),
    ("prompt_tokens_details", "cached_tokens"),
    ("prompt_cache_hit_tokens",),
)


def _require_counts(stream: bytes) -> None:
    """Refuse usage that `StreamParser` would have to take for "not told"."""
    splitter = EventSplitter()
    for event in (*splitter.feed(stream), *splitter.finish()):
        try:
            usage = _inner(json.loads(event), "usage")
        except (ValueError, RecursionError):
            continue  # `[DONE]`, or an error of the parser's
        for path in _COUNTS:
            value = usage
            for key in path:
                value = _inner(value, key)
            if value is None or (type(value) is int and 0 <= value < 2**53):
                continue
            plain = isinstance(value, str | int | float)
            raise EngineError(
                Problem(
                    "the engine's usage holds no count",
                    field=".".join(("usage", *path)),
                    found=clean_text(json.dumps(value) if plain else type(value).__name__),
                    expected="a whole number from 0 to 2^53 - 1",
                )
            )


def _get(url: str, api_key_variable: str | None = None) -> Answer:
    return request(url, deadline_s=_DEADLINE_S, api_key_variable=api_key_variable)


def _mapping(answer: Answer) -> dict[str, JsonValue]:
    if answer.status != 200:
        return {}
    try:
        value = json.loads(answer.body)
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


def _process_start(answer: Answer) -> str | None:
    if answer.status != 200:
        return None
    try:
        told = prometheus.parse(answer.body, source="the engine's metrics")
        times = [s.value for s in told.samples("process_start_time_seconds") if s.value >= 0]
        return utc_text(datetime.fromtimestamp(times[0], UTC)) if times else None
    except (InputError, ValueError, OverflowError, OSError):
        return None
