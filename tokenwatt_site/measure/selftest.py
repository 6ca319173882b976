"""The client before the load: what it can hold on this machine, and with what error.

It is run as trials run it, against a server in processes of its own that know what they sent when
(`emitter`), next to the engine, which has nothing to do meanwhile. What client and server take from
each other here, client and engine take from each other in a trial.

One such process sends less than a client reads, so there are as many as there are processors to
spare, behind one port: the kernel gives each connection to one of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tokenwatt_site.errors import EnvironmentProblem, Problem
from tokenwatt_site.evidence.records import RequestRecord
from tokenwatt_site.measure.capacity import (
    FIRST_NS,
    AnswerShape,
    Attempt,
    Recorded,
    Truth,
    due_ns,
    highest_held,
    rates_to_try,
)
from tokenwatt_site.measure.client import Client, PlannedRequest, Target, offer
from tokenwatt_site.measure.descriptors import allow
from tokenwatt_site.measure.fleet.senders import LOOPBACK, THIS_PROCESS, Senders
from tokenwatt_site.run import SelfTest
from tokenwatt_site.spec import Spec
from tokenwatt_site.validity import Tolerances
from tokenwatt_site.workload import Realisation

_GRACE_NS = 1_000_000_000
_STOP_S = 5.0
_MOST_SERVERS = 4  # for each process of the client
_BACKLOG = 4096  # of each process: who gets more than its share of a burst must refuse none
_DESCRIPTORS = 16_384  # inherited by the servers; the limit must not be what ends the test
_REMEDY = "Is there memory, and may this user listen on the loopback?"
_ID_BYTES = 6  # of a token id in a prompt, with its comma


def self_test(
    spec: Spec,
    realisation: Realisation,
    most_urps: int,
    sending: Senders = THIS_PROCESS,
) -> SelfTest:
    """Find what this client holds, up to twice what `most_urps` asks, in 1e-6 requests/s.

    Args:
        spec: whose tolerances hold.
        realisation: whose gaps and lengths are offered.
        most_urps: the highest rate that may be asked.
        sending: what sends.

    Raises:
        EnvironmentProblem: the server of the test did not start, or ended.
    """
    shape, tolerances = AnswerShape.of(spec, realisation), Tolerances.of(spec)
    allow(_DESCRIPTORS)
    with emitting(shape, _servers(sending), sending.host) as emitter:
        return highest_held(
            rates_to_try(spec, realisation, shape, most_urps),
            lambda urps: emitter.attempt(
                due_ns(realisation, urps), urps, tolerances, sending.client
            ),
            tolerances,
        )


def _servers(sending: Senders) -> int:
    """Return how many processes serve: one for each processor but the client's, up to a few."""
    here = sending.count if sending.host == LOOPBACK else 1  # of others, the one that leads them
    bound = hasattr(os, "sched_getaffinity")  # macOS has none
    processors = len(os.sched_getaffinity(0)) if bound else os.cpu_count() or 1
    return min(max(1, processors - here), sending.count * _MOST_SERVERS)


@contextmanager
def emitting(shape: AnswerShape, servers: int, host: str = LOOPBACK) -> Iterator[RunningEmitter]:
    """Run the server of the test, in processes that end when this block or this process does.

    Args:
        shape: of its answers.
        servers: how many processes; one where the kernel cannot spread connections among them.
        host: at which address of this machine.

    Raises:
        EnvironmentProblem: one of them did not start. None is left then.
    """
    processes: list[subprocess.Popen[bytes]] = []
    try:
        listeners = _listeners(servers, host)
        port = listeners[0].getsockname()[1]
        try:
            for listener in listeners:
                processes.append(_started(listener, shape))  # noqa: PERF401 - what is must be stopped
        finally:
            for listener in listeners:
                listener.close()  # so that its port ends with its process
        yield RunningEmitter(processes, f"http://{host}:{port}", shape)
    finally:
        _stop(processes)


def _listeners(count: int, host: str) -> list[socket.socket]:
    """Listen `count` times on one port of an address, or once where that does not go."""
    if count > 1 and hasattr(socket, "SO_REUSEPORT"):
        shared: list[socket.socket] = []
        with contextlib.suppress(OSError):
            while len(shared) < count:
                address = shared[0].getsockname() if shared else (host, 0)
                shared.append(socket.create_server(address, backlog=_BACKLOG, reuse_port=True))
            return shared
        for listener in shared:
            listener.close()
    try:
        return [socket.create_server((host, 0), backlog=_BACKLOG)]
    except OSError as error:
        raise _not_started(error) from error


def _started(listener: socket.socket, shape: AnswerShape) -> subprocess.Popen[bytes]:
    module, descriptor = "tokenwatt_site.measure.emitter", listener.fileno()
    arguments = (descriptor, FIRST_NS, shape.interval_ns)
    try:
        # A session of its own: Ctrl-C is for us, who close its standard input then.
        return subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(descriptor,),
            start_new_session=True,
        )
    except OSError as error:
        raise _not_started(error) from error


def _not_started(error: OSError) -> EnvironmentProblem:
    return EnvironmentProblem(
        Problem(
            f"the server of the client's self-test did not start ({error.strerror})",
            remedy=_REMEDY,
        )
    )


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        assert process.stdin is not None  # noqa: S101 - a pipe
        process.stdin.close()
    for process in processes:
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None  # noqa: S101 - a pipe
        process.stdout.close()


class RunningEmitter:
    """The server of the test while it runs: processes that share a port."""

    def __init__(
        self, processes: Sequence[subprocess.Popen[bytes]], url: str, shape: AnswerShape
    ) -> None:
        """Wait until all are ready.

        Raises:
            EnvironmentProblem: one of them ended.
        """
        self._processes = processes
        self._shape = shape
        self._target = Target.from_url(url, "completions")
        self._sent = 0
        for process in processes:
            _line(process)

    def attempt(
        self, due: Sequence[int], urps: int, tolerances: Tolerances, client: Client = offer
    ) -> Attempt:
        """Offer requests that are due then, at `urps` 1e-6 requests/s, and judge what came back."""
        shape, first_row = self._shape, self._sent
        self._sent += len(due)
        plan = [self._planned(first_row + index, due_ns) for index, due_ns in enumerate(due)]
        end_ns = due[-1] + shape.full_ns + _GRACE_NS

        def watch(now_ns: int, *_: Sequence[RequestRecord]) -> bool:
            return now_ns > end_ns

        offered = client(
            plan, self._target, repeat=0, trial=0, request_timeout_ns=end_ns, watch=watch
        )
        recorded = Recorded(offered.records, offered.epoch_ns, offered.stamps)
        truth = Truth.merged(self._truths())
        return Attempt.of(recorded, truth, shape=shape, urps=urps, due=due, tolerances=tolerances)

    def _planned(self, row: int, due_ns: int) -> PlannedRequest:
        shape = self._shape
        prompt = b"1" * (_ID_BYTES * shape.input_tokens)
        body = b'{"row":%d,"tokens":%d,"prompt":"%s"}' % (row, shape.tokens, prompt)
        return PlannedRequest(row, due_ns, body, shape.input_tokens, shape.tokens)

    def _truths(self) -> list[Truth]:
        for process in self._processes:
            assert process.stdin is not None  # noqa: S101 - a pipe, by `emitting`
            with contextlib.suppress(BrokenPipeError):  # reading tells
                os.write(process.stdin.fileno(), b"truth\n")
        return [_truth_of(_line(process)) for process in self._processes]


def _truth_of(line: bytes) -> Truth:
    told = json.loads(line)
    return Truth(
        told["lag_p99_ns"], {row: (first_ns, last_ns) for row, first_ns, last_ns in told["rows"]}
    )


def _line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None  # noqa: S101 - a pipe, by `emitting`
    line = process.stdout.readline()
    if not line.endswith(b"\n"):
        raise EnvironmentProblem(
            Problem(
                "the server of the client's self-test ended",
                found=f"exit code {process.wait()}",
                remedy=_REMEDY,
            )
        )
    return line
