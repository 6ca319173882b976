"""All configurations as data, for the leaderboard, the pages beside it and the API.

`catalogue` is plain; `packed_catalogue` packs the same for the browser.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tokenwatt_site.canonical import JsonValue, canonical_bytes
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.leaderboard import COLUMNS as DEFAULT
from tokenwatt_site.leaderboard import Leaderboard, Rank, Row, Section
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import outcomes, statements, text, unranked
from tokenwatt_site.pages.facts import facts
from tokenwatt_site.run import Claims

# History of the format. 1: first.
SCHEMA = "tokenwatt/catalogue/1"

MEASURED = (
    "long_run_goodput",
    "goodput",
    "long_run_rate",
    "boundary_rate",
    "input_throughput",
    "ttft",
    "tpot",
    "e2e",
    "attainment",
    "tokens_per_joule",
    "joules_per_token",
    "board_power",
    "idle_power",
    "cpu_power",
    "host_power",
    "mbu",
    "accuracy",
)
"""Keys of the metric registry. The first ranks."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A number that follows from another of the same row; `is_not`: as of a metric."""

    key: str
    source: str
    label: str
    short: str
    unit: str
    decimals: int
    definition: str
    is_not: str


DERIVED = (
    Derived(
        "goodput_per_card",
        "long_run_goodput",
        "Long-run SLO goodput per card",
        "Goodput per card",
        "output tok/s per card",
        0,
        "Long-run SLO goodput of the whole setup / all its accelerator cards.",
        "Not what one card does alone: the cards of a setup share its weights and its load.",
    ),
    Derived(
        "measured_goodput_per_card",
        "goodput",
        "SLO goodput per card",
        "Measured per card",
        "output tok/s per card",
        0,
        "Measured SLO goodput of the whole setup / all its accelerator cards.",
        "Not what one card does alone, and not what the long run keeps.",
    ),
    Derived(
        "interactivity",
        "tpot",
        "Interactivity",
        "Interactivity",
        "output tok/s per request",
        1,
        "1000 / TPOT in ms: how fast one answer is written, at the SLO's quantile of TPOT.",
        "Not what most users see: all but the slowest answers are written faster.",
    ),
)
"""In the order in which they follow the columns of the registry; of all of them more is better."""

COLUMNS = (*MEASURED, *(derived.key for derived in DERIVED))

SHORT: Mapping[str, str] = MappingProxyType(
    {
        "long_run_goodput": "Goodput, long run",
        "goodput": "Goodput, measured",
        "long_run_rate": "Boundary, long run",
        "boundary_rate": "Boundary, measured",
        "input_throughput": "Input at boundary",
        "attainment": "Within all limits",
        "tokens_per_joule": "Energy",
        "joules_per_token": "Energy per token",
        "board_power": "Power",
        "idle_power": "Idle power",
        "cpu_power": "CPU power",
        "host_power": "Host power",
        "mbu": "MBU",
    }
)
"""What a narrow head calls a metric; else its label."""

FACETS: Mapping[str, str] = MappingProxyType(
    {
        "accelerator": "Accelerator",
        "engine": "Engine",
        "version": "Engine version",
        "model": "Model",
        "quantization": "Quantization",
        "parallelism": "Parallelism",
        "signer": "Signer",
        "facts": "Facts",
    }
)
"""What rows are filtered by, and its words. A row has one value of each, of `facts` several."""

UNREGISTERED = "key not registered"

_AGAINST = (*statements.AGAINST, "simulated", "interrupted")
"""Ids of facts that are told wherever they are."""

_PROVEN = {
    "signed": "registered key",
    "committed": "committed before measuring",
    "witnessed": "time witnessed",
    "replayed": "engine model replayed",
    "mode": "full mode",
    "accuracy": "accuracy passed or reference",
    "rank": "may rank",
    "reproduced": "reproduced by others",
}
"""Facts that are told where they are proven. Evidence and recomputation every row has."""


_FIRST = tuple(key for key in DEFAULT if key != "boundary_rate")
"""What a reader may find at first. A boundary rate says what the goodput beside it says."""


def told(configuration: Configuration) -> dict[str, JsonValue]:
    """Return what a row tells of its configuration, wherever it stands."""
    head, setup = configuration.headline, configuration.setup
    cards = None if setup.is_cpu else setup.accelerator.count or None
    return {
        "under": _under(configuration),
        "retracted": head.standing.retracted,
        "excluded": [list(tag) for tag in unranked.tags(configuration)],
        "mode": head.run.spec.protocol.mode,
        "measured": head.run.conditions.started[:10],
        "n": len(configuration.claims.repeats),
        "cards": cards,
        "key_state": head.key_state,
        "facets": _facets(configuration),
        "cells": _cells(configuration.claims, cards),
    }


def catalogue(
    board: Leaderboard,
    configurations: Mapping[str, Configuration],
    urls: Mapping[str, str],
    told: Callable[[Configuration], Mapping[str, Any]] = told,
) -> dict[str, JsonValue]:
    """Return every section and row of the leaderboard as plain JSON values.

    A number that is missing is null, and `reason` says why. `n` of a cell counts launches, of an
    accuracy questions. A section's `shown` are the columns that a reader finds there at first.

    Args:
        board: the sections, their rows in order.
        configurations: by id.
        urls: configuration id -> its page, relative to the root of the site.
        told: gives what `told` does, as whoever has thousands of them kept it.
    """
    rows = [
        _row(row, index, told(configurations[row.configuration]), urls[row.configuration])
        for index, section in enumerate(board.sections)
        for row in section.rows
    ]
    return {
        "schema": SCHEMA,
        "columns": [*map(_column, MEASURED), *map(_derived_column, DERIVED)],
        "facets": [{"key": key, "label": label} for key, label in FACETS.items()],
        "sections": [
            _section(section, configurations[section.rows[0].configuration], rows, index)
            for index, section in enumerate(board.sections)
        ],
        "rows": rows,
    }


def _column(key: str) -> dict[str, JsonValue]:
    metric = METRICS[key]
    return {
        "key": key,
        "label": metric.label,
        "short": SHORT.get(key, metric.label),
        "unit": metric.unit,
        "better": metric.better,
        "digits": metric.decimals,
        "definition": metric.definition,
    }


def _derived_column(derived: Derived) -> dict[str, JsonValue]:
    return {
        "key": derived.key,
        "label": derived.label,
        "short": derived.short,
        "unit": derived.unit,
        "better": "higher",
        "digits": derived.decimals,
        "definition": derived.definition,
    }


def _section(
    section: Section, first: Configuration, rows: list[dict[str, Any]], index: int
) -> dict[str, JsonValue]:
    mine = [row["cells"] for row in rows if row["section"] == index]
    question = [
        *(section.workload, section.workload_hash, list(section.slo), section.power_scope),
        *(section.cpu, section.simulated),
    ]
    digest = hashlib.sha256(canonical_bytes(question)).hexdigest()[:8]
    kind = f"{', on CPUs' if section.cpu else ''}{', simulated' if section.simulated else ''}"
    return {
        # Not its place in the list: an address that was copied still means the same question.
        "id": f"board-{section.workload}-{digest}",
        "heading": section.workload + kind,
        "workload": section.workload,
        "objectives": [objective.to_json() for objective in first.setup.slo],
        "workload_hash": section.workload_hash,
        "slo": list(section.slo),
        "slo_text": text.slo(first.setup.slo),
        "power_scope": section.power_scope,
        "cpu": section.cpu,
        "simulated": section.simulated,
        "ranked": section.ranked,
        "count": len(section.rows),
        "shown": _shown(mine, ranked=section.ranked > 0),
        # With the quantile, which is the SLO's and so that of all rows.
        "labels": {key: outcomes.find(first.claims, key).label for key in MEASURED}
        | {derived.key: derived.label for derived in DERIVED},
    }


def _shown(rows: Sequence[Mapping[str, Any]], *, ranked: bool) -> list[str]:
    """Return the columns that at least half of the rows have a number in.

    The first is a goodput: the long-run one, which ranks, unless no row has a rank.
    """
    kept = [
        key
        for key in _FIRST
        if 2 * sum(cells[key]["value"] is not None for cells in rows) >= len(rows)
    ]
    if ranked or not set(kept).intersection(DEFAULT[:2]):
        kept = [DEFAULT[0], *(key for key in kept if key != DEFAULT[0])]
    return kept


def _row(row: Row, section: int, told: Mapping[str, Any], url: str) -> dict[str, JsonValue]:
    return {
        "id": row.configuration,
        "title": row.title,
        "under": told["under"],
        "url": url,
        "section": section,
        "rank": _ranks(row.rank),
        "tied": row.rank is not None and row.rank.tied,
        "simulated": row.simulated,
        **told,
    }


def _under(configuration: Configuration) -> str:
    setup = configuration.setup
    words = [
        text.boards(setup.accelerator),
        text.engine(setup.engine),
        f"TP{setup.parallelism.tensor}",
        *text.quantization(setup.quantization),
        f"{configuration.headline.run.spec.protocol.mode} mode",
    ]
    return " · ".join(words)


def _ranks(rank: Rank | None) -> list[JsonValue] | None:
    return None if rank is None else [rank.best, rank.worst]


def _facets(configuration: Configuration) -> dict[str, JsonValue]:
    setup = configuration.setup
    return {
        "accelerator": "CPU" if setup.is_cpu else setup.accelerator.model,
        "engine": setup.engine.name,
        "version": text.engine(setup.engine),
        "model": setup.model.name,
        "quantization": ", ".join(text.quantization(setup.quantization)),
        "parallelism": text.parallelism(setup.parallelism),
        "signer": configuration.headline.signer or UNREGISTERED,
        "facts": list(_told(configuration)),
    }


def _told(configuration: Configuration) -> Iterator[str]:
    for fact in facts(configuration):
        if fact.id in _AGAINST:
            yield fact.id
        elif fact.kind == "yes" and fact.id in _PROVEN:
            yield _PROVEN[fact.id]


def _cells(claims: Claims, cards: int | None) -> dict[str, JsonValue]:
    cells: dict[str, Any] = {key: _cell(claims, key) for key in MEASURED}
    for derived in DERIVED:
        source = cells[derived.source]
        if derived.source == "tpot":
            cells[derived.key] = _inverse(source)
        else:
            cells[derived.key] = _per_card(source, cards)
    return cells


def _cell(claims: Claims, key: str) -> dict[str, JsonValue]:
    claim = outcomes.find(claims, key)
    of_questions = key == "accuracy" and claims.accuracy
    return {
        "value": claim.value,
        "low": claim.low,
        "high": claim.high,
        "n": claims.accuracy[0].questions if of_questions else len(claim.repeats),
        "reason": outcomes.why(claims, claim) if claim.value is None else None,
    }


def _per_card(cell: dict[str, Any], cards: int | None) -> dict[str, Any]:
    if cell["value"] is None:
        return cell
    if cards is None:
        return _without(cell, "not counted: this setup has no accelerator cards")
    ends = ("value", "low", "high")
    return cell | {end: None if cell[end] is None else cell[end] / cards for end in ends}


def _inverse(cell: dict[str, Any]) -> dict[str, Any]:
    value, low, high = cell["value"], cell["low"], cell["high"]
    if value is None:
        return cell
    if not value or (not low and low is not None):
        return _without(cell, "not defined: TPOT is 0")
    return cell | {
        "value": 1000 / value,
        "low": 1000 / high if high else None,
        "high": 1000 / low if low else None,
    }


def _without(cell: dict[str, Any], reason: str) -> dict[str, Any]:
    return {"value": None, "low": None, "high": None, "n": cell["n"], "reason": reason}
