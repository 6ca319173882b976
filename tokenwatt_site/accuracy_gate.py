"""Whether a score is as good as the reference's: exact paired test, interval of the drop, verdict.

Pure. Both were asked the same questions, so what counts is the questions that one got right and
the other did not: `worse` (the reference alone was right) and `better` (the candidate alone was).

Sources: E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209; Q. McNemar, Psychometrika 12 (1947) 153,
with the exact binomial; T. Tango, Stat. Med. 17 (1998) 891, score interval of a paired difference;
how many questions: J.-M. Nam, Biometrics 53 (1997) 1422, and for the exact test R. J. Connor,
Biometrics 43 (1987) 207, with a continuity correction.
"""

from __future__ import annotations

import math
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
    """How two took the same n questions. `both`: those that both got right."""

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
        if not reference:
            raise ValueError("no questions to pair")
        pairs = list(zip(reference, candidate, strict=True))
        return cls(
            n=len(pairs),
            both=pairs.count((True, True)),
            worse=pairs.count((True, False)),
            better=pairs.count((False, True)),
        )

    @property
    def drop(self) -> float:
        """Share of the questions by which the candidate is below the reference."""
        return (self.worse - self.better) / self.n

    @property
    def losable(self) -> float:
        """Share of the questions that the reference got right: the most that can be lost."""
        return (self.both + self.worse) / self.n


def wilson(successes: float, n: int) -> tuple[float, float]:
    """Return the 95% interval of a share (Wilson, no continuity correction), within [0, 1]."""
    z2 = Z_975 * Z_975
    middle = (successes + z2 / 2) / (n + z2)
    half = Z_975 * math.sqrt(successes * (n - successes) / n + z2 / 4) / (n + z2)
    # The ends are 0 and 1 where none or all succeeded, up to rounding.
    low = middle - half if successes > 0 else 0.0
    high = middle + half if successes < n else 1.0
    return low, high


def mcnemar_exact(worse: int, better: int) -> float:
    """Return the two-sided p of as uneven a split or more, were both equally good; 1 for none.

    In whole numbers up to one last division: right to the last bit for any number of questions. A p
    below the smallest float is 0.
    """
    n, fewer = worse + better, min(worse, better)
    if 2 * fewer == n:
        return 1.0
    ways = total = 1
    for k in range(fewer):
        ways = ways * (n - k) // (k + 1)
        total += ways
    return min(1.0, 2 * total / (1 << n))


def drop_interval(paired: Paired) -> tuple[float, float]:
    """Return the 95% interval of the drop as a share (Tango's score interval), within [-1, 1]."""
    n, worse, better = paired.n, paired.worse, paired.better
    return -_upper(n, better, worse), _upper(n, worse, better)


def _upper(n: int, worse: int, better: int) -> float:
    """Return the greatest drop that the score test does not refuse, by halving the interval."""
    low, high = (worse - better) / n, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        beyond = (n * middle - (worse - better)) ** 2
        if beyond > Z_975 * Z_975 * n * _variance(worse / n, better / n, middle):
            high = middle
        else:
            low = middle
    return (low + high) / 2


def _variance(worse: float, better: float, drop: float) -> float:
    """Return the variance of one question's difference were the true drop `drop`.

    2 q + drop (1 - drop), where q, the share that the candidate alone gets right, is the likeliest
    under that drop given the shares found (Tango's equation, divided by n).
    """
    if drop < 0:
        return _variance(better, worse, -drop)
    b = (2 - worse + better) * drop - worse - better
    root = math.sqrt(b * b + 8 * better * drop * (1 - drop))
    # Two forms of the same root, each without a difference of near equals.
    q = (root - b) / 4 if b <= 0 else 2 * better * drop * (1 - drop) / (root + b)
    return 2 * q + drop * (1 - drop)


def judge_drop(paired: Paired, max_drop: float) -> GateVerdict:
    """Judge a drop against the greatest that is allowed, a share.

    Passed: the whole interval is at most `max_drop`. Failed: the whole interval is above it and the
    exact test finds a difference (p at most SIGNIFICANT). Else the data cannot tell; nor can they
    where the reference has no more right than may be lost, so that no answers could fail.
    """
    if paired.losable <= max_drop:
        return "inconclusive"
    low, high = drop_interval(paired)
    if high <= max_drop:
        return "passed"
    if low > max_drop and mcnemar_exact(paired.worse, paired.better) <= SIGNIFICANT:
        return "failed"
    return "inconclusive"


def questions_needed(worse: float, better: float, max_drop: float) -> int | None:
    """Return how many questions settle it with 80%, if these shares of them go on as they are.

    Settled is passed where the drop is below what is allowed, else failed. By the normal
    approximation of both tests; where no answer differs it is where the interval of no differences
    comes down to `max_drop`, exactly.

    Args:
        worse: share of the questions that the reference alone gets right.
        better: share that the candidate alone gets right.
        max_drop: share allowed.

    Returns:
        The number; None where none does: the drop is what is allowed, exactly.
    """
    drop = worse - better
    if math.isclose(drop, max_drop, rel_tol=1e-9, abs_tol=1e-12):
        return None
    spread = Z_80 * math.sqrt(max(0.0, worse + better - drop * drop))
    by_interval = Z_975 * math.sqrt(_variance(worse, better, max_drop)) + spread
    root = by_interval / abs(max_drop - drop)
    if drop > max_drop:
        by_test = Z_975 * math.sqrt(worse + better) + spread
        root = max(root, (by_test + math.sqrt(by_test * by_test + 4 * drop)) / (2 * drop))
    return max(1, math.ceil(root * root))
