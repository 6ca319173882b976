"""Scores, the numbers made of them, and what they do not cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.claims.test_derive import evidence_of
from tests.support.answers import (
    ASKED,
    a_comparison,
    an_answer,
    answers,
    candidate_spec,
    evidence,
    sitting,
)
from tests.support.runs import RunBuilder, a_failure, small_spec
from tokenwatt_site.accuracy_gate import wilson
from tokenwatt_site.claims.accuracy import AccuracyFound, accuracy_claims
from tokenwatt_site.claims.derive import derive
from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence.answers import Answer, text_digest
from tokenwatt_site.run import AccuracyClaim, MetricClaim
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Evidence


def found(*told: Answer, **changes: Any) -> AccuracyFound:
    """Return the claims of one repeat of answers."""
    return accuracy_claims(candidate_spec(len(told)), evidence(*told, **changes))


def score(*told: Answer, **changes: Any) -> AccuracyClaim:
    (claim,) = found(*told, **changes).accuracy
    return claim


def metric(made: AccuracyFound, key: str) -> MetricClaim:
    return next(claim for claim in made.metrics if claim.key == key)


def caveats(made: AccuracyFound) -> dict[str, str]:
    return {item.what: item.why for item in made.not_covered}


def refused(spec: Spec, told: Evidence) -> str:
    with pytest.raises(InputError) as caught:
        accuracy_claims(spec, told)
    return str(caught.value)


def share(n: int, right: int) -> list[bool]:
    return [question < right for question in range(n)]


def test_a_score_has_n_and_an_interval() -> None:
    claim = score(*answers(share(263, 81)))
    assert (claim.repeat, claim.questions, claim.correct) == (1, 263, 81)
    assert claim.percent == pytest.approx(100 * 81 / 263)
    assert (claim.low, claim.high) == pytest.approx((25.53, 36.62), abs=0.005)
    assert (claim.mean_tokens, claim.parts, claim.same_launch) == (5.0, 1, True)


def test_a_question_without_an_answer_is_wrong_and_counted_and_has_no_other_fault() -> None:
    told = [an_answer(0), a_failure(1, 1, "timed out after 60 s"), a_failure(1, 2, "HTTP 500")]
    claim = score(*told)
    assert (claim.correct, claim.unanswered) == (1, 2)
    assert (claim.truncated, claim.unextracted, claim.empty) == (0, 0, 0)
    assert claim.mean_tokens == 5.0


def test_what_is_wrong_with_answers_is_counted_by_its_name() -> None:
    told = [
        an_answer(0, finish="length", tokens=256, flags=("repetitive",)),
        an_answer(1, correct=False, extracted=None, tokens=0, flags=("empty",)),
        an_answer(2, flags=("repetitive", "markers"), tokens=None),
        an_answer(3, tokens=256),
        an_answer(4, extracted=None, tokens=None),
    ]
    claim = score(*told)
    assert (claim.truncated, claim.unextracted) == (1, 1)
    assert (claim.empty, claim.repetitive, claim.markers) == (1, 2, 1)
    assert claim.mean_tokens == pytest.approx(512 / 3)


def test_an_engine_that_does_not_count_tokens_leaves_no_mean() -> None:
    assert score(an_answer(0, tokens=None)).mean_tokens is None


@pytest.mark.parametrize(
    ("same", "told"),
    [((True, True), True), ((True, None), None), ((None, False), False), ((True, False), False)],
)
def test_sittings_that_gave_answers_are_counted_and_of_one_launch_if_all_are(
    same: tuple[bool | None, ...], told: bool | None
) -> None:
    sittings = [sitting(part=n, same_launch=one) for n, one in enumerate(same, start=1)]
    claim = score(an_answer(0), an_answer(1, part=2), sittings=sittings)
    assert (claim.parts, claim.same_launch) == (2, told)


def test_a_sitting_that_got_no_answer_is_not_counted() -> None:
    sittings = [sitting(), sitting(part=2, same_launch=False), sitting(part=3)]
    claim = score(an_answer(0), an_answer(1, part=3), sittings=sittings)
    assert (claim.parts, claim.same_launch) == (2, True)


def test_the_accuracy_of_one_repeat_is_its_share_with_the_interval_of_its_questions() -> None:
    accuracy = metric(found(*answers(share(60, 54))), "accuracy")
    assert (accuracy.value, accuracy.repeats, accuracy.new_launch_low) == (90.0, (90.0,), None)
    assert (accuracy.low, accuracy.high) == pytest.approx((79.9, 95.3), abs=0.05)


def test_the_same_questions_asked_again_make_no_narrower_interval() -> None:
    spec = candidate_spec(60, accuracy={"repeats": 2}, protocol__repeats=2)
    told = evidence(*answers(share(60, 54)), *answers(share(60, 51), repeat=2))
    made = accuracy_claims(spec, told)
    accuracy = metric(made, "accuracy")
    assert accuracy.value == pytest.approx(87.5)
    assert accuracy.repeats == pytest.approx((90.0, 85.0))
    assert (accuracy.low, accuracy.high) == pytest.approx(
        tuple(100 * end for end in wilson(52.5, 60))
    )
    assert [claim.repeat for claim in made.accuracy] == [1, 2]


def test_the_drop_is_a_number_with_its_interval_where_there_is_a_reference() -> None:
    drop = metric(found(*answers(share(60, 25)), reference=share(60, 54)), "accuracy_drop")
    assert drop.value == pytest.approx(100 * 29 / 60)
    assert drop.repeats == (drop.value,)
    assert (drop.low, drop.high) == pytest.approx((36.2, 60.7), abs=0.05)


def test_without_a_reference_the_drop_has_a_reason_in_place_of_a_number() -> None:
    made = found(*answers(share(60, 54)))
    drop = metric(made, "accuracy_drop")
    assert (drop.value, drop.repeats, drop.reason) == (None, (), made.gate.text)
    assert "score only" in made.gate.text


def test_a_run_that_asks_for_no_gate_has_no_score_and_no_drop() -> None:
    made = accuracy_claims(small_spec(), evidence())
    assert (made.gate.outcome, made.accuracy, made.not_covered) == ("none", (), ())
    assert [claim.key for claim in made.metrics] == ["accuracy", "load_difference"]
    assert metric(made, "accuracy").reason == "no accuracy gate was asked for"


def test_a_gate_that_was_not_run_says_so() -> None:
    made = accuracy_claims(candidate_spec(60), evidence())
    assert (made.gate.outcome, made.accuracy) == ("not run", ())
    assert metric(made, "accuracy").reason == "the accuracy gate was not run"
    assert metric(made, "accuracy_drop").reason == "the accuracy gate was not run"


def test_a_part_of_the_answers_has_no_score_and_says_how_many_are_there() -> None:
    made = accuracy_claims(
        candidate_spec(60), evidence(*answers(share(37, 37)), reference=share(60, 54))
    )
    assert (made.gate.outcome, made.accuracy, made.not_covered) == ("not run", (), ())
    assert made.gate.text == (
        "the accuracy gate was not run to its end: 37 of 60 answers are there, and a part of a task"
        " has no score"
    )
    assert metric(made, "accuracy").value is None


def test_a_repeat_that_is_missing_leaves_no_score_of_the_others() -> None:
    spec = candidate_spec(60, accuracy={"repeats": 2}, protocol__repeats=2)
    made = accuracy_claims(spec, evidence(*answers(share(60, 54))))
    assert (made.gate.outcome, made.accuracy) == ("not run", ())
    assert "60 of 120 answers" in made.gate.text


@pytest.mark.parametrize(
    "told",
    [
        [an_answer(0), an_answer(0)],
        [an_answer(1), an_answer(0)],
        [an_answer(0), an_answer(2)],
        [an_answer(0), an_answer(1), an_answer(0, repeat=2)],
    ],
)
def test_answers_out_of_order_twice_or_beyond_the_plan_are_refused(told: list[Answer]) -> None:
    text = refused(candidate_spec(2), evidence(*told))
    assert "evidence.accuracy: does not answer the gate's questions in their order" in text


def test_answers_to_something_else_are_refused_with_what_differs() -> None:
    other = ASKED.model_copy(update={"filter": "flexible-extract"})
    spec = candidate_spec(1)
    gate = spec.setup.accuracy_gate.model_copy(update={"asked": other})
    setup = spec.setup.model_copy(update={"accuracy_gate": gate})
    text = refused(spec.model_copy(update={"setup": setup}), evidence(an_answer(0)))
    assert "evidence.accuracy.asked" in text
    assert "found another filter" in text


def test_answers_of_a_gate_that_does_not_say_what_it_asks_are_refused() -> None:
    spec = candidate_spec(1)
    gate = spec.setup.accuracy_gate.model_copy(update={"asked": None})
    setup = spec.setup.model_copy(update={"accuracy_gate": gate})
    text = refused(spec.model_copy(update={"setup": setup}), evidence(an_answer(0)))
    assert "found another harness, task_version" in text


def test_a_sitting_that_the_journal_does_not_start_is_refused() -> None:
    text = refused(candidate_spec(1), evidence(an_answer(0, part=2), sittings=[sitting()]))
    assert "found repeat 1, part 2" in text


def test_every_score_says_that_it_is_of_these_questions_and_of_one_path() -> None:
    told = caveats(found(*answers(share(60, 54))))
    assert list(told) == ["Questions beyond those asked", "Answers drawn at random"]
    assert "the first 60 of sums-0shot" in told["Questions beyond those asked"]


def test_questions_without_an_answer_are_told_with_the_commonest_failures() -> None:
    told = [an_answer(n) for n in range(16)]
    told += [a_failure(1, n, "HTTP 500") for n in (16, 17)]
    told += [a_failure(1, n, "timed out after 60 s") for n in (18, 19)]
    why = caveats(found(*told, a_failure(1, 20, "HTTP 500")))["Questions without an answer"]
    assert why == (
        "5 of 21 questions (23.8%) count as wrong: 3 × HTTP 500; 2 × timed out after 60 s."
    )


def test_of_a_long_failure_the_beginning_is_told() -> None:
    why = caveats(found(a_failure(1, 0, "x" * 900)))["Questions without an answer"]
    assert why == f"1 of 1 questions (100.0%) count as wrong: 1 × {'x' * 200}."


@pytest.mark.parametrize(
    ("what", "changes", "words"),
    [
        ("Answers to their end", {"finish": "length"}, "cut at max_tokens, 256"),
        ("Answers with a text in them", {"flags": ("empty",)}, "wrong chat template or stop"),
        (
            "Answers that come to an end of their own",
            {"flags": ("repetitive",)},
            "degenerate output",
        ),
        (
            "Answers by the model's own chat template",
            {"flags": ("markers",)},
            "most likely not the model's",
        ),
        (
            "Answers in a form that the filter reads",
            {"extracted": None, "correct": False},
            "the filter strict-match found nothing",
        ),
    ],
)
def test_what_is_wrong_on_sight_is_told_with_its_share_and_its_likely_cause(
    what: str, changes: dict[str, Any], words: str
) -> None:
    told = [an_answer(n) for n in range(7)] + [an_answer(7, **changes)]
    why = caveats(found(*told))[what]
    assert "1 of 8 answers (12.5%)" in why
    assert words in why


def test_a_second_sitting_and_another_launch_are_told() -> None:
    sittings = [sitting(), sitting(part=2, same_launch=False)]
    told = caveats(found(an_answer(0), an_answer(1, part=2), sittings=sittings))
    assert "They were asked in 2" in told["One sitting for all questions of repeat 1"]
    assert "launched again" in told["The launch that was loaded in repeat 1"]


def test_a_launch_that_the_engine_does_not_tell_of_is_the_publisher_s_word() -> None:
    told = caveats(found(an_answer(0), sittings=[sitting(same_launch=None)]))
    assert "Declared" in told["That the launch loaded in repeat 1 gave the answers"]


def test_a_reference_that_has_nothing_to_lose_is_told() -> None:
    made = found(*answers([False] * 60), reference=[False] * 60)
    assert caveats(made)["Whether the answers got worse"].startswith(
        "The reference has 0.0% right and 5 points may be lost"
    )
    fine = found(*answers(share(60, 54)), reference=share(60, 54))
    assert "Whether the answers got worse" not in caveats(fine)


def test_answers_under_load_are_there_without_a_gate_too() -> None:
    compared = [a_comparison(0), a_comparison(1, loaded=text_digest("other"), again=None)]
    made = accuracy_claims(small_spec(), evidence(compared=compared))
    assert metric(made, "load_difference").value == 50.0
    assert made.under_load[0].differing == 1
    whole = [a_comparison(0, alone=None)]
    assert "All the answers that were to be compared under load" in caveats(
        accuracy_claims(small_spec(), evidence(compared=whole))
    )


def derived(told: Sequence[Answer], reference: list[bool] | None) -> Any:
    """Return the claims of a whole run that was asked these questions."""
    builder = RunBuilder(spec=candidate_spec(len(told)))
    made = evidence_of(builder)
    answered = evidence(*told, reference=reference, compared=[a_comparison(0, trial=2)])
    opening = made.journal[0].data | answered.journal[0].data
    starts = [line for line in answered.journal if line.event == "accuracy_start"]
    journal = (made.journal[0].model_copy(update={"data": opening}), *made.journal[1:], *starts)
    return derive(
        builder.spec,
        replace(
            made,
            journal=journal,
            accuracy=answered.accuracy,
            reference=answered.reference,
            under_load=answered.under_load,
        ),
    )


def test_a_run_claims_its_answers_with_everything_else() -> None:
    with_gate = derived(answers(share(60, 25)), share(60, 54))
    assert with_gate.metric("accuracy").value == pytest.approx(100 * 25 / 60)
    assert with_gate.gate.outcome == "failed"
    assert with_gate.under_load[0].compared == 1
    told = {item.what for item in with_gate.not_covered}
    assert {"Questions beyond those asked", "The long run"} <= told
    assert "Accuracy" not in told


def test_what_answers_tell_is_among_the_numbers_that_are_recomputed() -> None:
    """A score has 4 and one under load 3; a gate with a reference has 5, and its metric 4."""
    alone = derived(answers(share(60, 25)), None)
    compared = derived(answers(share(60, 25)), share(60, 54))
    assert compared.numbers - alone.numbers == 5 + 4
    nothing = alone.model_copy(update={"accuracy": (), "under_load": ()})
    assert alone.numbers - nothing.numbers == 4 + 3


def test_that_there_is_a_score_only_stands_under_not_covered() -> None:
    told = {item.what: item.why for item in derived(answers(share(60, 54)), None).not_covered}
    assert "score only" in told["Accuracy drop from the reference"]
