"""Two or more configurations side by side: what differs, what may be divided, and what it shows.

Pure. Reads results as they are published (`pages.detail`), so that the script of the page does the
same with the same data. The first one is the baseline: every other is divided by it, and none where
that would answer no question: a number of another workload, another boundary of power, another
length of window. The reason then stands where the ratio would.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenwatt_site.comparison.beside import accuracy_of, cards_of
from tokenwatt_site.comparison.ratios import latency, rows_of, same_windows
from tokenwatt_site.comparison.result import (
    BANDWIDTH,
    ENERGY,
    LATENCY,
    OF_BOARDS,
    THROUGHPUT,
    Compared,
    Detail,
    Field,
    Pair,
    letter,
)
from tokenwatt_site.spec import NOT_RECORDED


def compare(details: Sequence[Detail]) -> Compared:
    """Compare with the first. Sides are called A, B, C and so on in what is said.

    Raises:
        ValueError: fewer than two.
    """
    if len(details) < 2:
        raise ValueError("a comparison takes two")
    baseline, *others = details
    recorded = [detail["setup"] for detail in details if not detail["quoted"]]
    paths = dict.fromkeys(path for setup in recorded for path in setup)
    differ = {path for path in paths if any(s.get(path) != recorded[0].get(path) for s in recorded)}
    return Compared(
        fields=tuple(
            Field(path, tuple(detail["setup"].get(path) for detail in details))
            for path in paths
            if path in differ
        ),
        equal=tuple(path for path in paths if path not in differ),
        pairs=tuple(_pair(baseline, other, letter(i)) for i, other in enumerate(others, start=1)),
    )


def _pair(a: Detail, b: Detail, name: str) -> Pair:
    ones, others = a["setup"], b["setup"]
    known = not a["quoted"] and not b["quoted"]
    paths = tuple(dict.fromkeys((*ones, *others))) if known else ()
    differing = tuple(path for path in paths if ones.get(path) != others.get(path))
    unknown = tuple(
        path
        for path in paths
        if ones.get(path) == others.get(path) == NOT_RECORDED
        and not (a["cpu"] and b["cpu"] and path in OF_BOARDS)
    )
    refused = _refused(a, b, name)
    alike = known and a["simulated"] == b["simulated"] and same_windows(a, b)
    found = [*rows_of(a, b, name), *latency(a, b)] if refused is None else []
    order = (THROUGHPUT, LATENCY, ENERGY, BANDWIDTH)
    found.sort(key=lambda row: order.index(row.group))
    told = [row for row in found if row.baseline is not None or row.other is not None]
    rows = tuple(row for row in found if row in told or row.group == LATENCY)
    return Pair(
        refused=refused,
        differing=differing,
        unknown=unknown,
        controlled=alike and len(differing) == 1,
        rows=rows,
        absent=tuple((row.label, row.reason or "") for row in found if row not in rows),
        cards=cards_of(a, b, rows, refused),
        accuracy=accuracy_of(a, b, name),
    )


def _refused(a: Detail, b: Detail, name: str) -> str | None:
    """Say why no number of the load may be divided; None: some may."""
    if b["quoted"]:
        return "an earlier publication can only be the baseline: nothing of it was recomputed"
    if a["simulated"] != b["simulated"]:
        which = "A" if a["simulated"] else name
        return f"{which} was simulated and the other measured: a simulated number is about nothing"
    return "; ".join(filter(None, (_other_workload(a, b), _other_limits(a, b)))) or None


def _other_workload(a: Detail, b: Detail) -> str | None:
    ones, others = a["workload"], b["workload"]
    if ones["name"] is None:
        return "A names no workload"
    if ones["name"] != others["name"]:
        return f"another workload: {others['name']} against {ones['name']}"
    if not a["quoted"] and ones["hash"] != others["hash"]:
        return f"another workload of the name {ones['name']}: its hash differs"
    return None


def _other_limits(a: Detail, b: Detail) -> str | None:
    if a["slo"] is None:
        return "A tells no SLO in words that can be compared"
    if _limits(a) != _limits(b):
        return f"another SLO: {b['slo_text']} against {a['slo_text']}"
    return None


def _limits(detail: Detail) -> list[tuple[str, float]]:
    return sorted((each["label"], each["limit_ms"]) for each in detail["slo"])
