"""How far the clock of a worker is from ours, from stamps that were exchanged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Offset:
    """What the worker's clock is ahead of ours: between `low_ns` and `high_ns`."""

    low_ns: int
    high_ns: int

    @classmethod
    def between(cls, stamps: Iterable[tuple[int, int, int]]) -> Self:
        """Return what (asked_ns, theirs_ns, heard_ns) leave: theirs is of a moment between ours.

        However long an answer took, it is not wrong; the quickest ones say most.
        """
        told = list(stamps)
        return cls(
            low_ns=max(theirs - heard for _, theirs, heard in told),
            high_ns=min(theirs - asked for asked, theirs, _ in told),
        )

    @property
    def assumed_ns(self) -> int:
        """Nothing where that is possible, as of processes that read one clock; else the middle."""
        return 0 if self.low_ns <= 0 <= self.high_ns else (self.low_ns + self.high_ns) // 2

    def bound_ns(self, assumed_ns: int) -> int:
        """Return how wrong `assumed_ns` may be."""
        return max(abs(self.high_ns - assumed_ns), abs(assumed_ns - self.low_ns))
