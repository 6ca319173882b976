"""Our client as a tool: `python -m tests.benchmarks._peers_ours URL API TRACE TOLD`.

Replays a trace and writes what it found. The client, its requests, its definitions and its limits
are those of a measurement; TTFT counts from when a request was due.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from tests.benchmarks._peers_rig import MODEL
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.goodput import quantile, tpot_ns, ttft_ns
from tokenwatt_site.measure.client import Offered, PlannedRequest, Target, offer
from tokenwatt_site.measure.endpoint import request_body
from tokenwatt_site.validity import MAX_LAG_NS, lag_ns

TIMEOUT_NS = 60_000_000_000


def main(url: str, api: str, trace: Path, told: Path) -> None:
    planned = []
    for row, line in enumerate(trace.read_text().splitlines()):
        asked = json.loads(line)
        words, tokens = asked["prompt"], asked["tokens"]
        body = request_body(api, MODEL, words, tokens, may_be_cached=False)
        due_ns = asked["due_ms"] * 1_000_000
        planned.append(PlannedRequest(row, due_ns, body, len(words.split()), tokens))
    offered = offer(
        planned,
        Target.from_url(url, api),
        repeat=1,
        trial=1,
        request_timeout_ns=TIMEOUT_NS,
        watch=lambda *_: False,
    )
    told.write_text(json.dumps(figures(offered)))


def figures(offered: Offered) -> dict[str, object]:
    good = [record for record in offered.records if record.status is Status.OK]
    ttft = [ns for record in good if (ns := ttft_ns(record)) is not None]
    tpot = [ns for record in good if (ns := tpot_ns(record)) is not None]
    span_s = (max(r.end_ns for r in offered.records) - offered.records[0].due_ns) / 1e9
    lag = quantile([lag_ns(record) for record in offered.records], 0.99)
    stamp = quantile([record.uncertainty_ns for record in good], 0.99) if good else 0
    warning = None
    if max(lag, stamp) > MAX_LAG_NS:
        warning = (
            f"INVALID: p99 dispatch lag {lag / 1e6:.2f} ms, p99 stamp uncertainty"
            f" {stamp / 1e6:.2f} ms, limit {MAX_LAG_NS / 1e6:.2f} ms"
        )
    return {
        "good": len(good),
        "requests_per_s": len(good) / span_s,
        "output_tokens": sum(record.output_tokens or 0 for record in good),
        "ttft_ms": _both(ttft),
        "tpot_ms": _both(tpot),
        "itl_ms": None,
        "warning": warning,
    }


def _both(values: list[int]) -> list[float] | None:
    return [float(at) / 1e6 for at in np.percentile(values, [50, 99])] if values else None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
