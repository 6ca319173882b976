"""The batch that answers make between their first and last tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.decodes import a_record
from tokenwatt_site.bandwidth.decoding import Batch, decode_batch, decoding_of, prompt_contexts
from tokenwatt_site.bandwidth.step import Contexts

S = 10**9

spans = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 40)).map(lambda x: (x[0], x[0] + x[1])),
    min_size=1,
    max_size=10,
)


@given(spans, st.integers(0, 40), st.integers(1, 40))
def test_the_mean_batch_is_that_of_a_look_at_every_tick(
    answers: list[tuple[int, int]], start: int, length: int
) -> None:
    records = [a_record(first, last) for first, last in answers]
    looks = [sum(a <= tick < b for a, b in answers) for tick in range(start, start + length)]

    assert decode_batch(records, start, start + length) == pytest.approx(sum(looks) / length)


@given(spans, st.integers(0, 30), st.integers(2, 40), st.data())
def test_a_part_of_the_window_has_the_means_of_that_part_alone(
    answers: list[tuple[int, int]], start: int, length: int, data: st.DataObject
) -> None:
    decoding = [d for a, b in answers if (d := decoding_of(a_record(a, b))) is not None]
    begin = start + data.draw(st.integers(0, length - 1))
    end = data.draw(st.integers(begin + 1, start + length))
    part = Batch(decoding, start, start + length).means(begin, end)

    assert part == pytest.approx(Batch(decoding, begin, end).means(begin, end), abs=1e-9)


def test_events_after_the_first_are_evenly_spaced_each_a_step_of_its_own() -> None:
    decoding = decoding_of(a_record(2 * S, 12 * S, prompt=100, output=11, events=11))

    assert decoding is not None
    assert decoding.contexts(0, 20 * S) == Contexts(101, 1.0, 10)
    assert decoding.contexts(4 * S, 6 * S) == Contexts(103, 1.0, 2)
    assert decoding.contexts(4 * S - 1, 6 * S - 1) == Contexts(102, 1.0, 2)
    assert decoding.contexts(12 * S, 20 * S).count == 0
    assert decoding.contexts(0, 2 * S).count == 0


def test_events_of_several_tokens_lengthen_the_context_by_as_many() -> None:
    decoding = decoding_of(a_record(0, 4 * S, prompt=50, output=2 + 12, first_tokens=2, events=5))

    assert decoding is not None
    assert decoding.contexts(0, 4 * S) == Contexts(52, 3.0, 4)


def test_there_are_no_more_steps_than_tokens() -> None:
    decoding = decoding_of(a_record(0, 4 * S, output=5, events=40))

    assert decoding is not None
    assert (decoding.events, decoding.per_event) == (4, 1.0)


def test_a_prompt_attends_to_what_was_cached_without_computing_it() -> None:
    assert prompt_contexts(a_record(0, S, prompt=100)) == Contexts(1, 1, 100)
    assert prompt_contexts(a_record(0, S, prompt=100, cached=64)) == Contexts(65, 1, 36)
    assert prompt_contexts(a_record(0, S, prompt=100, cached=None)) == Contexts(1, 1, 100)
