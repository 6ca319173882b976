"""Time: as it is written down, and the clock by which a session waits."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Protocol


def utc_text(moment: datetime) -> str:
    """Return RFC 3339 UTC text with microseconds."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def utc_now() -> str:
    return utc_text(datetime.now(UTC))


class Clock(Protocol):
    """The clock of a run, 0 at its opening, and all waiting that goes by it."""

    def now_ns(self) -> int:
        """Return nanoseconds since the run was opened."""
        ...

    def pause(self, seconds: float) -> None:
        """Let time go by."""
        ...

    def wait(self, bell: threading.Event, seconds: float) -> None:
        """Let time go by until `bell` rings, for at most `seconds`."""
        ...

    def ring(self, bell: threading.Event) -> None:
        """End the wait for `bell`, of another thread, or the next one if none waits."""
        ...


class RunClock:
    """The monotonic clock of this machine, counted from `origin_ns`."""

    def __init__(self, origin_ns: int) -> None:
        self._origin_ns = origin_ns

    def now_ns(self) -> int:
        return time.monotonic_ns() - self._origin_ns

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, bell: threading.Event, seconds: float) -> None:
        bell.wait(seconds)

    def ring(self, bell: threading.Event) -> None:
        bell.set()
