from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.runs import small_spec_dict, split_spec
from tokenwatt_site.errors import SpecError
from tokenwatt_site.spec import parse_spec


def with_power(sensor: str, scope: str, *instruments: dict[str, Any]) -> dict[str, Any]:
    power = {"sensor": sensor, "scope": scope, "rate_hz": 1}
    return small_spec_dict(setup__power=power) | {"instruments": list(instruments)}


def test_boards_of_a_split_have_roles_by_the_beginnings_of_their_uuids() -> None:
    spec = split_spec()
    assert spec.board_roles is not None
    assert [spec.board_roles.of(uuid) for uuid in ("GPU-0", "GPU-1-x", "GPU-2")] == [
        "prefill",
        "decode",
        None,
    ]
    assert spec.board_roles.unused(["GPU-0a", "GPU-2"]) == ("gpu-1",)
    assert spec.configuration_id == split_spec(board_roles=None).configuration_id
    assert "board_roles" not in split_spec(board_roles=None).to_json()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"board_roles": {"prefill": ["GPU-0"], "decode": ["GPU-01"]}}, "GPU-01 as decode"),
        ({"board_roles": {"prefill": ["GPU-0"], "decode": []}}, "at least 1 item"),
        ({"setup__parallelism__prefill_decode_split": "none"}, "declares none"),
        (
            {"setup__power": {"sensor": "rapl", "scope": "cpu", "rate_hz": 1}},
            "setup.power.scope: gpu or module",
        ),
    ],
)
def test_roles_of_boards_that_contradict_the_rest_are_refused(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError, match=re.escape(said)):
        split_spec(**changes)


DCGM = {"sensor": "dcgm", "url": "http://node-1:9400/metrics"}
REDFISH = {
    "sensor": "redfish",
    "url": "https://bmc-1/redfish/v1/Chassis/1",
    "user_variable": "BMC_USER",
    "password_variable": "BMC_PASSWORD",
}


def test_instruments_say_where_and_are_no_identity() -> None:
    spec = parse_spec(with_power("dcgm", "gpu", DCGM, {"sensor": "rapl"}, REDFISH), source="x")

    assert [i.sensor for i in spec.instruments] == ["dcgm", "rapl", "redfish"]
    assert spec.instruments[2].password_variable == REDFISH["password_variable"]
    alone = parse_spec(with_power("dcgm", "gpu", DCGM), source="x")
    assert alone.configuration_id == spec.configuration_id
    node_2 = DCGM | {"url": "http://node-2:9400/metrics"}
    assert len(parse_spec(with_power("dcgm", "gpu", DCGM, node_2), source="x").instruments) == 2


@pytest.mark.parametrize(
    ("sensor", "scope"),
    [("nvml", "gpu"), ("nvml", "module"), ("amd", "gpu"), ("rapl", "cpu")],
)
def test_a_sensor_of_this_machine_needs_no_instrument(sensor: str, scope: str) -> None:
    assert parse_spec(with_power(sensor, scope), source="x").setup.power.scope == scope


@pytest.mark.parametrize("sensor", ["nvml", "amd"])
def test_a_sensor_of_boards_may_be_asked_of_an_exporter(sensor: str) -> None:
    exporters = [DCGM | {"sensor": sensor, "url": f"http://node-{n}:9835/metrics"} for n in (1, 2)]
    spec = parse_spec(with_power(sensor, "gpu", *exporters), source="x")
    assert [i.url for i in spec.instruments] == [one["url"] for one in exporters]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (with_power("nvml", "host"), "sensor: nvml reads scope: gpu or module"),
        (with_power("rapl", "gpu"), "sensor: rapl reads scope: cpu"),
        (with_power("nvml", "none"), "go together"),
        (with_power("dcgm", "gpu"), "needs an instrument that says its url"),
        (with_power("redfish", "host", DCGM), "needs an instrument that says its url"),
        (with_power("nvml", "gpu", DCGM, DCGM), "http://node-1:9400/metrics more than once"),
        (with_power("nvml", "gpu", DCGM, DCGM | {"url": f"{DCGM['url']}/"}), "more than once"),
        (with_power("nvml", "gpu", {"sensor": "nvml"}, {"sensor": "nvml"}), "nvml more than once"),
        (with_power("nvml", "gpu", {"sensor": "dcgm"}), "sensor: dcgm needs url"),
        (with_power("nvml", "gpu", DCGM | {"sensor": "rapl"}), "on this machine; remove url"),
        (with_power("nvml", "gpu", {"sensor": "none"}), "'nvml'"),
        (with_power("nvml", "gpu", DCGM | {"url": "http://u:p@node:9400"}), "pattern"),
        (
            with_power("nvml", "gpu", {k: REDFISH[k] for k in ("sensor", "url", "user_variable")}),
            "password_variable go together",
        ),
        (
            with_power(
                "nvml", "gpu", DCGM | {"user_variable": "A_USER", "password_variable": "A_WORD"}
            ),
            "go with sensor: redfish",
        ),
        (with_power("nvml", "gpu", REDFISH | {"password_variable": "hunter2!"}), "not the secret"),
    ],
)
def test_an_instrument_that_cannot_be_asked_is_refused_with_what_to_do(
    changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(changes, source="x")

    assert told in str(caught.value)
    assert "hunter2" not in str(caught.value)
