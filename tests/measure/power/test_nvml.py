from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tokenwatt_site.errors import ReadBackError
from tokenwatt_site.measure.power import open_meter
from tokenwatt_site.measure.power.nvml import NvmlMeter, NvmlUnavailable
from tokenwatt_site.power_log import PowerSample


class FakeError(Exception):
    """Stands for pynvml.NVMLError."""


@dataclass
class FakeNvml:
    """The part of pynvml that is used, with scripted boards and faults."""

    boards: int = 2
    scopes: dict[int, int] = field(default_factory=lambda: {0: 310_000})
    faults: frozenset[str] = frozenset()
    mig: int = 0
    calls: list[str] = field(default_factory=list)

    NVMLError = FakeError
    NVML_SUCCESS = 0
    NVML_FI_DEV_POWER_AVERAGE = 185
    NVML_POWER_SCOPE_GPU = 0
    NVML_POWER_SCOPE_MODULE = 1

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            if name in self.faults:
                raise FakeError("Not Supported")
            answers: dict[str, Any] = {
                "nvmlInit": lambda: None,
                "nvmlShutdown": lambda: None,
                "nvmlSystemGetDriverVersion": lambda: "595.91.07",
                "nvmlDeviceGetCount": lambda: self.boards,
                "nvmlDeviceGetHandleByIndex": lambda index: index,
                "nvmlDeviceGetUUID": lambda index: f"GPU-{index}",
                "nvmlDeviceGetName": lambda _: "NVIDIA H200",
                "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700_000,
                "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=150_754_820_096),
                "nvmlDeviceGetMigMode": lambda _: [self.mig, self.mig],
                "nvmlDeviceGetTotalEnergyConsumption": lambda index: 5_000 + index,
                "nvmlDeviceGetPowerUsage": lambda _: 299_000,
                "nvmlDeviceGetFieldValues": self._fields,
            }
            return answers[name](*arguments)

        return call

    def _fields(self, _: Any, wanted: list[tuple[int, int]]) -> list[Any]:
        ((number, scope),) = wanted
        assert number == self.NVML_FI_DEV_POWER_AVERAGE
        if scope not in self.scopes:  # NVML leaves the value at 0 and says so beside it
            return [SimpleNamespace(nvmlReturn=3, value=SimpleNamespace(uiVal=0))]
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=self.scopes[scope]))]


def now_ns() -> int:
    return 7


def test_the_names_used_are_in_the_real_library() -> None:
    meter = NvmlMeter(fake := FakeNvml())
    meter.read(now_ns)
    meter.memory_gib(0)
    meter.close()

    assert all(hasattr(pynvml, name) for name in fake.calls)
    assert pynvml.NVML_FI_DEV_POWER_AVERAGE == fake.NVML_FI_DEV_POWER_AVERAGE
    assert pynvml.NVML_POWER_SCOPE_MODULE == fake.NVML_POWER_SCOPE_MODULE
    assert issubclass(pynvml.NVMLError, Exception)


def test_boards_are_known_by_uuid_and_read_in_order() -> None:
    meter = NvmlMeter(FakeNvml())

    assert [(b.uuid, b.name, b.limit_mw) for b in meter.boards()] == [
        ("GPU-0", "NVIDIA H200", 700_000),
        ("GPU-1", "NVIDIA H200", 700_000),
    ]
    assert meter.read(now_ns) == (
        PowerSample(7, 0, 310_000, 5_000),
        PowerSample(7, 1, 310_000, 5_001),
    )
    assert (meter.scope, meter.driver, meter.memory_gib(0)) == ("gpu", "595.91.07", 141)


def test_b9_a_board_that_answers_for_its_module_only_has_the_scope_module() -> None:
    meter = NvmlMeter(FakeNvml(scopes={1: 480_000}))

    assert meter.scope == "module"
    assert meter.read(now_ns)[0].power_mw == 480_000


@pytest.mark.parametrize("scopes", [{}, {0: 0, 1: 0}])
def test_a_board_without_the_average_field_is_read_by_its_usage(scopes: dict[int, int]) -> None:
    meter = NvmlMeter(FakeNvml(scopes=scopes))

    assert meter.scope == "gpu"
    assert meter.read(now_ns)[0].power_mw == 299_000


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("nvmlDeviceGetTotalEnergyConsumption", (310_000, None)),
        ("nvmlDeviceGetFieldValues", (299_000, 5_000)),
    ],
)
def test_b14_what_a_board_does_not_tell_is_missing_and_not_zero(
    fault: str, expected: tuple[int | None, int | None]
) -> None:
    sample = NvmlMeter(FakeNvml(faults=frozenset({fault}))).read(now_ns)[0]

    assert (sample.power_mw, sample.energy_mj) == expected


def test_a_power_field_that_fails_later_is_missing() -> None:
    meter = NvmlMeter(fake := FakeNvml())
    fake.scopes = {}

    assert meter.read(now_ns)[0].power_mw is None


def test_an_unknown_limit_is_missing() -> None:
    meter = NvmlMeter(FakeNvml(faults=frozenset({"nvmlDeviceGetEnforcedPowerLimit"})))

    assert meter.boards()[0].limit_mw is None


def test_b2_a_board_in_mig_mode_is_refused_with_the_reason() -> None:
    reason = open_meter("nvml", 2, FakeNvml(mig=1))

    assert isinstance(reason, str)
    assert "MIG" in reason


@pytest.mark.parametrize(
    ("fake", "word"),
    [
        (FakeNvml(faults=frozenset({"nvmlInit"})), "nvmlInit: Not Supported"),
        (FakeNvml(boards=0), "no board"),
        (FakeNvml(faults=frozenset({"nvmlDeviceGetUUID"})), "nvmlDeviceGetUUID"),
    ],
)
def test_why_nothing_is_read_is_said(fake: FakeNvml, word: str) -> None:
    reason = open_meter("nvml", 2, fake)

    assert isinstance(reason, str)
    assert word in reason
    assert fake.calls[-1] in {"nvmlShutdown", "nvmlInit"}


def test_another_number_of_boards_than_declared_stops_the_measurement() -> None:
    fake = FakeNvml(boards=3)
    with pytest.raises(ReadBackError, match=r"found 3 \(observed\); expected 2 \(declared\)"):
        open_meter("nvml", 2, fake)
    assert fake.calls[-1] == "nvmlShutdown"


def test_no_sensor_asked_for_is_a_reason() -> None:
    assert open_meter("none", 0) == "the spec names no power sensor"


def test_a_meter_is_opened_for_the_boards_declared() -> None:
    assert isinstance(open_meter("nvml", 2, FakeNvml()), NvmlMeter)


def test_every_error_of_the_library_is_mapped_at_one_place() -> None:
    meter = NvmlMeter(fake := FakeNvml())
    fake.faults = frozenset({"nvmlDeviceGetName"})

    with pytest.raises(NvmlUnavailable, match="nvmlDeviceGetName: Not Supported"):
        meter._call("nvmlDeviceGetName", 0)


def test_a_missing_package_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)

    assert open_meter("nvml", 1) == "the package nvidia-ml-py is not installed"
