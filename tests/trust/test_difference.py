"""Tests of trust.difference."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.errors import InputError
from tokenwatt_site.trust.difference import expect_equal, first_difference

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


def naive_equal(a: Any, b: Any) -> bool:
    if type(a) is float or type(b) is float:
        if type(a) not in (int, float) or type(b) not in (int, float):
            return False
        exact_a, exact_b = Fraction(a), Fraction(b)
        return abs(exact_a - exact_b) <= Fraction(5, 10**7) * max(abs(exact_a), abs(exact_b))
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return set(a) == set(b) and all(naive_equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(naive_equal, a, b))
    return bool(a == b)


@given(VALUES, VALUES)
def test_two_values_differ_exactly_where_a_slow_comparison_says_so(a: Any, b: Any) -> None:
    assert (first_difference(a, b, "x") is None) == naive_equal(a, b)


@given(VALUES)
def test_a_value_does_not_differ_from_itself(value: Any) -> None:
    assert first_difference(value, value, "x") is None


@given(
    st.floats(1e-300, 1e15),
    st.sampled_from([(1 + 4e-7, True), (1 - 4e-7, True), (1 + 6e-7, False), (1 - 6e-7, False)]),
)
def test_f26_fractions_are_equal_within_5e_7_at_every_size(
    value: float, factor: tuple[float, bool]
) -> None:
    assert (first_difference(value, value * factor[0], "x") is None) == factor[1]
    assert (first_difference(value * factor[0], value, "x") is None) == factor[1]


def test_f26_integers_have_no_tolerance() -> None:
    assert first_difference(10**9, 10**9 + 1, "x") == ("x", 10**9, 10**9 + 1)


def test_a_truth_value_is_no_number() -> None:
    assert first_difference(True, 1.0, "x") == ("x", True, 1.0)
    assert first_difference(1, True, "x") == ("x", 1, True)


def test_not_a_number_equals_nothing() -> None:
    assert first_difference(1.0, math.nan, "x") is not None


def test_the_first_difference_is_named_by_its_path() -> None:
    a = {"m": [{"v": 1.0}, {"v": 2.0}], "n": [1]}
    assert first_difference(a, {"m": [{"v": 1.0}, {"v": 3.0}], "n": [2]}, "c") == (
        "c.m.1.v",
        2.0,
        3.0,
    )
    assert first_difference(a, {"m": [], "n": [2]}, "c") == ("c.m.length", 2, 0)


def test_a_difference_is_refused_by_its_place_in_the_words_of_the_caller() -> None:
    expect_equal("x", {"a": [1]}, {"a": [1]})
    with pytest.raises(InputError) as caught:
        expect_equal("x", {"a": [1, "b" * 1000]}, {"a": [1, 2]}, "is a lie")
    problem = caught.value.problems[0]
    assert (problem.what, problem.field, problem.expected) == ("is a lie", "x.a.1", "2")
    assert len(problem.found or "") == 200
