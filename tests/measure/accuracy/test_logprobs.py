from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.errors import EngineError
from tokenwatt_site.measure.accuracy.logprobs import choice_body, read_choice, weighed
from tokenwatt_site.measure.accuracy.task import Choice

PARIS = Choice("The capital is", " Paris.")


def answer(
    tokens: list[Any],
    weights: list[Any],
    tops: list[Any],
    *,
    generated: int | None = 1,
    offsets: list[int] | None = None,
) -> bytes:
    told = {"tokens": tokens, "token_logprobs": weights, "top_logprobs": tops}
    if offsets is not None:
        told["text_offset"] = offsets
    value: dict[str, Any] = {"choices": [{"index": 0, "text": "", "logprobs": told}]}
    if generated is not None:
        value["usage"] = {"prompt_tokens": 5, "completion_tokens": generated}
    return json.dumps(value).encode()


def vllm(paris: float = -0.5, best: float = -0.5) -> bytes:
    """As vLLM answers: the beginning of the sequence has a text, so offsets are moved by it."""
    return answer(
        ["<s>", "The", " capital", " is", " Paris", ".", "\n"],
        [None, -3.0, -2.0, -1.0, paris, -0.25, -0.125],
        [
            None,
            {"The": -3.0, "I": -1.0},
            {" capital": -2.0, " end": -1.5},
            {" is": -1.0},
            {" Paris": paris, " the": best},
            {".": -0.25},
            {"\n": -0.125},
        ],
        offsets=[0, 3, 6, 14, 17, 23, 24],
    )


def words(body: bytes, choice: Choice = PARIS) -> str:
    with pytest.raises(EngineError) as caught:
        read_choice(body, choice)
    return str(caught.value)


def test_the_prompt_is_echoed_with_one_token_after_it() -> None:
    assert json.loads(choice_body("m", PARIS)) == {
        "model": "m",
        "prompt": "The capital is Paris.",
        "max_tokens": 1,
        "temperature": 0,
        "echo": True,
        "logprobs": 1,
        "stream": False,
    }


def test_only_the_continuation_counts() -> None:
    assert read_choice(vllm(), PARIS) == (-0.75, True)


def test_a_continuation_with_a_likelier_token_beside_it_is_not_greedy() -> None:
    assert read_choice(vllm(paris=-2.5, best=-0.5), PARIS) == (-2.75, False)


def test_offsets_that_the_engine_does_not_tell_are_not_needed() -> None:
    body = json.loads(vllm())
    body["choices"][0]["logprobs"]["text_offset"] = [-1] * 7  # as SGLang
    assert read_choice(json.dumps(body).encode(), PARIS) == (-0.75, True)


def test_an_engine_that_generates_nothing_is_read_as_well() -> None:
    tops = [None, {" b": -1.0}]
    assert read_choice(answer(["a", " b"], [None, -1.0], tops, generated=0), Choice("a", " b")) == (
        -1.0,
        True,
    )


@pytest.mark.parametrize("tokens", [["a", " b"], ["a ", "b"], [" ", "a", " ", "b"]])
def test_tokens_may_be_cut_anywhere_but_over_the_border(tokens: list[str]) -> None:
    count = len(tokens)
    body = answer([*tokens, "x"], [-1.0] * (count + 1), [{"y": -1.0}] * (count + 1))
    if tokens[0] == "a ":
        assert '"a " stands on the border' in words(body, Choice("a", " b"))
    else:
        assert read_choice(body, Choice("a", " b"))[1]


def test_what_cannot_be_told_says_why() -> None:
    tops: list[Any] = [None, {" b": -1.0}, {"x": -1.0}]
    whole: list[Any] = ["a", " b", "x"]
    ask = Choice("a", " b")

    assert "no usage" in words(answer(whole, [None, -1.0, -1.0], tops, generated=None), ask)
    assert "do not fit together: 3 tokens, 2 and 3" in words(answer(whole, [None, -1.0], tops), ask)
    assert "is not how the continuation ends" in words(
        answer(["a", " c", "x"], [None, -1.0, -1.0], tops), ask
    )
    assert "does not echo the prompt to its end" in words(
        answer([" b", "x"], [-1.0, -1.0], [tops[1], tops[2]]), Choice("", "a b")
    )
    assert "does not echo" in words(answer(whole, [None, -1.0, -1.0], tops, generated=9), ask)
    assert "does not echo" in words(answer(["a", 7, "x"], [None, -1.0, -1.0], tops), ask)
    assert "tells no log-probability of a token: null" in words(
        answer(whole, [None, -1.0, -1.0], tops), Choice("", "a b")
    )
    assert "tells no log-probability" in words(answer(whole, [0, math.nan, 0], tops), ask)
    for odd in (True, "-1", math.inf, -1e300, 10**400):
        assert "tells no log-probability" in words(answer(whole, [0, odd, 0], tops), ask)
    for top in (None, {}, [-1.0]):
        assert "does not tell the likeliest token" in words(
            answer(whole, [None, -1.0, -1.0], [None, top, None]), ask
        )


@pytest.mark.parametrize(
    ("logprobs", "text"),
    [
        (None, "has no log-probabilities (tokens): null"),
        ({}, "has no log-probabilities (tokens): {}"),
        ({"content": [{"token": ".", "logprob": -0.4}]}, "it ignores echo"),
        ({"tokens": [], "token_logprobs": []}, "has no log-probabilities (top_logprobs)"),
    ],
)
def test_an_answer_without_log_probabilities_of_the_prompt_says_so(
    logprobs: Any, text: str
) -> None:
    body = json.dumps({"choices": [{"text": ".", "logprobs": logprobs}]}).encode()
    assert text in words(body)


def test_the_text_of_a_reply_has_one_form() -> None:
    assert weighed([(-9999.0, False), (-0.1 - 0.2, True)]) == (
        "[[-9999,false],[-0.30000000000000004,true]]"
    )


@given(
    st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=3), min_size=1),
    st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=3), min_size=1),
    st.data(),
)
def test_it_is_the_plain_sum_whatever_the_tokens_are(
    context: list[str], continuation: list[str], data: st.DataObject
) -> None:
    tokens = ["<s>", *context, *continuation, "next"]
    weight = st.floats(-100, 0)
    weights = [data.draw(weight) for _ in tokens]
    tops = [{"own": value, "best": max(value, data.draw(weight))} for value in weights]
    choice = Choice("".join(context), "".join(continuation))
    total, greedy = read_choice(answer(tokens, [None, *weights[1:]], [None, *tops[1:]]), choice)
    scored = range(1 + len(context), len(tokens) - 1)

    assert total == pytest.approx(sum(weights[number] for number in scored), abs=1e-9)
    assert greedy == all(weights[number] == tops[number]["best"] for number in scored)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=2),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["tokens", "token_logprobs", "top_logprobs", "content"]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=8,
    )
)
def test_whatever_comes_it_is_a_number_or_words(value: Any) -> None:
    body = {"choices": [{"logprobs": value}], "usage": {"completion_tokens": 1}}
    with suppress(EngineError):
        total, _ = read_choice(json.dumps(body).encode(), Choice("a", "b"))
        assert math.isfinite(total)
