from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

from tests.support.clock import VirtualClock
from tokenwatt_site.evidence.power import Board, DramSpan, PowerSample
from tokenwatt_site.measure.clock import RunClock
from tokenwatt_site.measure.power import PowerMeter, ScriptedDramMeter, ScriptedMeter
from tokenwatt_site.measure.sampling import PowerSource, Sampler

S = 1_000_000_000
BOARDS = (Board(uuid="GPU-a", name="Toy"), Board(uuid="GPU-b", name="Toy"))


def by_time(at_ns: int) -> list[tuple[int | None, int | None]]:
    return [(100_000, at_ns // 1000), (200_000, None)]


def of_one(at_ns: int) -> list[tuple[int | None, int | None]]:
    return by_time(at_ns)[:1]


class SlowMeter(ScriptedMeter):
    """Takes virtual time to answer, `slow_s` in its second reading."""

    def __init__(self, clock: VirtualClock, slow_s: float) -> None:
        super().__init__(BOARDS, by_time)
        self._clock, self._slow_s, self._calls = clock, slow_s, 0

    def read(self, now_ns: Callable[[], int]) -> tuple[PowerSample, ...]:
        self._calls += 1
        if self._calls == 2:
            self._clock.wait(threading.Event(), self._slow_s)
        return super().read(now_ns)


@contextmanager
def sampling(
    meter: PowerMeter, clock: VirtualClock, period_ns: int = S
) -> Iterator[tuple[PowerSource, Sampler]]:
    source = PowerSource(meter)
    sampler = Sampler(source, period_ns, clock, "toy")
    sampler.start()
    assert sampler.await_first(10)
    yield source, sampler
    sampler.ask_to_stop()
    assert sampler.join(10)


def times(source: PowerSource) -> list[float]:
    """When the first board was read, in seconds."""
    return [sample.at_ns / S for sample in source.samples if sample.board == 0]


def test_readings_are_taken_at_once_at_every_deadline_and_at_the_end() -> None:
    clock = VirtualClock()
    with sampling(ScriptedMeter(BOARDS, by_time), clock) as (source, _):
        clock.pause(3.5)

    assert times(source) == [0, 1, 2, 3, 3.5]
    assert [sample.board for sample in source.samples] == [0, 1] * 5


def test_a_window_is_read_at_both_edges_beside_the_deadlines() -> None:
    clock = VirtualClock()
    with sampling(ScriptedMeter(BOARDS, by_time), clock) as (source, sampler):
        clock.pause(0.5)
        sampler.window(round(1.25 * S), round(3.75 * S))
        clock.pause(5)

    # After an edge a whole period goes by: counters that are read faster fall short.
    assert times(source) == [0, 1, 1.25, 2.25, 3.25, 3.75, 4.75, 5.5]


def test_what_no_instrument_can_have_read_is_no_value_and_the_rest_stays() -> None:
    clock = VirtualClock()

    class Garbage(ScriptedMeter):
        def read(self, now_ns: Callable[[], int]) -> tuple[PowerSample, ...]:
            garbage = (1 << 32) - 1
            return (PowerSample(now_ns(), 0, garbage, 7, celsius=garbage, sm_mhz=1980),)

    with sampling(Garbage(BOARDS[:1], of_one), clock) as (source, _):
        clock.pause(0.5)

    assert source.samples[0] == PowerSample(0, 0, None, 7, celsius=None, sm_mhz=1980)


def test_memory_traffic_is_measured_from_edge_to_edge_as_one_pair() -> None:
    clock = VirtualClock()
    with sampling(ScriptedDramMeter(BOARDS[:1], of_one), clock) as (source, sampler):
        sampler.window(2 * S, 7 * S)
        clock.pause(10)
        sampler.window(11 * S, 12 * S)
        clock.pause(3)

    assert [(s.start_ns, s.end_ns) for s in source.spans] == [
        (2 * S, 7 * S),
        (11 * S, 12 * S),
    ]


def test_a_window_that_is_broken_off_leaves_no_span_and_no_reading_at_its_end() -> None:
    clock = VirtualClock()
    ended: list[object] = []

    class Counting(ScriptedDramMeter):
        def end(self, begun: object, now_ns: Callable[[], int]) -> tuple[DramSpan, ...]:
            ended.append(begun)
            return super().end(begun, now_ns)

    with sampling(Counting(BOARDS[:1], of_one), clock) as (source, sampler):
        sampler.window(round(1.5 * S), round(9.25 * S))
        clock.pause(4)
        sampler.no_window()
        clock.pause(8)

    assert source.spans == []
    assert 9.25 not in times(source)
    assert ended == [round(1.5 * S)], "what the meter holds for the pair is released"


def test_an_edge_that_a_slow_reading_passed_is_taken_late_though_the_trial_is_over() -> None:
    clock = VirtualClock()

    class Slow(SlowMeter, ScriptedDramMeter):
        pass

    with sampling(Slow(clock, 4), clock) as (source, sampler):
        sampler.window(round(0.5 * S), 3 * S)
        clock.pause(1)
        clock.pause(2.5)
        sampler.no_window()
        clock.pause(3)

    assert [(s.start_ns, s.end_ns) for s in source.spans] == [(S // 2, round(4.5 * S))] * 2


def test_a_slow_reading_is_not_followed_by_a_burst() -> None:
    clock = VirtualClock()
    with sampling(SlowMeter(clock, 3.5), clock) as (source, _):
        clock.pause(8.5)

    assert times(source) == [0, 4.5, 5, 6, 7, 8, 8.5]


def test_a_slow_instrument_makes_no_gaps_for_another() -> None:
    clock = VirtualClock()
    with (
        sampling(SlowMeter(clock, 30), clock) as (slow, _),
        sampling(ScriptedMeter(BOARDS, by_time), clock) as (quick, _),
    ):
        clock.pause(40)

    assert max(b - a for a, b in pairwise(times(quick))) == 1
    assert max(b - a for a, b in pairwise(times(slow))) == 31


def test_b14_a_reading_that_fails_is_kept_as_missing_and_the_rest_goes_on() -> None:
    clock = VirtualClock()
    script = [[(1, 0), (2, 0)], None, [(1, 20), (2, 40)], [(1, 30), (2, 60)]]
    with sampling(ScriptedMeter(BOARDS, script), clock) as (source, _):
        clock.pause(2.5)

    assert [s.energy_mj for s in source.samples if s.board == 0] == [0, None, 20, 30]
    assert [s.energy_mj for s in source.samples if s.board == 1] == [0, None, 40, 60]


def test_a_pair_that_cannot_be_taken_leaves_the_readings_alone() -> None:
    clock = VirtualClock()

    class Broken(ScriptedDramMeter):
        def end(self, *_: object) -> tuple[DramSpan, ...]:
            raise OSError("no longer supported")

    with sampling(Broken(BOARDS[:1], of_one), clock) as (source, sampler):
        sampler.window(S, 2 * S)
        clock.pause(3.5)

    assert source.spans == []
    assert times(source) == [0, 1, 2, 3, 3.5]


def test_an_instrument_that_hangs_does_not_hold_up_the_end_and_keeps_what_it_read() -> None:
    clock, released, asked = RunClock(0), threading.Event(), threading.Event()

    class Hanging(ScriptedMeter):
        def read(self, now_ns: Callable[[], int]) -> tuple[PowerSample, ...]:
            if asked.is_set():
                released.wait(60)
            asked.set()
            return super().read(now_ns)

    meter = Hanging(BOARDS[:1], of_one)
    source = PowerSource(meter)
    sampler = Sampler(source, S, clock, "hanging")
    sampler.start()
    assert sampler.await_first(10)
    sampler.ask_to_stop()

    assert not sampler.join(0)
    assert len(source.samples) == 1
    assert not meter.closed, "it is in use"

    released.set()
    assert sampler.join(10)
    assert meter.closed


def test_a_real_clock_is_waited_by_and_woken() -> None:
    source = PowerSource(meter := ScriptedMeter(BOARDS, by_time))
    sampler = Sampler(source, 3600 * S, RunClock(0), "real")
    sampler.start()
    assert sampler.await_first(10)
    sampler.window(0, 1)  # past already, so both edges are read now
    sampler.ask_to_stop()

    assert sampler.join(10)
    assert len(source.samples) == 2 * 4
    assert meter.closed


def test_a_source_knows_how_long_asking_took_at_most() -> None:
    now = [0]

    def slow(at_ns: int) -> list[tuple[int | None, int | None]]:
        now[0] += S // 4 if at_ns else S // 10
        return by_time(at_ns)

    source = PowerSource(ScriptedMeter(BOARDS, slow))
    for _ in range(2):
        source.read(lambda: now[0])
    assert source.longest_ns == S // 4
