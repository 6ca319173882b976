from __future__ import annotations

import pytest

from tests.pages.conftest import Make
from tests.support.runs import answers_of, gated_spec
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.pages import accuracy, report
from tokenwatt_site.pages.boards import UNTOLD
from tokenwatt_site.pages.page import NO_LINKS
from tokenwatt_site.run import UnderLoadClaim


@pytest.fixture(scope="session")
def failed(make: Make) -> Configuration:
    spec = gated_spec(40, role="candidate")
    ours = answers_of(spec, [n % 2 == 0 for n in range(40)])
    return make(spec=spec, accuracy=ours, reference=answers_of(spec, [True] * 40))


def test_without_answers_there_is_no_section(demo: Configuration) -> None:
    assert accuracy.section(demo) is None


def test_a_failed_gate_is_said_first_and_its_pairs_add_up(failed: Configuration) -> None:
    html = report.render(failed, NO_LINKS).html
    assert html.index("Accuracy gate failed.") < html.index("Simulated.")
    assert accuracy.pairs(failed.claims.gate) == (
        ("Questions", "This run right", "This run wrong", "Together"),
        (
            ("Reference right", "20", "20", "40"),
            ("Reference wrong", "0", "0", "0"),
            ("Together", "20", "20", "40"),
        ),
    )
    assert accuracy.drop(failed) is not None


def test_the_text_of_an_answer_is_never_shown(failed: Configuration) -> None:
    assert "It is" not in report.render(failed, NO_LINKS).html


@pytest.mark.parametrize(
    ("ours", "theirs", "outcome", "told"),
    [
        ([True] * 200, [True] * 200, "passed", "gate passed: max drop 10.0 pts"),
        ([True] * 20, [True] * 20, "inconclusive", "gate inconclusive: max drop 10.0 pts"),
        ([True] * 20, None, "no reference", "max drop 10.0 pts"),
    ],
)
def test_each_outcome_is_told_with_the_score_and_the_allowed_drop(
    make: Make, ours: list[bool], theirs: list[bool] | None, outcome: str, told: str
) -> None:
    spec = gated_spec(len(ours), max_drop_points=10.0, role="candidate")
    reference = None if theirs is None else answers_of(spec, theirs)
    shown = make(spec=spec, accuracy=answers_of(spec, ours), reference=reference)
    assert shown.claims.gate.outcome == outcome
    html = report.render(shown, NO_LINKS).html
    assert told in html
    assert "Accuracy gate failed." not in html
    section = accuracy.section(shown)
    assert section is not None
    assert (section.drop is None) == (section.pairs is None) == (theirs is None)


def test_the_repeat_is_named_where_there_are_several(failed: Configuration) -> None:
    gate = failed.claims.gate
    assert "in repeat 1" not in accuracy.pairs_said(gate, repeats=1)
    assert "in this run alone, in repeat 1:" in accuracy.pairs_said(gate, repeats=2)


UNDER_LOAD = UnderLoadClaim(
    repeat=1,
    trial=4,
    rate_urps=1_780_000,
    compared=6,
    differing=0,
    percent=0.0,
    low=0.0,
    high=39.0,
    compared_alone=6,
    differing_alone=0,
    same_percent=None,
    cached=False,
)


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, "none differ"),
        ({"compared": 0, "percent": None, "low": None, "high": None}, UNTOLD),
        ({"differing": 2, "percent": 33.3}, UNTOLD),
        ({"differing": 2, "percent": 33.3, "same_percent": 41.6}, "42"),
    ],
)
def test_none_differ_is_said_only_where_some_were_compared_and_none_differed(
    changes: dict[str, object], same: str
) -> None:
    _, (row,) = accuracy.under_load((UNDER_LOAD.model_copy(update=changes),))
    assert row[7] == same
