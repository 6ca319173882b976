"""What an engine did in a window: its steps, its passes through the experts, and what was in them.

Steps come from the engine's own counter, or from how often an answer got an event.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import Literal, TypeAlias

from tokenwatt_site.bandwidth.decoding import Batch, Piece, decoding_of, prompt_contexts
from tokenwatt_site.bandwidth.step import Contexts, Layout, NoFigure
from tokenwatt_site.evidence.engine import EngineLog
from tokenwatt_site.evidence.records import RequestRecord
from tokenwatt_site.trials import tokens_in_window

MAX_EDGE_GAP_NS = 3 * 10**9
"""The engine is asked once a second; looks further apart than this enclose no edge."""

BUNDLED_ABOVE = 1.05
"""Tokens per event from which on events are several tokens: speculation, or a server's bundles."""

Counted: TypeAlias = Literal["the engine's own counter", "the client's records"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a window.

    Attributes:
        start_ns: when it begins.
        end_ns: when it ends.
        steps: of all batches.
        sequence_steps: steps x sequences in each.
        passes: through the routed experts; several batches can share one.
        tokens: of answers in the passes of one event each; see `Work.reads_per_event`.
    """

    start_ns: int
    end_ns: int
    steps: float
    sequence_steps: float
    passes: float
    tokens: float


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt whose answer began, taken to be computed in one of the passes.

    Attributes:
        at_ns: when its answer began.
        contexts: of its tokens, those from a cache left out.
        beside: tokens of answers beside it, counted as `Stretch.tokens` are.
    """

    at_ns: int
    contexts: Contexts
    beside: float


@dataclass(frozen=True, slots=True)
class Work:
    """What the engine did in a window.

    Attributes:
        counted: what told the steps.
        stretches: the window in parts, as far as there were steps.
        length_ns: of the window.
        delivered: output tokens that arrived.
        prompts: those whose first token arrived.
        decoded: contexts of the decode events, by answer.
        tokens_per_event: of these.
    """

    counted: Counted
    stretches: tuple[Stretch, ...]
    length_ns: int
    delivered: float
    prompts: tuple[Prompt, ...]
    decoded: tuple[Contexts, ...]
    tokens_per_event: float

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens computed: those from a cache are not."""
        return sum(prompt.contexts.count for prompt in self.prompts)

    @property
    def steps(self) -> float:
        return math.fsum(stretch.steps for stretch in self.stretches)

    @property
    def reads_per_event(self) -> float:
        """How often a sequence was read for one of its events.

        Once, as speculation has it; but a server may also bundle the tokens of several steps, which
        only the engine's own steps can tell.
        """
        events = sum(contexts.count for contexts in self.decoded)
        if self.counted == "the client's records" or self.tokens_per_event <= BUNDLED_ABOVE:
            return 1.0
        reads = math.fsum(stretch.sequence_steps for stretch in self.stretches) / events
        return min(max(1.0, reads), self.tokens_per_event)


def work_of(
    records: Sequence[RequestRecord],
    start_ns: int,
    end_ns: int,
    layout: Layout,
    *,
    engine: EngineLog | None = None,
    epoch_ns: int = 0,
) -> Work:
    """Return what was done in [start_ns, end_ns], on the clock of `records`.

    Args:
        records: all requests of the trial.
        start_ns: of the window.
        end_ns: of the window.
        layout: how many batches step apart.
        engine: its counters, None: the records have to do.
        epoch_ns: the records' zero on the clock of `engine`.

    Raises:
        NoFigure: `engine` was given, and its steps are not known all over the window.
    """
    decoding = [d for r in records if (d := decoding_of(r)) is not None]
    batch = Batch(decoding, start_ns, end_ns)
    decoded = [(d, c) for d in decoding if (c := d.contexts(start_ns, end_ns)).count > 0]
    events = sum(contexts.count for _, contexts in decoded)
    prompts = tuple(
        _prompt(r, r.first_ns, batch.before(r.first_ns), layout)
        for r in records
        if r.first_ns is not None and start_ns < r.first_ns <= end_ns
    )
    seen = _seen(batch, prompts, layout)
    if engine is not None:
        rises = increments(engine, "steps", epoch_ns + start_ns, epoch_ns + end_ns)
        seen = _counted(rises, seen, layout, epoch_ns)
    return Work(
        counted="the client's records" if engine is None else "the engine's own counter",
        stretches=tuple(seen),
        length_ns=end_ns - start_ns,
        delivered=tokens_in_window(records, start_ns, end_ns),
        prompts=prompts,
        decoded=tuple(contexts for _, contexts in decoded),
        tokens_per_event=(
            math.fsum(d.per_event * c.count for d, c in decoded) / events if events else 1.0
        ),
    )


@dataclass(frozen=True, slots=True)
class Increment:
    """By how much a counter rose from one look to the next, the part of it within a window."""

    start_ns: int
    end_ns: int
    count: float


def increments(
    log: EngineLog, name: Literal["steps", "read_mb"], start_ns: int, end_ns: int
) -> tuple[Increment, ...]:
    """Return by how much a counter rose in [start_ns, end_ns], look by look.

    At the edges linearly between the looks on both sides.

    Raises:
        NoFigure: it ran backwards, or no looks enclose the window.
    """
    values = ((s.at_ns, s.steps if name == "steps" else s.read_mb) for s in log.samples)
    known = [(at, value) for at, value in values if value is not None]
    times = [at for at, _ in known]
    first, last = bisect_right(times, start_ns) - 1, bisect_left(times, end_ns)
    around = known[first : last + 1] if 0 <= first < last < len(known) else []
    edges = [around[1][0] - around[0][0], around[-1][0] - around[-2][0]] if around else []
    if not edges or max(edges) > MAX_EDGE_GAP_NS:
        raise NoFigure("the engine's counters were not read around the window's edges")
    result = []
    for (a, before), (b, after) in pairwise(around):
        if b <= a or after < before:
            raise NoFigure("the engine's counters ran backwards")
        inside = max(a, start_ns), min(b, end_ns)
        rise = (after - before) * (inside[1] - inside[0]) / (b - a)
        result.append(Increment(*inside, rise))
    return tuple(result)


def _prompt(r: RequestRecord, at_ns: int, piece: Piece, layout: Layout) -> Prompt:
    beside = 0.0
    if piece.sequences:
        _, passing = _active(layout, piece.sequences)
        beside = piece.sequences * piece.tokens / piece.events / passing
    return Prompt(at_ns, prompt_contexts(r), beside)


def _seen(batch: Batch, prompts: Sequence[Prompt], layout: Layout) -> list[Stretch]:
    """Take each answer's events as the steps of its batch; a prompt by itself is a step more."""
    stretches = [Stretch(p.at_ns, p.at_ns, 1.0, 0.0, 1.0, 0.0) for p in prompts if not p.beside]
    for p in batch.pieces:
        if p.sequences:
            batches, passing = _active(layout, p.sequences)
            # Mean of the answers' rates, for each batch that has one.
            rate = p.events / p.sequences * (p.end_ns - p.start_ns)
            stretches.append(
                Stretch(
                    start_ns=p.start_ns,
                    end_ns=p.end_ns,
                    steps=rate * batches,
                    sequence_steps=rate * p.sequences,
                    passes=rate * passing,
                    tokens=p.sequences * p.tokens / p.events / passing,
                )
            )
    return sorted(stretches, key=attrgetter("start_ns"))


def _counted(
    rises: Sequence[Increment], seen: Sequence[Stretch], layout: Layout, epoch_ns: int
) -> list[Stretch]:
    """Spread the steps that the engine counted over what was seen from one look to the next.

    It counts those of one replica, whose ranks step together. Where nothing was seen, there was
    nothing but a prompt.
    """
    stretches = []
    first = 0
    for rise in rises:
        start_ns, end_ns = rise.start_ns - epoch_ns, rise.end_ns - epoch_ns
        while first < len(seen) and seen[first].end_ns <= start_ns:
            first += 1
        last = bisect_right(seen, end_ns, lo=first, key=attrgetter("start_ns"))
        parts = [(stretch, _share(stretch, start_ns, end_ns)) for stretch in seen[first:last]]
        steps = rise.count * layout.replicas * layout.ranks
        total = math.fsum(share * stretch.steps for stretch, share in parts)
        if total <= 0:
            stretches.append(Stretch(start_ns, end_ns, steps, 0.0, steps / layout.ranks, 0.0))
        for stretch, share in parts if total > 0 else ():
            scale = share * steps / total
            stretches.append(
                replace(
                    stretch,
                    steps=scale * stretch.steps,
                    sequence_steps=scale * stretch.sequence_steps,
                    passes=scale * stretch.passes,
                )
            )
    return stretches


def _share(stretch: Stretch, start_ns: int, end_ns: int) -> float:
    """Return how much of a stretch is in (start_ns, end_ns]; of a moment, all or nothing."""
    length = stretch.end_ns - stretch.start_ns
    if length == 0:
        return float(start_ns < stretch.start_ns <= end_ns)
    return max(0, min(stretch.end_ns, end_ns) - max(stretch.start_ns, start_ns)) / length


def _active(layout: Layout, sequences: float) -> tuple[float, float]:
    """Return how many batches have a sequence, and how many groups of those that pass together."""
    sequences = max(1.0, sequences)
    return min(layout.batches, sequences), min(layout.replicas * layout.stages, sequences)
