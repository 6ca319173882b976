"""What readings of the boards do not cover is said, with the reason, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.runs import gpu_spec
from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.claims.power_caveats import host_caveats, power_caveats
from tokenwatt_site.energy.window import WindowEnergy, window_energy
from tokenwatt_site.evidence.power import Board, PowerLog, PowerSample
from tokenwatt_site.journal import GENESIS, Entry
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Evidence

S = 10**9
SPEC = gpu_spec()
SOUND = {"others": 0, "ecc": True, "persistence": True}


def log(*boards: dict[str, Any], **changes: Any) -> PowerLog:
    read = PowerLog(
        "nvml",
        "gpu",
        S,
        None,
        tuple(Board(uuid=f"GPU-{n}", name="Toy", **SOUND | told) for n, told in enumerate(boards)),
        tuple(PowerSample(t * S, n, 400, 400 * t) for t in range(10) for n in range(len(boards))),
    )
    return replace(read, **changes)


def energy_of(read: PowerLog) -> WindowEnergy:
    return window_energy(read, 2 * S, 7 * S, max_gap_ns=3 * S)


def said(read: PowerLog, spec: Spec = SPEC, told: JsonValue = None) -> dict[str, str]:
    opening = Entry(seq=0, at="now", event="open", prev=GENESIS, data={"instruments": told})
    found = power_caveats(spec, Evidence((opening,), (), read), (energy_of(read),))
    return {item.what: item.why for item in found}


def test_sound_boards_have_a_gain_error_and_no_other_caveat() -> None:
    found = said(log({}, {}))
    assert list(found) == ["Gain error of the boards"]
    assert "±5%" in found["Gain error of the boards"]
    assert "cancels only on the same boards" in found["Gain error of the boards"]


def test_the_gain_error_of_nvidias_boards_is_not_said_of_others() -> None:
    assert list(said(log({}, sensor="amd"))) == ["How far the instrument may be off as a whole"]


def test_no_power_has_no_caveat_here() -> None:
    assert power_caveats(SPEC, Evidence((), (), None), ()) == ()


def test_a_gain_error_is_of_numbers_that_are_there() -> None:
    read = log({}, samples=())
    assert said(read) == {}


@pytest.mark.parametrize(("sensor", "scope"), [("rapl", "cpu"), ("redfish", "host")])
def test_packages_and_hosts_are_no_boards(sensor: Any, scope: Any) -> None:
    found = said(log({"others": None, "ecc": False}, sensor=sensor, scope=scope))
    assert list(found) == ["How far the instrument may be off as a whole"]


def test_boards_that_the_user_named_are_marked_declared() -> None:
    found = said(log({"chosen": "by name"}, {"chosen": "by process"}))
    assert found["That the engine ran on these boards alone"].startswith("1 of 2 boards declared")


def test_b13_other_processes_on_the_boards_are_told() -> None:
    found = said(log({"others": 2}, {"others": 1}, {}))
    assert found["Boards without other processes"].startswith(
        "3 beside the engine's own were on 2 of 3 boards"
    )
    unknown = said(log({"others": None}))
    assert unknown["Whether other processes used the boards"].endswith("for 1 of 1 board.")


def test_b21_a_limit_that_is_not_the_default_is_told() -> None:
    limits = {"limit_mw": 500_000, "default_limit_mw": 700_000}
    found = said(log(limits, limits, {"limit_mw": 700_000, "default_limit_mw": 700_000}))
    words = "2 of 3 boards: 500 W where 700 W is the default."
    assert found["Boards at their default power limit"] == words


def test_memory_without_correction_and_a_driver_that_unloads_are_told() -> None:
    found = said(log({"ecc": False, "persistence": False}, {"ecc": None, "persistence": None}))
    assert found["Memory with error correction"] == "It was off on 1 of 2 boards."
    assert "off on 1 of 2 boards" in found["A driver that stays loaded"]


def test_energy_that_is_the_integral_of_watts_is_told() -> None:
    read = log({}, {})
    half = tuple(replace(s, energy_mj=None) if s.board else s for s in read.samples)
    found = said(replace(read, samples=half))
    assert found["Energy by the boards' own counters"].startswith("In 1 of 2 windows of a board")


def test_a_counter_without_watts_beside_it_is_told() -> None:
    read = log({}, {})
    half = tuple(replace(s, power_mw=None) if s.board else s for s in read.samples)
    found = said(replace(read, samples=half))
    assert found["Counters held against watts"].startswith("In 1 of 2 windows of a board its watts")
    assert "Counters held against watts" in said(replace(read, averaging_ns=S))


def test_gaps_between_readings_are_told_from_two_periods_on() -> None:
    read = log({})
    gap = tuple(s for s in read.samples if s.at_ns != 4 * S)
    assert "2.0 s; 1 s was asked for" in said(replace(read, samples=gap))["Power between readings"]
    assert "Power between readings" not in said(read)


@pytest.mark.parametrize("sensor", ["dcgm", "nvml", "amd"])
def test_an_exporter_s_own_period_is_told(sensor: Any) -> None:
    url = "http://node.example/metrics"
    spec = gpu_spec(instruments=[{"sensor": sensor, "url": url}])
    assert "When the boards were read" in said(log({}, sensor=sensor), spec)
    assert "When the boards were read" not in said(log({}, sensor="rapl"), spec)


def ended(*repeats: dict[str, JsonValue]) -> dict[str, str]:
    read = log({})
    lines = tuple(
        Entry(seq=n, at="now", event="repeat_end", prev=GENESIS, data={"repeat": n + 1} | told)
        for n, told in enumerate(repeats)
    )
    found = power_caveats(SPEC, Evidence(lines, (), read), (energy_of(read),))
    return {item.what: item.why for item in found}


def test_what_an_instrument_left_out_is_told_once_and_what_hung_by_repeat() -> None:
    note = "amd: MI300X (board 0): has no energy counter"
    found = ended({"hung": [], "notes": [note]}, {"hung": ["nvml, node 2"], "notes": [note]})
    assert found.pop("All that an instrument tells") == f"{note}."
    hung = found.pop("Readings of nvml, node 2 to the end of repeat 2")
    assert hung.startswith("It stopped answering.")
    assert list(found) == ["Gain error of the boards"]


@pytest.mark.parametrize("told", [None, "all", [None], [["x"]], {"x": "y"}])
def test_a_journal_that_tells_no_list_of_texts_adds_nothing(told: JsonValue) -> None:
    assert list(ended({"hung": told, "notes": told}, {})) == ["Gain error of the boards"]


INSTRUMENTS = [
    {"sensor": "dcgm", "url": "http://node.example/metrics"},
    {"sensor": "redfish", "url": "https://bmc.example/redfish/v1/Chassis/1"},
    {"sensor": "nvml"},
]


def test_a_second_instrument_of_the_boards_that_was_not_read_is_told_with_the_reason() -> None:
    spec = gpu_spec(instruments=INSTRUMENTS)
    told = [{"sensor": i["sensor"], "reason": f"no {i['sensor']}"} for i in INSTRUMENTS]
    # That of the host is a metric without a value, and that of the source of power its own reason.
    found = said(log({}), spec, told)
    assert found.pop("The boards' energy by dcgm too") == "Not measured: no dcgm."
    assert list(found) == ["Gain error of the boards"]
    read = [{"sensor": i["sensor"], "reason": None} for i in INSTRUMENTS]
    assert list(said(log({}), spec, read)) == ["Gain error of the boards"]


@pytest.mark.parametrize("told", [None, "all", [None], [{"sensor": "dcgm"}], [{"reason": "x"}]])
def test_a_journal_that_tells_nothing_of_an_instrument_gives_no_reason(told: JsonValue) -> None:
    spec = gpu_spec(instruments=INSTRUMENTS)
    assert list(said(log({}), spec, told)) == ["Gain error of the boards"]


def test_b12_a_host_that_does_not_tell_its_averaging_time_is_a_caveat_also_beside() -> None:
    host = log({}, sensor="redfish", scope="host")
    host = replace(host, samples=tuple(replace(s, energy_mj=None) for s in host.samples))
    (caveat,) = host_caveats(Evidence((), (), host))
    assert caveat.what == "How long the host's watts are averaged"
    assert host_caveats(Evidence((), (), None, beside=(host, host))) == (caveat,)
    for fine in (
        replace(host, averaging_ns=S),
        replace(host, scope="gpu"),
        log({}, sensor="redfish", scope="host"),  # a counter needs no averaging
    ):
        assert host_caveats(Evidence((), (), fine)) == ()


def test_gaps_and_the_time_of_asking_are_told_by_node_where_there_are_several() -> None:
    read = log({"node": 1}, {"node": 2})
    kept = tuple(s for s in read.samples if s.board == 0 or s.at_ns // S not in {4, 5})
    found = said(replace(read, samples=kept))
    assert found["Power between readings"].endswith("It was 1.0 s on node 1, 3.0 s on node 2.")
    assert "on node" not in said(log({}, samples=log({}).samples[::2]))["Power between readings"]
    told = [[10_000_000, 20_000_000], [5_000_000, 300_000_000], "x", None]
    ends = [
        Entry(seq=n, at="now", event="repeat_end", prev=GENESIS, data={"read_within_ns": within})
        for n, within in enumerate(told)
    ]
    caveats = power_caveats(SPEC, Evidence(tuple(ends), (), read), (energy_of(read),))
    (why,) = (c.why for c in caveats if c.what == "The moment of a reading on another node")
    assert why.endswith("at most 0.010 s of node 1, 0.300 s of node 2.")
