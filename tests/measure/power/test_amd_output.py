from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.errors import InputError
from tokenwatt_site.measure.power.amd_output import Card, read_amd_smi, read_rocm_smi

MI100 = "Arcturus GL-XL [Instinct MI100]"


def captured(test_data: Path, name: str) -> str:
    return (test_data / "power" / name).read_text("utf-8")


def test_the_captured_output_of_amd_smi_has_ten_watts_of_one_gpu(test_data: Path) -> None:
    cards = read_amd_smi(captured(test_data, "amd-smi_metric_p.json"))

    assert cards == (Card(0, None, None, None, None, 10_000, None),)


def test_the_captured_output_of_rocm_5_7_1_has_six_cards_without_an_id(test_data: Path) -> None:
    cards = read_rocm_smi(captured(test_data, "rocm-smi_mi100_rocm571.json"))

    assert [card.index for card in cards] == list(range(6))
    assert [card.power_mw for card in cards] == [39_000, 37_000, 35_000, 39_000, 39_000, 40_000]
    buses = [f"0000:{bus}:00.0" for bus in ("1E", "22", "3F", "43", "46", "49")]
    assert [card.pci for card in cards] == buses
    assert {(card.uuid, card.name, card.limit_mw, card.energy_mj) for card in cards} == {
        (None, MI100, 290_000, None)
    }


def test_the_captured_output_of_rocm_6_0_2_has_four_cards_with_an_id(test_data: Path) -> None:
    cards = read_rocm_smi(captured(test_data, "rocm-smi_mi100_rocm602.json"))

    assert cards == tuple(
        Card(index, uuid, MI100, f"0000:{bus}:00.0", 290_000, power_mw, None)
        for index, (uuid, bus, power_mw) in enumerate(
            [
                ("0x79ccd55167a2124a", "83", 36_000),
                ("0x4edfb117a17a07d", "A3", 44_000),
                ("0xd4a9ec48d03d261d", "C3", 43_000),
                ("0x1b9dd972253c3736", "E3", 39_000),
            ]
        )
    )


def test_boards_since_mi300_name_their_power_in_another_key() -> None:
    card = {"Current Socket Graphics Package Power (W)": "133.0", "Card Series": "AMD MI300X"}

    (read,) = read_rocm_smi(json.dumps({"card7": card}))

    assert (read.index, read.name, read.power_mw) == (7, "AMD MI300X", 133_000)


@pytest.mark.parametrize("power", ["N/A", "", None, "0.0", "-5", "nan", "65535", True])
def test_b14_a_power_that_is_none_is_missing(power: object) -> None:
    card = {"Average Graphics Package Power (W)": power}

    assert read_rocm_smi(json.dumps({"card0": card}))[0].power_mw is None


def test_b7_microjoules_of_one_tool_and_joules_of_the_other_are_both_millijoules() -> None:
    rocm = {"card0": {"Accumulated Energy (uJ)": "1004108.41"}}
    energy = {"total_energy_consumption": {"value": 1.004, "unit": "J"}}
    amd = {"gpu_data": [{"gpu": 0, "energy": energy}]}

    assert read_rocm_smi(json.dumps(rocm))[0].energy_mj == 1004
    assert read_amd_smi(json.dumps(amd))[0].energy_mj == 1004


def test_b7_a_value_in_another_unit_is_not_read() -> None:
    power = {"socket_power": {"value": 140_000, "unit": "mW"}}

    assert read_amd_smi(json.dumps([{"gpu": 0, "power": power}]))[0].power_mw is None


@pytest.mark.parametrize("power", ["N/A", None, {"value": "N/A", "unit": "W"}, {"value": 5}, [1]])
def test_b14_a_gpu_of_amd_smi_without_power_stays_a_gpu(power: object) -> None:
    entry = {"gpu": 3, "power": {"socket_power": power}}

    assert read_amd_smi(json.dumps([entry])) == (Card(3, None, None, None, None, None, None),)


@pytest.mark.parametrize("read", [read_amd_smi, read_rocm_smi])
@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", "[" * 5000, '{"system": {}}', '[{"a": 1}]']
)
def test_another_output_is_refused(read: object, text: str) -> None:
    assert callable(read)
    with pytest.raises(InputError, match=r"amd-smi|rocm-smi"):
        read(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["gpu", "gpu_data", "power", "socket_power", "value", "unit", "card0"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@given(values)
def test_any_json_is_cards_or_a_refusal(value: object) -> None:
    for read in (read_amd_smi, read_rocm_smi):
        try:
            cards = read(json.dumps(value))
        except InputError:
            continue
        assert cards
        assert all(card.power_mw is None or card.power_mw > 0 for card in cards)
