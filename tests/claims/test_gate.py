"""What the gate says, with and without a reference, and when evidence contradicts itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.answers import (
    ASKED,
    REFERENCE,
    a_log,
    answers,
    candidate_spec,
    evidence,
)
from tokenwatt_site.accuracy_gate import Paired, drop_interval, mcnemar_exact, questions_needed
from tokenwatt_site.claims.accuracy import accuracy_claims
from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence.answers import AccuracyLog
from tokenwatt_site.run import GateClaim
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Evidence


def share(n: int, right: int) -> list[bool]:
    return [question < right for question in range(n)]


def compared(
    candidate: Sequence[bool], reference: Sequence[bool], *, max_drop: float = 5.0, **changes: Any
) -> GateClaim:
    """Return the gate of a run of one repeat."""
    spec = candidate_spec(len(candidate), max_drop=max_drop, **changes)
    return accuracy_claims(spec, evidence(*answers(candidate), reference=reference)).gate


def refused(spec: Spec, told: Evidence) -> str:
    with pytest.raises(InputError) as caught:
        accuracy_claims(spec, told)
    return str(caught.value)


def test_as_many_right_answers_to_the_same_questions_pass() -> None:
    gate = compared(share(400, 362), share(400, 360))
    assert gate.outcome == "passed"
    assert (gate.paired, gate.worse, gate.better, gate.repeat) == (400, 0, 2, 1)
    assert (gate.reference_percent, gate.drop_points) == (90.0, -0.5)
    assert (gate.drop_low, gate.drop_high) == pytest.approx(
        tuple(100 * end for end in drop_interval(Paired(400, 360, 0, 2)))
    )
    assert gate.p_value == mcnemar_exact(0, 2) == 0.5
    assert (gate.reference_run, gate.reference_configuration) == ("1" * 64, "toy-0123456789ab")
    assert gate.questions_needed is None
    assert gate.text == (
        "the accuracy gate passed: 90.5% of 400 questions right, the reference 90.0%; a drop of"
        " -0.5 points (95%: -1.8 to 0.5), 5 allowed; 0 right in the reference alone, 2 here alone"
        " (exact p 0.5)"
    )


def test_what_counts_is_which_questions_not_how_many() -> None:
    other_half = [not right for right in share(400, 200)]
    gate = compared(other_half, share(400, 200))
    assert (gate.drop_points, gate.worse, gate.better) == (0.0, 200, 200)
    assert gate.outcome == "inconclusive"


def test_far_fewer_right_answers_fail_with_all_that_a_reader_needs() -> None:
    gate = compared(share(60, 25), share(60, 54), max_drop=1.0)
    assert gate.outcome == "failed"
    assert gate.text == (
        "the accuracy gate failed: 41.7% of 60 questions right, the reference 90.0%; a drop of 48.3"
        " points (95%: 36.2 to 60.7), 1 allowed; 29 right in the reference alone, 0 here alone"
        " (exact p 3.7e-09)"
    )


def test_too_few_questions_are_inconclusive_and_say_how_many_would_settle_it() -> None:
    gate = compared(share(60, 53), share(60, 54), max_drop=1.0)
    needed = questions_needed(1 / 60, 0.0, 0.01)
    assert (gate.outcome, gate.questions_needed) == ("inconclusive", needed)
    assert f"about {needed:,} questions like these would settle it" in gate.text


def test_a_drop_that_is_what_is_allowed_is_settled_by_no_number_of_questions() -> None:
    gate = compared(share(60, 51), share(60, 54))
    assert (gate.outcome, gate.questions_needed) == ("inconclusive", None)
    assert "no number of questions would settle it: the drop is what is allowed" in gate.text


def test_more_questions_than_can_be_asked_are_told_as_that() -> None:
    gate = compared(share(60, 53), share(60, 54), max_drop=1.66)
    assert (gate.questions_needed or 0) > 50_000
    assert "more than the 50,000 questions that can be asked" in gate.text


def test_a_reference_that_has_nothing_right_lets_nothing_pass() -> None:
    gate = compared([False] * 600, [False] * 600, max_drop=1.0)
    assert (gate.outcome, gate.questions_needed) == ("inconclusive", None)
    assert gate.drop_high is not None
    assert gate.drop_high < 1
    assert gate.text.endswith("so that no answers could fail")


def test_a_p_too_small_for_a_number_is_not_written_as_0() -> None:
    gate = compared(share(2000, 0), share(2000, 2000))
    assert gate.p_value == 0
    assert "exact p below 1e-300" in gate.text


def repeated(reference: list[bool], *repeats: list[bool]) -> GateClaim:
    told = [a for n, own in enumerate(repeats, start=1) for a in answers(own, repeat=n)]
    n = len(repeats)
    spec = candidate_spec(len(reference), accuracy={"repeats": n}, protocol__repeats=n)
    return accuracy_claims(spec, evidence(*told, reference=reference)).gate


def test_of_several_repeats_the_worst_one_counts() -> None:
    gate = repeated(share(60, 54), share(60, 54), share(60, 25), share(60, 20), share(60, 50))
    assert (gate.outcome, gate.repeat, gate.worse) == ("failed", 3, 34)
    assert "failed: in repeat 3, the worst of 4, 33.3%" in gate.text


def test_a_graver_verdict_counts_before_a_greater_drop() -> None:
    reference = share(400, 300)
    dropped = share(400, 292)
    others = [60 <= question < 358 for question in range(400)]
    gate = repeated(reference, dropped, others)
    assert (gate.outcome, gate.repeat, gate.drop_points) == ("inconclusive", 2, 0.5)
    assert repeated(reference, dropped).outcome == "passed"
    assert repeated(reference, dropped).drop_points == 2.0


def test_a_baseline_is_what_others_are_compared_with() -> None:
    gate = accuracy_claims(
        candidate_spec(60, role="baseline"), evidence(*answers(share(60, 54)))
    ).gate
    assert gate == GateClaim(
        outcome="reference",
        text=(
            "this run is what others are compared with: 90.0% of 60 questions right (95%: 79.9 to"
            " 95.3)"
        ),
    )


def test_without_a_reference_there_is_a_score_only() -> None:
    gate = accuracy_claims(candidate_spec(60), evidence(*answers(share(60, 54)))).gate
    assert gate == GateClaim(
        outcome="no reference",
        text=(
            "a score only, with no reference to compare with: 90.0% of 60 questions right (95%:"
            " 79.9 to 95.3)"
        ),
    )


def test_a_reference_with_several_repeats_is_compared_by_its_first() -> None:
    log = a_log(*answers(share(400, 360)), *answers(share(400, 0), repeat=2))
    told = evidence(*answers(share(400, 360)), reference=log)
    assert accuracy_claims(candidate_spec(400), told).gate.outcome == "passed"


def test_a_reference_that_answered_other_questions_is_refused() -> None:
    other = a_log(*answers(share(60, 54), data="c" * 64))
    text = refused(candidate_spec(60), evidence(*answers(share(60, 54)), reference=other))
    assert "evidence.reference: does not answer the questions of repeat 1" in text


def test_a_reference_that_answered_fewer_questions_is_refused() -> None:
    text = refused(candidate_spec(60), evidence(*answers(share(60, 54)), reference=share(59, 54)))
    assert "found 59 answers; expected 60 answers" in text


def test_a_reference_that_was_asked_otherwise_is_refused_with_what_differs() -> None:
    asked = ASKED.model_copy(update={"max_tokens": 16, "prompts": "d" * 64})
    log = a_log(*answers(share(60, 54)))
    other = AccuracyLog(log.header.model_copy(update={"asked": asked}), log.answers)
    text = refused(candidate_spec(60), evidence(*answers(share(60, 54)), reference=other))
    assert "evidence.reference.asked" in text
    assert "found another max_tokens, prompts" in text


@pytest.mark.parametrize(
    ("reference", "opening"), [(None, {"reference": REFERENCE}), ([True] * 60, {"reference": None})]
)
def test_a_reference_is_there_just_where_it_was_chosen_before_the_load(
    reference: list[bool] | None, opening: dict[str, Any]
) -> None:
    told = evidence(*answers(share(60, 54)), reference=reference, opening=opening)
    assert "is not what the journal's first line names" in refused(candidate_spec(60), told)
