"""Made-up catalogues with every column and facet, for the leaderboard: no row was ever measured."""

from __future__ import annotations

import random
from typing import Any

from tokenwatt_site.leaderboard import Leaderboard
from tokenwatt_site.pages.catalogue import COLUMNS, catalogue

SHOWN = ["long_run_goodput", "ttft", "tpot", "tokens_per_joule", "board_power"]
NOT_MEASURED = {"value": None, "low": None, "high": None, "n": 0, "reason": "not measured: absent"}
QUICK = ["mode", "quick mode; only full mode ranks", "not full mode"]


def a_cell(value: float | None, spread: float = 0.02, n: int = 3) -> dict[str, Any]:
    if value is None:
        return NOT_MEASURED
    ends = {"low": value * (1 - spread), "high": value * (1 + spread)}
    return {"value": value, **ends, "n": n, "reason": None}


def a_row(
    title: str,
    cells: dict[str, float | None],
    *,
    rank: tuple[int, int] | None = None,
    section: int = 0,
    **told: Any,
) -> dict[str, Any]:
    """Return a row; `told` changes facets, and `measured` and `id`."""
    facets = {
        "accelerator": "Toy GPU",
        "engine": "toy",
        "version": "toy 1.0",
        "model": "Toy-8B",
        "quantization": "FP8 weights",
        "parallelism": "TP1",
        "signer": "Lab 1",
        "facts": ["registered key"],
    }
    name = told.pop("id", title.lower().replace(" ", "-"))
    measured = told.pop("measured", "2026-01-01")
    facets |= told
    return {
        "id": name,
        "title": title,
        "under": f"{facets['accelerator']} · {facets['version']} · {facets['parallelism']}",
        "url": f"reports/{name}.html",
        "section": section,
        "rank": list(rank) if rank else None,
        "tied": False,
        "simulated": False,
        "retracted": False,
        "excluded": [] if rank else [QUICK],
        "mode": "full" if rank else "quick",
        "measured": measured,
        "n": 3,
        "cards": 4,
        "key_state": "known",
        "facets": facets,
        "cells": {key: a_cell(cells.get(key)) for key in COLUMNS},
    }


def a_section(rows: list[dict[str, Any]], index: int = 0, **told: Any) -> dict[str, Any]:
    mine = [row for row in rows if row["section"] == index]
    section = {
        "id": f"board-chat-mix-v{index + 1}-{index:08x}",
        "heading": f"chat-mix-v{index + 1}",
        "workload": f"chat-mix-v{index + 1}",
        "workload_hash": "sha256:" + 64 * str(index),
        "objectives": [{"metric": "ttft", "quantile": 0.99, "limit_ms": 2000.0}],
        "slo": ["TTFT p99 at most 2000 ms"],
        "slo_text": "TTFT p99 \u2264 2,000 ms",
        "power_scope": "gpu",
        "cpu": False,
        "simulated": False,
        "ranked": sum(row["rank"] is not None for row in mine),
        "count": len(mine),
        "shown": SHOWN,
        "labels": {column["key"]: column["label"] for column in EMPTY["columns"]},
    }
    return section | told


EMPTY: dict[str, Any] = catalogue(Leaderboard(()), {}, {})


def a_board(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a catalogue of these rows, in as many sections as they name."""
    count = 1 + max(row["section"] for row in rows)
    return EMPTY | {"rows": rows, "sections": [a_section(rows, i) for i in range(count)]}


def many(count: int) -> dict[str, Any]:
    """Return a catalogue of so many rows in one section, half of them ranked."""
    chance = random.Random(count)
    rows = []
    for at in range(count):
        goodput = 10_000 - at * 9_000 / count
        cells = {
            "long_run_goodput": goodput,
            "goodput": goodput * 1.05,
            "boundary_rate": goodput / 400,
            "ttft": chance.uniform(100, 2000),
            "tpot": chance.uniform(5, 50),
            "tokens_per_joule": chance.uniform(0.5, 9) if chance.random() < 0.7 else None,
            "board_power": chance.uniform(300, 5000),
            "accuracy": chance.uniform(60, 95),
        }
        rows.append(
            a_row(
                f"Made-up configuration {at}",
                cells,
                rank=(at + 1, at + 3) if at < count // 2 else None,
                accelerator=f"Toy GPU {at % 12}",
                engine=f"engine{at % 5}",
                version=f"engine{at % 5} {at % 40}",
                model=f"Toy-{at % 9}B",
                measured=f"2026-{1 + at % 12:02}-{1 + at % 28:02}",
            )
        )
    return a_board(rows)
