from __future__ import annotations

import pytest

from tests.pages.conftest import Make
from tests.support.runs import answers_of, gated_spec
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.pages import accuracy, report
from tokenwatt_site.pages.page import NO_LINKS


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
