from __future__ import annotations

import pytest

from tests.measure.stub_engine import StubEngine, serving
from tests.support.answering import (
    Answering,
    choices_of,
    closed,
    prompt_of,
    refusal,
    said,
    task_of,
)
from tokenwatt_site.errors import EngineError, UsageError
from tokenwatt_site.measure.accuracy.probe import require_answerable
from tokenwatt_site.measure.accuracy.task import Task

LONG = "one two three four five"
NEW_TOKEN_ONLY = said(
    {
        "choices": [
            {"index": 0, "text": ".", "logprobs": {"content": [{"token": ".", "logprob": -0.4}]}}
        ],
        "usage": {"prompt_tokens": 6, "completion_tokens": 1},
    }
)


def probe(task: Task, answering: Answering, *, context_tokens: int | None = None) -> None:
    with serving(StubEngine(plain=answering)) as url:
        require_answerable(
            task,
            url,
            "toy",
            task.asked.api,
            api_key_variable=None,
            context_tokens=context_tokens,
            sleep=lambda _: None,
        )


def test_the_longest_question_is_asked_once_for_one_token() -> None:
    answering = Answering()
    probe(task_of("one two", LONG, "one"), answering)

    (body,) = answering.bodies
    assert (body["prompt"], body["max_tokens"]) == (LONG, 1)


def test_the_longest_chat_is_the_one_with_the_most_text() -> None:
    answering = Answering()
    probe(task_of("one two", LONG, "one", api="chat"), answering)

    assert [prompt_of(body) for body in answering.bodies] == [LONG]


def test_a_prompt_that_the_engine_finds_too_long_is_said_in_its_words_with_the_way_out() -> None:
    words = "request (1201 tokens) exceeds the available context size (512 tokens)"
    with pytest.raises(EngineError) as caught:
        probe(task_of("short", LONG), Answering(every=refusal(400, words)))

    (problem,) = caught.value.problems
    assert problem.field == "setup.accuracy_gate"
    assert problem.what.endswith(f"HTTP 400: {words}")
    assert problem.found == "question 1, 23 characters"
    assert "more context" in (problem.remedy or "")


def test_nothing_there_is_said() -> None:
    with pytest.raises(EngineError, match="broke off"):
        probe(task_of(LONG), Answering(every=closed))


def test_an_answer_must_fit_behind_the_longest_prompt() -> None:
    probe(task_of(LONG, max_tokens=8), Answering(), context_tokens=13)
    with pytest.raises(EngineError) as caught:
        probe(task_of(LONG, max_tokens=8), Answering(), context_tokens=12)

    (problem,) = caught.value.problems
    assert problem.found == "5 tokens of question 0 and 8 of the answer"
    assert problem.expected == "at most 12 tokens"


def test_without_usage_or_a_known_context_nothing_is_said_of_it() -> None:
    probe(task_of(LONG, max_tokens=8), Answering(more={"usage": None}), context_tokens=12)
    probe(task_of(LONG, max_tokens=8), Answering())


def test_log_probabilities_of_the_longest_choice_must_come() -> None:
    task = choices_of([("a", " b"), ("a", " longest")], [("a", " c")])
    answering = Answering(weigh=lambda *_: (-1.0, -1.0))
    probe(task, answering, context_tokens=1)

    (body,) = answering.bodies
    assert (body["prompt"], body["echo"], body["logprobs"]) == ("a longest", True, 1)


def test_an_engine_that_ignores_echo_cannot_answer_choices() -> None:
    with pytest.raises(EngineError, match="it ignores echo"):
        probe(choices_of([("a", " b")]), Answering(every=NEW_TOKEN_ONLY))


def test_an_engine_that_refuses_log_probabilities_says_so_itself() -> None:
    words = "logprobs are not available"
    with pytest.raises(EngineError, match=f"HTTP 400: {words}"):
        probe(choices_of([("a", " b")]), Answering(every=refusal(400, words)))


def test_a_chat_is_not_asked_for_choices() -> None:
    with pytest.raises(UsageError, match="endpoint"):
        require_answerable(
            choices_of([("a", " b")]), "http://127.0.0.1:9", "toy", "chat", api_key_variable=None
        )
