"""What a request asks for, and the tokens of its prompt."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Api: TypeAlias = Literal["completions", "chat"]

DEFAULT_TOKENS = 16
WORD_IDS = 1 << 15
"""Words have ids below this, which every vocabulary has."""


def tokenise(prompt: object) -> tuple[int, ...]:
    """Return a token for each word of a text, or the ids as they are; at least one.

    The same word has the same id always, so equal beginnings of prompts can be found in a cache.

    Raises:
        ValueError: with the message that the answer 400 carries.
    """
    if isinstance(prompt, str):
        words = (word.encode("utf-8", "replace") for word in prompt.split())
        tokens = tuple(zlib.crc32(word) % WORD_IDS for word in words)
    elif isinstance(prompt, list):
        if not all(type(token) is int and token >= 0 for token in prompt):
            raise ValueError("prompt is a list of something else than token ids")
        tokens = tuple(prompt)
    else:
        tokens = ()
    if not tokens:
        raise ValueError("prompt is missing")
    return tokens


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a request body.

    Raises:
        ValueError: with the message that the answer 400 carries.
    """
    try:
        request = json.loads(body)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(request, dict):
        raise ValueError("the request is no object")  # noqa: TRY004 - one error for all
    return request


def prompt_of(api: Api, request: dict[str, Any], template_tokens: int) -> tuple[int, ...]:
    """Return the tokens of `messages` or of `prompt`, as the API has it.

    A chat template puts its tokens, no word's and always the same, before the messages.

    Raises:
        ValueError: with the message that the answer 400 carries.
    """
    if api == "completions":
        return tokenise(request.get("prompt"))
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages is missing")
    text = " ".join(str(m.get("content")) for m in messages if isinstance(m, dict))
    return (*range(WORD_IDS, WORD_IDS + template_tokens), *tokenise(text))


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for an answer.

    Attributes:
        prompt: its token ids.
        streamed: whether tokens are sent as they come; else all together after the last.
        stop: texts before which an answer ends that is not streamed; streams ignore them.
    """

    api: Api
    model: str
    prompt: tuple[int, ...]
    output_tokens: int
    include_usage: bool
    ignore_eos: bool
    continuous_usage: bool = False
    timings_per_token: bool = False
    streamed: bool = True
    stop: tuple[str, ...] = ()

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt)

    @classmethod
    def parse(cls, api: Api, body: bytes, template_tokens: int) -> Asked:
        """Read a request body; a chat's prompt begins with so many tokens of a template.

        Raises:
            ValueError: with the message that the answer 400 carries.
        """
        request = parse_object(body)
        streamed = request.get("stream") or False
        if type(streamed) is not bool:
            raise ValueError("stream is neither true nor false")
        given = (request.get(name) for name in ("max_completion_tokens", "max_tokens"))
        asked = next((value for value in given if value is not None), DEFAULT_TOKENS)
        if type(asked) is not int or asked < 1:
            raise ValueError("max_tokens is no positive whole number")
        options = request.get("stream_options")
        options = options if isinstance(options, dict) else {}
        return cls(
            api=api,
            model=str(request.get("model", "")),
            prompt=prompt_of(api, request, template_tokens),
            output_tokens=asked,
            include_usage=options.get("include_usage") is True,
            ignore_eos=request.get("ignore_eos") is True,
            continuous_usage=options.get("continuous_usage_stats") is True,
            timings_per_token=request.get("timings_per_token") is True,
            streamed=streamed,
            stop=_stop(request.get("stop")),
        )


def _stop(given: object) -> tuple[str, ...]:
    if given is None:
        return ()
    marks = given if isinstance(given, list) else [given]
    if not all(isinstance(mark, str) and mark for mark in marks):
        raise ValueError("stop is no text, and no list of texts")
    return tuple(marks)
