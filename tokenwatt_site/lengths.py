"""What a setup says of the rows of its workload: how long they are, which belong together."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from tokenwatt_site.schema import Model

MAX_TOKENS = 10_000_000
"""Of one prompt or one answer, as a distribution gives it."""


class Lognormal(Model):
    """Token counts: lognormal with this median and 90th percentile, clipped to [min, max]."""

    kind: Literal["lognormal"]
    median: Annotated[int, Field(ge=1, le=1_000_000)]
    p90: Annotated[int, Field(ge=1, le=MAX_TOKENS)]
    min: Annotated[int, Field(ge=1)]
    max: Annotated[int, Field(ge=1, le=MAX_TOKENS)]

    @property
    def longest(self) -> int:
        return self.max

    @model_validator(mode="after")
    def _ordered(self) -> Lognormal:
        if not self.min <= self.median < self.p90 <= self.max:
            raise ValueError("needs min <= median < p90 <= max")
        return self


class Fixed(Model):
    """Every request has this many tokens."""

    kind: Literal["fixed"]
    tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)]

    @property
    def longest(self) -> int:
        return self.tokens


class Traced(Model):
    """Each row has the tokens that its line of the trace has; these are their order statistics.

    `median` and `p90` are sorted[ceil(q n) - 1] over all n lines. They are checked against the
    file (`workload.workload_of`), so that a reader of the setup need not have it.
    """

    kind: Literal["trace"]
    median: Annotated[int, Field(ge=1, le=MAX_TOKENS)]
    p90: Annotated[int, Field(ge=1, le=MAX_TOKENS)]
    min: Annotated[int, Field(ge=1)]
    max: Annotated[int, Field(ge=1, le=MAX_TOKENS)]

    @property
    def longest(self) -> int:
        return self.max

    @model_validator(mode="after")
    def _ordered(self) -> Traced:
        if not self.min <= self.median <= self.p90 <= self.max:
            raise ValueError("needs min <= median <= p90 <= max")
        return self


Lengths: TypeAlias = Annotated[Lognormal | Fixed | Traced, Field(discriminator="kind")]


class Conversation(Model):
    """Rows that are turns of conversations: a prompt holds all that was said before it.

    Rows come in blocks of `spread` conversations with `turns` turns each. Turn t of conversation j
    is row t x spread + j of its block, so two turns of one conversation are `spread` requests
    apart. Its prompt has `shared_prefix_tokens`, the same in all prompts of a trial, then the new
    tokens of the turns before it, each followed by as many tokens as were asked as its answer, then
    its own new tokens. The input distribution gives the new tokens of a turn.
    """

    turns: Annotated[int, Field(ge=1, le=100)]
    spread: Annotated[int, Field(ge=1, le=10_000)]
    shared_prefix_tokens: Annotated[int, Field(ge=0, le=1_000_000)]

    @model_validator(mode="after")
    def _says_something(self) -> Conversation:
        # One workload, one way to write it: this would be the plain one under another hash.
        if self.turns == 1 and self.shared_prefix_tokens == 0:
            raise ValueError("needs more than one turn or a shared prefix; else leave it out")
        if self.turns == 1 and self.spread != 1:
            raise ValueError("needs spread: 1 where a conversation has one turn")
        return self

    def longest_prompt(self, new: int, answer: int) -> int:
        """Return the tokens of the last prompt where each turn has `new` and `answer` tokens."""
        return self.shared_prefix_tokens + self.turns * new + (self.turns - 1) * answer
