from __future__ import annotations

import pytest

from tests.pages.conftest import told, with_metrics
from tests.pages.test_chart import rows_of
from tests.pages.test_headline import pooled
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.pages import long_run, report
from tokenwatt_site.pages.page import NO_LINKS
from tokenwatt_site.run import LongRunClaim, MissShare, ModelRepeat, ModelTrial

BOUNDARY = 4.86


@pytest.fixture(scope="module")
def accepted(full: Configuration) -> Configuration:
    """A run whose engine model is accepted, as its claims would tell."""
    n = len(full.setup.slo)
    claim = LongRunClaim(
        outcome="accepted",
        text="models fitted without a repeat come to its boundary within 1.2%",
        rms_percent=1.2,
        drift_percent=-0.4,
        family="chunked prefill, at most 8,192 tokens a step, at most 256 sequences",
        base_ps=11_500_000_000,
        sequence_ps=120_000_000,
        prompt_token_ps=21_000_000,
        context_token_ps=10_400,
        pass_urps=4_870_000,
        fail_urps=4_872_000,
        windows_95_urps=4_620_000,
        windows_kept_percent=79.6,
        hours_kept_percent=51.2,
        misses=tuple(
            MissShare(rate_urps=round(BOUNDARY * 1e6 * at), percent=(share,) * n)
            for at, share in ((0.9, 0.1), (0.98, 0.72), (1.0, 1.0), (1.02, 1.53), (1.1, 9.0))
        ),
        repeats=(
            ModelRepeat(
                repeat=1,
                measured_urps=4_920_000,
                model_urps=4_930_000,
                left_out_urps=4_980_000,
                error_percent=-1.2121,
            ),
            ModelRepeat(
                repeat=2,
                measured_urps=4_900_000,
                model_urps=4_910_000,
                left_out_urps=None,
                error_percent=None,
            ),
        ),
        trials=tuple(
            ModelTrial(
                repeat=t.repeat,
                trial=t.trial,
                rate_urps=t.rate_urps,
                requests=40,
                ttft_percent=2.0 + t.trial,
                tpot_percent=None,
            )
            for t in full.claims.trials
        ),
    )
    metrics = with_metrics(
        full.claims,
        pooled("long_run_rate", BOUNDARY),
        pooled("long_run_goodput", 1954.0),
        pooled("boundary_rate", 4.92),
    )
    return told(full, long_run=claim, metrics=metrics)


def section(configuration: Configuration) -> long_run.Section:
    found = long_run.section(configuration)
    assert found is not None
    return found


def test_an_accepted_model_is_said_to_be_and_what_users_feel_follows(
    accepted: Configuration,
) -> None:
    found = section(accepted)
    assert found.verdict.startswith("The engine model is accepted: models fitted without")
    words = " ".join(found.feels)
    assert "80% of 10-minute windows keep the SLO, and 51% of hours" in words
    assert "95% of 10-minute windows keep it at 4.62 requests/s" in words
    assert "0.72% of requests miss at 2% below the boundary, 1% at it and 1.5% at 2% above" in words


def test_misses_around_a_boundary_that_the_claim_does_not_tell_are_not_made_up(
    accepted: Configuration,
) -> None:
    claim = accepted.claims.long_run
    few = claim.model_copy(update={"misses": claim.misses[:3]})
    assert "2% above" not in " ".join(section(told(accepted, long_run=few)).feels)


def test_a_refused_model_promises_users_nothing_and_says_why(accepted: Configuration) -> None:
    claim = accepted.claims.long_run.model_copy(
        update={"outcome": "refused", "text": "the errors are 4.1%", "misses": ()}
    )
    found = section(told(accepted, long_run=claim))
    assert found.verdict == "The engine model is refused: the errors are 4.1%."
    assert found.feels == ()
    assert [figure.id for figure in found.figures] == ["long-run-residuals"]


def test_each_repeat_has_its_error_and_one_that_is_not_known_is_no_zero(
    accepted: Configuration,
) -> None:
    table = section(accepted).repeats
    assert table is not None
    first, second = table[1]
    assert first == ("1", "4.92", "4.93", "4.98", "-1.21")
    assert second[3:] == (long_run.UNTOLD, long_run.UNTOLD)


def test_prices_are_told_in_units_that_can_be_read(accepted: Configuration) -> None:
    assert dict(section(accepted).prices) == {
        "Scheduler": "chunked prefill, at most 8,192 tokens a step, at most 256 sequences",
        "For a step": "11.5 ms",
        "For a decoding sequence": "0.12 ms",
        "For a prompt token": "21 µs",
        "For a token of context": "0.0104 µs",
    }


def test_trials_of_two_repeats_with_one_number_are_two_marks(accepted: Configuration) -> None:
    shown = section(accepted).figures[-1]
    assert shown.chart is not None
    marks = [row for row in rows_of(shown.chart.specs[0]) if "x" in row]
    trials = accepted.claims.trials
    assert len(marks) == len(trials)
    twice = [
        t.model_copy(update={"trial": 1, "repeat": i, "started": f"2026-12-01T10:{i:02}:00Z"})
        for i, t in enumerate(trials, start=1)
    ]
    model = accepted.claims.long_run.trials
    told_of = [m.model_copy(update={"trial": 1, "repeat": i}) for i, m in enumerate(model, start=1)]
    claim = accepted.claims.long_run.model_copy(update={"trials": tuple(told_of)})
    again = section(told(accepted, trials=tuple(twice), long_run=claim)).figures[-1]
    assert again.table is not None
    assert [row[2] for row in again.table[1]] == [str(i) for i in range(len(trials))]


def test_both_figures_are_on_the_page_with_their_data_and_the_drift(
    accepted: Configuration,
) -> None:
    page = report.render(accepted, NO_LINKS)
    figures = section(accepted).figures
    assert [figure.id for figure in figures] == ["long-run-misses", "long-run-residuals"]
    assert all(figure.table is not None for figure in figures)
    assert {"long-run-misses", "long-run-residuals"} <= {chart.id for chart in page.charts}
    assert "Drift over the run: -0.4%." in page.html
    assert ("long-run", "In the long run") in page.toc


def test_without_a_boundary_and_a_model_there_is_no_section(full: Configuration) -> None:
    none = pooled("boundary_rate", 1.0).model_copy(update={"value": None, "reason": "none"})
    bare = told(full, metrics=with_metrics(full.claims, none))
    assert long_run.section(bare) is None
    assert "long-run" not in dict(report.render(bare, NO_LINKS).toc)
