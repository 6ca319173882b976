"""A look at every board, on the scripted machine behind the real binding."""

from __future__ import annotations

import pytest

from tests.support.nvml import NO_PERMISSION, ScriptedBoard, ScriptedMachine, eight_boards, steady
from tests.support.nvml.fixtures import Scripted
from tokenwatt_site.measure.power.nvml import NvmlUnavailable
from tokenwatt_site.measure.power.survey import (
    BURST_S,
    Silent,
    Survey,
    Surveyed,
    survey,
    update_period_ns,
)

MS = 1_000_000


def look(machine: ScriptedMachine) -> Survey:
    return survey(now_ns=machine.now_ns, wait=lambda s: machine.pass_(round(s * 1e9)))


def only(found: Survey) -> Surveyed:
    (board,) = found.boards
    assert isinstance(board, Surveyed)
    return board


def test_a_board_tells_its_memory_scope_traffic_and_the_period_of_its_counter(
    scripted: Scripted,
) -> None:
    found = look(scripted(ScriptedBoard(pids=(7, 8))))

    board = only(found)
    assert found.driver == "595.91.07"
    assert (board.board.name, board.memory_gib, board.mig) == ("NVIDIA H200", 141, False)
    assert (board.scope, board.averaging_ns) == ("gpu", 1_000_000_000)
    assert board.pids == {7, 8}
    assert board.refresh_ns == pytest.approx(100 * MS, rel=0.06)
    assert board.bus_ppm == pytest.approx(500_000, rel=0.05)
    assert (board.sample.power_mw, board.sample.instant_mw) == (310_000, 310_000)


def test_boards_of_one_name_share_one_burst(scripted: Scripted) -> None:
    machine = scripted(*eight_boards())

    found = look(machine)

    assert len(found.boards) == 8
    assert {b.refresh_ns for b in found.boards if isinstance(b, Surveyed)} == {100 * MS}
    assert machine.now_ns() < 2 * BURST_S * 1e9 + 8 * 0.5e9


def test_a_board_that_tells_nothing_does_not_hide_the_others(scripted: Scripted) -> None:
    machine = scripted(*eight_boards()[:2])
    for function in (
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetFieldValues",
    ):
        machine.rule(function, code=NO_PERMISSION, board=1)

    first, second = look(machine).boards

    assert isinstance(first, Surveyed)
    assert isinstance(second, Silent)
    assert second.uuid.startswith("GPU-11111111")
    assert "Insufficient Permissions" in second.reason


def test_a_split_board_is_told_whole(scripted: Scripted) -> None:
    board = only(look(scripted(ScriptedBoard(mig=True, instances=("MIG-1",)))))

    assert board.mig
    assert board.sample.energy_mj is not None


def test_a_counter_that_stands_still_has_no_period_and_a_board_without_gpm_no_traffic(
    scripted: Scripted,
) -> None:
    board = only(look(scripted(ScriptedBoard(gpm=False, tape=steady(0, 10, start_mj=5)))))

    assert board.refresh_ns is None
    assert board.bus_ppm is None


def test_without_a_board_the_reason_is_told(scripted: Scripted) -> None:
    machine = scripted()

    with pytest.raises(NvmlUnavailable, match="no board"):
        look(machine)


def test_the_period_of_a_counter_is_that_of_its_steps() -> None:
    readings = [(at * MS, at // 100 * 31_000) for at in range(0, 3000, 7)]

    assert update_period_ns(readings) == pytest.approx(100 * MS, rel=0.08)


@pytest.mark.parametrize("values", [[], [5] * 50, [1, 2, 2, 2], [1, 1, 2, 3]])
def test_a_counter_that_hardly_changes_has_no_period(values: list[int]) -> None:
    assert update_period_ns(list(enumerate(values))) is None
