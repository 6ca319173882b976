"""NVIDIA boards through NVML: energy, power, clocks and memory traffic of whole boards.

Energy is nvmlDeviceGetTotalEnergyConsumption: mJ since the driver was loaded. Power is field 185,
the average of 1 s, and 186, the momentary one, asked for by scope because Grace Hopper answers for
the module only; where there is no field 185, nvmlDeviceGetPowerUsage, which is the same average
from Ampere on and momentary on GA100 (A100, A30) and older chips. A powered board draws something:
0 W or 0 mJ is how some drivers say "not supported", and is None here.

A field carries a time of its own, but on the wall clock, which steps and is not the clock of the
requests. So a sample has the middle of the call that read its energy counter; the counter may have
been read at any moment of that call, and the error is at most half of its length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

from tokenwatt_site.canonical import clean_text
from tokenwatt_site.errors import Problem
from tokenwatt_site.evidence.power import Board, DramSpan, PowerSample
from tokenwatt_site.measure.power.binding import Nvml, NvmlUnavailable
from tokenwatt_site.measure.power.gpm import Traffic
from tokenwatt_site.measure.power.selection import Chosen, Present, choose
from tokenwatt_site.meters import PowerScope, PowerSensor

__all__ = ["NvmlMeter", "NvmlUnavailable", "everything", "open_meter"]

AVERAGE_NS = 1_000_000_000
_MOMENTARY_NS = 0
_LAST_MOMENTARY = (8, 0)  # compute capability of GA100; from 8.6 on usage is the average

Select = Callable[[Sequence[Present]], Sequence[Chosen]]


def everything(present: Sequence[Present]) -> tuple[Chosen, ...]:
    """Choose every board, whoever uses it."""
    return tuple(
        Chosen(place, "all there are", part=board.mig, others=None)
        for place, board in enumerate(present)
    )


class NvmlMeter:
    """Reads boards as a `PowerMeter` and a `DramMeter`; one thread at a time may use it."""

    sensor: PowerSensor = "nvml"
    notes: tuple[str, ...] = ()

    def __init__(self, nvml: Any | None = None, select: Select = everything) -> None:
        """Open NVML.

        Args:
            nvml: the binding; pynvml where it is None.
            select: tells which boards are read; may raise what it likes.

        Raises:
            NvmlUnavailable: no library, driver or board; a board that is split, or that tells
                neither energy nor power.
        """
        self._nvml = Nvml(nvml)
        self._traffic = Traffic(self._nvml, ())
        try:
            version = self._nvml.ask("nvmlSystemGetDriverVersion")
            self.driver: str | None = clean_text(version) if version else None
            handles = self._all_handles()
            present = [self._present(handle) for handle in handles]
            chosen = select(present)
            self._refuse_shares([present[one.place] for one in chosen if one.part])
            self._handles = [handles[one.place] for one in chosen]
            self._boards = tuple(
                self._board(handles[one.place], present[one.place], one) for one in chosen
            )
            self.scope, self._field_scope = self._find_scope()
            self.averaging_ns = self._find_averaging_ns()
            self._refuse_the_silent()
            self._traffic = Traffic(self._nvml, self._handles)
        except BaseException:
            self.close()
            raise

    def boards(self) -> tuple[Board, ...]:
        return self._boards

    def memory_gib(self, board: int) -> int | None:
        """Return the memory of a board in GiB, rounded up to what its name says; None: unknown."""
        info = self._nvml.ask("nvmlDeviceGetMemoryInfo", self._handles[board])
        return None if info is None else -(-int(info.total) // (1 << 30))

    def read(self, now_ns: Callable[[], int]) -> tuple[PowerSample, ...]:
        return tuple(self._sample(board, now_ns) for board in range(len(self._handles)))

    def begin(self, now_ns: Callable[[], int]) -> object:
        return self._traffic.begin(now_ns)

    def end(self, begun: object, now_ns: Callable[[], int]) -> tuple[DramSpan, ...]:
        return self._traffic.end(begun, now_ns)

    def close(self) -> None:
        """Free the samples that are held, and release NVML."""
        self._traffic.close()
        self._nvml.close()

    def _sample(self, board: int, now_ns: Callable[[], int]) -> PowerSample:
        handle, module, ask = self._handles[board], self._nvml.module, self._nvml.ask
        before_ns = now_ns()
        energy_mj = ask("nvmlDeviceGetTotalEnergyConsumption", handle)
        at_ns = (before_ns + now_ns()) // 2
        power_mw, instant_mw = self._power_mw(handle)
        return PowerSample(
            at_ns=at_ns,
            board=board,
            power_mw=power_mw,
            energy_mj=energy_mj or None,
            instant_mw=instant_mw,
            dram_ppm=self._traffic.since_last(board, now_ns),
            sm_mhz=ask("nvmlDeviceGetClockInfo", handle, module.NVML_CLOCK_SM),
            memory_mhz=ask("nvmlDeviceGetClockInfo", handle, module.NVML_CLOCK_MEM),
            reasons=ask("nvmlDeviceGetCurrentClocksEventReasons", handle),
            celsius=self._celsius(handle),
        )

    def _power_mw(self, handle: object) -> tuple[int | None, int | None]:
        """Return average and momentary power."""
        if self._field_scope is not None:
            return self._fields_mw(handle, self._field_scope)
        usage_mw = self._nvml.ask("nvmlDeviceGetPowerUsage", handle)
        return usage_mw or None, self._fields_mw(handle, self._nvml.module.NVML_POWER_SCOPE_GPU)[1]

    def _fields_mw(self, handle: object, scope: int) -> tuple[int | None, int | None]:
        module = self._nvml.module
        fields = (module.NVML_FI_DEV_POWER_AVERAGE, module.NVML_FI_DEV_POWER_INSTANT)
        asked = [(field, scope) for field in fields]
        values = self._nvml.ask("nvmlDeviceGetFieldValues", handle, asked)
        if values is None:
            return None, None
        # Every field carries its own verdict: without it an unsupported one reads as 0 W.
        average, instant = (
            value.value.uiVal or None if value.nvmlReturn == module.NVML_SUCCESS else None
            for value in values
        )
        return average, instant

    def _celsius(self, handle: object) -> int | None:
        sensor = self._nvml.module.NVML_TEMPERATURE_GPU
        found = self._nvml.ask("nvmlDeviceGetTemperatureV", handle, sensor)
        if found is None:  # older drivers
            found = self._nvml.ask("nvmlDeviceGetTemperature", handle, sensor)
        return None if found is None else int(found)

    def _all_handles(self) -> list[object]:
        """Return the boards that may be opened: a container shows some that may not."""
        count = self._nvml.call("nvmlDeviceGetCount")
        handles = [self._nvml.ask("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
        opened = [handle for handle in handles if handle is not None]
        if not opened:
            if count:
                self._nvml.call("nvmlDeviceGetHandleByIndex", 0)
            raise NvmlUnavailable("NVML shows no board")
        return opened

    def _present(self, handle: object) -> Present:
        pci = self._nvml.ask("nvmlDeviceGetPciInfo", handle)
        mode = self._nvml.ask("nvmlDeviceGetMigMode", handle)
        mig = bool(mode and mode[0])
        return Present(
            uuid=clean_text(self._nvml.call("nvmlDeviceGetUUID", handle)),
            pci=clean_text(pci.busId) if pci is not None and pci.busId else None,
            mig=mig,
            instances=self._instances(handle) if mig else (),
            pids=self._pids(handle),
        )

    def _instances(self, handle: object) -> tuple[str, ...]:
        ask = self._nvml.ask
        shares = (
            ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
            for index in range(ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0)
        )
        ids = (ask("nvmlDeviceGetUUID", share) for share in shares if share is not None)
        return tuple(clean_text(one) for one in ids if one)

    def _pids(self, handle: object) -> frozenset[int] | None:
        computing = self._nvml.ask("nvmlDeviceGetComputeRunningProcesses", handle)
        drawing = self._nvml.ask("nvmlDeviceGetGraphicsRunningProcesses", handle)
        if computing is None:
            return None
        return frozenset(int(process.pid) for process in [*computing, *(drawing or ())])

    def _board(self, handle: object, present: Present, chosen: Chosen) -> Board:
        ask, module = self._nvml.ask, self._nvml.module
        ecc = ask("nvmlDeviceGetEccMode", handle)
        persistence = ask("nvmlDeviceGetPersistenceMode", handle)
        return Board(
            uuid=present.uuid,
            name=clean_text(self._nvml.call("nvmlDeviceGetName", handle)),
            chosen=chosen.how,
            pci=present.pci,
            limit_mw=ask("nvmlDeviceGetEnforcedPowerLimit", handle),
            default_limit_mw=ask("nvmlDeviceGetPowerManagementDefaultLimit", handle),
            bus_bits=ask("nvmlDeviceGetMemoryBusWidth", handle),
            memory_mhz=ask("nvmlDeviceGetMaxClockInfo", handle, module.NVML_CLOCK_MEM),
            ecc=None if ecc is None else bool(ecc[0]),
            persistence=None if persistence is None else bool(persistence),
            others=chosen.others,
        )

    def _find_scope(self) -> tuple[PowerScope, int | None]:
        """Return the narrowest scope of which every board tells its average, and its number."""
        module = self._nvml.module
        scopes: tuple[tuple[PowerScope, int], ...] = (
            ("gpu", module.NVML_POWER_SCOPE_GPU),
            ("module", module.NVML_POWER_SCOPE_MODULE),
        )
        for scope, number in scopes:
            if all(self._fields_mw(handle, number)[0] is not None for handle in self._handles):
                return scope, number
        return "gpu", None

    def _find_averaging_ns(self) -> int | None:
        if self._field_scope is not None:
            return AVERAGE_NS
        told = [self._nvml.ask("nvmlDeviceGetCudaComputeCapability", h) for h in self._handles]
        found = {
            None if one is None else AVERAGE_NS if one > _LAST_MOMENTARY else _MOMENTARY_NS
            for one in told
        }
        return found.pop() if len(found) == 1 else None

    def _refuse_shares(self, split: Sequence[Present]) -> None:
        if split:
            raise NvmlUnavailable(
                Problem(
                    f"board {split[0].uuid} is in MIG mode, and NVML reads power and energy of"
                    " whole boards only: a share of a board has no watts of its own",
                    remedy="To publish those of the whole board, whoever uses its other shares,"
                    f" name it: --gpus {split[0].uuid}.",
                )
            )

    def _refuse_the_silent(self) -> None:
        for board, handle in zip(self._boards, self._handles, strict=True):
            if self._nvml.ask("nvmlDeviceGetTotalEnergyConsumption", handle):
                continue
            if any(one is not None for one in self._power_mw(handle)):
                continue
            mode = self._nvml.ask("nvmlDeviceGetVirtualizationMode", handle)
            virtual = mode == self._nvml.module.NVML_GPU_VIRTUALIZATION_MODE_VGPU
            share = " is a virtual GPU, a share of a board, and" if virtual else ""
            try:
                self._nvml.call("nvmlDeviceGetPowerUsage", handle)
                said = "NVML answers 0 W"
            except NvmlUnavailable as error:
                said = str(error)
            raise NvmlUnavailable(f"{board.name}{share} tells neither energy nor power ({said})")


def open_meter(
    sensor: str,
    board_count: int,
    nvml: Any | None = None,
    *,
    named: Sequence[str] = (),
    pids: AbstractSet[int] = frozenset(),
    environment: Mapping[str, str] | None = None,
) -> NvmlMeter | str:
    """Return a meter of the server's boards, or the reason why there is none.

    Args:
        sensor: `PowerSource.sensor` of the spec.
        board_count: boards that the spec declares.
        nvml: the binding; pynvml where it is None.
        named: boards that the user named, see `selection.choose`.
        pids: the engine's processes.
        environment: the engine's.

    Raises:
        ReadBackError: it cannot be told which boards are the server's, or they are more or fewer
            than declared: whose watts would be published?
    """
    if sensor == "none":
        return "the spec names no power sensor"
    select = partial(
        choose, declared_count=board_count, named=named, pids=pids, environment=environment
    )
    try:
        return NvmlMeter(nvml, select)
    except NvmlUnavailable as error:
        return str(error)
