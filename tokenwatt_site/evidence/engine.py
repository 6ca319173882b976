"""What an engine's own counters said while it was loaded, and the format it is kept in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tokenwatt_site.evidence.columns import (
    checked,
    decode,
    encode,
    expect,
    read_header,
    timed_rows,
)
from tokenwatt_site.schema import Line, Model

# History of the format. 1: first.
ENGINE_FORMAT = "tokenwatt/engine/1"

COUNTERS = ("steps", "prompt_tokens", "output_tokens", "read_mb")
"""The columns that never fall while an engine runs."""


@dataclass(frozen=True, slots=True)
class EngineSample:
    """One look at the engine's counters; None: not exported.

    `at_ns` is on the clock of the journal's `epoch_ns`: the middle of asking. Counters count from
    the engine's start. Of data-parallel ranks, what is counted in tokens or requests is the sum,
    and what each rank has for itself (steps, share, bytes) the mean.

    Attributes:
        at_ns: when.
        steps: steps of the engine; the ranks of one engine step together.
        prompt_tokens: prompt tokens computed.
        output_tokens: tokens made.
        running: requests in the batch.
        waiting: requests in the queue.
        kv_ppm: share of the KV memory in use, in 1e-6.
        read_mb: the engine's own estimate of what each GPU read, in 1e6 bytes.
    """

    at_ns: int
    steps: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    running: int | None = None
    waiting: int | None = None
    kv_ppm: int | None = None
    read_mb: int | None = None


Column: TypeAlias = Literal[
    "steps", "prompt_tokens", "output_tokens", "running", "waiting", "kv_ppm", "read_mb"
]


class _EngineHeader(Model):
    format: Literal["tokenwatt/engine/1"]
    columns: tuple[str, ...]
    names: dict[Column, Line]


@dataclass(frozen=True, slots=True)
class EngineLog:
    """All samples, in order of time; `names` says which of the engine's names each column is."""

    names: dict[str, str]
    samples: tuple[EngineSample, ...]


_COLUMNS = (
    "at_ns-previous_at_ns",
    "steps",
    "prompt_tokens",
    "output_tokens",
    "running",
    "waiting",
    "kv_ppm",
    "read_mb",
)
_NULLABLE = set(range(1, len(_COLUMNS)))


def encode_engine(log: EngineLog) -> bytes:
    """Return the uncompressed evidence bytes of an engine log."""
    return encode(
        {"format": ENGINE_FORMAT, "columns": list(_COLUMNS), "names": log.names},
        timed_rows(log.samples, _COLUMNS),
    )


def decode_engine(data: bytes, *, source: str) -> EngineLog:
    """Read what `encode_engine` wrote.

    Raises:
        InputError: another format, or a value that is no integer.
    """
    raw, rows = decode(data, source)
    header = read_header(_EngineHeader, raw, ENGINE_FORMAT, source)
    expect(list(header.columns), list(_COLUMNS), source)
    samples = []
    previous = 0
    for _, row in checked(rows, len(_COLUMNS), _NULLABLE, source):
        previous += row[0]
        samples.append(EngineSample(previous, *row[1:]))
    return EngineLog({str(key): name for key, name in header.names.items()}, tuple(samples))
