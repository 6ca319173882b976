from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.measure.stub_engine import StubEngine, as_json, serving
from tests.support.nvml import ScriptedBoard
from tests.support.nvml.fixtures import Scripted
from tests.support.runs import small_spec
from tokenwatt_site.errors import EnvironmentProblem, Problem, ReadBackError, UsageError
from tokenwatt_site.evidence.power import Board
from tokenwatt_site.measure.power import Boards, PowerMeter, ScriptedMeter, open_meters, opening
from tokenwatt_site.measure.power.rapl import RaplMeter
from tokenwatt_site.meters import Instrument
from tokenwatt_site.spec import Spec

NODE_1 = {"sensor": "dcgm", "url": "http://node-1:9400/metrics"}
NODE_2 = {"sensor": "dcgm", "url": "http://node-2:9400/metrics"}
RAPL = {"sensor": "rapl"}
BMC = {
    "sensor": "redfish",
    "url": "https://bmc/redfish/v1/Chassis/1",
    "user_variable": "BMC_USER",
    "password_variable": "BMC_PASSWORD",
}

Opened = dict[str, ScriptedMeter | str]


def spec(sensor: str, scope: str, *instruments: dict[str, Any]) -> Spec:
    rate = 0 if sensor == "none" else 1
    return small_spec(
        setup__accelerator__count=1,
        setup__power={"sensor": sensor, "scope": scope, "rate_hz": rate},
        instruments=list(instruments),
    )


def meter(*uuids: str, **changes: Any) -> ScriptedMeter:
    boards = [Board(uuid=uuid, name="Toy") for uuid in uuids]
    return ScriptedMeter(boards, lambda _: [(100_000, 1_000 * n) for n in range(9)], **changes)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Boards]]:
    """Says what each instrument opens as, by its url or sensor; gives what was told of boards."""
    told: list[Boards] = []

    def set_up(**opened: Any) -> list[Boards]:
        def opener(instrument: Instrument, _: int, boards: Boards) -> PowerMeter | str:
            told.append(boards)
            host = (instrument.url or "").partition("//")[2].partition(":")[0].replace("-", "_")
            found = opened[host or instrument.sensor]
            if isinstance(found, Exception):
                raise found
            one: PowerMeter | str = found
            return one

        monkeypatch.setattr(opening, "_OPENERS", dict.fromkeys(opening._OPENERS, opener))
        return told

    return set_up


def test_a_sensor_of_this_machine_is_opened_without_being_listed(machine: Any) -> None:
    machine(nvml=(nvml := meter("GPU-1")))

    opened = open_meters(spec("nvml", "gpu"), Boards())

    assert (opened.primary, opened.reason, opened.beside) == ((nvml,), None, ())


def test_without_a_sensor_the_instruments_beside_are_opened_all_the_same(machine: Any) -> None:
    machine(rapl=(rapl := meter("package-0", sensor="rapl", scope="cpu")))

    opened = open_meters(spec("none", "none", RAPL), Boards())

    assert opened.reason == "the spec names no power sensor"
    assert opened.beside == ((1, rapl),)


def test_all_nodes_of_the_sensor_are_primary_and_others_stand_beside(machine: Any) -> None:
    one, two, packages = meter("GPU-1"), meter("GPU-2"), meter("package-0")
    machine(node_1=one, node_2=two, rapl=packages)

    opened = open_meters(spec("dcgm", "gpu", NODE_1, RAPL, NODE_2), Boards())

    assert opened.primary == (one, two)
    assert opened.beside == ((2, packages),)
    assert opened.reasons == (None, None, None)


def test_a_part_of_the_nodes_is_no_power_and_the_reason_names_the_node(machine: Any) -> None:
    one = meter("GPU-1")
    machine(node_1=one, node_2=EnvironmentProblem("no answer"), rapl="no counter may be read")

    opened = open_meters(spec("dcgm", "gpu", NODE_1, NODE_2, RAPL), Boards())

    assert opened.primary == ()
    assert opened.reason == "http://node-2:9400/metrics: no answer"
    assert opened.reasons == (
        "another instrument of its sensor cannot be read, and a part is no sum",
        "no answer",
        "no counter may be read",
    )
    assert one.closed


def test_boards_that_cannot_be_told_apart_are_no_fault_before_the_engine_runs(
    machine: Any,
) -> None:
    problem = ReadBackError(Problem("is not the number of boards", found="8", expected="4"))
    told = machine(nvml=problem)

    early = open_meters(spec("nvml", "gpu"), Boards())
    assert (early.primary, early.reason) == ((), None)
    with pytest.raises(ReadBackError):
        open_meters(spec("nvml", "gpu"), Boards(final=True, pids=(7,), environment={"A": "b"}))
    with pytest.raises(ReadBackError):
        open_meters(spec("nvml", "gpu"), Boards(named=("GPU-9",)))
    assert (told[1].pids, told[1].environment) == ((7,), {"A": "b"})


def test_of_an_exporters_boards_only_the_named_ones_are_read(machine: Any) -> None:
    node_1, node_2 = meter("GPU-1a", "GPU-2b", "GPU-3c"), meter("GPU-4d")
    machine(node_1=node_1, node_2=node_2)

    opened = open_meters(spec("dcgm", "gpu", NODE_1, NODE_2), Boards(named=("gpu-3", "GPU-1a")))

    (chosen,) = opened.primary
    assert [(b.uuid, b.chosen) for b in chosen.boards()] == [
        ("GPU-1a", "by name"),
        ("GPU-3c", "by name"),
    ]
    assert [(s.board, s.energy_mj) for s in chosen.read(lambda: 0)] == [(0, 0), (1, 2_000)]
    assert node_2.closed
    chosen.close()
    assert node_1.closed


def test_another_instrument_of_the_same_boards_is_left_with_these(machine: Any) -> None:
    nvml, node, other = meter("GPU-2"), meter("GPU-1", "GPU-2", "GPU-3"), meter("GPU-9")
    machine(nvml=nvml, node_1=node, node_2=other)

    opened = open_meters(spec("nvml", "gpu", NODE_1, NODE_2), Boards(final=True))

    (_, beside), (_, elsewhere) = opened.beside
    assert [board.uuid for board in beside.boards()] == ["GPU-2"]
    assert [s.energy_mj for s in beside.read(lambda: 0)] == [1_000]
    assert elsewhere is other
    opened.close()
    assert node.closed


def test_a_name_that_no_board_has_is_refused_and_all_is_closed(machine: Any) -> None:
    one, packages = meter("GPU-1"), meter("package-0")
    machine(node_1=one, rapl=packages)

    with pytest.raises(UsageError, match=r"--gpus: names no board.*GPU-7.*expected one of GPU-1"):
        open_meters(spec("dcgm", "gpu", NODE_1, RAPL), Boards(named=("GPU-7",)))
    assert one.closed
    assert packages.closed


def test_a_name_that_several_boards_of_exporters_have_is_refused(machine: Any) -> None:
    machine(node_1=meter("GPU-1a", "GPU-2b"), node_2=(two := meter("GPU-1c")))

    with pytest.raises(UsageError, match=r"fits several boards.*GPU-1.*one of GPU-1a, GPU-1c"):
        open_meters(spec("dcgm", "gpu", NODE_1, NODE_2), Boards(named=("GPU-1",)))
    assert two.closed


def test_b2_boards_of_two_nodes_whose_uuids_are_masked_are_no_power(machine: Any) -> None:
    masked = "GPU-00000000-0000-0000-0000-000000000000"
    one, two = meter(masked), meter(masked)
    machine(node_1=one, node_2=two)

    opened = open_meters(spec("dcgm", "gpu", NODE_1, NODE_2), Boards())

    assert opened.primary == ()
    assert "cannot be told apart: their UUIDs are masked" in str(opened.reason)
    assert one.closed
    assert two.closed
    alone = open_meters(spec("dcgm", "gpu", NODE_1), Boards())
    assert alone.reason is None


def test_an_instrument_that_hangs_when_it_is_opened_is_not_waited_for(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "OPENING_S", 0.01)
    machine(rapl=(packages := meter("package-0")))
    released = threading.Event()
    opening._OPENERS["nvml"] = lambda *_: str(released.wait(60))  # type: ignore[index]

    opened = open_meters(spec("nvml", "gpu", RAPL), Boards(final=True))
    released.set()

    assert opened.reason == "nvml does not answer within 0.01 s"
    assert opened.beside == ((1, packages),)


NVIDIA_SMI = """\
nvidia_smi_gpu_info{driver_version="595.91.07",name="NVIDIA H200",uuid="1a"} 1
nvidia_smi_power_draw_watts{uuid="1a"} 300
nvidia_smi_power_draw_watts{uuid="2b"} 301
"""


def test_boards_of_an_exporter_that_asks_nvidia_smi_are_of_the_sensor_nvml() -> None:
    node = StubEngine(get={"/metrics": (200, {}, NVIDIA_SMI.encode())})
    with serving(node) as url:
        at = {"url": f"{url}/metrics"}
        opened = open_meters(
            spec("nvml", "gpu", {"sensor": "nvml"} | at), Boards(named=("GPU-2b",), final=True)
        )
        with pytest.raises(ReadBackError) as caught:
            open_meters(spec("dcgm", "gpu", {"sensor": "dcgm"} | at), Boards(final=True))

    (meter,) = opened.primary
    assert (meter.sensor, [board.uuid for board in meter.boards()]) == ("nvml", ["GPU-2b"])
    assert "is not what nvidia_gpu_exporter asks" in str(caught.value)
    assert "Write sensor: nvml beside its url" in str(caught.value)


def test_a_reason_ends_without_a_point_as_it_stands_within_sentences(machine: Any) -> None:
    machine(nvml="no board. Look for one.")
    assert open_meters(spec("nvml", "gpu"), Boards()).reason == "no board. Look for one"


def test_a_password_that_is_not_set_is_said_before_anything_is_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BMC_USER", "reader")
    monkeypatch.delenv("BMC_PASSWORD", raising=False)

    with pytest.raises(UsageError, match="BMC_PASSWORD: is not set"):
        open_meters(spec("redfish", "host", BMC), Boards())


def test_a_launch_reads_what_was_opened_at_the_beginning_and_nothing_else(machine: Any) -> None:
    one, packages = meter("GPU-1"), meter("package-0")
    machine(node_1=one, rapl=packages)
    opened = open_meters(spec("dcgm", "gpu", NODE_1, RAPL), Boards())

    kept = opened.as_begun(None, (None, "could not be read then"))

    assert (kept.primary, kept.beside) == ((one,), ())
    assert (one.closed, packages.closed) == (False, True)


def test_what_was_opened_at_the_beginning_and_cannot_be_now_stops_the_run(machine: Any) -> None:
    packages = meter("package-0")
    machine(node_1=EnvironmentProblem("no answer"), rapl=packages)
    opened = open_meters(spec("dcgm", "gpu", NODE_1, RAPL), Boards())

    with pytest.raises(
        EnvironmentProblem, match=r"was begun, and cannot be now; found .*no answer"
    ):
        opened.as_begun(None, (None, None))
    assert packages.closed
    machine(node_1="no answer", rapl=meter("package-0"))
    again = open_meters(spec("dcgm", "gpu", NODE_1, RAPL), Boards())
    assert again.as_begun("it was off", ("it was off", None)).reason == "it was off"


GPU = ScriptedBoard(uuid="GPU-1", name="Toy")


def test_every_sensor_of_a_spec_is_opened_where_it_is(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(GPU, ScriptedBoard(uuid="GPU-2", name="Toy"))
    package = tmp_path / "intel-rapl:0"
    package.mkdir()
    for name, text in (("name", "package-0"), ("energy_uj", "5"), ("max_energy_range_uj", "99")):
        (package / name).write_text(f"{text}\n", "utf-8")
    monkeypatch.setattr(opening, "RaplMeter", lambda: RaplMeter(tmp_path))
    chassis = {"PowerControl": [{"Name": "C", "PowerConsumedWatts": 500}]}
    chassis["@odata.type"] = "#Power.v1_7_1.Power"
    labels = 'gpu="0",UUID="GPU-9",modelName="Toy",DCGM_FI_DRIVER_VERSION="595"'
    text = f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} 300\n".encode()
    node = StubEngine(get={"/p": as_json(chassis), "/metrics": (200, {}, text)})
    with serving(node) as url:
        asked = spec(
            *("nvml", "gpu", {"sensor": "dcgm", "url": f"{url}/metrics"}, RAPL),
            *({"sensor": "redfish", "url": f"{url}/p"}, {"sensor": "amd"}),
        )
        opened = open_meters(asked, Boards(named=("GPU-2",), final=True))
        opened.close()

    (nvml,) = opened.primary
    assert [(board.uuid, board.chosen) for board in nvml.boards()] == [("GPU-2", "by name")]
    assert {number: (m.sensor, m.scope) for number, m in opened.beside} == {
        1: ("dcgm", "gpu"),
        2: ("rapl", "cpu"),
        3: ("redfish", "host"),
    }
    assert opened.reasons[:3] == (None, None, None)
    assert "amdsmi" in str(opened.reasons[3])


def test_the_engines_processes_tell_its_boards_once_it_runs(scripted: Scripted) -> None:
    scripted(GPU, ScriptedBoard(uuid="GPU-2", name="Toy", pids=(17, 900)))

    early = open_meters(spec("nvml", "gpu"), Boards())
    opened = open_meters(spec("nvml", "gpu"), Boards(pids=(16, 17), final=True))
    opened.close()

    assert (early.primary, early.reason) == ((), None)
    (board,) = opened.primary[0].boards()
    assert (board.uuid, board.chosen, board.others) == ("GPU-2", "by process", 1)
