from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from tokenwatt_site.simulate.asked import Asked, tokenise


@pytest.mark.parametrize(
    ("api", "request_", "tokens"),
    [
        ("completions", {"prompt": [7, 8]}, 2),
        ("completions", {"prompt": "a b c"}, 3),
        ("chat", {"messages": [{"role": "user", "content": "a b"}, {"content": "c"}]}, 3),
    ],
)
def test_the_prompt_has_a_token_for_each_id_or_word(
    api: Literal["completions", "chat"], request_: dict[str, Any], tokens: int
) -> None:
    body = json.dumps({**request_, "stream": True, "max_tokens": 4}).encode()
    assert Asked.parse(api, body, 0).prompt_tokens == tokens


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b"{}",
        b'{"stream": true}',
        b'{"stream": true, "prompt": 5}',
        b'{"stream": true, "prompt": []}',
        b'{"stream": true, "prompt": ["x"]}',
        b'{"stream": true, "prompt": [-1]}',
        b'{"stream": true, "prompt": " "}',
        b'{"stream": true, "prompt": "x", "max_tokens": 0}',
        b'{"stream": true, "prompt": "x", "max_tokens": true}',
        b'{"stream": 1, "prompt": "x", "messages": [{"content": "x"}]}',
        b'{"stop": 5, "prompt": "x", "messages": [{"content": "x"}]}',
        b'{"stop": ["a", ""], "prompt": "x", "messages": [{"content": "x"}]}',
        b"\xff",
    ],
)
@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_bad_request_is_a_value_error(api: Literal["completions", "chat"], body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - its text is the answer 400's
        Asked.parse(api, body, 0)


@pytest.mark.parametrize(
    ("given", "tokens"),
    [({}, 16), ({"max_tokens": None}, 16), ({"max_tokens": 4, "max_completion_tokens": None}, 4)],
)
def test_what_is_null_was_not_asked_for(given: dict[str, Any], tokens: int) -> None:
    body = json.dumps({"prompt": "a", "stream": True, **given}).encode()
    assert Asked.parse("completions", body, 0).output_tokens == tokens


@pytest.mark.parametrize(
    ("given", "streamed", "stop"),
    [
        ({}, False, ()),
        ({"stream": None, "stop": None}, False, ()),
        ({"stream": False, "stop": "a"}, False, ("a",)),
        ({"stream": True, "stop": ["a", "b"]}, True, ("a", "b")),
    ],
)
def test_whether_it_is_streamed_and_where_it_stops(
    given: dict[str, Any], streamed: bool, stop: tuple[str, ...]
) -> None:
    asked = Asked.parse("completions", json.dumps({"prompt": "a", **given}).encode(), 0)
    assert (asked.streamed, asked.stop) == (streamed, stop)


def test_a_template_stands_before_every_chat_and_before_nothing_else() -> None:
    def prompt(api: Literal["completions", "chat"], text: str) -> tuple[int, ...]:
        messages = [{"role": "user", "content": text}]
        body = {"messages": messages, "prompt": text, "stream": True}
        return Asked.parse(api, json.dumps(body).encode(), 5).prompt

    assert prompt("chat", "a b")[:5] == prompt("chat", "c")[:5]
    assert prompt("chat", "a b")[5:] == prompt("completions", "a b") == tokenise("a b")


def test_a_word_has_the_same_token_wherever_it_stands() -> None:
    first, second, third = tokenise("one two one")
    assert first == third != second
    assert tokenise("one") == (first,)
