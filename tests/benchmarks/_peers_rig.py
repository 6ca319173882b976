"""What tools are measured with: one trace for all, what the simulated engine knows, what they cost.

Nothing here knows any tool.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
MODEL = "simulated"
TTFT_MS = 200.0
INTERVAL_MS = 40.0
SAMPLE_S = 0.25
KILL_S = 0.01
MEMORY_SAMPLES = 4
"""Memory is read with each so many-th sample: the kernel walks all pages for it."""

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Row:
    """One request of a trace. Whole ms, as not every tool takes finer times."""

    due_ms: int
    prompt_tokens: int
    output_tokens: int


def trace(requests_per_s: float, seconds: float, output_tokens: tuple[int, int]) -> list[Row]:
    """Return requests that come at random (Poisson), with lengths drawn from ranges; at least 2.

    The first is due at 0, as tools count a trace's times from its first.
    """
    draw = random.Random(1)
    rows: list[Row] = []
    due_s = 0.0
    while due_s < seconds or len(rows) < 2:
        rows.append(Row(round(due_s * 1000), draw.randint(16, 64), draw.randint(*output_tokens)))
        due_s += draw.expovariate(requests_per_s)
    return rows


@dataclass(frozen=True, slots=True)
class Truth:
    """What the engine did with one request; times on CLOCK_MONOTONIC.

    `whole`: all its tokens were sent, and the end after them. `sent` has each event with
    tokens, when it was handed to the kernel and how many they were.
    """

    received_ns: int
    ended_ns: int
    whole: bool
    prompt_tokens: int
    output_tokens: int
    sent: tuple[tuple[int, int], ...]

    @property
    def ttft_ms(self) -> float:
        return (self.sent[0][0] - self.received_ns) / 1e6

    @property
    def tpot_ms(self) -> float | None:
        """Return the time per token after those of the first event; None where there is none."""
        after = sum(tokens for _, tokens in self.sent[1:])
        return (self.sent[-1][0] - self.sent[0][0]) / 1e6 / after if after else None

    @property
    def gaps_ms(self) -> list[float]:
        return [(later - at) / 1e6 for (at, _), (later, _) in pairwise(self.sent)]

    @property
    def late_ms(self) -> list[float]:
        """How long after its own schedule the engine handed over each event."""
        late, tokens = [], 0
        for at, count in self.sent:
            due_ns = self.received_ns + (TTFT_MS + INTERVAL_MS * tokens) * 1e6
            late.append((at - due_ns) / 1e6)
            tokens += count
        return late


def truths(log: Path) -> list[Truth]:
    """Read the requests for tokens of a log, in order of receipt."""
    found = []
    for line in log.read_text("utf-8").splitlines():
        told = json.loads(line)
        if told["prompt_tokens"] is not None and told["ended"] is not None:
            sent = tuple((at, tokens) for at, _, tokens in told["sent"])
            all_sent = sum(tokens for _, tokens in sent) == told["output_tokens"]
            found.append(
                Truth(
                    received_ns=told["received"][0],
                    ended_ns=told["ended_at"][0],
                    whole=told["ended"] == "complete" and all_sent,
                    prompt_tokens=told["prompt_tokens"],
                    output_tokens=told["output_tokens"],
                    sent=sent,
                )
            )
    return sorted(found, key=lambda truth: truth.received_ns)


def quantiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile, between neighbours, as tools have them."""
    if not values:
        return math.nan, math.nan
    p50, p99 = np.percentile(values, [50, 99])
    return float(p50), float(p99)


def lateness_ms(rows: Sequence[Row], seen: Sequence[Truth]) -> list[float]:
    """Return how much later than the earliest each request came, against the trace.

    A tool's zero of time is its own. Where some never came, those that did are taken as the first.
    """
    late = [truth.received_ns / 1e6 - row.due_ms for row, truth in zip(rows, seen, strict=False)]
    return [value - min(late) for value in late]


def lengths_share(rows: Sequence[Row], seen: Sequence[Truth]) -> float:
    """Return the share of what was asked that came, with prompt and answer as long as asked."""
    asked = Counter((row.prompt_tokens, row.output_tokens) for row in rows)
    came = Counter((truth.prompt_tokens, truth.output_tokens) for truth in seen)
    return (asked & came).total() / len(rows)


def rate_share(rows: Sequence[Row], seen: Sequence[Truth]) -> float:
    """Return the rate at which requests came, as a share of the trace's."""
    if len(seen) < 2:
        return 0.0
    came_s = (seen[-1].received_ns - seen[0].received_ns) / 1e9
    asked_s = (rows[-1].due_ms - rows[0].due_ms) / 1e3
    return (len(seen) - 1) / came_s / ((len(rows) - 1) / asked_s)


# Processes.


def busy_s() -> float:
    """Return how long processors were at work since the machine began, stolen time included."""
    times = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _, _, interrupts, soft, stolen = map(int, times)
    return (user + nice + system + interrupts + soft + stolen) / _TICKS


def cpu_s(process: int) -> float:
    """Return the processor time that a process has used."""
    return _cpu_s(_stat(process))


def _stat(process: int) -> list[str]:
    """Return the fields after the name, as proc(5) has them from `state` on."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def _cpu_s(stat: list[str]) -> float:
    return sum(map(int, stat[11:15])) / _TICKS


@dataclass(frozen=True, slots=True)
class Sample:
    """What the processes of a session had used by one moment of CLOCK_MONOTONIC."""

    at_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a program.

    Attributes:
        code: its exit status; None when it was ended for taking too long.
        output: what it printed, errors included.
        samples: the processor time of it and of all that it started, in order of time.
        peak_mb: the most memory that they had together; shared pages are counted once.
        processes: the most there were at once.
    """

    code: int | None
    output: str
    samples: tuple[Sample, ...]
    peak_mb: float
    processes: int

    def cpu_since(self, at_s: float) -> float:
        """Return the processor time from a moment to the end."""
        times, used = zip(*((s.at_s, s.cpu_s) for s in self.samples), strict=True)
        return float(used[-1] - np.interp(at_s, times, used))


def run_program(
    command: Sequence[str], folder: Path, *, environment: dict[str, str], limit_s: float
) -> Ran:
    """Run a program in a session of its own, on the second processor, and watch all its processes.

    It is ended, with what it started, after `limit_s`.
    """
    samples, peak_mb, most, code = [Sample(time.monotonic(), 0.0)], 0.0, 0, None
    with (folder / "output.txt").open("w+b") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        os.sched_setaffinity(process.pid, {processors()[1]})
        deadline_s = time.monotonic() + limit_s
        number = 0
        try:
            while code is None:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                now_s = time.monotonic()
                if pid:
                    code = process.returncode = os.waitstatus_to_exitcode(status)
                    samples.append(Sample(now_s, usage.ru_utime + usage.ru_stime))
                    break
                members = _session(process.pid)
                samples.append(Sample(now_s, sum(members.values())))
                most = max(most, len(members))
                if number % MEMORY_SAMPLES == 0:
                    peak_mb = max(peak_mb, sum(map(_memory_mb, members)))
                number += 1
                if now_s > deadline_s:
                    break
                time.sleep(SAMPLE_S)
        finally:
            _end_all(process)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    # What a child that is not waited for used is in the samples alone.
    highest = max(sample.cpu_s for sample in samples)
    samples[-1] = Sample(samples[-1].at_s, highest)
    return Ran(code, text, tuple(samples), peak_mb, most)


def processors() -> tuple[int, int]:
    """Return the processor of the engine, and that of the tool."""
    first, second, *_ = sorted(os.sched_getaffinity(0))
    return first, second


def _session(number: int) -> dict[int, float]:
    """Return the processes of a session, each with its processor time in s.

    What a child used that has ended is its parent's, once it was waited for.
    """
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            stat = _stat(process := int(path.parent.name))
            if int(stat[3]) == number:
                found[process] = _cpu_s(stat)
    return found


def _memory_mb(process: int) -> float:
    with suppress(OSError):
        rolled = Path(f"/proc/{process}/smaps_rollup").read_text()
        return int(rolled.partition("\nPss:")[2].split()[0]) / 1024
    return 0.0


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a program: its own session, and no other."""
    while living := [member for member in _session(process.pid) if _lives(member)]:
        for member in living:
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        time.sleep(KILL_S)
    if process.returncode is None:
        process.wait()


def _lives(process: int) -> bool:
    with suppress(OSError):
        return _stat(process)[0] not in ("Z", "X")
    return False


@contextmanager
def engine(script: str, log: Path) -> Iterator[tuple[str, int]]:
    """Run the simulated engine on the first processor; gives its URL and process, then its log."""
    command = [sys.executable, "-m", "tests.benchmarks._peers_server", script, str(log)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        os.sched_setaffinity(process.pid, {processors()[0]})
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid
        process.communicate()
