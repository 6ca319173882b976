"""A worker at the other end of a connection."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import cast

from tokenwatt_site.measure.fleet.coordinator import WorkerLost
from tokenwatt_site.measure.fleet.messages import Answered, Asked


class LinkedWorker:
    """Talks over `link`; where that ends, `how` tells how the worker did, or None."""

    def __init__(self, link: Connection, how: Callable[[], str | None]) -> None:
        self._link, self._how = link, how

    def tell(self, message: Asked) -> None:
        """See `coordinator.Worker`."""
        try:
            self._link.send(message)
        except OSError as error:
            raise self._lost() from error

    def hear(self, timeout_s: float) -> Answered | None:
        """See `coordinator.Worker`."""
        try:
            return cast("Answered", self._link.recv()) if self._link.poll(timeout_s) else None
        except (EOFError, OSError) as error:
            raise self._lost() from error

    def _lost(self) -> WorkerLost:
        return WorkerLost(self._how() or "closed its connection")
