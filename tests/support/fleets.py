"""Workers that are threads: they say what processes say, pickled, and start at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from typing import Any

from tokenwatt_site.measure.fleet.coordinator import Fleet, WorkerLost
from tokenwatt_site.measure.fleet.worker import Worker


class Piped:
    """The coordinator's end of a pipe to a worker."""

    def __init__(self, link: Any) -> None:
        self.link = link

    def tell(self, message: Any) -> None:
        try:
            self.link.send(message)
        except OSError as error:
            raise WorkerLost("is gone") from error

    def hear(self, timeout_s: float) -> Any:
        try:
            return self.link.recv() if self.link.poll(timeout_s) else None
        except (EOFError, OSError) as error:
            raise WorkerLost("is gone") from error


@contextmanager
def in_thread(_: int) -> Iterator[Piped]:
    ours, theirs = Pipe()
    thread = threading.Thread(target=Worker(theirs).run)
    thread.start()
    try:
        yield Piped(ours)
    finally:
        ours.close()
        thread.join()
        theirs.close()


@contextmanager
def fleet_of(count: int) -> Iterator[Fleet]:
    """Run so many workers as threads."""
    fleet = Fleet(in_thread, count)
    try:
        yield fleet
    finally:
        fleet.close()
