"""What sends the load: this process, several of this machine, or those of a Ray cluster."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Self
from urllib.parse import urlsplit

from tokenwatt_site.errors import Problem, UsageError
from tokenwatt_site.measure.client import Client, offer
from tokenwatt_site.measure.fleet.coordinator import Fleet
from tokenwatt_site.measure.fleet.local import clients
from tokenwatt_site.measure.fleet.ray_cluster import joined
from tokenwatt_site.trials import MAX_WORKERS

_ASKED = re.compile(r"(?:(\d{1,4})(?:@(?=.)|$))?(auto|(?:ray://)?[\w.:\[\]-]+:\d{1,5})?")
LOOPBACK = "127.0.0.1"
_ANY_PORT = 9  # nothing is sent there


@dataclass(frozen=True, slots=True)
class Workers:
    """What is asked for by `measure --workers`.

    Attributes:
        count: how many processes; None: one on each node of the cluster.
        cluster: address of a Ray cluster, "auto" for one that Ray finds itself; None: this machine.
    """

    count: int | None = 1
    cluster: str | None = None

    @classmethod
    def read(cls, text: str) -> Self:
        """Read NUMBER, ADDRESS or NUMBER@ADDRESS.

        Raises:
            UsageError: it is none of these, or the number is out of range.
        """
        found = _ASKED.fullmatch(text)
        count, cluster = found.groups() if found and text else ("0", None)
        number = None if count is None else int(count)
        if number is not None and not 1 <= number <= MAX_WORKERS:
            raise UsageError(
                Problem(
                    "neither a number of processes nor a Ray cluster",
                    field="--workers",
                    found=text,
                    expected=f"1 to {MAX_WORKERS}, or auto, HOST:PORT or ray://HOST:PORT, or both"
                    " as in 4@auto",
                )
            )
        return cls(number, cluster)


ALONE = Workers()


@dataclass(frozen=True, slots=True)
class Senders:
    """A client, and where it is.

    Attributes:
        client: sends.
        count: of how many processes it is.
        host: by which address they reach this machine.
        hosts: what the machines are called on which they run; empty where that is this one.
    """

    client: Client = offer
    count: int = 1
    host: str = LOOPBACK
    hosts: frozenset[str] = frozenset()


THIS_PROCESS = Senders()


@contextmanager
def senders(workers: Workers, urls: Sequence[str], say: Callable[[str], None]) -> Iterator[Senders]:
    """Have so many processes ready to send.

    Args:
        workers: how many, and where.
        urls: of the engine or its replicas; none: one is launched, on the loopback of this machine.
        say: is told where each process of a cluster runs.

    Raises:
        EnvironmentProblem: see `ray_cluster.joined`.
        UsageError: the engine cannot be reached from other machines.
    """
    if workers.cluster is None:
        count = workers.count or 1
        with clients(count) as client:
            yield Senders(client, count)
        return
    with joined(workers.cluster, workers.count, say) as cluster:
        addresses = [node.address for node in cluster.nodes]
        elsewhere = [address for address in addresses if not _is_ours(address)]
        near = [url for url in urls if _is_loopback(url)]
        if elsewhere and (near or not urls):
            raise _out_of_reach(near, elsewhere[0])
        names = frozenset(node.name for node in cluster.nodes) | frozenset(addresses)
        host = _way_to((elsewhere or addresses)[0])
        with closing(Fleet(cluster.start, cluster.count)) as fleet:
            yield Senders(fleet.offer, cluster.count, host, names)


def _is_ours(address: str) -> bool:
    """Tell whether an address is one of this machine's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tried:
        try:
            tried.bind((address, 0))
        except OSError:
            return False
    return True


def _way_to(address: str) -> str:
    """Return the address that this machine has for another one, or for itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect((address, _ANY_PORT))
        return str(asked.getsockname()[0])


def _is_loopback(url: str) -> bool:
    try:
        return ip_address(socket.gethostbyname(urlsplit(url).hostname or "")).is_loopback
    except (OSError, ValueError):
        return False  # who connects tells


def _out_of_reach(urls: Sequence[str], address: str) -> UsageError:
    return UsageError(
        Problem(
            "cannot be reached by workers on other machines",
            field="endpoint.url",
            found=", ".join(urls) or "an engine that is launched on the loopback",
            expected=f"an address at which {address} reaches the engine",
        )
    )
