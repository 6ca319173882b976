"""Sittings with an engine over HTTP: what is asked, kept, told in the journal, and scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.measure.stub_engine import StubEngine, as_json, serving
from tests.support.answering import Answering, prompt_of, refusal
from tests.support.sums import added, scored, summing, sums
from tokenwatt_site.errors import EngineError, EnvironmentProblem
from tokenwatt_site.evidence.answers import AccuracyLog, Answer, text_digest
from tokenwatt_site.journal import Entry, Journal
from tokenwatt_site.measure.accuracy import asking
from tokenwatt_site.measure.accuracy.sitting import (
    Sittings,
    answers_of,
    repeats_due,
    same_launch,
)
from tokenwatt_site.measure.accuracy.task import Reply, Score, Scores, Task
from tokenwatt_site.measure.engine import RunningEngine
from tokenwatt_site.spec import Spec

TASK = sums(12)
MODELS = {"/v1/models": as_json({"data": [{"id": "toy"}]})}
ATTACH = {"endpoint__start": "attach", "endpoint__url": "http://127.0.0.1:9"}


class Engine(RunningEngine):
    """An engine that is there until it is told to be dead."""

    def __init__(self, url: str, answering: Answering) -> None:
        super().__init__([url], pid=None, starts=["2026-01-01T00:00:00Z"], process=None)
        self.answering = answering

    def alive(self) -> bool:
        return self.answering.answered != self.answering.dies_after

    def exit_text(self) -> str | None:
        return None if self.alive() else "ended with exit code 7"


@dataclass
class Desk:
    """A work folder with one repeat that ended, and what its sittings do."""

    folder: Path
    spec: Spec = field(default_factory=lambda: summing(TASK, endpoint__model="toy"))
    task: Task = TASK
    scorer: Callable[[Sequence[Reply]], Scores] = scored
    kept: dict[int, AccuracyLog] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def sittings(self) -> Sittings:
        journal = Journal(self.folder / "journal.jsonl", lambda: "2026-01-01T00:00:00.000000Z")
        keep, say = self.kept.__setitem__, self.said.append
        return Sittings(self.spec, self.task, self.scorer, self.folder, journal, keep, say)

    def sit(self, answering: Answering, *, same_launch: bool | None = True) -> Sittings:
        with serving(StubEngine(plain=answering, get=MODELS)) as url:
            sittings = self.sittings()
            sittings.sit(1, Engine(url, answering), same_launch=same_launch)
            return sittings


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(asking, "_LOOK_S", 0.02)
    monkeypatch.setattr(asking, "_END_S", 0.2)
    return Desk(tmp_path)


def told(sittings: Sittings) -> list[tuple[str, dict[str, Any]]]:
    return [(line.event, line.data) for line in sittings.journal.lines]


def test_a_sitting_asks_all_and_its_answers_are_scored_and_kept(desk: Desk) -> None:
    answering = Answering(text=added)
    sittings = desk.sit(answering)
    assert sittings.is_due(1)
    assert sittings.is_whole(1)
    sittings.score(1)

    assert not sittings.is_due(1)
    log = desk.kept[1]
    assert log.header.asked == TASK.asked
    assert [answer.question for answer in log.answers] == list(range(12))
    assert [answer.prompt for answer in log.answers] == [q.prompt_digest for q in TASK.questions]
    assert [answer.data for answer in log.answers] == [q.data for q in TASK.questions]
    assert all(answer.correct for answer in log.answers)
    assert (log.answers[0].text, log.answers[0].extracted) == (" 2", "2")
    assert log.answers[0].answer == text_digest(added("1 + 1 ="))
    started = {"same_launch": True, "engine_started": "2026-01-01T00:00:00Z"}
    assert told(sittings) == [
        ("accuracy_start", {"repeat": 1, "part": 1, **started}),
        ("accuracy_end", {"repeat": 1, "part": 1}),
    ]
    assert desk.said[-1] == "repeat 1: 12 of 12 questions were answered right"


def test_an_engine_that_dies_is_named_and_the_next_sitting_asks_only_the_rest(desk: Desk) -> None:
    dying = Answering(text=added, dies_after=5)
    with pytest.raises(EngineError, match="the engine ended with exit code 7"):
        desk.sit(dying)
    sittings = desk.sittings()
    assert sittings.is_due(1)
    assert not sittings.is_whole(1)

    well = Answering(text=added)
    sittings = desk.sit(well, same_launch=False)
    sittings.score(1)
    first, second = ({prompt_of(body) for body in each.bodies} for each in (dying, well))
    answers = desk.kept[1].answers
    assert len(well.bodies) == 12 - 5
    assert first | second == {q.prompt for q in TASK.questions}
    assert sorted(answer.part for answer in answers) == [1] * 5 + [2] * 7
    assert [data["part"] for event, data in told(sittings) if event == "accuracy_start"] == [1, 2]
    assert told(sittings)[-1] == ("accuracy_end", {"repeat": 1, "part": 2})


def test_a_question_that_was_refused_is_wrong_and_says_why(desk: Desk) -> None:
    answering = Answering(text=added, faults={"1 + 3 =": [refusal(400, "too long")]})
    sittings = desk.sit(answering)
    assert sittings.is_whole(1)
    sittings.score(1)
    answer = desk.kept[1].answers[2]
    assert (answer.correct, answer.answer, answer.text, answer.flags) == (False, None, None, ())
    assert "too long" in (answer.failure or "")


def test_what_was_refused_is_asked_again_in_another_sitting(desk: Desk) -> None:
    refusing = Answering(text=added, faults={"1 + 1 =": [refusal(400, "not now")]}, dies_after=5)
    with pytest.raises(EngineError):
        desk.sit(refusing)
    sittings = desk.sit(Answering(text=added), same_launch=False)
    sittings.score(1)
    assert all(answer.correct for answer in desk.kept[1].answers)
    assert desk.kept[1].answers[0].part == 2


def test_replies_whose_scoring_failed_are_scored_without_an_engine(desk: Desk) -> None:
    def gone(_: Sequence[Reply]) -> Scores:
        raise EnvironmentProblem("the data of the task is gone")

    desk.scorer = gone
    sittings = desk.sit(Answering(text=added))
    with pytest.raises(EnvironmentProblem, match="data of the task is gone"):
        sittings.score(1)
    assert sittings.is_due(1)
    desk.scorer = scored
    again = desk.sittings()
    assert again.is_whole(1)
    again.score(1)
    assert not again.is_due(1)
    assert sum(answer.correct for answer in desk.kept[1].answers) == 12


def test_texts_are_left_out_where_they_are_not_to_be_published(desk: Desk) -> None:
    desk.spec = summing(TASK, endpoint__model="toy", accuracy={"keep_answers": False})
    desk.sit(Answering(text=added)).score(1)
    log = desk.kept[1]
    assert not log.header.texts
    assert {answer.text for answer in log.answers} == {None}
    assert log.answers[0].answer == text_digest(" 2")
    assert log.answers[0].extracted == "2"


def test_the_engine_is_asked_the_longest_question_before_the_load(desk: Desk) -> None:
    refusing = Answering(every=refusal(400, "maximum context length is 4"))
    with (
        serving(StubEngine(plain=refusing, get=MODELS)) as url,
        pytest.raises(EngineError, match="maximum context length is 4"),
    ):
        desk.sittings().require_answerable(Engine(url, refusing), None)
    assert not list(desk.folder.glob("*.replies.jsonl"))


REPLY = Reply(0, "\tfour\x00", 12, 3, "stop", None, 1)


def answer_of(reply: Reply, score: Score) -> Answer:
    one = replace(TASK, questions=TASK.questions[:1])
    (answer,) = answers_of(one, (reply,), (score,), repeat=1, texts=True)
    return answer


def test_whatever_an_engine_writes_can_be_kept() -> None:
    answer = answer_of(REPLY, Score(0, "\x00" * 5000, correct=False))
    assert answer.answer == text_digest("\tfour\x00")
    assert answer.text == r"\{9}four\{0}"
    assert answer.extracted == r"\{0}" * 400 + "…"


def test_no_answer_is_wrong_whatever_the_scorer_says() -> None:
    failed = Reply(0, None, None, None, None, "HTTP 400: too long", 1)
    answer = answer_of(failed, Score(0, "[invalid]", correct=True))
    assert (answer.correct, answer.extracted, answer.flags) == (False, None, ())


def test_scores_of_other_questions_are_not_joined() -> None:
    with pytest.raises(ValueError, match="question 0 has the score of 1"):
        answer_of(REPLY, Score(1, None, correct=False))


def lines(*entries: tuple[str, dict[str, Any]]) -> list[Entry]:
    return [
        Entry(seq=seq, at="", event=event, prev="0" * 64, data=data)  # type: ignore[arg-type]
        for seq, (event, data) in enumerate(entries)
    ]


def test_repeats_are_due_until_their_answers_are_scored() -> None:
    spec = summing(TASK, protocol__repeats=3, accuracy={"repeats": 2})
    assert repeats_due(spec, []) == (1, 2)
    assert repeats_due(spec, lines(("accuracy_start", {"repeat": 1}))) == (1, 2)
    assert repeats_due(spec, lines(("accuracy_end", {"repeat": 1}))) == (2,)


@pytest.mark.parametrize(
    ("loaded", "now", "same"),
    [("a", "a", True), ("a", "b", False), (None, "a", None), ("a", None, None)],
)
def test_an_attached_engine_is_the_same_where_it_says_so(
    loaded: str | None, now: str | None, same: bool | None
) -> None:
    before = lines(
        ("launch", {"repeat": 1, "engine_started": "broken off"}),
        ("launch", {"repeat": 1, "engine_started": loaded}),
        ("launch", {"repeat": 2, "engine_started": "x"}),
    )
    assert same_launch(summing(TASK, **ATTACH), before, 1, now) is same
    assert same_launch(summing(TASK), before, 1, now) is False
