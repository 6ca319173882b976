"""All configurations as data, for the leaderboard, the pages beside it and the API.

`catalogue` is plain; `script` packs the same for the browser, where ten thousand rows are to be
there at once: each field in a column, texts by number, an equal column as one value, and numbers to
six digits, which is more than any page shows. `assets/catalogue-reader.js` unpacks it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.leaderboard import Leaderboard, Rank, Row, Section
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import outcomes, text
from tokenwatt_site.pages.facts import facts
from tokenwatt_site.run import Claims

# History of the format. 1: first.
SCHEMA = "tokenwatt/catalogue/1"

DATA, READER = "catalogue.js", "catalogue-reader.js"
"""Names of the two scripts, in the order in which a page needs them."""

COLUMNS = (
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

SHORT: Mapping[str, str] = MappingProxyType(
    {
        "long_run_goodput": "Goodput, long run",
        "goodput": "Goodput, measured",
        "long_run_rate": "Boundary, long run",
        "boundary_rate": "Boundary, measured",
        "input_throughput": "Input at boundary",
        "attainment": "Within all limits",
        "joules_per_token": "Energy per token",
        "board_power": "GPU power",
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

_FACTS = {
    "withdrawn": "withdrawn",
    "superseded": "superseded",
    "disputed": "disputed",
    "simulated": "simulated",
    "interrupted": "interrupted",
}
"""Facts that are told where they stand, whatever their kind; ids of `facts` -> words."""

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


def catalogue(
    board: Leaderboard, configurations: Mapping[str, Configuration], urls: Mapping[str, str]
) -> dict[str, JsonValue]:
    """Return every section and row of the leaderboard as plain JSON values.

    A number that is missing is null, and `reason` says why.

    Args:
        board: the sections, their rows in order.
        configurations: by id.
        urls: configuration id -> its page, relative to the root of the site.
    """
    return {
        "schema": SCHEMA,
        "columns": [_column(key) for key in COLUMNS],
        "facets": [{"key": key, "label": label} for key, label in FACETS.items()],
        "sections": [
            _section(index, section, configurations[section.rows[0].configuration])
            for index, section in enumerate(board.sections, start=1)
        ],
        "rows": [
            _row(row, index, configurations[row.configuration], urls[row.configuration])
            for index, section in enumerate(board.sections)
            for row in section.rows
        ],
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
    }


def _section(index: int, section: Section, first: Configuration) -> dict[str, JsonValue]:
    claims = first.claims
    return {
        "id": f"section-{index}",
        "workload": section.workload,
        "objectives": [objective.to_json() for objective in first.setup.slo],
        "workload_hash": section.workload_hash,
        "slo": list(section.slo),
        "power_scope": section.power_scope,
        "cpu": section.cpu,
        # With the quantile, which is the SLO's and so that of all rows.
        "labels": {key: outcomes.find(claims, key).label for key in COLUMNS},
    }


def _row(row: Row, section: int, configuration: Configuration, url: str) -> dict[str, JsonValue]:
    head, setup = configuration.headline, configuration.setup
    cards = None if setup.is_cpu else setup.accelerator.count or None
    return {
        "id": row.configuration,
        "title": row.title,
        "url": url,
        "section": section,
        "rank": _ranks(row.rank),
        "tied": row.rank is not None and row.rank.tied,
        "simulated": row.simulated,
        "retracted": head.standing.retracted,
        "excluded": [[why.code, why.text] for why in row.excluded],
        "mode": head.run.spec.protocol.mode,
        "measured": head.run.conditions.started[:10],
        "n": len(configuration.claims.repeats),
        "cards": cards,
        "key_state": head.key_state,
        "facets": _facets(configuration),
        "cells": {key: _cell(configuration.claims, key) for key in COLUMNS},
    }


def _ranks(rank: Rank | None) -> list[JsonValue] | None:
    return None if rank is None else [rank.best, rank.worst]


def _facets(configuration: Configuration) -> dict[str, JsonValue]:
    setup = configuration.setup
    accelerator = setup.accelerator.model
    return {
        "accelerator": "CPU" if setup.is_cpu else accelerator,
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
        if fact.id in _FACTS:
            yield _FACTS[fact.id]
        elif fact.kind == "yes" and fact.id in _PROVEN:
            yield _PROVEN[fact.id]


def _cell(claims: Claims, key: str) -> dict[str, JsonValue]:
    claim = outcomes.find(claims, key)
    return {
        "value": claim.value,
        "low": claim.low,
        "high": claim.high,
        "n": len(claim.repeats),
        "reason": outcomes.why(claims, claim) if claim.value is None else None,
    }


def script(value: Mapping[str, JsonValue]) -> str:
    """Return the script that holds a catalogue, packed.

    A script, because a page opened from disk may fetch nothing.
    """
    return f"globalThis.TokenwattCatalogueData = {_json(_packed(value))};\n"


def _json(value: JsonValue) -> str:
    """Write JSON that may stand in a script: in ASCII, without what could end a script element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


class _Texts:
    """Numbers texts in the order in which they are first seen."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, words: str | None) -> int | None:
        return None if words is None else self._numbers.setdefault(words, len(self._numbers))

    @property
    def in_order(self) -> list[str]:
        return list(self._numbers)


_PLAIN = ("id", "title", "url", "section", "rank", "measured", "n", "cards")
_FLAGS = ("tied", "simulated", "retracted")
_NUMBERED = ("mode", "key_state")


def _packed(value: Mapping[str, JsonValue]) -> dict[str, Any]:
    rows, texts = value["rows"], _Texts()
    fields: dict[str, Any] = {name: _same([row[name] for row in rows]) for name in _PLAIN}
    fields |= {name: _same([int(row[name]) for row in rows]) for name in _FLAGS}
    fields |= {name: _same([texts(row[name]) for row in rows]) for name in _NUMBERED}
    fields["excluded"] = _same(
        [[[texts(code), texts(words)] for code, words in row["excluded"]] for row in rows]
    )
    facets = {
        key: _same([_numbered(texts, row["facets"][key]) for row in rows])
        for key in (facet["key"] for facet in value["facets"])
    }
    cells = {
        key: _cells(texts, [row["cells"][key] for row in rows])
        for key in (column["key"] for column in value["columns"])
    }
    return {
        **{name: value[name] for name in ("schema", "columns", "facets", "sections")},
        "count": len(rows),
        "rows": fields,
        "values": facets,
        "cells": cells,
        "texts": texts.in_order,
    }


def _numbered(texts: _Texts, value: str | Sequence[str]) -> int | list[int | None] | None:
    return texts(value) if isinstance(value, str) else [texts(each) for each in value]


def _cells(texts: _Texts, cells: Iterable[Mapping[str, JsonValue]]) -> dict[str, Any]:
    cells = list(cells)
    packed: dict[str, Any] = {
        name: _same([_short(cell[name]) for cell in cells]) for name in ("value", "low", "high")
    }
    packed["n"] = _same([cell["n"] for cell in cells])
    packed["reason"] = _same([texts(cell["reason"]) for cell in cells])
    return packed


def _same(column: list[Any]) -> Any:
    """Return the column, or its one value where all rows have the same: that is no list of rows."""
    if column and all(value == column[0] for value in column):
        return {"all": column[0]}
    return column


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
