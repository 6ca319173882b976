from __future__ import annotations

import math
from typing import Any

import pytest
from scipy import stats

from tests.pages.conftest import SHIPPED
from tests.support.details import GOODPUT, a_detail, a_metric, answered, offered
from tokenwatt_site.accuracy_gate import Paired, drop_interval
from tokenwatt_site.comparison.beside import cards
from tokenwatt_site.comparison.compare import compare
from tokenwatt_site.comparison.result import LATENCY, Pair, Row
from tokenwatt_site.pages.quoted_detail import quoted_detail
from tokenwatt_site.statistics import SYSTEMATIC, against, paired
from tokenwatt_site.trust.verify import load_claims_only

FASTER = tuple(1.1 * value for value in GOODPUT)
OTHER_ROWS = [[r, 10_000_000, 1800] for r in range(1, 6)]


def pair(a: dict[str, Any], b: dict[str, Any]) -> Pair:
    return compare([a, b]).pairs[0]


def row(found: Pair, key: str) -> Row:
    return next(row for row in found.rows if row.key == key)


def test_the_same_rows_are_paired() -> None:
    other = [2300.0, 2450.0, 2350.0, 2500.0, 2410.0]
    found = row(pair(a_detail(), a_detail("b", {"goodput": other})), "goodput")
    assert found.ratio == paired(other, GOODPUT)
    assert (found.paired, found.level, found.launches) == (True, 95, (5, 5))


def test_other_rows_are_compared_as_two_sets_of_launches() -> None:
    other = [2300.0, 2450.0, 2350.0, 2500.0, 2410.0]
    b = a_detail("b", {"goodput": other}, realisations=OTHER_ROWS)
    found = row(pair(a_detail(), b), "goodput")
    assert found.ratio == against(other, GOODPUT)
    assert (found.paired, found.level) == (False, 90)


def test_repeats_that_only_one_side_has_do_not_count_in_a_paired_ratio() -> None:
    found = row(pair(a_detail(), a_detail("b", {"goodput": FASTER[:3]})), "goodput")
    assert found.launches == (3, 3)
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(1.1)


def test_a_number_that_a_repeat_lacks_is_not_paired_with_that_of_another() -> None:
    b = a_detail("b", realisations=[[r, 5_000_000, 900] for r in range(1, 7)])
    assert not row(pair(a_detail(), b), "goodput").paired


@pytest.mark.parametrize(
    ("factor", "word"),
    [(1.1, "better"), (0.9, "worse"), (1.01, "same within 3%")],
)
def test_the_word_is_that_of_the_interval(factor: float, word: str) -> None:
    b = a_detail("b", {"goodput": [factor * value for value in GOODPUT]})
    assert row(pair(a_detail(), b), "goodput").word == word


def test_an_interval_around_one_shows_no_difference() -> None:
    b = a_detail("b", {"goodput": [2200.0, 2650.0, 2300.0, 2550.0, 2400.0]})
    assert row(pair(a_detail(), b), "goodput").word == "no difference shown"


def test_two_launches_have_a_ratio_without_an_interval() -> None:
    sides = [a_detail(i, {"goodput": GOODPUT[:2]}, mode="quick") for i in ("a", "b")]
    found = row(pair(*sides), "goodput")
    assert found.ratio is not None
    assert (found.ratio.low, found.level, found.launches) == (None, None, (2, 2))
    assert found.word == "no difference shown"


def test_what_the_models_may_be_off_by_widens_a_long_run_ratio() -> None:
    sides = [a_detail("a", {"long_run_goodput": GOODPUT})]
    sides += [a_detail("b", {"long_run_goodput": FASTER})]
    found = row(pair(*sides), "long_run_goodput").ratio
    assert found is not None
    assert found.high is not None
    assert math.log(found.high / found.value) == pytest.approx(math.sqrt(2) * SYSTEMATIC)


def test_a_corrected_goodput_and_a_measured_one_are_never_divided() -> None:
    a = a_detail("a", {"long_run_goodput": GOODPUT, "goodput": GOODPUT})
    b = a_detail("b", {"goodput": FASTER})
    b["metrics"].append(a_metric("long_run_goodput", reason="not corrected: the model is refused"))
    found = pair(a, b)
    assert row(found, "long_run_goodput").ratio is None
    assert row(found, "long_run_goodput").reason == "B: not corrected: the model is refused"
    assert row(found, "goodput").word == "better"
    assert found.cards.of == "goodput"


def test_h32_only_the_fields_that_differ_are_listed() -> None:
    sides = [
        a_detail(),
        a_detail("b", setup={"engine.version": "1.1", "engine.environment.X": "1"}),
    ]
    found = compare(sides)
    assert [(f.path, f.values) for f in found.fields] == [
        ("engine.version", ("1.0", "1.1")),
        ("engine.environment.X", (None, "1")),
    ]
    assert "engine.name" in found.equal


def test_a_pair_is_controlled_where_exactly_one_field_differs() -> None:
    a, version = a_detail(), {"engine.version": "1.1"}
    assert pair(a, a_detail("b", setup=version)).controlled
    assert not pair(a, a_detail("b", setup=version | {"engine.name": "x"})).controlled
    assert not pair(a, a_detail("b")).controlled


def test_a_pair_measured_in_two_ways_is_not_controlled() -> None:
    a, changed = a_detail(), {"engine.version": "1.1"}
    assert not pair(a, a_detail("b", setup=changed, mode="quick")).controlled
    assert not pair(a, a_detail("b", setup=changed, simulated=True)).controlled


def test_fields_that_neither_side_records_may_differ_and_are_named() -> None:
    assert pair(a_detail(), a_detail("b")).unknown == ("kernel_libraries",)


def test_what_a_cpu_has_not_is_no_gap_in_its_record() -> None:
    none = {"accelerator.power_limit_w": "not recorded"}
    sides = [a_detail(i, setup=none, cpu=True) for i in ("a", "b")]
    assert pair(*sides).unknown == ("kernel_libraries",)
    sides = [a_detail(i, setup=none) for i in ("a", "b")]
    assert pair(*sides).unknown == ("kernel_libraries", "accelerator.power_limit_w")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"simulated": True}, "B was simulated"),
        (
            {"workload": {"name": "other", "version": 1, "hash": "2" * 64}},
            "another workload: other",
        ),
        ({"workload": {"name": "chat-mix-v1", "version": 1, "hash": "2" * 64}}, "its hash differs"),
        ({"slo": [], "slo_text": "none"}, "another SLO: none against TTFT"),
        ({"quoted": True}, "can only be the baseline"),
    ],
)
def test_h32_sides_of_two_questions_are_not_divided(changes: dict[str, Any], why: str) -> None:
    found = pair(a_detail(), a_detail("b", **changes))
    assert found.refused is not None
    assert why in found.refused
    assert found.rows == ()
    assert found.cards.value is None
    assert found.cards.reason == found.refused


def test_two_simulated_sides_may_be_compared() -> None:
    assert pair(a_detail(simulated=True), a_detail("b", simulated=True)).refused is None


def test_h28_two_boundaries_of_power_bar_energy_alone() -> None:
    numbers = {"goodput": GOODPUT, "tokens_per_joule": GOODPUT, "board_power": GOODPUT}
    found = pair(a_detail("a", numbers), a_detail("b", numbers, power_scope="host"))
    assert row(found, "tokens_per_joule").reason == "another boundary of power: host against gpu"
    assert row(found, "board_power").ratio is None
    assert row(found, "goodput").ratio is not None


def test_windows_of_another_length_bar_what_is_measured_in_them() -> None:
    numbers = {"goodput": GOODPUT, "long_run_goodput": GOODPUT}
    found = pair(a_detail("a", numbers), a_detail("b", numbers, rows=[80, 600, 120]))
    assert row(found, "goodput").ratio is None
    assert row(found, "long_run_goodput").ratio is not None
    assert not row(found, "long_run_goodput").paired


def test_another_mode_has_too_few_launches() -> None:
    a = a_detail("a", {"goodput": GOODPUT, "long_run_goodput": GOODPUT})
    b = {"goodput": GOODPUT[:2], "long_run_goodput": GOODPUT[:2]}
    found = pair(a, a_detail("b", b, mode="quick"))
    assert row(found, "long_run_goodput").reason == (
        "quick mode with n = 2: an interval takes 3 launches"
    )
    assert "windows of another length" in str(row(found, "goodput").reason)


def test_modes_with_launches_enough_have_the_long_run_in_common() -> None:
    numbers = {"goodput": GOODPUT, "long_run_goodput": GOODPUT}
    found = pair(a_detail("a", numbers), a_detail("b", numbers, mode="demo"))
    assert row(found, "long_run_goodput").word == "same within 3%"
    assert row(found, "goodput").ratio is None


def test_numbers_that_neither_has_are_told_apart() -> None:
    found = pair(a_detail(), a_detail("b"))
    assert [r.key for r in found.rows if r.group != LATENCY] == ["goodput"]
    assert ("Tokens per joule", "the run does not tell") in found.absent


def test_latency_is_compared_at_the_highest_rate_that_all_repeats_were_offered() -> None:
    a = a_detail(trials=[*offered(10**6, *[100.0] * 5), *offered(2 * 10**6, *[200.0] * 5)])
    b = a_detail("b", trials=[*offered(10**6, *[50.0] * 5), *offered(2 * 10**6, *[100.0] * 5)])
    found = row(pair(a, b), "ttft")
    assert found.label == "TTFT p99 at 2 requests/s"
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(0.5)
    assert found.word == "better"


def test_without_a_common_rate_latency_is_not_compared() -> None:
    a = a_detail(trials=offered(10**6, *[100.0] * 5))
    b = a_detail("b", trials=offered(10**6, *[100.0] * 4))
    assert row(pair(a, b), "ttft").reason == (
        "no rate was offered to both in every repeat, on the same rows"
    )


def test_h6_cards_are_all_cards_of_the_setup() -> None:
    found = pair(a_detail(), a_detail("b", {"goodput": FASTER}, cards=8)).cards
    assert found.value == math.ceil(64 * 2 / 1.1)
    assert found.per_card is not None
    assert found.per_card.value == pytest.approx(0.55)


def test_cards_of_equals_are_sixty_four() -> None:
    assert cards(1.0) == 64
    assert cards(1.0 - 2e-16) == 64
    assert cards(1.0 - 1e-9) == 65


def test_a_cpu_has_no_cards_to_count() -> None:
    found = pair(a_detail(), a_detail("b", cards=None, cpu=True)).cards
    assert (found.value, found.reason) == (None, "there is no accelerator card")


def test_accuracy_is_paired_question_by_question() -> None:
    ones, others = [True] * 30 + [False] * 10, [True] * 20 + [False] * 20
    a, b = a_detail(answers=answered(*ones)), a_detail("b", answers=answered(*others))
    found = pair(a, b).accuracy
    low, high = drop_interval(Paired.of(ones, others))
    assert (found.points, found.worse, found.better) == (-25.0, 10, 0)
    assert (found.low, found.high) == pytest.approx((-100 * high, -100 * low))
    assert found.word == "worse"
    assert found.task == "sums-0shot"


def test_answers_to_other_questions_are_not_compared() -> None:
    a = a_detail(answers=answered(True, False))
    b = a_detail("b", answers=answered(True, False), setup={"accuracy_gate.task": "other"})
    assert pair(a, b).accuracy.reason == "they answered other questions: accuracy_gate.task"


def test_answers_that_were_not_asked_for_are_named() -> None:
    found = pair(a_detail(answers=answered(True)), a_detail("b")).accuracy
    assert found.reason == "B: no accuracy gate was asked for"


def test_a_publication_may_be_the_baseline_and_has_no_interval() -> None:
    quoted = quoted_detail(load_claims_only(SHIPPED))
    other = {"goodput": GOODPUT, "long_run_goodput": GOODPUT, "tokens_per_joule": [0.9] * 5}
    found = pair(quoted, a_detail("b", other))
    assert found.refused is None
    goodput = row(found, "goodput")
    assert goodput.ratio is not None
    assert goodput.ratio.value == pytest.approx(stats.gmean(GOODPUT) / 2047)
    assert (goodput.ratio.low, goodput.launches) == (None, (0, 5))
    assert row(found, "long_run_goodput").reason == "A: not told by the publication"
    assert found.cards.value == math.ceil(64 * 2047 / stats.gmean(GOODPUT))
    assert not found.controlled


def test_a_publication_about_another_question_is_not_divided_by() -> None:
    quoted = quoted_detail(load_claims_only(SHIPPED))
    other = {"name": "demo-mix-v1", "version": 1, "hash": "2" * 64}
    assert "another workload" in str(pair(quoted, a_detail("b", workload=other)).refused)
    assert pair(quoted | {"slo": None}, a_detail("b")).refused == (
        "A tells no SLO in words that can be compared"
    )


def test_three_sides_are_each_compared_with_the_first() -> None:
    found = compare([a_detail(), a_detail("b", {"goodput": FASTER}), a_detail("c")])
    assert [row(p, "goodput").word for p in found.pairs] == ["better", "same within 3%"]


def test_one_side_is_no_comparison() -> None:
    with pytest.raises(ValueError, match="takes two"):
        compare([a_detail()])
