"""The client before the load: what it can hold on this machine, and with what error.

It is run as trials run it, against a server in a process of its own that knows what it sent when
(`emitter`), next to the engine, which has nothing to do meanwhile. What the two processes take from
each other here, client and engine take from each other in a trial.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tokenwatt_site.errors import EnvironmentProblem, Problem
from tokenwatt_site.evidence import RequestRecord
from tokenwatt_site.measure.capacity import (
    FIRST_NS,
    Attempt,
    Shape,
    Told,
    Truth,
    climb,
    compare,
    due_ns,
    rungs,
)
from tokenwatt_site.measure.client import PlannedRequest, Target, offer
from tokenwatt_site.run import SelfTest
from tokenwatt_site.spec import Spec
from tokenwatt_site.validity import Tolerances
from tokenwatt_site.workload import Realisation

_GRACE_NS = 1_000_000_000
_STOP_S = 5.0
_DESCRIPTORS = 16_384
_ID_BYTES = 6  # of a token id in a prompt, with its comma


def self_test(spec: Spec, realisation: Realisation) -> SelfTest:
    """Find what this client holds, up to twice what `spec` may ask of it.

    Raises:
        EnvironmentProblem: the server of the test did not start, or ended.
    """
    shape, tolerances = Shape.of(spec, realisation), Tolerances.of(spec)
    _allow_descriptors()
    with emitting(shape) as emitter:
        return climb(
            rungs(spec, realisation, shape),
            lambda urps: emitter.attempt(due_ns(realisation, urps), urps, tolerances),
            tolerances,
        )


def _allow_descriptors() -> None:
    """Raise the soft limit, which the server inherits, so that it is not what ends the test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@contextmanager
def emitting(shape: Shape) -> Iterator[RunningEmitter]:
    """Run the server of the test, in a process that ends when this block or this process does.

    Raises:
        EnvironmentProblem: it did not start.
    """
    with _started(shape) as process:
        try:
            yield RunningEmitter(process, shape)
        finally:
            assert process.stdin is not None  # noqa: S101 - a pipe
            process.stdin.close()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _started(shape: Shape) -> subprocess.Popen[bytes]:
    module = "tokenwatt_site.measure.emitter"
    try:
        # A session of its own: Ctrl-C is for us, who close its standard input then.
        return subprocess.Popen(
            [sys.executable, "-m", module, str(FIRST_NS), str(shape.interval_ns)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise EnvironmentProblem(
            Problem(f"the server of the client's self-test did not start ({error.strerror})")
        ) from error


class RunningEmitter:
    """The server of the test while it runs."""

    def __init__(self, process: subprocess.Popen[bytes], shape: Shape) -> None:
        self._process = process
        self._shape = shape
        self._target = Target.from_url(f"http://127.0.0.1:{int(self._line())}", "completions")
        self._sent = 0

    def attempt(self, due: Sequence[int], urps: int, tolerances: Tolerances) -> Attempt:
        """Offer requests that are due then, at `urps` 1e-6 requests/s, and judge what came back."""
        shape, first_row = self._shape, self._sent
        self._sent += len(due)
        plan = [self._planned(first_row + index, due_ns) for index, due_ns in enumerate(due)]
        end_ns = due[-1] + shape.full_ns + _GRACE_NS

        def watch(now_ns: int, *_: Sequence[RequestRecord]) -> bool:
            return now_ns > end_ns

        offered = offer(
            plan, self._target, repeat=0, trial=0, request_timeout_ns=end_ns, watch=watch
        )
        told = Told(offered.records, offered.epoch_ns, offered.stamps)
        return compare(told, self._truth(), shape=shape, urps=urps, due=due, tolerances=tolerances)

    def _planned(self, row: int, due_ns: int) -> PlannedRequest:
        shape = self._shape
        prompt = b"1" * (_ID_BYTES * shape.input_tokens)
        body = b'{"row":%d,"tokens":%d,"prompt":"%s"}' % (row, shape.tokens, prompt)
        return PlannedRequest(row, due_ns, body, shape.input_tokens, shape.tokens)

    def _truth(self) -> Truth:
        assert self._process.stdin is not None  # noqa: S101 - a pipe, by `emitting`
        with contextlib.suppress(BrokenPipeError):  # reading tells
            os.write(self._process.stdin.fileno(), b"truth\n")
        told = json.loads(self._line())
        rows = {row: (first_ns, last_ns) for row, first_ns, last_ns in told["rows"]}
        return Truth(told["lag_p99_ns"], rows)

    def _line(self) -> bytes:
        assert self._process.stdout is not None  # noqa: S101 - a pipe, by `emitting`
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EnvironmentProblem(
                Problem(
                    "the server of the client's self-test ended",
                    found=f"exit code {self._process.wait()}",
                    remedy="Is there memory, and may this user listen on the loopback?",
                )
            )
        return line
