"""What a gate can settle, told before anything is measured. Pure."""

from __future__ import annotations

from bisect import bisect_right

from tokenwatt_site.accuracy_gate import SETTLED_WITH, questions_needed

DIFFERING = (0.01, 0.02, 0.05, 0.1)
"""Shares of the questions that one of the two gets right and the other does not."""


def outlook(questions: int, max_drop_points: float) -> tuple[str, ...]:
    """Tell how many questions show that an engine as good as the reference passes.

    Two runs of one model do not answer alike to the letter, and each question that only one of them
    gets right makes the drop less certain. Here as many are lost as won.

    Args:
        questions: how many the gate asks.
        max_drop_points: how many points of 100 it allows.
    """
    max_drop = max_drop_points / 100
    if max_drop == 0:
        return ("it allows no drop, so an engine passes only if it is shown to be better",)
    told = ", ".join(
        f"{_needed(share, max_drop):,} where {share:.0%} differ" for share in DIFFERING
    )
    points = f"{max_drop_points:g} point{'s' if max_drop_points != 1 else ''}"
    needed = (
        f"to show a drop of at most {points} with {SETTLED_WITH:.0%} takes, where as many answers"
        f" are lost as won, questions: {told}"
    )
    return needed, _settled(questions, max_drop)


def _settled(questions: int, max_drop: float) -> str:
    """Tell up to how many differing answers the gate's own number settles it."""
    counted = range(questions + 1)
    settled = bisect_right(counted, questions, key=lambda d: _needed(d / questions, max_drop)) - 1
    if settled >= 0:
        differing = f"no more than {settled:,} differ" if settled else "none differs"
        return f"the {questions:,} asked are enough where {differing}"
    return (
        f"the {questions:,} asked are too few: where none differs it takes {_needed(0, max_drop):,}"
    )


def _needed(differing: float, max_drop: float) -> int:
    needed = questions_needed(differing / 2, differing / 2, max_drop)
    if needed is None:  # only where the drop, here 0, is what is allowed
        raise ValueError("nothing is allowed")
    return needed
