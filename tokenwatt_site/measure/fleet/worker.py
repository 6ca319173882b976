"""A worker: offers its part of each trial that it is told, by the client that one process is.

`python -m tokenwatt_site.measure.fleet.worker DESCRIPTOR` talks over a socket that it inherits, and
ends with it. The client's thread must not wait: another listens, so that a stop or a question for
the clock is there at once, and a third one sends.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Protocol

from tokenwatt_site.errors import TokenwattError
from tokenwatt_site.evidence.records import RequestRecord
from tokenwatt_site.measure.client import End, offer
from tokenwatt_site.measure.descriptors import allow
from tokenwatt_site.measure.fleet.merging import packed
from tokenwatt_site.measure.fleet.messages import (
    Answered,
    Asked,
    Done,
    Failed,
    Go,
    Part,
    Ping,
    Pong,
    Ready,
    Seen,
    Stop,
)

_DESCRIPTORS = 65_536


class Link(Protocol):
    """The worker's end of the talk. Its two methods are called by different threads."""

    def send(self, message: Answered, /) -> None:
        """Tell the coordinator.

        Raises:
            OSError: nobody listens.
        """
        ...

    def recv(self) -> Asked:
        """Wait for what the coordinator tells.

        Raises:
            EOFError: it is gone.
        """
        ...


class _Gone(Exception):
    """The coordinator is."""


class Worker:
    """Serves a coordinator until it is gone."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._inbox: queue.SimpleQueue[Part | Go | None] = queue.SimpleQueue()
        self._outbox = ThreadPoolExecutor(1)
        self._end = End()

    def run(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            while isinstance(message := self._inbox.get(), Part):
                self._take(message)
        except _Gone:
            pass
        finally:
            self._outbox.shutdown(cancel_futures=True)

    def _listen(self) -> None:
        try:
            while True:
                message = self._link.recv()
                if isinstance(message, Ping):
                    self._tell(Pong(time.monotonic_ns()))
                elif isinstance(message, Stop):
                    self._end.at_ns = message.at_ns
                else:
                    if isinstance(message, Part):
                        self._end = End()  # a late stop was for the trial before
                    self._inbox.put(message)
        except (EOFError, OSError):
            self._end.at_ns = 0
            self._inbox.put(None)

    def _tell(self, message: Answered) -> None:
        self._outbox.submit(self._link.send, message)

    def _take(self, part: Part) -> None:
        told: set[int] = set()

        def watch(_: int, ended: Sequence[RequestRecord], still: Sequence[RequestRecord]) -> bool:
            told.update(record.row for record in ended)
            self._tell(Seen(packed(ended), packed(still)))
            return False

        try:
            offered = offer(
                part.plan,
                part.target,
                repeat=part.repeat,
                trial=part.trial,
                request_timeout_ns=part.request_timeout_ns,
                watch=watch,
                watch_every_ns=part.watch_every_ns,
                folder=part.folder,
                start=self._start,
                end=self._end,
            )
        except TokenwattError as error:
            self._tell(Failed(error))
        else:
            rest = packed(record for record in offered.records if record.row not in told)
            self._tell(Done(rest, replace(offered, records=())))

    def _start(self) -> int:
        self._tell(Ready())
        if isinstance(message := self._inbox.get(), Go):
            return message.epoch_ns
        raise _Gone


if __name__ == "__main__":
    allow(_DESCRIPTORS)
    Worker(Connection(int(sys.argv[1]))).run()
