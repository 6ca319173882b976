"""The evidence role "engine-model": what `measure` fitted to what the client saw. JSON, one line.

It is fitted once, by search; whoever reads it replays it and searches for nothing, so every
boundary is told as a rate that passes and one just above it that fails.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tokenwatt_site.canonical import canonical_bytes, load_json
from tokenwatt_site.engine_model.model import Family, Prices
from tokenwatt_site.schema import Model, valid
from tokenwatt_site.spec import HIGHEST_URPS

MAX_MODEL_BYTES = 1 << 20

Rate = Annotated[int, Field(ge=1, le=HIGHEST_URPS)]


class Boundary(Model):
    """Of a modelled engine on what `repeat` offered; 0: on the long run."""

    repeat: Annotated[int, Field(ge=0, le=100)]
    pass_urps: Rate
    fail_urps: Rate


class Fit(Model):
    """An engine fitted to the trials of all repeats but one; `left_out` 0: of all.

    `boundaries`: of all, on what each repeat offered and on the long run; else on what the repeat
    that was left out offered.
    """

    left_out: Annotated[int, Field(ge=0, le=100)]
    family: Family
    prices: Prices
    boundaries: Annotated[tuple[Boundary, ...], Field(max_length=101)]


class ModelFit(Model):
    """Everything that was fitted: first to all trials, then without each repeat in turn.

    `windows_95`: the rate at which 95% of 10-minute windows of the long run keep the SLO.
    """

    format: Literal["tokenwatt/engine-model/1"]
    fits: Annotated[tuple[Fit, ...], Field(min_length=1, max_length=101)]
    windows_95: tuple[Rate, Rate] | None


def encode_model_fit(fit: ModelFit) -> bytes:
    return canonical_bytes(fit.to_json()) + b"\n"


def decode_model_fit(data: bytes, source: str) -> ModelFit:
    """Read it back.

    Raises:
        InputError: naming what is not of this format.
    """
    value = load_json(data.removesuffix(b"\n"), source=source, limit=MAX_MODEL_BYTES)
    return valid(ModelFit, value, source)
