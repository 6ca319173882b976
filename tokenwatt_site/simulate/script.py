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


@dataclass(frozen=True, slots=True)
class Script:
    """How every request is answered. `None` for a place where something happens: never.

    Attributes:
        ttft_ms: from receipt of the request to its first event.
        interval_ms: between two tokens; an event of K tokens comes every K intervals.
        model: the model's name.
        refuse_unknown: answer 404 to another model name, instead of taking it.
        role: when chat's chunk with only the role is sent.
        usage: which chunk carries it.
        tokens_per_event: K.
        carrier: what carries the text; `silent` counts tokens in usage without text.
        newline: the end of a line in the event stream.
        fragment_bytes: cut what is sent into pieces of this size.
        cached_tokens: reported as found in a prompt cache.
        short: never more output tokens than this, whatever was asked.
        end_of_sequence: the model's own end, which `ignore_eos` overrides where it is honoured.
        honour_ignore_eos: whether it is.
        http_status: answer with this status instead of a stream.
        error_after, drop_after, hang_after: after so many tokens send an error object, close the
            connection, or go silent. `hang_after` -1: not even a head.
        end_mark: send `[DONE]`.
        comments: send a comment before each event.
        close: close the connection after each response.
    """

    ttft_ms: float = 20.0
    interval_ms: float = 5.0
    model: str = "simulated"
    refuse_unknown: bool = True
    role: Literal["with first", "early", "never"] = "with first"
    usage: Literal["own chunk", "last chunk", "every chunk", "never"] = "own chunk"
    tokens_per_event: int = 1
    carrier: Literal["content", "reasoning", "tool call", "silent"] = "content"
    newline: Literal["\n", "\r\n", "\r"] = "\n"
    fragment_bytes: int | None = None
    cached_tokens: int | None = None
    short: int | None = None
    end_of_sequence: int | None = None
    honour_ignore_eos: bool = True
    http_status: int = 200
    error_after: int | None = None
    drop_after: int | None = None
    hang_after: int | None = None
    end_mark: bool = True
    comments: bool = False
    close: bool = False


_NAMED: dict[str, _Object] = {
    "role-early": {"role": "early"},
    "usage-last-chunk": {"usage": "last chunk"},
    "usage-every-chunk": {"usage": "every chunk"},
    "no-usage": {"usage": "never"},
    "reasoning": {"carrier": "reasoning"},
    "tool-calls": {"carrier": "tool call"},
    "silent": {"carrier": "silent", "usage": "every chunk"},
    "crlf": {"newline": "\r\n"},
    "cr": {"newline": "\r"},
    "no-end-mark": {"end_mark": False},
    "comments": {"comments": True},
    "close": {"close": True},
    "ignores-ignore-eos": {"honour_ignore_eos": False, "end_of_sequence": 3},
    "accepts-any-model": {"refuse_unknown": False},
}
_NUMBERED = {
    "multi": "tokens_per_event",
    "fragment": "fragment_bytes",
    "cached": "cached_tokens",
    "short": "short",
    "http": "http_status",
    "error": "error_after",
    "drop": "drop_after",
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
        return cls(
            api=api,
            model=str(request.get("model", "")),
            prompt_tokens=len(prompt.split()) if isinstance(prompt, str) else len(prompt),
            output_tokens=asked,
            include_usage=isinstance(options, dict) and options.get("include_usage") is True,
            ignore_eos=request.get("ignore_eos") is True,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do `after_ns` after the receipt of the request.

    `tokens` of the text in `data` are output tokens. `then` says what follows: the next step, the
    end of the response, an abrupt close of the connection, or nothing ever.
    """

    after_ns: int
    data: bytes
    tokens: int
    then: Literal["next", "end", "drop", "hang"] = "next"


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
    if asked.api == "chat" and script.role == "early":
        yield Step(0, write.role(), 0)
    sent = 0
    while sent < total:
        after_ns = round(script.ttft_ms * _MS) + round(script.interval_ms * _MS) * sent
        data = write.role() if sent == 0 and script.role == "with first" else b""
        for limit, then in ((script.hang_after, "hang"), (script.drop_after, "drop")):
            if limit is not None and sent >= limit:
                yield Step(after_ns, b"", 0, "hang" if then == "hang" else "drop")
                return
        if script.error_after is not None and sent >= script.error_after:
            yield Step(after_ns, write.error() + write.end(), 0, "end")
            return
        tokens = min(script.tokens_per_event, total - sent)
        sent += tokens
        last = sent == total
        data += write.tokens(tokens, sent, finish if last else None)
        if last:
            data += write.usage(sent) + write.end()
        yield Step(after_ns, data, tokens, "end" if last else "next")


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

    def tokens(self, count: int, sent: int, finish: str | None) -> bytes:
        text = " token" * count
        delta: _Object = {"content": text}
        if self._script.carrier == "reasoning":
            delta = {"content": None, "reasoning_content": text}
        elif self._script.carrier == "tool call":
            call = {"index": 0, "function": {"arguments": text}}
            delta = {"content": None, "tool_calls": [call]}
        elif self._script.carrier == "silent":
            delta = {"content": ""}
        last = finish is not None
        here = self._script.usage == "every chunk" or (self._script.usage == "last chunk" and last)
        usage = {"usage": self._usage(sent)} if here else {}
        return self._chunk([self._choice(delta, finish)], **usage)

    def usage(self, sent: int) -> bytes:
        if self._script.usage in ("never", "last chunk") or not self._asked.include_usage:
            return b""
        return self._chunk([], usage=self._usage(sent))

    def error(self) -> bytes:
        return self._event({"error": {"message": "the script says so", "type": "ServerError"}})

    def end(self) -> bytes:
        return self._event("[DONE]") if self._script.end_mark else b""

    def _usage(self, sent: int) -> _Object:
        prompt = self._asked.prompt_tokens
        usage: _Object = {
            "prompt_tokens": prompt,
            "completion_tokens": sent,
            "total_tokens": prompt + sent,
        }
        if self._script.cached_tokens is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": self._script.cached_tokens}
        return usage

    def _choice(self, delta: _Object, finish: str | None) -> _Object:
        if self._asked.api == "chat":
            return {"index": 0, "delta": delta, "finish_reason": finish}
        return {"index": 0, "text": delta["content"] or "", "finish_reason": finish}

    def _chunk(self, choices: list[_Object], **more: _Object) -> bytes:
        return self._event({**self._head, "choices": choices, **more})

    def _event(self, value: _Object | str) -> bytes:
        line = self._script.newline
        text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        comment = f": waiting{line}{line}" if self._script.comments else ""
        return f"{comment}data: {text}{line}{line}".encode()
