"""Power of the boards: the seam, its public in-memory twins, and what opens the real ones."""

from __future__ import annotations

from tokenwatt_site.measure.power.meter import (
    MAX_RATE_HZ,
    DramMeter,
    PowerMeter,
    ScriptedDramMeter,
    ScriptedMeter,
)
from tokenwatt_site.measure.power.nvml import NvmlMeter
from tokenwatt_site.measure.power.opening import Boards, OpenedMeters, open_meters

__all__ = [
    "MAX_RATE_HZ",
    "Boards",
    "DramMeter",
    "NvmlMeter",
    "OpenedMeters",
    "PowerMeter",
    "ScriptedDramMeter",
    "ScriptedMeter",
    "open_meters",
]
