"""The meter on the real binding, which a scripted machine in C answers."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.nvml import (
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    PAGE_VARIABLE,
    TICK_NS,
    ScriptedBoard,
    ScriptedMachine,
    Tick,
    eight_boards,
    steady,
)
from tests.support.nvml.fixtures import Scripted
from tokenwatt_site.energy.window import window_energy
from tokenwatt_site.errors import ReadBackError
from tokenwatt_site.evidence.power import Board, PowerLog, PowerSample
from tokenwatt_site.measure.clock import RunClock
from tokenwatt_site.measure.power.binding import Nvml
from tokenwatt_site.measure.power.nvml import AVERAGE_NS, NvmlMeter, NvmlUnavailable, open_meter
from tokenwatt_site.measure.sampling import PowerSource, Sampler

SECOND = 1_000_000_000


def log_of(meter: NvmlMeter, samples: list[PowerSample]) -> PowerLog:
    return PowerLog(
        meter.sensor, meter.scope, SECOND, meter.averaging_ns, meter.boards(), tuple(samples)
    )


def read_for(meter: NvmlMeter, machine: ScriptedMachine, seconds: int) -> list[PowerSample]:
    """Read once a second, beginning now."""
    samples = list(meter.read(machine.now_ns))
    for _ in range(seconds):
        machine.pass_(SECOND)
        samples += meter.read(machine.now_ns)
    return samples


def test_a_board_tells_what_it_is(scripted: Scripted) -> None:
    scripted(ScriptedBoard(limit_mw=650_000, pids=(7,)))
    meter = NvmlMeter()

    assert meter.boards() == (
        Board(
            uuid="GPU-11111111-1111-1111-1111-111111111111",
            name="NVIDIA H200",
            chosen="all there are",
            pci="00000000:19:00.0",
            limit_mw=650_000,
            default_limit_mw=700_000,
            bus_bits=6144,
            memory_mhz=3201,
            ecc=True,
            persistence=True,
            others=None,
        ),
    )
    assert meter.boards()[0].bus_bytes_s == 4_916_736_000_000
    assert (meter.driver, meter.scope, meter.averaging_ns) == ("595.91.07", "gpu", AVERAGE_NS)
    assert meter.memory_gib(0) == 141
    meter.close()


def test_a_reading_has_everything_that_the_board_tells(scripted: Scripted) -> None:
    tape = [Tick(5_000, 0, 310_000, 333_000)] * 30
    machine = scripted(ScriptedBoard(tape=tape, reasons=0x4, celsius=58, sm_mhz=1755))
    machine.pass_(SECOND)
    meter = NvmlMeter()

    assert meter.read(machine.now_ns) == (
        PowerSample(
            at_ns=SECOND,
            board=0,
            power_mw=310_000,
            energy_mj=5_000,
            instant_mw=333_000,
            sm_mhz=1755,
            memory_mhz=3201,
            reasons=0x4,
            celsius=58,
        ),
    )
    meter.close()


def test_b11_four_equal_boards_draw_four_times_as_much_as_one(scripted: Scripted) -> None:
    machine = scripted(*eight_boards()[:4])
    meter = NvmlMeter()
    samples = read_for(meter, machine, 8)

    found = window_energy(log_of(meter, samples), SECOND, 6 * SECOND, max_gap_ns=3 * SECOND)

    assert found.energy_mj == pytest.approx(4 * 310_000 * 5)
    meter.close()


def test_b9_a_board_that_answers_for_its_module_only_has_the_scope_module(
    scripted: Scripted,
) -> None:
    grace = ScriptedBoard(name="NVIDIA GH200 480GB", average_scopes=2, instant_scopes=2)
    machine = scripted(grace)
    meter = NvmlMeter()

    assert meter.scope == "module"
    assert meter.read(machine.now_ns)[0].power_mw == 310_000
    meter.close()


def test_b9_no_watts_at_all_of_a_scope_are_no_answer(scripted: Scripted) -> None:
    machine = scripted(ScriptedBoard(zero_scopes=1, average_scopes=2, instant_scopes=2))
    meter = NvmlMeter()

    assert meter.scope == "module"
    assert meter.read(machine.now_ns)[0].instant_mw == 310_000
    meter.close()


@pytest.mark.parametrize(
    ("capability", "power_mw", "averaging_ns"),
    [((8, 0), 333_000, 0), ((7, 0), 333_000, 0), ((8, 6), 310_000, AVERAGE_NS)],
)
def test_without_the_average_field_usage_is_read_and_the_chip_tells_what_it_is(
    scripted: Scripted, capability: tuple[int, int], power_mw: int, averaging_ns: int
) -> None:
    tape = [Tick(5_000, 0, 310_000, 333_000)] * 3
    machine = scripted(ScriptedBoard(tape=tape, capability=capability, average_scopes=0))
    meter = NvmlMeter()

    sample = meter.read(machine.now_ns)[0]

    assert (sample.power_mw, sample.instant_mw) == (power_mw, 333_000)
    assert (meter.scope, meter.averaging_ns) == ("gpu", averaging_ns)
    meter.close()


def test_over_how_long_unlike_boards_average_is_not_known(scripted: Scripted) -> None:
    scripted(*(ScriptedBoard(uuid=f"GPU-{n}", capability=(8, n), average_scopes=0) for n in (0, 6)))
    meter = NvmlMeter()

    assert meter.averaging_ns is None
    meter.close()


@pytest.mark.parametrize(
    ("function", "missing"),
    [
        ("nvmlDeviceGetTotalEnergyConsumption", {"energy_mj"}),
        ("nvmlDeviceGetFieldValues", {"power_mw", "instant_mw"}),
        ("nvmlDeviceGetClockInfo", {"sm_mhz", "memory_mhz"}),
        ("nvmlDeviceGetCurrentClocksEventReasons", {"reasons"}),
        ("nvmlGpmSampleGet", {"dram_ppm"}),
        ("nvmlGpmMetricsGet", {"dram_ppm"}),
        ("nvmlGpmSampleAlloc", {"dram_ppm"}),
    ],
)
@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, GPU_IS_LOST])
def test_b14_what_a_board_does_not_tell_is_missing_and_not_zero(
    scripted: Scripted, function: str, missing: set[str], code: int
) -> None:
    machine = scripted(ScriptedBoard())
    meter = NvmlMeter()
    meter.read(machine.now_ns)
    machine.pass_(SECOND)
    machine.rule(function, code=code)

    sample = meter.read(machine.now_ns)[0]

    values = {name: getattr(sample, name) for name in PowerSample.__slots__}
    assert {name for name, value in values.items() if value is None} == missing
    machine.forget_rules()
    meter.close()


def test_b14_an_energy_counter_that_stands_at_zero_is_missing(scripted: Scripted) -> None:
    machine = scripted(ScriptedBoard(tape=[Tick(0, 0, 310_000, 310_000)] * 5))
    meter = NvmlMeter()

    assert meter.read(machine.now_ns)[0].energy_mj is None
    meter.close()


def test_a_driver_without_the_new_temperature_is_asked_the_old_way(scripted: Scripted) -> None:
    machine = scripted(ScriptedBoard(celsius=63))
    machine.rule("nvmlDeviceGetTemperatureV", code=NOT_SUPPORTED)
    meter = NvmlMeter()

    assert meter.read(machine.now_ns)[0].celsius == 63
    meter.close()


def test_what_a_board_keeps_to_itself_is_missing(scripted: Scripted) -> None:
    machine = scripted(ScriptedBoard())
    for function in (
        "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlDeviceGetPowerManagementDefaultLimit",
        "nvmlDeviceGetMemoryBusWidth",
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetEccMode",
        "nvmlDeviceGetPersistenceMode",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlSystemGetDriverVersion",
    ):
        machine.rule(function, code=NO_PERMISSION)
    meter = NvmlMeter()

    assert meter.boards() == (
        Board(uuid="GPU-11111111-1111-1111-1111-111111111111", name="NVIDIA H200"),
    )
    assert (meter.driver, meter.memory_gib(0)) == (None, None)
    meter.close()


def test_b8_a_counter_that_was_reset_in_the_window_makes_it_invalid(scripted: Scripted) -> None:
    tape = [*steady(310, 4), *steady(310, 4)]
    machine = scripted(ScriptedBoard(tape=tape))
    meter = NvmlMeter()
    samples = read_for(meter, machine, 8)

    found = window_energy(log_of(meter, samples), SECOND, 6 * SECOND, max_gap_ns=3 * SECOND)

    assert found.energy_mj is None
    assert found.findings[0].level == "INVALID"
    meter.close()


def test_b5_a_board_that_is_lost_before_the_end_has_no_energy_and_never_0_w(
    scripted: Scripted,
) -> None:
    machine = scripted(*eight_boards()[:2])
    meter = NvmlMeter()
    samples = read_for(meter, machine, 4)
    for function in ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetFieldValues"):
        machine.rule(function, board=1, code=GPU_IS_LOST)
    machine.pass_(SECOND)
    samples += read_for(meter, machine, 3)

    found = window_energy(log_of(meter, samples), SECOND, 7 * SECOND, max_gap_ns=3 * SECOND)

    late = [s for s in samples if s.board == 1 and s.at_ns > 4 * SECOND]
    assert {(s.power_mw, s.energy_mj) for s in late} == {(None, None)}
    assert found.energy_mj is None
    assert found.reason is not None
    meter.close()


def test_a_slow_answer_is_stamped_in_its_middle_and_moves_no_other_boards_stamp(
    scripted: Scripted,
) -> None:
    machine = scripted(*eight_boards()[:2])
    machine.rule("nvmlDeviceGetTotalEnergyConsumption", board=1, delay_ns=400_000_000)
    meter = NvmlMeter()
    machine.pass_(SECOND - machine.now_ns())

    stamps = [sample.at_ns for sample in meter.read(machine.now_ns)]

    assert stamps == [SECOND, SECOND + 200_000_000]
    meter.close()


def test_memory_traffic_is_told_from_one_reading_to_the_next(scripted: Scripted) -> None:
    machine = scripted(ScriptedBoard(tape=steady(310, 20, bus=0.625)))
    meter = NvmlMeter()

    samples = read_for(meter, machine, 3)

    assert [sample.dram_ppm for sample in samples] == [None, 625_000, 625_000, 625_000]
    meter.close()


def test_readings_too_near_for_the_counters_tell_no_traffic(scripted: Scripted) -> None:
    machine = scripted(ScriptedBoard())
    meter = NvmlMeter()
    meter.read(machine.now_ns)
    machine.pass_(150_000_000)

    assert meter.read(machine.now_ns)[0].dram_ppm is None
    meter.close()


def test_one_pair_over_a_window_gives_its_exact_mean(scripted: Scripted) -> None:
    tape, used_ns = [], 0
    for number in range(200):
        tape.append(Tick(1 + number, used_ns, 310_000, 310_000))
        used_ns += TICK_NS * (number % 5) // 10
    machine = scripted(ScriptedBoard(tape=tape), ScriptedBoard(uuid="GPU-2", gpm=False, tape=tape))
    meter = NvmlMeter()
    machine.pass_(SECOND)

    begun = meter.begin(machine.now_ns)
    read_for(meter, machine, 15)
    (span,) = meter.end(begun, machine.now_ns)

    assert (span.board, span.start_ns, span.end_ns) == (0, SECOND, 16 * SECOND)
    assert span.ppm == 200_000
    meter.close()


def test_more_than_the_bus_can_carry_is_kept_as_it_is(scripted: Scripted) -> None:
    machine = scripted(ScriptedBoard(tape=steady(310, 5, bus=1.25)))
    meter = NvmlMeter()

    assert read_for(meter, machine, 1)[1].dram_ppm == 1_250_000
    meter.close()


def test_a_window_that_is_never_ended_leaves_no_sample_behind(scripted: Scripted) -> None:
    machine = scripted(*eight_boards())
    meter = NvmlMeter()
    meter.begin(machine.now_ns)
    meter.read(machine.now_ns)
    assert machine.samples == 16

    meter.close()

    assert machine.samples == 0


MIG = ScriptedBoard(
    name="NVIDIA H100 80GB HBM3", mig=True, instances=("MIG-aaaa-1", "MIG-bbbb-2"), pids=(10, 20)
)


@pytest.mark.parametrize("named", [(), ("MIG-aaaa-1",), ("MIG-aaaa-1", "MIG-bbbb-2")])
@pytest.mark.parametrize("pids", [frozenset[int](), frozenset({10})])
def test_b2_a_share_of_a_board_has_no_watts_of_its_own(
    scripted: Scripted, named: tuple[str, ...], pids: frozenset[int]
) -> None:
    scripted(MIG)

    reason = open_meter("nvml", max(1, len(named)), named=named, pids=pids)

    assert isinstance(reason, str)
    assert "MIG" in reason
    assert f"--gpus {MIG.uuid}" in reason


def test_b2_a_split_board_that_is_named_is_read_once_as_a_whole(scripted: Scripted) -> None:
    machine = scripted(MIG)
    meter = open_meter("nvml", 1, named=(MIG.uuid,), pids=frozenset({10}))

    assert isinstance(meter, NvmlMeter)
    assert [(b.uuid, b.others) for b in meter.boards()] == [(MIG.uuid, 1)]
    samples = read_for(meter, machine, 1)
    assert [sample.power_mw for sample in samples] == [310_000, 310_000]
    assert samples[1].dram_ppm is None
    meter.close()


def test_b13_processes_beside_the_engines_own_are_counted(scripted: Scripted) -> None:
    boards = eight_boards()
    boards[2].pids, boards[5].pids = (100, 101, 999), (102,)
    scripted(*boards)
    meter = open_meter("nvml", 2, pids=frozenset({100, 101, 102}))

    assert isinstance(meter, NvmlMeter)
    assert [(b.uuid[4], b.chosen, b.others) for b in meter.boards()] == [
        ("2", "by process", 1),
        ("5", "by process", 0),
    ]
    meter.close()


def test_b15_a_named_board_is_the_one_that_is_read(scripted: Scripted) -> None:
    boards = eight_boards()
    for number, board in enumerate(boards):
        board.tape = steady(100 + number, 5)
    machine = scripted(*boards)
    meter = open_meter("nvml", 2, named=("GPU-6", "GPU-33333333"))

    assert isinstance(meter, NvmlMeter)
    assert [b.chosen for b in meter.boards()] == ["by name", "by name"]
    assert [s.power_mw for s in meter.read(machine.now_ns)] == [103_000, 106_000]
    meter.close()


def test_more_boards_than_declared_and_none_named_stops_the_measurement(
    scripted: Scripted,
) -> None:
    scripted(*eight_boards())

    with pytest.raises(ReadBackError, match=r"found 8 \(observed\); expected 4 \(declared\)"):
        open_meter("nvml", 4)


def test_boards_that_may_not_be_opened_are_as_if_they_were_not_there(scripted: Scripted) -> None:
    machine = scripted(*eight_boards())
    for board in range(8):
        if board != 3:
            machine.rule("nvmlDeviceGetHandleByIndex_v2", board=board, code=NO_PERMISSION)
    meter = open_meter("nvml", 1)

    assert isinstance(meter, NvmlMeter)
    assert [b.uuid for b in meter.boards()] == ["GPU-33333333-0000-0000-0000-000000000000"]
    meter.close()


@pytest.mark.parametrize(
    ("functions", "board", "words"),
    [
        (("nvmlInitWithFlags",), {}, "nvmlInit: Not Supported"),
        (("nvmlDeviceGetHandleByIndex_v2",), {}, "nvmlDeviceGetHandleByIndex: Not Supported"),
        (("nvmlDeviceGetUUID",), {}, "nvmlDeviceGetUUID: Not Supported"),
        (
            ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage"),
            {"average_scopes": 0, "instant_scopes": 0, "virtualization": 2},
            "is a virtual GPU, a share of a board, and tells neither energy nor power (nvmlDevice",
        ),
        (
            ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage"),
            {"average_scopes": 0, "instant_scopes": 0},
            "H200 tells neither energy nor power (nvmlDeviceGetPowerUsage: Not Supported)",
        ),
        (
            (),
            {"tape": [Tick(0, 0, 0, 0)]},
            "H200 tells neither energy nor power (NVML answers 0 W)",
        ),
    ],
)
def test_why_nothing_can_be_read_is_said(
    scripted: Scripted, functions: tuple[str, ...], board: dict[str, Any], words: str
) -> None:
    machine = scripted(ScriptedBoard(**board))
    for function in functions:
        machine.rule(function, code=NOT_SUPPORTED)

    reason = open_meter("nvml", 1)

    assert isinstance(reason, str)
    assert words in reason
    machine.forget_rules()


def test_a_machine_without_boards_is_a_reason(scripted: Scripted) -> None:
    scripted()

    assert open_meter("nvml", 1) == "NVML shows no board"


def test_no_driver_is_a_reason(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PAGE_VARIABLE, raising=False)

    assert open_meter("nvml", 1) == "nvmlInit: Driver Not Loaded"


def test_no_sensor_asked_for_is_a_reason() -> None:
    assert open_meter("none", 0) == "the spec names no power sensor"


def test_a_missing_package_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)

    assert open_meter("nvml", 1) == "the package nvidia-ml-py is not installed"


def test_a_function_that_the_driver_is_too_old_for_is_mapped_as_every_error(
    scripted: Scripted,
) -> None:
    scripted(ScriptedBoard())
    nvml = Nvml()

    with pytest.raises(NvmlUnavailable, match="nvmlDeviceGetSerial: Function Not Found"):
        nvml.call("nvmlDeviceGetSerial", nvml.call("nvmlDeviceGetHandleByIndex", 0))
    with pytest.raises(NvmlUnavailable, match="nvmlDeviceGetMPSComputeRunningProcesses"):
        nvml.call(
            "nvmlDeviceGetMPSComputeRunningProcesses", nvml.call("nvmlDeviceGetHandleByIndex", 0)
        )
    nvml.close()


def test_another_process_loads_the_scripted_library_under_its_real_name(
    nvml_library: Path, tmp_path: Path
) -> None:
    machine = ScriptedMachine(tmp_path / "page", [ScriptedBoard()])
    code = (
        "from tokenwatt_site.measure.power.nvml import open_meter\n"
        "meter = open_meter('nvml', 1)\n"
        "print(meter.boards()[0].name, meter.read(lambda: 7)[0].power_mw)\n"
        "meter.close()"
    )
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(nvml_library.parent),
        PAGE_VARIABLE: str(machine.path),
    }

    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout == "NVIDIA H200 310000\n"


def test_five_seconds_of_real_time_are_read_to_their_end(scripted: Scripted) -> None:
    """No claim of accuracy: that real threads and a real clock make a log that can be used."""
    machine = scripted(*eight_boards(tape=steady(310, 60)))
    meter = NvmlMeter()
    machine.rule("nvmlDeviceGetTotalEnergyConsumption", board=7, delay_ns=200_000_000)
    start_ns = time.monotonic_ns()
    machine.run_with_the_real_clock()
    source = PowerSource(meter)
    sampler = Sampler(source, SECOND, RunClock(0), "nvml")
    sampler.start()
    time.sleep(5)
    sampler.ask_to_stop()
    assert sampler.join(10)
    log = log_of(meter, source.samples)

    found = window_energy(log, start_ns + SECOND, start_ns + 4 * SECOND, max_gap_ns=3 * SECOND)
    assert found.energy_mj is not None
    assert found.energy_mj > 0
    assert len(log.of_board(7)) >= 5
