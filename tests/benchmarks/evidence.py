"""The request records of a full run, 45,000 of them: how small, how fast to write and to read.

`decode_over_json_ratio` is the strict decoder against `json.loads` line by line, which checks
nothing; `stored_bytes` is what is committed to git.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from tokenwatt_site.evidence.records import RequestRecord, Status, decode_requests, encode_requests
from tokenwatt_site.evidence.store import store

REQUESTS = 45_000
ROUNDS = 3


def records() -> list[RequestRecord]:
    """Requests of a node at 5 requests/s, in trials of 1,500."""
    draw = random.Random(1)
    made: list[RequestRecord] = []
    for index in range(REQUESTS):
        trial, row = divmod(index, 1500)
        due = made[-1].due_ns + int(draw.expovariate(5.0) * 1e9) if row else 0
        output = min(1536, max(2, int(draw.lognormvariate(5.545, 1.08))))
        first = due + int(draw.lognormvariate(18.5, 0.6))
        last = first + int((output - 1) * draw.gauss(40e6, 2e6))
        asked = min(6144, max(1, int(draw.lognormvariate(6.93, 1.08))))
        made.append(
            RequestRecord(
                repeat=1 + trial // 10,
                trial=trial % 10,
                row=row,
                due_ns=due,
                dialled_ns=None,
                connected_ns=None,
                sent_ns=due + draw.randrange(20_000, 400_000),
                first_ns=first,
                last_ns=last,
                end_ns=last + draw.randrange(10_000, 90_000),
                prompt_asked=asked,
                prompt_tokens=asked,
                cached_tokens=0,
                output_asked=output,
                output_tokens=output,
                first_tokens=1,
                events=output,
                uncertainty_ns=draw.randrange(1_000, 60_000),
                status=Status.OK,
            )
        )
    return made


def seconds(work: Callable[[], object]) -> float:
    """Return the median time of a few calls."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times)


def run() -> dict[str, float]:
    made = records()
    data = encode_requests(made)
    encode_s = seconds(lambda: encode_requests(made))
    decode_s = seconds(lambda: decode_requests(data, source="benchmark"))
    plain_s = seconds(lambda: [json.loads(line) for line in data.splitlines()])
    with tempfile.TemporaryDirectory() as folder:
        entry = store(Path(folder), "requests", data)
        stored = (Path(folder) / Path(entry.path).name).stat().st_size
    return {
        "requests_count": REQUESTS,
        "uncompressed_bytes": len(data),
        "stored_bytes": stored,
        "stored_bytes_per_request": stored / REQUESTS,
        "encode_s": encode_s,
        "decode_s": decode_s,
        "json_loads_s": plain_s,
        "decode_over_json_ratio": decode_s / plain_s,
    }
