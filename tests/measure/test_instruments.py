from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.measure.power.test_dcgm import scrape
from tests.measure.stub_engine import StubEngine, serving
from tests.support.clock import VirtualClock
from tests.support.runs import small_spec
from tokenwatt_site.energy.window import window_energy
from tokenwatt_site.errors import EngineError
from tokenwatt_site.evidence.engine import EngineSample
from tokenwatt_site.evidence.power import Board, PowerSample, decode_power, encode_power
from tokenwatt_site.measure import instruments as module
from tokenwatt_site.measure.counters import Counters
from tokenwatt_site.measure.instruments import EngineSource, Instruments, engine_source
from tokenwatt_site.measure.power import OpenedMeters, ScriptedDramMeter, ScriptedMeter
from tokenwatt_site.measure.power.dcgm import DcgmMeter, ExporterUnavailable
from tokenwatt_site.spec import Spec

S = 1_000_000_000
POWERED = {"sensor": "dcgm", "scope": "gpu", "rate_hz": 1}


def spec(rate_hz: float = 1) -> Spec:
    urls = [{"sensor": "dcgm", "url": f"http://node-{n}:9400/metrics"} for n in (1, 2)]
    return small_spec(setup__power=POWERED | {"rate_hz": rate_hz}, instruments=urls)


def meter(*uuids: str, watts: int = 100, **changes: Any) -> ScriptedMeter:
    def reading(at_ns: int) -> list[tuple[int | None, int | None]]:
        return [(watts * 1000, watts * at_ns // 1_000_000) for _ in uuids]

    boards = [Board(uuid=uuid, name="Toy") for uuid in uuids]
    return ScriptedDramMeter(boards, reading, sensor="dcgm", **changes)


def opened(*primary: ScriptedMeter, beside: tuple[tuple[int, ScriptedMeter], ...] = ()) -> Any:
    return OpenedMeters(primary, None, beside, ())


def llama_cpp(steps: int, running: int) -> bytes:
    return (
        f"llamacpp:n_decode_total {steps}\nllamacpp:requests_processing {running}\n"
        "llamacpp:requests_deferred 0\n"
    ).encode()


def counting(ask: Callable[[], bytes]) -> EngineSource:
    counters = Counters.of(llama_cpp(0, 0))
    assert counters is not None
    return EngineSource(ask, counters)


def never(names: list[str]) -> None:
    raise AssertionError(names)


def test_b2_nodes_are_one_log_in_which_a_board_told_of_twice_counts_once() -> None:
    clock = VirtualClock()
    one, two = meter("GPU-a", "GPU-b"), meter("GPU-b", "GPU-c", watts=300)
    instruments = Instruments(spec(), opened(one, two), None, clock)
    with instruments.running(never):
        instruments.window(S, 2 * S)
        clock.pause(3.5)

    log = instruments.recorded().power
    assert log is not None
    assert [board.uuid for board in log.boards] == ["GPU-a", "GPU-b", "GPU-c"]
    assert instruments.boards == log.boards
    assert {(s.board, s.power_mw) for s in log.samples} == {
        (0, 100_000),
        (1, 100_000),
        (2, 300_000),
    }
    assert len(log.samples) == 3 * 5
    assert [s.at_ns for s in log.samples] == sorted(s.at_ns for s in log.samples)
    assert sorted(span.board for span in log.spans) == [0, 1, 2]
    assert (log.sensor, log.scope, log.period_ns) == ("dcgm", "gpu", S)
    assert decode_power(encode_power(log), source="power") == log
    assert one.closed
    assert two.closed


def test_boards_of_several_nodes_say_on_which_they_are() -> None:
    clock = VirtualClock()
    instruments = Instruments(spec(), opened(meter("GPU-a"), meter("GPU-b")), None, clock)
    with instruments.running(never):
        clock.pause(2)
    log = instruments.recorded().power
    assert log is not None
    assert [board.node for board in log.boards] == [1, 2]
    assert decode_power(encode_power(log), source="power") == log
    assert instruments.read_within_ns == [0, 0]  # no time passes while they are asked


def test_two_exporters_are_one_log_and_the_one_that_stops_leaves_no_sum() -> None:
    clock = VirtualClock()

    def node(*uuids: str, until_s: float) -> DcgmMeter:
        def get(_: str) -> bytes:
            if clock.now_ns() > until_s * S:
                raise ExporterUnavailable("the exporter does not answer")
            counted_mj = 300 * clock.now_ns() // 1_000_000
            return scrape(*((uuid, 300.0, counted_mj) for uuid in uuids)).encode()

        return DcgmMeter("http://node/metrics", get=get)

    # Both tell of GPU-b, which counts once.
    meters = (node("GPU-a", "GPU-b", until_s=99), node("GPU-b", "GPU-c", until_s=4.5))
    instruments = Instruments(spec(), OpenedMeters(meters, None, (), ()), None, clock)
    with instruments.running(never):
        clock.pause(9)
    log = instruments.recorded().power
    assert log is not None
    assert [(board.uuid, board.node) for board in log.boards] == [
        ("GPU-a", 1),
        ("GPU-b", 1),
        ("GPU-c", 2),
    ]
    whole = window_energy(log, 2 * S, 4 * S, max_gap_ns=3 * S)
    assert whole.energy_mj == pytest.approx(3 * 2 * 300_000)
    part = window_energy(log, 2 * S, 8 * S, max_gap_ns=3 * S)
    assert part.energy_mj is None
    assert [board.energy_mj for board in part.by_board[:2]] == pytest.approx([1_800_000] * 2)
    assert part.findings[0].text.startswith("board 2 (NVIDIA H200)")


def test_one_node_is_none_of_several() -> None:
    instruments = Instruments(spec(), opened(meter("GPU-a")), None, VirtualClock())
    assert [board.node for board in instruments.boards] == [None]
    assert instruments.read_within_ns == []
    instruments.close()


def test_what_stands_beside_is_a_log_of_its_own_by_its_place_in_the_spec() -> None:
    clock = VirtualClock()
    host = meter("bmc/redfish/v1/Chassis/1", watts=900, scope="host")
    instruments = Instruments(spec(), opened(meter("GPU-a"), beside=((2, host),)), None, clock)
    with instruments.running(never):
        clock.pause(2)

    ((number, log),) = instruments.recorded().beside
    assert (number, log.scope, len(log.samples)) == (2, "host", 4)


@pytest.mark.parametrize(("rate_hz", "period_ns"), [(1, S), (0.25, 4 * S)])
def test_meters_are_read_as_often_as_the_spec_asks(rate_hz: float, period_ns: int) -> None:
    clock = VirtualClock()
    instruments = Instruments(spec(rate_hz), opened(meter("GPU-a")), None, clock)
    with instruments.running(never):
        clock.pause(8)

    log = instruments.recorded().power
    assert log is not None
    stamps = [sample.at_ns for sample in log.samples]
    assert stamps[1] - stamps[0] == log.period_ns == period_ns


def test_the_engine_is_idle_once_its_counters_say_so_and_a_second_is_forgotten() -> None:
    clock = VirtualClock()

    def ask() -> bytes:
        return llama_cpp(clock.now_ns() // S, running=int(clock.now_ns() < 4 * S))

    instruments = Instruments(spec(), opened(meter("GPU-a")), counting(ask), clock)
    with instruments.running(never):
        assert instruments.busy()
        span = instruments.idle()

    assert span == (4 * S + 2 * S, 4 * S + 12 * S)
    log = instruments.recorded().engine
    assert log is not None
    assert log.names["steps"] == "llamacpp:n_decode_total"
    assert [(s.steps, s.running) for s in log.samples[3:6]] == [(3, 1), (4, 0), (5, 0)]
    assert [s.at_ns for s in log.samples[:3]] == [0, S, 2 * S]


def test_watts_that_are_the_mean_of_a_second_enclose_an_idle_time_after_which_all_ends() -> None:
    clock = VirtualClock()
    board = meter("GPU-a")
    board.averaging_ns = S
    instruments = Instruments(spec(), opened(board), None, clock)
    with instruments.running(never):
        clock.pause(2)
        span = instruments.idle()

    log = instruments.recorded().power
    assert log is not None
    assert span is not None
    by_watts = replace(log, samples=tuple(replace(s, energy_mj=None) for s in log.samples))
    assert window_energy(by_watts, *span, max_gap_ns=3 * S).energy_mj == pytest.approx(1e6)


def test_counters_that_fall_are_an_engine_that_started_anew_and_end_the_log() -> None:
    clock = VirtualClock()

    def ask() -> bytes:
        return llama_cpp([7, 8, 9, 0, 12, 13][clock.now_ns() // S], running=0)

    instruments = Instruments(spec(), opened(), counting(ask), clock)
    with instruments.running(never):
        clock.pause(2.5)
        assert not instruments.restarted()
        clock.pause(2.5)
        assert instruments.restarted()

    log = instruments.recorded().engine
    assert log is not None
    assert [sample.steps for sample in log.samples] == [7, 8, 9]


def test_what_meters_did_not_take_is_told_with_their_names() -> None:
    one, two, beside = meter("GPU-a"), meter("GPU-b"), meter("GPU-c")
    two.notes, beside.notes = ("0 W is no reading",), ("no counter", "no watts")
    instruments = Instruments(spec(), opened(one, two, beside=((3, beside),)), None, VirtualClock())
    assert instruments.notes == [
        "dcgm, node 2: 0 W is no reading",
        "instrument 3, dcgm: no counter",
        "instrument 3, dcgm: no watts",
    ]
    instruments.close()


def test_an_engine_that_never_rests_has_no_idle_time() -> None:
    clock = VirtualClock()
    source = counting(lambda: llama_cpp(1, running=1))
    instruments = Instruments(spec(), opened(meter("GPU-a")), source, clock)
    with instruments.running(never):
        assert instruments.idle() is None


def test_a_meter_that_is_read_seldom_is_read_twice_in_the_idle_time() -> None:
    clock = VirtualClock()
    instruments = Instruments(spec(0.05), opened(meter("GPU-a")), None, clock)
    with instruments.running(never):
        span = instruments.idle()

    assert span == (2 * S, 42 * S)


def test_counters_that_do_not_answer_once_leave_a_gap_and_no_zero() -> None:
    clock = VirtualClock()

    def ask() -> bytes:
        if clock.now_ns() == S:
            raise EngineError("no answer")
        return llama_cpp(7, running=0)

    instruments = Instruments(spec(), opened(), counting(ask), clock)
    with instruments.running(never):
        clock.pause(1.5)

    recorded = instruments.recorded()
    assert recorded.engine is not None
    assert recorded.engine.samples[1] == EngineSample(S)
    assert [s.steps for s in recorded.engine.samples] == [7, None, 7]
    assert recorded.power is None
    assert not instruments.has_power


def test_counters_are_parsed_between_trials_and_not_while_load_runs() -> None:
    clock = VirtualClock()
    parsed: list[int] = []

    class Watched(Counters):
        def read(self, text: bytes | None, at_ns: int) -> EngineSample:
            parsed.append(at_ns)
            return super().read(text, at_ns)

    counters = Counters.of(llama_cpp(0, 0))
    assert counters is not None
    source = EngineSource(lambda: llama_cpp(1, 1), Watched(counters.names))
    instruments = Instruments(spec(), opened(), source, clock)
    with instruments.running(never):
        instruments.window(0, 3 * S)
        clock.pause(3.5)
        assert parsed == []
        instruments.no_window()
        assert len(parsed) >= 4


def test_what_hangs_is_named_and_its_log_ends_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAST_READING_S", 0)
    clock, released = VirtualClock(), threading.Event()

    class Hanging(ScriptedMeter):
        def read(self, now_ns: Callable[[], int]) -> tuple[PowerSample, ...]:
            if now_ns() > S:
                released.wait(60)
            return super().read(now_ns)

    boards = [Board(uuid="GPU-a", name="Toy")]
    hanging = Hanging(boards, lambda at_ns: [(5, at_ns)], sensor="dcgm")
    instruments = Instruments(spec(), opened(hanging), None, clock)
    hung: list[str] = []
    with instruments.running(hung.extend):
        clock.pause(1.5)

    log = instruments.recorded().power
    assert hung == ["dcgm"]
    assert log is not None
    assert [sample.at_ns for sample in log.samples] == [0, S]
    released.set()


def test_meters_that_were_never_read_are_released_all_the_same() -> None:
    one = meter("GPU-a")
    Instruments(spec(), opened(one), None, VirtualClock()).close()

    assert one.closed


@pytest.mark.parametrize("text", [None, b"process_start_time_seconds 1\n", b"<html>"])
def test_an_engine_without_counters_that_are_known_has_no_source(text: bytes | None) -> None:
    engine = StubEngine(get={} if text is None else {"/metrics": (200, {}, text)})
    with serving(engine) as url:
        assert engine_source(url, None) is None
    assert engine_source("http://127.0.0.1:9", None) is None


def test_the_counters_of_an_engine_are_asked_at_its_metrics() -> None:
    engine = StubEngine(get={"/metrics": (200, {}, llama_cpp(41, running=2))})
    with serving(engine) as url:
        source = engine_source(url, None)
        assert source is not None
        source.read(lambda: 10)
        engine.get.clear()
        source.read(lambda: 20)

    first, second = source.log().samples
    assert (first.at_ns, first.steps, first.running) == (10, 41, 2)
    assert second == EngineSample(20)
