"""Tasks to ask, and an engine's answers by a function of the prompt: `StubEngine.plain`."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.measure.stub_engine import Answer, Raw, as_json
from tokenwatt_site.accuracy_spec import AskedTask
from tokenwatt_site.canonical import digest
from tokenwatt_site.endpoint import Api
from tokenwatt_site.measure.accuracy.task import Choice, Question, Task

Fault: TypeAlias = "Answer | Raw"
"""What comes in place of an answer."""


def task_of(
    *prompts: str, api: Api = "completions", max_tokens: int = 8, stop: Sequence[str] = ("\n\n",)
) -> Task:
    """A task that has text generated for each prompt."""
    asked = [
        prompt if api == "completions" else ({"role": "user", "content": prompt},)
        for prompt in prompts
    ]
    questions = [
        Question(number, digest({"question": prompt}), given, digest(given))
        for number, (prompt, given) in enumerate(zip(prompts, asked, strict=True))
    ]
    return Task("toy", 0, _asked(questions, api, max_tokens, stop), "generate", tuple(questions))


def choices_of(*questions: Sequence[tuple[str, str]]) -> Task:
    """A task that has (context, continuation)s weighed, several for each question."""
    made = [
        Question(
            number,
            digest([list(pair) for pair in pairs]),
            pairs[0][0],
            digest([list(pair) for pair in pairs]),
            tuple(Choice(*pair) for pair in pairs),
        )
        for number, pairs in enumerate(questions)
    ]
    return Task("toy", 0, _asked(made, "completions", 1, ()), "choices", tuple(made))


def _asked(
    questions: Sequence[Question], api: Api, max_tokens: int, stop: Sequence[str]
) -> AskedTask:
    return AskedTask(
        harness="toy 1",
        task_version="1",
        api=api,
        metric="exact_match",
        filter="none",
        max_tokens=max_tokens,
        stop=tuple(stop),
        data=digest([question.data for question in questions]),
        prompts=digest([question.prompt_digest for question in questions]),
    )


def refusal(status: int, message: str, retry_after: str | None = None) -> Answer:
    """An error as engines write it."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return status, headers, json.dumps({"error": {"message": message}}).encode()


def said(value: Any) -> Answer:
    """An answer 200 with any JSON."""
    return as_json(value)


def garbage(_: threading.Event) -> Iterator[bytes]:
    """An answer 200 that is no JSON."""
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n\xff{[}]"


def closed(_: threading.Event) -> Iterator[bytes]:
    """A connection that is closed without an answer."""
    yield b""


def silent(over: threading.Event) -> Iterator[bytes]:
    """A connection that is held without an answer until the test is over."""
    over.wait(60)
    yield b""


@dataclass
class Answering:
    """An engine's side of asking.

    Attributes:
        text: from a prompt (of a chat the last message) to the answer.
        faults: by prompt: what comes first in place of its answer, one for each request.
        every: what comes in place of every answer.
        dies_after: after so many answers the engine is gone.
        before: called in the request's own thread, before it is answered: it may wait.
        weigh: from the text before a token and the token to its log-probability and the best one
            there, for prompts that are echoed.
        more: merged into each answer, such as {"usage": None}.
        bodies: every request, as they came.
        answered: how many were answered.
    """

    text: Callable[[str], str] = lambda prompt: f"answer to {prompt}"
    faults: Mapping[str, Sequence[Fault]] = field(default_factory=dict)
    every: Fault | None = None
    dies_after: int | None = None
    before: Callable[[str], None] = lambda _: None
    weigh: Callable[[str, str], tuple[float, float]] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    answered: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, body: dict[str, Any]) -> Fault | None:
        prompt = prompt_of(body)
        self.before(prompt)
        with self._lock:
            times = self.times(prompt)
            self.bodies.append(body)
            if self.every is not None:
                return self.every
            if times < len(self.faults.get(prompt, ())):
                return self.faults[prompt][times]
            if self.answered == self.dies_after:
                return None
            self.answered += 1
        return as_json({**self._answer(body, prompt), **self.more})

    def times(self, prompt: str) -> int:
        """Return how often a prompt was asked."""
        return sum(prompt_of(body) == prompt for body in self.bodies)

    def _answer(self, body: dict[str, Any], prompt: str) -> dict[str, Any]:
        if body.get("echo") and self.weigh is not None:
            return _echo(prompt, self.weigh)
        words = re.findall(r"\s*\S+", self.text(prompt))
        cut = "".join(words[: body["max_tokens"]]) if words else self.text(prompt)
        choice: dict[str, Any] = {
            "index": 0,
            "finish_reason": "length" if len(words) > body["max_tokens"] else "stop",
        }
        if "messages" in body:
            choice["message"] = {"role": "assistant", "content": cut}
        else:
            choice["text"] = cut
        return {"choices": [choice], "usage": _usage(prompt, min(len(words), body["max_tokens"]))}


def prompt_of(body: dict[str, Any]) -> str:
    """Return what a request asks: the text, or the last message."""
    prompt = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
    assert isinstance(prompt, str)
    return prompt


def _usage(prompt: str, tokens: int) -> dict[str, int]:
    given = len(prompt.split())
    return {
        "prompt_tokens": given,
        "completion_tokens": tokens,
        "total_tokens": given + tokens,
    }


def _echo(prompt: str, weigh: Callable[[str, str], tuple[float, float]]) -> dict[str, Any]:
    """Return a prompt's log-probabilities as vLLM does: a first token of its own, one at the end.

    That first token has a text too, so its offsets are not those of the prompt.
    """
    tokens, offset = ["<s>"], 0
    weights: list[float | None] = [None]
    tops: list[dict[str, float] | None] = [None]
    for token in (*re.findall(r"\s*\S+|\s+$", prompt), " next"):
        own, best = weigh(prompt[:offset], token)
        tokens.append(token)
        weights.append(own)
        tops.append({token: own} if own == best else {token: own, "best": best})
        offset += len(token)
    lengths = [len(token) for token in tokens]
    choice = {
        "index": 0,
        "text": f"{prompt} next",
        "finish_reason": "length",
        "logprobs": {
            "text_offset": [sum(lengths[:number]) for number in range(len(lengths))],
            "token_logprobs": weights,
            "tokens": tokens,
            "top_logprobs": tops,
        },
    }
    given = len(tokens) - 1
    return {
        "choices": [choice],
        "usage": {"prompt_tokens": given, "completion_tokens": 1, "total_tokens": given + 1},
    }
