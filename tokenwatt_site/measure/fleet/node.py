"""The end of a worker that is on another machine: what Ray runs there, and the way to it.

Ray finds the place and starts the process. What a trial is told and tells goes past it, over a
connection of its own, to the same process that a worker of this machine is: nothing of Ray is in
the interpreter that sends. Whoever may use the cluster may run code there; for all others, both
ends of the connection prove first that they know a secret which Ray carried.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from dataclasses import dataclass
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

from tokenwatt_site.measure.fleet.process import how_it_ended, see_it_end, spawned

CONNECT_S = 20.0


@dataclass(frozen=True, slots=True)
class Served:
    """The process of a worker, and the priority it got: 0, or less of it above."""

    pid: int
    nice: int


class Host:
    """One worker, on the machine where this is: an actor of Ray."""

    def __init__(self, address: str, secret: bytes) -> None:
        """Listen at this address of the machine."""
        self._secret = secret
        self._listener = socket.create_server((address, 0))
        self._process: subprocess.Popen[bytes] | None = None
        # Ray gives its processes a low priority, which the worker would inherit.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)

    def port(self) -> int:
        """Return where it listens."""
        return int(self._listener.getsockname()[1])

    def serve(self) -> Served:
        """Start a worker for who connects.

        Raises:
            AuthenticationError: it does not know the secret.
            OSError: nobody connects.
            EnvironmentProblem: no process can be started.
        """
        with self._listener:
            self._listener.settimeout(CONNECT_S)
            sock, _ = self._listener.accept()
        self._process = spawned(proven(sock, self._secret, first=True))
        return Served(self._process.pid, os.getpriority(os.PRIO_PROCESS, self._process.pid))

    def how_it_ended(self) -> str | None:
        """See `process.how_it_ended`."""
        return None if self._process is None else how_it_ended(self._process)

    def see_it_end(self) -> None:
        """See `process.see_it_end`."""
        if self._process is not None:
            see_it_end(self._process)


def proven(sock: socket.socket, secret: bytes, *, first: bool) -> Connection:
    """Make a connection of a TCP socket whose two ends prove to each other that they know a secret.

    Args:
        sock: taken over.
        secret: what both have to know.
        first: whether this end asks first; the other one does not.

    Raises:
        AuthenticationError: the other end does not know it.
        EOFError: it is gone.
        OSError: likewise.
    """
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a Stop must not wait for an ACK
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # to end where the other machine did
    link = Connection(sock.detach())
    try:
        steps = (deliver_challenge, answer_challenge)
        for step in steps if first else reversed(steps):
            step(link, secret)
    except BaseException:  # whatever broke it off, Ctrl-C too: nobody else has the link yet
        link.close()
        raise
    return link
