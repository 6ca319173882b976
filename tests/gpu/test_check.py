"""The script without a GPU: it says so; and on the scripted machine it finds what is known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.gpu import check, engine
from tests.support.nvml import ScriptedBoard, ScriptedMachine, steady
from tests.support.nvml.fixtures import Scripted
from tokenwatt_site.spec import load_spec

ROOT = Path(__file__).resolve().parents[2]


class FakeStream:
    """Moves 2 TB/s by the machine's time while it runs, times its duty."""

    def __init__(self, machine: ScriptedMachine) -> None:
        self._machine = machine
        self._rate, self._since_ns, self._before = 0.0, 0, 0.0

    @property
    def moved_bytes(self) -> int:
        return round(self._before + self._rate * (self._machine.now_ns() - self._since_ns))

    @contextmanager
    def running(self, _kind: str, duty: float = 1.0) -> Iterator[None]:
        self._turn(2000 * duty)
        yield
        self._turn(0)

    def close(self) -> None:
        self._turn(0)

    def _turn(self, rate: float) -> None:
        self._before, self._since_ns = self.moved_bytes, self._machine.now_ns()
        self._rate = rate


def test_the_script_finds_what_the_scripted_board_is(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = scripted(ScriptedBoard(tape=steady(310, 200, bus=0.5)))
    machine.rule("nvmlDeviceGetTotalEnergyConsumption", delay_ns=10_000_000)
    clock = SimpleNamespace(
        monotonic=lambda: machine.now_ns() / 1e9,
        monotonic_ns=machine.now_ns,
        sleep=lambda seconds: machine.pass_(round(seconds * 1e9)),
    )
    monkeypatch.setattr(check, "time", clock)
    monkeypatch.setattr(check, "Stream", lambda _: FakeStream(machine))

    found = check.check_board()

    assert found["counter_period_ns"] == pytest.approx(100_000_000, rel=0.1)
    assert found["average_half_rise_ns"] is None
    assert found["full_bus_bytes_s"]["copy"] == pytest.approx(4e12, rel=0.02)
    assert list(found["idle_w"].values()) == pytest.approx([310, 310], rel=0.02)
    assert found["pj_bit"] == pytest.approx(0, abs=1)
    assert [p["bytes_s"] for p in found["phases"]] == pytest.approx(
        [0, 0, 2e12, 2e12, 5e11, 1e12, 1.5e12], rel=0.02
    )
    assert machine.now_ns() < 150e9
    lines = check.table(json.loads(json.dumps(found)))
    assert "bus × clock                       4.917 TB/s\n" in lines
    assert "momentary power is halfway after  none\n" in lines


def test_without_a_driver_the_script_says_so_and_fails(nvml_library: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(nvml_library.parent)}

    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.check"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "cannot be checked here: nvmlInit: Driver Not Loaded\n"


def test_no_cuda_driver_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(check.Stream.__init__.__globals__["ctypes"], "CDLL", missing)

    with pytest.raises(check.EnvironmentProblem, match=r"libcuda\.so\.1 is not here"):
        check.Stream("00000000:19:00.0")


def test_where_no_engine_is_installed_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda _: None)

    found = engine.measured_end_to_end(tmp_path)

    assert found == {"engine": None, "reason": "vLLM is not installed"}
    assert json.loads((tmp_path / "random-llama-8b" / "config.json").read_text())["vocab_size"]


def test_an_engine_that_does_not_start_is_told_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "command", lambda _: ["{python}", "-c", "1/0 # {port}"])

    found = engine.measured_end_to_end(tmp_path)

    assert "ZeroDivisionError" in found["reason"]


def test_the_short_protocol_makes_a_valid_spec(tmp_path: Path) -> None:
    spec = load_spec(ROOT / "specs" / "demo.spec.yaml").to_json()
    short = tmp_path / "short.spec.yaml"
    short.write_text(engine.shortened(spec, engine.PROTOCOL))

    found = load_spec(short)

    assert found.title.startswith("random weights: ")
    assert found.protocol.start_rate == found.protocol.max_rate == 4
