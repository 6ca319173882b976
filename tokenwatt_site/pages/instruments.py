"""Instruments in words: what each covers, what it leaves out, how far it may be off."""

from __future__ import annotations

from tokenwatt_site.claims.power_caveats import GAIN_ERROR_PERCENT
from tokenwatt_site.meters import PowerScope, PowerSensor, PowerSource

POWER: dict[PowerScope, str] = {
    "gpu": "GPU board power",
    "module": "Module power",
    "cpu": "Processor package power",
    "host": "Host power",
    "none": "Power",
}
"""What the watts of a scope are called: a module's are no GPU's."""

ONLY: dict[PowerScope, str] = {
    "gpu": "GPU boards only",
    "module": "modules: GPU, its CPU and memory",
    "cpu": "processor packages and their memory",
    "host": "whole host",
    "none": "",
}
"""The boundary in a few words, for a line under a number."""

BOUNDARY: dict[PowerScope, str] = {
    "gpu": "GPU board power only — excludes CPUs, memory, NICs, fans and PSU losses.",
    "module": "Module power: GPU, its CPU and memory — excludes NICs, fans and PSU losses.",
    "cpu": "Processor packages, and their memory where it is counted — excludes GPUs, NICs, fans"
    " and PSU losses.",
    "host": "Host power: GPUs, CPUs, memory, NICs and fans together, as the management controller"
    " of the host tells it.",
    "none": "",
}
"""The boundary in a sentence, for what stands under a chart."""

DREW: dict[PowerScope, str] = {
    "gpu": "The boards drew",
    "module": "The modules drew",
    "cpu": "The processor packages drew",
    "host": "The host drew",
    "none": "",
}

ONE: dict[PowerScope, str] = {
    "gpu": "board",
    "module": "module",
    "cpu": "package",
    "host": "host",
    "none": "board",
}
"""What the instrument tells apart."""

_SENSOR: dict[PowerSensor, str] = {
    "nvml": "NVIDIA",
    "dcgm": "NVIDIA DCGM",
    "amd": "AMD",
    "rapl": "RAPL",
    "redfish": "Redfish",
    "none": "none",
}

THROUGH: dict[PowerSensor, str] = {
    "nvml": "NVIDIA's driver (NVML)",
    "dcgm": "NVIDIA's DCGM exporter",
    "amd": "AMD's driver",
    "rapl": "the processors' counters (RAPL)",
    "redfish": "the host's management controller (Redfish)",
    "none": "no instrument",
}
"""What was asked for the readings."""


def instrument(sensor: PowerSensor, scope: PowerScope) -> str:
    """Such as "GPU board power (NVIDIA)"."""
    return f"{POWER[scope]} ({_SENSOR[sensor]})"


def source(value: PowerSource, window_s: float | None = None) -> str:
    """Instrument, scope, rate and window, such as "GPU board power sum (NVIDIA) · 1 Hz"."""
    if value.sensor == "none":
        return "none: power is not measured"
    words = f"{POWER[value.scope]} sum ({_SENSOR[value.sensor]}) · {value.rate_hz:g} Hz"
    return words if window_s is None else f"{words} · windows of {window_s:,.0f} s"


def gain(sensor: PowerSensor) -> str:
    """Say how far all readings may be off together, where that is known; the reason is a caveat."""
    return f"±{GAIN_ERROR_PERCENT}% systematic" if sensor in {"nvml", "dcgm"} else ""
