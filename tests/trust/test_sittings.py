"""Tests of trust.sittings; what it refuses in whole runs is in test_accuracy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.runs import (
    JournalPlan,
    RunBuilder,
    answers_of,
    gated_spec,
    small_spec,
    under_load_of,
    with_answers,
)
from tokenwatt_site.errors import InputError
from tokenwatt_site.journal import GENESIS, Entry
from tokenwatt_site.spec import Spec
from tokenwatt_site.trust.sittings import AnswersTold, answers_told

SPEC = gated_spec(3, protocol__repeats=2, accuracy={"repeats": 2})
LOG = answers_of(SPEC, [True] * 3, [True] * 3)
BUILDER = RunBuilder(spec=SPEC, accuracy=LOG)
BUILDER = replace(BUILDER, under_load=under_load_of(BUILDER, repeats=2))
PLAN = BUILDER.journal_plan()
EVENTS = {"under_load", "accuracy_start", "accuracy_end"}


def told(plan: JournalPlan, spec: Spec = SPEC) -> AnswersTold:
    return answers_told(
        spec,
        [
            Entry(seq=seq, at="2026-01-01T00:00:00Z", event=event, prev=GENESIS, data=data)
            for seq, (event, data) in enumerate(plan)
        ],
    )


def fits(plan: JournalPlan) -> bool:
    try:
        told(plan)
    except InputError:
        return False
    return True


def test_a_journal_tells_of_sittings_and_of_what_was_compared_by_repeat() -> None:
    found = told(PLAN)
    assert found == AnswersTold({1: 1, 2: 1}, {1, 2}, {1: 2, 2: 5})


def test_a_journal_without_answers_tells_of_none() -> None:
    assert told(RunBuilder().journal_plan(), small_spec()) == AnswersTold()


def test_a_sitting_that_was_broken_off_is_followed_by_the_next() -> None:
    second = LOG.answers[2].model_copy(update={"part": 3})
    plan = replace(BUILDER, accuracy=with_answers(LOG, second)).journal_plan()
    assert [event for event, _ in plan].count("accuracy_start") == 4
    assert told(plan).sittings == {1: 3, 2: 1}
    # Also where a crash left no line.
    assert told([line for line in plan if line[0] != "interrupted"]).sittings == {1: 3, 2: 1}


def test_each_line_of_answers_stands_where_it_was_written_and_nowhere_else() -> None:
    for number, line in enumerate(PLAN):
        if line[0] not in EVENTS:
            continue
        others = [*PLAN[:number], *PLAN[number + 1 :]]
        places = [at for at in range(1, len(others)) if fits([*others[:at], line, *others[at:]])]
        assert places == [number], line


def test_lines_of_a_repeat_that_has_not_ended_are_refused() -> None:
    end = next(at for at, (event, _) in enumerate(PLAN) if event == "repeat_end")
    assert not fits([*PLAN[:end], *PLAN[end + 1 :]])


def change(event: str, **changes: Any) -> JournalPlan:
    at = next(at for at, line in enumerate(PLAN) if line[0] == event)
    return [*PLAN[:at], (event, PLAN[at][1] | changes), *PLAN[at + 1 :]]


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "another repeat compared": ("under_load", {"repeat": 2}, "just ended: 1"),
    "no trial": ("under_load", {"trial": None}, "the trial None"),
    "a repeat that is true": ("under_load", {"repeat": True}, "the repeat True"),
    "a repeat as a list": ("accuracy_start", {"repeat": [1]}, "no number from 1"),
    "a repeat that is not asked": ("accuracy_start", {"repeat": 3}, "nothing is left to be asked"),
    "a repeat to come": ("accuracy_start", {"repeat": 2}, "has not ended"),
    "part 0": ("accuracy_start", {"part": 0}, "the part 0"),
    "part 2 first": ("accuracy_start", {"part": 2}, "sittings so far: 1"),
    "the end of another part": ("accuracy_end", {"part": 2}, "sittings so far: 1"),
    "same_launch as a number": ("accuracy_start", {"same_launch": 1}, "neither true, false nor"),
    "same_launch, of another start": (
        "accuracy_start",
        {"engine_started": "2026-01-02T00:00:00Z"},
        "not what the starts of the engines say",
    ),
    "another launch, of the same start": (
        "accuracy_start",
        {"same_launch": False},
        "not what the starts of the engines say",
    ),
    "not known, of the same start": (
        "accuracy_start",
        {"same_launch": None},
        "not what the starts of the engines say",
    ),
}


@pytest.mark.parametrize(("event", "changes", "words"), WRONG.values(), ids=WRONG)
def test_a_line_that_tells_what_cannot_be_is_refused(
    event: str, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=rf"journal line \d+.*{words}"):
        told(change(event, **changes))


@pytest.mark.parametrize("same", [True, False, None])
def test_where_no_start_is_told_the_first_sitting_may_be_of_any_launch(same: Any) -> None:
    assert fits(change("accuracy_start", engine_started=None, same_launch=same))


def test_where_no_start_is_told_a_second_sitting_is_not_of_the_same_launch() -> None:
    at = next(at for at, (event, _) in enumerate(PLAN) if event == "accuracy_end")
    for same, may in ((True, False), (None, True), (False, True)):
        start = PLAN[at - 1][1] | {"part": 2, "engine_started": None, "same_launch": same}
        end = PLAN[at][1] | {"part": 2}
        lines: JournalPlan = [("accuracy_start", start), ("accuracy_end", end)]
        assert fits([*PLAN[:at], *lines, *PLAN[at + 1 :]]) == may


def test_a_repeat_whose_answers_are_there_is_not_launched_again() -> None:
    launch = next(line for line in PLAN if line[0] == "launch")
    for at in range(1, len(PLAN)):
        before = [event for event, data in PLAN[:at] if data.get("repeat") == 1]
        assert fits([*PLAN[:at], launch]) == EVENTS.isdisjoint(before), at


def test_the_next_repeat_is_launched_when_the_one_before_was_asked_to_its_end() -> None:
    end = next(at for at, (event, _) in enumerate(PLAN) if event == "accuracy_end")
    with pytest.raises(InputError, match="before the repeat 1 was asked to its end"):
        told([*PLAN[:end], *PLAN[end + 1 :]])
    assert fits(PLAN[:end])


def test_a_spec_that_asks_nothing_has_no_sittings() -> None:
    with pytest.raises(InputError, match="nothing is left to be asked"):
        told(PLAN, small_spec(protocol__repeats=2))
