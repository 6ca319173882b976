"""What an engine did in a window, and the bytes and arithmetic that this takes by the model.

Steps come from the engine's own counter, or from how often an answer got an event. Bytes are
concave in the batch, so that they are summed over short stretches and never taken at a mean.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from tokenwatt_site.bandwidth import (
    Contexts,
    Layout,
    NoFigure,
    attention_flops,
    expert_bytes,
    fixed_bytes,
    row_bytes,
    sequence_bytes,
    weight_flops,
)
from tokenwatt_site.decoding import Batch, decoding_of, prompt_contexts
from tokenwatt_site.engine_log import EngineLog
from tokenwatt_site.model_shape.shape import ModelShape, StoredBytes
from tokenwatt_site.records import RequestRecord
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
        steps: of all batches.
        sequence_steps: steps x sequences in each.
        passes: through the routed experts; several batches can share one.
        tokens: computed in one pass.
    """

    steps: float
    sequence_steps: float
    passes: float
    tokens: float


@dataclass(frozen=True, slots=True)
class Work:
    """What the engine did in a window.

    Attributes:
        counted: what told the steps.
        stretches: the window in parts, as far as there were steps.
        length_ns: of the window.
        delivered: output tokens that arrived.
        prompts: contexts of the prompts whose first token arrived, by token that was computed.
        decoded: contexts of the decode events, by answer.
        tokens_per_event: of these.
    """

    counted: Counted
    stretches: tuple[Stretch, ...]
    length_ns: int
    delivered: float
    prompts: tuple[Contexts, ...]
    decoded: tuple[Contexts, ...]
    tokens_per_event: float

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens computed: those from a cache are not."""
        return sum(contexts.count for contexts in self.prompts)

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


def traffic_bytes(
    work: Work, shape: ModelShape, stored: StoredBytes, kv_value_bytes: float, layout: Layout
) -> float:
    """Return the bytes that all boards must have read for this work; see `bandwidth`."""
    sequences = math.fsum(sequence_bytes(shape, kv_value_bytes, layout, c) for c in work.decoded)
    return math.fsum(
        (
            work.steps * fixed_bytes(stored, layout),
            *(s.passes * expert_bytes(shape, stored, s.tokens) for s in work.stretches),
            work.reads_per_event * sequences,
            (work.prompt_tokens + work.delivered) * row_bytes(shape, stored),
        )
    )


def traffic_flops(work: Work, shape: ModelShape) -> float:
    """Return the arithmetic of the tokens computed; drafts that were refused are not in it."""
    decoded = math.fsum(attention_flops(shape, contexts) for contexts in work.decoded)
    return math.fsum(
        (
            weight_flops(shape, work.prompt_tokens, work.delivered),
            *(attention_flops(shape, contexts) for contexts in work.prompts),
            decoded * work.tokens_per_event,
        )
    )


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
    answered = [r for r in records if r.first_ns is not None and start_ns < r.first_ns <= end_ns]
    if engine is None:
        stretches = _by_records(batch, layout)
    else:
        rises = _rises(engine, epoch_ns + start_ns, epoch_ns + end_ns, layout)
        stretches = _by_counter(rises, batch, layout, epoch_ns)
    return Work(
        counted="the client's records" if engine is None else "the engine's own counter",
        stretches=tuple(stretches),
        length_ns=end_ns - start_ns,
        delivered=tokens_in_window(records, start_ns, end_ns),
        prompts=tuple(prompt_contexts(r) for r in answered),
        decoded=tuple(contexts for _, contexts in decoded),
        tokens_per_event=(
            math.fsum(d.per_event * c.count for d, c in decoded) / events if events else 1.0
        ),
    )


@dataclass(frozen=True, slots=True)
class Increment:
    """By how much counters rose from one look to the next, the part of it within a window."""

    start_ns: int
    end_ns: int
    counts: tuple[float, ...]


def increments(
    log: EngineLog, names: Sequence[str], start_ns: int, end_ns: int
) -> tuple[Increment, ...]:
    """Return by how much the counters `names` rose in [start_ns, end_ns], look by look.

    At the edges linearly between the looks on both sides.

    Raises:
        NoFigure: one is not exported, ran backwards, or no looks enclose the window.
    """
    looks = [(s.at_ns, tuple(getattr(s, name) for name in names)) for s in log.samples]
    known = [(at, values) for at, values in looks if None not in values]
    if not known:
        raise NoFigure(f"the engine exports no counter of its {names[-1].replace('_', ' ')}")
    times = [at for at, _ in known]
    first, last = bisect_right(times, start_ns) - 1, bisect_left(times, end_ns)
    around = known[first : last + 1] if 0 <= first < last < len(known) else []
    edges = [around[1][0] - around[0][0], around[-1][0] - around[-2][0]] if around else []
    if not edges or max(edges) > MAX_EDGE_GAP_NS:
        raise NoFigure("the engine's counters were not read around the window's edges")
    result = []
    for (a, before), (b, after) in pairwise(around):
        if b <= a or any(y < x for x, y in zip(before, after, strict=True)):
            raise NoFigure("the engine's counters ran backwards")
        inside = max(a, start_ns), min(b, end_ns)
        share = (inside[1] - inside[0]) / (b - a)
        counts = tuple((y - x) * share for x, y in zip(before, after, strict=True))
        result.append(Increment(*inside, counts))
    return tuple(result)


def _by_records(batch: Batch, layout: Layout) -> list[Stretch]:
    """Take each answer's events as the steps of its batch."""
    stretches = []
    for p in batch.pieces:
        if p.sequences:
            batches, passing = _active(layout, p.sequences)
            # Mean of the answers' rates, for each batch that has one.
            rate = p.events / p.sequences * (p.end_ns - p.start_ns)
            per_step = p.tokens / p.events
            stretches.append(
                Stretch(
                    steps=rate * batches,
                    sequence_steps=rate * p.sequences,
                    passes=rate * passing,
                    tokens=p.sequences * per_step / passing,
                )
            )
    return stretches


def _rises(engine: EngineLog, start_ns: int, end_ns: int, layout: Layout) -> tuple[Increment, ...]:
    """Return the engine's steps look by look, with its tokens where these are all that there are.

    What is asked of several replicas is an answer of one, whose steps stand for all; its tokens
    would be too few.
    """
    steps = increments(engine, ("steps",), start_ns, end_ns)
    if layout.replicas > 1:
        return steps
    try:
        return increments(engine, ("steps", "prompt_tokens", "output_tokens"), start_ns, end_ns)
    except NoFigure:
        return steps


def _by_counter(
    rises: Sequence[Increment], batch: Batch, layout: Layout, epoch_ns: int
) -> list[Stretch]:
    """Take the engine's steps, which are those of one rank, and its tokens where it has these."""
    stretches = []
    for rise in rises:
        steps = rise.counts[0] * layout.replicas * layout.ranks
        if steps <= 0:
            continue
        sequences, events, tokens = batch.means(rise.start_ns - epoch_ns, rise.end_ns - epoch_ns)
        batches, passing = _active(layout, sequences)
        passes = steps * passing / batches
        if len(rise.counts) > 1:
            computed = math.fsum(rise.counts[1:]) / passes
        else:
            computed = sequences * (tokens / events if events else 1.0) / passing
        stretches.append(Stretch(steps, steps * sequences / batches, passes, computed))
    return stretches


def _active(layout: Layout, sequences: float) -> tuple[float, float]:
    """Return how many batches have a sequence, and how many groups of those that pass together."""
    sequences = max(1.0, sequences)
    return min(layout.batches, sequences), min(layout.replicas * layout.stages, sequences)
