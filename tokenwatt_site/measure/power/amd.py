"""AMD boards through amdsmi, the binding that comes with ROCm.

Names and units are those of amdsmi 7.0.2: watts; an energy accumulator in steps of
`counter_resolution` microjoules (about 15.3), kept as a 32-bit float; power caps in microwatts.
MI300 and later tell the momentary power of the socket, MI200 and earlier an average. No AMD board
was at hand when this was written.

Counters that stand still, or miss a factor, are known (ROCm/amdsmi#38). So each is held against
power x time before it is used. One that runs backwards later is passed on as it is: that is for
who makes numbers of it to judge.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from tokenwatt_site.canonical import clean_text
from tokenwatt_site.errors import EnvironmentProblem, Problem
from tokenwatt_site.evidence.power import Board, PowerSample
from tokenwatt_site.measure.power.amd_output import MOST_W, told, watts_mw, whole
from tokenwatt_site.meters import PowerScope, PowerSensor

CHECK_S = 1.0
CHECK_FACTOR = 3
"""A counter may differ this much from power x time over `CHECK_S`, at whatever load."""


class AmdUnavailable(EnvironmentProblem):
    """AMD's boards cannot be read here; its text is the reason that is published."""


class AmdMeter:
    """Reads every board that amdsmi shows, in its order; boards are known by their UUID.

    An MI250 shows two dies, of which the second tells 0 W: the first one's power is that of both
    (Linux, 076f55a45e9e). So the two are one board.

    Attributes:
        notes: what is not read of which board, and why.
    """

    sensor: PowerSensor = "amd"
    scope: PowerScope = "gpu"
    averaging_ns: int | None = None

    def __init__(
        self,
        amdsmi: Any | None = None,
        *,
        now_ns: Callable[[], int] = time.monotonic_ns,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """Open amdsmi, and test the energy counters for `CHECK_S`.

        Args:
            amdsmi: the module; a stand-in for tests.
            now_ns: the clock of the test.
            wait: waits so many seconds.

        Raises:
            AmdUnavailable: no package, no library, no driver, no board, or one in partitions.
        """
        self._amdsmi = amdsmi if amdsmi is not None else _import()
        self._call("amdsmi_init")
        try:
            self._handles = self._boards_of(self._call("amdsmi_get_processor_handles"))
            driver = self._read("amdsmi_get_gpu_driver_info", self._handles[0])
            self.driver = told(driver, "driver_version")
            self._boards = tuple(self._board(handle) for handle in self._handles)
            self._counted = [True] * len(self._handles)
            self.notes = self._test_counters(now_ns, wait)
        except BaseException:
            self.close()
            raise

    def boards(self) -> tuple[Board, ...]:
        return self._boards

    def read(self, now_ns: Callable[[], int]) -> tuple[PowerSample, ...]:
        kinds = self._amdsmi
        samples = []
        for board, handle in enumerate(self._handles):
            energy_mj = self._energy_mj(handle) if self._counted[board] else None
            at_ns = now_ns()
            power_mw, instant_mw = self._power_mw(handle)
            samples.append(
                PowerSample(
                    at_ns,
                    board,
                    power_mw,
                    energy_mj,
                    instant_mw=instant_mw,
                    sm_mhz=self._clock_mhz(handle, kinds.AmdSmiClkType.GFX),
                    memory_mhz=self._clock_mhz(handle, kinds.AmdSmiClkType.MEM),
                    celsius=self._celsius(handle),
                )
            )
        return tuple(samples)

    def close(self) -> None:
        """Release amdsmi."""
        self._read("amdsmi_shut_down")

    def _boards_of(self, dies: list[Any]) -> list[Any]:
        """Leave out the second die of an MI250 where its power is told with the first one's."""
        boards, pair = [], 0
        for die in dies:
            self._refuse_partition(die)
            pair = pair + 1 if "MI250" in self._name(die) else 0
            if pair % 2 == 0 and pair and self._power_mw(die)[0] is None:
                continue
            boards.append(die)
        if not boards:
            raise AmdUnavailable("amdsmi shows no board")
        return boards

    def _refuse_partition(self, handle: Any) -> None:
        mode = self._read("amdsmi_get_gpu_compute_partition", handle)
        # SPX is the whole board as one; of the others each part is shown as a board.
        if mode not in {None, "", "N/A", "SPX"}:
            raise AmdUnavailable(
                Problem(
                    f"a board is split into partitions ({clean_text(str(mode))}), and a part of "
                    "a board has no watts of its own",
                    remedy="Set its compute partition to SPX with amd-smi.",
                )
            )

    def _board(self, handle: Any) -> Board:
        caps = self._read("amdsmi_get_power_cap_info", handle)
        return Board(
            uuid=clean_text(str(self._call("amdsmi_get_gpu_device_uuid", handle))),
            name=self._name(handle),
            pci=self._read("amdsmi_get_gpu_device_bdf", handle),
            limit_mw=_limit_mw(caps, "power_cap"),
            default_limit_mw=_limit_mw(caps, "default_power_cap"),
        )

    def _name(self, handle: Any) -> str:
        return told(self._read("amdsmi_get_gpu_asic_info", handle), "market_name") or "AMD GPU"

    def _test_counters(
        self, now_ns: Callable[[], int], wait: Callable[[float], object]
    ) -> tuple[str, ...]:
        """Keep the counters that agree with power x time, and say of each other why it is not."""

        def read() -> list[tuple[int, int | None, int | None]]:
            return [(now_ns(), self._energy_mj(h), self._power_mw(h)[0]) for h in self._handles]

        before = read()
        wait(CHECK_S)
        after = read()
        notes = []
        for board, ((began_ns, e0, p0), (ended_ns, e1, p1)) in enumerate(
            zip(before, after, strict=True)
        ):
            fault = _counter_fault((e0, e1), (p0, p1), ended_ns - began_ns)
            self._counted[board] = fault is None
            notes += [f"{self._boards[board].name} (board {board}): {fault}"] if fault else []
        return tuple(notes)

    def _power_mw(self, handle: Any) -> tuple[int | None, int | None]:
        """Return the average where the board tells one, else the momentary; and the momentary."""
        info = self._read("amdsmi_get_power_info", handle) or {}
        instant_mw = watts_mw(info.get("current_socket_power"))
        average_mw = watts_mw(info.get("average_socket_power"))
        return instant_mw if average_mw is None else average_mw, instant_mw

    def _energy_mj(self, handle: Any) -> int | None:
        count = self._read("amdsmi_get_energy_count", handle) or {}
        return accumulated_mj(count.get("energy_accumulator"), count.get("counter_resolution"))

    def _clock_mhz(self, handle: Any, kind: Any) -> int | None:
        return whole((self._read("amdsmi_get_clock_info", handle, kind) or {}).get("clk"), 20_000)

    def _celsius(self, handle: Any) -> int | None:
        kinds = self._amdsmi
        hottest = kinds.AmdSmiTemperatureType.HOTSPOT
        now = kinds.AmdSmiTemperatureMetric.CURRENT
        return whole(self._read("amdsmi_get_temp_metric", handle, hottest, now), 200)

    def _call(self, name: str, *arguments: object) -> Any:
        """Call amdsmi; the one place where its errors become ours."""
        try:
            return getattr(self._amdsmi, name)(*arguments)
        except self._amdsmi.AmdSmiException as error:
            raise AmdUnavailable(f"{name}: {clean_text(str(error))}") from error

    def _read(self, name: str, *arguments: object) -> Any:
        """Call amdsmi; None where the board or driver does not have it."""
        try:
            return self._call(name, *arguments)
        except AmdUnavailable:
            return None


def accumulated_mj(accumulator: object, resolution_uj: object) -> int | None:
    """Return millijoules of an accumulator that counts in steps of `resolution_uj`."""
    if not isinstance(accumulator, int) or isinstance(accumulator, bool):
        return None
    if not isinstance(resolution_uj, float) or not math.isfinite(resolution_uj):
        return None
    energy_mj = round(accumulator * resolution_uj / 1000)
    return energy_mj if resolution_uj > 0 and 0 <= energy_mj < 1 << 53 else None


def _counter_fault(
    energy_mj: tuple[int | None, int | None],
    power_mw: tuple[int | None, int | None],
    length_ns: int,
) -> str | None:
    (e0, e1), (p0, p1) = energy_mj, power_mw
    if e0 is None or e1 is None:
        return "has no energy counter"
    if p0 is None or p1 is None:
        return "its energy counter is not used: without power it cannot be tested"
    counted_j = (e1 - e0) / 1e3
    # mW ns = 1e-12 J
    drawn_j = (p0 + p1) / 2 * length_ns / 1e12
    if drawn_j <= CHECK_FACTOR * counted_j <= CHECK_FACTOR**2 * drawn_j:
        return None
    return (
        f"its energy counter is not used: it rose by {counted_j:.4g} J while {drawn_j:.4g} J "
        "were drawn by its power"
    )


def _limit_mw(caps: Mapping[str, object] | None, key: str) -> int | None:
    microwatts = whole((caps or {}).get(key), MOST_W * 1_000_000)
    # Less than a watt is told in another unit, and no cap of a board.
    return microwatts // 1000 if microwatts and microwatts >= 1_000_000 else None


def _import() -> Any:
    printed = io.StringIO()
    try:
        # Without its library the binding prints, and fails with a KeyError.
        with contextlib.redirect_stdout(printed):
            return importlib.import_module("amdsmi")
    except ImportError as error:
        raise AmdUnavailable(
            Problem("the package amdsmi is not installed", remedy="Install tokenwatt-site[amd].")
        ) from error
    except (OSError, KeyError, AttributeError) as error:
        raise AmdUnavailable(
            Problem(
                f"amdsmi does not load: {clean_text(printed.getvalue() or str(error))}",
                remedy="Install ROCm's amd-smi-lib, and the amdsmi of the same release.",
            )
        ) from error
