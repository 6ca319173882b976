from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.errors import EngineError
from tokenwatt_site.evidence.answers import MAX_ANSWER_CHARS
from tokenwatt_site.measure.accuracy.completion import Said, read_text, refused, text_body

USAGE = {"prompt_tokens": 5, "completion_tokens": 3}


def completion(text: Any, **more: Any) -> bytes:
    return json.dumps({"choices": [{"text": text, "index": 0, **more}], "usage": USAGE}).encode()


def chat(message: Any) -> bytes:
    return json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()


def words(body: bytes, api: Any = "completions") -> str:
    with pytest.raises(EngineError) as caught:
        read_text(body, api, ())
    return str(caught.value)


def test_no_stop_strings_are_none_in_the_request() -> None:
    body = json.loads(text_body("completions", "m", "p\u2028", 9, ()))
    assert body == {
        "model": "m",
        "prompt": "p\u2028",
        "max_tokens": 9,
        "temperature": 0,
        "stream": False,
    }


def test_an_answer_is_its_text_counts_and_finish_reason() -> None:
    assert read_text(completion(" 42", finish_reason="stop"), "completions", ()) == Said(
        " 42", 5, 3, "stop"
    )


def test_an_answer_without_usage_or_finish_reason_is_one() -> None:
    body = json.dumps({"choices": [{"text": "x", "finish_reason": ""}], "usage": None}).encode()
    assert read_text(body, "completions", ()) == Said("x", None, None, None)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": -1, "completion_tokens": 2**53},
        {"prompt_tokens": True, "completion_tokens": 1.0},
        [],
        "5",
    ],
)
def test_a_count_that_cannot_be_true_is_none(usage: Any) -> None:
    body = json.dumps({"choices": [{"text": "x"}], "usage": usage}).encode()
    said = read_text(body, "completions", ())
    assert (said.prompt_tokens, said.tokens) == (None, None)


def test_reasoning_is_not_the_answer_and_a_chat_may_answer_nothing() -> None:
    message = {"role": "assistant", "content": None, "reasoning_content": "hm, 42"}
    assert read_text(chat(message), "chat", ()).text == ""


@pytest.mark.parametrize(
    ("text", "stop", "cut", "finish"),
    [
        ("4\n\nQ: next", ["\n\n", "Q:"], "4", "stop"),
        ("4 Q: \n\n", ["\n\n", "Q:"], "4 ", "stop"),
        ("4", ["\n\n"], "4", "length"),
        ("\n\n", ["\n\n"], "", "stop"),
    ],
)
def test_the_text_ends_before_the_first_stop_string(
    text: str, stop: list[str], cut: str, finish: str
) -> None:
    said = read_text(completion(text, finish_reason="length"), "completions", stop)
    assert (said.text, said.finish) == (cut, finish)


def test_half_a_character_becomes_the_sign_for_it_and_others_stay() -> None:
    body = b'{"choices": [{"text": "a\\ud83d \\u0000\\u202e\\ud83d\\ude00"}]}'
    assert read_text(body, "completions", ()).text == "a\ufffd \0\u202e\U0001f600"


def test_what_the_engine_calls_the_end_is_made_short_and_clean() -> None:
    said = read_text(completion("x", finish_reason="a\n" + "b" * 500), "completions", ())
    assert said.finish == "a " + "b" * 98


def test_a_text_is_never_longer_than_what_is_kept() -> None:
    assert len(read_text(completion("x" * MAX_ANSWER_CHARS), "completions", ()).text) == 1 << 20
    assert "1,048,577 characters" in words(completion("x" * (MAX_ANSWER_CHARS + 1)))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"\xff\xfe{", "the answer is no JSON"),
        (b"", "the answer is no JSON"),
        (b"[" * 100_000, "the answer is no JSON"),
        (b"[1]", "the answer is no object: [1]"),
        (b'{"detail": "Not Found"}', "an error: Not Found"),
        (b'{"usage": {}}', "the answer has no choices"),
        (b'{"choices": [3]}', "the answer has no choices"),
        (b'{"choices": [{"text": "a"}, {"text": "b"}]}', "2 choices: one was asked for"),
        (b'{"choices": [{"text": ["a"]}]}', 'no text: ["a"]'),
    ],
)
def test_what_is_no_answer_says_why(body: bytes, text: str) -> None:
    assert text in words(body)


def test_a_chat_without_a_message_is_no_answer() -> None:
    assert words(completion("a"), "chat") == "the answer has no message"
    assert "no text" in words(chat({"content": [{"type": "text", "text": "a"}]}), "chat")


def test_a_refusal_is_told_with_what_there_is() -> None:
    assert refused(400, b'{"error": {"message": "too\\nlong"}}') == "HTTP 400: too long"
    assert refused(502, b"<html>bad \xff</html>") == "HTTP 502: <html>bad \ufffd</html>"
    assert refused(503, b"") == "HTTP 503"


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(
                    ["choices", "text", "message", "content", "usage", "prompt_tokens", "error"]
                ),
                inner,
                max_size=3,
            )
        ),
        max_leaves=8,
    ),
    st.sampled_from(["completions", "chat"]),
)
def test_whatever_comes_it_is_an_answer_or_words(value: Any, api: Any) -> None:
    with suppress(EngineError):
        said = read_text(json.dumps(value).encode(), api, ("x",))
        assert "x" not in said.text
        assert said.text.encode().decode() == said.text
