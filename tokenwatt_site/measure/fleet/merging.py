"""Records on their way from workers to one trial, in the order of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeAlias

from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.measure.exchange import Exchange, PlannedRequest

Packed: TypeAlias = list[tuple[Any, ...]]
"""Records as tuples of integers and None, of which many are pickled in little time."""

_NAMES = [field.name for field in fields(RequestRecord) if field.name != "status"]
_values = attrgetter(*_NAMES)


def packed(records: Iterable[RequestRecord]) -> Packed:
    return [(*_values(record), int(record.status)) for record in records]


def unpacked(rows: Packed) -> list[RequestRecord]:
    return [RequestRecord(*(*values, Status(code))) for *values, code in rows]


def merged(
    plan: Sequence[PlannedRequest],
    known: Mapping[int, RequestRecord],
    *,
    repeat: int,
    trial: int,
    end_ns: int,
) -> tuple[RequestRecord, ...]:
    """Return a record of each request that came due before the end, in order of `due_ns`.

    Workers end a little apart, and one may have been lost. What came due when nobody was there any
    more to send it is CENSORED, and was never sent.

    Args:
        plan: all of the trial, in order of `due_ns`.
        known: what workers told, by row.
        repeat: of the trial.
        trial: its number.
        end_ns: before this the load went on; what is known may be later.
    """
    end_ns = max([end_ns, *(record.end_ns for record in known.values())])
    last_ns = max((record.due_ns for record in known.values()), default=-1)
    return tuple(
        known.get(planned.row) or Exchange(0, planned).snapshot(repeat, trial, planned.due_ns)
        for planned in plan
        if planned.due_ns < end_ns or planned.due_ns <= last_ns
    )
