from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import naive_engine
from tokenwatt_site.errors import UsageError
from tokenwatt_site.simulate.engine import Engine, Limits, Request, Step
from tokenwatt_site.simulate.models import named
from tokenwatt_site.simulate.roofline import Roofline, boards
from tokenwatt_site.simulate.virtual import Timeline, play

MS = 1_000_000
PRICES = Roofline(named("smollm2-135m"), boards("NVIDIA H200", 1))


def engine(
    *, max_batch: int = 8, token_budget: int = 64, kv_tokens: int = 4096, max_model_len: int = 512
) -> Engine:
    return Engine(PRICES, Limits(max_batch, token_budget, kv_tokens, max_model_len))


def request(number: int, prompt: int, output: int, arrival_ns: int = 0) -> Request:
    """A request whose prompt shares no block with that of another number."""
    return Request(
        number, tuple(1000 * (number + 1) + i for i in range(prompt)), output, arrival_ns
    )


@st.composite
def loads(draw: st.DrawFn) -> tuple[Limits, list[Request]]:
    """Small limits, and requests that often begin alike and often do not fit together."""
    max_batch = draw(st.integers(1, 5))
    limits = Limits(
        max_batch=max_batch,
        token_budget=max_batch + draw(st.integers(0, 40)),
        kv_tokens=draw(st.integers(96, 300)),
        max_model_len=96,
    )
    arrival_ns, made = 0, []
    for number in range(draw(st.integers(1, 12))):
        arrival_ns += draw(st.sampled_from([0, 0, MS // 2, 3 * MS, 200 * MS]))
        family = draw(st.integers(1, 2))
        common = draw(st.integers(0, 50))
        own = draw(st.integers(1, 20))
        prompt = (family,) * common + (3 + number,) * own
        made.append(Request(number, prompt, draw(st.integers(1, 96 - len(prompt))), arrival_ns))
    return limits, made


def answered(limits: Limits, requests: list[Request]) -> tuple[dict[int, Timeline], list[Step]]:
    steps: list[Step] = []
    return play(Engine(PRICES, limits), requests, steps.append), steps


@given(loads())
def test_every_time_is_that_of_a_slow_and_plain_scheduler(
    load: tuple[Limits, list[Request]],
) -> None:
    limits, requests = load
    expected = naive_engine.serve(
        [(r.prompt, r.output_tokens, r.arrival_ns) for r in requests],
        max_batch=limits.max_batch,
        token_budget=limits.token_budget,
        kv_tokens=limits.kv_tokens,
        step_ns=PRICES.step_ns,
    )
    timelines, _ = answered(limits, requests)
    for number, truth in enumerate(expected):
        assert truth.admitted is not None
        assert timelines[number] == Timeline(truth.admitted, truth.cached, tuple(truth.times))


@given(loads())
def test_limits_hold_in_every_step_and_every_request_gets_exactly_its_tokens(
    load: tuple[Limits, list[Request]],
) -> None:
    limits, requests = load
    running = Engine(PRICES, limits)
    usages: list[float] = []
    batches: list[int] = []
    steps: list[Step] = []

    def watch(step: Step) -> None:
        steps.append(step)
        usages.append(running.kv_usage)
        batches.append(running.running)

    timelines = play(running, requests, watch)
    assert max(usages) <= 1
    assert max(batches) <= limits.max_batch
    assert max(step.tokens for step in steps) <= limits.token_budget
    assert all(step.tokens >= batch >= 1 for step, batch in zip(steps, batches, strict=True))
    assert (running.running, running.waiting, running.kv_usage) == (0, 0, 0)
    for asked in requests:
        timeline = timelines[asked.number]
        times = timeline.tokens_ns
        assert len(times) == asked.output_tokens
        assert list(times) == sorted(set(times))
        assert asked.arrival_ns <= timeline.admitted_ns < times[0]
        assert timeline.cached_tokens % 16 == 0
        assert timeline.cached_tokens < len(asked.prompt)


@given(loads())
def test_requests_are_admitted_in_the_order_of_arrival(load: tuple[Limits, list[Request]]) -> None:
    limits, requests = load
    _, steps = answered(limits, requests)
    admitted = [g.request.number for step in steps for g in step.admitted]
    assert admitted == sorted(admitted) == [asked.number for asked in requests]


@given(loads())
def test_steps_follow_each_other_without_a_gap_while_there_is_work(
    load: tuple[Limits, list[Request]],
) -> None:
    limits, requests = load
    timelines, steps = answered(limits, requests)
    open_until = {asked.number: timelines[asked.number].tokens_ns[-1] for asked in requests}
    for before, after in itertools.pairwise(steps):
        assert after.start_ns >= before.end_ns
        if after.start_ns > before.end_ns:
            arrived = [r for r in requests if r.arrival_ns <= before.end_ns]
            assert all(open_until[r.number] <= before.end_ns for r in arrived)


def test_one_request_alone_has_the_times_of_its_steps() -> None:
    # 100 prompt tokens in chunks of 64 and 36, then one token a step.
    timeline = play(engine(), [request(0, 100, 3, 5 * MS)])[0]
    first = 5 * MS + PRICES.step_ns(64, 64, 64 * 65 // 2)
    first += PRICES.step_ns(36, 100, 36 * 64 + 36 * 37 // 2)
    second = first + PRICES.step_ns(1, 101, 101)
    third = second + PRICES.step_ns(1, 102, 102)
    assert timeline == Timeline(5 * MS, 0, (first, second, third))


def test_running_answers_go_before_prompts_and_share_each_step() -> None:
    timelines = play(engine(), [request(0, 16, 4), request(1, 100, 2, 1)])
    first = PRICES.step_ns(16, 16, 16 * 17 // 2)
    second = first + PRICES.step_ns(64, 17 + 63, 17 + 63 * 64 // 2)
    third = second + PRICES.step_ns(38, 18 + 100, 18 + 37 * 63 + 37 * 38 // 2)
    assert timelines[0].tokens_ns[:3] == (first, second, third)
    assert timelines[1].admitted_ns == first
    assert timelines[1].tokens_ns[0] == third


def test_the_newest_is_put_back_when_memory_is_full_and_still_ends_with_its_tokens() -> None:
    running = engine(max_batch=2, kv_tokens=64, max_model_len=64)
    timelines = play(running, [request(0, 16, 40), request(1, 16, 40)])
    assert running.preemptions > 0
    assert [len(timelines[n].tokens_ns) for n in (0, 1)] == [40, 40]
    gaps = [b - a for a, b in itertools.pairwise(timelines[0].tokens_ns)]
    assert max(gaps) < 2 * min(gaps)  # the older one never waited
    assert timelines[1].tokens_ns[-1] > timelines[0].tokens_ns[-1]


def test_a_prompt_that_begins_like_one_in_memory_is_computed_from_where_they_differ() -> None:
    running = engine()
    prompt = tuple(range(1, 49))
    asked = [
        Request(0, prompt, 1, 0),
        Request(1, prompt, 1, 100 * MS),
        Request(2, (*prompt[:40], 7, 8, 9), 1, 200 * MS),
        Request(3, (9, *prompt[1:]), 1, 300 * MS),
    ]
    timelines = play(running, asked)
    # Whole blocks of 16, and the last token is always computed: 48 tokens give 32.
    assert [timelines[n].cached_tokens for n in range(4)] == [0, 32, 32, 0]
    assert (running.prefix_queries, running.prefix_hits) == (48 + 48 + 43 + 48, 64)
    again = timelines[1].tokens_ns[0] - 100 * MS
    assert again == PRICES.step_ns(16, 48, 16 * 32 + 16 * 17 // 2)


def test_the_answer_before_is_found_in_the_prompt_of_the_next_turn() -> None:
    first = Request(0, tuple(range(1, 21)), 30, 0)
    turn = (*first.prompt, *(0,) * 30, 5, 6)
    assert play(engine(), [first, Request(1, turn, 1, 1000 * MS)])[1].cached_tokens == 48


def test_what_is_in_no_use_longest_makes_room_first() -> None:
    running = engine(kv_tokens=96, max_model_len=96)
    asked = [
        request(0, 32, 1),
        request(1, 32, 1, 100 * MS),
        request(2, 48, 1, 200 * MS),
        Request(3, (*request(1, 32, 1).prompt, 1), 1, 300 * MS),
        Request(4, (*request(0, 32, 1).prompt, 1), 1, 400 * MS),
    ]
    timelines = play(running, asked)
    assert [timelines[n].cached_tokens for n in (3, 4)] == [32, 0]


def test_a_request_that_left_gives_its_place_to_the_next() -> None:
    running = engine(max_batch=1)
    first, second = (running.submit(request(n, 16, 5)) for n in (0, 1))
    running.begin(0)
    running.abort(first)
    assert running.end() == []
    assert running.next_start_ns(7) == 7
    running.begin(7)
    assert running.end() == [second]
    running.abort(second)
    assert (running.running, running.waiting, running.kv_usage) == (0, 0, 0)
    assert running.next_start_ns(9) is None


def test_a_waiting_request_that_left_is_never_worked_on() -> None:
    running = engine(max_batch=1)
    generations = [running.submit(request(n, 16, 1)) for n in range(3)]
    running.abort(generations[1])
    done = []
    while (start := running.next_start_ns(0)) is not None:
        running.begin(start)
        done += running.end()
    assert done == [generations[0], generations[2]]
    assert generations[1].admitted_ns is None


@pytest.mark.parametrize(
    "wrong", [request(0, 0, 1), request(0, 1, 0), request(0, 500, 13)], ids=["", "no", "long"]
)
def test_a_request_that_cannot_be_answered_is_a_value_error(wrong: Request) -> None:
    with pytest.raises(ValueError, match="request 0"):
        engine().submit(wrong)


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ((0, 64, 512, 512), "--max-batch"),
        ((8, 7, 512, 512), "--token-budget"),
        ((8, 64, 527, 513), "--kv-tokens"),
        ((8, 64, 512, 1), "--max-model-len"),
    ],
)
def test_limits_that_would_stop_the_engine_are_refused(
    limits: tuple[int, int, int, int], field: str
) -> None:
    with pytest.raises(UsageError, match=field):
        Limits(*limits)


def poisson(share: float, requests: int) -> tuple[list[Request], float]:
    """Return requests of 16 + 16 tokens at a share of what a full batch of 8 can do, and the rate.

    A full batch makes 8 tokens a step; a request needs one step for its prompt and 15 more.
    """
    step_ns = PRICES.step_ns(8, 8 * 24, 8 * 24)
    rate = share * 8 / (16 * step_ns)
    draw = random.Random(7)
    now = 0.0
    made = []
    for number in range(requests):
        now += draw.expovariate(rate)
        made.append(request(number, 16, 16, round(now)))
    return made, rate


@pytest.mark.parametrize(("share", "drains"), [(0.7, True), (1.4, False)])
def test_the_queue_drains_below_capacity_and_grows_above(share: float, drains: bool) -> None:
    asked, _ = poisson(share, 1500)
    timelines = play(engine(), asked)
    waits = [timelines[r.number].admitted_ns - r.arrival_ns for r in asked]
    early, late = (sum(part) / len(part) for part in (waits[:500], waits[-500:]))
    service_ns = 16 * PRICES.step_ns(8, 8 * 24, 8 * 24)
    assert (late < service_ns) == drains
    assert (late > 4 * early) == (not drains)


def test_littles_law_holds_for_what_is_in_the_batch() -> None:
    asked, _ = poisson(0.6, 1500)
    running = engine()
    areas_ns: list[int] = []
    timelines = play(
        running, asked, lambda s: areas_ns.append(running.running * (s.end_ns - s.start_ns))
    )
    # What steps see of the batch, and what requests see of their time in it, are the same sum.
    in_batch = sum(areas_ns)
    in_engine = sum(t.tokens_ns[-1] - t.admitted_ns for t in timelines.values())
    assert in_batch == in_engine


def test_far_apart_requests_use_the_engine_for_their_own_times_and_no_more() -> None:
    gap_ns = 40 * MS
    asked = [request(n, 16, 4, n * gap_ns) for n in range(20)]
    steps: list[Step] = []
    timelines = play(engine(), asked, steps.append)
    alone = timelines[0].tokens_ns[-1]
    busy = sum(step.end_ns - step.start_ns for step in steps)
    assert busy == 20 * alone  # utilisation = rate x service time
    assert [t.tokens_ns[-1] - n * gap_ns for n, t in timelines.items()] == [alone] * 20


def test_the_same_seed_gives_the_same_times_and_another_seed_a_pace_of_its_own() -> None:
    asked, _ = poisson(0.7, 50)
    limits = Limits(8, 64, 4096, 512)

    def times(seed: int | None) -> list[Timeline]:
        prices = Roofline(PRICES.model, PRICES.boards, seed=seed)
        return list(play(Engine(prices, limits), asked).values())

    assert times(1) == times(1)
    assert times(1) != times(2)
    assert times(None) == list(play(engine(), asked).values())
