"""The method page says what the code does."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
import yaml

from tests.support.runs import spec_in_mode
from tokenwatt_site import accuracy_gate, validity
from tokenwatt_site.accuracy_gate import questions_needed
from tokenwatt_site.accuracy_spec import AccuracyPlan
from tokenwatt_site.bandwidth import limits
from tokenwatt_site.claims.power_caveats import GAIN_ERROR_PERCENT
from tokenwatt_site.energy import window as energy
from tokenwatt_site.errors import GateFailed
from tokenwatt_site.evidence import answer_flags
from tokenwatt_site.evidence.under_load import SAMPLES
from tokenwatt_site.measure import capacity, emitter
from tokenwatt_site.measure.accuracy.asker import TRIES
from tokenwatt_site.measure.accuracy.sitting import ANSWER_TIMEOUT_S
from tokenwatt_site.pages.factors import Factors
from tokenwatt_site.spec import MIN_WINDOW_S

METHOD = (Path(__file__).parents[1] / "site_src" / "method.md").read_text(encoding="utf-8")
LIMITS = {
    what.strip(): limit.strip()
    for what, limit in (row.strip("|").split("|") for row in METHOD.splitlines() if row[:1] == "|")
}
"""The table of limits, a limit by what it is on."""


def per_cent(share: Fraction) -> str:
    return f"{float(100 * share):g}%"


@pytest.mark.parametrize(
    ("what", "limit"),
    [
        ("Load on the client", "≤ half of"),
        ("Requests sent", f"≥ {per_cent(validity.MIN_SENT_SHARE)} "),
        ("Dispatch lag, p99", f"≤ {validity.MAX_LAG_NS / 1e6:g} ms or "),
        ("Dispatch lag, p99", f" {per_cent(validity.LIMIT_SHARE)} of the tightest TTFT limit"),
        ("Lateness of the last send", f"≤ {per_cent(validity.MAX_LAST_SEND_SHARE)} of the"),
        ("Uncertainty of the receive stamps, p99", f"≤ {per_cent(validity.LIMIT_SHARE)} of the"),
        (
            "Wall clock, where the kernel stamps by it",
            f"≤ {validity.MAX_CLOCK_STEP_NS / 1e6:g} ms ",
        ),
        (
            "Clocks of several client processes",
            f"at most {validity.MAX_CLOCK_OFFSET_NS / 1e6:g} ms apart",
        ),
        ("Cached prompt tokens", f"≤ {per_cent(validity.MAX_CACHED_SHARE)} "),
        ("Scored window (quick and full mode)", f"≥ {MIN_WINDOW_S} s "),
        (
            "Lead-in and tail of a trial that would pass",
            f"≤ {per_cent(validity.MAX_UNSCORED_FAILED_SHARE)} ",
        ),
    ],
)
def test_the_limits_of_a_trial_are_those_of_the_code(what: str, limit: str) -> None:
    assert limit in LIMITS[what]


@pytest.mark.parametrize("mode", ["full", "quick", "demo"])
def test_the_width_of_the_bracket_is_that_of_the_mode(mode: str) -> None:
    ratio = spec_in_mode(mode).protocol.bracket_ratio
    assert f"≤ {ratio:g} in {mode} mode" in " ".join(METHOD.split())


def test_what_part_of_a_trace_may_be_played_is_that_of_the_code() -> None:
    words = " ".join(METHOD.split())
    paces = f"at {float(validity.MIN_PACE):g} to {float(validity.MAX_PACE):g} times"
    assert f"{paces} its mean rate" in words
    assert f"the lead-in {paces} theirs" in words
    assert f"more than {validity.BUSY_PPM / 1e4:g}% of its processor" in words


def test_the_self_test_is_described_as_it_is_made() -> None:
    words = " ".join(METHOD.split())
    assert float(validity.MAX_HELD_SHARE) == 0.5
    assert f"at most {capacity.MAX_TOKENS}, so that" in words
    assert f"in at most {capacity.MAX_RATES} steps" in words
    assert capacity.SPARE_TRIES == 2
    assert f"more than {capacity.EMITTER_LAG_NS / 1e6:g} ms late" in words
    assert f"more than {validity.MAX_POLL_GAP_NS / 1e6:g} ms after it last had" in words
    assert 200 < len(emitter.TOKEN) < 300


@pytest.mark.parametrize(
    ("what", "outcome"),
    [
        (
            f"Counter and integrated watts differ by > {energy.RECONCILED_WITHIN:.0%}",
            "not reconciled",
        ),
        (f"Mean watts > {energy.WARN_ABOVE_LIMIT:g} × the enforced limit", "warning"),
        (f"Mean watts > {energy.INVALID_ABOVE_LIMIT:g} × the enforced limit", "INVALID"),
        (f"Mean watts below {energy.INVALID_BELOW_IDLE:g} × the least idle watts", "INVALID"),
        (
            f"Watts alone, and means over > {energy.MAX_AVERAGING_SHARE:.0%} of the window",
            "too slow for it: no energy",
        ),
        (
            f"Measured MBU > 100% of bus × clock (not known: > {limits.MAX_OF_RATED:.0%} of rated)",
            "INVALID",
        ),
    ],
)
def test_the_thresholds_of_energy_and_traffic_are_those_of_the_code(
    what: str, outcome: str
) -> None:
    assert LIMITS[what] == outcome
    assert f"more than {energy.MAX_GAP_PERIODS} periods apart" in " ".join(METHOD.split())


@pytest.mark.parametrize(
    ("what", "differing"), [("None", 0.0), ("1%", 0.01), ("2%", 0.02), ("5%", 0.05), ("10%", 0.1)]
)
def test_the_table_of_questions_is_what_the_gate_needs(what: str, differing: float) -> None:
    assert LIMITS[what] == f"{questions_needed(differing / 2, differing / 2, 0.01):,}"


def test_the_verdicts_are_those_of_the_gate() -> None:
    words = " ".join(METHOD.split())
    assert LIMITS["Failed"].endswith(f"p ≤ {accuracy_gate.SIGNIFICANT:g}")
    assert f"z = {accuracy_gate.Z_975:.2f}." in words
    assert f"would settle it with {accuracy_gate.SETTLED_WITH:.0%}, n = ((z √V" in words
    assert f"+ {accuracy_gate.Z_80:.2f} √(" in words
    assert f"exit code {GateFailed.exit_code}" in words


def test_how_questions_are_asked_is_what_the_code_does() -> None:
    words = " ".join(METHOD.split())
    assert f"{AccuracyPlan().concurrency} questions at a time" in words
    assert f"at least {ANSWER_TIMEOUT_S:g} s" in words
    assert f"sent up to {TRIES} times" in words
    assert SAMPLES["quick"] == SAMPLES["full"]
    assert f"{SAMPLES['full']} scored rows ({SAMPLES['demo']} in demo mode)" in words


def test_the_flags_of_answers_are_those_of_the_code() -> None:
    words = " ".join(METHOD.split())
    assert f"one piece of at most {answer_flags.MAX_PIECE_CHARS} characters" in words
    assert f"{answer_flags.MIN_PIECES} times or more in a row" in words
    assert f"over {answer_flags.MIN_LOOP_CHARS} characters or more" in words


def test_the_gain_error_is_the_one_that_reports_print() -> None:
    assert f"up to ±{GAIN_ERROR_PERCENT}%" in METHOD


def test_the_factors_that_a_site_may_name_are_read_as_written_there() -> None:
    written = METHOD.partition("```yaml\n")[2].partition("```")[0]
    (plugin,) = yaml.safe_load(written)["plugins"]
    assert set(Factors.model_validate(plugin["tokenwatt"]["energy"]).to_json()) == {
        "price",
        "grid",
        "pue",
    }
