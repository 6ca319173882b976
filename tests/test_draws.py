"""The tables are those of independent implementations; an integer draw is as exact as its table."""

import math
import statistics
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site import draws
from tokenwatt_site.draws import CELLS, GAP_UNIT, exponential
from tokenwatt_site.lengths import Lognormal, Traced


def test_the_shipped_normal_quantiles_are_those_of_an_independent_implementation():
    p = [1 / 4096, *(i / CELLS for i in range(1, CELLS)), 4095 / 4096]
    z = [quantile / 2**40 for quantile in draws.normal_quantiles()]
    oracle = [statistics.NormalDist().inv_cdf(x) for x in p]
    assert max(abs(a - b) for a, b in zip(z, oracle, strict=True)) < 1e-9


def test_a_length_table_is_median_times_exp_of_sigma_z_clipped():
    lengths = Lognormal(kind="lognormal", median=100, p90=250, min=3, max=600)
    sigma = math.log(2.5) / 1.281552
    table = draws.length_table(lengths)
    for knot, quantile in zip(table, draws.normal_quantiles(), strict=True):
        naive = min(max(100 * math.exp(sigma * quantile / 2**40), 3), 600)
        assert knot / 2**16 == pytest.approx(naive, rel=1e-9, abs=1e-4)


@given(st.integers(0, 2**64 - 1))
def test_an_exponential_draw_is_minus_log_u_to_the_precision_of_its_table(word):
    with localcontext() as context:
        context.prec = 40
        exact = -((Decimal(word) + 1) / Decimal(2) ** 64).ln() * GAP_UNIT
    assert abs(exponential(word) - exact) <= 4


def test_the_lengths_of_a_trace_are_not_drawn():
    told = Traced(kind="trace", median=3, p90=3, min=3, max=3)
    with pytest.raises(TypeError, match="not drawn"):
        draws.length_table(told)
