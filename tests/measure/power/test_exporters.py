from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.evidence.power import Board
from tokenwatt_site.measure.power.exporters import (
    Exported,
    Reading,
    exported,
)
from tokenwatt_site.measure.power.families import DIALECTS
from tokenwatt_site.measure.prometheus import parse

A100 = "GPU-7099682b-a20d-2bcc-74ab-b9060454d81e"
MASKED = "GPU-00000000-0000-0000-0000-000000000000"


def told(text: str) -> Exported:
    found = exported(parse(text.encode(), source="test"))
    assert found is not None
    return found


def capture(test_data: Path, name: str) -> Exported:
    return told((test_data / "prometheus" / name).read_text("utf-8"))


def dcgm(family: str, value: str, uuid: str = "GPU-1", **labels: str) -> str:
    others = "".join(f',{key}="{text}"' for key, text in labels.items())
    return f'DCGM_FI_{family}{{gpu="0",UUID="{uuid}",modelName="NVIDIA H200"{others}}} {value}\n'


def reading(text: str) -> Reading:
    """Return the reading of the only board, beside a power that makes it one."""
    found = told(dcgm("DEV_TOTAL_ENERGY_CONSUMPTION", "5") + text)
    (only,) = found.readings
    return only


def test_a_dcgm_scrape_of_a_whole_board_is_read(test_data: Path) -> None:
    found = capture(test_data, "dcgm_a100_mig-disabled.prom")
    assert (found.exporter, found.sensor, found.scope) == ("dcgm-exporter", "dcgm", "gpu")
    assert found.driver == "520.56.06"
    # The capture holds the same scrape twice.
    assert found.boards == (Board(uuid=A100, name="NVIDIA A100-SXM4-40GB"),)
    assert found.readings == (
        Reading(
            power_mw=45_999,
            energy_mj=424_405_577,
            instant_mw=None,
            dram_ppm=None,
            sm_mhz=210,
            memory_mhz=1215,
            reasons=None,
            celsius=29,
        ),
    )
    assert not found.shared | found.ambiguous
    assert found.faults == {"DCGM_FI_PROF_DRAM_ACTIVE"}  # 0.000000


def test_b2_three_mig_instances_are_one_board_whose_watts_are_counted_once(
    test_data: Path,
) -> None:
    found = capture(test_data, "dcgm_a100_mig_active.prom")
    assert [board.uuid for board in found.boards] == [A100]
    (only,) = found.readings
    assert (only.power_mw, only.energy_mj) == (116_043, 57_585_599)
    assert (only.sm_mhz, only.memory_mhz, only.celsius) == (1410, 1215, 37)
    assert only.dram_ppm is None  # 0.000053, 0.647986 and 0.000001 are of instances
    assert found.shared == {A100}


def test_nvidia_smi_of_an_h200_under_load_is_read(test_data: Path) -> None:
    found = capture(test_data, "nvidia_gpu_exporter_h200_load.prom")
    assert (found.exporter, found.sensor) == ("nvidia_gpu_exporter", "nvml")
    assert found.driver == "590.48.01"
    assert found.boards == (
        Board(
            uuid=MASKED,
            name="NVIDIA H200",
            pci="00000000:83:00.0",
            limit_mw=700_000,
            default_limit_mw=700_000,
            memory_mhz=3201,
            ecc=True,
            persistence=True,
        ),
    )
    assert found.readings == (
        Reading(
            power_mw=627_400,
            energy_mj=None,
            instant_mw=626_260,
            dram_ppm=None,
            sm_mhz=1980,
            memory_mhz=3201,
            reasons=0,
            celsius=52,
        ),
    )
    assert not found.shared | found.ambiguous | found.faults


def test_nvidia_smi_of_an_h100_in_mig_mode_is_read_and_marked(test_data: Path) -> None:
    found = capture(test_data, "nvidia_gpu_exporter_h100-mig_load.prom")
    (board,), (only,) = found.boards, found.readings
    assert (board.name, board.pci, board.memory_mhz) == (
        "NVIDIA H100 80GB HBM3",
        "00000000:00:09.0",
        2619,
    )
    assert (only.power_mw, only.instant_mw, only.celsius) == (433_780, 447_350, 53)
    assert found.shared == {MASKED}


def test_amd_is_read(test_data: Path) -> None:
    found = capture(test_data, "amd_device_metrics_exporter_mini.prom")
    assert (found.exporter, found.sensor, found.driver) == ("device-metrics-exporter", "amd", None)
    (board,), (only,) = found.boards, found.readings
    assert board == Board(uuid="6699c0a8-4200-4242-037f-f97e6cae0f09", name="amd board")
    assert only == Reading(41_000, *[None] * 7)


def test_b7_amd_exports_microjoules_and_dcgm_millijoules() -> None:
    labels = '{gpu_id="0",gpu_uuid="u",card_model="MI300X",driver_version="6.10"}'
    found = told(f"gpu_energy_consumed{labels} 1.5259e+12\ngpu_package_power{labels} 750\n")
    assert found.readings[0].energy_mj == 1_525_900_000
    assert found.readings[0].power_mw == 750_000
    assert (found.boards[0].name, found.driver) == ("MI300X", "6.10")
    assert reading("").energy_mj == 5


def test_amd_with_the_prefix_of_its_deployment_and_without_uuids_is_read_by_serial_number() -> None:
    text = ""
    for place, serial, watts in ((0, "SN-0", 748), (1, "SN-1", 751)):
        labels = f'gpu_id="{place}",card_model="Instinct MI300X",serial_number="{serial}"'
        text += f"amd_gpu_package_power{{{labels}}} {watts}\n"
        text += f"amd_gpu_energy_consumed{{{labels}}} 1.4e17\n"
    found = told(text)
    assert [board.uuid for board in found.boards] == ["SN-0", "SN-1"]
    assert [r.power_mw for r in found.readings] == [748_000, 751_000]
    assert found.readings[0].energy_mj == 140_000_000_000_000


def test_b2_the_watts_of_a_partitioned_amd_board_are_those_of_its_first_part() -> None:
    text = ""
    for part, watts in ((0, 600), (1, 0), (2, 0)):
        labels = f'gpu_id="{part}",serial_number="SN-0",gpu_partition_id="{part}"'
        text += f"gpu_package_power{{{labels}}} {watts}\n"
    found = told(text)
    assert [(b.uuid, r.power_mw) for b, r in zip(found.boards, found.readings, strict=True)] == [
        ("SN-0", 600_000)
    ]
    assert not found.ambiguous | found.faults


def test_a_family_that_is_zero_gives_way_to_another_of_the_same_meaning() -> None:
    found = told('gpu_average_package_power{GPU_UUID="u"} 0\ngpu_package_power{GPU_UUID="u"} 612\n')
    assert found.readings[0].power_mw == 612_000
    assert found.faults == {"gpu_average_package_power"}


def test_names_of_dcgm_old_and_new_mean_the_same() -> None:
    older = "".join(
        [
            dcgm("DEV_POWER_USAGE", "310.5"),
            dcgm("DEV_POWER_USAGE_INSTANT", "402.25"),
            dcgm("DEV_ENFORCED_POWER_LIMIT", "700"),
            dcgm("DEV_CLOCK_THROTTLE_REASONS", "4"),
            dcgm("DEV_GPU_TEMP", "61"),
            dcgm("PROF_DRAM_ACTIVE", "0.625"),
        ]
    )
    newer = "".join(
        [
            dcgm("DEV_BOARD_POWER_WATTS", "310.5"),
            dcgm("DEV_BOARD_POWER_RAW_WATTS", "402.25"),
            dcgm("DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", "700"),
            dcgm("DEV_CLOCKS_EVENT_REASONS", "4"),
            dcgm("DEV_GPU_TEMP_CELSIUS", "61"),
            dcgm("PROF_DRAM_UTIL_RATIO", "0.625"),
        ]
    )
    expected = Reading(310_500, 5, 402_250, 625_000, None, None, 4, 61)
    assert reading(older) == reading(newer) == expected
    assert told(older).boards == told(newer).boards
    assert told(newer).boards[0].limit_mw == 700_000


@pytest.mark.parametrize("family", ["DEV_POWER_USAGE", "PROF_DRAM_ACTIVE", "DEV_GPU_TEMP"])
def test_b14_zero_is_missing_and_named(family: str) -> None:
    text = dcgm("DEV_TOTAL_ENERGY_CONSUMPTION", "5") + dcgm(family, "0.000000")
    found = told(text)
    assert found.readings == (Reading(None, 5, *[None] * 6),)
    assert found.faults == {f"DCGM_FI_{family}"}


@pytest.mark.parametrize(
    ("family", "value"),
    [
        ("DEV_POWER_USAGE", "-250"),
        ("DEV_POWER_USAGE", "10000.5"),
        ("DEV_POWER_USAGE", "NaN"),
        ("DEV_POWER_USAGE", "140737488355328"),  # how DCGM writes "blank"
        ("PROF_DRAM_ACTIVE", "1.01"),
        ("PROF_DRAM_ACTIVE", "+Inf"),
        ("DEV_SM_CLOCK", "2147483632"),
        ("DEV_GPU_TEMP", "2147483632"),
        ("DEV_CLOCKS_EVENT_REASONS", "9223372036854775794"),
        ("DEV_CLOCKS_EVENT_REASONS", "0.5"),
    ],
)
def test_b15_what_cannot_be_is_missing_and_named(family: str, value: str) -> None:
    found = told(
        dcgm("DEV_TOTAL_ENERGY_CONSUMPTION", "5")
        + dcgm(family, value, DCGM_FI_DRIVER_VERSION="535.1")
    )
    assert found.readings == (Reading(None, 5, *[None] * 6),)
    assert found.faults == {f"DCGM_FI_{family}"}
    assert found.driver == "535.1"


def test_b14_a_counter_that_never_counted_is_missing() -> None:
    found = told(dcgm("DEV_POWER_USAGE", "70") + dcgm("DEV_TOTAL_ENERGY_CONSUMPTION", "0"))
    assert found.readings == (Reading(70_000, *[None] * 7),)


def test_b9_grace_hopper_has_readings_of_its_modules() -> None:
    text = 'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-1",modelName="NVIDIA GH200 480GB"} 420\n'
    assert told(text).scope == "module"


def test_boards_are_apart_by_uuid_and_rows_without_one_are_none() -> None:
    found = told(
        dcgm("DEV_POWER_USAGE", "300", "GPU-b")
        + dcgm("DEV_POWER_USAGE", "200", "GPU-a")
        + dcgm("DEV_GPU_TEMP", "30", "GPU-c")  # measured by nothing
        + 'DCGM_FI_DEV_POWER_USAGE{nvswitch="0"} 99\n'
    )
    assert [board.uuid for board in found.boards] == ["GPU-b", "GPU-a"]
    assert [r.power_mw for r in found.readings] == [300_000, 200_000]


def test_one_uuid_in_two_places_is_ambiguous() -> None:
    row = 'DCGM_FI_DEV_POWER_USAGE{{gpu="{}",UUID="GPU-1"}} 300\n'
    assert told(row.format(0) + row.format(1)).ambiguous == {"GPU-1"}


@pytest.mark.parametrize("text", ["", "a 1", "DCGM_FI_DEV_GPU_TEMP 3", "DCGM_FI_DEV_POWER_USAGE 3"])
def test_a_text_without_power_or_energy_has_no_boards(text: str) -> None:
    assert exported(parse(text.encode(), source="test")) is None


NAMES = sorted({family for dialect in DIALECTS for family in dialect.families})
LABELS = st.dictionaries(
    st.sampled_from(["UUID", "uuid", "GPU_UUID", "gpu", "index", "GPU_I_ID", "modelName"]),
    st.sampled_from(["", "0", "1", "GPU-1", "GH200", "0000", "a b"]),
)
ROWS = st.lists(
    st.tuples(st.sampled_from(NAMES), LABELS, st.one_of(st.floats(), st.integers(-9, 2**64)))
)


@given(ROWS)
def test_whatever_is_exported_a_reading_is_in_range_or_missing(
    rows: list[tuple[str, dict[str, str], float]],
) -> None:
    text = ""
    for name, labels, value in rows:
        inner = ",".join(f'{key}="{value}"' for key, value in labels.items())
        text += f"{name}{{{inner}}} {value}\n"
    found = exported(parse(text.encode(), source="test"))
    if found is None:
        return
    assert len({board.uuid for board in found.boards}) == len(found.boards) == len(found.readings)
    for only in found.readings:
        for watts in (only.power_mw, only.instant_mw):
            assert watts is None or 0 <= watts <= 10_000_000
        assert only.dram_ppm is None or 0 <= only.dram_ppm <= 1_000_000
        assert only.energy_mj is None or 0 <= only.energy_mj < 2**53
