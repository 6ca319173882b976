"""What a stream of tokens says, and when: server-sent events of OpenAI-compatible engines. No I/O.

Definitions (DESIGN 4). A token event carries content, reasoning, tool-call text or usage growth; a
role-only chunk, an empty delta, a finish reason or a comment is none. Tokens are counted by the
engine's `usage`, never by chunks and never from text.

Usage growth: some engines repeat the count so far in each chunk (`continuous_usage_stats`, or
llama.cpp's `timings.predicted_n`). Then growth is arrival, also where a parser holds the text back.
A total that comes once, at the end, is no arrival, unless nothing else ever arrived. A stream is
over for this once it told its finish reason: OpenRouter's total follows with a choice of its own.

One answer is asked for at a time: a second choice is an error, since usage counts all of them in
one place or only the last (TGI, llama.cpp).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeAlias

from tokenwatt_site.canonical import clean_text

MAX_PLAIN_BYTES = 64 << 10

_Object: TypeAlias = dict[str, Any]
_BOM = b"\xef\xbb\xbf"
_TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "refusal")
_OTHER_API = "the stream is of another API, no event has choices: "


class EventSplitter:
    """Cuts bytes into the data of server-sent events (WHATWG HTML 9.2), byte for byte.

    Lines end with LF, CRLF or CR and with nothing else: U+2028 and U+0085 are text. `named_error`
    tells that an event was called `error`.
    """

    __slots__ = ("_after_cr", "_data", "_first", "_rest", "named_error")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._after_cr = False
        self._first = True
        self.named_error = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of each event that `data` completes."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        events: list[bytes] = []
        for line in lines:
            self._line(line, events)
        return events

    def finish(self) -> list[bytes]:
        """Return the event that the end of the stream leaves without its empty line, if any.

        The standard drops it; engines that end with the last line exist, and clients read it.
        """
        return self.feed(b"\n\n") if self._rest or self._data else []

    def _line(self, line: bytes, events: list[bytes]) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data = []
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name == b"event" and value.strip() == b"error":
            self.named_error = True


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """What one response said. Times are those given to `StreamParser.feed`.

    Attributes:
        first_ns: when the first token event was complete; None without one.
        last_ns: when the last token event was complete.
        first_tokens: tokens in the first token event, where the engine told; else taken as 1.
        events: number of token events.
        uncertainty_ns: bounds how much earlier than `first_ns` the first token may have come.
        output_tokens: `usage.completion_tokens`; None when the engine never told.
        error: the engine's own error, or what is malformed; None when all was well.
        ended: the engine said that the stream is whole (`[DONE]`).
    """

    first_ns: int | None
    last_ns: int | None
    first_tokens: int | None
    events: int
    uncertainty_ns: int
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None
    error: str | None
    ended: bool


class StreamParser:
    """Reads one response body, in order, each piece with the time it arrived."""

    __slots__ = (
        "_cached_tokens",
        "_counted",
        "_counts",
        "_ended",
        "_error",
        "_events",
        "_finish_reason",
        "_first_ns",
        "_first_tokens",
        "_foreign",
        "_last_ns",
        "_output_tokens",
        "_plain",
        "_prompt_tokens",
        "_splitter",
        "_uncertainty_ns",
        "_usage_ns",
    )

    def __init__(self) -> None:
        self._splitter = EventSplitter()
        self._first_ns: int | None = None
        self._last_ns: int | None = None
        self._first_tokens: int | None = None
        self._events = 0
        self._uncertainty_ns = 0
        self._prompt_tokens: int | None = None
        self._cached_tokens: int | None = None
        self._output_tokens: int | None = None
        self._usage_ns: tuple[int, int] | None = None
        self._finish_reason: str | None = None
        self._error: str | None = None
        self._ended = False
        self._counted = 0  # the largest count the engine told so far
        self._counts = False  # it tells the count while it generates
        self._plain: bytes | None = b""  # the body so far, until it proves to be a stream
        self._foreign: bytes | None = b""  # the first event, until one proves to be of this API

    def feed(self, stamp_ns: int, exact_ns: int, merged_ns: int, body: bytes) -> None:
        """Take the bytes of one read.

        Args:
            stamp_ns: when the newest of them arrived.
            exact_ns: bound of the error of `stamp_ns` for a token that is alone in this read.
            merged_ns: the same for the first of several tokens in this read: they may have arrived
                at any time since the socket was last seen empty. (What an engine sends in one step
                with the token, such as usage and `[DONE]`, does not make it several.)
            body: the bytes, cut anywhere.
        """
        events = self._splitter.feed(body)
        if self._plain is not None:
            self._plain = None if events else (self._plain + body)[:MAX_PLAIN_BYTES]
        before, started = self._events, self._first_ns is not None
        for event in events:
            self._event(event, stamp_ns, exact_ns)
        if not started and self._events - before > 1:
            self._uncertainty_ns = merged_ns

    def finish(self, stamp_ns: int, exact_ns: int) -> StreamSummary:
        """Say that the response ended, and sum up. Call it once."""
        for event in self._splitter.finish():
            self._plain = None
            self._event(event, stamp_ns, exact_ns)
        if self._plain:
            self._error = self._error or _plain_error(self._plain)
        if self._splitter.named_error and self._error is None:
            self._error = "the engine sent an event named error"
        if self._foreign and self._error is None:
            self._error = _OTHER_API + _shown(self._foreign)
        if self._events == 0 and self._usage_ns is not None and self._error is None:
            # Tokens are known to have come, without text and at no time but this.
            self._token(self._usage_ns[0], self._usage_ns[1], self._counted)
        if self._events == 1 and self._output_tokens is not None:
            # The one event carried them all, whatever it told: there is no time between tokens.
            self._first_tokens = max(1, self._output_tokens)
        return self.summary()

    def summary(self) -> StreamSummary:
        """What is known so far."""
        return StreamSummary(
            first_ns=self._first_ns,
            last_ns=self._last_ns,
            first_tokens=self._first_tokens,
            events=self._events,
            uncertainty_ns=self._uncertainty_ns,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            output_tokens=self._output_tokens,
            finish_reason=self._finish_reason,
            error=self._error,
            ended=self._ended,
        )

    def _token(self, stamp_ns: int, exact_ns: int, tokens: int) -> None:
        if self._first_ns is None:
            self._first_ns = stamp_ns
            self._first_tokens = max(1, tokens)
            self._uncertainty_ns = exact_ns
        self._last_ns = stamp_ns
        self._events += 1

    def _event(self, data: bytes, stamp_ns: int, exact_ns: int) -> None:
        if data.strip() == b"[DONE]":
            self._ended = True
            return
        try:
            chunk = json.loads(data.decode())  # from bytes it would guess at encodings
        except (ValueError, RecursionError):
            chunk = None
        if not isinstance(chunk, dict):
            self._error = self._error or f"an event is no JSON object: {_shown(data)}"
            return
        error = _told_error(chunk, is_one=self._splitter.named_error)
        if error is not None:
            self._error = self._error or error
            return
        if self._foreign is not None:
            self._foreign = None if "choices" in chunk else self._foreign or data
        text, finish_reason, wrong = self._choices(chunk)
        self._error = self._error or wrong
        told, before = self._count(chunk), self._counted
        grew = told > before
        if grew:
            self._counted = told
        self._finish_reason = finish_reason or self._finish_reason
        terminal = self._finish_reason is not None or not chunk.get("choices")
        if grew and not terminal:
            self._counts = True
        if text or (grew and self._counts):
            self._token(stamp_ns, exact_ns, told)
        elif grew:
            self._usage_ns = (stamp_ns, exact_ns)

    def _count(self, chunk: _Object) -> int:
        """Read the engine's counts; return the tokens generated so far, 0 when it does not tell."""
        told = 0
        timings = chunk.get("timings")
        if isinstance(timings, dict):
            told = _whole(timings.get("predicted_n")) or 0
            if self._cached_tokens is None:
                self._cached_tokens = _whole(timings.get("cache_n"))
        usage = chunk.get("usage")
        if not isinstance(usage, dict):
            return told
        output = _generated(usage)
        if output is not None:
            self._output_tokens = output
            told = max(told, output)
        self._prompt_tokens = _first_whole(usage.get("prompt_tokens"), self._prompt_tokens)
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        # DeepSeek's name for the same number.
        cached = usage.get("prompt_cache_hit_tokens") if cached is None else cached
        self._cached_tokens = _first_whole(cached, self._cached_tokens)
        return told

    def _choices(self, chunk: _Object) -> tuple[bool, str | None, str | None]:
        """Return whether a choice carries generated text, the finish reason, and what is wrong."""
        text, finish_reason, wrong = False, None, None
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            delta = choice.get("delta")
            text = text or bool(choice.get("text")) or (isinstance(delta, dict) and _carries(delta))
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and reason:  # TGI writes "" for none
                finish_reason = reason
            if choice.get("index"):
                wrong = "the answer has several choices: one was asked for"
            if choice.get("error"):
                wrong = _error_text(choice["error"])
        return text, finish_reason, wrong


def _generated(usage: _Object) -> int | None:
    """Return the tokens generated, of which some engines leave reasoning out.

    That they do shows in their own total: prompt, completion and reasoning add up to it.
    """
    output = _whole(usage.get("completion_tokens"))
    details = usage.get("completion_tokens_details")
    reasoning = _whole(details.get("reasoning_tokens")) if isinstance(details, dict) else None
    if output is None or not reasoning:
        return output
    prompt, total = _whole(usage.get("prompt_tokens")), _whole(usage.get("total_tokens"))
    apart = prompt is not None and total == prompt + output + reasoning
    return output + reasoning if apart else output


def _carries(delta: _Object) -> bool:
    if any(delta.get(field) for field in _TEXT_FIELDS):
        return True
    details = delta.get("reasoning_details")  # OpenRouter; its signatures are no tokens
    if isinstance(details, list) and any(
        isinstance(detail, dict) and (detail.get("text") or detail.get("summary"))
        for detail in details
    ):
        return True
    calls = delta.get("tool_calls")
    functions = [call.get("function") for call in calls or () if isinstance(call, dict)]
    functions.append(delta.get("function_call"))
    return any(
        isinstance(function, dict) and (function.get("name") or function.get("arguments"))
        for function in functions
    )


def _whole(value: object) -> int | None:
    """Return a count that can be true: a whole number from 0 to 2^53 - 1."""
    return value if type(value) is int and 0 <= value < 2**53 else None


def _first_whole(value: object, otherwise: int | None) -> int | None:
    whole = _whole(value)
    return otherwise if whole is None else whole


def _shown(data: bytes) -> str:
    return clean_text(data[:400].decode("utf-8", "replace"), limit=100)


def error_text(body: bytes) -> str | None:
    """Return the error that a plain JSON body tells, or None when it tells none."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return _told_error(value) if isinstance(value, dict) else None


def _told_error(value: _Object, *, is_one: bool = False) -> str | None:
    """Return the error that an object is about, in the shapes engines give it; else None."""
    if value.get("error"):
        return _error_text(value["error"])
    if "choices" in value:
        return None
    if value.get("object") == "error" or (is_one and value.get("message")):  # SGLang, older vLLM
        return _error_text(value)
    return _error_text(value["detail"]) if value.get("detail") else None  # FastAPI's own


def _error_text(error: object) -> str:
    if isinstance(error, dict):
        error = error.get("message") or error.get("type") or json.dumps(error)
    return clean_text(str(error))


def _plain_error(body: bytes) -> str:
    return error_text(body) or f"the answer is no event stream: {_shown(body)}"
