"""What an engine did in a window, against counts of every single step."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.decodes import Answer, a_record
from tests.support.shapes import GPT_OSS_120B, LLAMA_8B, QWEN3_30B, in_bf16
from tokenwatt_site.bandwidth import (
    Contexts,
    Layout,
    NoFigure,
    expert_bytes,
    fixed_bytes,
    row_bytes,
    sequence_bytes,
)
from tokenwatt_site.engine_log import EngineLog, EngineSample
from tokenwatt_site.model_shape.shape import AttentionLayers, ModelShape
from tokenwatt_site.simulate.engine import Engine, Limits, Request, Step
from tokenwatt_site.simulate.virtual import play
from tokenwatt_site.traffic import increments, traffic_bytes, traffic_flops, work_of

MS = 10**6
S = 10**9
ALONE = Layout()
HYBRID = replace(
    GPT_OSS_120B,
    attention=(*GPT_OSS_120B.attention, AttentionLayers("linear", 6, 0, 0, state_values=4096)),
)
"""Windows, full layers, a fixed state and experts, all in one."""

answers = st.lists(
    st.builds(
        Answer,
        first_step=st.integers(0, 60),
        steps=st.integers(1, 60),
        prompt=st.integers(1, 300),
        per_step=st.integers(1, 3),
    ),
    min_size=1,
    max_size=12,
)


def naive_bytes(shape: ModelShape, batch: list[Answer], first: int, last: int) -> float:
    """Add up the steps (first, last] one by one, each over the answers that are in it."""
    stored = in_bf16(shape)
    total = 0.0
    for step in range(first + 1, last + 1):
        inside = [(a, c) for a in batch if (c := a.context(step)) is not None]
        if inside:
            tokens = sum(answer.per_step for answer, _ in inside)
            total += fixed_bytes(stored, ALONE) + expert_bytes(shape, stored, tokens)
            total += sum(sequence_bytes(shape, 2, ALONE, Contexts(c)) for _, c in inside)
    return total


def rows(work_tokens: float, shape: ModelShape) -> float:
    return work_tokens * row_bytes(shape, in_bf16(shape))


@pytest.mark.parametrize("shape", [LLAMA_8B, HYBRID], ids=["dense", "hybrid"])
@given(batch=answers, edges=st.tuples(st.integers(0, 60), st.integers(1, 60)))
def test_the_records_give_what_a_count_of_every_step_gives(
    shape: ModelShape, batch: list[Answer], edges: tuple[int, int]
) -> None:
    first, last = edges[0], edges[0] + edges[1]
    step_ns = 7 * MS
    work = work_of(
        [answer.record(step_ns) for answer in batch], first * step_ns, last * step_ns, ALONE
    )

    found = traffic_bytes(work, shape, in_bf16(shape), 2.0, ALONE)
    found -= rows(work.prompt_tokens + work.delivered, shape)
    assert found == pytest.approx(naive_bytes(shape, batch, first, last), rel=1e-9, abs=1)


@given(batch=answers, edges=st.tuples(st.integers(0, 60), st.integers(1, 60)))
def test_a_look_at_the_counters_after_every_step_gives_the_same(
    batch: list[Answer], edges: tuple[int, int]
) -> None:
    first, last = edges[0], edges[0] + edges[1]
    step_ns, epoch_ns = 7 * MS, 5 * S
    samples, steps, tokens = [], 1, 0
    for step in range(130):
        made = sum(a.per_step for a in batch if a.context(step) is not None)
        steps, tokens = steps + (made > 0), tokens + made
        samples.append(EngineSample(epoch_ns + step * step_ns, steps, 0, tokens))
    work = work_of(
        [answer.record(step_ns) for answer in batch],
        first * step_ns,
        last * step_ns,
        ALONE,
        engine=EngineLog({}, tuple(samples)),
        epoch_ns=epoch_ns,
    )

    assert work.counted == "the engine's own counter"
    found = traffic_bytes(work, HYBRID, in_bf16(HYBRID), 2.0, ALONE)
    found -= rows(work.prompt_tokens + work.delivered, HYBRID)
    # A look tells the engine's tokens of a step, and the records how often each answer was read.
    assert found == pytest.approx(naive_bytes(HYBRID, batch, first, last), rel=1e-9, abs=1)


def test_windows_beside_each_other_add_up() -> None:
    draw = random.Random(7)
    records = [
        a_record(first, first + draw.randrange(1, 4 * S), prompt=draw.randrange(1, 5000))
        for first in (draw.randrange(0, 9 * S) for _ in range(50))
    ]
    edges = [S, 2_345_678_901, 4 * S, 9 * S]
    parts = [work_of(records, a, b, ALONE) for a, b in pairwise(edges)]
    whole = work_of(records, edges[0], edges[-1], ALONE)

    def read(work_parts: list) -> float:
        return math.fsum(
            sequence_bytes(LLAMA_8B, 2, ALONE, contexts)
            for work in work_parts
            for contexts in work.decoded
        )

    assert read(parts) == pytest.approx(read([whole]), rel=1e-12)
    assert sum(p.steps for p in parts) == pytest.approx(whole.steps, rel=1e-12)
    assert sum(p.prompt_tokens for p in parts) == whole.prompt_tokens


def steady(sequences: int, seconds: int = 10, per_event: int = 1, events_s: int = 50) -> list:
    """Return answers that are all in decode all the time."""
    events = events_s * seconds
    return [
        a_record(0, seconds * S, prompt=1000, output=1 + events * per_event, events=1 + events)
        for _ in range(sequences)
    ]


@pytest.mark.parametrize(
    ("layout", "steps", "passes", "tokens"),
    [
        (ALONE, 50, 50, 64),
        (Layout(replicas=4), 200, 200, 16),
        (Layout(stages=2), 100, 100, 32),
        (Layout(ranks=8), 400, 50, 64),
        (Layout(replicas=2, ranks=4), 400, 100, 32),
        (Layout(replicas=128), 3200, 3200, 1),
    ],
)
def test_replicas_split_the_batch_and_joined_ranks_share_the_experts(
    layout: Layout, steps: float, passes: float, tokens: float
) -> None:
    work = work_of(steady(64), 2 * S, 3 * S, layout)

    (stretch,) = work.stretches
    assert (stretch.steps, stretch.passes, stretch.tokens) == pytest.approx((steps, passes, tokens))
    assert stretch.sequence_steps == pytest.approx(64 * 50)


@pytest.mark.parametrize(
    "layout",
    [ALONE, Layout(replicas=4), Layout(stages=2), Layout(ranks=8), Layout(replicas=2, ranks=4)],
)
@pytest.mark.parametrize("counts_tokens", [True, False])
def test_the_counter_of_one_rank_gives_what_the_records_give(
    layout: Layout, counts_tokens: bool
) -> None:
    # An engine counts the batches of all its stages, and its ranks step together.
    steps_s, tokens_s = 50 * layout.stages, 50 * 64 // layout.replicas
    log = EngineLog(
        {},
        tuple(
            EngineSample(s * S, s * steps_s, *((0, s * tokens_s) if counts_tokens else ()))
            for s in range(11)
        ),
    )
    counted = work_of(steady(64), 2 * S, 7 * S, layout, engine=log)
    seen = work_of(steady(64), 2 * S, 7 * S, layout)

    assert counted.steps == pytest.approx(seen.steps)
    both = [traffic_bytes(w, QWEN3_30B, in_bf16(QWEN3_30B), 2.0, layout) for w in (counted, seen)]
    assert both[0] == pytest.approx(both[1], rel=1e-9)


def test_the_batch_is_taken_bit_by_bit_and_never_at_its_mean() -> None:
    # 60 answers for a second, then 4 for nine: the mean batch is 9.6.
    records = [a_record(0, S, events=51, output=51) for _ in range(56)]
    records += [a_record(0, 10 * S, events=501, output=501) for _ in range(4)]
    stored = in_bf16(QWEN3_30B)
    work = work_of(records, 0, 10 * S, ALONE)

    experts = sum(s.passes * expert_bytes(QWEN3_30B, stored, s.tokens) for s in work.stretches)
    by_step = 50 * expert_bytes(QWEN3_30B, stored, 60) + 450 * expert_bytes(QWEN3_30B, stored, 4)
    at_mean = 500 * expert_bytes(QWEN3_30B, stored, 9.6)
    assert experts == pytest.approx(by_step)
    assert at_mean > 1.3 * by_step


def test_speculation_reads_a_sequence_once_per_step_however_many_tokens_that_yields() -> None:
    plain = work_of(steady(8), S, 9 * S, ALONE)
    speculating = work_of(steady(8, per_event=3), S, 9 * S, ALONE)

    assert speculating.steps == plain.steps
    assert speculating.delivered == pytest.approx(3 * plain.delivered)
    assert speculating.tokens_per_event == 3
    assert speculating.reads_per_event == 1
    assert speculating.stretches[0].tokens == pytest.approx(3 * plain.stretches[0].tokens)


def test_the_engines_steps_tell_bundles_of_events_from_speculation() -> None:
    # 50 events a second of 3 tokens each: from 150 steps, or from 50 that speculate.
    def counted(steps_s: int) -> float:
        log = EngineLog({}, tuple(EngineSample(s * S, s * steps_s) for s in range(11)))
        return work_of(steady(8, per_event=3), S, 9 * S, ALONE, engine=log).reads_per_event

    assert counted(150) == pytest.approx(3)
    assert counted(50) == 1
    assert counted(500) == 3


def test_requests_that_never_decode_are_in_no_batch() -> None:
    records = [
        a_record(None, None, output=None, events=0),
        a_record(S, S, output=20, events=1),
        a_record(S, None, output=None, events=1),
        a_record(S, 2 * S, output=5, first_tokens=5, events=1),
    ]
    work = work_of(records, 0, 10 * S, ALONE)

    assert work.stretches == ()
    assert work.steps == 0
    assert (work.tokens_per_event, work.reads_per_event) == (1, 1)


def test_an_answer_that_was_cut_off_counts_as_long_as_it_came() -> None:
    cut = a_record(S, 3 * S, output=None, events=101)
    whole = a_record(S, 3 * S, output=101, events=101)

    assert work_of([cut], 0, 4 * S, ALONE).decoded == work_of([whole], 0, 4 * S, ALONE).decoded


def test_arithmetic_counts_prompts_without_what_was_cached() -> None:
    fresh = work_of([a_record(2 * S, 3 * S, prompt=100)], S, 4 * S, ALONE)
    cached = work_of([a_record(2 * S, 3 * S, prompt=100, cached=64)], S, 4 * S, ALONE)
    pair = 32 * 4 * 32 * 128

    assert (fresh.prompt_tokens, cached.prompt_tokens) == (100, 36)
    weights = 2 * (LLAMA_8B.active * 11 + (LLAMA_8B.active - LLAMA_8B.head) * 100)
    decoded = sum(range(101, 111))
    assert traffic_flops(fresh, LLAMA_8B) == pytest.approx(
        weights + pair * (sum(range(1, 101)) + decoded)
    )
    left_out = 2 * (LLAMA_8B.active - LLAMA_8B.head) * 64 + pair * sum(range(1, 65))
    assert traffic_flops(fresh, LLAMA_8B) - traffic_flops(cached, LLAMA_8B) == pytest.approx(
        left_out
    )


def looks(*rows: tuple[float, int | None]) -> EngineLog:
    return EngineLog({}, tuple(EngineSample(round(at * S), steps) for at, steps in rows))


def test_counters_are_taken_linearly_at_the_edges_of_the_window() -> None:
    found = increments(looks((0, 0), (1, 100), (2, 300), (3, 310)), ("steps",), S // 4, 5 * S // 2)

    assert [rise.counts[0] for rise in found] == pytest.approx([75, 200, 5])
    assert (found[0].start_ns, found[-1].end_ns) == (S // 4, 5 * S // 2)


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (looks(), "exports no counter"),
        (looks((0, None), (1, None), (3, None)), "exports no counter of its steps"),
        (looks((0, 0), (1, 10)), "around the window's edges"),
        (looks((1.5, 0), (2, 10), (5, 40)), "around the window's edges"),
        (looks((0, 0), (1.5, 10), (9, 90)), "around the window's edges"),
        (looks((0, 50), (1.2, 90), (1.6, 5), (3, 30)), "ran backwards"),
        (looks((0, 50), (1.5, 90), (1.5, 95), (3, 130)), "ran backwards"),
    ],
)
def test_steps_that_are_not_known_all_over_the_window_have_a_reason(
    log: EngineLog, why: str
) -> None:
    with pytest.raises(NoFigure, match=why):
        increments(log, ("steps",), S, 2 * S)


@dataclass
class WatchedPrices:
    """Prices of a step as the simulated engine asks for them, each with the bytes it moved."""

    moved: list[int]
    bytes_s: float = 4.8e12

    def step_ns(self, _tokens: int, read: int, _pairs: int) -> int:
        self.moved.append(15_009_849_344 + 131_072 * read)
        return math.ceil(self.moved[-1] / self.bytes_s * 1e9) + MS


def simulated(seed: int = 3, requests: int = 240) -> tuple[list, list[Step], list[int]]:
    """Answer a load of Llama-3-8B on one H200; return records, steps, and bytes of each step."""
    draw = random.Random(seed)
    at_ns, asked = 0, []
    for number in range(requests):
        at_ns += round(draw.expovariate(12) * S)
        prompt = tuple(draw.randrange(1, 128_256) for _ in range(draw.randrange(100, 1500)))
        asked.append(Request(number, prompt, draw.randrange(50, 400), at_ns))
    prices, steps = WatchedPrices([]), []
    engine = Engine(prices, Limits(256, 2048, 800_000, 16_384))  # type: ignore[arg-type]
    timelines = play(engine, asked, steps.append)
    records = [
        a_record(
            t.tokens_ns[0],
            t.tokens_ns[-1],
            prompt=len(request.prompt),
            output=request.output_tokens,
            events=request.output_tokens,
        )
        for request, t in ((r, timelines[r.number]) for r in asked)
    ]
    return records, steps, prices.moved


def test_the_model_is_near_what_a_simulated_engine_truly_moved() -> None:
    records, steps, moved = simulated()
    start_ns, end_ns = 5 * S, 15 * S
    truly = sum(m for step, m in zip(steps, moved, strict=True) if start_ns < step.end_ns <= end_ns)
    counted = sum(start_ns < step.end_ns <= end_ns for step in steps)
    looks_ns = range(0, 20 * S, S)
    log = EngineLog(
        {}, tuple(EngineSample(at, sum(s.end_ns <= at for s in steps)) for at in looks_ns)
    )
    stored = in_bf16(LLAMA_8B)

    by_counter = work_of(records, start_ns, end_ns, ALONE, engine=log)
    by_records = work_of(records, start_ns, end_ns, ALONE)
    bytes_by_counter, bytes_by_records = (
        traffic_bytes(work, LLAMA_8B, stored, 2.0, ALONE) for work in (by_counter, by_records)
    )
    # Not in the model: a prompt's chunks that read the chunks before them.
    assert by_counter.steps == counted
    assert bytes_by_counter == pytest.approx(truly, rel=0.02)
    assert by_records.steps == pytest.approx(counted, rel=0.03)
    assert bytes_by_records == pytest.approx(truly, rel=0.03)
