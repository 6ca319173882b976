"""How good the load client is, against aiohttp and httpx2, by a server that knows the truth.

Each trial is one client process on one processor and the server (emitter.c) on another. Requests
come at random (Poisson) and have 128 tokens, the first after 200 ms and then one each 40 ms, so
that a rate in events/s is 1/128 of it in requests/s. Scored are the requests that come once the
load is full; it stays full until the last of them has ended. Errors are what a client tells minus
what the server did, both on CLOCK_MONOTONIC.

A rate is held when of the scored requests at least 99.5% reached the server within 5 ms of their
time and the 99th percentile of the first token's error is at most 5 ms, in one of two tries (of
four where somebody else took more than a thousandth of the time of either processor: on a machine
that does anything else these figures say little). Each client's rates go up from where it starts
until one is not held, or down until one is.

The peers are used as benchmarks use them, in the fastest way they have: one task a request, pools
without limit, a stamp when bytes come out of the library, the JSON read at once. Ours parses later;
its figures of processor time and memory contain that.

Figures: `X_events_per_s` is the highest rate held, "< R" when not even R, the lowest tried, was;
the ratio to it is then "> Q". Plain names are of ours, at 80,000 events/s; user stamps, which are
ours without the kernel's help, at 40,000. `client@rate ...` is one trial. `most_events_rss_mb` is
the memory of ours after one long trial of `most_events`, with the evidence made from it.
"""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
import os
import random
import subprocess
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenwatt_site.evidence.records import Status, encode_requests
from tokenwatt_site.measure import connection
from tokenwatt_site.measure.client import PlannedRequest, Target, offer

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 128
FIRST_NS = 200_000_000
INTERVAL_NS = 40_000_000
FULL_NS = FIRST_NS + TOKENS * INTERVAL_NS
SCORED_NS = 3_000_000_000
SCORED_REQUESTS = 40
LEAD_NS = 100_000_000

TOLERANCE_NS = 5_000_000
ON_TIME_SHARE = 0.995
QUIET_TRIES = 2
MOST_TRIES = 4
DISTURBED_SHARE = 0.001  # some 15 ms of a trial
RATES = (
    *(250, 500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 10_000, 15_000, 20_000, 30_000),
    *(40_000, 50_000, 60_000, 80_000, 100_000, 120_000, 140_000),
)
STARTS = {"ours": 80_000, "aiohttp": 10_000, "httpx": 1_000}
USER_STAMPS_RATE = 40_000
MOST_EVENTS = 10_000_000
MOST_EVENTS_RATE = 80_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process has used so far.

    Attributes:
        wall_s: CLOCK_MONOTONIC.
        cpu_s: processor time.
        waited_s: how long it could have run, and somebody else had its processor.
        peak_mb: the most memory it had; `getrusage` would tell its parent's too.
    """

    wall_s: float
    cpu_s: float
    waited_s: float
    peak_mb: float

    @classmethod
    def of(cls, process: int | str = "self") -> Cost:
        ran_ns, waited_ns, _ = Path(f"/proc/{process}/schedstat").read_text().split()
        status = Path(f"/proc/{process}/status").read_text()
        peak_kb = int(status.partition("VmHWM:")[2].split()[0])
        return cls(time.monotonic(), int(ran_ns) / 1e9, int(waited_ns) / 1e9, peak_kb / 1024)

    def waited_share(self, before: Cost) -> float:
        return (self.waited_s - before.waited_s) / (self.wall_s - before.wall_s)


@dataclass(frozen=True, slots=True)
class Told:
    """What a client says of a trial. Times on CLOCK_MONOTONIC.

    Attributes:
        start_ns: time 0 of the plan.
        tokens_ns: of each request that ended well, its row, first token and last token.
        sent_ns: of each request that was sent, its row and when the client says it was.
        before: what the process had used before the first request.
        after: what it had used after the last.
    """

    start_ns: int
    tokens_ns: dict[int, tuple[int, int]]
    sent_ns: dict[int, int]
    before: Cost
    after: Cost


@dataclass(frozen=True, slots=True)
class Trial:
    """What a client told of the scored requests of one trial, against the truth.

    `waited_share` is the larger share of the time in which the client, or the server, waited for
    a processor that somebody else had.
    """

    held: bool
    on_time_share: float
    first_error_p99_us: float
    last_error_p99_us: float
    dispatch_lag_p99_us: float
    server_lag_p99_us: float
    us_per_event: float
    rss_mb: float
    waited_share: float


def plan(rate: int, events: int = 0) -> tuple[list[PlannedRequest], range]:
    """Return the requests of a trial, and the rows of those that are scored.

    It has about as many events, or the usual number where that is more.
    """
    gap_ns = 1e9 * TOKENS / rate
    # Those that come while it is scored have all their tokens, those that come after half of them.
    long_ns = 1e9 * events / rate - FULL_NS / 2
    scored_end_ns = max(FULL_NS + max(SCORED_NS, SCORED_REQUESTS * gap_ns), long_ns)
    draw = random.Random(rate)
    due_ns = 0.0
    planned: list[PlannedRequest] = []
    scored: list[int] = []
    while (due_ns := due_ns + draw.expovariate(1 / gap_ns)) < scored_end_ns + FULL_NS - FIRST_NS:
        row = len(planned)
        left = math.floor((scored_end_ns + FULL_NS - FIRST_NS - due_ns) / INTERVAL_NS)
        tokens = max(1, min(TOKENS, left))  # later ones keep the load on, and end with it
        if FULL_NS <= due_ns < scored_end_ns:
            scored.append(row)
        body = {
            "model": "simulated",
            "prompt": [1, 2, 3],
            "max_tokens": tokens,
            "seed": row,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        text = json.dumps(body, separators=(",", ":")).encode()
        planned.append(PlannedRequest(row, round(due_ns), text, 3, tokens))
    return planned, range(scored[0], scored[-1] + 1)


# The clients. Each runs in a process of its own.


def ours(planned: Sequence[PlannedRequest], port: int) -> Told:
    before = Cost.of()
    offered = offer(
        planned,
        Target.from_url(f"http://127.0.0.1:{port}", "completions"),
        repeat=1,
        trial=1,
        request_timeout_ns=60_000_000_000,
        watch=lambda *_: False,
    )
    encode_requests(offered.records)
    after = Cost.of()
    tokens_ns: dict[int, tuple[int, int]] = {}
    sent_ns: dict[int, int] = {}
    for record in offered.records:
        if record.sent_ns is not None:
            sent_ns[record.row] = offered.epoch_ns + record.sent_ns
        if record.status is Status.OK and record.first_ns is not None:
            assert record.last_ns is not None
            tokens_ns[record.row] = (
                offered.epoch_ns + record.first_ns,
                offered.epoch_ns + record.last_ns,
            )
    return Told(offered.epoch_ns, tokens_ns, sent_ns, before, after)


def ours_without_kernel_stamps(planned: Sequence[PlannedRequest], port: int) -> Told:
    connection._KERNEL_STAMPS = False
    return ours(planned, port)


Ask = Callable[[bytes, Callable[[bytes], None]], Coroutine[Any, Any, None]]


async def ask_all(planned: Sequence[PlannedRequest], ask: Ask) -> Told:
    """Ask at the times planned; `ask` hands over what it reads, as it comes."""
    tokens_ns: dict[int, tuple[int, int]] = {}
    sent_ns: dict[int, int] = {}

    async def one(request: PlannedRequest) -> None:
        times: list[int] = []
        usage: dict[str, int] = {}
        rest = b""

        def take(read: bytes) -> None:
            nonlocal rest
            arrived_ns = time.monotonic_ns()
            *messages, rest = (rest + read).split(b"\n\n")
            for message in messages:
                data = message.removeprefix(b"data: ")
                if data != b"[DONE]":
                    event = json.loads(data)
                    if event["choices"] and event["choices"][0]["text"]:
                        times.append(arrived_ns)
                    usage.update(event.get("usage") or {})

        sent_ns[request.row] = time.monotonic_ns()
        await ask(request.body, take)
        if usage.get("completion_tokens") == request.output_asked:
            tokens_ns[request.row] = (times[0], times[-1])

    before = Cost.of()
    start_ns = time.monotonic_ns() + LEAD_NS
    tasks = []
    for request in planned:
        wait_ns = start_ns + request.due_ns - time.monotonic_ns()
        await asyncio.sleep(max(0, wait_ns) / 1e9)
        tasks.append(asyncio.create_task(one(request)))
    await asyncio.gather(*tasks, return_exceptions=True)
    return Told(start_ns, tokens_ns, sent_ns, before, Cost.of())


def with_aiohttp(planned: Sequence[PlannedRequest], port: int) -> Told:
    import aiohttp

    url = f"http://127.0.0.1:{port}/v1/completions"
    headers = {"Content-Type": "application/json"}

    async def run() -> Told:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
        ) as session:

            async def ask(body: bytes, take: Callable[[bytes], None]) -> None:
                async with session.post(url, data=body, headers=headers) as response:
                    async for read in response.content.iter_any():
                        take(read)

            return await ask_all(planned, ask)

    return asyncio.run(run())


def with_httpx(planned: Sequence[PlannedRequest], port: int) -> Told:
    import httpx2

    url = f"http://127.0.0.1:{port}/v1/completions"
    headers = {"Content-Type": "application/json"}

    async def run() -> Told:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx2.AsyncClient(limits=limits, timeout=None) as client:

            async def ask(body: bytes, take: Callable[[bytes], None]) -> None:
                async with client.stream("POST", url, content=body, headers=headers) as response:
                    async for read in response.aiter_bytes():
                        take(read)

            return await ask_all(planned, ask)

    return asyncio.run(run())


CLIENTS = {
    "ours": ours,
    "ours_without_kernel_stamps": ours_without_kernel_stamps,
    "aiohttp": with_aiohttp,
    "httpx": with_httpx,
}


def told_by(client: str, rate: int, events: int, port: int, processor: int) -> Told:
    os.sched_setaffinity(0, {processor})
    return CLIENTS[client](plan(rate, events)[0], port)


# Trials.


def build_emitter() -> Path:
    source = Path(__file__).with_name("emitter.c")
    program = ROOT / "build" / "bench" / "emitter"
    program.parent.mkdir(parents=True, exist_ok=True)
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O2", "-o", str(program), str(source)], check=True)
    return program


def run_trial(emitter: Path, client: str, rate: int, events: int = 0) -> Trial:
    server_processor, client_processor, *_ = sorted(os.sched_getaffinity(0))
    delays_us = [str(FIRST_NS // 1_000), str(INTERVAL_NS // 1_000)]
    with subprocess.Popen(
        [str(emitter), *delays_us],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        os.sched_setaffinity(server.pid, {server_processor})
        assert server.stdout is not None
        port = int(server.stdout.readline())
        server_before = Cost.of(server.pid)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            told = pool.submit(told_by, client, rate, events, port, client_processor).result()
        waited_share = max(
            Cost.of(server.pid).waited_share(server_before), told.after.waited_share(told.before)
        )
        truth = server.communicate()[0].splitlines()
    server_lag_p99_us = int(truth.pop().split()[1])
    truths = {row: times for row, *times in (map(int, line.split()) for line in truth)}
    return compare(plan(rate, events), told, truths, server_lag_p99_us, waited_share)


def compare(
    planned_and_scored: tuple[list[PlannedRequest], range],
    told: Told,
    truths: dict[int, list[int]],
    server_lag_p99_us: float,
    waited_share: float,
) -> Trial:
    """Compare what a client told with the truth: row to [received, first, last] in ns."""
    planned, scored = planned_and_scored
    first: list[float] = []
    last: list[float] = []
    lag: list[float] = []
    on_time = 0
    for row in scored:
        due_ns = told.start_ns + planned[row].due_ns
        lag.append(told.sent_ns[row] - due_ns if row in told.sent_ns else math.inf)
        if row in truths and row in told.tokens_ns:
            received_ns, first_ns, last_ns = truths[row]
            on_time += received_ns - due_ns <= TOLERANCE_NS
            first.append(abs(told.tokens_ns[row][0] - first_ns))
            last.append(abs(told.tokens_ns[row][1] - last_ns))
        else:
            first.append(math.inf)
            last.append(math.inf)
    share = on_time / len(scored)
    on_rate = server_lag_p99_us * 1e3 <= TOLERANCE_NS  # else the rate was not offered
    return Trial(
        held=share >= ON_TIME_SHARE and p99(first) <= TOLERANCE_NS and on_rate,
        on_time_share=share,
        first_error_p99_us=p99(first) / 1e3,
        last_error_p99_us=p99(last) / 1e3,
        dispatch_lag_p99_us=p99(lag) / 1e3,
        server_lag_p99_us=server_lag_p99_us,
        us_per_event=1e6
        * (told.after.cpu_s - told.before.cpu_s)
        / sum(request.output_asked for request in planned),
        rss_mb=told.after.peak_mb,
        waited_share=waited_share,
    )


def p99(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def highest_held(held: Callable[[int], bool], start: int) -> tuple[int, int]:
    """Return the highest rate held, 0 when none is, and the lowest rate tried."""
    index = RATES.index(start)
    if held(start):
        while index + 1 < len(RATES) and held(RATES[index + 1]):
            index += 1
        return RATES[index], start
    while index > 0:
        index -= 1
        if held(RATES[index]):
            return RATES[index], RATES[index]
    return 0, RATES[0]


def held_figure(held: int, lowest: int) -> float | str:
    return held or f"< {lowest:,}"


def ratio_figure(ours: int, held: int, lowest: int) -> float | str:
    return ours / held if held else f"> {ours / lowest:,.1f}"


def run() -> dict[str, float | str]:
    emitter = build_emitter()
    trials: dict[tuple[str, int], Trial] = {}

    def held(client: str, rate: int) -> bool:
        quiet = 0
        for _ in range(MOST_TRIES):
            trial = trials[client, rate] = run_trial(emitter, client, rate)
            quiet += trial.waited_share <= DISTURBED_SHARE
            if trial.held or quiet == QUIET_TRIES:
                break
        return trial.held

    best, lowest = {}, {}
    for client, start in STARTS.items():
        best[client], lowest[client] = highest_held(
            lambda rate, client=client: held(client, rate),  # type: ignore[misc]
            start,
        )
    held("ours_without_kernel_stamps", USER_STAMPS_RATE)
    longest = run_trial(emitter, "ours", MOST_EVENTS_RATE, MOST_EVENTS)
    at_80k = trials["ours", STARTS["ours"]]
    figures: dict[str, float | str] = {
        "events_per_s": held_figure(best["ours"], lowest["ours"]),
        "aiohttp_events_per_s": held_figure(best["aiohttp"], lowest["aiohttp"]),
        "httpx_events_per_s": held_figure(best["httpx"], lowest["httpx"]),
        "ratio_to_aiohttp": ratio_figure(best["ours"], best["aiohttp"], lowest["aiohttp"]),
        "ratio_to_httpx": ratio_figure(best["ours"], best["httpx"], lowest["httpx"]),
        "kernel_stamp_error_p99_us": at_80k.first_error_p99_us,
        "user_stamp_error_p99_us": trials[
            "ours_without_kernel_stamps", USER_STAMPS_RATE
        ].first_error_p99_us,
        "dispatch_lag_p99_us": at_80k.dispatch_lag_p99_us,
        "us_per_event": at_80k.us_per_event,
        "rss_mb": at_80k.rss_mb,
        "most_events": MOST_EVENTS,
        "most_events_rss_mb": longest.rss_mb,
    }
    for (client, rate), trial in trials.items():
        for name, value in asdict(trial).items():
            if math.isfinite(value):  # what had no end is left out
                figures[f"{client}@{rate} {name}"] = float(value)
    return figures
