"""When two values are the same, and the words of the refusal when they are not. Pure."""

from __future__ import annotations

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.errors import InputError, Problem

TOLERANCE = 5e-7
"""Relative; libm's log and exp differ in the last bits between platforms, far below this."""


def expect_equal(
    field: str, found: JsonValue, expected: JsonValue, what: str = "is not what it should be"
) -> None:
    """Refuse two values that differ, by the first place where they do.

    Raises:
        InputError: naming `field`, or the part of it that differs, and saying `what`.
    """
    if different := first_difference(found, expected, field):
        place, a, b = different
        raise InputError(Problem(what, field=place, found=repr(a)[:200], expected=repr(b)[:200]))


def first_difference(
    found: JsonValue, expected: JsonValue, path: str
) -> tuple[str, JsonValue, JsonValue] | None:
    """Return (path, found, expected) of the first place where two values differ, or None.

    Numbers are equal when |a - b| <= TOLERANCE max(|a|, |b|) if either is a fraction, and integers
    only when they are the same.
    """
    if isinstance(found, dict) and isinstance(expected, dict):
        if found.keys() != expected.keys():
            return path, sorted(found), sorted(expected)
        pairs = [(f"{path}.{key}", found[key], expected[key]) for key in expected]
    elif isinstance(found, list) and isinstance(expected, list):
        if len(found) != len(expected):
            return f"{path}.length", len(found), len(expected)
        pairs = [
            (f"{path}.{index}", a, b)
            for index, (a, b) in enumerate(zip(found, expected, strict=True))
        ]
    else:
        return None if _same(found, expected) else (path, found, expected)
    return next(
        (different for key, a, b in pairs if (different := first_difference(a, b, key))), None
    )


def _same(a: JsonValue, b: JsonValue) -> bool:
    numbers = all(isinstance(value, int | float) and type(value) is not bool for value in (a, b))
    if numbers and (isinstance(a, float) or isinstance(b, float)):
        return bool(abs(a - b) <= TOLERANCE * max(abs(a), abs(b)))
    return type(a) is type(b) and bool(a == b)
