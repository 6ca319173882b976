"""Whether a score is as good as the reference's: exact paired test, interval of the drop, verdict.

Pure. Both were asked the same questions, so what counts is the questions that one got right and
the other did not: `worse` (the reference alone was right) and `better` (the candidate alone was).

Sources: E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209; Q. McNemar, Psychometrika 12 (1947) 153,
with the exact binomial; T. Tango, Stat. Med. 17 (1998) 891, score interval of a paired difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Z_975 = 1.959964
Z_80 = 0.841621

GateVerdict: TypeAlias = Literal["passed", "failed", "inconclusive"]

SETTLED_WITH = 0.8
"""How probably `questions_needed` settle it."""

SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class Paired:
    """How two took the same n questions."""

    n: int
    both: int
    worse: int
    better: int

    @classmethod
    def of(cls, reference: Sequence[bool], candidate: Sequence[bool]) -> Paired:
        """Count; both in the order of the same questions.

        Raises:
            ValueError: not as many, or none.
        """
        raise NotImplementedError

    @property
    def drop(self) -> float:
        """Share of the questions by which the candidate is below the reference."""
        return (self.worse - self.better) / self.n


def wilson(successes: float, n: int) -> tuple[float, float]:
    """Return the 95% interval of a share (Wilson, no continuity correction), within [0, 1]."""
    raise NotImplementedError


def mcnemar_exact(worse: int, better: int) -> float:
    """Return the two-sided p of as uneven a split or more, were both equally good; 1 for none."""
    raise NotImplementedError


def drop_interval(paired: Paired) -> tuple[float, float]:
    """Return the 95% interval of the drop as a share (Tango's score interval), within [-1, 1]."""
    raise NotImplementedError


def judge_drop(paired: Paired, max_drop: float) -> GateVerdict:
    """Judge a drop against the greatest that is allowed, a share.

    Passed: the whole interval is at most `max_drop`. Failed: the whole interval is above it and the
    exact test finds a difference (p at most SIGNIFICANT). Else the data cannot tell.
    """
    raise NotImplementedError


def questions_needed(worse: float, better: float, max_drop: float) -> int | None:
    """Return how many questions settle it with 80%, if these shares of them go on as they are.

    Args:
        worse: share of the questions that the reference alone gets right.
        better: share that the candidate alone gets right.
        max_drop: share allowed.

    Returns:
        The number; None where none does: the drop is what is allowed, exactly.
    """
    raise NotImplementedError
