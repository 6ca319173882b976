from __future__ import annotations

import importlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.amdsmi import RESOLUTION_UJ, Die, FakeAmdsmi
from tokenwatt_site.errors import EnvironmentProblem
from tokenwatt_site.evidence.power import PowerSample
from tokenwatt_site.measure.power.amd import AmdMeter, AmdUnavailable, accumulated_mj


def opened(fake: FakeAmdsmi) -> AmdMeter:
    return AmdMeter(fake, now_ns=lambda: fake.now_ns, wait=fake.wait)


def of_one(die: Die, **more: Any) -> tuple[AmdMeter, FakeAmdsmi]:
    fake = FakeAmdsmi([die], **more)
    return opened(fake), fake


def test_boards_are_read_with_uuid_bus_name_limit_and_driver() -> None:
    meter = opened(FakeAmdsmi())

    assert (meter.sensor, meter.scope, meter.driver) == ("amd", "gpu", "6.12.12")
    assert [board.uuid for board in meter.boards()] == [
        "00ff74a1-0000-1000-80a0-0123456789ab",
        "01ff74a1-0000-1000-80a0-0123456789ab",
    ]
    first = meter.boards()[0]
    assert (first.pci, first.name) == ("0000:0c:00.0", "AMD Instinct MI300X")
    assert (first.limit_mw, first.default_limit_mw) == (750_000, 750_000)
    assert meter.notes == ()


def test_a_reading_has_power_energy_clocks_and_temperature() -> None:
    meter, fake = of_one(Die())
    fake.wait(9)

    # 10 s after the start at 140 W, from a counter that stood at 1.004 J.
    assert meter.read(lambda: fake.now_ns) == (
        PowerSample(
            10_000_000_000,
            0,
            140_000,
            1_401_004,
            instant_mw=140_000,
            sm_mhz=2100,
            memory_mhz=1300,
            celsius=60,
        ),
    )


@pytest.mark.parametrize(
    ("average", "current", "power_mw", "instant_mw"),
    [
        (90, "N/A", 90_000, None),
        ("N/A", 650, 650_000, 650_000),
        (90, 95, 90_000, 95_000),
        (0xFFFF, 0xFFFFFFFF, None, None),
        (0, 0, None, None),
        ("N/A", "N/A", None, None),
    ],
)
def test_b14_the_average_goes_first_and_what_is_not_told_is_missing(
    average: object, current: object, power_mw: int | None, instant_mw: int | None
) -> None:
    meter, fake = of_one(Die(average_w=average, current_w=current))

    (sample,) = meter.read(lambda: fake.now_ns)

    assert (sample.power_mw, sample.instant_mw) == (power_mw, instant_mw)


@pytest.mark.parametrize(("accumulator", "energy_mj"), [(65628, 1004), (59230, 906)])
def test_b7_the_accumulator_times_its_resolution_is_what_the_tool_prints(
    accumulator: int, energy_mj: int
) -> None:
    # ROCm/amdsmi#38: 1004108.41 uJ and 906219.01 uJ.
    assert accumulated_mj(accumulator, RESOLUTION_UJ) == energy_mj


@given(
    accumulator=st.integers(0, 1 << 40),
    resolution=st.floats(1, 100, width=32),
)
def test_b7_an_accumulator_is_never_off_by_more_than_half_a_millijoule(
    accumulator: int, resolution: float
) -> None:
    energy_mj = accumulated_mj(accumulator, resolution)

    assert energy_mj is not None
    assert abs(energy_mj * 1000 - accumulator * resolution) <= 501


@pytest.mark.parametrize(
    ("accumulator", "resolution"),
    [
        ("N/A", 15.3),
        (None, 15.3),
        (True, 15.3),
        ((1 << 64) - 1, 15.3),
        (-1000, 15.3),
        (5, 0.0),
        (5, float("nan")),
        (5, float("inf")),
        (5, None),
    ],
)
def test_an_accumulator_that_can_not_be_is_missing(accumulator: object, resolution: object) -> None:
    assert accumulated_mj(accumulator, resolution) is None


@pytest.mark.parametrize(
    ("counted", "told"),
    [
        (0.0, "it rose by 0 J while 140 J were drawn"),
        (1 / 15.3, "it rose by 9.15 J while 140 J were drawn"),
        (1000.0, "it rose by 1.4e+05 J while 140 J were drawn"),
        (-1.0, "it rose by -140 J while 140 J were drawn"),
    ],
)
def test_b8_a_counter_that_disagrees_with_power_times_time_is_not_used(
    counted: float, told: str
) -> None:
    fake = FakeAmdsmi([Die(), Die(counted=counted, start=1 << 30)])
    meter = opened(fake)

    assert [sample.energy_mj for sample in meter.read(lambda: fake.now_ns)] == [141_004, None]
    assert [sample.power_mw for sample in meter.read(lambda: fake.now_ns)] == [140_000, 140_000]
    (note,) = meter.notes
    assert note.startswith("AMD Instinct MI300X (board 1): its energy counter is not used: ")
    assert told in note


@pytest.mark.parametrize("counted", [0.5, 0.9, 1.1, 2.0])
def test_b8_a_counter_that_differs_as_loads_do_is_used(counted: float) -> None:
    meter, fake = of_one(Die(counted=counted))

    assert meter.notes == ()
    assert meter.read(lambda: fake.now_ns)[0].energy_mj is not None


def test_b8_a_counter_that_runs_backwards_later_is_passed_on_as_it_is() -> None:
    meter, fake = of_one(Die())
    before = meter.read(lambda: fake.now_ns)[0].energy_mj
    fake.dies[0].start = 0
    after = meter.read(lambda: fake.now_ns)[0].energy_mj

    assert before == 141_004
    assert after == 140_000


def test_b8_a_counter_without_power_to_test_it_is_not_used() -> None:
    meter, fake = of_one(Die(current_w="N/A"))

    assert meter.read(lambda: fake.now_ns)[0].energy_mj is None
    assert "without power it cannot be tested" in meter.notes[0]


@pytest.mark.parametrize("faults", [frozenset({"amdsmi_get_energy_count"}), frozenset()])
def test_b14_a_board_without_a_counter_says_so(faults: frozenset[str]) -> None:
    meter, fake = of_one(Die(start="N/A"), faults=faults)

    assert meter.read(lambda: fake.now_ns)[0].energy_mj is None
    assert meter.notes == ("AMD Instinct MI300X (board 0): has no energy counter",)


def test_the_two_dies_of_an_mi250_are_one_board() -> None:
    watts = (89, 0, 93, 0, 88, 0, 88, 0)  # ml-energy/zeus PR#203
    dies = [Die("AMD Instinct MI250X", average_w=w, current_w="N/A", drawn_w=w) for w in watts]
    fake = FakeAmdsmi(dies)
    meter = opened(fake)

    samples = meter.read(lambda: fake.now_ns)

    assert [board.pci for board in meter.boards()] == [
        f"0000:{n:02x}:00.0" for n in (12, 14, 16, 18)
    ]
    assert [sample.power_mw for sample in samples] == [89_000, 93_000, 88_000, 88_000]
    assert meter.notes == ()


@pytest.mark.parametrize("mode", ["DPX", "CPX"])
def test_b2_a_board_in_partitions_is_refused_with_the_reason(mode: str) -> None:
    fake = FakeAmdsmi([Die(), Die(partition=mode)])

    with pytest.raises(AmdUnavailable, match=rf"split into partitions \({mode}\).*SPX"):
        opened(fake)
    assert fake.calls[-1] == "amdsmi_shut_down"


@pytest.mark.parametrize("faults", [frozenset({"amdsmi_get_gpu_compute_partition"}), frozenset()])
def test_a_board_that_knows_no_partitions_is_whole(faults: frozenset[str]) -> None:
    meter, _ = of_one(Die(partition="N/A"), faults=faults)

    assert len(meter.boards()) == 1


def test_a_second_die_that_tells_its_own_power_stays_a_board() -> None:
    fake = FakeAmdsmi([Die("AMD Instinct MI250X", current_w=w, drawn_w=w) for w in (89, 70)])

    assert len(opened(fake).boards()) == 2


def test_b14_another_board_of_no_watts_stays_and_its_power_is_missing() -> None:
    fake = FakeAmdsmi([Die(), Die(current_w=0)])
    meter = opened(fake)

    assert [sample.power_mw for sample in meter.read(lambda: fake.now_ns)] == [140_000, None]


@pytest.mark.parametrize(
    ("cap", "limit_mw"),
    [(560_000_000, 560_000), (750, None), (0, None), ("N/A", None), ((1 << 64) - 1, None)],
)
def test_b7_a_limit_is_read_in_microwatts_or_not_at_all(cap: object, limit_mw: int | None) -> None:
    meter, _ = of_one(Die(power_cap_uw=cap))

    assert meter.boards()[0].limit_mw == limit_mw


@pytest.mark.parametrize(
    ("fault", "attribute"),
    [
        ("amdsmi_get_power_info", "power_mw"),
        ("amdsmi_get_clock_info", "sm_mhz"),
        ("amdsmi_get_clock_info", "memory_mhz"),
        ("amdsmi_get_temp_metric", "celsius"),
    ],
)
def test_b14_what_a_board_does_not_tell_is_missing_and_not_zero(fault: str, attribute: str) -> None:
    meter, fake = of_one(Die(), faults=frozenset({fault}))

    (sample,) = meter.read(lambda: fake.now_ns)

    assert getattr(sample, attribute) is None


def test_what_is_not_needed_of_a_board_may_be_missing() -> None:
    missing = {"driver_info", "device_bdf", "asic_info"}
    faults = frozenset(f"amdsmi_get_gpu_{name}" for name in missing) | {"amdsmi_get_power_cap_info"}
    meter, _ = of_one(Die(), faults=faults)

    (board,) = meter.boards()
    assert (board.name, board.pci, board.limit_mw) == ("AMD GPU", None, None)
    assert meter.driver is None


@pytest.mark.parametrize(
    ("fake", "words"),
    [
        (FakeAmdsmi(faults=frozenset({"amdsmi_init"})), "amdsmi_init: Error code: 2 | AMDSMI"),
        (FakeAmdsmi([]), "amdsmi shows no board"),
        (FakeAmdsmi(faults=frozenset({"amdsmi_get_gpu_device_uuid"})), "amdsmi_get_gpu_device"),
    ],
)
def test_why_nothing_is_read_is_said_and_the_library_released(fake: FakeAmdsmi, words: str) -> None:
    with pytest.raises(AmdUnavailable) as caught:
        opened(fake)

    assert words in str(caught.value)
    assert isinstance(caught.value, EnvironmentProblem)
    assert fake.calls[-1] in {"amdsmi_shut_down", "amdsmi_init"}


def test_closing_releases_the_library() -> None:
    meter, fake = of_one(Die())

    meter.close()

    assert fake.calls[-1] == "amdsmi_shut_down"


def test_a_missing_package_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)

    with pytest.raises(AmdUnavailable, match=r"amdsmi is not installed\. Install tokenwatt-site"):
        AmdMeter()


@pytest.mark.parametrize("error", [KeyError("libamd_smi.so"), OSError("x"), AttributeError("y")])
def test_a_package_without_its_library_is_a_reason_and_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def failing(name: str) -> Any:
        print("libamd_smi.so: cannot open shared object file")  # noqa: T201
        raise error

    monkeypatch.setattr(importlib, "import_module", failing)

    with pytest.raises(AmdUnavailable, match=r"does not load: libamd_smi.so: cannot.*amd-smi-lib"):
        AmdMeter()
    assert capsys.readouterr().out == ""
