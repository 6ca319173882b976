"""The seam to an instrument, its in-memory twin, and the thread that reads it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from tokenwatt_site.power_log import Board, DramSpan, PowerLog, PowerSample
from tokenwatt_site.spec import PowerScope, PowerSensor

MAX_RATE_HZ = 1.0
"""Reading energy counters faster makes some of them fall short (13% at 10 Hz on an RTX 4090)."""


class PowerMeter(Protocol):
    """An instrument that reads boards.

    Attributes:
        sensor: its kind.
        scope: what a reading covers.
        driver: version of the driver it speaks to, None when it has none.
        averaging_ns: over how long its watts are averaged; None: not known.
    """

    sensor: PowerSensor
    scope: PowerScope
    driver: str | None
    averaging_ns: int | None

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


class DramMeter(Protocol):
    """A meter whose boards count their own memory traffic between two moments."""

    def begin(self, now_ns: Callable[[], int]) -> object:
        """Take the first of a pair, of every board that can; the result is for `end` alone."""
        ...

    def end(self, begun: object, now_ns: Callable[[], int]) -> tuple[DramSpan, ...]:
        """Take the second and return what was used between them, of every board that can."""
        ...


class ScriptedMeter:
    """Gives scripted readings, one tuple of (power_mw, energy_mj) per board and call.

    None in place of a reading raises OSError; after the last reading it goes on raising.
    """

    sensor: PowerSensor = "nvml"
    scope: PowerScope = "gpu"
    driver: str | None = None
    averaging_ns: int | None = None

    def __init__(
        self,
        boards: Sequence[Board],
        readings: Sequence[Sequence[tuple[int | None, int | None]] | None],
    ) -> None:
        self._boards = tuple(boards)
        self._readings = iter(tuple(readings))

    def boards(self) -> tuple[Board, ...]:
        return self._boards

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def read(self, now_ns: Callable[[], int]) -> tuple[PowerSample, ...]:
        reading = next(self._readings, None)
        if reading is None:
            raise OSError("the instrument does not answer")
        return tuple(
            PowerSample(now_ns(), board, power_mw, energy_mj)
            for board, (power_mw, energy_mj) in enumerate(reading)
        )


class Sampler:
    """Reads a meter in a thread of its own, at its own deadlines, until `stop`.

    A reading that fails is kept as a sample without values: the gap shows in the evidence, and
    the measurement goes on. The first reading is taken at once, the last by `stop`, so both
    edges of what happens between are bracketed.
    """

    def __init__(
        self,
        meter: PowerMeter,
        rate_hz: float,
        *,
        now_ns: Callable[[], int] = time.monotonic_ns,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """Prepare to read `meter` at `rate_hz`, at most MAX_RATE_HZ.

        Args:
            meter: the instrument.
            rate_hz: readings per second.
            now_ns: the clock of the samples.
            wait: waits so many seconds and tells whether to stop; the default waits for `stop`.
        """
        self._meter = meter
        self._boards = meter.boards()
        self._period_ns = round(1e9 / min(rate_hz, MAX_RATE_HZ))
        self._now_ns = now_ns
        self._stopped = threading.Event()
        self._wait = wait or self._stopped.wait
        self._samples: list[PowerSample] = []
        self._thread = threading.Thread(target=self._run, name="power", daemon=True)

    def start(self) -> None:
        self._read()
        self._thread.start()

    def stop(self) -> PowerLog:
        """Read once more and return everything that was read, in order of time."""
        self._stopped.set()
        self._thread.join()
        self._read()
        return PowerLog(
            sensor=self._meter.sensor,
            scope=self._meter.scope,
            period_ns=self._period_ns,
            averaging_ns=self._meter.averaging_ns,
            boards=self._boards,
            samples=tuple(self._samples),
        )

    def _run(self) -> None:
        due_ns = self._now_ns()
        while True:
            # The next deadline still ahead: one slow reading does not cause a burst of them.
            late = (self._now_ns() - due_ns) // self._period_ns
            due_ns += self._period_ns * (1 + late)
            if self._wait((due_ns - self._now_ns()) / 1e9):
                return
            self._read()

    def _read(self) -> None:
        try:
            self._samples += self._meter.read(self._now_ns)
        except Exception:  # noqa: BLE001  # an instrument's fault must not end the measurement
            at_ns = self._now_ns()
            self._samples += [
                PowerSample(at_ns, board, None, None) for board in range(len(self._boards))
            ]
