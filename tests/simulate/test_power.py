from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.commands.simulate import Asked, plan
from tokenwatt_site.simulate.engine import Engine, Request, Step
from tokenwatt_site.simulate.power import H200, Draw, PowerModel
from tokenwatt_site.simulate.virtual import play

TOY = PowerModel(idle_mw=100_000, limit_mw=700_000, memory_ppm=500_000, compute_ppm=600_000)


def step(start_ns: int, end_ns: int, moving_ns: int = 0, computing_ns: int = 0) -> Step:
    return Step(start_ns, end_ns, 1, (), moving_ns, computing_ns)


@pytest.mark.parametrize(
    ("moving_ns", "computing_ns", "expected_mw"),
    [
        (0, 0, 100_000),
        (100, 0, 400_000),
        (0, 100, 460_000),
        (50, 50, 430_000),
        (100, 100, 700_000),  # half and six tenths are more than there is: the limit
    ],
)
def test_memory_and_arithmetic_draw_their_shares_up_to_the_limit(
    moving_ns: int, computing_ns: int, expected_mw: int
) -> None:
    assert TOY.step_mw(step(0, 100, moving_ns, computing_ns)) == expected_mw


def test_a_board_draws_its_idle_power_between_steps() -> None:
    draw = Draw(TOY)
    draw.add(step(2_000_000_000, 3_000_000_000, 1_000_000_000))

    # 2 s of 100 W, 1 s of 400 W, 1 s of 100 W
    assert draw.joules(0, 4_000_000_000) == 700
    assert draw.joules(2_500_000_000, 3_500_000_000) == 250
    assert draw.busy_ns(2_500_000_000) == 500_000_000
    assert draw.busy_ns(9_000_000_000) == 1_000_000_000


steps = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(0, 20), st.integers(0, 20)),
    max_size=8,
)


@given(steps, st.integers(0, 300), st.integers(0, 300))
def test_energy_is_the_sum_over_every_nanosecond(
    gaps: list[tuple[int, int, int, int]], start_ns: int, length_ns: int
) -> None:
    draw, at, powers = Draw(TOY), 0, [TOY.idle_mw] * 1000
    for gap, length, moving, computing in gaps:
        one = step(at + gap, at + gap + length, min(moving, length), min(computing, length))
        draw.add(one)
        powers[one.start_ns : one.end_ns] = [TOY.step_mw(one)] * length
        at = one.end_ns

    end_ns = start_ns + length_ns
    found = draw.energy_mw_ns(end_ns) - draw.energy_mw_ns(start_ns)
    assert found == sum(powers[start_ns:end_ns])


def test_decoding_alone_draws_far_less_than_a_long_prefill() -> None:
    rest = dict.fromkeys(("served_name", "kv_tokens", "memory_gib", "max_model_len", "seed"))
    asked = Asked(
        "NVIDIA H200", "llama-3.1-8b", 1, max_batch=8, token_budget=8192, script="", **rest
    )
    simulation = plan(asked)
    engine = Engine(simulation.roofline, simulation.limits)
    watts: list[float] = []

    play(
        engine,
        [Request(0, tuple(range(8192)), 20, 0)],
        lambda one: watts.append(H200.step_mw(one) / 1000),
    )

    assert watts[0] > 600
    assert all(200 < decode < 300 for decode in watts[1:])
