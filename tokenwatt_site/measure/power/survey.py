"""A look at every NVIDIA board of this machine, before anything is measured.

The energy counter is read quickly for `BURST_S`, which a measurement never does: some counters
fall short then. Here it tells how often it is refreshed, and no joules.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from tokenwatt_site.evidence.power import Board, PowerSample
from tokenwatt_site.measure.power.binding import NvmlUnavailable
from tokenwatt_site.measure.power.gpm import LEAST_NS
from tokenwatt_site.measure.power.nvml import NvmlMeter
from tokenwatt_site.measure.power.selection import Chosen, Present
from tokenwatt_site.meters import PowerScope

BURST_S = 2.0
"""Long enough for the slowest counter that is known: one refresh in 100 ms."""

_STEP_S = 0.005
_PAIR_S = 1.25 * LEAST_NS / 1e9


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What one board tells.

    Attributes:
        board: its ids, limits and settings.
        memory_gib: its memory.
        mig: whether it is split.
        pids: processes on it; None where they cannot be listed.
        scope: what its watts cover.
        averaging_ns: over how long they are averaged.
        sample: one reading.
        bus_ppm: use of its memory bus during the look; None: it does not count it.
        refresh_ns: from one change of the energy counter to the next; None: too few were seen.
    """

    board: Board
    memory_gib: int | None
    mig: bool
    pids: frozenset[int] | None
    scope: PowerScope
    averaging_ns: int | None
    sample: PowerSample
    bus_ppm: int | None
    refresh_ns: float | None


@dataclass(frozen=True, slots=True)
class Silent:
    """A board that tells neither energy nor power, and why."""

    uuid: str
    reason: str


@dataclass(frozen=True, slots=True)
class Survey:
    """All boards, in NVML's order."""

    driver: str | None
    boards: tuple[Surveyed | Silent, ...]


def survey(
    nvml: Any | None = None,
    *,
    now_ns: Callable[[], int] = time.monotonic_ns,
    wait: Callable[[float], object] = time.sleep,
) -> Survey:
    """Look at every board; the first of each name is read quickly for `BURST_S`.

    Args:
        nvml: the binding; pynvml where it is None.
        now_ns: the clock.
        wait: waits so many seconds.

    Raises:
        NvmlUnavailable: no library, driver or board.
    """
    present: list[Present] = []

    def note(found: Sequence[Present]) -> Sequence[Chosen]:
        present.extend(found)
        return ()

    whole = NvmlMeter(nvml, note)
    whole.close()
    refreshed: dict[str, float | None] = {}
    boards: list[Surveyed | Silent] = []
    for place, one in enumerate(present):
        # A meter for each board, so that one that tells nothing does not hide the others.
        try:
            meter = NvmlMeter(nvml, lambda _, at=place: (_alone(at),))  # type: ignore[misc]
        except NvmlUnavailable as error:
            boards.append(Silent(one.uuid, str(error)))
            continue
        try:
            boards.append(_surveyed(meter, one, refreshed, now_ns, wait))
        finally:
            meter.close()
    return Survey(whole.driver, tuple(boards))


def update_period_ns(readings: Sequence[tuple[int, int]]) -> float | None:
    """Return the median time between changes of a value; None: fewer than three changes.

    Args:
        readings: (at_ns, value), in order of time.
    """
    changes = [at for (_, before), (at, after) in pairwise(readings) if after != before]
    gaps = [b - a for a, b in pairwise(changes)]
    return median(gaps) if len(gaps) >= 2 else None


def _alone(place: int) -> Chosen:
    return Chosen(place, "all there are", part=False, others=None)


def _surveyed(
    meter: NvmlMeter,
    present: Present,
    refreshed: dict[str, float | None],
    now_ns: Callable[[], int],
    wait: Callable[[float], object],
) -> Surveyed:
    (board,) = meter.boards()
    begun = meter.begin(now_ns)
    if board.name not in refreshed:
        refreshed[board.name] = _refresh_ns(meter, now_ns, wait)
    else:
        wait(_PAIR_S)
    spans = meter.end(begun, now_ns)
    return Surveyed(
        board=board,
        memory_gib=meter.memory_gib(0),
        mig=present.mig,
        pids=present.pids,
        scope=meter.scope,
        averaging_ns=meter.averaging_ns,
        sample=meter.read(now_ns)[0],
        bus_ppm=spans[0].ppm if spans else None,
        refresh_ns=refreshed[board.name],
    )


def _refresh_ns(
    meter: NvmlMeter, now_ns: Callable[[], int], wait: Callable[[float], object]
) -> float | None:
    until_ns = now_ns() + round(BURST_S * 1e9)
    readings = []
    while now_ns() < until_ns:
        (sample,) = meter.read(now_ns)
        if sample.energy_mj is not None:
            readings.append((sample.at_ns, sample.energy_mj))
        wait(_STEP_S)
    return update_period_ns(readings)
