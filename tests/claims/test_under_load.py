"""Answers under load held against the same alone: the numbers, and what they do not cover."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.answers import a_comparison, evidence
from tokenwatt_site.claims.under_load import (
    load_difference,
    under_load_caveats,
    under_load_claims,
)
from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence.answers import text_digest
from tokenwatt_site.evidence.under_load import Compared
from tokenwatt_site.run import UnderLoadClaim

SAME, OTHER = text_digest("text"), text_digest("another text")


def claim_of(compared: Sequence[Compared]) -> UnderLoadClaim:
    (claim,) = under_load_claims(evidence(compared=compared))
    return claim


def caveats_of(compared: Sequence[Compared]) -> dict[str, str]:
    told = evidence(compared=compared)
    return dict(under_load_caveats(told, under_load_claims(told)))


def test_answers_that_differ_under_load_are_a_share_with_its_interval() -> None:
    claim = claim_of([a_comparison(n, loaded=OTHER if n < 6 else SAME) for n in range(24)])
    assert (claim.repeat, claim.trial, claim.rate_urps) == (1, 3, 1_500_000)
    assert (claim.compared, claim.differing, claim.percent) == (24, 6, 25.0)
    assert (claim.low, claim.high) == pytest.approx((12.00, 44.90), abs=0.01)
    assert claim.cached is False


def test_how_much_is_alike_is_the_median_over_those_that_differ() -> None:
    kept = [a_comparison(n, loaded=OTHER, same_chars=same) for n, same in enumerate((0, 10, 40))]
    assert claim_of([*kept, a_comparison(3)]).same_percent == 25.0
    assert claim_of([a_comparison(0)]).same_percent is None


def test_an_answer_that_is_empty_alone_has_no_share_that_is_alike() -> None:
    claim = claim_of([a_comparison(0, loaded=OTHER, alone=text_digest(""), same_chars=0, chars=0)])
    assert (claim.differing, claim.same_percent) == (1, None)


def test_what_did_not_come_whole_is_left_out_and_told() -> None:
    compared = [
        a_comparison(0, loaded=None),
        a_comparison(1, alone=None),
        a_comparison(2, again=None),
        a_comparison(3),
    ]
    claim = claim_of(compared)
    assert (claim.compared, claim.differing, claim.compared_alone) == (2, 0, 2)
    assert caveats_of(compared) == {
        "All the answers that were to be compared under load": (
            "Of 4, 1 did not come whole under load and 1 not when asked alone."
        )
    }


def test_prompts_with_two_texts_alone_say_that_it_is_not_the_load_alone() -> None:
    compared = [a_comparison(0, again=OTHER), a_comparison(1)]
    claim = claim_of(compared)
    assert (claim.compared_alone, claim.differing_alone, claim.differing) == (2, 1, 0)
    assert "1 of 2 prompts" in caveats_of(compared)["That it is the load that changes answers"]


def test_a_prompt_that_the_engine_had_in_its_cache_is_told() -> None:
    compared = [a_comparison(0, cached_tokens=16), a_comparison(1, cached_tokens=None)]
    assert claim_of(compared).cached is True
    assert "1 of 2" in caveats_of(compared)["That prompts were computed anew when asked alone"]


def test_all_repeats_together_make_one_number() -> None:
    compared = [a_comparison(n, loaded=OTHER if n < 2 else SAME) for n in range(10)]
    compared += [a_comparison(n, repeat=2, trial=7) for n in range(10)]
    claims = under_load_claims(evidence(compared=compared))
    metric = load_difference(claims)
    assert [claim.rate_urps for claim in claims] == [1_500_000, 1_600_000]
    assert (metric.value, metric.repeats) == (10.0, (20.0, 0.0))
    assert (metric.low, metric.high) == pytest.approx((2.79, 30.10), abs=0.01)


def test_nothing_compared_is_no_number_and_a_reason() -> None:
    none_at_all = evidence()
    assert under_load_claims(none_at_all) == ()
    metric = load_difference(())
    assert metric.value is None
    assert metric.reason == "no answer under load was held against the same prompt asked alone"
    assert list(under_load_caveats(none_at_all, ())) == []


def test_nothing_that_came_whole_is_no_number_and_another_reason() -> None:
    claim = claim_of([a_comparison(0, loaded=None), a_comparison(1, alone=None, again=None)])
    assert (claim.compared, claim.percent, claim.low, claim.high) == (0, None, None, None)
    metric = load_difference([claim])
    assert (metric.value, metric.repeats) == (None, ())
    assert metric.reason == "no prompt had a whole answer both under load and alone"


def test_a_trial_that_the_journal_does_not_name_is_refused() -> None:
    with pytest.raises(InputError, match="repeat 1, trial 9"):
        under_load_claims(evidence(compared=[a_comparison(0, trial=9)]))
