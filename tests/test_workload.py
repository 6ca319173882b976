"""Draws are integers, the same for everyone, and have the distributions that they claim."""

import math
import statistics
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import small_spec
from tokenwatt_site import workload
from tokenwatt_site.errors import SpecError
from tokenwatt_site.spec import Fixed, Lognormal
from tokenwatt_site.workload import CELLS, GAP_UNIT, NAMED, Workload, exponential

PUBLISHED_ROWS = [[2142327, 544, 339], [1874721, 165, 699], [607580, 387, 396], [467070, 4523, 366]]


def test_chat_mix_v1_draws_the_published_rows_for_ever():
    """A change here changes every configuration id: give the workload a new version instead."""
    drawn = NAMED["chat-mix-v1"].realisation(1, lead_in=2, scored=10, tail=0)
    assert (
        NAMED["chat-mix-v1"].hash
        == "10f0c79aa98d8a9c30f7febd09a90af0782a99d91ac41cdce41f532dde539e53"
    )
    assert [list(row) for row in drawn.rows[:4]] == PUBLISHED_ROWS


def test_demo_mix_v1_keeps_its_hash():
    assert (
        NAMED["demo-mix-v1"].hash
        == "b412d39b2a3f2c74cfb8bf0a3b65543e4e224cfbfc3303e0a9f2a05a3960b24e"
    )


def test_the_shipped_normal_quantiles_are_those_of_an_independent_implementation():
    p = [1 / 4096, *(i / CELLS for i in range(1, CELLS)), 4095 / 4096]
    z = [quantile / 2**40 for quantile in workload.normal_quantiles()]
    oracle = [statistics.NormalDist().inv_cdf(x) for x in p]
    assert max(abs(a - b) for a, b in zip(z, oracle, strict=True)) < 1e-9


def test_a_length_table_is_median_times_exp_of_sigma_z_clipped():
    lengths = Lognormal(kind="lognormal", median=100, p90=250, min=3, max=600)
    sigma = math.log(2.5) / 1.281552
    table = workload.length_table(lengths)
    for knot, quantile in zip(table, workload.normal_quantiles(), strict=True):
        naive = min(max(100 * math.exp(sigma * quantile / 2**40), 3), 600)
        assert knot / 2**16 == pytest.approx(naive, rel=1e-9, abs=1e-4)


def test_chat_mix_means_are_within_one_percent_of_those_of_the_example_report():
    drawn = NAMED["chat-mix-v1"].realisation(1, lead_in=0, scored=60_000, tail=0)
    assert drawn.mean_input_tokens == pytest.approx(8180 / 5.09, rel=0.01)
    assert drawn.mean_output_tokens == pytest.approx(2047 / 5.09, rel=0.01)


def test_medians_and_90th_percentiles_are_those_asked_for():
    rows = NAMED["chat-mix-v1"].realisation(2, lead_in=0, scored=40_000, tail=0).rows
    for values, median, p90 in (
        (sorted(r.input_tokens for r in rows), 1024, 4096),
        (sorted(r.output_tokens for r in rows), 256, 1024),
    ):
        assert values[len(values) // 2] == pytest.approx(median, rel=0.03)
        assert values[9 * len(values) // 10] == pytest.approx(p90, rel=0.05)


def test_gaps_are_exponential_with_the_unit_as_mean():
    gaps = sorted(
        row.gap
        for row in NAMED["chat-mix-v1"].realisation(3, lead_in=0, scored=40_000, tail=0).rows
    )
    assert statistics.fmean(gaps) == pytest.approx(GAP_UNIT, rel=0.02)
    # Kolmogorov-Smirnov against 1 - exp(-x), 1.63 / sqrt(n) at 1%
    worst = max(
        abs((i + 1) / len(gaps) - (1 - math.exp(-gap / GAP_UNIT))) for i, gap in enumerate(gaps)
    )
    assert worst < 1.63 / math.sqrt(len(gaps))


@given(st.integers(0, 2**64 - 1))
def test_an_exponential_draw_is_minus_log_u_to_the_precision_of_its_table(word):
    with localcontext() as context:
        context.prec = 40
        exact = -((Decimal(word) + 1) / Decimal(2) ** 64).ln() * GAP_UNIT
    assert abs(exponential(word) - exact) <= 4


@given(st.integers(1, 10_000_000), st.integers(1, 40))
def test_due_times_are_the_exact_sums_of_gaps_at_any_rate(rate_urps, n):
    drawn = NAMED["demo-mix-v1"].realisation(5, lead_in=0, scored=n, tail=0)
    elapsed = 0
    for row, due in zip(drawn.rows, drawn.due_ns(rate_urps), strict=True):
        elapsed += row.gap
        assert due == math.floor(elapsed * 10**9 * 10**6 / rate_urps / GAP_UNIT) or abs(
            due - elapsed * 10**15 / rate_urps / GAP_UNIT
        ) < max(1, due * 1e-12)


def test_realisations_differ_and_prefixes_agree():
    one = NAMED["demo-mix-v1"].realisation(1, lead_in=1, scored=10, tail=1)
    longer = NAMED["demo-mix-v1"].realisation(1, lead_in=1, scored=10, tail=50)
    other = NAMED["demo-mix-v1"].realisation(2, lead_in=1, scored=10, tail=1)
    assert longer.rows[:12] == one.rows
    assert other.rows != one.rows
    assert len({one.hash, longer.hash, other.hash}) == 3


def test_fixed_lengths_are_fixed():
    fixed = Workload("fixed", 1, Fixed(kind="fixed", tokens=77), Fixed(kind="fixed", tokens=9))
    rows = fixed.realisation(1, lead_in=0, scored=50, tail=0).rows
    assert {row[1:] for row in rows} == {(77, 9)}


def test_lengths_stay_within_their_clip():
    rows = NAMED["chat-mix-v1"].realisation(4, lead_in=0, scored=20_000, tail=0).rows
    assert min(r.input_tokens for r in rows) >= 1
    assert max(r.input_tokens for r in rows) == 6144
    assert min(r.output_tokens for r in rows) >= 2
    assert max(r.output_tokens for r in rows) == 1536


def test_a_known_name_with_other_distributions_is_refused():
    spec = small_spec(setup__output_tokens={"kind": "fixed", "tokens": 16})
    with pytest.raises(SpecError, match=r"setup\.workload\.name") as caught:
        workload.workload_of(spec.setup)
    remedy = str(caught.value)
    told = {"name": "my-mix", "version": 1, "hash": remedy.rpartition("hash: ")[2]}
    mended = small_spec(setup__output_tokens={"kind": "fixed", "tokens": 16}, setup__workload=told)
    assert workload.workload_of(mended.setup).name == "my-mix"


def test_a_wrong_workload_hash_is_refused_and_the_right_one_named():
    spec = small_spec(setup__workload={"name": "demo-mix-v1", "version": 1, "hash": "0" * 64})
    with pytest.raises(SpecError, match=NAMED["demo-mix-v1"].hash):
        workload.workload_of(spec.setup)
