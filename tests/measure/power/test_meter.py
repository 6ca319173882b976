from __future__ import annotations

from itertools import pairwise

from tokenwatt_site.measure.power import Sampler, ScriptedMeter
from tokenwatt_site.power_log import Board, decode_power, encode_power

BOARDS = (
    Board(uuid="GPU-a", name="Toy", limit_mw=700_000),
    Board(uuid="GPU-b", name="Toy", limit_mw=None),
)


class FakeTime:
    """A clock that only waiting moves; after `turns` waits it says stop."""

    def __init__(self, turns: int, late_s: float = 0.0) -> None:
        self.ns = 1_000
        self.turns = turns
        self.late_s = late_s

    def now_ns(self) -> int:
        return self.ns

    def wait(self, seconds: float) -> bool:
        self.ns += round((seconds + self.late_s) * 1e9)
        self.turns -= 1
        return self.turns < 0


def sampled(meter: ScriptedMeter, time: FakeTime, rate_hz: float = 1.0) -> Sampler:
    sampler = Sampler(meter, rate_hz, now_ns=time.now_ns, wait=time.wait)
    sampler.start()
    sampler._thread.join()
    return sampler


def readings(count: int) -> list[list[tuple[int | None, int | None]]]:
    return [[(100_000 + i, 1_000 * i), (None, 2_000 * i)] for i in range(count)]


def test_samples_are_taken_at_once_at_every_deadline_and_at_the_end() -> None:
    time = FakeTime(turns=3)

    log = sampled(ScriptedMeter(BOARDS, readings(5)), time).stop()

    stamps = sorted({sample.at_ns for sample in log.samples})
    assert stamps == [1_000 + n * 1_000_000_000 for n in range(5)]
    assert [sample.board for sample in log.samples] == [0, 1] * 5
    assert (log.sensor, log.scope, log.boards) == ("nvml", "gpu", BOARDS)


def test_the_log_goes_through_the_evidence_format_unchanged() -> None:
    log = sampled(ScriptedMeter(BOARDS, readings(5)), FakeTime(turns=3)).stop()

    assert decode_power(encode_power(log), source="power") == log


def test_a_higher_rate_than_counters_stand_is_not_used() -> None:
    log = sampled(ScriptedMeter(BOARDS, readings(4)), FakeTime(turns=2), rate_hz=20).stop()

    assert log.samples[2].at_ns - log.samples[0].at_ns == 1_000_000_000


def test_a_late_reading_is_not_followed_by_a_burst() -> None:
    time = FakeTime(turns=2, late_s=2.5)

    log = sampled(ScriptedMeter(BOARDS, readings(4)), time).stop()

    stamps = sorted({sample.at_ns for sample in log.samples})
    assert [b - a for a, b in pairwise(stamps)] == [
        3_500_000_000,
        3_000_000_000,
        3_000_000_000,
    ]


def test_b14_a_reading_that_fails_is_kept_as_missing_and_the_rest_goes_on() -> None:
    good = readings(4)
    script = [good[0], None, good[2], good[3]]

    sampler = sampled(ScriptedMeter(BOARDS, script), FakeTime(turns=2))
    log = sampler.stop()

    assert [s.energy_mj for s in log.samples if s.board == 0] == [0, None, 2_000, 3_000]


def test_a_meter_that_never_answers_leaves_only_missing_samples() -> None:
    sampler = sampled(ScriptedMeter(BOARDS, []), FakeTime(turns=1))

    log = sampler.stop()

    assert {(s.power_mw, s.energy_mj) for s in log.samples} == {(None, None)}


def test_a_real_thread_stops_when_told() -> None:
    sampler = Sampler(ScriptedMeter(BOARDS, readings(2)), 0.001)

    sampler.start()
    log = sampler.stop()

    assert len(log.samples) == 4
    assert not sampler._thread.is_alive()
