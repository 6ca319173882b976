from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.measure.test_dialects import FIXTURES, RECORDED, recording
from tests.measure.test_stream import _JSON, Chunk, cut, delta, sse, text, total, usage
from tokenwatt_site.measure import answer_text
from tokenwatt_site.measure.answer_text import TextParser
from tokenwatt_site.measure.stream import StreamParser

REASONING, TEXT = "\x1ereasoning\x1f", "\x1etext\x1f"


def said(*pieces: bytes) -> str | None:
    parser = TextParser()
    for piece in pieces:
        parser.feed(0, 0, 0, piece)
    parser.finish(0, 0)
    return parser.text()


# What our own streams say; those that go wrong, as far as they came.

OWN = {
    "bursts.sse": "One and two and three",
    "counts_with_reasoning.sse": f"{REASONING}Hm, so{TEXT}Two",
    "counts_without_reasoning.sse": f"{REASONING}Hm, so{TEXT}Two",
    "data_over_lines.sse": "One two",
    "empty_choices_first.sse": "One two",
    "error_choice.sse": "One",
    "error_event.sse": "One",
    "error_midway.sse": "One",
    "keep_alive_comments.sse": "One two",
    "llama_cpp_chat.sse": "One two",
    "llama_cpp_completions.sse": "One \u00e9 two",
    "llama_cpp_completions_total_only.sse": " \u00e9 two",
    "other_api.sse": "",
    "reasoning.sse": f"{REASONING}Hm, so{TEXT}Two",
    "reasoning_content.sse": f"{REASONING}Hm{TEXT}Two",
    "reasoning_details.sse": f"{REASONING}Hm, so{TEXT}Two",
    "reasoning_markers.sse": "<think>Hm</think>Two",
    "several_choices.sse": "OneEins two",
    "sglang_chat.sse": "One and two",
    "tensorrt_llm_chat.sse": "One two",
    "tgi_chat.sse": "One two",
    "tgi_completions.sse": "One two",
    "tool_calls.sse": '\x1ename 0\x1fadd\x1earguments 0\x1f{"a":1}',
    "transformers_chat.sse": "One two",
    "usage_after_finish.sse": "One two",
    "usage_never.sse": "One two",
    "usage_two_places.sse": "One two",
    "vllm_chat.sse": "One and two",
    "vllm_completions.sse": "One and two",
}


@pytest.mark.parametrize("name", OWN)
def test_a_stream_of_our_own_says_what_was_written_however_it_is_cut(name: str) -> None:
    body = (FIXTURES / name).read_bytes()
    assert said(body) == OWN[name]
    assert said(*(body[start : start + 1] for start in range(len(body)))) == OWN[name]


def test_every_stream_of_our_own_has_a_stated_text() -> None:
    assert {path.name for path in FIXTURES.glob("*.sse")} == set(OWN)


def naive_parts(pieces: list[bytes]) -> dict[str, str]:
    """Read text and reasoning of a recording without the parser."""
    parts = {"text": "", "reasoning": ""}
    for piece in pieces:
        lines = [line for line in piece.decode().split("\n") if line.startswith("data:")]
        try:
            chunk = json.loads("".join(line.removeprefix("data:") for line in lines))
        except ValueError:
            continue
        for choice in chunk.get("choices") or ():
            told = choice.get("delta", {})
            parts["text"] += choice.get("text") or told.get("content") or ""
            parts["reasoning"] += told.get("reasoning_content") or told.get("reasoning") or ""
    return parts


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_stream_keeps_reasoning_and_answer_apart(test_data: Path, name: str) -> None:
    pieces = recording(test_data / "streams", name)
    first, *others = (said(*pieces) or "").split("\x1e")
    parts = {"text": first, "reasoning": ""}
    for other in others:
        kind, _, part = other.partition("\x1f")
        parts[kind] = parts.get(kind, "") + part
    assert {kind: parts[kind] for kind in ("text", "reasoning")} == naive_parts(pieces)


@pytest.mark.parametrize("name", RECORDED)
def test_keeping_the_text_changes_nothing_else(test_data: Path, name: str) -> None:
    body = b"".join(recording(test_data / "streams", name))
    parsers = StreamParser(), TextParser()
    for number, start in enumerate(range(0, len(body), 501)):
        for parser in parsers:
            parser.feed(number, 1, 9, body[start : start + 501])
    plain, keeping = (parser.finish(10**6, 1) for parser in parsers)
    assert keeping == plain


# Shapes that no recording has.


def test_text_beside_usage_and_in_the_chunk_that_ends_the_answer_is_kept() -> None:
    pieces = sse(text("a", usage=usage(1)), text("", usage=usage(2)), text("bc", "length"))
    assert said(*pieces, *sse(total(3), "[DONE]")) == "abc"


def test_a_last_event_without_its_empty_line_is_kept() -> None:
    first, last = sse(text("a"), text("b", "length"))
    assert said(first, last.rstrip()) == "ab"


def test_reasoning_that_comes_under_two_names_is_kept_once() -> None:
    details = [{"type": "reasoning.text", "text": "hm"}]
    twice = delta(reasoning="hm", reasoning_content="hm", reasoning_details=details)
    assert said(*sse(twice, delta(content="x"))) == f"{REASONING}hm{TEXT}x"


def test_calls_are_kept_apart_by_their_index_and_their_names_from_their_arguments() -> None:
    def call(index: int, **function: str) -> Chunk:
        return delta(tool_calls=[{"index": index, "function": function}])

    pieces = sse(call(0, name="f", arguments="{"), call(0, arguments="}"), call(1, name="f"))
    assert said(*pieces) == "\x1ename 0\x1ff\x1earguments 0\x1f{}\x1ename 1\x1ff"
    old = sse(delta(function_call={"name": "f"}), delta(function_call={"arguments": "f"}))
    assert said(*old) == "\x1ename\x1ff\x1earguments\x1ff"


def test_a_refusal_is_no_text_of_the_answer() -> None:
    assert said(*sse(delta(content="a"), delta(refusal="no"))) == "a\x1erefusal\x1fno"


@pytest.mark.parametrize("value", [["a"], {"text": "a"}, 7, True])
def test_what_is_no_text_leaves_the_text_unknown(value: Any) -> None:
    assert said(*sse(delta(content="a"), delta(content=value), delta(content="b"))) is None


@settings(max_examples=40)
@given(st.lists(_JSON, max_size=4))
def test_no_shape_of_json_crashes_it(values: list[Any]) -> None:
    data = b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)
    parsers = StreamParser(), TextParser()
    for parser in parsers:
        parser.feed(0, 0, 0, data)
    plain, keeping = (parser.finish(0, 0) for parser in parsers)
    assert keeping == plain


def test_a_text_beyond_the_bound_is_unknown_and_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_text, "MAX_CHARS", 6)
    assert said(*sse(text("abc"), text("def"))) == "abcdef"
    assert said(*sse(text("abc"), text("defg"), text("h"))) is None
    assert said(*sse(delta(reasoning="a"))) is None  # the name of the kind counts


def test_a_character_that_was_cut_in_two_is_whole_again() -> None:
    assert said(*sse(text("a\U0001f600"))) == "a\U0001f600"
    halves = [b'data: {"choices":[{"text":"%s"}]}\n\n' % half for half in (rb"\ud83d", rb"\ude00")]
    assert said(*halves) == "\U0001f600"
    assert said(halves[1], halves[0]) == "\ude00\ud83d"


_PARTS = st.lists(
    st.tuples(
        st.sampled_from(["content", "reasoning", "refusal", "arguments"]),
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6),
    ),
    max_size=8,
)


def chunk_of(field: str, value: str) -> Chunk:
    if field == "arguments":
        return delta(tool_calls=[{"index": 0, "function": {field: value}}])
    return delta(**{field: value})


def naive_text(parts: list[tuple[str, str]]) -> str:
    names = {"content": "text", "arguments": "arguments 0"}
    result, last = "", "text"
    for kind, run in itertools.groupby(parts, key=lambda part: part[0]):
        name = names.get(kind, kind)
        result += "" if name == last else f"\x1e{name}\x1f"
        result += "".join(value for _, value in run)
        last = name
    return result


@given(
    _PARTS,
    st.lists(st.integers(0, 10_000), max_size=9),
    st.integers(1, 4),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_the_text_is_what_was_said_however_events_and_reads_cut_it(
    parts: list[tuple[str, str]], places: list[int], size: int, end: str
) -> None:
    chunks = [
        chunk_of(kind, value[start : start + size])
        for kind, value in parts
        for start in range(0, len(value), size)
    ]
    data = b"".join(sse(*chunks, total(3), "[DONE]", end=end))
    assert said(*cut(data, places)) == naive_text(parts)


@settings(max_examples=40)
@given(_PARTS, st.integers(1, 12))
def test_the_text_of_completions_is_the_concatenation(
    parts: list[tuple[str, str]], size: int
) -> None:
    whole = "".join(value for _, value in parts)
    data = b"".join(sse(*(text(value) for _, value in parts)))
    assert said(*(data[start : start + size] for start in range(0, len(data), size))) == whole
