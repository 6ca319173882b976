"""Answers under load held against the same prompts asked alone, as evidence.

Everything is greedy, so an engine that computes the same whatever else it computes gives the same
text. Engines whose kernels depend on the batch do not, at any load; so each prompt is asked alone
twice, and what differs between those two is not the load's doing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.columns import (
    MAX_LINE_BYTES,
    encode_objects,
    read_header,
    read_objects,
)
from tokenwatt_site.schema import Model, Sha256
from tokenwatt_site.spec import Mode

# History of the format. 1: first.
FORMAT: Final = "tokenwatt/under-load/1"

MAX_COMPARED = 10_000

SAMPLES: dict[Mode, int] = {"demo": 6, "quick": 24, "full": 24}
"""How many answers of the highest passing trial of a repeat are held against the same alone."""


class _Header(Model):
    format: Literal["tokenwatt/under-load/1"]


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

    @model_validator(mode="after")
    def _alike_as_far_as_both_go(self) -> Compared:
        most = 0 if self.loaded is None or self.alone is None else self.chars
        if self.same_chars > most:
            raise ValueError("no more characters alike than both texts have")
        if self.alone is None and (self.chars, self.cached_tokens) != (0, None):
            raise ValueError("no characters, and null cached tokens, where no text came alone")
        if self.loaded is not None and self.loaded == self.alone and self.same_chars < self.chars:
            raise ValueError("all characters alike where the digests are equal")
        return self


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
    """Return the uncompressed evidence bytes of a log."""
    return encode_objects(_Header(format=FORMAT), log.compared)


def decode_under_load(data: bytes, source: str) -> UnderLoadLog:
    """Read what `encode_under_load` wrote.

    Raises:
        InputError: another format, a field that is not what stands there, or answers that are not
            in the order of repeat, trial and row, naming line and field.
    """
    raw, lines = read_objects(
        Compared, data, source=source, most=MAX_COMPARED, limit=MAX_LINE_BYTES
    )
    read_header(_Header, raw, FORMAT, source)
    compared: list[Compared] = []
    for number, each in lines:
        if compared and not _place(compared[-1]) < _place(each):
            raise InputError(
                Problem(
                    "is not in the order of repeat, trial and row",
                    file=source,
                    line=number,
                    field="row",
                    found=f"{_place(each)}",
                    expected=f"one after {_place(compared[-1])}",
                )
            )
        compared.append(each)
    return UnderLoadLog(tuple(compared))


def _place(each: Compared) -> tuple[int, int, int]:
    return each.repeat, each.trial, each.row
