"""What facts mean for a measurement: each line with its level and what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tokenwatt_site.commands.checks import (
    GOOD_CONNECTIONS,
    GOOD_FREE_BYTES,
    LEAST_FREE_BYTES,
    Check,
    counted,
    engine_checks,
    machine_checks,
    of_error,
    table,
)
from tokenwatt_site.errors import EnvironmentProblem, Problem
from tokenwatt_site.measure.counters import Counters
from tokenwatt_site.measure.endpoint import EngineFacts
from tokenwatt_site.measure.machine import Folder, Machine, WallClock

GOOD = Machine(
    wall_clock=WallClock(disciplined=True, most_off_us=1500),
    kernel_stamps=True,
    cpus=8,
    load=0.5,
    governors=("performance",),
    descriptors=1 << 20,
    ports=28_232,
    can_listen=True,
    folders=(Folder(Path("runs"), 50 << 30, writable=True),),
)
VLLM = EngineFacts(
    name="vLLM",
    version="0.32.0",
    build=None,
    models=("org/toy",),
    context_tokens=8192,
    vocabulary=None,
    process_started="2026-01-01T00:00:00Z",
)
STEPS = Counters({"steps": "vllm:iteration_tokens_total_count"})


def about(checks: object, name: str) -> Check:
    (check,) = [c for c in checks if c.about == name]  # type: ignore[attr-defined]
    return check


def test_a_good_machine_has_no_warning_and_no_remedy() -> None:
    checks = list(machine_checks(GOOD))

    assert [check for check in checks if check.level != "ok" or check.remedy] == []
    assert about(checks, "clock").found == "kept by a time service, at most 1.5 ms off"
    assert about(checks, "disk runs").found == "50.0 GiB free"


@pytest.mark.parametrize(
    ("change", "name", "level", "found", "remedy"),
    [
        ({"wall_clock": None}, "clock", "warn", "not known", "chrony"),
        ({"wall_clock": WallClock(False, 16_000_000)}, "clock", "warn", "no time", "chrony"),
        ({"kernel_stamps": False}, "arrival stamps", "warn", "this program alone", "Linux"),
        ({"load": 8.0}, "processors", "warn", "8 usable, load 8.0", "End other programs"),
        ({"load": None}, "processors", "ok", "not told", None),
        ({"governors": ("performance", "powersave")}, "cpu governor", "warn", "powersave:", "cpup"),
        ({"governors": ()}, "cpu governor", "ok", "none is told", None),
        ({"descriptors": GOOD_CONNECTIONS - 1}, "open files", "warn", "4,095 may", "ulimit -Hn"),
        ({"can_listen": False}, "ports", "fail", "no port of 127.0.0.1", "loopback"),
        ({"ports": None}, "ports", "ok", "not told", None),
        ({"ports": 100}, "ports", "warn", "100 for connections", "ip_local_port_range"),
    ],
)
def test_what_is_not_good_says_what_to_do(
    change: dict[str, object], name: str, level: str, found: str, remedy: str | None
) -> None:
    check = about(machine_checks(replace(GOOD, **change)), name)  # type: ignore[arg-type]

    assert check.level == level
    assert found in check.found
    assert (check.remedy is None) == (remedy is None)
    assert (remedy or "") in (check.remedy or "")


@pytest.mark.parametrize(
    ("free", "writable", "level"),
    [
        (GOOD_FREE_BYTES, True, "ok"),
        (GOOD_FREE_BYTES - 1, True, "warn"),
        (LEAST_FREE_BYTES, True, "warn"),
        (LEAST_FREE_BYTES - 1, True, "fail"),
        (GOOD_FREE_BYTES, False, "fail"),
    ],
)
def test_a_folder_needs_room_and_permission(free: int, writable: bool, level: str) -> None:
    folder = Folder(Path("runs"), free, writable)

    check = about(machine_checks(replace(GOOD, folders=(folder,))), "disk runs")

    assert check.level == level
    assert (check.remedy is None) == (level == "ok")


def test_an_engine_that_tells_all_is_ok() -> None:
    checks = list(engine_checks("http://x", VLLM, STEPS))

    assert {check.level for check in checks} == {"ok"}
    assert about(checks, "engine").found == "vLLM 0.32.0 at http://x"
    assert about(checks, "engine's model").found == "org/toy; 8,192 tokens of context"
    assert about(checks, "engine's steps").found.endswith("vllm:iteration_tokens_total_count")


@pytest.mark.parametrize(
    ("facts", "counters", "name", "found"),
    [
        (replace(VLLM, version=None), STEPS, "engine", "vLLM at http://x does not tell its ver"),
        (replace(VLLM, name=None, version=None), STEPS, "engine", "its name and version"),
        (VLLM, None, "engine's steps", "rests on the client's records"),
        (VLLM, Counters({"running": "x"}), "engine's steps", "no counter of steps"),
        (replace(VLLM, process_started=None), STEPS, "engine's start", "is your word"),
    ],
)
def test_what_an_engine_does_not_tell_is_a_warning_with_what_to_do(
    facts: EngineFacts, counters: Counters | None, name: str, found: str
) -> None:
    check = about(engine_checks("http://x", facts, counters), name)

    assert check.level == "warn"
    assert found in check.found
    assert check.remedy


def test_every_problem_of_an_error_is_a_line_with_its_remedy_apart() -> None:
    error = EnvironmentProblem(Problem("is off", field="a", remedy="Turn it on."), "two")

    assert list(of_error("fail", "thing", error)) == [
        Check("fail", "thing", "a: is off", "Turn it on."),
        Check("fail", "thing", "two"),
    ]


def test_the_table_has_columns_and_the_remedy_below() -> None:
    checks = [Check("ok", "a", "good"), Check("warn", "longer", "bad", "Mend it.")]

    assert list(table(checks)) == [
        "ok    a       good",
        "warn  longer  bad",
        "              -> Mend it.",
    ]
    assert counted(checks) == "1 ok, 1 warn, 0 fail"


def test_an_engine_that_says_too_much_is_told_in_short() -> None:
    facts = replace(VLLM, version="9" * 5000, models=tuple(f"model-{n}" for n in range(10_000)))
    told = {check.about: check.found for check in engine_checks("http://x", facts, STEPS)}
    assert len(told["engine"]) < 120
    assert told["engine's model"].startswith(
        "model-0, model-1, model-2, model-3, model-4 and 9,995"
    )
