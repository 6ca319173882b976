"""An engine as four prices and a family of schedulers.

Time of a step = base + price per decoding sequence + per prompt token + per token of the decoding
sequences' contexts. Prices are integers in ps, the clock counts ns, and nothing is random, so that
whoever replays a model comes to the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from tokenwatt_site.schema import Model

Prefill: TypeAlias = Literal["chunked", "first"]
Price: TypeAlias = Annotated[int, Field(ge=0, le=10**13)]


class Family(Model):
    """How a scheduler chooses what a step computes.

    `prefill`: prompts in chunks beside decoding, or before it, while decoding waits. A step takes
    at most `token_budget` tokens, of at most `max_batch` sequences. `kv_tokens` is how many tokens
    fit in the cache; where one more does not, the newest sequence is put back and computed again;
    null: all fit. Requests go to the least loaded of `replicas`.
    """

    prefill: Prefill
    token_budget: Annotated[int, Field(ge=1, le=1 << 20)]
    max_batch: Annotated[int, Field(ge=1, le=1 << 20)]
    kv_tokens: Annotated[int, Field(ge=1, le=1 << 40)] | None = None
    replicas: Annotated[int, Field(ge=1, le=64)] = 1

    @property
    def limits(self) -> tuple[int, ...]:
        """As `steps.serve` takes them, and its twin in JavaScript."""
        is_first = int(self.prefill == "first")
        return self.token_budget, self.max_batch, self.kv_tokens or 0, is_first, self.replicas


class Prices(Model):
    """What a step costs, in ps: itself, and for each of what it computes.

    No step of them takes so long that a 64-bit integer does not hold it.
    """

    base_ps: Annotated[int, Field(ge=1, le=10**13)]
    sequence_ps: Price
    prompt_token_ps: Annotated[int, Field(ge=0, le=10**12)]
    context_token_ps: Annotated[int, Field(ge=0, le=10**9)]

    @property
    def in_order(self) -> tuple[int, ...]:
        """As `steps.serve` takes them, and its twin in JavaScript."""
        return self.base_ps, self.sequence_ps, self.prompt_token_ps, self.context_token_ps


@dataclass(frozen=True, slots=True)
class EngineModel:
    """One engine: its family and its prices."""

    family: Family
    prices: Prices
