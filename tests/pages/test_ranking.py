from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.pages.conftest import Make, board_spec, number, told, with_metrics
from tests.pages.test_report import Parsed
from tests.support.runs import RunBuilder, answers_of, gated_spec, small_spec
from tokenwatt_site.configuration import Configuration, group
from tokenwatt_site.eligibility import Code
from tokenwatt_site.leaderboard import rank
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import ranking, text, unranked
from tokenwatt_site.pages.catalogue import catalogue
from tokenwatt_site.run import ClaimsOnlyRecord, GateOutcome, MetricClaim
from tokenwatt_site.trust.keyring import Keyring, KeyState
from tokenwatt_site.trust.verify import ValidatedRun, verify_run


def render(
    *configurations: Configuration,
    quoted: tuple[tuple[ClaimsOnlyRecord, str], ...] = (),
    refused: tuple[tuple[str, str], ...] = (),
) -> str:
    urls = {c.id: f"reports/{c.id}.html" for c in configurations}
    by_id = {c.id: c for c in configurations}
    return ranking.render(catalogue(rank(configurations), by_id, urls), quoted, refused).html


def test_every_configuration_is_listed_and_linked(
    demo: Configuration, measured: Configuration, boards: Configuration
) -> None:
    parsed = Parsed(render(demo, measured, boards))
    targets = {a.get("href") for _, a in parsed.tags}
    for configuration in (demo, measured, boards):
        assert f"reports/{configuration.id}.html" in targets


def test_an_unranked_row_has_its_reasons(measured: Configuration) -> None:
    html = render(measured)
    assert "0 ranked, 1 listed unranked" in html
    assert "not full mode" in html
    assert "only full mode ranks" in html


def test_the_reasons_against_a_rank_are_a_list_with_counts(demo: Configuration, make: Make) -> None:
    html = render(demo, make(spec=small_spec(setup__host_kind="other")))
    listed = html[html.index("Why unranked") : html.index("Reasons, in full")]
    assert "<li>not full mode: 2</li>" in listed
    assert "<li>simulated: 2</li>" in listed
    assert "0 ranked, 2 listed unranked. Nothing is hidden." in html


def test_what_was_simulated_stands_below_in_a_table_of_its_own(
    demo: Configuration, measured: Configuration
) -> None:
    html = render(demo, measured)
    assert html.count('<table class="tw-table tw-lb') == 2
    assert html.index(">demo-mix-v1, on CPUs<") < html.index(">demo-mix-v1, on CPUs, simulated<")


def test_a_gate_that_nobody_asked_for_is_not_one_that_was_not_passed(
    demo: Configuration, make: Make
) -> None:
    assert "<li>no accuracy gate: 1</li>" in render(demo)
    asked = render(make(spec=small_spec(setup__accuracy_gate__task="gsm8k")))
    assert "<li>accuracy gate not run: 1</li>" in asked
    assert "no accuracy gate" not in asked


def right(n: int) -> list[bool]:
    """Return which of 400 questions are answered right: the first n."""
    return [question < n for question in range(400)]


Gated = Callable[..., ValidatedRun]


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Gated:
    """Give a function from a driver and right answers to a verified run, a baseline by itself."""

    def made(driver: str, answered: Sequence[bool], against: ValidatedRun | None = None) -> Any:
        role = "candidate" if driver != "first" else "baseline"
        spec = gated_spec(400, max_drop_points=5.0, role=role, setup__driver=driver)
        reference: dict[str, Any] = {}
        if against is not None:
            reference["reference"] = against.evidence.accuracy
            reference["reference_run"] = against.run_id
            reference["reference_configuration"] = against.run.configuration
        folder: Path = tmp_path_factory.mktemp(driver)
        builder = RunBuilder(spec=spec, accuracy=answers_of(spec, answered), **reference)
        return verify_run(builder.write(folder), root=folder, keyring=Keyring())

    return made


@pytest.fixture(scope="module")
def baseline(gated: Gated) -> ValidatedRun:
    return gated("first", right(360))


def test_what_a_gate_came_to_is_counted_by_its_outcome(
    gated: Gated, baseline: ValidatedRun
) -> None:
    runs = [
        baseline,
        gated("failed", right(200), baseline),
        gated("unsure", right(344), baseline),
        gated("alone", right(360)),
        gated("elsewhere", right(359), gated("first", right(359))),
    ]
    listed = render(*group(runs)).partition("Why unranked")[2].partition("</ul>")[0]
    counted = [line for line in listed.split("<li>") if "accura" in line or "reference" in line]
    assert sorted(line.partition("<")[0] for line in counted) == [
        "accuracy gate failed: 1",
        "accuracy gate inconclusive: 1",
        "accuracy reference not valid here: 1",
        "no reference for accuracy: 1",
    ]


def test_a_gate_passed_against_a_run_that_failed_its_own_is_counted_with_its_reference(
    gated: Gated, baseline: ValidatedRun
) -> None:
    failed = gated("failed", right(200), baseline)
    html = render(*group([baseline, failed, gated("low", right(200), failed)]))
    assert "<li>accuracy reference not valid here: 1</li>" in html


def test_a_failed_gate_is_seen_before_all_other_reasons(
    gated: Gated, baseline: ValidatedRun
) -> None:
    html = render(*group([baseline, gated("failed", right(200), baseline)]))
    assert html.count("tw-tag--failed") == 1
    row = html[html.index('unranked: <span class="tw-tag tw-tag--failed"') :].partition("</th>")[0]
    assert row.index(">accuracy gate failed</span>") < row.index("more</span>")
    assert 'title="the accuracy gate failed: 50.0% of 400 questions right' in row


def test_a_score_stands_with_its_interval_and_the_number_of_its_questions(
    baseline: ValidatedRun, demo: Configuration
) -> None:
    html = render(*group([baseline]))
    assert "<br>% correct</th>" in html
    assert "90.0<small>86.7 to 92.6</small><small>n = 400 questions</small>" in html
    assert "n = 400 questions" in html
    assert "questions</small>" not in render(demo)


def test_a_score_that_is_missing_says_why(baseline: ValidatedRun, make: Make) -> None:
    asked = make(spec=small_spec(setup__accuracy_gate__task="gsm8k"))
    html = render(*group([baseline]), asked)
    assert 'title="not measured: the accuracy gate was not run"' in html


def test_h4_a_missing_value_says_why(boards: Configuration, demo: Configuration) -> None:
    html = render(boards, demo)
    assert "not corrected: no engine model was fitted" in html
    assert "not measured: the machine of this test has no power sensor" in html


def test_h13_two_questions_are_two_tables(demo: Configuration, boards: Configuration) -> None:
    assert render(demo, boards).count('<table class="tw-table tw-lb') == 2


def test_where_no_row_ranks_the_measured_goodput_stands_first_and_is_marked(
    measured: Configuration,
) -> None:
    html = render(measured)
    value = measured.claims.metric("goodput").value
    assert value is not None
    shown = text.amount(value, METRICS["goodput"])
    assert f'<td class="n tw-v">{shown}<small>not corrected</small>' in html
    assert 'data-key="long_run_goodput"' not in html
    assert "not corrected: no engine model was fitted" in html
    assert "<li>not corrected to the long run: 1</li>" in html


def test_the_range_of_two_measured_goodputs_stands_below_their_mark(quick: Configuration) -> None:
    claim = quick.claims.metric("goodput")
    assert claim.low is not None
    assert claim.high is not None
    low, high = (text.amount(v, METRICS["goodput"]) for v in (claim.low, claim.high))
    assert f"<small>not corrected</small><small>{low} to {high}</small>" in render(quick)


def test_what_ranks_is_the_long_run_with_the_measured_one_beside_it_unmarked(
    full: Configuration,
) -> None:
    corrected = MetricClaim(
        key="long_run_goodput",
        label="Long-run SLO goodput",
        value=4860.0,
        repeats=(4850.0, 4860.0, 4870.0),
        low=4830.0,
        high=4890.0,
    )
    ranking = replace(full, exclusions=())
    html = render(told(ranking, metrics=with_metrics(full.claims, corrected)))
    assert "1 ranked, 0 listed unranked" in html
    assert '<td class="n tw-v">4,860<small>4,830 to 4,890</small><svg class="tw-lb-bar"' in html
    measured = full.claims.metric("goodput").value
    assert measured is not None
    assert f'<td class="n">{text.amount(measured, METRICS["goodput"])}<small>' in html
    assert "<small>not corrected</small>" not in html


def test_without_goodput_the_launches_are_counted_all_the_same(make: Make) -> None:
    html = render(make(rates_urps=(500_000,)))
    assert '<td class="n">1</td>' in html
    assert '<td class="n">0</td>' not in html


def test_regions_have_names_of_their_own_where_two_tables_have_one_heading(make: Make) -> None:
    objective = {"metric": "ttft", "quantile": 0.9, "limit_ms": 1400.0}
    other = make(spec=small_spec(setup__slo=[objective]))
    parsed = Parsed(render(make(), other))
    names = [a.get("aria-label") for _, a in parsed.tags if a.get("role") == "region"]
    assert len(names) == 6
    assert len(set(names)) == 6


def test_quoted_records_stand_apart_and_are_never_ranked(
    demo: Configuration, quoted: ClaimsOnlyRecord
) -> None:
    html = render(demo, quoted=((quoted, "quoted/x.html"),))
    block = html[html.index('id="quoted"') :]
    assert "As published, not recomputed" in block
    assert quoted.title in block
    assert quoted.title not in html[: html.index('id="quoted"')]


def test_what_was_left_out_is_listed_with_its_reason(demo: Configuration) -> None:
    html = render(demo, refused=(("bad.json", "check 4: <forged>"),))
    assert "1 file failed verification and is not on this site" in html
    assert "check 4: &lt;forged&gt;" in html


def test_an_empty_site_says_how_to_begin() -> None:
    assert "tokenwatt-site demo" in render()


def test_h8_ranks_are_ranges_and_ties_have_no_line_between(full: Configuration) -> None:
    ranking = replace(full, exclusions=())
    html = render(ranking, replace(ranking, id=f"{full.id}-twin", title="Twin"))
    assert html.count('<td class="n tw-rank">1–2</td>') == 2
    assert html.count("tw-tie") == 2
    assert "2 ranked, 0 listed unranked" in html


def test_a_number_that_a_check_barred_is_not_called_not_measured(boards: Configuration) -> None:
    barred = number("tokens_per_joule", None, reason="INVALID: the counter ran backwards")
    watts = number("board_power", 2380.0)
    html = render(told(boards, metrics=with_metrics(boards.claims, barred, watts)))
    assert "INVALID: the counter ran backwards (1 of 1 configurations)" in html
    assert "not measured: INVALID" not in html


def test_b9_watts_of_boards_and_of_modules_are_two_tables(
    boards: Configuration, make: Make
) -> None:
    power = {"sensor": "nvml", "scope": "module", "rate_hz": 1.0}
    html = render(boards, make(spec=board_spec(setup__power=power)))
    assert html.count('<table class="tw-table tw-lb') == 2
    assert "power scope: gpu" in html
    assert "power scope: module" in html


def test_every_reason_for_having_no_rank_has_its_words() -> None:
    assert set(get_args(Code)) == {*unranked.CODE_WORDS, "accuracy", "key"}
    assert set(get_args(KeyState)) == {*unranked.KEY_WORDS, "known", "revoked later"}
    assert set(get_args(GateOutcome)) == {*unranked.GATE_WORDS, "reference"}
