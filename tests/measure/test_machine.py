"""What a machine is, as it tells it itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tokenwatt_site.measure.machine import folder, governors, look, ports


@pytest.mark.skipif(sys.platform != "linux", reason="stamps and the clock are Linux's")
def test_this_machine_tells_what_a_measurement_needs(tmp_path: Path) -> None:
    machine = look([tmp_path])

    assert machine.kernel_stamps
    assert machine.can_listen
    assert machine.cpus == len(os.sched_getaffinity(0))
    assert machine.descriptors > 0
    assert machine.wall_clock is None or machine.wall_clock.most_off_us >= 0
    assert machine.ports is None or 0 < machine.ports <= 65_536
    assert [one.path for one in machine.folders] == [tmp_path]


def test_a_folder_that_is_not_there_has_the_room_of_what_is_above_it_and_is_not_made(
    tmp_path: Path,
) -> None:
    found = folder(tmp_path / "a" / "b")

    assert found.writable
    assert found.free_bytes > 0
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_a_folder_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("", "utf-8")

    assert not folder(tmp_path / "runs").writable
    assert not folder(tmp_path / "runs" / "deeper").writable


def test_each_governor_is_told_once(tmp_path: Path) -> None:
    for cpu, name in enumerate(["powersave\n", "performance\n", "powersave\n"]):
        place = tmp_path / f"cpu{cpu}" / "cpufreq"
        place.mkdir(parents=True)
        (place / "scaling_governor").write_text(name, "ascii")
    (tmp_path / "cpufreq").mkdir()

    assert governors(tmp_path) == ("performance", "powersave")
    assert governors(tmp_path / "none") == ()


@pytest.mark.parametrize(
    ("text", "count"), [("32768\t60999\n", 28_232), ("5 4", 0), ("", None), ("a b", None)]
)
def test_ports_are_those_from_the_lowest_to_the_highest(
    tmp_path: Path, text: str, count: int | None
) -> None:
    (tmp_path / "range").write_text(text, "ascii")

    assert ports(tmp_path / "range") == count
    assert ports(tmp_path / "none") is None
