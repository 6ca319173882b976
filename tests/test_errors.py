from __future__ import annotations

import pytest

from tokenwatt_site import errors
from tokenwatt_site.errors import Problem, TokenwattError, VerificationError

EXIT_CODES = {
    "TokenwattError": 1,
    "UsageError": 2,
    "InputError": 2,
    "SpecError": 2,
    "EnvironmentProblem": 3,
    "EngineError": 3,
    "ReadBackError": 3,
    "GateFailed": 4,
    "InvalidMeasurement": 5,
    "VerificationError": 6,
    "NotComparable": 12,
    "Interrupted": 130,
}


def tree(kind: type[TokenwattError] = TokenwattError) -> dict[str, type[TokenwattError]]:
    found = {kind.__name__: kind} if kind.__module__ == errors.__name__ else {}
    for child in kind.__subclasses__():
        found |= tree(child)
    return found


def test_every_error_has_the_exit_code_of_the_table() -> None:
    assert {name: kind.exit_code for name, kind in tree().items()} == EXIT_CODES


def test_the_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    drawn = {
        words[0]: int(words[1])
        for line in (errors.__doc__ or "").splitlines()
        if len(words := line.strip("│├└─ ").split()) > 1 and words[1].isdigit()
    }
    assert drawn == EXIT_CODES


def test_every_error_and_the_problem_are_exported() -> None:
    assert set(errors.__all__) == {*tree(), "Problem"}


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem("is empty"), "is empty"),
        (Problem("is empty", file="a.yaml", line=3), "a.yaml:3: is empty"),
        (Problem("is bad", field="setup.slo", found="1"), "setup.slo: is bad; found 1"),
        (
            Problem("is bad", file="f", line=1, field="x", found="1", expected="2", remedy="Fix."),
            "f:1: x: is bad; found 1; expected 2. Fix.",
        ),
    ],
)
def test_a_problem_names_place_fault_and_remedy(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_an_error_prints_each_problem_on_its_own_line() -> None:
    error = TokenwattError("one", Problem("two", file="f"))
    assert str(error) == "one\nf: two"
    assert [p.what for p in error.problems] == ["one", "two"]


def test_a_failed_check_says_its_number_on_every_line() -> None:
    error = VerificationError(7, "one", "two")
    assert str(error) == "check 7: one\ncheck 7: two"
    assert error.check == 7
