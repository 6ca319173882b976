"""Workers that are processes of the machines of a Ray cluster.

A cluster is joined, never started. It gives a place to each worker: on the node that has fewest of
them, and none gets more than an even share. Ray itself refuses nodes of another Ray or Python. That
all have this version of ours is seen to here, since what is said between them is Python's own.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from typing import Any

from tokenwatt_site import __version__
from tokenwatt_site.errors import EnvironmentProblem, Problem
from tokenwatt_site.measure.fleet.coordinator import WorkerLost
from tokenwatt_site.measure.fleet.linked import LinkedWorker
from tokenwatt_site.measure.fleet.messages import Answered, Asked, Failed, Part
from tokenwatt_site.measure.fleet.node import CONNECT_S, Host, Served, proven
from tokenwatt_site.measure.fleet.process import STOP_S

_PACKAGE = "tokenwatt-site"
_PLACED_S = 60.0
_ASKED_S = 1.0
_LEAST = 2  # one alone is no fleet
_SECRET_BYTES = 32
_KEY_SHOWN = 8
_CLIENT = "ray://"
# Under `uv run` Ray would copy the current folder to its nodes, with all that lies there.
_UPLOADS = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A machine of the cluster, or what Ray takes for one."""

    name: str
    key: str
    address: str
    processors: int


@contextmanager
def joined(address: str, count: int | None, say: Callable[[str], None]) -> Iterator[Cluster]:
    """Join the Ray cluster at `address` for so many workers; None: one for each of its nodes.

    Raises:
        EnvironmentProblem: there is no Ray, no cluster, or not one that can be used.
    """
    asked = f"--workers {address if count is None else f'{count}@{address}'}"
    os.environ[_UPLOADS] = "0"
    try:
        import ray.util.scheduling_strategies  # noqa: PLC0415 - a second, and an extra
    except ImportError as error:
        raise EnvironmentProblem(
            Problem(
                f"needs Ray, which cannot be imported ({error})",
                field=asked,
                remedy=f"pip install '{_PACKAGE}[fleet]'",
            )
        ) from error
    _join(ray, address, asked)
    try:
        yield Cluster(ray, count, asked, say)
    finally:
        ray.shutdown()


def _join(ray: Any, address: str, asked: str) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if address != "auto":  # Ray would look for it for minutes
            host, _, port = address.removeprefix(_CLIENT).rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise EnvironmentProblem(
            Problem(
                "cannot be joined",
                field=asked,
                found=" ".join(str(error).split()),
                expected="a Ray cluster that runs there",
                remedy="Start one: `ray start --head` here, then on each other machine the line"
                " that it prints.",
            )
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray puts one of its own


class Cluster:
    """The nodes of a cluster that was joined; `start` is what a `Fleet` starts workers by."""

    def __init__(self, ray: Any, count: int | None, asked: str, say: Callable[[str], None]) -> None:
        """Find places for so many workers.

        Args:
            ray: the module, which has joined a cluster.
            count: see `joined`.
            asked: what to call the cluster in errors.
            say: is told where each worker runs.

        Raises:
            EnvironmentProblem: there are too few, or a node has another version of ours or none.
        """
        self._ray, self._asked, self._say = ray, asked, say
        self.nodes = self._alive()
        self.count = len(self.nodes) if count is None else count
        self._share = math.ceil(self.count / max(1, len(self.nodes)))
        self._taken: Counter[str] = Counter()
        places = sum(min(self._share, node.processors) for node in self.nodes)
        if self.count < _LEAST or places < self.count:
            raise self._too_few(self.nodes)
        self._require_one_version()

    @contextmanager
    def start(self, number: int) -> Iterator[RayWorker]:
        """Run a worker, which ends with this block or with this process.

        Raises:
            EnvironmentProblem: there is no place for it.
            WorkerLost: it did not start, or cannot be reached.
        """
        node, secret = self._free(), secrets.token_bytes(_SECRET_BYTES)
        host = self._on(node, Host, processors=1).remote(node.address, secret)
        self._taken[node.key] += 1
        asked = _Asked(self._ray, host)
        try:
            link, served = self._met(node, host, secret)
            self._say(_told(f"worker {number + 1} of {self.count}", node, served))
            with link:
                yield RayWorker(node, link, asked.how_it_ended, served.pid)
        finally:
            self._taken[node.key] -= 1
            asked.end()

    def _met(self, node: Node, host: Any, secret: bytes) -> tuple[Connection, Served]:
        """Return the connection to a worker that is being placed, and what was started."""
        errors = self._ray.exceptions
        try:
            return self._linked(node, host, secret)
        except errors.GetTimeoutError as error:
            raise EnvironmentProblem(
                Problem(
                    f"node {node.name} has no place for a worker",
                    field=self._asked,
                    found=f"none in {_PLACED_S:g} s",
                    expected="a processor that Ray gave to nobody else",
                    remedy="`ray status` tells what is in use.",
                )
            ) from error
        except (errors.RayError, AuthenticationError, EOFError, OSError) as error:
            raise WorkerLost(f"did not start on node {node.name} ({_why(error)})") from error

    def _linked(self, node: Node, host: Any, secret: bytes) -> tuple[Connection, Served]:
        port = self._ray.get(host.port.remote(), timeout=_PLACED_S)
        serving = host.serve.remote()
        sock = socket.create_connection((node.address, port), CONNECT_S)
        link = proven(sock, secret, first=False)
        try:
            return link, self._ray.get(serving, timeout=_PLACED_S)
        except BaseException:  # as in `proven`
            link.close()
            raise

    def _free(self) -> Node:
        """Return the node for the next worker: the one that has fewest."""
        nodes = self._alive()
        open_ = [n for n in nodes if self._taken[n.key] < min(self._share, n.processors)]
        if not open_:
            raise self._too_few(nodes)
        return min(open_, key=lambda node: self._taken[node.key])

    def _alive(self) -> list[Node]:
        told = [n for n in self._ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) >= 1]
        names = Counter(n["NodeName"] for n in told)
        return sorted(
            Node(
                name=n["NodeName"] if names[n["NodeName"]] == 1 else n["NodeID"][:_KEY_SHOWN],
                key=n["NodeID"],
                address=n["NodeManagerAddress"],
                processors=int(n["Resources"]["CPU"]),
            )
            for n in told
        )

    def _on(self, node: Node, what: Any, *, processors: int) -> Any:
        """Return a function or class that runs on this node, when it is called."""
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            node.key, soft=False
        )
        return self._ray.remote(what).options(num_cpus=processors, scheduling_strategy=strategy)

    def _require_one_version(self) -> None:
        ours = f"{_PACKAGE} {__version__}"
        asked = [self._on(n, metadata.version, processors=0).remote(_PACKAGE) for n in self.nodes]
        found = [self._version(told) for told in asked]
        problems = [
            Problem(
                "differs from this machine",
                field=f"{self._asked}: node {node.name}",
                found=version,
                expected=ours,
                remedy=f"There, where its Ray is: pip install '{_PACKAGE}[fleet]=={__version__}'",
            )
            for node, version in zip(self.nodes, found, strict=True)
            if version != ours
        ]
        if problems:
            raise EnvironmentProblem(*problems)

    def _version(self, told: Any) -> str:
        try:
            return f"{_PACKAGE} {self._ray.get(told, timeout=_PLACED_S)}"
        except metadata.PackageNotFoundError:
            return f"no {_PACKAGE}"
        except self._ray.exceptions.RayError as error:
            return f"no answer ({_why(error)})"

    def _too_few(self, nodes: Sequence[Node]) -> EnvironmentProblem:
        told = ", ".join(f"{node.name} (processors: {node.processors})" for node in nodes)
        return EnvironmentProblem(
            Problem(
                "too few nodes",
                field=self._asked,
                found=told or "none with a processor to give",
                expected=f"places for {max(self.count, _LEAST)} workers, {self._share} on a node"
                " at most",
                remedy="Start Ray on more machines, or ask for another number: --workers"
                " NUMBER@ADDRESS.",
            )
        )


class _Asked:
    """The actor that started a worker, asked for its end while it answers."""

    def __init__(self, ray: Any, host: Any) -> None:
        self._ray, self._host, self._answers = ray, host, True

    def how_it_ended(self) -> str | None:
        """See `process.how_it_ended`; briefly, since other workers are to be told."""
        try:
            found: str | None = self._ray.get(self._host.how_it_ended.remote(), timeout=_ASKED_S)
        except self._ray.exceptions.RayError:
            self._answers = False
            return "closed its connection, and its node does not answer"
        return found

    def end(self) -> None:
        """See the worker end, whose connection is closed, and then the actor."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            if self._answers:
                self._ray.get(self._host.see_it_end.remote(), timeout=2 * STOP_S)
        self._ray.kill(self._host)


def _told(worker: str, node: Node, served: Served) -> str:
    low = f", with a priority lowered by {served.nice}: start Ray there with RAY_worker_niceness=0"
    return f"{worker} runs on node {node.name}{low if served.nice > 0 else ''}"


def _why(error: Exception) -> str:
    """Return the first line of what Ray says, or of what failed over there."""
    return str(getattr(error, "cause", error)).partition("\n")[0]


class RayWorker(LinkedWorker):
    """A process of a node, at the other end of a connection; `pid` is its number there."""

    def __init__(
        self, node: Node, link: Connection, how: Callable[[], str | None], pid: int
    ) -> None:
        super().__init__(link, how)
        self.node, self.pid = node, pid

    def tell(self, message: Asked) -> None:
        """See `coordinator.Worker`."""
        # Folders of this machine are not there.
        super().tell(replace(message, folder=None) if isinstance(message, Part) else message)

    def hear(self, timeout_s: float) -> Answered | None:
        """See `coordinator.Worker`."""
        message = super().hear(timeout_s)
        if not isinstance(message, Failed):
            return message
        place, problems = f"on node {self.node.name}: ", message.error.problems
        return Failed(type(message.error)(*(replace(p, what=place + p.what) for p in problems)))
