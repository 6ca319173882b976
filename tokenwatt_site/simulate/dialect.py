"""The bytes of an answer: events as each engine's dialect writes them, or one plain object."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from tokenwatt_site.simulate.asked import Asked
from tokenwatt_site.simulate.script import Carrier, Script
from tokenwatt_site.simulate.text import before, text

_Object: TypeAlias = dict[str, Any]
_ERROR: _Object = {"error": {"message": "the script says so", "type": "ServerError"}}


class Writer:
    """Writes the chunks of one response; `sent` counts the tokens up to and with a chunk."""

    def __init__(self, script: Script, asked: Asked, number: int, *, garbled: bool = False) -> None:
        self._script, self._asked, self._garbled = script, asked, garbled
        chat = asked.api == "chat"
        self._head: _Object = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{number:08d}",
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": 0,
            "model": script.model,
        }
        self._cached_tokens = script.cached_tokens
        self._plain: dict[tuple[Carrier, str], bytes] = {}

    def found_cached(self, tokens: int) -> None:
        """Report so many cached prompt tokens, where the script does not say how many."""
        if self._script.cached_tokens is None:
            self._cached_tokens = tokens

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
        said = text(self._script, sent - count, sent, garbled=self._garbled)
        delta = _delta(carrier, said)
        if finish is None:
            counts, kind = self._counts(sent), (carrier, said)
            if counts:
                return self._chunk([self._choice(delta, None)], **counts)
            if kind not in self._plain:  # most chunks of a long answer are the same
                self._plain[kind] = self._chunk([self._choice(delta, None)])
            return self._plain[kind]
        if self._script.finish == "with text":
            return self._last(delta, finish, sent)
        before = self._chunk([self._choice(delta, None)], **self._counts(sent)) if said else b""
        return before + self._last({}, finish, sent)

    def usage(self, sent: int) -> bytes:
        if self._script.usage in ("never", "last chunk") or not self._asked.include_usage:
            return b""
        return self._chunk([], usage=self._usage(sent))

    def whole(self, sent: int, finish: str) -> bytes:
        """Return the object that an answer of `sent` tokens is where it is not streamed."""
        script, asked = self._script, self._asked
        reasoning = min(sent, script.reasoning_tokens)
        said = _delta(script.carrier, before(text(script, reasoning, sent), asked.stop))
        choice: _Object = {"index": 0, "finish_reason": finish}
        if asked.api == "chat":
            thought = {"reasoning_content": text(script, 0, reasoning)} if reasoning else {}
            choice["message"] = {"role": "assistant", **thought, **said}
        else:
            choice["text"] = said.get("content") or ""
        answer = {**self._head, "choices": [choice]}
        if asked.api == "chat":
            answer["object"] = "chat.completion"
        if script.usage != "never":
            answer["usage"] = self._usage(sent)
        return json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")

    def failed(self) -> bytes:
        """Return the object of an answer that is not streamed and does not come."""
        return json.dumps(_ERROR).encode()

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
        return self._event(_ERROR)

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
        if self._cached_tokens is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": self._cached_tokens}
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
            # As UTF-8, which reads may cut anywhere.
            parts = [json.dumps(value, separators=(",", ":"), ensure_ascii=False)]
        comment = f": waiting{line}{line}" if script.comments else ""
        written = comment + line.join(script.data_line % part for part in parts) + line * 2
        return written.encode("utf-8", "replace")


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
