"""What a coordinator and its workers tell each other: plain values that can be pickled.

Ping and Pong, as often as wanted; then for each trial Part, Ready, Go, then Seen until the end,
which Stop may bring, and Done. Instead of Ready or Done there may come Failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tokenwatt_site.errors import TokenwattError
from tokenwatt_site.measure.client import Offered, PlannedRequest, Target
from tokenwatt_site.measure.fleet.merging import Packed


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for the worker's clock."""


@dataclass(frozen=True, slots=True)
class Pong:
    """The worker's `time.monotonic_ns()`."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class Part:
    """What a worker is to offer, and how; see `client.offer`."""

    plan: tuple[PlannedRequest, ...]
    target: Target
    repeat: int
    trial: int
    request_timeout_ns: int
    watch_every_ns: int
    folder: Path | None


@dataclass(frozen=True, slots=True)
class Ready:
    """Connections are open: time 0 may come."""


@dataclass(frozen=True, slots=True)
class Go:
    """Time 0, on the worker's clock."""

    epoch_ns: int


@dataclass(frozen=True, slots=True)
class Seen:
    """The records that became final since the last of these, and those of the open requests."""

    ended: Packed
    still: Packed


@dataclass(frozen=True, slots=True)
class Stop:
    """When the trial ends for all, from its time 0; told ahead."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class Done:
    """The records that were not told yet, and what else was seen: `offered` has none of them."""

    records: Packed
    offered: Offered


@dataclass(frozen=True, slots=True)
class Failed:
    """Why the worker could not offer its part."""

    error: TokenwattError


Asked: TypeAlias = Ping | Part | Go | Stop
Answered: TypeAlias = Pong | Ready | Seen | Done | Failed
