"""What a gate can settle, told before anything is measured."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.accuracy_gate import Paired, judge_drop, questions_needed
from tokenwatt_site.commands.outlook import DIFFERING, outlook


def settled_by(questions: int, points: float) -> int | None:
    """How many may differ, as the text has it."""
    text = outlook(questions, points)[1]
    found = re.search(r"enough where no more than ([\d,]+) differ", text)
    if found is None:
        return 0 if "enough where none differs" in text else None
    return int(found[1].replace(",", ""))


def enough(questions: int, differing: int, points: float) -> bool:
    half = differing / questions / 2
    return (questions_needed(half, half, points / 100) or questions + 1) <= questions


def test_the_questions_that_it_takes_are_told_for_each_share_of_answers_that_differ():
    needed, _ = outlook(1319, 1.0)
    assert needed.startswith("to show a drop of at most 1 point with 80% takes, where as many")
    for share in DIFFERING:
        assert f"{questions_needed(share / 2, share / 2, 0.01):,} where {share:.0%} diff" in needed


@given(st.integers(1, 400), st.sampled_from([0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 100.0]))
def test_the_greatest_number_that_may_differ_is_the_one_that_a_count_finds(questions, points):
    greatest = settled_by(questions, points)
    fitting = [d for d in range(questions + 1) if enough(questions, d, points)]
    assert greatest == (max(fitting) if fitting else None)


@given(st.integers(40, 2000), st.sampled_from([2.5, 5.0, 10.0]))
def test_a_gate_passes_where_no_more_differ_than_is_told(questions, points):
    half = (settled_by(questions, points) or 0) // 2
    if settled_by(questions, points) is None:
        return
    assert judge_drop(Paired(questions, questions - 2 * half, half, half), points / 100) == "passed"


def test_too_few_questions_are_told_with_how_many_it_takes_where_none_differs():
    least = questions_needed(0, 0, 0.01)
    assert outlook(60, 1.0)[1] == (
        f"the 60 asked are too few: where none differs it takes {least:,}"
    )


def test_a_gate_that_allows_no_drop_is_told_to_ask_for_better():
    assert outlook(60, 0) == (
        "it allows no drop, so an engine passes only if it is shown to be better",
    )
