"""The compiled steps of a modelled engine against a slow one, and against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine_model import oracle
from tokenwatt_site.engine_model.model import EngineModel, Family, Prices
from tokenwatt_site.engine_model.steps import serve

families = st.builds(
    Family,
    prefill=st.sampled_from(["chunked", "first"]),
    token_budget=st.integers(1, 40),
    max_batch=st.integers(1, 8),
    kv_tokens=st.none() | st.integers(1, 120),
    replicas=st.integers(1, 3),
)
prices = st.builds(
    Prices,
    base_ps=st.integers(1, 5000),
    sequence_ps=st.integers(0, 3000),
    prompt_token_ps=st.integers(0, 3000),
    context_token_ps=st.integers(0, 1000),
)
rows = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(1, 20)), min_size=1, max_size=30
)


def arrays(model, drawn):
    gaps, n_in, n_out = (np.array(column, np.int64) for column in zip(*drawn, strict=True))
    p, f = model.prices, model.family
    prices = [p.base_ps, p.sequence_ps, p.prompt_token_ps, p.context_token_ps]
    limits = [f.token_budget, f.max_batch, f.kv_tokens or 0, f.prefill == "first", f.replicas]
    return (
        np.cumsum(gaps),
        n_in,
        n_out,
        np.array(prices, np.int64),
        np.array(limits, np.int64),
        1 << int(n_out.max()).bit_length(),
    )


@given(st.builds(EngineModel, families, prices), rows)
def test_every_time_is_that_of_a_slow_engine(model, drawn):
    given_to = arrays(model, drawn)
    first, last, put_back = serve(*given_to)
    wanted = oracle.serve(model, *(column.tolist() for column in given_to[:3]))
    assert (first.tolist(), last.tolist(), put_back) == wanted


@given(st.builds(EngineModel, families, prices), rows)
def test_plain_python_gives_the_same_bits(model, drawn):
    given_to = arrays(model, drawn)
    compiled, plain = serve(*given_to), serve.py_func(*given_to)
    assert [c.tolist() for c in compiled[:2]] == [p.tolist() for p in plain[:2]]
    assert compiled[2] == plain[2]


@pytest.mark.parametrize("prefill", ["chunked", "first"])
def test_a_request_alone_takes_its_prompt_and_then_a_step_a_token(prefill):
    model = EngineModel(
        Family(prefill=prefill, token_budget=8, max_batch=4),
        Prices(base_ps=100_000, sequence_ps=10_000, prompt_token_ps=1_000, context_token_ps=1),
    )
    first, last, _ = serve(*arrays(model, [(50, 12, 3)]))
    # 12 prompt tokens in steps of 8 and 4; then two of one sequence with 13 and 14 of context.
    assert first.tolist() == [50 + 108 + 104]
    assert last.tolist() == [50 + 108 + 104 + 110 + 110]
