"""Where an engine answers, and how it is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from tokenwatt_site.schema import Argument, BaseUrl, GrowingModel, Line, VariableName

Api: TypeAlias = Literal["completions", "chat"]

API_PATHS: Mapping[Api, str] = MappingProxyType(
    {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
)
"""Where each API answers, below the base of an engine's address."""


def _relative_path(text: str) -> str:
    # All of a spec is published: an absolute path would tell how a machine is laid out.
    if re.match(r"[/\\~]|[A-Za-z]:", text):
        raise ValueError("a path from the folder of the command, such as models/x/tokenizer.json")
    return text


MAX_REPLICAS = 64
"""Of one engine that are asked apart."""


class Endpoint(GrowingModel):
    """Where the engine answers, and how it is asked. Not identity: a port changes no result.

    `urls`, in the place of `url`, are of replicas that are asked apart: row i of a trial is sent to
    number i mod R of them, without a balancer.
    `api_key_variable` names the environment variable with the key; the key is in no file.
    `prompt` is what completions are asked with, token ids where it is absent; chat takes text.
    `tokenizer` is the model's tokenizer.json, by which text has exact lengths: a path from the
    folder in which the command runs. Where it is absent the engine's own /tokenize is asked.
    `model_files` is the folder of the model's config.json, by which bytes per step are modelled, a
    path from that folder too. `restart` is a command, without a shell, that ends an attached engine
    and starts it anew; it must return once that is under way.
    """

    younger = frozenset({"urls"})

    start: Literal["launch", "attach"]
    url: BaseUrl | None = None
    urls: Annotated[tuple[BaseUrl, ...], Field(min_length=2, max_length=MAX_REPLICAS)] | None = None
    api: Api
    model: Line
    vocabulary: Annotated[int, Field(ge=1000, le=10_000_000)]
    ready_timeout_s: Annotated[int, Field(ge=1, le=7200)] = 600
    api_key_variable: VariableName | None = None
    prompt: Literal["ids", "text"] | None = None
    tokenizer: Annotated[Line, AfterValidator(_relative_path)] | None = None
    model_files: Annotated[Line, AfterValidator(_relative_path)] | None = None
    restart: Annotated[tuple[Argument, ...], Field(min_length=1, max_length=100)] | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it is attached: one, or one of each replica; empty where it is launched."""
        return self.urls or (() if self.url is None else (self.url,))

    @property
    def replicas(self) -> int:
        """How many are asked apart; 1: one address is asked, whatever stands behind it."""
        return max(1, len(self.addresses))

    @property
    def over_tls(self) -> bool:
        """Whether any of it is."""
        return any(url.startswith("https:") for url in self.addresses)

    @property
    def prompt_kind(self) -> Literal["ids", "text"]:
        return self.prompt or ("text" if self.api == "chat" else "ids")

    @model_validator(mode="after")
    def _prompts_go_together(self) -> Endpoint:
        if self.api == "chat" and self.prompt == "ids":
            raise ValueError("api: chat takes text; remove prompt: ids, or use api: completions")
        if self.tokenizer is not None and self.prompt_kind == "ids":
            raise ValueError("token ids need no tokenizer; remove tokenizer, or add prompt: text")
        return self

    @model_validator(mode="after")
    def _url_when_attached(self) -> Endpoint:
        if self.start == "attach" and not self.addresses:
            raise ValueError("start: attach needs url, or urls of its replicas")
        if self.url is not None and self.urls is not None:
            raise ValueError("url is of one engine, urls are of its replicas: give one of them")
        if any(url.rstrip("/").endswith("/v1") for url in self.addresses):
            raise ValueError("url is the base of the API, without /v1")
        if self.start == "launch" and self.addresses:
            raise ValueError("start: launch chooses its own port; remove url")
        return self

    @model_validator(mode="after")
    def _each_replica_once(self) -> Endpoint:
        bases = [url.rstrip("/") for url in self.addresses]
        for base in bases:
            if bases.count(base) > 1:
                raise ValueError(f"urls names {base} more than once")
        return self

    @model_validator(mode="after")
    def _restart_when_attached(self) -> Endpoint:
        if self.start == "launch" and self.restart is not None:
            raise ValueError("start: launch starts the engine for each repeat; remove restart")
        return self
