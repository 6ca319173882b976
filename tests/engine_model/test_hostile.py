"""Models that somebody signed to keep a reader busy."""

from __future__ import annotations

import pytest

from tokenwatt_site.engine_model.load import Load, play
from tokenwatt_site.engine_model.model import EngineModel, Family, Prices
from tokenwatt_site.errors import InputError
from tokenwatt_site.workload import NAMED

LOAD = Load.of(NAMED["chat-mix-v1"].realisation(1, lead_in=10, scored=50, tail=10))


def a_model(base_ps: int = 1, context_token_ps: int = 0, **family: object) -> EngineModel:
    told = {"prefill": "chunked", "token_budget": 1, "max_batch": 1, **family}
    return EngineModel(
        Family.model_validate(told),
        Prices(
            base_ps=base_ps,
            sequence_ps=0,
            prompt_token_ps=0,
            context_token_ps=context_token_ps,
        ),
    )


@pytest.mark.parametrize(
    ("model", "said"),
    [
        pytest.param(a_model(), "more steps", id="one token a step, for ever"),
        pytest.param(a_model(replicas=64), "more steps", id="many replicas"),
    ],
)
def test_a_replay_that_asks_for_too_many_steps_ends(model: EngineModel, said: str) -> None:
    with pytest.raises(InputError, match=said):
        play(model, LOAD, 10**11)


def test_room_for_longer_answers_than_fit_is_not_given() -> None:
    many = Load(LOAD.elapsed, LOAD.n_in, LOAD.n_out + (1 << 20), LOAD.scored)
    with pytest.raises(InputError, match="more buckets"):
        play(a_model(replicas=64), many, 10**6)
