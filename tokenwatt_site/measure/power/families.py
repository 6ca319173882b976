"""Names and units of what exporters of GPU metrics export: one dialect for each exporter.

DCGM (dcgm-exporter), nvidia-smi (nvidia_gpu_exporter) and AMD (device-metrics-exporter). Names
change between releases, so a quantity has several. Units are those of the dialect: W, mJ (DCGM),
uJ (AMD), Hz (nvidia-smi).

What a board cannot do is no reading. 0 W, 0 mJ and 0 degrees are how a driver says "not supported".
An activity of the memory of exactly 0 is also what is exported while another profiler holds the
counters, so it proves nothing. More than 10 kW, an activity above 1 and DCGM's markers for "blank"
are none either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tokenwatt_site.meters import PowerSensor

_MAX_W = 10_000
_MAX_MHZ = 20_000
_MAX_CELSIUS = 200
_MAX_INTEGER = 2**53

Unit: TypeAlias = Callable[[float], int | None]
Names: TypeAlias = tuple[str, ...]


def _above_zero(scale: float, most: float) -> Unit:
    """Return a unit: `scale` of ours in one of theirs; readings are above 0, at most `most`."""

    def convert(value: float) -> int | None:
        return round(value * scale) if 0 < value <= most else None

    return convert


_watts = _above_zero(1e3, _MAX_W)
_millijoules = _above_zero(1, _MAX_INTEGER - 1)
_microjoules = _above_zero(1e-3, 1e3 * (_MAX_INTEGER - 1))
_mhz = _above_zero(1, _MAX_MHZ)
_hertz = _above_zero(1e-6, _MAX_MHZ * 1e6)
_celsius = _above_zero(1, _MAX_CELSIUS)
_ratio = _above_zero(1e6, 1)


def _bits(value: float) -> int | None:
    return int(value) if 0 <= value < _MAX_INTEGER and value == math.floor(value) else None


@dataclass(frozen=True, slots=True)
class Quantity:
    """The families that mean one thing, the better or newer first, and how they are read."""

    names: Names
    unit: Unit


@dataclass(frozen=True, slots=True)
class Dialect:
    """The names of one exporter. Labels are in lower case, and looked up in the order given.

    Attributes:
        exporter: what it is called.
        sensor: what it asks itself, as in `spec.PowerSource`.
        readings: by the fields of `exporters.Reading`.
        limits: by the fields of `evidence.power.Board`.
        switches: families of 0 and 1, by the fields of `evidence.power.Board`.
        uuid: labels by which a board is known.
        name: labels of its name.
        driver: labels of the driver's version.
        pci: labels of the bus id.
        place: the label of where a board stands in its host.
        part: labels that are above 0 on rows of a board's other parts, which read 0 W.
        facts: a family that is there for its labels.
        mig_label: a label that rows of instances have, and rows of boards have not.
        mig_family: a family that is 1 where a board has instances.
    """

    exporter: str
    sensor: PowerSensor
    readings: dict[str, Quantity]
    limits: dict[str, Quantity]
    switches: dict[str, Names]
    uuid: Names
    name: Names
    driver: Names
    pci: Names
    place: str
    part: Names = ()
    facts: str | None = None
    mig_label: str | None = None
    mig_family: str | None = None

    @property
    def measured(self) -> Iterator[str]:
        """Yield the families without which a board is not measured."""
        for key in ("power_mw", "energy_mj", "instant_mw"):
            if key in self.readings:
                yield from self.readings[key].names

    @property
    def families(self) -> Iterator[str]:
        for quantity in (*self.readings.values(), *self.limits.values()):
            yield from quantity.names
        for names in self.switches.values():
            yield from names
        yield from (name for name in (self.facts, self.mig_family) if name)


# Field ids of DCGM: power 155 (what NVML calls usage: a mean of 1 s on most boards), instant 157,
# energy 156, limits 164 and 163, clocks 100 and 101, reasons 112, temperature 150, memory 1005.
# The second of two names is that of DCGM 4.6 and later; 112 changed its name in 3.3.
_DCGM = Dialect(
    exporter="dcgm-exporter",
    sensor="dcgm",
    readings={
        "power_mw": Quantity(("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"), _watts),
        "instant_mw": Quantity(
            ("DCGM_FI_DEV_POWER_USAGE_INSTANT", "DCGM_FI_DEV_BOARD_POWER_RAW_WATTS"),
            _watts,
        ),
        "energy_mj": Quantity(("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",), _millijoules),
        "dram_ppm": Quantity(("DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO"), _ratio),
        "sm_mhz": Quantity(("DCGM_FI_DEV_SM_CLOCK",), _mhz),
        "memory_mhz": Quantity(("DCGM_FI_DEV_MEM_CLOCK",), _mhz),
        "reasons": Quantity(
            ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"),
            _bits,
        ),
        "celsius": Quantity(("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"), _celsius),
    },
    limits={
        "limit_mw": Quantity(
            ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS"),
            _watts,
        ),
        "default_limit_mw": Quantity(
            ("DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", "DCGM_FI_DEV_BOARD_POWER_LIMIT_DEFAULT_WATTS"),
            _watts,
        ),
        "memory_mhz": Quantity(("DCGM_FI_DEV_MAX_MEM_CLOCK",), _mhz),
    },
    switches={
        "ecc": ("DCGM_FI_DEV_ECC_CURRENT", "DCGM_FI_DEV_ECC_MODE"),
        "persistence": ("DCGM_FI_DEV_PERSISTENCE_MODE",),
    },
    uuid=("uuid",),
    name=("modelname",),
    driver=("dcgm_fi_driver_version",),
    pci=("pci_bus_id",),
    place="gpu",
    mig_label="gpu_i_id",
)
_NVIDIA_SMI = Dialect(
    exporter="nvidia_gpu_exporter",
    sensor="nvml",
    readings={
        "power_mw": Quantity(
            ("nvidia_smi_power_draw_average_watts", "nvidia_smi_power_draw_watts"),
            _watts,
        ),
        "instant_mw": Quantity(("nvidia_smi_power_draw_instant_watts",), _watts),
        "sm_mhz": Quantity(("nvidia_smi_clocks_current_sm_clock_hz",), _hertz),
        "memory_mhz": Quantity(("nvidia_smi_clocks_current_memory_clock_hz",), _hertz),
        "reasons": Quantity(
            ("nvidia_smi_clocks_event_reasons_active", "nvidia_smi_clocks_throttle_reasons_active"),
            _bits,
        ),
        "celsius": Quantity(("nvidia_smi_temperature_gpu",), _celsius),
    },
    limits={
        "limit_mw": Quantity(("nvidia_smi_enforced_power_limit_watts",), _watts),
        "default_limit_mw": Quantity(("nvidia_smi_power_default_limit_watts",), _watts),
        "memory_mhz": Quantity(("nvidia_smi_clocks_max_memory_clock_hz",), _hertz),
    },
    switches={
        "ecc": ("nvidia_smi_ecc_mode_current",),
        "persistence": ("nvidia_smi_persistence_mode",),
    },
    uuid=("uuid",),
    name=("name",),
    driver=("driver_version",),
    pci=("pci_bus_id",),
    place="index",
    facts="nvidia_smi_gpu_info",
    mig_family="nvidia_smi_mig_mode_current",
)


def _amd(*names: str) -> Names:
    """Return names as the exporter has them, bare or with the prefix of its usual deployment."""
    return tuple(f"{prefix}{name}" for name in names for prefix in ("", "amd_"))


# The energy is the accumulator, already times its resolution: uJ. UUIDs are exported on request.
_AMD = Dialect(
    exporter="device-metrics-exporter",
    sensor="amd",
    readings={
        "power_mw": Quantity(
            _amd("gpu_average_package_power", "gpu_package_power", "gpu_power_usage"), _watts
        ),
        "energy_mj": Quantity(_amd("gpu_energy_consumed"), _microjoules),
        "celsius": Quantity(_amd("gpu_junction_temperature"), _celsius),
    },
    limits={},
    switches={},
    uuid=("gpu_uuid", "serial_number"),
    name=("card_model", "card_series"),
    driver=("driver_version",),
    pci=(),
    place="gpu_id",
    part=("gpu_partition_id", "partition_id"),
)
DIALECTS = (_DCGM, _NVIDIA_SMI, _AMD)

FAMILIES = frozenset(name for dialect in DIALECTS for name in dialect.families)
"""All that are read: of an exporter's text, the smaller part."""
