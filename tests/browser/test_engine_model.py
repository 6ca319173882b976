"""The engine model in JavaScript against the one in Python: the same integers, all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from tests.engine_model.test_steps import arrays
from tokenwatt_site import pages
from tokenwatt_site.engine_model.boundary import find_edges
from tokenwatt_site.engine_model.load import Load, counts, play
from tokenwatt_site.engine_model.model import EngineModel, Family, Prices
from tokenwatt_site.engine_model.sliding import windows_kept
from tokenwatt_site.engine_model.steps import serve
from tokenwatt_site.goodput import rank
from tokenwatt_site.spec import Objective
from tokenwatt_site.workload import NAMED

pytestmark = pytest.mark.browser

SCRIPT = Path(pages.__file__).parent / "assets" / "engine-model.js"
CASES = 300
SLO = (
    Objective(metric="ttft", quantile=0.99, limit_ms=2000),
    Objective(metric="tpot", quantile=0.9, limit_ms=50),
    Objective(metric="e2e", quantile=0.5, limit_ms=20_000),
)
REAL = EngineModel(
    Family(prefill="chunked", token_budget=2048, max_batch=256, kv_tokens=150_000, replicas=2),
    Prices(
        base_ps=9_000_000_000,
        sequence_ps=60_000_000,
        prompt_token_ps=30_000_000,
        context_token_ps=40_000,
    ),
)
RATE_URPS = 6_123_457


@pytest.fixture(scope="module")
def blank(chromium: Browser) -> Iterator[Page]:
    page = chromium.new_page()
    page.add_script_tag(path=SCRIPT)
    yield page
    page.close()


@pytest.fixture(scope="module")
def load() -> Load:
    drawn = NAMED["chat-mix-v1"].realisation(0, lead_in=1000, scored=8500, tail=500)
    return Load.of(drawn)


def told(load: Load) -> dict[str, Any]:
    return {
        "elapsed": load.elapsed.tolist(),
        "nIn": load.n_in.tolist(),
        "nOut": load.n_out.tolist(),
        "scored": [load.scored.start, load.scored.stop],
    }


def engine(model: EngineModel) -> dict[str, Any]:
    family, prices = model.family, model.prices
    return {
        "prices": list(prices.to_json().values()),
        "limits": [
            family.token_budget,
            family.max_batch,
            family.kv_tokens or 0,
            int(family.prefill == "first"),
            family.replicas,
        ],
    }


def slo() -> list[dict[str, Any]]:
    return [{"metric": o.metric, "quantile": o.quantile, "limitNs": o.limit_ns} for o in SLO]


def a_case(rng: random.Random) -> tuple[EngineModel, list[tuple[int, int, int]]]:
    scale = rng.choice([1, 1000, 10**6])
    model = EngineModel(
        Family(
            prefill=rng.choice(["chunked", "first"]),
            token_budget=rng.randint(1, 40),
            max_batch=rng.randint(1, 8),
            kv_tokens=rng.choice([None, rng.randint(1, 120)]),
            replicas=rng.randint(1, 3),
        ),
        Prices(
            base_ps=rng.randint(1, 5000) * scale,
            sequence_ps=rng.randint(0, 3000) * scale,
            prompt_token_ps=rng.randint(0, 3000) * scale,
            context_token_ps=rng.randint(0, 1000) * scale,
        ),
    )
    longest_gap = rng.choice([0, 60, 60 * scale])
    rows = [
        (rng.randint(0, longest_gap), rng.randint(1, 30), rng.randint(1, 20))
        for _ in range(rng.randint(1, 40))
    ]
    return model, rows


def test_random_engines_serve_to_the_same_ns(blank: Page) -> None:
    rng = random.Random(20260601)
    given, wanted = [], []
    for _ in range(CASES):
        arguments = arrays(*a_case(rng))
        first, last, put_back = serve(*arguments)
        given.append([column.tolist() for column in arguments[:5]])
        wanted.append([first.tolist(), last.tolist(), put_back])
    assert sum(put_back > 0 for _, _, put_back in wanted) > CASES // 10
    found = blank.evaluate(
        "all => all.map(a => { const s = TokenwattEngine.serve(...a);"
        " return [[...s.first], [...s.last], s.putBack]; })",
        given,
    )
    assert found == wanted


def test_ten_thousand_rows_of_chat_mix_come_to_the_same_ns_and_counts(
    blank: Page, load: Load
) -> None:
    played = play(REAL, load, RATE_URPS)
    found = blank.evaluate(
        "([engine, load, rate, slo]) => { const p = TokenwattEngine.play(engine, load, rate);"
        " return [[...p.due], [...p.first], [...p.last], p.putBack,"
        " TokenwattEngine.counts(slo, p, load.nOut, load.scored)]; }",
        [engine(REAL), told(load), RATE_URPS, slo()],
    )
    assert len(found[0]) == 10_000
    assert found[:4] == [
        played.due_ns.tolist(),
        played.first_ns.tolist(),
        played.last_ns.tolist(),
        played.put_back,
    ]
    counted = counts(SLO, played, load.n_out, load.scored)
    assert found[4] == [{"misses": c.misses, "n": c.n} for c in counted]


def test_the_same_windows_keep_the_slo(blank: Page, load: Load) -> None:
    script = (
        "([engine, load, rate, slo, length, step]) => TokenwattEngine.slidingWindows("
        "slo, TokenwattEngine.play(engine, load, rate), load.nOut, load.scored, length, step)"
    )
    seen = set()
    edges = find_edges(REAL, load, SLO, RATE_URPS)
    assert edges is not None
    for rate in (edges.pass_urps, edges.fail_urps * 11 // 10):
        for length_ns in (60 * 10**9, 600 * 10**9):
            kept = windows_kept(
                SLO,
                play(REAL, load, rate),
                load.n_out,
                load.scored,
                length_ns=length_ns,
                step_ns=10**10,
            )
            arguments = [engine(REAL), told(load), rate, slo(), length_ns, 10**10]
            assert blank.evaluate(script, arguments) == [int(one) for one in kept]
            seen.update(kept)
    assert seen == {True, False}


@pytest.mark.parametrize("near_urps", [1_000_000, 40_000_000])
def test_the_same_boundary_is_found_from_below_and_above(
    blank: Page, load: Load, near_urps: int
) -> None:
    edges = find_edges(REAL, load, SLO, near_urps)
    assert edges is not None
    found = blank.evaluate(
        "a => { const next = TokenwattEngine.edgeFinder(...a); let end;"
        " while (!(end = next())); return end.edges; }",
        [engine(REAL), told(load), slo(), near_urps],
    )
    assert found == {
        "passUrps": edges.pass_urps,
        "failUrps": edges.fail_urps,
        "boundaryUrps": edges.boundary_urps,
    }


def test_a_rank_takes_the_quantile_as_it_was_written(blank: Page) -> None:
    quantiles = [0.99, 0.9, 0.999, 0.95, 0.5, 0.57, 0.29, 1e-07, 0.1 + 0.2]
    pairs = [(q, n) for q in quantiles for n in (0, 1, 7, 100, 611, 1000, 200_000)]
    found = blank.evaluate("all => all.map(a => TokenwattEngine.rank(...a))", pairs)
    assert found == [rank(q, n) for q, n in pairs]


def test_of_two_ns_as_near_the_even_one_is_a_tpot(blank: Page) -> None:
    rng = random.Random(7)
    spans = [(0, s, n) for s in range(12) for n in (1, 2, 3, 5, 7)]
    spans += [(0, rng.randrange(2**53), rng.randint(2, 1536)) for _ in range(200)]
    found = blank.evaluate("all => all.map(a => TokenwattEngine.tpotNs(...a))", spans)
    # round() of a Fraction is half-even.
    assert found == [round(Fraction(s, n - 1)) if n > 1 else 0 for _, s, n in spans]


def test_what_a_double_cannot_hold_is_refused(blank: Page) -> None:
    told_off = blank.evaluate(
        "() => { try { TokenwattEngine.serve([0], [1000], [2], [1, 0, 1e13, 0],"
        " [1048576, 1, 0, 0, 1]); } catch (e) { return String(e); } return 'no error'; }"
    )
    assert told_off.startswith("RangeError: beyond 2^53")


def test_due_times_of_far_rows_and_odd_rates_are_exact(blank: Page) -> None:
    elapsed = np.array([0, 1, 1 << 20, (1 << 38) + 12345], np.int64)
    for rate in (1_000_000, 999_983, 10**11):
        due = Load(elapsed, elapsed, elapsed, slice(0, 4)).due_ns(rate)
        found = blank.evaluate("a => [...TokenwattEngine.dueNs(...a)]", [elapsed.tolist(), rate])
        assert found == due.tolist()
