"""An earlier publication as the baseline of a comparison: what of it has our names and units."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import instruments, text
from tokenwatt_site.run import ClaimsOnlyRecord, QuotedValue

# History of the format. 1: first.
QUOTED_SCHEMA = "tokenwatt/quoted/1"
QUOTED = "quoted/"
"""What the id of a publication begins with; none of a configuration has a slash."""

_NAMES: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "SLO goodput": ("goodput", {"tok/s": 1, "output tok/s": 1}),
    "Tokens per joule": ("tokens_per_joule", {"tok/J": 1, "output tok/J": 1}),
    "Decode bandwidth utilization (MBU)": (
        "mbu",
        {"% of rated bandwidth": 1, "% of rated": 1},
    ),
    "GPU board power": ("board_power", {"W": 1, "kW": 1000}),
}
"""What a publication calls a number -> our key, and its units in ours."""

_LIMIT = re.compile(r"\bp(\d{2}(?:\.\d+)?) (TTFT|TPOT|E2E) ≤ (\d+(?:\.\d+)?) (ms|s)\b")


def quoted_detail(record: ClaimsOnlyRecord) -> dict[str, JsonValue]:
    """Return an earlier publication as the baseline of a comparison: what of it has our names.

    Its limits and its accelerators are read from its own words; None: they do not tell.
    """
    fields = {each.field: each.text for each in record.setup}
    slo = _limits(" ".join((record.summary, *fields.values())))
    scope = "gpu" if fields.get("Power source", "").startswith("GPU board") else None
    boards = re.match(r"(\d{1,6})× ", fields.get("Accelerator", ""))
    return {
        "schema": QUOTED_SCHEMA,
        "id": f"{QUOTED}{record.id}",
        "title": record.title,
        "quoted": True,
        "under": record.column,
        "simulated": False,
        "status": "as published",
        "signer": None,
        "mode": None,
        "measured": record.published,
        "setup": {},
        "not_recorded": [],
        "slo": slo or None,
        "slo_text": ", ".join(f"{o['label']} ≤ {text.milliseconds(o['limit_ms'])}" for o in slo),
        "workload": {"name": fields.get("Workload trace"), "hash": None},
        "power_scope": scope,
        "power_words": instruments.ONLY["gpu"] if scope else "",
        "cpu": False,
        "cards": int(boards[1]) if boards else None,
        "launches": 0,
        "rows": None,
        "realisations": [],
        "metrics": [_quoted_metric(value) for value in _quoted_values(record)],
        "trials": [],
        "tool_version": None,
        "gate": {"outcome": "none", "text": "not told"},
        "answers": None,
        "exclusions": [],
        "retracted": False,
        "disputed": False,
    }


def _limits(words: str) -> list[dict[str, JsonValue]]:
    """Read limits such as "p99 TTFT ≤ 2 s", each once."""
    found = {
        f"{metric} p{quantile}": {
            "metric": metric.lower(),
            "label": f"{metric} p{quantile}",
            "quantile": float(quantile) / 100,
            "limit_ms": float(limit) * (1000 if unit == "s" else 1),
        }
        for quantile, metric, limit, unit in _LIMIT.findall(words)
    }
    return list(found.values())


def _quoted_values(record: ClaimsOnlyRecord) -> Iterator[QuotedValue]:
    """Yield its numbers that have one of our names and units, each once."""
    seen = set()
    for value in (*(each.value for each in record.charts), *record.numbers):
        units = _NAMES[value.metric][1] if value.metric in _NAMES else {}
        if value.number is not None and value.unit in units and value.metric not in seen:
            seen.add(value.metric)
            yield value


def _quoted_metric(value: QuotedValue) -> dict[str, JsonValue]:
    key, units = _NAMES[value.metric]
    metric = METRICS[key]
    return {
        "key": key,
        "label": metric.label,
        "unit": metric.unit,
        "better": metric.better,
        "decimals": metric.decimals,
        "value": (value.number or 0) * units[value.unit or ""],
        "low": None,
        "high": None,
        "repeats": [],
        "n": 0,
        "reason": None,
        "marks": [],
        "definition": metric.definition,
    }
