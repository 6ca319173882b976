"""AMD's library and a management controller along the whole way, from a spec to joules.

Opened as a spec asks, read by a thread of their own while time goes by, with a failure on the way;
then through the evidence file to the energy of a window. The library is a stand-in for the module
with the boards of a captured machine, the controller answers over loopback with captured pages.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.amdsmi import AmdSmiException, Die, FakeAmdsmi
from tests.support.clock import VirtualClock
from tests.support.redfish import Controller, controller
from tests.support.runs import small_spec
from tokenwatt_site.energy.window import WindowEnergy, window_energy
from tokenwatt_site.evidence.power import PowerLog, decode_power, encode_power
from tokenwatt_site.measure.instruments import Instruments
from tokenwatt_site.measure.power import Boards, open_meters, opening
from tokenwatt_site.measure.power.amd import AmdMeter
from tokenwatt_site.measure.power.amd_output import Card, read_rocm_smi
from tokenwatt_site.spec import Spec

S = 1_000_000_000


def spec(sensor: str, scope: str, *instruments: dict[str, Any]) -> Spec:
    power = {"sensor": sensor, "scope": scope, "rate_hz": 1}
    return small_spec(setup__power=power, instruments=list(instruments))


def hung(names: list[str]) -> None:
    raise AssertionError(names)


def kept(instruments: Instruments) -> PowerLog:
    """What the thread read, as it is read back from the evidence."""
    log = instruments.recorded().power
    assert log is not None
    again = decode_power(encode_power(log), source="power")
    assert again == log
    return again


def energy(log: PowerLog, start_s: int, end_s: int) -> WindowEnergy:
    return window_energy(log, start_s * S, end_s * S, max_gap_ns=3 * log.period_ns)


class Library(FakeAmdsmi):
    """The module amdsmi on the clock of a measurement; it fails between the times of `silent`."""

    def __init__(self, clock: VirtualClock, dies: list[Die], silent: range) -> None:
        super().__init__(dies)
        self._clock, self._silent = clock, silent

    def amdsmi_get_energy_count(self, processor_handle: int) -> Mapping[str, object]:
        self._told()
        self.now_ns = max(self.now_ns, S + self._clock.now_ns())
        return super().amdsmi_get_energy_count(processor_handle)

    def amdsmi_get_power_info(self, processor_handle: int) -> Mapping[str, object]:
        self._told()
        return super().amdsmi_get_power_info(processor_handle)

    def _told(self) -> None:
        if self._clock.now_ns() // S in self._silent:
            raise AmdSmiException("Error code:\n\t39 | AMDSMI_STATUS_NO_DATA")


MACHINE = "rocm-smi_mi100_rocm602.json"
MACHINE_MW = 162_000
"""Of its four boards together, as AMD's tool printed it."""

Installs = Callable[..., Library]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, test_data: Path) -> Installs:
    """Give what installs a library, and lets meters test its counters on its own clock."""
    cards = read_rocm_smi((test_data / "power" / MACHINE).read_text("utf-8"))

    def install(clock: VirtualClock, silent: range, **die: Any) -> Library:
        return _installed(monkeypatch, clock, silent, [_die(card, **die) for card in cards])

    return install


def _die(card: Card, **die: Any) -> Die:
    assert card.power_mw is not None
    assert card.limit_mw is not None
    watts, cap_uw = card.power_mw // 1000, card.limit_mw * 1000
    name = card.name or ""
    return Die(name, average_w=watts, current_w="N/A", power_cap_uw=cap_uw, drawn_w=watts, **die)


def _installed(
    monkeypatch: pytest.MonkeyPatch, clock: VirtualClock, silent: range, dies: list[Die]
) -> Library:
    made = Library(clock, dies, silent)
    monkeypatch.setitem(sys.modules, "amdsmi", made)
    on_clock = partial(AmdMeter, now_ns=lambda: made.now_ns, wait=made.wait)
    monkeypatch.setattr(opening, "AmdMeter", on_clock)
    return made


def test_amd_boards_are_read_from_the_package_to_the_joules_of_a_window(
    library: Installs,
) -> None:
    clock = VirtualClock()
    made = library(clock, silent=range(20, 22))
    opened = open_meters(spec("amd", "gpu"), Boards())
    assert opened.reason is None
    instruments = Instruments(spec("amd", "gpu"), opened, None, clock)
    with instruments.running(hung):
        instruments.window(3 * S + S // 2, 13 * S + S // 2)
        clock.pause(40)

    log = kept(instruments)
    assert (log.sensor, log.scope, log.period_ns, log.averaging_ns) == ("amd", "gpu", S, None)
    assert [board.limit_mw for board in log.boards] == [290_000] * 4
    assert made.calls[-1] == "amdsmi_shut_down"
    told = [s.at_ns for s in log.of_board(0) if s.energy_mj is not None]
    assert {3 * S + S // 2, 13 * S + S // 2} <= set(told)
    assert not any(20 * S <= at_ns < 22 * S for at_ns in told)
    assert all(s.power_mw is None for s in log.samples if 20 * S <= s.at_ns < 22 * S)
    # Watts and the counter, each in a unit of its own, agree to a step of the accumulator.
    quiet = energy(log, 4, 13)
    assert quiet.energy_mj == pytest.approx(9 * MACHINE_MW, rel=1e-4)
    assert quiet.findings == ()
    assert all(board.checked for board in quiet.by_board)
    # Over the gap the counter runs on, so that no joule is lost.
    across = energy(log, 15, 30)
    assert across.energy_mj == pytest.approx(15 * MACHINE_MW, rel=1e-4)
    assert across.longest_gap_ns == 3 * S
    assert energy(log, 35, 41).energy_mj is None, "nothing is extrapolated"


def test_an_amd_board_without_a_counter_loses_the_window_that_its_gap_is_in(
    library: Installs,
) -> None:
    clock = VirtualClock()
    library(clock, silent=range(20, 25), start="N/A")
    instruments = Instruments(
        spec("amd", "gpu"), open_meters(spec("amd", "gpu"), Boards()), None, clock
    )
    assert instruments.notes == [
        f"amd: Arcturus GL-XL [Instinct MI100] (board {n}): has no energy counter" for n in range(4)
    ]
    with instruments.running(hung):
        clock.pause(40)

    log = kept(instruments)
    assert energy(log, 4, 13).energy_mj == pytest.approx(9 * MACHINE_MW)
    lost = energy(log, 15, 30)
    assert lost.energy_mj is None
    assert "samples do not enclose the window closely enough" in str(lost.reason)


@pytest.fixture(scope="module")
def bmc(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with controller(tmp_path_factory.mktemp("live-bmc")) as running:
        yield running


CHASSIS = "/redfish/v1/Chassis/1U"


def captured(test_data: Path) -> dict[str, Any]:
    """A chassis with its environment and the sensor of its power, as DMTF's mock-up has them."""
    folder = test_data / "power" / "redfish"
    environment, sensor = (
        json.loads((folder / f"dmtf-1U_{name}.json").read_text("utf-8"))
        for name in ("EnvironmentMetrics", "Sensor_TotalPower")
    )
    link = {"@odata.id": f"{CHASSIS}/EnvironmentMetrics"}
    return {
        CHASSIS: {"@odata.type": "#Chassis.v1_14_0.Chassis", "EnvironmentMetrics": link},
        link["@odata.id"]: environment,
        f"{CHASSIS}/Sensors/TotalPower": sensor,
    }


def drawing(pages: Mapping[str, Any], watts: float) -> dict[str, Any]:
    """The same pages, by which the chassis draws so many watts."""
    changed: dict[str, Any] = copy.deepcopy(dict(pages))
    changed[f"{CHASSIS}/EnvironmentMetrics"]["PowerWatts"]["Reading"] = watts
    return changed


def of_host(bmc: Controller, clock: VirtualClock) -> Instruments:
    asked = spec("redfish", "host", {"sensor": "redfish", "url": bmc.url + CHASSIS})
    opened = open_meters(asked, Boards())
    assert opened.reason is None, opened.reason
    return Instruments(asked, opened, None, clock)


def test_a_host_is_read_over_http_from_its_chassis_to_the_joules_of_a_window(
    bmc: Controller, test_data: Path
) -> None:
    clock, pages = VirtualClock(), captured(test_data)
    bmc.serve(pages)
    instruments = of_host(bmc, clock)
    with instruments.running(hung):
        clock.pause(9.5)
        bmc.serve(drawing(pages, 1000.5))
        clock.pause(10)
        bmc.serve({})  # the controller starts anew: every page is 404
        clock.pause(5)
        bmc.serve(drawing(pages, 1000.5))
        clock.pause(10)
        assert set(bmc.asked()) == {f"{CHASSIS}/EnvironmentMetrics"}

    log = kept(instruments)
    assert (log.sensor, log.scope, log.averaging_ns) == ("redfish", "host", S // 4)
    assert log.boards[0].uuid.endswith(f"{CHASSIS}/EnvironmentMetrics")
    read = {s.at_ns // S: s.power_mw for s in log.samples}
    assert {read[at] for at in range(10)} == {374_000}
    assert {read[at] for at in range(10, 20)} == {1_000_500}
    assert {read[at] for at in range(20, 25)} == {None}
    assert energy(log, 1, 8).energy_mj == pytest.approx(7 * 374_000)
    assert energy(log, 11, 18).energy_mj == pytest.approx(7 * 1_000_500)
    lost = energy(log, 12, 30)
    assert lost.energy_mj is None
    assert "samples do not enclose the window closely enough" in str(lost.reason)
    assert energy(log, 26, 33).energy_mj == pytest.approx(7 * 1_000_500)


def test_a_host_that_counts_joules_keeps_them_over_a_gap_of_its_watts(
    bmc: Controller, test_data: Path
) -> None:
    clock, pages = VirtualClock(), captured(test_data)
    environment = pages[f"{CHASSIS}/EnvironmentMetrics"]

    def at(second: int) -> dict[str, Any]:
        counted = {"EnergyJoules": {"Reading": 1_000 + 500 * second}}
        told = environment | counted | {"PowerWatts": environment["PowerWatts"] | {"Reading": 500}}
        return pages | {f"{CHASSIS}/EnvironmentMetrics": told}

    bmc.serve(at(0))
    instruments = of_host(bmc, clock)
    with instruments.running(hung):
        for second in range(1, 21):
            clock.pause(0.5)
            bmc.serve({} if 8 <= second < 12 else at(second))
            clock.pause(0.5)

    log = kept(instruments)
    found = energy(log, 2, 18)
    assert found.energy_mj == pytest.approx(16 * 500_000)
    assert found.longest_gap_ns == 5 * S
