"""Answers under load held against the same prompts asked alone, as evidence.

Everything is greedy, so an engine that computes the same whatever else it computes gives the same
text. Engines whose kernels depend on the batch do not, at any load; so each prompt is asked alone
twice, and what differs between those two is not the load's doing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from tokenwatt_site.schema import Model, Sha256
from tokenwatt_site.spec import Mode

FORMAT = "tokenwatt/under-load/1"

SAMPLES: dict[Mode, int] = {"demo": 6, "quick": 24, "full": 24}
"""How many answers of the highest passing trial of a repeat are held against the same alone."""


class Compared(Model):
    """One answer under load, and the same prompt asked alone, twice.

    Attributes:
        repeat, trial, row: which request of the load.
        loaded, alone, again: SHA-256 of each text (UTF-8), `again` of the second time alone; null:
            no whole answer came.
        same_chars: how many characters the text under load and the first alone begin with alike.
        chars: how long the first text alone is.
        cached_tokens: prompt tokens that the engine took from its cache for the first alone.
    """

    repeat: Annotated[int, Field(ge=1)]
    trial: Annotated[int, Field(ge=1)]
    row: Annotated[int, Field(ge=0)]
    loaded: Sha256 | None
    alone: Sha256 | None
    again: Sha256 | None
    same_chars: Annotated[int, Field(ge=0)]
    chars: Annotated[int, Field(ge=0)]
    cached_tokens: Annotated[int, Field(ge=0)] | None


@dataclass(frozen=True, slots=True)
class UnderLoadLog:
    """All that were compared, in order of repeat, trial and row."""

    compared: tuple[Compared, ...]


def sampled_rows(nonce: str, repeat: int, rows: range, mode: Mode) -> tuple[int, ...]:
    """Return which scored rows of a repeat are compared, in order: drawn by the run's own nonce.

    The same in each trial of the repeat, so nobody chooses them, and verify draws them again.
    """
    key = f"{nonce}|{repeat}|under load|"
    drawn = sorted(rows, key=lambda row: hashlib.sha256(f"{key}{row}".encode()).digest())
    return tuple(sorted(drawn[: SAMPLES[mode]]))


def encode_under_load(log: UnderLoadLog) -> bytes:
    raise NotImplementedError


def decode_under_load(data: bytes, source: str) -> UnderLoadLog:
    """Read what `encode_under_load` wrote.

    Raises:
        InputError: naming line and field.
    """
    raise NotImplementedError
