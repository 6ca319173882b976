"""Replicas of one engine that are asked apart: the rows of each, what it says of itself. Pure.

A journal tells of them only where the spec has `endpoint.urls`: at each launch, and again after
each trial. They are numbered from 1, in the order of the spec.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError

from tokenwatt_site.canonical import canonical_bytes
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.journal import Entry
from tokenwatt_site.schema import Model


class Replica(Model):
    """What a replica says of itself; None where it does not tell. `started` is UTC text."""

    engine: str | None
    version: str | None
    build: str | None
    models: tuple[str, ...]
    started: str | None


_TOLD = TypeAdapter(tuple[Replica | None, ...])


def replica_of(row: int, count: int) -> int:
    """Return the place of the replica that a row is sent to, from 0."""
    return row % count


def at_launch(launch: Entry, count: int) -> tuple[Replica, ...]:
    """Return what `count` replicas said at a launch; nothing where one engine is asked.

    Raises:
        InputError: it does not tell of each, or of what is not asked.
    """
    found = after_trial(launch, count)
    told = tuple(replica for replica in found if replica is not None)
    if len(told) < len(found):
        raise _other(launch, "each of them")
    return told


def after_trial(end: Entry, count: int) -> tuple[Replica | None, ...]:
    """Return what they said after a trial; None of one that did not answer any more.

    Raises:
        InputError: see `at_launch`.
    """
    if count == 1:
        if "replicas" in end.data:
            raise _other(end, "no such field, where one engine is asked")
        return ()
    try:
        found = _TOLD.validate_json(canonical_bytes(end.data.get("replicas")), strict=True)
    except ValidationError:
        found = ()
    if len(found) != count:
        raise _other(end, f"{count} replicas")
    return found


def _other(line: Entry, expected: str) -> InputError:
    return InputError(
        Problem(
            "does not tell of the replicas that the spec asks",
            field=f"journal line {line.seq}.replicas",
            found=repr(line.data.get("replicas"))[:80],
            expected=expected,
        )
    )


def starts(launch: Entry, count: int) -> tuple[str | None, ...]:
    """Return when each process of a launch started, as it tells; of one engine, that of its own.

    Raises:
        InputError: see `at_launch`.
    """
    if told := at_launch(launch, count):
        return tuple(replica.started for replica in told)
    found = launch.data.get("engine_started")
    return (None if found is None else str(found),)


def changed_replica(before: Sequence[Replica], after: Sequence[Replica | None]) -> str | None:
    """Say of the first replica that is not what it was at the launch; None: all are.

    What it does not tell one of the two times, as where it is busy, says nothing.
    """
    for number, (was, now) in enumerate(zip(before, after, strict=True), 1):
        if (change := _change(was, now)) is not None:
            return f"replica {number} of {len(before)} {change}"
    return None


def _change(was: Replica, now: Replica | None) -> str | None:
    if now is None:
        return "does not answer any more"
    if None not in (was.started, now.started) and was.started != now.started:
        return "was started again"
    told = [
        (was.engine, now.engine),
        (was.version, now.version),
        (was.build, now.build),
        (was.models, now.models),
    ]
    if any(a != b for a, b in told if a is not None and b is not None):
        return "is not the engine any more that it was"
    return None
