"""What a setup says of its rows is valid if it exists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tokenwatt_site.lengths import Conversation, Traced


def conversation(turns, spread, shared):
    return Conversation(turns=turns, spread=spread, shared_prefix_tokens=shared)


@given(st.integers(1, 100), st.integers(1, 10**6), st.integers(0, 10**6), st.integers(1, 10**6))
def test_the_longest_prompt_is_all_that_was_said_before_and_the_last_turn(turns, new, shared, out):
    if turns == 1 and shared == 0:
        shared = 1
    tokens = shared
    for _ in range(turns):
        prompt = tokens + new
        tokens = prompt + out
    assert conversation(turns, 1, shared).longest_prompt(new, out) == prompt


@pytest.mark.parametrize(
    ("turns", "spread", "shared", "words"),
    [
        (0, 1, 5, "greater than or equal to 1"),
        (101, 1, 5, "less than or equal to 100"),
        (2, 0, 5, "greater than or equal to 1"),
        (2, 10_001, 5, "less than or equal to 10000"),
        (2, 1, -1, "greater than or equal to 0"),
        (2, 1, 1_000_001, "less than or equal to 1000000"),
        (1, 1, 0, "more than one turn or a shared prefix"),
        (1, 2, 5, "spread: 1"),
    ],
)
def test_a_conversation_that_says_nothing_or_too_much_is_refused(turns, spread, shared, words):
    with pytest.raises(ValidationError, match=words):
        conversation(turns, spread, shared)


@pytest.mark.parametrize("numbers", [(2, 1, 5, 9), (5, 9, 2, 8), (5, 4, 2, 9), (1, 5, 2, 9)])
def test_the_numbers_of_a_trace_stand_in_order(numbers):
    median, p90, low, high = numbers
    with pytest.raises(ValidationError, match="min <= median <= p90 <= max"):
        Traced(kind="trace", median=median, p90=p90, min=low, max=high)


def test_a_trace_of_equal_lengths_is_one():
    assert Traced(kind="trace", median=3, p90=3, min=3, max=3).longest == 3
