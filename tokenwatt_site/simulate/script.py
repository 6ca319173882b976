"""How a request is answered: dialects and faults by name."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from tokenwatt_site.errors import Problem, UsageError

_Object: TypeAlias = dict[str, Any]

Usage: TypeAlias = Literal["own chunk", "last chunk", "two chunks", "every chunk", "never"]
Carrier: TypeAlias = Literal[
    "content", "reasoning", "reasoning_content", "reasoning_details", "tool call", "silent"
]

_WHOLE = re.compile("-?[0-9]{1,9}")


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
        burst_tokens: each event has 1 to so many tokens, drawn, in place of K: what a step of
            speculative decoding may make.
        together: an event for each token; those of one time are written together.
        held_text: some characters are several tokens; one that completes none gives no event.
        first_event_tokens: tokens of the first event, where it differs from K.
        carrier: what carries the text; `silent` counts tokens in usage without text.
        reasoning_tokens: so many tokens at the start come as `reasoning_content`.
        marked_tokens: so many at the start are reasoning in the text itself, between markers.
        counts_reasoning: `completion_tokens` has them in it.
        newline: the end of a line in the event stream.
        data_line: how the JSON is put into its line.
        data_lines: write the JSON over several lines of data.
        fragment_bytes: cut what is sent into pieces of this size.
        template_tokens: of the chat template, at the beginning of each chat's prompt.
        cached_tokens: reported as found in a prompt cache.
        short: never more output tokens than this, whatever was asked.
        end_of_sequence: the model's own end, which `ignore_eos` overrides where it is honoured.
        honour_ignore_eos: whether it is.
        http_status: answer with this status instead of a stream.
        retry_after_s: say so in the head of such an answer.
        error_body: answer with status 200 and a JSON error instead of a stream.
        error_after, drop_after, reset_after, hang_after: after so many tokens send an error
            object, close the connection, reset it, or go silent. `hang_after` -1: not even a head.
        garbles_from: an answer that begins while so many others are in progress says other words,
            as an engine's whose kernels go wrong in large batches.
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
    burst_tokens: int | None = None
    together: bool = False
    held_text: bool = False
    first_event_tokens: int | None = None
    carrier: Carrier = "content"
    reasoning_tokens: int = 0
    marked_tokens: int = 0
    counts_reasoning: bool = True
    newline: Literal["\n", "\r\n", "\r"] = "\n"
    data_line: Literal["data: %s", "data:%s", "data: %s "] = "data: %s"
    data_lines: bool = False
    fragment_bytes: int | None = None
    template_tokens: int = 0
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
    garbles_from: int | None = None
    end_mark: bool = True
    comments: bool = False
    close: bool = False


_OWN_FINISH: _Object = {"finish": "own chunk"}
_NAMED: dict[str, _Object] = {
    # Engines: what is particular in how they write a stream.
    "vllm": {"continuous_usage": True},
    "sglang": {"continuous_usage": True, **_OWN_FINISH},
    "llama.cpp": {"timings": True, "usage": "last chunk", "held_text": True, **_OWN_FINISH},
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
    "together": {"together": True},
    "held-text": {"held_text": True},
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
_NUMBERED = {  # and the least number that has a meaning
    "multi": ("tokens_per_event", 1),
    "first": ("first_event_tokens", 1),
    "bursts": ("burst_tokens", 1),
    "think": ("reasoning_tokens", 0),
    "markers": ("marked_tokens", 2),
    "template": ("template_tokens", 0),
    "fragment": ("fragment_bytes", 1),
    "cached": ("cached_tokens", 0),
    "short": ("short", 1),
    "http": ("http_status", 200),
    "retry-after": ("retry_after_s", 0),
    "error": ("error_after", 0),
    "drop": ("drop_after", 0),
    "reset": ("reset_after", 0),
    "hang": ("hang_after", -1),
    "load-garbles": ("garbles_from", 1),
}


def named(names: str, base: Script | None = None) -> Script:
    """Return the script that comma-separated names ask for, such as `role-early,multi:4`.

    Raises:
        UsageError: no such name, or its number is missing or too small.
    """
    script = base or Script()
    for name in filter(None, names.split(",")):
        key, _, number = name.partition(":")
        if name in _NAMED:
            script = replace(script, **_NAMED[name])
            continue
        field, least = _NUMBERED.get(key, ("", 0))
        if not field or not _WHOLE.fullmatch(number) or int(number) < least:
            numbered = (f"{key}:N from N={least}" for key, (_, least) in _NUMBERED.items())
            known = ", ".join([*_NAMED, *numbered])
            raise UsageError(
                Problem("no such script", field="--script", found=name, expected=known)
            )
        value: _Object = {field: int(number)}
        script = replace(script, **value)
    return script
