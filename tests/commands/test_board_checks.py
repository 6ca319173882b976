"""What boards tell, judged for a measurement."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tokenwatt_site.commands.board_checks import board_checks
from tokenwatt_site.commands.checks import Check
from tokenwatt_site.evidence.power import Board, PowerSample
from tokenwatt_site.measure.power.survey import Silent, Survey, Surveyed

BOARD = Board(
    uuid="GPU-1",
    name="NVIDIA H200",
    limit_mw=700_000,
    default_limit_mw=700_000,
    ecc=True,
    persistence=True,
)
SAMPLE = PowerSample(0, 0, 310_000, 5_000, instant_mw=311_000, reasons=1)
GOOD = Surveyed(
    board=BOARD,
    memory_gib=141,
    mig=False,
    pids=frozenset({7}),
    scope="gpu",
    averaging_ns=1_000_000_000,
    sample=SAMPLE,
    bus_ppm=0,
    refresh_ns=1e8,
)
ENGINE = frozenset({7, 8})


def checks(*boards: Surveyed | Silent, engine: frozenset[int] = ENGINE) -> list[Check]:
    return list(board_checks(Survey("595.91.07", boards), engine))


def about(name: str, *boards: Surveyed | Silent, engine: frozenset[int] = ENGINE) -> Check:
    (check,) = [c for c in checks(*boards, engine=engine) if c.about == name]
    return check


def test_a_good_board_is_ok_in_all() -> None:
    found = checks(GOOD)

    assert {check.level for check in found} == {"ok"}
    assert [(check.about, check.found) for check in found] == [
        ("driver", "NVIDIA 595.91.07"),
        ("GPU 0", "NVIDIA H200, GPU-1, 141 GiB"),
        ("GPU power", "watts of scope gpu: averaged over 1 s and momentary"),
        (
            "GPU energy",
            "a counter, refreshed every 100 ms; a measurement reads it once a second",
        ),
        ("GPU memory traffic", "counted by GPM"),
        ("GPU limit", "700 W enforced"),
        ("GPU processes", "the engine's alone"),
        ("GPU clocks", "held back by nothing"),
        ("GPU persistence", "on"),
        ("GPU ECC", "on"),
    ]


@pytest.mark.parametrize(
    ("board", "name", "found", "remedy"),
    [
        (replace(GOOD, mig=True), "shares", "watts are those of the whole board", "--gpus"),
        (
            replace(GOOD, sample=replace(SAMPLE, power_mw=None, instant_mw=None)),
            "power",
            "no watts are told",
            "driver",
        ),
        (replace(GOOD, scope="module"), "power", "the processor beside", "scope: module"),
        (replace(GOOD, sample=replace(SAMPLE, energy_mj=None)), "energy", "no counter", "Volta"),
        (replace(GOOD, refresh_ns=None), "energy", "hardly changed", "under load"),
        (replace(GOOD, bus_ppm=None), "memory traffic", "not counted (no GPM)", "Hopper"),
        (
            replace(GOOD, board=BOARD.model_copy(update={"limit_mw": 500_000})),
            "limit",
            "500 W enforced, 700 W as it comes",
            "power_limit_w: 500, or run: sudo nvidia-smi -pl 700",
        ),
        (
            replace(GOOD, board=BOARD.model_copy(update={"limit_mw": None})),
            "limit",
            "not told",
            "data sheet",
        ),
        (replace(GOOD, pids=None), "processes", "cannot be listed", "--gpus UUID"),
        (replace(GOOD, pids=frozenset({7, 9})), "processes", "1 beside the engine's", "End them"),
        (replace(GOOD, pids=frozenset({9})), "processes", "1, none the engine's", "--gpus"),
        (
            replace(GOOD, sample=replace(SAMPLE, reasons=0x6)),
            "clocks",
            "held back now: power limit, clocks set by the user",
            "nvidia-smi -rgc",
        ),
        (
            replace(GOOD, board=BOARD.model_copy(update={"persistence": False})),
            "persistence",
            "off: the driver leaves",
            "nvidia-smi -pm 1",
        ),
        (
            replace(GOOD, board=BOARD.model_copy(update={"ecc": False})),
            "ECC",
            "off",
            "nvidia-smi -e 1",
        ),
    ],
)
def test_what_is_not_good_is_a_warning_with_what_to_do(
    board: Surveyed, name: str, found: str, remedy: str
) -> None:
    check = about(f"GPU {name}", board)

    assert check.level == "warn"
    assert found in check.found
    assert remedy in (check.remedy or "")


@pytest.mark.parametrize(
    ("board", "engine", "name", "found"),
    [
        (replace(GOOD, pids=frozenset()), ENGINE, "processes", "none"),
        (GOOD, frozenset[int](), "processes", "1; the engine's are not known"),
        (replace(GOOD, sample=replace(SAMPLE, reasons=None)), ENGINE, "clocks", "not told"),
        (replace(GOOD, averaging_ns=None), ENGINE, "power", "over a time that is not known"),
        (replace(GOOD, averaging_ns=0), ENGINE, "power", "over no time"),
        (
            replace(GOOD, board=BOARD.model_copy(update={"ecc": None})),
            ENGINE,
            "ECC",
            "not told",
        ),
    ],
)
def test_what_is_not_known_of_a_board_is_said(
    board: Surveyed, engine: frozenset[int], name: str, found: str
) -> None:
    check = about(f"GPU {name}", board, engine=engine)

    assert check.level == "ok"
    assert found in check.found


def test_what_several_boards_have_in_common_is_one_line_and_what_differs_names_them() -> None:
    throttled = replace(GOOD, sample=replace(SAMPLE, reasons=0x40))

    found = checks(GOOD, throttled, GOOD)

    assert [c.found for c in found if c.about == "GPU limit"] == ["700 W enforced"]
    assert [c.found for c in found if c.about == "GPU clocks"] == [
        "GPU 0, 2: held back by nothing",
        "GPU 1: held back now: thermal limit, by the hardware",
    ]


def test_a_board_that_tells_nothing_has_its_reason_and_no_other_line() -> None:
    found = checks(Silent("GPU-9", "a virtual GPU"))

    assert [check.about for check in found] == ["driver", "GPU 0"]
    assert found[1].level == "warn"
    assert found[1].found == "GPU-9: its power is not covered: a virtual GPU"
