"""Published vectors, and slow oracles: enumeration, a search by likelihood, a grid."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwatt_site.accuracy_gate import (
    SETTLED_WITH,
    SIGNIFICANT,
    Z_80,
    Z_975,
    Paired,
    drop_interval,
    judge_drop,
    mcnemar_exact,
    questions_needed,
    wilson,
)


def paired(n: int, worse: int, better: int) -> Paired:
    """Return counts in which all the other questions were got right by both."""
    return Paired(n=n, both=n - worse - better, worse=worse, better=better)


@st.composite
def counts(draw: st.DrawFn, most: int = 60) -> Paired:
    n = draw(st.integers(1, most))
    worse = draw(st.integers(0, n))
    return paired(n, worse, draw(st.integers(0, n - worse)))


def normal_above(z: float) -> float:
    return math.erfc(z / math.sqrt(2)) / 2


def test_the_normal_quantiles_are_what_they_are_called() -> None:
    assert normal_above(Z_975) == pytest.approx(0.025, rel=1e-6)
    assert normal_above(Z_80) == pytest.approx(1 - SETTLED_WITH, rel=1e-5)


def test_answers_are_counted_question_by_question() -> None:
    reference = [True, True, True, False, False, True]
    candidate = [True, False, False, True, False, True]
    found = Paired.of(reference, candidate)
    assert found == Paired(n=6, both=2, worse=2, better=1)
    assert found.drop == pytest.approx(1 / 6)
    assert found.losable == pytest.approx(4 / 6)


@pytest.mark.parametrize(("reference", "candidate"), [([], []), ([True], []), ([True], [True] * 2)])
def test_other_numbers_of_answers_and_none_at_all_are_refused(
    reference: list[bool], candidate: list[bool]
) -> None:
    with pytest.raises(ValueError, match=r"questions|longer|shorter"):
        Paired.of(reference, candidate)


@pytest.mark.parametrize(
    ("successes", "n", "published"),
    [
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_wilson_gives_the_intervals_that_newcombe_published_in_1998(
    successes: int, n: int, published: tuple[float, float]
) -> None:
    assert wilson(successes, n) == pytest.approx(published, abs=5e-5)


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_ends_of_wilson_are_where_the_score_test_turns(case: tuple[int, int]) -> None:
    successes, n = case
    low, high = wilson(successes, n)
    assert 0 <= low <= successes / n <= high <= 1
    for end in (low, high):
        away = (successes / n - end) ** 2
        assert away == pytest.approx(Z_975**2 * end * (1 - end) / n, rel=1e-9, abs=1e-15)


def test_no_success_begins_at_0_and_none_but_successes_end_at_1() -> None:
    assert wilson(0, 60)[0] == 0.0
    assert wilson(60, 60)[1] == 1.0


def enumerated_p(worse: int, better: int) -> Fraction:
    """Return the share of all 2^m ways that are at least as uneven."""
    m, uneven = worse + better, abs(worse - better)
    ways = sum(math.comb(m, k) for k in range(m + 1) if abs(2 * k - m) >= uneven)
    return Fraction(ways, 2**m)


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_exact_test_equals_an_enumeration_of_all_splits(worse: int, better: int) -> None:
    assert mcnemar_exact(worse, better) == float(enumerated_p(worse, better))
    assert mcnemar_exact(worse, better) == mcnemar_exact(better, worse)


@pytest.mark.parametrize(
    ("worse", "better", "published"), [(1, 7, 0.0703125), (6, 16, 0.052479), (12, 2, 0.012939)]
)
def test_the_exact_test_gives_published_values(worse: int, better: int, published: float) -> None:
    assert mcnemar_exact(worse, better) == pytest.approx(published, abs=5e-7)


def test_the_exact_test_of_50_000_uneven_answers_is_near_the_normal_one() -> None:
    near = 2 * normal_above((400 - 1) / math.sqrt(50_000))
    assert mcnemar_exact(25_200, 24_800) == pytest.approx(near, rel=1e-3)
    assert mcnemar_exact(25_000, 25_000) == 1.0


def test_a_p_below_the_smallest_float_is_0_and_no_error() -> None:
    assert mcnemar_exact(1000, 0) == 2.0**-999
    assert mcnemar_exact(50_000, 0) == 0.0


def likeliest(n: int, worse: int, better: int, drop: float) -> float:
    """Return the share `better` of greatest likelihood under a true drop, by ternary search."""

    def loss(q: float) -> float:
        shares = (q + drop, q, 1 - 2 * q - drop)
        parts = zip((worse, better, n - worse - better), shares, strict=True)
        return -sum(k * math.log(max(share, 1e-300)) for k, share in parts if k)

    low, high = max(0.0, -drop), (1 - drop) / 2
    for _ in range(200):
        third = (high - low) / 3
        if loss(low + third) < loss(high - third):
            high -= third
        else:
            low += third
    return (low + high) / 2


def naive_score(n: int, worse: int, better: int, drop: float) -> float:
    """Return how many standard errors lie between what was found and a true drop."""
    q = likeliest(n, worse, better, drop)
    variance = n * ((q + drop) + q - drop * drop)
    away = worse - better - n * drop
    return math.copysign(math.inf, away) if variance < 1e-9 and away else away / variance**0.5


TABLES = [
    (1, 0, 0), (1, 1, 0), (1, 0, 1), (5, 5, 0), (10, 0, 0), (10, 3, 3), (10, 10, 0), (10, 0, 9),
    (21, 1, 7), (44, 0, 1), (60, 31, 2), (60, 1, 0), (161, 6, 16), (400, 9, 4), (1319, 40, 22),
]  # fmt: skip


@pytest.mark.parametrize(("n", "worse", "better"), TABLES)
def test_the_interval_holds_just_the_drops_that_the_score_test_does_not_refuse(
    n: int, worse: int, better: int
) -> None:
    low, high = drop_interval(paired(n, worse, better))
    for step in range(-100, 101):
        drop = step / 101
        refused = abs(naive_score(n, worse, better, drop)) > Z_975
        if min(abs(drop - low), abs(drop - high)) > 1e-6:
            assert refused is not (low < drop < high)


@pytest.mark.parametrize(("n", "worse", "better"), TABLES)
def test_the_ends_of_the_interval_solve_the_score_equation(n: int, worse: int, better: int) -> None:
    low, high = drop_interval(paired(n, worse, better))
    if low > -1:
        assert naive_score(n, worse, better, low) == pytest.approx(Z_975, abs=1e-5)
    if high < 1:
        assert naive_score(n, worse, better, high) == pytest.approx(-Z_975, abs=1e-5)


@pytest.mark.parametrize(
    ("n", "worse", "better", "published"),
    [(21, 1, 7, (-0.517, -0.026)), (161, 6, 16, (-0.1240, -0.0054))],
)
def test_the_interval_is_the_one_that_others_publish_for_it(
    n: int, worse: int, better: int, published: tuple[float, float]
) -> None:
    """Bentur 2009 and Cavo 2012, as Fagerland, Lydersen and Laake give Tango's interval."""
    places = 5e-4 if n == 21 else 5e-5
    assert drop_interval(paired(n, worse, better)) == pytest.approx(published, abs=places)


@pytest.mark.parametrize("n", [1, 60, 1319, 50_000])
def test_without_a_difference_the_interval_has_a_closed_form(n: int) -> None:
    end = Z_975**2 / (n + Z_975**2)
    assert drop_interval(paired(n, 0, 0)) == pytest.approx((-end, end), rel=1e-9)


def test_all_worse_and_all_better_end_at_plus_and_minus_1() -> None:
    low, high = drop_interval(paired(60, 60, 0))
    assert (low, high) == pytest.approx(((60 - Z_975**2) / (60 + Z_975**2), 1.0), rel=1e-9)
    assert high == 1.0
    assert drop_interval(paired(60, 0, 60)) == (-high, -low)


@given(counts())
def test_the_interval_encloses_the_drop_and_turns_with_the_sides(found: Paired) -> None:
    low, high = drop_interval(found)
    assert -1 <= low <= found.drop <= high <= 1
    assert low < high
    other = Paired(n=found.n, both=found.both, worse=found.better, better=found.worse)
    assert drop_interval(other) == (-high, -low)


@given(counts())
def test_one_answer_more_that_is_worse_raises_both_ends(found: Paired) -> None:
    if found.both:
        more = paired(found.n, found.worse + 1, found.better)
        before, after = drop_interval(found), drop_interval(more)
        assert after[0] >= before[0]
        assert after[1] >= before[1]


@given(counts(), st.integers(2, 50))
def test_more_questions_with_the_same_shares_narrow_the_interval(found: Paired, by: int) -> None:
    more = paired(found.n * by, found.worse * by, found.better * by)
    before, after = drop_interval(found), drop_interval(more)
    assert after[1] - after[0] < before[1] - before[0]


def chance(n: int, worse: int, better: int, shares: tuple[float, float]) -> float:
    ways = math.comb(n, worse) * math.comb(n - worse, better)
    same = (1 - sum(shares)) ** (n - worse - better)
    return ways * shares[0] ** worse * shares[1] ** better * same


def outcomes(n: int) -> list[tuple[int, int]]:
    return [(worse, better) for worse in range(n + 1) for better in range(n + 1 - worse)]


def test_the_interval_covers_the_true_drop_about_95_times_of_100() -> None:
    """By the chance of every outcome of 24 questions: score intervals hold it on average."""
    n = 24
    ends = {found: drop_interval(paired(n, *found)) for found in outcomes(n)}
    covered = []
    for shares in [(0.05, 0.05), (0.1, 0.05), (0.2, 0.05), (0.2, 0.2), (0.3, 0.1), (0.5, 0.3)]:
        drop = shares[0] - shares[1]
        hits = [found for found, (low, high) in ends.items() if low <= drop <= high]
        covered.append(math.fsum(chance(n, *found, shares) for found in hits))
    assert min(covered) > 0.92
    assert math.fsum(covered) / len(covered) == pytest.approx(0.955, abs=0.015)


@given(counts(), st.floats(0, 0.5))
def test_the_verdict_is_that_of_interval_and_exact_test(found: Paired, max_drop: float) -> None:
    low, high = drop_interval(found)
    verdict = judge_drop(found, max_drop)
    if verdict == "passed":
        assert high <= max_drop < found.losable
    elif verdict == "failed":
        assert low > max_drop
        assert enumerated_p(found.worse, found.better) <= SIGNIFICANT
    else:
        told = high > max_drop and low <= max_drop
        uneven = mcnemar_exact(found.worse, found.better) <= SIGNIFICANT
        assert told or not uneven or found.losable <= max_drop


@given(counts())
def test_a_greater_allowance_never_makes_a_verdict_worse(found: Paired) -> None:
    order = ("failed", "inconclusive", "passed")
    allowed = [step / 50 for step in range(50) if step / 50 < found.losable]
    verdicts = [order.index(judge_drop(found, max_drop)) for max_drop in allowed]
    assert verdicts == sorted(verdicts)


def test_what_passes_and_what_fails() -> None:
    assert judge_drop(paired(1319, 20, 22), 0.01) == "passed"
    assert judge_drop(paired(1319, 90, 30), 0.01) == "failed"
    assert judge_drop(paired(60, 1, 1), 0.01) == "inconclusive"


def test_five_worse_answers_of_five_that_differ_cannot_fail_a_gate_and_six_can() -> None:
    assert drop_interval(paired(20, 5, 0))[0] > 0
    assert judge_drop(paired(20, 5, 0), 0.0) == "inconclusive"
    assert judge_drop(paired(20, 6, 0), 0.0) == "failed"


def test_where_the_reference_has_no_more_right_than_may_be_lost_nothing_is_passed() -> None:
    nothing = Paired(n=5000, both=0, worse=0, better=0)
    little = Paired(n=5000, both=40, worse=10, better=0)
    assert drop_interval(nothing)[1] < 0.01
    assert judge_drop(nothing, 0.01) == judge_drop(little, 0.01) == "inconclusive"
    assert judge_drop(Paired(n=5000, both=80, worse=10, better=0), 0.01) == "passed"


@pytest.mark.parametrize(("max_drop", "needed"), [(0.01, 381), (0.02, 189), (0.005, 765)])
def test_without_a_difference_so_many_questions_pass_and_one_less_do_not(
    max_drop: float, needed: int
) -> None:
    assert questions_needed(0.0, 0.0, max_drop) == needed
    assert judge_drop(paired(needed, 0, 0), max_drop) == "passed"
    assert judge_drop(paired(needed - 1, 0, 0), max_drop) == "inconclusive"


@pytest.mark.parametrize(
    ("worse", "better", "max_drop"), [(0.0, 0.0, 0.0), (0.015, 0.005, 0.01), (3 / 60, 0.0, 0.05)]
)
def test_a_drop_that_is_just_what_is_allowed_is_never_settled(
    worse: float, better: float, max_drop: float
) -> None:
    assert questions_needed(worse, better, max_drop) is None


@settings(max_examples=60)
@given(counts(40), st.sampled_from([0.0, 0.01, 0.02, 0.05, 0.1]))
def test_so_many_questions_with_the_same_shares_settle_it(found: Paired, max_drop: float) -> None:
    needed = questions_needed(found.worse / found.n, found.better / found.n, max_drop)
    if needed is None or needed > 20_000:
        return
    by = -(-needed // found.n)
    more = paired(found.n * by, found.worse * by, found.better * by)
    verdict = "passed" if found.drop < max_drop else "failed"
    if more.losable > max_drop:
        assert judge_drop(more, max_drop) == verdict


@pytest.mark.parametrize(
    ("worse", "better", "max_drop", "verdict"),
    [
        (0.05, 0.05, 0.1, "passed"),
        (0.1, 0.15, 0.1, "passed"),
        (0.4, 0.1, 0.1, "failed"),
        (0.3, 0.05, 0.0, "failed"),
        (0.35, 0.05, 0.1, "failed"),
    ],
)
def test_so_many_questions_settle_it_about_8_times_of_10(
    worse: float, better: float, max_drop: float, verdict: str
) -> None:
    """By the chance of every outcome; the normal approximation is some hundredths off."""
    needed = questions_needed(worse, better, max_drop)
    assert needed is not None
    shares = (worse, better)
    likely = [o for o in outcomes(needed) if chance(needed, *o, shares) > 1e-7]
    settled = math.fsum(
        chance(needed, *found, shares)
        for found in likely
        if judge_drop(paired(needed, *found), max_drop) == verdict
    )
    assert settled == pytest.approx(SETTLED_WITH, abs=0.08)


@given(counts(), st.sampled_from([0.0, 0.01, 0.05, 0.2]))
def test_what_so_many_questions_cannot_tell_takes_more_of_them(
    found: Paired, max_drop: float
) -> None:
    needed = questions_needed(found.worse / found.n, found.better / found.n, max_drop)
    if judge_drop(found, max_drop) == "inconclusive" and found.losable > max_drop:
        assert needed is None or needed > found.n


def test_where_everything_may_be_lost_one_question_is_enough() -> None:
    assert questions_needed(0.0, 0.0, 1.0) == 1


def test_closer_to_what_is_allowed_it_takes_more_questions() -> None:
    needed = [questions_needed(share, 0.01, 0.05) for share in (0.01, 0.02, 0.04, 0.055)]
    assert needed == sorted(needed, key=lambda n: n or 0)
    assert questions_needed(0.02, 0.02, 0.01) == 3259
