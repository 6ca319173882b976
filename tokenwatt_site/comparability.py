"""What a second run of a setup says of a first one: the rule of DESIGN 6, in words. Pure.

Both are runs whose numbers were recomputed. That either took place, nothing here shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.evidence.power import is_masked
from tokenwatt_site.meters import GPU_SCOPES
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.run import Claims, Run
from tokenwatt_site.spec import NOT_RECORDED, Spec
from tokenwatt_site.statistics import SAME, Ratio, against
from tokenwatt_site.trials import Evidence

Outcome: TypeAlias = Literal["reproduced", "inconclusive", "contradicted", "not comparable"]

FREE = frozenset({"setup.driver", "setup.host_kind"})
"""Fields that may differ between a run and its reproduction, and are listed where they do."""

MIN_LAUNCHES = 3
"""On either side; from fewer there is no interval."""

_ROWS = ("mode", "lead_in", "scored", "tail")
"""Of the protocol: what a short window holds depends on how long it is."""


class CheckedRun(Protocol):
    """A run that passed every check; `trust.verify` makes them."""

    @property
    def run(self) -> Run: ...

    @property
    def claims(self) -> Claims: ...

    @property
    def evidence(self) -> Evidence: ...

    @property
    def keyid(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Difference:
    """A field in which two runs differ; None: absent. `free`: it may, and is only listed."""

    field: str
    original: JsonValue
    again: JsonValue
    free: bool

    def __str__(self) -> str:
        return f"{self.field}: {self.again!r} here, {self.original!r} in the original"


@dataclass(frozen=True, slots=True)
class Compared:
    """What came out, and a sentence that says why.

    Attributes:
        outcome: the word for it.
        text: the sentence, without its full stop.
        metric: key of what was compared; None: nothing was.
        ratio: new / original, with its 90% interval where both have MIN_LAUNCHES.
        launches: how many values each has: the original, then the new one.
        differences: all fields in which they differ.
        unknown: identity fields that neither of them records, so that they may differ.
    """

    outcome: Outcome
    text: str
    metric: str | None
    ratio: Ratio | None
    launches: tuple[int, int]
    differences: tuple[Difference, ...]
    unknown: tuple[str, ...]


def differences(original: Spec, again: Spec) -> tuple[Difference, ...]:
    """Return where two specs differ in what has to be equal, or is listed: setup, mode and rows."""
    ones, others = _identity(original), _identity(again)
    return tuple(
        Difference(field, ones.get(field), others.get(field), free=field in FREE)
        for field in dict.fromkeys((*ones, *others))
        if ones.get(field) != others.get(field)
    )


def compare(original: CheckedRun, again: CheckedRun) -> Compared:
    """Say whether `again` reproduces `original`, by the launches of their headline metric.

    That is the long-run goodput where both have it, and else the one that both measured. Who signed
    them and on which boards they ran counts for nothing here: see `why_not_independent`.
    """
    differing = differences(original.run.spec, again.run.spec)
    if original.run.simulated != again.run.simulated:
        simulated = (original.run.simulated, again.run.simulated)
        differing += (Difference("simulated", *simulated, free=False),)
    unknown = tuple(
        field
        for field, value in _identity(original.run.spec).items()
        if value == NOT_RECORDED == _identity(again.run.spec).get(field)
    )
    metric = _metric(original.claims, again.claims)
    old, new = (side.claims.metric(metric) for side in (original, again))
    if barred := ", ".join(each.field for each in differing if not each.free):
        text = f"another setup: {barred}"
        return Compared("not comparable", text, None, None, (0, 0), differing, unknown)
    launches = (len(old.repeats), len(new.repeats))
    label = METRICS[metric].label
    for claim, whose in ((old, "the original"), (new, "the new run")):
        if claim.value is None:
            text = f"{whose} has no {label}: {claim.reason}"
            return Compared("inconclusive", text, None, None, launches, differing, unknown)
    ratio = against(new.repeats, old.repeats)
    outcome, text = _judged(ratio, launches, label)
    for side, whose in ((original, "the original"), (again, "the new run")):
        if side.run.status != "complete":
            # Whoever stops when the numbers please could choose them.
            outcome, text = "inconclusive", f"{whose} was interrupted; {text}"
    return Compared(outcome, text, metric, ratio, launches, differing, unknown)


def _metric(original: Claims, again: Claims) -> str:
    corrected = "long_run_goodput"
    both = all(claims.metric(corrected).value is not None for claims in (original, again))
    return corrected if both else "goodput"


def _judged(ratio: Ratio, launches: tuple[int, int], label: str) -> tuple[Outcome, str]:
    told = f"{label} is {ratio.value:.3f} of the original's"
    if ratio.low is None or ratio.high is None:
        told += f", from {launches[1]} against {launches[0]} launches"
        return "inconclusive", f"{told}; an interval takes {MIN_LAUNCHES} on both sides"
    told += f", 90% interval {ratio.low:.3f} to {ratio.high:.3f}"
    percent = f"{100 * (SAME - 1):.0f}%"
    where = {
        "reproduced": f"all of it within {percent}",
        "contradicted": f"all of it beyond {percent}",
        "inconclusive": f"partly beyond {percent}, so more launches have to tell",
    }
    return ratio.reproduced, f"{told}: {where[ratio.reproduced]}"


def why_not_independent(original: CheckedRun, again: CheckedRun) -> tuple[str, ...]:
    """Say why a reproduction counts for nothing beside the original; empty: it is by somebody else.

    Another key and other boards, as far as files tell. Keys may belong to the same people, and
    UUIDs can be made up.
    """
    return tuple(_doubts(original, again))


def _doubts(original: CheckedRun, again: CheckedRun) -> Iterator[str]:
    if original.keyid == again.keyid:
        yield "both are signed with the same key"
    known = [gpu_uuids(side.evidence) for side in (original, again)]
    sides = zip((original, again), known, ("the original", "the new run"), strict=True)
    for side, uuids, whose in sides:
        count = side.run.spec.setup.accelerator.count
        if not uuids:
            yield f"{whose} records no UUID of a board"
        elif len(uuids) < count:
            yield f"{whose} records the UUIDs of {len(uuids)} of its {count} boards"
    if shared := sorted(known[0] & known[1]):
        yield f"both ran on {', '.join(shared)}"


def gpu_uuids(evidence: Evidence) -> frozenset[str]:
    """Return the GPUs whose UUIDs instruments read; packages, hosts and masked ones do not count.

    Of the instrument of the energy and of those beside it: any of them shows which boards ran.
    """
    logs = (evidence.power, *evidence.beside)
    return frozenset(
        board.uuid.lower()
        for log in logs
        if log is not None and log.scope in GPU_SCOPES
        for board in log.boards
        if not is_masked(board.uuid)
    )


def _identity(spec: Spec) -> dict[str, JsonValue]:
    protocol = spec.protocol.to_json()
    rows = {f"protocol.{name}": protocol[name] for name in _ROWS}
    return dict(flat("setup", spec.setup.to_json())) | rows


def flat(field: str, value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    """Yield the fields of an object one by one; a list is one field."""
    if not isinstance(value, dict):
        yield field, value
        return
    for name, item in value.items():
        yield from flat(f"{field}.{name}", item)
