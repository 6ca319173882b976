"""The log-probability of a continuation, from an answer that echoes its prompt. No I/O here.

The format is that of OpenAI's completions before chat: lists `tokens`, `token_logprobs` and
`top_logprobs`, first the prompt's, then what was generated. As read in the sources: vLLM writes so
(serving_completion.py), its first token being the one that begins a sequence, with a text of its
own, so `text_offset` is not the place in the prompt; SGLang writes -1 for every offset
(entrypoints/openai/utils.py). So tokens are laid against the continuation from its end.
llama.cpp's server does not echo: it gives the new token alone, in `logprobs.content` (tried).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from tokenwatt_site.canonical import JsonValue, canonical_bytes
from tokenwatt_site.errors import EngineError
from tokenwatt_site.measure.accuracy.completion import answer_of, count, only_choice, shown
from tokenwatt_site.measure.accuracy.task import Choice

_FURTHEST = 1e6
"""From 0; vLLM ends at -9999."""


def choice_body(model: str, choice: Choice) -> bytes:
    """Return the request that has a prompt and its continuation weighed.

    One token is generated and thrown away, since engines differ in what no token means.
    """
    asked = {
        "model": model,
        "prompt": choice.context + choice.continuation,
        "max_tokens": 1,
        "temperature": 0,
        "echo": True,
        "logprobs": 1,
        "stream": False,
    }
    return json.dumps(asked, separators=(",", ":")).encode()


def read_choice(body: bytes, choice: Choice) -> tuple[float, bool]:
    """Return a continuation's log-probability (natural logarithm), and whether all of it is greedy.

    It is the sum over its tokens; greedy is a token that has the highest of its `top_logprobs`.

    Raises:
        EngineError: why it cannot be told, in the engine's words where there are any.
    """
    answer = answer_of(body)
    told = only_choice(answer).get("logprobs")
    tokens, weights, tops = (
        _list(told, name) for name in ("tokens", "token_logprobs", "top_logprobs")
    )
    if not len(tokens) == len(weights) == len(tops):
        raise EngineError(
            f"the answer's log-probabilities do not fit together: {len(tokens)} tokens,"
            f" {len(weights)} and {len(tops)} values"
        )
    generated = count(answer, "completion_tokens")
    if generated is None:
        raise EngineError("the engine tells no usage, so the prompt's end cannot be found")
    end = len(tokens) - generated
    begin = _begin(tokens[: max(0, end)], choice.continuation)
    own = [_weight(value) for value in weights[begin:end]]
    return math.fsum(own), all(
        weight >= max(_values(top)) for weight, top in zip(own, tops[begin:end], strict=True)
    )


def weighed(choices: Sequence[tuple[float, bool]]) -> str:
    """Return the text of a `Reply` about choices."""
    return canonical_bytes([[weight, greedy] for weight, greedy in choices]).decode()


def _list(told: JsonValue, name: str) -> list[Any]:
    value = told.get(name) if isinstance(told, dict) else None
    if isinstance(value, list):
        return value
    if isinstance(told, dict) and "content" in told:
        raise EngineError(
            "the engine tells the log-probability of new tokens only, not of the prompt's"
            " (it ignores echo), so it cannot answer a task of choices"
        )
    raise EngineError(f"the answer has no log-probabilities ({name}): {shown(told)}")


def _begin(tokens: Sequence[JsonValue], continuation: str) -> int:
    """Return the number of the token with which the continuation begins."""
    left, number = continuation, len(tokens)
    while left:
        number -= 1
        token = tokens[number] if number >= 0 else None
        if not isinstance(token, str) or not token:
            raise EngineError(f"the engine does not echo the prompt to its end: {shown(left)}")
        if left.endswith(token):
            left = left.removesuffix(token)
        elif token.endswith(left):
            raise EngineError(
                f"the token {shown(token)} stands on the border of context and continuation"
            )
        else:
            raise EngineError(
                f"the engine's token {shown(token)} is not how the continuation ends: {shown(left)}"
            )
    return number


def _weight(value: JsonValue) -> float:
    if isinstance(value, int | float) and type(value) is not bool and abs(value) <= _FURTHEST:
        return float(value)
    raise EngineError(f"the engine tells no log-probability of a token: {shown(value)}")


def _values(top: JsonValue) -> list[float]:
    if not isinstance(top, dict) or not top:
        raise EngineError(f"the engine does not tell the likeliest token: {shown(top)}")
    return [_weight(value) for value in top.values()]
