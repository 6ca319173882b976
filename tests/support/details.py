"""Makes results as they are published, without runs: what a comparison reads."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from tokenwatt_site.metrics import METRICS

SETUP: dict[str, Any] = {
    "setup_schema": 1,
    "accelerator.model": "Test board",
    "accelerator.count": 4,
    "engine.name": "toy",
    "engine.version": "1.0",
    "engine.argv": ["toy", "--slots", "4"],
    "kernel_libraries": "not recorded",
    "accuracy_gate.task": "sums",
    "accuracy_gate.shots": 0,
    "accuracy_gate.questions": 4,
    "accuracy_gate.max_drop_points": 1.0,
}

GOODPUT = (2410.0, 2431.0, 2397.0, 2440.0, 2422.0)
"""V2 of DESIGN 6."""


def a_metric(key: str, repeats: Sequence[float] = (), **changes: Any) -> dict[str, Any]:
    """A number over repeats; without any, one that was not measured."""
    metric = METRICS[key]
    value = sum(repeats) / len(repeats) if repeats else None
    told = {
        "key": key,
        "label": metric.label,
        "unit": metric.unit,
        "better": metric.better,
        "decimals": metric.decimals,
        "value": value,
        "low": None,
        "high": None,
        "new_launch_low": None,
        "new_launch_high": None,
        "repeats": list(repeats),
        "n": len(repeats),
        "reason": None if repeats else "not measured: no such instrument",
        "marks": [],
        "definition": metric.definition,
    }
    return told | changes


def a_detail(
    id_: str = "a",
    numbers: Mapping[str, Sequence[float]] | None = None,
    setup: Mapping[str, Any] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """A result of a full run of five launches; `numbers` are repeats by key, `setup` changes."""
    numbers = {"goodput": GOODPUT} if numbers is None else numbers
    launches = max((len(repeats) for repeats in numbers.values()), default=0)
    told: dict[str, Any] = {
        "schema": "tokenwatt/result/1",
        "id": id_,
        "title": f"Title of {id_}",
        "quoted": False,
        "under": "4× Test board, toy 1.0",
        "run": "0" * 64,
        "runs": ["0" * 64],
        "simulated": False,
        "status": "may rank",
        "signer": "somebody",
        "keyid": "ed25519:" + "0" * 32,
        "key_state": "known",
        "mode": "full",
        "measured": "2026-11-23",
        "started": "2026-11-23T10:00:00.000000Z",
        "ended": "2026-11-23T12:00:00.000000Z",
        "tool_version": "1",
        "setup": SETUP | dict(setup or {}),
        "not_recorded": ["kernel_libraries"],
        "slo": [
            {"metric": "ttft", "label": "TTFT p99", "quantile": 0.99, "limit_ms": 2000.0},
            {"metric": "tpot", "label": "TPOT p99", "quantile": 0.99, "limit_ms": 50.0},
        ],
        "slo_text": "TTFT p99 ≤ 2 s and TPOT p99 ≤ 50 ms",
        "slo_met": True,
        "workload": {"name": "chat-mix-v1", "version": 1, "hash": "1" * 64},
        "power_scope": "gpu",
        "power_words": "GPU boards only",
        "cpu": False,
        "cards": 4,
        "launches": launches,
        "rows": [None, None, None],
        "realisations": [[r, 5_000_000, 900] for r in range(1, launches + 1)],
        "metrics": [a_metric(key, repeats) for key, repeats in numbers.items()],
        "trials": [],
        "gate": {"outcome": "none", "text": "no accuracy gate was asked for"},
        "answers": None,
        "exclusions": [],
        "retracted": False,
        "disputed": False,
        "not_covered": [],
    }
    return told | changes


def answered(*right: bool) -> dict[str, Any]:
    """Which questions were right, as a result tells it."""
    bits = "".join("1" if each else "0" for each in right).ljust((len(right) + 7) // 8 * 8, "0")
    packed = int(bits, 2).to_bytes(len(bits) // 8, "big")
    return {"questions": len(right), "correct": base64.b64encode(packed).decode()}


def offered(rate_urps: int, *ms: float, label: str = "TTFT p99") -> list[dict[str, Any]]:
    """A trial of each repeat at one rate, with the latency that it came to."""
    return [
        {"repeat": repeat, "rate_urps": rate_urps, "passed": True, "ms": {label: value}}
        for repeat, value in enumerate(ms, start=1)
    ]
