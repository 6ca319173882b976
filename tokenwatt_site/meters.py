"""Sensors of power: what each covers, where it is asked, and which boards have which role."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from tokenwatt_site.schema import BaseUrl, Line, Model, VariableName

PowerSensor: TypeAlias = Literal["nvml", "dcgm", "amd", "rapl", "redfish", "none"]
PowerScope: TypeAlias = Literal["gpu", "module", "cpu", "host", "none"]

GPU_SCOPES: frozenset[PowerScope] = frozenset({"gpu", "module"})
"""Those whose boards are the accelerators."""

SCOPES: Mapping[PowerSensor, frozenset[PowerScope]] = MappingProxyType(
    {
        "nvml": GPU_SCOPES,
        "dcgm": GPU_SCOPES,
        "amd": GPU_SCOPES,
        "rapl": frozenset({"cpu"}),
        "redfish": frozenset({"host"}),
        "none": frozenset({"none"}),
    }
)
"""What a reading of each sensor can cover."""


class PowerSource(Model):
    """Which instrument, what it covers, how often it is read.

    At most once a second: energy counters that are polled faster fall short. `scope`: the GPU
    boards; modules, with the processor beside each GPU; processor packages; or whole hosts.
    """

    sensor: PowerSensor
    scope: PowerScope
    rate_hz: Annotated[float, Field(ge=0, le=1)]

    @model_validator(mode="after")
    def _whole(self) -> PowerSource:
        told = (self.sensor != "none", self.scope != "none", self.rate_hz > 0)
        if len(set(told)) != 1:
            raise ValueError("sensor, scope and rate_hz go together: none, none and 0, or all set")
        if self.scope not in SCOPES[self.sensor]:
            scopes = " or ".join(sorted(SCOPES[self.sensor]))
            raise ValueError(f"sensor: {self.sensor} reads scope: {scopes}")
        return self


REMOTE_SENSORS: frozenset[PowerSensor] = frozenset({"dcgm", "redfish"})
"""Those that are asked over the network alone, so that there may be several: one per node."""

EXPORTED_SENSORS: frozenset[PowerSensor] = frozenset({"dcgm", "nvml", "amd"})
"""Those of which exporters tell: DCGM's own, nvidia_gpu_exporter, AMD's device-metrics-exporter."""


class Instrument(Model):
    """Where an instrument is asked. Not identity.

    Those of `setup.power.sensor` make the published energy; any other is read beside it and shown
    apart. `url` is that of an exporter's metrics or of a Redfish chassis; without it `nvml`, `amd`
    and `rapl` are this machine's own. The variables name what holds user and password, which are in
    no file.
    """

    sensor: Literal["nvml", "dcgm", "amd", "rapl", "redfish"]
    url: BaseUrl | None = None
    user_variable: VariableName | None = None
    password_variable: VariableName | None = None

    @model_validator(mode="after")
    def _asked_where_it_is(self) -> Instrument:
        if self.url is None and self.sensor in REMOTE_SENSORS:
            raise ValueError(f"sensor: {self.sensor} needs url, where it is asked")
        if self.url is not None and self.sensor not in REMOTE_SENSORS | EXPORTED_SENSORS:
            raise ValueError(f"sensor: {self.sensor} is read on this machine; remove url")
        if (self.user_variable is None) != (self.password_variable is None):
            raise ValueError("user_variable and password_variable go together")
        if self.user_variable is not None and self.sensor != "redfish":
            raise ValueError("user_variable and password_variable go with sensor: redfish")
        return self


BoardRole: TypeAlias = Literal["prefill", "decode"]

_BoardNames: TypeAlias = Annotated[tuple[Line, ...], Field(min_length=1, max_length=512)]


class BoardRoles(Model):
    """Which boards of a prefill/decode split take prompts, and which make tokens. Not identity.

    Boards are named by their UUID or its beginning, on whichever node they are.
    """

    prefill: _BoardNames
    decode: _BoardNames

    @model_validator(mode="after")
    def _one_role_each(self) -> BoardRoles:
        for name in self.prefill:
            for other in self.decode:
                if _begins(name, other) or _begins(other, name):
                    raise ValueError(f"{name} is named as prefill, and {other} as decode")
        return self

    def of(self, uuid: str) -> BoardRole | None:
        """Return the role of a board; None: it has none."""
        named: tuple[tuple[BoardRole, tuple[str, ...]], ...] = (
            ("prefill", self.prefill),
            ("decode", self.decode),
        )
        return next((role for role, own in named if any(_begins(uuid, n) for n in own)), None)

    def unused(self, uuids: Collection[str]) -> tuple[str, ...]:
        """Return the names that are of none of these boards."""
        every = (*self.prefill, *self.decode)
        return tuple(name for name in every if not any(_begins(uuid, name) for uuid in uuids))


def _begins(uuid: str, name: str) -> bool:
    return uuid.casefold().startswith(name.casefold())
