"""What an engine did in a window, counted from records and from the engine's own counters."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from tests.support.decodes import a_record, steady
from tests.support.shapes import LLAMA_8B
from tokenwatt_site.bandwidth.step import Layout, NoFigure, sequence_bytes
from tokenwatt_site.bandwidth.work import increments, work_of
from tokenwatt_site.evidence.engine import EngineLog, EngineSample

S = 10**9
ALONE = Layout()


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

    assert work.decoded == ()
    # Each prompt by itself was a step, over no answer.
    assert work.steps == len(work.prompts) == 3
    assert all(stretch.sequence_steps == 0 for stretch in work.stretches)
    assert (work.tokens_per_event, work.reads_per_event) == (1, 1)


def test_an_answer_that_was_cut_off_counts_as_long_as_it_came() -> None:
    cut = a_record(S, 3 * S, output=None, events=101)
    whole = a_record(S, 3 * S, output=101, events=101)

    assert work_of([cut], 0, 4 * S, ALONE).decoded == work_of([whole], 0, 4 * S, ALONE).decoded


def looks(*rows: tuple[float, int | None]) -> EngineLog:
    return EngineLog({}, tuple(EngineSample(round(at * S), steps) for at, steps in rows))


def test_counters_are_taken_linearly_at_the_edges_of_the_window() -> None:
    found = increments(looks((0, 0), (1, 100), (2, 300), (3, 310)), "steps", S // 4, 5 * S // 2)

    assert [rise.count for rise in found] == pytest.approx([75, 200, 5])
    assert (found[0].start_ns, found[-1].end_ns) == (S // 4, 5 * S // 2)


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (looks(), "around the window's edges"),
        (looks((0, None), (1, 5), (3, None)), "around the window's edges"),
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
        increments(log, "steps", S, 2 * S)
