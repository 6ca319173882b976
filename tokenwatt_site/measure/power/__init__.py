"""Power of the boards: the seam, its public in-memory twin, and NVML."""

from __future__ import annotations

from tokenwatt_site.measure.power.meter import PowerMeter, Sampler, ScriptedMeter
from tokenwatt_site.measure.power.nvml import NvmlMeter, open_meter

__all__ = ["NvmlMeter", "PowerMeter", "Sampler", "ScriptedMeter", "open_meter"]
