"""Loopback servers whose every connection is handled by a function of the test's own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def accepting(
    handle: Callable[[socket.socket, int], None], *, backlog: int | None = None
) -> Iterator[int]:
    """Give each accepted connection and its number to `handle` in a thread of its own.

    Yields the port; at the end every thread has ended.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=backlog)
    threads: list[threading.Thread] = []

    def serve(accepted: socket.socket, number: int) -> None:
        with accepted, suppress(OSError):
            handle(accepted, number)

    def accept() -> None:
        with suppress(OSError):
            while True:
                accepted, _ = listener.accept()
                threads.append(
                    threading.Thread(target=serve, args=(accepted, len(threads)), daemon=True)
                )
                threads[-1].start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
        for thread in threads:
            thread.join()
