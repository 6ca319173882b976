"""What the simulated server answers: dialects and faults by name. Pure: a request in, steps out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from tokenwatt_site.errors import Problem, UsageError

_Object: TypeAlias = dict[str, Any]
_MS = 1_000_000
DEFAULT_TOKENS = 16

Usage: TypeAlias = Literal["own chunk", "last chunk", "two chunks", "every chunk", "never"]
Carrier: TypeAlias = Literal[
    "content", "reasoning", "reasoning_content", "reasoning_details", "tool call", "silent"
]


@dataclass(frozen=True, slots=True)
class Script:
    """How every request is answered. `None` for a place where something happens: never.

    Attributes:
        ttft_ms: from receipt of the request to its first event.
        interval_ms: between two tokens; an event of K tokens comes every K intervals.
        model: the model's name.
        refuse_unknown: answer 404 to another model name, instead of taking it.
        role: when chat's chunk with only the role is sent.
        empty_first: send a chunk without choices before everything.
        finish: which chunk carries the finish reason, the last one is that with it.
        blank_finish: in completions the finish reason before the end is "" and not null.
        usage: which chunk carries it.
        continuous_usage: honour `continuous_usage_stats`: usage in every chunk besides.
        timings: honour `timings_per_token`: the count in every chunk, as llama.cpp tells it.
        tokens_per_event: K.
        first_event_tokens: tokens of the first event, where it differs from K.
        carrier: what carries the text; `silent` counts tokens in usage without text.
        reasoning_tokens: so many tokens at the start come as `reasoning_content`.
        counts_reasoning: `completion_tokens` has them in it.
        newline: the end of a line in the event stream.
        data_line: how the JSON is put into its line.
        data_lines: write the JSON over several lines of data.
        fragment_bytes: cut what is sent into pieces of this size.
        cached_tokens: reported as found in a prompt cache.
        short: never more output tokens than this, whatever was asked.
        end_of_sequence: the model's own end, which `ignore_eos` overrides where it is honoured.
        honour_ignore_eos: whether it is.
        http_status: answer with this status instead of a stream.
        retry_after_s: say so in the head of such an answer.
        error_body: answer with status 200 and a JSON error instead of a stream.
        error_after, drop_after, reset_after, hang_after: after so many tokens send an error
            object, close the connection, reset it, or go silent. `hang_after` -1: not even a head.
        end_mark: send `[DONE]`.
        comments: send a comment before each event.
        close: close the connection after each response.
    """

    ttft_ms: float = 20.0
    interval_ms: float = 5.0
    model: str = "simulated"
    refuse_unknown: bool = True
    role: Literal["with first", "early", "never"] = "with first"
    empty_first: bool = False
    finish: Literal["with text", "own chunk"] = "with text"
    blank_finish: bool = False
    usage: Usage = "own chunk"
    continuous_usage: bool = False
    timings: bool = False
    tokens_per_event: int = 1
    first_event_tokens: int | None = None
    carrier: Carrier = "content"
    reasoning_tokens: int = 0
    counts_reasoning: bool = True
    newline: Literal["\n", "\r\n", "\r"] = "\n"
    data_line: Literal["data: %s", "data:%s", "data: %s "] = "data: %s"
    data_lines: bool = False
    fragment_bytes: int | None = None
    cached_tokens: int | None = None
    short: int | None = None
    end_of_sequence: int | None = None
    honour_ignore_eos: bool = True
    http_status: int = 200
    retry_after_s: int | None = None
    error_body: bool = False
    error_after: int | None = None
    drop_after: int | None = None
    reset_after: int | None = None
    hang_after: int | None = None
    end_mark: bool = True
    comments: bool = False
    close: bool = False


_OWN_FINISH: _Object = {"finish": "own chunk"}
_NAMED: dict[str, _Object] = {
    # Engines: what is particular in how they write a stream.
    "vllm": {"continuous_usage": True},
    "sglang": {"continuous_usage": True, **_OWN_FINISH},
    # Two tokens an event: text is held back while a character is not whole.
    "llama.cpp": {"timings": True, "usage": "last chunk", "tokens_per_event": 2, **_OWN_FINISH},
    "tgi": {"data_line": "data:%s", "blank_finish": True},
    "tensorrt-llm": {"continuous_usage": True, "data_line": "data: %s "},
    "transformers": {"end_mark": False, "usage": "last chunk", **_OWN_FINISH},
    # Single traits.
    "role-early": {"role": "early"},
    "empty-first": {"empty_first": True},
    "finish-apart": _OWN_FINISH,
    "usage-last-chunk": {"usage": "last chunk"},
    "usage-two-chunks": {"usage": "two chunks"},
    "usage-every-chunk": {"usage": "every chunk"},
    "no-usage": {"usage": "never"},
    "reasoning": {"carrier": "reasoning"},
    "reasoning-content": {"carrier": "reasoning_content"},
    "reasoning-details": {"carrier": "reasoning_details"},
    "reasoning-not-counted": {"counts_reasoning": False},
    "tool-calls": {"carrier": "tool call"},
    "silent": {"carrier": "silent", "usage": "every chunk"},
    "crlf": {"newline": "\r\n"},
    "cr": {"newline": "\r"},
    "data-lines": {"data_lines": True},
    "no-end-mark": {"end_mark": False},
    "comments": {"comments": True},
    "close": {"close": True},
    "ignores-ignore-eos": {"honour_ignore_eos": False, "end_of_sequence": 3},
    "accepts-any-model": {"refuse_unknown": False},
    "error-body": {"error_body": True},
}
_NUMBERED = {
    "multi": "tokens_per_event",
    "first": "first_event_tokens",
    "think": "reasoning_tokens",
    "fragment": "fragment_bytes",
    "cached": "cached_tokens",
    "short": "short",
    "http": "http_status",
    "retry-after": "retry_after_s",
    "error": "error_after",
    "drop": "drop_after",
    "reset": "reset_after",
    "hang": "hang_after",
}


def named(names: str, base: Script | None = None) -> Script:
    """Return the script that comma-separated names ask for, such as `role-early,multi:4`.

    Raises:
        UsageError: no such name, or its number is missing.
    """
    script = base or Script()
    for name in filter(None, names.split(",")):
        key, _, number = name.partition(":")
        if name in _NAMED:
            script = replace(script, **_NAMED[name])
        elif key in _NUMBERED and number.removeprefix("-").isdecimal():
            numbered: _Object = {_NUMBERED[key]: int(number)}
            script = replace(script, **numbered)
        else:
            known = ", ".join([*_NAMED, *(f"{key}:N" for key in _NUMBERED)])
            raise UsageError(Problem("no such script", found=name, expected=known))
    return script


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the script sees it."""

    api: Literal["completions", "chat"]
    model: str
    prompt_tokens: int
    output_tokens: int
    include_usage: bool
    ignore_eos: bool
    continuous_usage: bool = False
    timings_per_token: bool = False

    @classmethod
    def parse(cls, api: Literal["completions", "chat"], body: bytes) -> Asked:
        """Read a request body. A prompt of ids has one token an id, text one token a word.

        Raises:
            ValueError: with the message that the answer 400 carries.
        """
        try:
            request = json.loads(body)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        if not isinstance(request, dict):
            raise ValueError("the request is no object")  # noqa: TRY004 - one error for all
        if request.get("stream") is not True:
            raise ValueError("only stream: true is answered")
        if api == "chat":
            messages = request.get("messages")
            if not isinstance(messages, list) or not messages:
                raise ValueError("messages is missing")
            prompt: Any = " ".join(str(m.get("content")) for m in messages if isinstance(m, dict))
        else:
            prompt = request.get("prompt")
        if not isinstance(prompt, str | list) or not prompt:
            raise ValueError("prompt is missing")
        asked = request.get("max_completion_tokens", request.get("max_tokens", DEFAULT_TOKENS))
        if type(asked) is not int or asked < 1:
            raise ValueError("max_tokens is no positive whole number")
        options = request.get("stream_options")
        options = options if isinstance(options, dict) else {}
        return cls(
            api=api,
            model=str(request.get("model", "")),
            prompt_tokens=len(prompt.split()) if isinstance(prompt, str) else len(prompt),
            output_tokens=asked,
            include_usage=options.get("include_usage") is True,
            ignore_eos=request.get("ignore_eos") is True,
            continuous_usage=options.get("continuous_usage_stats") is True,
            timings_per_token=request.get("timings_per_token") is True,
        )


Then: TypeAlias = Literal["next", "end", "drop", "reset", "hang"]


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do `after_ns` after the receipt of the request.

    `tokens` of the text in `data` are output tokens. `then` says what follows: the next step, the
    end of the response, an abrupt close of the connection or its reset, or nothing ever.
    """

    after_ns: int
    data: bytes
    tokens: int
    then: Then = "next"


def steps(script: Script, asked: Asked, number: int) -> Iterator[Step]:
    """Yield what the stream of request `number` sends, and when. The head is not part of it."""
    total = asked.output_tokens
    if script.short is not None:
        total = min(total, script.short)
    stops = script.end_of_sequence
    if stops is not None and not (asked.ignore_eos and script.honour_ignore_eos):
        total = min(total, stops)
    finish = "length" if total == asked.output_tokens else "stop"
    write = _Writer(script, asked, number)
    before = write.empty() if script.empty_first else b""
    if script.role == "early":
        before += write.role()
    if before:
        yield Step(0, before, 0)
    faults: tuple[tuple[int | None, Then], ...] = (
        (script.hang_after, "hang"),
        (script.drop_after, "drop"),
        (script.reset_after, "reset"),
    )
    sent = 0
    while sent < total:
        after_ns = round(script.ttft_ms * _MS) + round(script.interval_ms * _MS) * sent
        data = write.role() if sent == 0 and script.role == "with first" else b""
        for limit, then in faults:
            if limit is not None and sent >= limit:
                yield Step(after_ns, b"", 0, then)
                return
        if script.error_after is not None and sent >= script.error_after:
            yield Step(after_ns, write.error() + write.end(), 0, "end")
            return
        tokens = min(_event_tokens(script, sent), total - sent)
        sent += tokens
        last = sent == total
        data += write.tokens(tokens, sent, finish if last else None)
        if last:
            data += write.usage(sent) + write.end()
        yield Step(after_ns, data, tokens, "end" if last else "next")


def _event_tokens(script: Script, sent: int) -> int:
    tokens = script.tokens_per_event
    if sent == 0 and script.first_event_tokens is not None:
        tokens = script.first_event_tokens
    if sent < script.reasoning_tokens:
        tokens = min(tokens, script.reasoning_tokens - sent)  # an event is of one kind
    return tokens


class _Writer:
    """Writes the chunks of one response."""

    def __init__(self, script: Script, asked: Asked, number: int) -> None:
        self._script, self._asked = script, asked
        chat = asked.api == "chat"
        self._head: _Object = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{number:08d}",
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": 0,
            "model": script.model,
        }

    def role(self) -> bytes:
        if self._asked.api != "chat":
            return b""
        return self._chunk([self._choice({"role": "assistant", "content": ""}, None)])

    def empty(self) -> bytes:
        return self._chunk([])

    def tokens(self, count: int, sent: int, finish: str | None) -> bytes:
        carrier = self._script.carrier
        if sent <= self._script.reasoning_tokens:
            carrier = "reasoning_content"
        delta = _delta(carrier, " token" * count)
        if finish is None:
            return self._chunk([self._choice(delta, None)], **self._counts(sent))
        if self._script.finish == "with text":
            return self._last(delta, finish, sent)
        text = self._chunk([self._choice(delta, None)], **self._counts(sent))
        return text + self._last({}, finish, sent)

    def usage(self, sent: int) -> bytes:
        if self._script.usage in ("never", "last chunk") or not self._asked.include_usage:
            return b""
        return self._chunk([], usage=self._usage(sent))

    def _last(self, delta: _Object, finish: str, sent: int) -> bytes:
        counts = self._counts(sent)
        if self._script.usage in ("last chunk", "two chunks"):
            counts["usage"] = self._usage(sent)
        return self._chunk([self._choice(delta, finish)], **counts)

    def _counts(self, sent: int) -> _Object:
        """What a chunk tells of the tokens so far."""
        script, asked = self._script, self._asked
        counts: _Object = {}
        if script.usage == "every chunk" or (script.continuous_usage and asked.continuous_usage):
            counts["usage"] = self._usage(sent)
        if script.timings and asked.timings_per_token:
            counts["timings"] = {"predicted_n": sent}
        return counts

    def error(self) -> bytes:
        return self._event({"error": {"message": "the script says so", "type": "ServerError"}})

    def end(self) -> bytes:
        return self._event("[DONE]") if self._script.end_mark else b""

    def _usage(self, sent: int) -> _Object:
        script, prompt = self._script, self._asked.prompt_tokens
        reasoning = min(sent, script.reasoning_tokens)
        usage: _Object = {
            "prompt_tokens": prompt,
            "completion_tokens": sent if script.counts_reasoning else sent - reasoning,
            "total_tokens": prompt + sent,
        }
        if script.cached_tokens is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": script.cached_tokens}
        if script.reasoning_tokens:
            usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
        return usage

    def _choice(self, delta: _Object, finish: str | None) -> _Object:
        if self._asked.api == "chat":
            return {"index": 0, "delta": delta, "finish_reason": finish}
        finish = "" if finish is None and self._script.blank_finish else finish
        return {"index": 0, "text": delta.get("content") or "", "finish_reason": finish}

    def _chunk(self, choices: list[_Object], **more: _Object) -> bytes:
        return self._event({**self._head, "choices": choices, **more})

    def _event(self, value: _Object | str) -> bytes:
        script, line = self._script, self._script.newline
        if isinstance(value, str):
            parts = [value]
        elif script.data_lines:
            parts = json.dumps(value, indent=0).splitlines()
        else:
            parts = [json.dumps(value, separators=(",", ":"))]
        comment = f": waiting{line}{line}" if script.comments else ""
        return (comment + line.join(script.data_line % part for part in parts) + line * 2).encode()


def _delta(carrier: Carrier, text: str) -> _Object:
    if carrier == "content":
        return {"content": text}
    if carrier == "silent":
        return {"content": ""}
    if carrier == "tool call":
        call = {"index": 0, "function": {"arguments": text}}
        return {"content": None, "tool_calls": [call]}
    if carrier == "reasoning_details":
        return {"content": "", carrier: [{"type": "reasoning.text", "text": text}]}
    return {"content": None, carrier: text}
