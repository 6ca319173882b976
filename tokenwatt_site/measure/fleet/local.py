"""Workers that are processes of this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import cast

from tokenwatt_site.errors import EnvironmentProblem, Problem
from tokenwatt_site.measure.client import Client, offer
from tokenwatt_site.measure.fleet.coordinator import Fleet, WorkerLost
from tokenwatt_site.measure.fleet.messages import Answered, Asked

_STOP_S = 2.0


@contextmanager
def clients(count: int) -> Iterator[Client]:
    """Give a client of so many processes; of one, it is this process."""
    if count == 1:
        yield offer
        return
    fleet = Fleet(started, count)
    try:
        yield fleet.offer
    finally:
        fleet.close()


@contextmanager
def started(_: int) -> Iterator[LocalWorker]:
    """Run a worker, which ends with this block or with this process.

    Raises:
        EnvironmentProblem: it cannot be started.
    """
    ours, theirs = Pipe()
    try:
        # A session of its own: Ctrl-C is for us, who close its socket then.
        process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        raise EnvironmentProblem(
            Problem(
                f"a client process did not start ({error.strerror})",
                remedy="Is there memory, and may this user start processes?",
            )
        ) from error
    finally:
        theirs.close()
    try:
        yield LocalWorker(process, ours)
    finally:
        ours.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class LocalWorker:
    """A process at the other end of a socket."""

    def __init__(self, process: subprocess.Popen[bytes], link: Connection) -> None:
        self.process, self._link = process, link

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
        try:
            code = self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            return WorkerLost("closed its connection")
        return WorkerLost(
            f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        )
