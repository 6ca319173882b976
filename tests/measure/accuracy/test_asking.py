from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from tests.measure.stub_engine import StubEngine, as_json, serving
from tests.support.answering import (
    Answering,
    Fault,
    choices_of,
    closed,
    garbage,
    prompt_of,
    refusal,
    said,
    silent,
    task_of,
)
from tokenwatt_site.endpoint import Api
from tokenwatt_site.errors import EngineError, UsageError
from tokenwatt_site.measure.accuracy import asking
from tokenwatt_site.measure.accuracy.asker import MAX_PAUSE_S, TRIES
from tokenwatt_site.measure.accuracy.asking import ask
from tokenwatt_site.measure.accuracy.probe import require_answerable
from tokenwatt_site.measure.accuracy.task import Reply, Task
from tokenwatt_site.measure.engine import free_port
from tokenwatt_site.simulate.script import Script
from tokenwatt_site.simulate.server import SimulatedServer

MODELS = {"/v1/models": as_json({"data": [{"id": "toy"}]})}
NAMES = tuple(f"question {number}" for number in range(20))


@dataclass
class Sitting:
    """One call of `ask`, and what it did."""

    concurrency: int = 4
    timeout_s: float = 30.0
    done: Mapping[int, Reply] = field(default_factory=dict)
    alive: Callable[[], bool] = lambda: True
    key: str | None = None
    kept: list[Reply] = field(default_factory=list)
    keepers: set[str] = field(default_factory=set)
    said: list[str] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)

    def ask(self, task: Task, url: str) -> tuple[Reply, ...]:
        return ask(
            task,
            url,
            "toy",
            task.asked.api,
            api_key_variable=self.key,
            concurrency=self.concurrency,
            timeout_s=self.timeout_s,
            part=2,
            done=self.done,
            keep=self.keep,
            alive=self.alive,
            say=self.said.append,
            sleep=self.slept.append,
        )

    def keep(self, reply: Reply) -> None:
        self.keepers.add(threading.current_thread().name)
        self.kept.append(reply)

    def of(self, answering: Answering, *prompts: str) -> tuple[Reply, ...]:
        with serving(StubEngine(plain=answering, get=MODELS)) as url:
            return self.ask(task_of(*prompts), url)


def failing(fault: Fault, *, sitting: Sitting | None = None) -> Reply:
    """The reply to one of two questions that has this fault whenever it is asked."""
    answering = Answering(faults={"bad": [fault] * TRIES})
    good, bad = (sitting or Sitting(concurrency=1)).of(answering, "good", "bad")
    assert good.failure is None
    return bad


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_LOOK_S", 0.02)
    monkeypatch.setattr(asking, "_END_S", 0.2)


def test_every_question_is_asked_once_greedily_and_answered_in_order() -> None:
    answering = Answering()
    sitting = Sitting()
    replies = sitting.of(answering, *NAMES)

    assert [reply.question for reply in replies] == list(range(20))
    assert [reply.text for reply in replies] == [f"answer to {name}" for name in NAMES]
    assert replies[3] == Reply(3, "answer to question 3", 2, 4, "stop", None, 2)
    assert sorted(map(prompt_of, answering.bodies)) == sorted(NAMES)
    assert answering.bodies[0] == {
        "model": "toy",
        "prompt": prompt_of(answering.bodies[0]),
        "max_tokens": 8,
        "temperature": 0,
        "stop": ["\n\n"],
        "stream": False,
    }


def test_a_chat_sends_the_messages_and_takes_the_content() -> None:
    answering = Answering(text=lambda _: "forty two")
    with serving(StubEngine(plain=answering)) as url:
        (reply,) = Sitting().ask(task_of("how many?", api="chat", stop=()), url)

    assert reply.text == "forty two"
    (body,) = answering.bodies
    assert body["messages"] == [{"role": "user", "content": "how many?"}]
    assert not {"prompt", "stop"} & set(body)


def test_each_reply_is_kept_as_it_comes_by_the_thread_that_asked() -> None:
    first_kept = threading.Event()
    sitting = Sitting(concurrency=2)

    def wait(prompt: str) -> None:
        if prompt == "last":
            assert first_kept.wait(30)

    def keep(reply: Reply) -> None:
        Sitting.keep(sitting, reply)
        first_kept.set()

    sitting.keep = keep
    sitting.of(Answering(before=wait), "first", "last")

    assert [reply.question for reply in sitting.kept] == [0, 1]
    assert sitting.keepers == {threading.current_thread().name}


def test_as_many_questions_are_open_at_once_as_asked_for() -> None:
    all_there = threading.Barrier(3)
    replies = Sitting(concurrency=3).of(
        Answering(before=lambda _: all_there.wait(30) and None), *NAMES[:6]
    )

    assert [reply.failure for reply in replies] == [None] * 6


def test_what_was_answered_in_an_earlier_sitting_is_not_asked_again() -> None:
    earlier = Reply(1, None, None, None, None, "HTTP 400: too long", 1)
    answering = Answering()
    sitting = Sitting(done={1: earlier, 99: earlier})
    replies = sitting.of(answering, "a", "b", "c")

    assert replies[1] is earlier
    assert {prompt_of(body) for body in answering.bodies} == {"a", "c"}
    assert sorted(reply.question for reply in sitting.kept) == [0, 2]


def test_nothing_left_to_ask_asks_nothing() -> None:
    earlier = {0: Reply(0, "x", 1, 1, "stop", None, 1)}
    assert Sitting(done=earlier).ask(task_of("a"), "http://127.0.0.1:9") == (earlier[0],)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_engine_is_asked_again(status: int) -> None:
    answering = Answering(faults={"a": [refusal(status, "wait")] * (TRIES - 1)})
    sitting = Sitting()
    (reply,) = sitting.of(answering, "a")

    assert reply.text == "answer to a"
    assert answering.times("a") == TRIES
    assert sitting.slept == [1.0, 2.0]


@pytest.mark.parametrize(
    ("told", "slept"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("99999", MAX_PAUSE_S),
        ("9" * 400, MAX_PAUSE_S),
        ("Wed, 02 Dec 2026 10:00:00 GMT", 1.0),
        ("-5", 1.0),
        ("²", 1.0),
    ],
)
def test_the_engine_says_how_long_to_wait_within_bounds(told: str, slept: float) -> None:
    sitting = Sitting()
    answering = Answering(faults={"a": [refusal(429, "wait", told.encode().decode("latin-1"))]})
    sitting.of(answering, "a")

    assert sitting.slept == [slept]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (garbage, "the answer is no JSON: \ufffd{[}]"),
        (said({"choices": []}), 'the answer has no choices: {"choices": []}'),
        (said({"error": {"message": "no memory"}}), "the engine answers with an error: no memory"),
    ],
)
def test_an_answer_that_is_none_is_a_failure_and_not_tried_again(fault: Fault, words: str) -> None:
    sitting = Sitting(concurrency=1)
    assert failing(fault, sitting=sitting).failure == words
    assert sitting.slept == []


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_a_refusal_is_a_failure_in_the_engines_words_and_not_tried_again(status: int) -> None:
    sitting = Sitting(concurrency=1)
    assert failing(refusal(status, "too\nlong"), sitting=sitting) == Reply(
        1, None, None, None, None, f"HTTP {status}: too long", 2
    )
    assert sitting.slept == []


def test_a_busy_engine_is_given_up_after_three_tries() -> None:
    answering = Answering(faults={"bad": [refusal(503, "loading")] * 9})
    replies = Sitting(concurrency=1).of(answering, "bad", "good")

    assert replies[0].failure == "HTTP 503: loading (tried 3 times)"
    assert answering.times("bad") == 3
    assert replies[1].text == "answer to good"


def test_a_late_answer_is_a_failure_after_its_tries() -> None:
    bad = failing(silent, sitting=Sitting(concurrency=1, timeout_s=0.1))
    assert bad.failure == "the answer did not end within 0.1 s (tried 3 times)"


def test_an_answer_too_large_is_a_failure() -> None:
    fault = as_json({"choices": [{"text": "x" * (5 << 20)}]})
    assert failing(fault).failure == "the answer is larger than 4 MiB"


def test_a_dying_engine_ends_the_sitting_and_what_came_is_kept() -> None:
    answering = Answering(dies_after=5)
    sitting = Sitting(concurrency=2)
    with pytest.raises(EngineError, match="no answer to 8 questions in a row"):
        sitting.of(answering, *NAMES)

    assert len(sitting.kept) == 5
    assert all(reply.failure is None for reply in sitting.kept)
    assert sitting.said[-1] == "5 of 20 questions are answered, and kept"


def test_a_process_that_ended_ends_the_sitting_at_once() -> None:
    answering = Answering(dies_after=5)
    sitting = Sitting(concurrency=1, alive=lambda: answering.answered < 5)
    with pytest.raises(EngineError, match="the engine ended while it was asked"):
        sitting.of(answering, *NAMES)

    assert [reply.question for reply in sitting.kept] == [0, 1, 2, 3, 4]


def test_an_engine_that_ends_while_it_is_silent_is_noticed() -> None:
    looks = iter([True, True, False])
    sitting = Sitting(concurrency=1, alive=lambda: next(looks))
    with pytest.raises(EngineError, match="the engine ended while it was asked"):
        sitting.of(Answering(every=silent), "a", "b")

    assert sitting.kept == []


def test_the_next_sitting_asks_what_the_dead_engine_left() -> None:
    first = Sitting(concurrency=1)
    with pytest.raises(EngineError):
        first.of(Answering(dies_after=5), *NAMES)
    second = Sitting(done={reply.question: reply for reply in first.kept})
    answering = Answering()
    replies = second.of(answering, *NAMES)

    assert [reply.text for reply in replies] == [f"answer to {name}" for name in NAMES]
    assert len(answering.bodies) == 15


def test_a_silent_question_at_the_end_is_a_failure_where_the_engine_lives() -> None:
    answering = Answering(faults={"last": [closed] * TRIES})
    replies = Sitting(concurrency=1).of(answering, "first", "last")

    assert replies[0].failure is None
    assert "broke off" in (replies[1].failure or "")


def test_one_thread_alone_does_not_call_two_bad_questions_a_dead_engine() -> None:
    bad = {name: [refusal(500, "cannot")] * TRIES for name in NAMES[:7]}
    replies = Sitting(concurrency=1).of(Answering(faults=bad), *NAMES)

    assert [reply.failure is None for reply in replies] == [False] * 7 + [True] * 13


def test_a_silent_question_at_the_end_is_asked_again_where_the_engine_is_gone() -> None:
    sitting = Sitting(concurrency=2)
    with pytest.raises(EngineError, match="does not answer any more"):
        sitting.of(Answering(dies_after=1), "first", "last")

    assert len(sitting.kept) == 1


def test_nobody_there_is_said_with_the_reason() -> None:
    sitting = Sitting(concurrency=1)
    with pytest.raises(EngineError, match=r"8 questions in a row.*no engine answers"):
        sitting.ask(task_of(*NAMES), f"http://127.0.0.1:{free_port()}")

    assert sitting.kept == []
    assert sitting.slept[:16] == [1.0, 2.0] * 8


def test_an_interrupt_keeps_what_came_and_ends_soon() -> None:
    sitting = Sitting(concurrency=2)
    kept = sitting.keep

    def interrupted(reply: Reply) -> None:
        kept(reply)
        if len(sitting.kept) == 3:
            raise KeyboardInterrupt

    sitting.keep = interrupted
    with pytest.raises(KeyboardInterrupt):
        sitting.of(Answering(faults={"question 4": [silent]}), *NAMES)

    assert 3 <= len(sitting.kept) <= 5
    assert len({reply.question for reply in sitting.kept}) == len(sitting.kept)


def test_a_pause_that_outlasts_the_sitting_asks_nothing_more() -> None:
    paused, over = threading.Event(), threading.Event()
    answering = Answering(faults={"a": [refusal(503, "wait")]})
    engine = StubEngine(plain=answering, get=MODELS)

    def sleep(_: float) -> None:
        paused.set()
        over.wait(30)

    def alive() -> bool:
        return not paused.is_set()

    with serving(engine) as url, pytest.raises(EngineError, match="the engine ended"):
        ask(
            task_of("a"),
            url,
            "toy",
            "completions",
            api_key_variable=None,
            concurrency=1,
            timeout_s=30,
            part=1,
            done={},
            keep=lambda _: None,
            alive=alive,
            say=lambda _: None,
            sleep=sleep,
        )
    (thread,) = (t for t in threading.enumerate() if t.name == "asking-0")
    over.set()
    thread.join(30)

    assert answering.times("a") == 1


def test_what_keeping_raises_is_raised() -> None:
    sitting = Sitting()

    def full(_: Reply) -> None:
        raise OSError(28, "no space left")

    sitting.keep = full
    with pytest.raises(OSError, match="no space left"):
        sitting.of(Answering(), *NAMES)


def test_a_key_that_is_not_set_is_said_and_no_answer_is_wrong_for_it() -> None:
    sitting = Sitting(key="TOKENWATT_NO_SUCH_KEY")
    with pytest.raises(UsageError, match="TOKENWATT_NO_SUCH_KEY"):
        sitting.of(Answering(), "a")

    assert sitting.kept == []


def test_a_key_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_KEY", "k3y-0123456789abcdef")
    with serving(StubEngine(plain=Answering(), key="k3y-0123456789abcdef")) as url:
        (reply,) = Sitting(key="TOY_KEY").ask(task_of("a"), url)

    assert reply.text == "answer to a"


def test_progress_is_said_about_ten_times() -> None:
    sitting = Sitting(concurrency=1)
    sitting.of(Answering(faults={NAMES[2]: [refusal(400, "no")]}), *NAMES)

    assert len(sitting.said) == 10
    assert sitting.said[0] == "asked 2 of 20 questions"
    assert sitting.said[-1] == "asked 20 of 20 questions, 1 of them without an answer"


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_the_simulated_engine_answers_as_any_other(api: Api) -> None:
    task = task_of("a b", "c", api=api, max_tokens=3)
    with SimulatedServer(Script(model="toy", ttft_ms=1, interval_ms=1)) as server:
        require_answerable(task, server.url, "toy", api, api_key_variable=None)
        replies = Sitting().ask(task, server.url)

    assert replies[0] == Reply(0, " token token token", 2, 3, "length", None, 2)


def test_choices_are_weighed_one_after_the_other() -> None:
    answering = Answering(weigh=lambda _, token: (-len(token) / 4, -0.5))
    task = choices_of([("is it", " so"), ("is it", " not so")])
    with serving(StubEngine(plain=answering)) as url:
        (reply,) = Sitting().ask(task, url)

    assert reply == Reply(0, "[[-0.75,false],[-1.75,false]]", 9, 2, None, None, 2)


def test_a_chat_cannot_weigh_choices() -> None:
    with pytest.raises(UsageError, match=r"endpoint\.api: .*found chat; expected completions"):
        ask(
            choices_of([("a", " b")]),
            "http://127.0.0.1:9",
            "toy",
            "chat",
            api_key_variable=None,
            concurrency=1,
            timeout_s=1,
            part=1,
            done={},
            keep=lambda _: None,
            alive=lambda: True,
            say=lambda _: None,
        )
