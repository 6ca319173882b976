"""Loaded-idle watts: of the boards with the engine loaded and no request, before and after."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, ValidationError

from tokenwatt_site.canonical import canonical_bytes
from tokenwatt_site.energy.window import (
    MAX_GAP_PERIODS,
    Finding,
    WindowEnergy,
    gravest,
    window_energy,
)
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.power import PowerLog
from tokenwatt_site.journal import Entry
from tokenwatt_site.schema import Model

MIN_IDLE_S = 10
"""How long an idle engine is read at least."""

AGREES_WITHIN = 0.1
"""Of idle before and after. Warm boards leak a little more than cold ones."""

When: TypeAlias = Literal["before", "after"]


class IdleSpan(Model):
    """A span in which the engine was loaded and had no request, on the clock of `epoch_ns`."""

    repeat: Annotated[int, Field(ge=1)]
    when: When
    start_ns: Annotated[int, Field(ge=0)]
    end_ns: Annotated[int, Field(ge=0)]

    @classmethod
    def of(cls, line: Entry) -> IdleSpan:
        """Read an "idle" line of a journal.

        Raises:
            InputError: it lacks something, or ends before it starts.
        """
        try:
            span = cls.model_validate_json(canonical_bytes(line.data))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join((f"journal line {line.seq}", *map(str, first["loc"])))
            raise InputError(Problem(f"is no idle span: {first['msg']}", field=place)) from error
        if span.end_ns <= span.start_ns:
            raise InputError(
                Problem(
                    "ends before it starts",
                    field=f"journal line {line.seq}.end_ns",
                    found=str(span.end_ns),
                    expected=f"above {span.start_ns}",
                )
            )
        return span


@dataclass(frozen=True, slots=True)
class Idle:
    """What all boards drew in one repeat without a request.

    Attributes:
        power_mw: mean of before and after, of that one which there is; None: neither.
        reason: why there is none; empty where there is one.
        least_mw: of each board, the less of the two; empty where nothing was measured.
        findings: what is to be said of it.
    """

    power_mw: float | None
    reason: str = ""
    least_mw: tuple[float | None, ...] = ()
    findings: tuple[Finding, ...] = ()


NOT_MEASURED = Idle(None, "the boards were not read while the engine had no request")


def idle_spans(journal: Sequence[Entry]) -> tuple[IdleSpan, ...]:
    """Return the spans of the launches that count, the last of each repeat.

    Raises:
        InputError: a line that is no span.
    """
    counting: dict[object, list[IdleSpan]] = {}
    for line in journal:
        if line.event == "launch":
            counting[line.data.get("repeat")] = []
        elif line.event == "idle":
            span = IdleSpan.of(line)
            counting.setdefault(span.repeat, []).append(span)
    return tuple(span for spans in counting.values() for span in spans)


def idle_by_repeat(journal: Sequence[Entry], log: PowerLog) -> Mapping[int, Idle]:
    """Return what the boards of `log` drew in each repeat that has a span; see `idle_spans`."""
    spans: dict[int, list[IdleSpan]] = {}
    for span in idle_spans(journal):
        spans.setdefault(span.repeat, []).append(span)
    return {repeat: _idle(log, found) for repeat, found in spans.items()}


def _idle(log: PowerLog, spans: Sequence[IdleSpan]) -> Idle:
    energies = [
        window_energy(log, span.start_ns, span.end_ns, max_gap_ns=MAX_GAP_PERIODS * log.period_ns)
        for span in spans
    ]
    findings = tuple(
        Finding(found.level, f"{span.when} the load, {found.text}")
        for span, energy in zip(spans, energies, strict=True)
        for found in energy.findings
    )
    watts = [_mean_mw(span, energy.energy_mj) for span, energy in zip(spans, energies, strict=True)]
    known = [mw for mw in watts if mw is not None]
    refused = gravest(findings)
    if refused is not None and (refused.level == "INVALID" or not known):
        return Idle(None, refused.text, (), findings)
    # Either span makes a number; what kept the other from one is then a warning.
    findings = tuple(
        replace(found, level="warn") if found.level == "withheld" else found for found in findings
    )
    least = tuple(_least_mw(spans, energies, board) for board in range(len(log.boards)))
    told = (*_agreement(spans, watts), *_settled(log, energies))
    return Idle(math.fsum(known) / len(known), "", least, (*findings, *told))


def _mean_mw(span: IdleSpan, energy_mj: float | None) -> float | None:
    return None if energy_mj is None else energy_mj * 1e9 / (span.end_ns - span.start_ns)


def _least_mw(
    spans: Sequence[IdleSpan], energies: Sequence[WindowEnergy], board: int
) -> float | None:
    watts = (_mean_mw(s, e.by_board[board].energy_mj) for s, e in zip(spans, energies, strict=True))
    return min((mw for mw in watts if mw is not None), default=None)


def _settled(log: PowerLog, energies: Sequence[WindowEnergy]) -> Iterator[Finding]:
    """Say where watts of the load may be in those of the time after it."""
    by_watts = any(board.source == "power" for energy in energies for board in energy.by_board)
    if log.scope == "host" and log.averaging_ns is None and by_watts:
        yield Finding(
            "warn",
            "the host does not tell over how long it averages its watts: those of a load just"
            " before may be in them",
        )


def _agreement(spans: Sequence[IdleSpan], watts: Sequence[float | None]) -> Iterator[Finding]:
    told = [(span.when, mw) for span, mw in zip(spans, watts, strict=True) if mw is not None]
    if len({when for when, _ in told}) == 1:
        yield Finding("warn", f"idle watts were measured {told[0][0]} the load alone")
    for (_, first), (_, last) in pairwise(told):
        if abs(last / first - 1) > AGREES_WITHIN:
            yield Finding(
                "warn",
                f"idle was {first / 1e3:.0f} W before the load and {last / 1e3:.0f} W after it,"
                f" {last / first - 1:+.0%}",
            )
