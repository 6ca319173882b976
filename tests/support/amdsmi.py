"""A stand-in for the module amdsmi: names, signatures, keys and units are those of 7.0.2.

The real one needs ROCm's library, and none of its calls has been made on a board here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

RESOLUTION_UJ = 15.300000190734863
"""15.3 as the 32-bit float in which the library hands it out."""


class AmdSmiException(Exception):
    """Base of all that the binding raises."""


class AmdSmiClkType(IntEnum):
    GFX = 1
    MEM = 4


class AmdSmiTemperatureType(IntEnum):
    HOTSPOT = 1


class AmdSmiTemperatureMetric(IntEnum):
    CURRENT = 0


@dataclass
class Die:
    """What one handle tells. `drawn_w` and `counted` move the counter as time goes on."""

    name: str = "AMD Instinct MI300X"
    average_w: object = "N/A"
    current_w: object = 140
    power_cap_uw: object = 750_000_000
    drawn_w: float = 140
    counted: float = 1.0
    start: object = 65628
    partition: str = "SPX"
    resolution: object = RESOLUTION_UJ

    def accumulator(self, now_ns: int) -> object:
        if not isinstance(self.start, int):
            return self.start
        return self.start + round(self.drawn_w * self.counted * now_ns / 1e3 / RESOLUTION_UJ)


@dataclass
class FakeAmdsmi:
    """The module. `faults` are functions that fail; `now_ns` moves with `wait`."""

    dies: list[Die] = field(default_factory=lambda: [Die(), Die()])
    faults: frozenset[str] = frozenset()
    now_ns: int = 0
    calls: list[str] = field(default_factory=list)

    AmdSmiException = AmdSmiException
    AmdSmiClkType = AmdSmiClkType
    AmdSmiTemperatureType = AmdSmiTemperatureType
    AmdSmiTemperatureMetric = AmdSmiTemperatureMetric

    def wait(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("amdsmi_"):
            return super().__getattribute__(name)
        self.calls.append(name)
        if name in self.faults:
            raise AmdSmiException("Error code:\n\t2 | AMDSMI_STATUS_NOT_SUPPORTED")
        function: Callable[..., Any] = super().__getattribute__(name)
        return function

    def amdsmi_init(self, flag: object = None) -> None:
        """Load the library."""

    def amdsmi_shut_down(self) -> None:
        """Release it."""

    def amdsmi_get_processor_handles(self) -> list[int]:
        return list(range(len(self.dies)))

    def amdsmi_get_gpu_device_uuid(self, processor_handle: int) -> str:
        return f"{processor_handle:02x}ff74a1-0000-1000-80a0-0123456789ab"

    def amdsmi_get_gpu_device_bdf(self, processor_handle: int) -> str:
        return f"0000:{processor_handle + 12:02x}:00.0"

    def amdsmi_get_gpu_asic_info(self, processor_handle: int) -> Mapping[str, object]:
        return {"market_name": self.dies[processor_handle].name, "vendor_id": "0x1002"}

    def amdsmi_get_gpu_driver_info(self, processor_handle: int) -> Mapping[str, object]:
        assert self.dies[processor_handle]
        return {"driver_name": "amdgpu", "driver_version": "6.12.12", "driver_date": "N/A"}

    def amdsmi_get_gpu_compute_partition(self, processor_handle: int) -> str:
        return self.dies[processor_handle].partition

    def amdsmi_get_power_cap_info(self, processor_handle: int) -> Mapping[str, object]:
        cap = self.dies[processor_handle].power_cap_uw
        return {"power_cap": cap, "default_power_cap": cap, "dpm_cap": 0, "min_power_cap": 0}

    def amdsmi_get_power_info(self, processor_handle: int) -> Mapping[str, object]:
        die = self.dies[processor_handle]
        return {
            "socket_power": die.current_w,
            "current_socket_power": die.current_w,
            "average_socket_power": die.average_w,
            "power_limit": "N/A",
        }

    def amdsmi_get_energy_count(self, processor_handle: int) -> Mapping[str, object]:
        die = self.dies[processor_handle]
        return {
            "energy_accumulator": die.accumulator(self.now_ns),
            "counter_resolution": die.resolution,
            "timestamp": self.now_ns,
        }

    def amdsmi_get_clock_info(
        self, processor_handle: int, clock_type: AmdSmiClkType
    ) -> Mapping[str, object]:
        assert self.dies[processor_handle]
        return {"clk": {AmdSmiClkType.GFX: 2100, AmdSmiClkType.MEM: 1300}[clock_type]}

    def amdsmi_get_temp_metric(
        self,
        processor_handle: int,
        sensor_type: AmdSmiTemperatureType,
        metric: AmdSmiTemperatureMetric,
    ) -> int:
        assert isinstance(sensor_type, AmdSmiTemperatureType)
        assert isinstance(metric, AmdSmiTemperatureMetric)
        return 60 + processor_handle
