"""What the simulated server knows of its requests, and what it answers at once.

Everything here happens in the event loop's thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

from tokenwatt_site.run import SIMULATED_ENGINE
from tokenwatt_site.simulate.asked import Api, Asked, parse_object, prompt_of
from tokenwatt_site.simulate.engine import Engine, Generation, Request, Step
from tokenwatt_site.simulate.exposition import CONTENT_TYPE, Exposition
from tokenwatt_site.simulate.pacer import Pacer
from tokenwatt_site.simulate.script import Script
from tokenwatt_site.simulate.truth import Ended, Keep, Moment, Served

ScriptOf: TypeAlias = Callable[[int], Script]
Made: TypeAlias = Callable[[Generation, Step], None]
"""Takes a token that was made in a step."""


class Plain(NamedTuple):
    """An answer that is there at once."""

    status: int
    body: bytes
    content_type: str = "application/json"


class Desk:
    """Where requests are taken in and seen out.

    Args:
        script_of: from a request's number to its script; `model` is that of request 0.
        engine: makes the tokens; None leaves their times to the script.
        keep: takes each request once it has ended, instead of `log`.
        failed: told what `keep` raised; no more is kept then.

    Attributes:
        log: the truth about every request, in order of receipt.
        in_progress: how many were taken in and not yet seen out.
    """

    def __init__(
        self,
        script_of: ScriptOf,
        engine: Engine | None,
        keep: Keep | None,
        failed: Callable[[OSError], None],
    ) -> None:
        self.script_of = script_of
        self.log: list[Served] = []
        self.in_progress = 0
        self._model = script_of(0).model
        self._engine = engine
        self._exposition = Exposition(engine, self._model, time.time()) if engine else None
        self._pacer: Pacer | None = None
        self._keep = keep
        self._failed = failed
        self._received = 0
        self._answering: dict[int, Made] = {}

    def open(self) -> None:
        """Begin; called in the event loop that will serve."""
        if self._engine is not None and self._exposition is not None:
            self._pacer = Pacer(self._engine, self._exposition.step, self._made)

    def plain(self, method: str, path: str, body: bytes) -> Plain:
        """Answer what is no request for tokens."""
        asked = (method, path)
        if asked == ("GET", "/health"):
            return _json(200, {})
        if asked == ("GET", "/version"):
            return _json(200, {"version": "simulated"})
        if asked == ("GET", "/v1/models"):
            entry: dict[str, Any] = {"id": self._model, "object": "model"}
            entry["owned_by"] = SIMULATED_ENGINE  # by which runs against it are marked
            if self._max_model_len is not None:
                entry["max_model_len"] = self._max_model_len
            return _json(200, {"object": "list", "data": [entry]})
        if asked == ("GET", "/metrics") and self._exposition is not None:
            return Plain(200, self._exposition.text().encode(), CONTENT_TYPE)
        if asked == ("POST", "/tokenize"):
            return self._tokenize(body)
        return _json(404, {"error": {"message": f"no {path} here"}})

    @property
    def _max_model_len(self) -> int | None:
        return None if self._engine is None else self._engine.limits.max_model_len

    def _tokenize(self, body: bytes) -> Plain:
        """Answer as vLLM does; `max_model_len` is null where a script holds any length."""
        try:
            request = parse_object(body)
            api: Api = "chat" if "messages" in request else "completions"
            tokens = prompt_of(api, request, self.script_of(0).template_tokens)
        except ValueError as error:
            return refusal(400, str(error))
        told = {"count": len(tokens), "max_model_len": self._max_model_len}
        return _json(200, {**told, "tokens": tokens, "token_strs": None})

    def receive(self, api: Api, body: bytes, received: Moment) -> Served:
        """Begin the truth about a request."""
        served = Served(self._received, api, body, received)
        self._received += 1
        self.in_progress += 1
        if self._keep is None:
            self.log.append(served)
        return served

    def end(self, served: Served, how: Ended) -> None:
        """End the truth about a request."""
        served.ended, served.ended_at = how, Moment.now()
        self.in_progress -= 1
        if self._keep is not None:
            try:
                self._keep(served)
            except OSError as error:
                self._keep = _forget
                self._failed(error)

    def refused(self, script: Script, asked: Asked) -> Plain | None:
        """Return the answer to a request that is refused, or None."""
        if script.refuse_unknown and asked.model != script.model:
            return refusal(404, f"the model {asked.model!r} does not exist", "NotFoundError")
        if script.http_status != 200 or script.error_body:
            return refusal(script.http_status, "the script says so")
        limit, given = self._max_model_len, asked.prompt_tokens
        if limit is None or given + asked.output_tokens <= limit:
            return None
        return refusal(  # vLLM's words, by which clients know it
            400,
            f"This model's maximum context length is {limit} tokens. However, you requested"
            f" {asked.output_tokens} output tokens and your prompt contains {given} input tokens,"
            f" for a total of {given + asked.output_tokens} tokens. Please reduce the length of the"
            " input prompt or the number of requested output tokens."
            f" (parameter=input_tokens, value={given})",
            "BadRequestError",
            param="input_tokens",
        )

    def submit(self, request: Request, made: Made) -> Generation | None:
        """Queue a request, each of whose tokens goes to `made`; None where there is no engine."""
        if self._pacer is None:
            return None
        self._answering[request.number] = made
        return self._pacer.submit(request)

    def answered(self, generation: Generation, finish: Literal["length", "stop"] | None) -> None:
        """Forget a request; one without a `finish` is taken out of the engine."""
        del self._answering[generation.request.number]
        if finish is None and self._pacer is not None:
            self._pacer.abort(generation)
        if self._exposition is not None:
            self._exposition.ended(generation, finish or "abort")

    def _made(self, generation: Generation, step: Step) -> None:
        if self._exposition is not None:
            self._exposition.token(generation)
        if made := self._answering.get(generation.request.number):
            made(generation, step)


def refusal(status: int, message: str, kind: str = "error", *, param: str | None = None) -> Plain:
    """Return an error as vLLM writes it."""
    error = {"message": message, "type": kind, "param": param, "code": status}
    return _json(status, {"error": error})


def _json(status: int, value: dict[str, Any]) -> Plain:
    return Plain(status, json.dumps(value).encode())


def _forget(_: Served) -> None:
    return
