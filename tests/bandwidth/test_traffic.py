"""What an engine did in a window, against counts of every single step."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cached_property

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.decodes import Answer, a_record, steady
from tests.support.shapes import GPT_OSS_120B, LLAMA_8B, QWEN3_30B, in_bf16
from tokenwatt_site.bandwidth.step import (
    Contexts,
    Layout,
    expert_bytes,
    fixed_bytes,
    row_bytes,
    sequence_bytes,
)
from tokenwatt_site.bandwidth.traffic import traffic_bytes, traffic_flops
from tokenwatt_site.bandwidth.work import work_of
from tokenwatt_site.evidence.engine import EngineLog, EngineSample
from tokenwatt_site.evidence.records import RequestRecord
from tokenwatt_site.model_shape.shape import AttentionLayers, ModelShape
from tokenwatt_site.simulate.engine import Engine, Limits, Request, Step
from tokenwatt_site.simulate.models import SimulatedModel
from tokenwatt_site.simulate.roofline import Roofline, boards
from tokenwatt_site.simulate.virtual import play

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
    unique_by=lambda answer: answer.first_step,  # two prompts never share a step here
)


def naive_bytes(shape: ModelShape, batch: list[Answer], first: int, last: int) -> float:
    """Add up the steps (first, last] one by one, each over what is in it: answers, or a prompt."""
    stored = in_bf16(shape)
    total = 0.0
    for step in range(first + 1, last + 1):
        inside = [(a, c) for a in batch if (c := a.context(step)) is not None]
        prompt = sum(answer.prompt for answer in batch if answer.first_step == step)
        if inside or prompt:
            tokens = sum(answer.per_step for answer, _ in inside)
            total += fixed_bytes(stored, ALONE) + expert_bytes(shape, stored, tokens + prompt)
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
    samples, steps = [], 1
    for step in range(130):
        steps += any(a.first_step == step or a.context(step) is not None for a in batch)
        samples.append(EngineSample(epoch_ns + step * step_ns, steps))
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
    assert found == pytest.approx(naive_bytes(HYBRID, batch, first, last), rel=1e-9, abs=1)


@pytest.mark.parametrize(
    "layout",
    [ALONE, Layout(replicas=4), Layout(stages=2), Layout(ranks=8), Layout(replicas=2, ranks=4)],
)
def test_the_counter_of_one_rank_gives_what_the_records_give(layout: Layout) -> None:
    # An engine counts the batches of all its stages, and its ranks step together.
    log = EngineLog({}, tuple(EngineSample(s * S, s * 50 * layout.stages) for s in range(11)))
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


class WatchedRoofline(Roofline):
    """Keeps the bytes by which it priced each step."""

    @cached_property
    def moved(self) -> list[int]:
        return []

    def step_ns(self, tokens: int, read: int, pairs: int) -> int:
        kv_bytes = sum(2 * group.layers * group.kv_values for group in self.model.shape.attention)
        self.moved.append(self.weight_bytes(tokens) + kv_bytes * read)
        return super().step_ns(tokens, read, pairs)


def simulated(shape: ModelShape, rate: int) -> tuple[list[RequestRecord], list[Step], list[int]]:
    """Answer 20 s of load on one H200; return the records, the steps, and what each step moved."""
    draw = random.Random(3)
    at_ns, asked = 0, []
    for number in range(20 * rate):
        at_ns += round(draw.expovariate(rate) * S)
        prompt = tuple(draw.randrange(1, 1 << 40) for _ in range(draw.randrange(100, 1500)))
        asked.append(Request(number, prompt, draw.randrange(50, 400), at_ns))
    model = SimulatedModel(shape.name, shape, in_bf16(shape))
    prices, steps = WatchedRoofline(model, boards("NVIDIA H200", 1)), []
    engine = Engine(prices, Limits(256, 2048, 800_000, 16_384))
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


@pytest.mark.parametrize(
    ("shape", "rate", "by_counter", "by_records"),
    [
        (LLAMA_8B, 2, 0.002, 0.005),
        (LLAMA_8B, 12, 0.002, 0.01),
        # Few answers: their number changes how long a step takes, which their means do not show.
        (QWEN3_30B, 2, 0.03, 0.05),
        (QWEN3_30B, 12, 0.005, 0.01),
    ],
)
def test_the_model_is_near_what_a_simulated_engine_truly_moved(
    shape: ModelShape, rate: int, by_counter: float, by_records: float
) -> None:
    records, steps, moved = simulated(shape, rate)
    start_ns, end_ns = 5 * S, 15 * S
    inside = [start_ns < step.end_ns <= end_ns for step in steps]
    truly = sum(m for m, counts in zip(moved, inside, strict=True) if counts)
    log = EngineLog(
        {}, tuple(EngineSample(s * S, sum(x.end_ns <= s * S for x in steps)) for s in range(20))
    )

    counted = work_of(records, start_ns, end_ns, ALONE, engine=log)
    seen = work_of(records, start_ns, end_ns, ALONE)
    assert counted.steps == pytest.approx(sum(inside))
    for work, within in ((counted, by_counter), (seen, by_records)):
        found = traffic_bytes(work, shape, in_bf16(shape), 2.0, ALONE)
        assert found == pytest.approx(truly, rel=within)


def test_b16_a_prompt_reaches_nearly_all_experts_but_in_one_pass_only() -> None:
    # One answer of 500 steps, and a prompt of 2,000 tokens in the midst of them.
    answer = a_record(0, 10 * S, output=501, events=501)
    prompt = a_record(5 * S, 5 * S, prompt=2000, output=1, events=1)
    stored = in_bf16(QWEN3_30B)
    alone, beside = (
        traffic_bytes(work_of(records, 0, 10 * S, ALONE), QWEN3_30B, stored, 2.0, ALONE)
        for records in ([answer], [answer, prompt])
    )

    once = expert_bytes(QWEN3_30B, stored, 2001) - expert_bytes(QWEN3_30B, stored, 1)
    assert beside - alone == pytest.approx(once + rows(2001, QWEN3_30B))


def test_events_that_bundle_several_steps_bring_a_token_to_each_and_reach_as_many_experts() -> None:
    # 8 answers, 150 steps a second; each token by itself, or three in an event.
    def read(records: list[RequestRecord]) -> float:
        log = EngineLog({}, tuple(EngineSample(s * S, s * 150) for s in range(11)))
        work = work_of(records, S, 9 * S, ALONE, engine=log)
        return traffic_bytes(work, QWEN3_30B, in_bf16(QWEN3_30B), 2.0, ALONE)

    single = [a_record(0, 10 * S, events=1501, output=1501) for _ in range(8)]
    bundled = [a_record(0, 10 * S, events=501, output=1501) for _ in range(8)]
    assert read(bundled) == pytest.approx(read(single), rel=1e-3)
