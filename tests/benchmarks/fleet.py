"""What several client processes hold that one does not, and what it costs to have several.

Requests, server and tolerances are those of `client.py`. Each process of the client has a processor
of its own, and so has each server, of which there are as many, behind one port. Where there are
fewer than four processors two clients and two servers have not one each: then `events_per_s_2` and
`ratio_2_to_1` say so, and are no numbers.

Figures: `us_per_event_W` is the processor time of W processes together, with 10,000 events/s for
each (a process with less to do finds less at each look), and `cpu_2_to_1` their ratio.
`clock_offset_bound_us` is the largest bound of the two workers in that trial.
`merge_s_per_million_events` is what it takes to make one list of the records of two workers.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

from tests.benchmarks import client
from tests.benchmarks.client import FIRST_NS, INTERVAL_NS, TOKENS, Cost, Told, Trial
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.measure.client import Offered, PlannedRequest, Target
from tokenwatt_site.measure.fleet.coordinator import Fleet
from tokenwatt_site.measure.fleet.local import LocalWorker, started
from tokenwatt_site.measure.fleet.merging import merged, packed, unpacked

Serving: TypeAlias = tuple[list[subprocess.Popen[str]], int]

WORKERS = 2
PROCESSORS = 2 * WORKERS
COST_RATE = 10_000  # of each process
START = 60_000
TRIES = 2
MERGED_REQUESTS = 20_000


@contextmanager
def serving(emitter: Path, processors: Sequence[int]) -> Iterator[Serving]:
    """Run a server on each of these processors, all behind one port."""
    arguments = [str(emitter), str(FIRST_NS // 1_000), str(INTERVAL_NS // 1_000)]
    with ExitStack() as stack:
        servers = []
        for processor in processors:
            server = stack.enter_context(
                subprocess.Popen(
                    arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            os.sched_setaffinity(server.pid, {processor})
            servers.append(server)
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            arguments = [*arguments[:3], port]
        yield servers, int(port)


def run_trial(emitter: Path, rate: int) -> tuple[Trial, int]:
    """Offer a rate by two workers; return what came of it, and the largest bound of an offset."""
    processors = sorted(os.sched_getaffinity(0))
    servers_on = processors[: max(1, len(processors) - WORKERS)][:WORKERS]
    clients_on = processors[len(servers_on) :]
    pids: list[int] = []

    @contextmanager
    def pinned(number: int) -> Iterator[LocalWorker]:
        with started(number) as worker:
            pids.append(worker.process.pid)
            os.sched_setaffinity(worker.process.pid, {clients_on[number % len(clients_on)]})
            yield worker

    planned, scored = client.plan(rate)
    before: list[Cost] = []
    fleet = Fleet(pinned, WORKERS)
    try:
        with serving(emitter, servers_on) as (servers, port):
            offered = fleet.offer(
                planned,
                Target.from_url(f"http://127.0.0.1:{port}", "completions"),
                repeat=1,
                trial=1,
                request_timeout_ns=60_000_000_000,
                watch=lambda *_: False,
                begins=lambda _: before.append(together(pids)),
            )
            after = together(pids)
            lines = [server.communicate()[0].splitlines() for server in servers]
    finally:
        fleet.close()
    lag_p99_us = max(int(told.pop().split()[1]) for told in lines)
    truths = {r: times for told in lines for r, *times in (map(int, n.split()) for n in told)}
    found = client.compare(
        (planned, scored), told_by(offered, before[0], after), truths, lag_p99_us, 0.0
    )
    return found, max(offered.offset_bounds_ns)


def together(pids: Sequence[int]) -> Cost:
    """Return what processes have used so far, as if they were one."""
    costs = [Cost.of(pid) for pid in pids]
    return Cost(
        costs[0].wall_s,
        sum(cost.cpu_s for cost in costs),
        sum(cost.waited_s for cost in costs),
        sum(cost.peak_mb for cost in costs),
    )


def told_by(offered: Offered, before: Cost, after: Cost) -> Told:
    epoch_ns = offered.epoch_ns
    return Told(
        epoch_ns,
        {
            r.row: (epoch_ns + r.first_ns, epoch_ns + r.last_ns)
            for r in offered.records
            if r.status is Status.OK and r.first_ns is not None and r.last_ns is not None
        },
        {r.row: epoch_ns + r.sent_ns for r in offered.records if r.sent_ns is not None},
        before,
        after,
    )


def merge_s_per_million_events() -> float:
    """Return what unpacking and merging takes, for each million events of the usual answers."""
    plan = [PlannedRequest(row, row, b"", 3, TOKENS) for row in range(MERGED_REQUESTS)]
    parts = [packed(answered(planned) for planned in plan[n::WORKERS]) for n in range(WORKERS)]
    begun_s = time.perf_counter()
    known: Mapping[int, RequestRecord] = {r.row: r for part in parts for r in unpacked(part)}
    merged(plan, known, repeat=1, trial=1, end_ns=0)
    return (time.perf_counter() - begun_s) * 1e6 / (MERGED_REQUESTS * TOKENS)


def answered(planned: PlannedRequest) -> RequestRecord:
    due_ns = planned.due_ns
    return RequestRecord(
        *(1, 1, planned.row, due_ns, None, None, due_ns, due_ns, due_ns, due_ns),
        *(3, 3, 0, TOKENS, TOKENS, 1, TOKENS, 0, Status.OK),
    )


def run() -> dict[str, float | str]:
    emitter = client.build_emitter()
    one = client.run_trial(emitter, "ours", COST_RATE)
    two, bound_ns = run_trial(emitter, WORKERS * COST_RATE)
    alone, _ = client.highest_held(
        lambda rate: any(client.run_trial(emitter, "ours", rate).held for _ in range(TRIES)), START
    )
    figures: dict[str, float | str] = {"events_per_s_1": alone}
    if (processors := len(os.sched_getaffinity(0))) < PROCESSORS:
        why = f"not shown: {processors} processors, {PROCESSORS} are needed"
        figures |= {"events_per_s_2": why, "ratio_2_to_1": why}
    else:
        several, _ = client.highest_held(
            lambda rate: any(run_trial(emitter, rate)[0].held for _ in range(TRIES)), START
        )
        figures |= {"events_per_s_2": several, "ratio_2_to_1": several / alone}
    return figures | {
        "us_per_event_1": one.us_per_event,
        "us_per_event_2": two.us_per_event,
        "cpu_2_to_1": two.us_per_event / one.us_per_event,
        "clock_offset_bound_us": bound_ns / 1e3,
        "merge_s_per_million_events": merge_s_per_million_events(),
    }
