"""NVIDIA boards through NVML (the package nvidia-ml-py). The only user of that library.

Energy is nvmlDeviceGetTotalEnergyConsumption: mJ since the driver was loaded, per physical board.
Power is field 185, the 1 s average, asked for by scope because Grace Hopper answers for the module
only; where there is no such field, nvmlDeviceGetPowerUsage, which on Ampere and later is the same
average (on GA100 and older boards it is momentary).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from tokenwatt_site.canonical import clean_text
from tokenwatt_site.errors import EnvironmentProblem, Problem, ReadBackError
from tokenwatt_site.power_log import Board, PowerSample
from tokenwatt_site.spec import PowerScope, PowerSensor


class NvmlUnavailable(EnvironmentProblem):
    """NVML cannot be used here; its text is the reason that is published."""


class NvmlMeter:
    """Reads every board that NVML shows, in NVML's order; boards are known by their UUID."""

    sensor: PowerSensor = "nvml"
    averaging_ns: int | None = None

    def __init__(self, nvml: Any | None = None) -> None:
        """Open NVML.

        Args:
            nvml: the module; a stand-in for tests.

        Raises:
            NvmlUnavailable: no library, no driver, no board, or a board in MIG mode.
        """
        self._nvml = nvml if nvml is not None else _import()
        self._call("nvmlInit")
        try:
            self.driver: str | None = self._read_or_none("nvmlSystemGetDriverVersion")
            self._handles = [
                self._call("nvmlDeviceGetHandleByIndex", index)
                for index in range(self._call("nvmlDeviceGetCount"))
            ]
            self._refuse_what_cannot_be_read()
            self._boards = tuple(
                Board(
                    uuid=self._call("nvmlDeviceGetUUID", handle),
                    name=self._call("nvmlDeviceGetName", handle),
                    limit_mw=self._read_or_none("nvmlDeviceGetEnforcedPowerLimit", handle),
                )
                for handle in self._handles
            )
            self.scope, self._field = self._find_scope()
        except BaseException:
            self.close()
            raise

    def boards(self) -> tuple[Board, ...]:
        return self._boards

    def memory_gib(self, board: int) -> int | None:
        """Return the memory of a board in GiB, rounded up to what its name says; None: unknown."""
        info = self._read_or_none("nvmlDeviceGetMemoryInfo", self._handles[board])
        return None if info is None else -(-int(info.total) // (1 << 30))

    def read(self, now_ns: Callable[[], int]) -> tuple[PowerSample, ...]:
        samples = []
        for board, handle in enumerate(self._handles):
            energy_mj = self._read_or_none("nvmlDeviceGetTotalEnergyConsumption", handle)
            at_ns = now_ns()
            samples.append(PowerSample(at_ns, board, self._power_mw(handle), energy_mj))
        return tuple(samples)

    def close(self) -> None:
        """Release NVML."""
        self._read_or_none("nvmlShutdown")

    def _power_mw(self, handle: object) -> int | None:
        if self._field is None:
            usage_mw: int | None = self._read_or_none("nvmlDeviceGetPowerUsage", handle)
            return usage_mw
        return self._average_mw(handle, self._field)

    def _average_mw(self, handle: object, scope: int) -> int | None:
        nvml = self._nvml
        wanted = [(nvml.NVML_FI_DEV_POWER_AVERAGE, scope)]
        values = self._read_or_none("nvmlDeviceGetFieldValues", handle, wanted)
        # Every field carries its own verdict: without it an unsupported one reads as 0 W.
        if not values or values[0].nvmlReturn != nvml.NVML_SUCCESS:
            return None
        return int(values[0].value.uiVal)

    def _find_scope(self) -> tuple[PowerScope, int | None]:
        """Return the narrowest scope that every board answers for, and its number."""
        nvml = self._nvml
        scopes: tuple[tuple[PowerScope, int], ...] = (
            ("gpu", nvml.NVML_POWER_SCOPE_GPU),
            ("module", nvml.NVML_POWER_SCOPE_MODULE),
        )
        for scope, number in scopes:
            # 0 W is how some drivers say "not supported" of a scope.
            if all(self._average_mw(handle, number) for handle in self._handles):
                return scope, number
        return "gpu", None

    def _refuse_what_cannot_be_read(self) -> None:
        if not self._handles:
            raise NvmlUnavailable("NVML shows no board")
        for index, handle in enumerate(self._handles):
            mode = self._read_or_none("nvmlDeviceGetMigMode", handle)
            if mode is not None and mode[0]:
                raise NvmlUnavailable(
                    Problem(
                        f"board {index} is in MIG mode, and NVML reads power and energy of whole "
                        "boards only: a share of a board has no watts of its own"
                    )
                )

    def _call(self, name: str, *arguments: object) -> Any:
        """Call NVML; the one place where its errors become ours."""
        try:
            return getattr(self._nvml, name)(*arguments)
        except self._nvml.NVMLError as error:
            raise NvmlUnavailable(f"{name}: {clean_text(str(error))}") from error

    def _read_or_none(self, name: str, *arguments: object) -> Any:
        """Call NVML; None where the board or driver does not have it."""
        try:
            return self._call(name, *arguments)
        except NvmlUnavailable:
            return None


def open_meter(sensor: str, board_count: int, nvml: Any | None = None) -> NvmlMeter | str:
    """Return a meter for what a spec asks, or the reason why there is none.

    Args:
        sensor: `PowerSource.sensor` of the spec.
        board_count: boards that the spec declares; others on the machine would be counted too.
        nvml: the NVML module; a stand-in for tests.

    Raises:
        ReadBackError: the machine has another number of boards: whose watts would be published?
    """
    if sensor == "none":
        return "the spec names no power sensor"
    try:
        meter = NvmlMeter(nvml)
    except NvmlUnavailable as error:
        return str(error)
    if (found := len(meter.boards())) != board_count:
        meter.close()
        raise ReadBackError(
            Problem(
                "is not the number of boards here",
                field="setup.accelerator.count",
                found=f"{found} (observed)",
                expected=f"{board_count} (declared)",
                remedy="Measure on a machine with these boards alone, or correct the spec.",
            )
        )
    return meter


def _import() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise NvmlUnavailable("the package nvidia-ml-py is not installed") from error
