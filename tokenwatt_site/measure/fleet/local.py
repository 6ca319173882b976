"""Workers that are processes of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from tokenwatt_site.measure.client import Client, offer
from tokenwatt_site.measure.fleet.coordinator import Fleet
from tokenwatt_site.measure.fleet.linked import LinkedWorker
from tokenwatt_site.measure.fleet.process import how_it_ended, see_it_end, spawned


@contextmanager
def clients(count: int) -> Iterator[Client]:
    """Give a client of so many processes; of one, it is this process."""
    if count == 1:
        yield offer
        return
    with closing(Fleet(started, count)) as fleet:
        yield fleet.offer


@contextmanager
def started(_: int) -> Iterator[LocalWorker]:
    """Run a worker, which ends with this block or with this process.

    Raises:
        EnvironmentProblem: it cannot be started.
    """
    ours, theirs = Pipe()
    with ours:
        process = spawned(theirs)
        try:
            yield LocalWorker(process, ours)
        finally:
            ours.close()
            see_it_end(process)


class LocalWorker(LinkedWorker):
    """A process at the other end of a socket."""

    def __init__(self, process: subprocess.Popen[bytes], link: Connection) -> None:
        super().__init__(link, lambda: how_it_ended(process))
        self.process = process
