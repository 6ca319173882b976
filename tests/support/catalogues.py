"""Made-up catalogues, as `pages.catalogue` makes them: for pages that read one."""

from __future__ import annotations

from typing import Any

TTFT = {"metric": "ttft", "quantile": 0.99, "limit_ms": 2000.0}
TPOT = {"metric": "tpot", "quantile": 0.99, "limit_ms": 50.0}

CELLS = (
    "long_run_goodput",
    "goodput",
    "long_run_rate",
    "boundary_rate",
    "input_throughput",
    "board_power",
    "idle_power",
)


def a_section(
    *objectives: dict[str, Any],
    workload: str = "chat-mix-v1",
    scope: str = "gpu",
    cpu: bool = False,
) -> dict[str, Any]:
    slo = list(objectives or (TTFT, TPOT))
    return {
        "id": f"section-{workload}-{scope}",
        "workload": workload,
        "workload_hash": f"sha256:{workload.encode().hex():0<64.64}",
        "objectives": slo,
        "slo": [
            f"{o['metric'].upper()} p{o['quantile'] * 100:g} at most {o['limit_ms']:g} ms"
            for o in slo
        ],
        "power_scope": scope,
        "cpu": cpu,
    }


def a_row(title: str, section: int = 0, cards: int | None = 4, **cells: Any) -> dict[str, Any]:
    """Return a row that may rank. `cells` are values, (value, low, high), or `excluded`, `kind`."""
    excluded, kind = cells.pop("excluded", []), cells.pop("kind", "Toy GPU")
    name = title.lower().replace(" ", "-")
    return {
        "id": name,
        "title": title,
        "url": f"reports/{name}.html",
        "section": section,
        "rank": None if excluded else [1, 1],
        "tied": False,
        "simulated": False,
        "retracted": False,
        "excluded": excluded,
        "mode": "full",
        "measured": "2026-01-01",
        "n": 3,
        "cards": cards,
        "key_state": "known",
        "facets": {"accelerator": kind, "version": "toy 1.0"},
        "cells": {key: a_cell(cells.get(key)) for key in CELLS},
    }


def a_cell(told: float | tuple[float, float, float] | None) -> dict[str, Any]:
    if told is None:
        return {"value": None, "low": None, "high": None, "n": 0, "reason": "not measured: absent"}
    value, low, high = told if isinstance(told, tuple) else (told, None, None)
    n = 1 if low is None else 3
    return {"value": value, "low": low, "high": high, "n": n, "reason": None}


def a_catalogue(*rows: dict[str, Any], sections: Any = None) -> dict[str, Any]:
    return {
        "schema": "tokenwatt/catalogue/1",
        "columns": [],
        "facets": [],
        "sections": list(sections or (a_section(),)),
        "rows": list(rows),
    }


def boundary(rate: float, spread: float = 0.02, *, long_run: float = 0.9) -> dict[str, Any]:
    """Return the cells of a boundary at `rate` requests/s of 400 tokens, and of its long run."""

    def around(value: float) -> tuple[float, float, float]:
        return value, value * (1 - spread), value * (1 + spread)

    found = {"boundary_rate": around(rate), "goodput": around(rate * 400)}
    if long_run:
        found["long_run_rate"] = around(rate * long_run)
        found["long_run_goodput"] = around(rate * long_run * 400)
    return found | {"input_throughput": around(rate * 1600)}
