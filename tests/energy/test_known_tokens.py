"""What tokens take, against a simulated engine whose boards draw for them by a known rule."""

from __future__ import annotations

import random
import re
from functools import cache

import pytest

from tokenwatt_site.commands.simulate import Asked, plan
from tokenwatt_site.energy.per_token import MixWindow, TokenEnergy, token_energy
from tokenwatt_site.simulate.engine import Engine, Request
from tokenwatt_site.simulate.power import H200, Draw, PowerModel
from tokenwatt_site.simulate.virtual import play

Mix = tuple[int, int]
"""Input and output tokens of every request."""

ARITHMETIC = PowerModel(idle_mw=115_000, limit_mw=700_000, memory_ppm=0)
"""Of a board that draws for arithmetic alone, of which every token takes as much as any other."""

SHARE_W, FLOP_A_TOKEN, PEAK_FLOP_S = 0.9 * (700 - 115), 2 * 7.505e9, 989e12
"""For arithmetic at full rate; of an 8B model, but for attention and its input table; of an H200.
"""

PROMPTS, ANSWERS, BOTH = (800, 20), (60, 80), (300, 50)
LAUNCHES = (1, 2, 3)
BUSY, RESTING = (40, 60), (8, 20)
"""Requests/s at which steps follow one another, and at which the engine often has nothing."""


@cache
def windows(mix: Mix, launch: int, rate: int) -> tuple[MixWindow, MixWindow]:
    """Serve 60 requests; return the window between the 10th and the 50th of both kinds of board."""
    chance, at_ns, arrivals = random.Random(launch), 0.0, []
    for _ in range(60):
        at_ns += chance.expovariate(rate) * 1e9
        arrivals.append(round(at_ns))
    requests = [Request(n, (n + 1,) * mix[0], mix[1], at) for n, at in enumerate(arrivals)]
    rest = dict.fromkeys(("served_name", "kv_tokens", "memory_gib", "max_model_len"))
    asked = Asked(
        "NVIDIA H200",
        "llama-3.1-8b",
        1,
        max_batch=64,
        token_budget=2048,
        script="",
        seed=launch,
        **rest,
    )
    simulation = plan(asked)
    draws = Draw(ARITHMETIC), Draw(H200)
    ended = play(
        Engine(simulation.roofline, simulation.limits),
        requests,
        lambda step: [draw.add(step) for draw in draws],
    )
    start_ns, end_ns = arrivals[9], arrivals[49]
    times = [one.tokens_ns for one in ended.values()]
    firsts = sum(start_ns <= each[0] <= end_ns for each in times)
    answered = sum(start_ns <= at <= end_ns for each in times for at in each)
    seconds = (end_ns - start_ns) / 1e9
    of = f"{mix} {launch}"
    arithmetic, whole = (
        MixWindow(of, seconds, draw.joules(start_ns, end_ns), firsts * mix[0], answered)
        for draw in draws
    )
    return arithmetic, whole


def fit(board: int, rates: tuple[int, int]) -> TokenEnergy | str:
    return token_energy(
        [
            windows(mix, launch, rate)[board]
            for mix in (PROMPTS, ANSWERS)
            for launch in LAUNCHES
            for rate in rates
        ]
    )


def test_where_every_token_takes_the_same_arithmetic_both_kinds_come_out_equal() -> None:
    found = fit(0, BUSY)

    assert isinstance(found, TokenEnergy), found
    truth = SHARE_W * FLOP_A_TOKEN / PEAK_FLOP_S
    for figure in (found.input_j, found.output_j):
        # Attention takes up to 3% more, as contexts grow.
        assert figure.value == pytest.approx(1.015 * truth, rel=0.03)
        assert figure.low <= 1.015 * truth <= figure.high
    assert found.base_w.low <= 115 <= found.base_w.high


def test_two_mixes_foretell_the_joules_of_a_third() -> None:
    found = fit(1, BUSY)

    assert isinstance(found, TokenEnergy), found
    assert found.base_w.low > 200, "steps read the weights, for however many tokens"
    for rate in BUSY:
        third = windows(BOTH, 1, rate)[1]
        foretold = (
            found.base_w.value * third.seconds
            + found.input_j.value * third.input_tokens
            + found.output_j.value * third.output_tokens
        )
        assert foretold == pytest.approx(third.joules, rel=0.05)


def test_of_an_engine_that_often_rests_tokens_have_no_price_and_that_is_said() -> None:
    told = r"the fit leaves [5-9]\.\d% of the watts, so that energy is not in proportion .*"

    assert re.fullmatch(told, str(fit(1, RESTING)))
