"""The seam to an instrument, and its in-memory twins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from tokenwatt_site.evidence.power import Board, DramSpan, PowerSample
from tokenwatt_site.meters import PowerScope, PowerSensor

MAX_RATE_HZ = 1.0
"""Reading energy counters faster makes some of them fall short (13% at 10 Hz on an RTX 4090)."""


class PowerMeter(Protocol):
    """An instrument that reads boards.

    Attributes:
        sensor: its kind.
        scope: what a reading covers.
        driver: version of the driver it speaks to, None when it has none.
        averaging_ns: over how long its watts are averaged; None: not known.
        notes: what it does not take from its boards, and why, as far as it was seen; published.
    """

    sensor: PowerSensor
    scope: PowerScope
    driver: str | None
    averaging_ns: int | None

    @property
    def notes(self) -> tuple[str, ...]: ...

    def boards(self) -> tuple[Board, ...]:
        """Return the boards, in the order of `PowerSample.board`."""
        ...

    def read(self, now_ns: Callable[[], int]) -> tuple[PowerSample, ...]:
        """Read every board once, each stamped with `now_ns` when it was read.

        What cannot be read is None, never 0. An exception means that nothing could be read.
        """
        ...

    def close(self) -> None:
        """Release the instrument; it is not read again."""
        ...


@runtime_checkable
class DramMeter(Protocol):
    """A meter whose boards count their own memory traffic between two moments."""

    def begin(self, now_ns: Callable[[], int]) -> object:
        """Take the first of a pair, of every board that can; the result is for `end` alone."""
        ...

    def end(self, begun: object, now_ns: Callable[[], int]) -> tuple[DramSpan, ...]:
        """Take the second and return what was used between them, of every board that can."""
        ...


Reading: TypeAlias = Sequence[tuple[int | None, int | None]]
"""(power_mw, energy_mj) of every board."""


class ScriptedMeter:
    """Gives scripted readings, by call or by time.

    By call: a sequence, in which None raises OSError, as it does after the last. By time: a
    function of `at_ns`.
    """

    driver: str | None = None
    averaging_ns: int | None = None
    notes: tuple[str, ...] = ()

    def __init__(
        self,
        boards: Sequence[Board],
        readings: Sequence[Reading | None] | Callable[[int], Reading],
        *,
        sensor: PowerSensor = "nvml",
        scope: PowerScope = "gpu",
    ) -> None:
        self.sensor, self.scope = sensor, scope
        self.closed = False
        self._boards = tuple(boards)
        self._by_time = readings if callable(readings) else None
        self._by_call = iter(()) if callable(readings) else iter(tuple(readings))

    def boards(self) -> tuple[Board, ...]:
        return self._boards

    def close(self) -> None:
        self.closed = True

    def read(self, now_ns: Callable[[], int]) -> tuple[PowerSample, ...]:
        at_ns = now_ns()
        reading = self._by_time(at_ns) if self._by_time else next(self._by_call, None)
        if reading is None:
            raise OSError("the instrument does not answer")
        return tuple(
            PowerSample(at_ns, board, power_mw, energy_mj)
            for board, (power_mw, energy_mj) in enumerate(reading)
        )


class ScriptedDramMeter(ScriptedMeter):
    """A `ScriptedMeter` whose boards all use `dram_ppm` of their memory bus, at any time."""

    dram_ppm = 500_000

    def begin(self, now_ns: Callable[[], int]) -> object:
        return now_ns()

    def end(self, begun: object, now_ns: Callable[[], int]) -> tuple[DramSpan, ...]:
        end_ns = now_ns()
        return tuple(
            DramSpan(board=board, start_ns=int(str(begun)), end_ns=end_ns, ppm=self.dram_ppm)
            for board in range(len(self._boards))
        )
