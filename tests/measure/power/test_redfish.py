from __future__ import annotations

import copy
import json
import logging
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.redfish import Controller, controller
from tests.support.tls import Authority, tls_before
from tokenwatt_site.errors import EnvironmentProblem
from tokenwatt_site.evidence.power import PowerSample
from tokenwatt_site.measure.credential import Login
from tokenwatt_site.measure.engine import free_port
from tokenwatt_site.measure.power.redfish import Reading, RedfishMeter, RedfishUnavailable, tell

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
USER, PASSWORD = "TOKENWATT_TEST_BMC_USER", "TOKENWATT_TEST_BMC_PASSWORD"
SECRET = "s3cret-of-the-controller"  # noqa: S105
CHASSIS = "/redfish/v1/Chassis/1"

Captured = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def bmc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    with controller(tmp_path_factory.mktemp("bmc")) as running:
        yield running


@pytest.fixture
def captured(test_data: Path) -> Captured:
    return lambda name: json.loads((test_data / "power" / "redfish" / name).read_text("utf-8"))


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch) -> Login:
    monkeypatch.setenv(USER, "observer-of-power")
    monkeypatch.setenv(PASSWORD, SECRET)
    return Login(USER, PASSWORD)


def chassis(**links: object) -> dict[str, object]:
    links = {key: {"@odata.id": path} for key, path in links.items()}
    return {
        "@odata.type": "#Chassis.v1_14_0.Chassis",
        "Name": "Computer System Chassis",
        "Manufacturer": "Contoso",
        "Model": " 3500 ",
        **links,
    }


def power(*watts: object, **more: object) -> dict[str, object]:
    controls = [{"Name": f"C{n}", "PowerConsumedWatts": w, **more} for n, w in enumerate(watts)]
    return {"@odata.type": "#Power.v1_7_1.Power", "Name": "Power", "PowerControl": controls}


def clock(*times_s: float) -> Callable[[], int]:
    ticks = iter(times_s)
    return lambda: round(next(ticks) * SECOND)


def host(bmc: Controller) -> str:
    """Its part of a board's id: every node has a Chassis/1."""
    return bmc.url.removeprefix("http://")


def reason(bmc: Controller, path: str, login: Login | None = None) -> str:
    with pytest.raises(RedfishUnavailable) as caught:
        RedfishMeter(bmc.url + path, login)
    assert isinstance(caught.value, EnvironmentProblem)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "path", "power_mw", "minutes"),
    [
        ("dell_power.json", "/redfish/v1/Chassis/System.Embedded.1/Power", 429_000, 1),
        ("hp_power.json", "/redfish/v1/Chassis/1/Power", 221_000, 20),
        ("dmtf-1U_Power.json", "/redfish/v1/Chassis/1U/Power", 344_000, 30),
    ],
)
def test_a_captured_power_resource_is_read_with_the_longest_averaging_time(
    bmc: Controller, captured: Captured, name: str, path: str, *, power_mw: int, minutes: int
) -> None:
    bmc.serve({path: captured(name)})

    meter = RedfishMeter(bmc.url + path)

    assert (meter.sensor, meter.scope, meter.driver) == ("redfish", "host", None)
    assert meter.averaging_ns == minutes * MINUTE
    assert [board.uuid for board in meter.boards()] == [host(bmc) + path]
    assert meter.read(clock(10, 12)) == (PowerSample(11 * SECOND, 0, power_mw, None),)
    assert bmc.asked() == [path, path]
    meter.close()


def test_a_limit_that_the_chassis_exceeds_is_not_told(bmc: Controller, captured: Captured) -> None:
    page = captured("dell_power.json")
    control = page["PowerControl"][0]
    assert control["PowerLimit"]["LimitInWatts"] < control["PowerConsumedWatts"]
    bmc.serve({"/p": page})

    assert RedfishMeter(f"{bmc.url}/p").boards()[0].limit_mw is None


def test_of_a_chassis_its_environment_is_read_and_the_sensor_tells_the_times(
    bmc: Controller, captured: Captured
) -> None:
    base = "/redfish/v1/Chassis/1U"
    page = chassis(EnvironmentMetrics=f"{base}/EnvironmentMetrics", Power=f"{base}/Power")
    sensor = f"{base}/Sensors/TotalPower"
    bmc.serve(
        {
            base: page,
            f"{base}/EnvironmentMetrics": captured("dmtf-1U_EnvironmentMetrics.json"),
            f"{base}/Power": captured("dmtf-1U_Power.json"),
            sensor: captured("dmtf-1U_Sensor_TotalPower.json"),
        }
    )

    meter = RedfishMeter(bmc.url + base)

    assert bmc.asked() == [base, f"{base}/EnvironmentMetrics", sensor]
    assert meter.averaging_ns == SECOND // 4
    (board,) = meter.boards()
    assert board.uuid == f"{host(bmc)}{base}/EnvironmentMetrics"
    assert board.name == "Contoso 3500"
    assert meter.read(clock(0, 1)) == (PowerSample(SECOND // 2, 0, 374_000, None),)
    assert bmc.asked()[3:] == [f"{base}/EnvironmentMetrics"]


def test_the_sensor_of_the_chassis_may_be_named_itself(bmc: Controller, captured: Captured) -> None:
    bmc.serve({"/s": captured("dmtf-1U_Sensor_TotalPower.json")})

    meter = RedfishMeter(f"{bmc.url}/s")

    assert meter.averaging_ns == SECOND // 4
    assert meter.read(clock(0, 0))[0].power_mw == 374_000


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dmtf-1U_Sensor_CPU1Power.json", "is the power of CPU, not of the whole chassis"),
        ("dmtf-1U_Sensor_PS1InputPower.json", "is the power of PowerSupply, not of the whole"),
        ("dmtf-1U_Sensor_TotalEnergy.json", "is no sensor of power in W"),
        ("dmtf-1U_Sensor_PS1Energy.json", "is no sensor of power in W"),
        ("dmtf-1U_PowerSubsystem.json", "the power of its supplies one by one"),
        ("hp_power_subsys.json", "the power of its supplies one by one"),
        ("dmtf-1U_PowerSupplyMetrics.json", "is a PowerSupplyMetrics, which tells no power"),
        ("hp_power_subsys_metrics.json", "is a PowerSupplyMetrics, which tells no power"),
        ("hp_power_subsys_psu_1.json", "is a PowerSupply, which tells no power"),
        ("hp_power_subsys_psu.json", "is a PowerSupplyCollection, which tells no power"),
        ("sushy_power.json", "has no PowerControl with PowerConsumedWatts, only what its supplies"),
    ],
)
def test_of_any_other_capture_it_is_said_why_it_tells_no_power_of_the_chassis(
    bmc: Controller, captured: Captured, name: str, words: str
) -> None:
    bmc.serve({"/x": captured(name)})

    text = reason(bmc, "/x")

    assert words in text
    assert text.startswith("instruments.url: ")
    assert f"found {bmc.url}/x" in text


def test_a_chassis_with_supplies_alone_is_refused_with_all_that_was_tried(
    bmc: Controller, captured: Captured
) -> None:
    page = chassis(
        EnvironmentMetrics=f"{CHASSIS}/E",
        Power=f"{CHASSIS}/Power",
        PowerSubsystem=f"{CHASSIS}/PowerSubsystem",
    )
    bmc.serve({CHASSIS: page, f"{CHASSIS}/Power": captured("sushy_power.json")})

    text = reason(bmc, CHASSIS)

    assert "its EnvironmentMetrics: " in text
    assert "HTTP 404" in text
    assert "its Power has no PowerControl" in text


@pytest.mark.parametrize("environment", [404, {"@odata.type": "#EnvironmentMetrics.v1.x", "a": 1}])
def test_an_environment_without_power_leads_on_to_the_older_resource(
    bmc: Controller, environment: object
) -> None:
    page = chassis(EnvironmentMetrics=f"{CHASSIS}/E", Power=f"{CHASSIS}/Power")
    bmc.serve({CHASSIS: page, f"{CHASSIS}/E": environment, f"{CHASSIS}/Power": power(500)})

    meter = RedfishMeter(bmc.url + CHASSIS)

    assert meter.boards()[0].uuid == f"{host(bmc)}{CHASSIS}/Power"
    assert meter.read(clock(0, 0))[0].power_mw == 500_000


def test_an_environment_that_knows_no_watts_now_leads_on_too(bmc: Controller) -> None:
    environment = {
        "@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics",
        "PowerWatts": {"Reading": None},
    }
    page = chassis(EnvironmentMetrics=f"{CHASSIS}/E", Power=f"{CHASSIS}/Power")
    bmc.serve({CHASSIS: page, f"{CHASSIS}/E": environment, f"{CHASSIS}/Power": power(500.5)})

    assert RedfishMeter(bmc.url + CHASSIS).read(clock(0, 0))[0].power_mw == 500_500


@pytest.mark.parametrize(
    "link",
    ["https://other.example/redfish/v1/Chassis/1/Power", "//other.example/x", "x", 5, "/a b"],
)
def test_a_link_to_another_host_is_not_followed(bmc: Controller, link: object) -> None:
    bmc.serve({CHASSIS: chassis(Power=link)})

    assert "links to no EnvironmentMetrics and no Power on this host" in reason(bmc, CHASSIS)
    assert bmc.asked() == [CHASSIS]


def test_a_sensor_on_another_host_is_not_asked_for_its_times(bmc: Controller) -> None:
    page = {
        "@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics",
        "PowerWatts": {"Reading": 1, "DataSourceUri": "http://127.0.0.1:1/s"},
    }
    bmc.serve({"/e": page})

    assert RedfishMeter(f"{bmc.url}/e").averaging_ns is None
    assert bmc.asked() == ["/e"]


def test_a_sensor_that_is_not_there_leaves_the_averaging_time_unknown(
    bmc: Controller, captured: Captured
) -> None:
    bmc.serve({"/e": captured("dmtf-1U_EnvironmentMetrics.json")})

    assert RedfishMeter(f"{bmc.url}/e").averaging_ns is None


def test_a_redirect_is_not_followed(bmc: Controller) -> None:
    bmc.serve({"/x": 302, "/y": power(100)}, headers={"Location": "/y"})

    assert "HTTP 302, which leads elsewhere and is not followed" in reason(bmc, "/x")
    assert bmc.asked() == ["/x"]


def test_several_power_controls_are_not_added_up_and_one_may_be_named(bmc: Controller) -> None:
    bmc.serve({"/p": power(500, 200, 50)})

    assert "has 3 power controls (C0, C1, C2); name one as #/PowerControl/0" in reason(bmc, "/p")
    meter = RedfishMeter(f"{bmc.url}/p#/PowerControl/1")
    assert meter.boards()[0].uuid == f"{host(bmc)}/p#/PowerControl/1"
    assert meter.read(clock(0, 0))[0].power_mw == 200_000
    assert "has no /PowerControl/3" in reason(bmc, "/p#/PowerControl/3")


def test_a_collection_says_which_addresses_may_be_written(bmc: Controller) -> None:
    members = [{"@odata.id": CHASSIS}, {"@odata.id": "http://other/x"}]
    bmc.serve({"/c": {"@odata.type": "#ChassisCollection.ChassisCollection", "Members": members}})

    text = reason(bmc, "/c")

    assert "is a ChassisCollection, which tells no power" in text
    assert text.endswith(f"Write the address of one: {CHASSIS}.")


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (404, "HTTP 404; "),
        (500, "HTTP 500; "),
        ("<html>", "is no Redfish: no JSON object"),
        ("[" * 5000, "is no Redfish: no JSON object"),
        ([1], "is no Redfish: no JSON object"),
        ({}, "has no type of Redfish"),
        (" " * ((1 << 20) + 1), "larger than 1 MiB; "),
        (power(0), "tells no power above 0 and up to 200,000 W"),
        (power(), "has no PowerControl"),
    ],
)
def test_why_nothing_is_read_is_said(bmc: Controller, page: object, words: str) -> None:
    bmc.serve({"/x": page})

    assert words in reason(bmc, "/x")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://a..b/x", "is no address"),
        ("ftp://host/x", "neither http nor https"),
        ("http://me:hunter2@host/x", "holds credentials"),
    ],
)
def test_an_address_that_cannot_be_asked_is_a_reason(url: str, words: str) -> None:
    with pytest.raises(RedfishUnavailable, match=words) as caught:
        RedfishMeter(url)

    assert "instruments.url" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_nobody_there_is_said_of_the_controller_and_not_of_an_engine() -> None:
    with pytest.raises(RedfishUnavailable, match="no management controller answers") as caught:
        RedfishMeter(f"http://127.0.0.1:{free_port()}/x")

    assert "engine" not in str(caught.value)


def test_a_value_that_can_not_be_is_missing_and_a_page_without_it_is_an_error(
    bmc: Controller,
) -> None:
    bmc.serve({"/p": power(100)})
    meter = RedfishMeter(f"{bmc.url}/p")
    found = []
    for watts in (100, None, 0, -5, "100", 300_000, True, 12.34):
        bmc.serve({"/p": power(watts)})
        found.append(meter.read(clock(0, 0))[0].power_mw)
    assert found == [100_000, None, None, None, None, None, None, 12_340]

    bmc.serve({"/p": {"@odata.type": "#Power.v1_7_1.Power"}})
    with pytest.raises(RedfishUnavailable, match="has no PowerControl"):
        meter.read(clock(0, 0))
    bmc.serve({})
    with pytest.raises(RedfishUnavailable, match="HTTP 404"):
        meter.read(clock(0, 0))


def test_b7_joules_are_read_as_millijoules_and_kilowatt_hours_are_not_read() -> None:
    page = {
        "@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics",
        "PowerWatts": {"Reading": 374},
        "EnergykWh": {"Reading": 325675},
    }
    assert tell(page) == Reading(374_000, None, None)
    assert tell(page | {"EnergyJoules": {"Reading": 25.5}}) == Reading(374_000, 25_500, None)
    assert tell(page | {"EnergyJoules": {"Reading": 1e300}}) == Reading(374_000, None, None)


@pytest.mark.parametrize(
    ("interval", "averaging_ns"),
    [
        ("PT0.25S", SECOND // 4),
        ("PT1M", MINUTE),
        ("P1DT2H3M4S", 93_784 * SECOND),
        ("PT0S", None),
        ("P", None),
        ("1 s", None),
        ("PT" + "9" * 60 + "S", None),
        (5, None),
        (None, None),
    ],
)
def test_the_sensing_interval_of_a_sensor_is_its_averaging_time(
    interval: object, averaging_ns: int | None
) -> None:
    page = {
        "@odata.type": "#Sensor.v1_6_0.Sensor",
        "ReadingType": "Power",
        "ReadingUnits": "W",
        "PhysicalContext": "Chassis",
        "Reading": 7,
        "SensingInterval": interval,
    }
    assert tell(page) == Reading(7_000, None, averaging_ns)


@pytest.mark.parametrize(
    ("minutes", "averaging_ns"),
    [(1, MINUTE), (0.5, MINUTE // 2), (0, None), (-1, None), (True, None), ("1", None)],
)
def test_an_interval_that_is_none_is_not_told(minutes: object, averaging_ns: int | None) -> None:
    page = power(7, PowerMetrics={"IntervalInMin": minutes})
    assert tell(page) == Reading(7_000, None, averaging_ns)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["PowerControl", "PowerConsumedWatts", "Reading", "PowerMetrics", "IntervalInMin"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(
    kind=st.sampled_from(["Power", "EnvironmentMetrics", "Sensor", "Chassis", ""]),
    fields=st.dictionaries(
        st.sampled_from(["PowerControl", "PowerWatts", "EnergyJoules", "Reading"]), json_values
    ),
)
def test_any_page_is_a_reason_or_a_reading_that_can_be(
    kind: str, fields: dict[str, object]
) -> None:
    page = {**fields, "@odata.type": f"#{kind}.v1.{kind}"}
    page |= {"ReadingType": "Power", "ReadingUnits": "W", "PhysicalContext": "Chassis"}

    found = tell(copy.deepcopy(page))

    if isinstance(found, str):
        assert found
    else:
        assert found.power_mw is None or 0 <= found.power_mw <= 200_000_000
        assert found.energy_mj is None or 0 <= found.energy_mj < 1 << 53


def test_user_and_password_are_sent_from_their_variables(bmc: Controller, login: Login) -> None:
    header = "Basic " + b64encode(f"observer-of-power:{SECRET}".encode()).decode()
    bmc.serve({"/p": power(100)}, authorization=header)

    meter = RedfishMeter(f"{bmc.url}/p", login)

    assert meter.read(clock(0, 0))[0].power_mw == 100_000


def test_without_user_and_password_it_is_said_what_to_name(bmc: Controller) -> None:
    bmc.serve({"/p": power(100)}, authorization="Basic x")

    text = reason(bmc, "/p")

    assert "HTTP 401: not allowed" in text
    assert "user_variable and password_variable" in text


def test_the_password_is_in_no_error_no_log_and_no_name(
    bmc: Controller, login: Login, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    encoded = b64encode(f"observer-of-power:{SECRET}".encode()).decode()
    texts = []
    bmc.serve({}, authorization="Basic other")
    texts.append(reason(bmc, "/p", login))
    assert f"Check what {USER} and {PASSWORD} hold." in texts[0]
    bmc.serve({"/p": SECRET, "/n": power(1) | {"Name": f"said {SECRET} again"}})
    texts.append(reason(bmc, "/p", login))
    meter = RedfishMeter(f"{bmc.url}/n", login)
    texts += [str(meter.boards()), repr(login), repr(vars(meter))]
    monkeypatch.setenv(PASSWORD, f"{SECRET}\n")
    texts.append(reason(bmc, "/p", login))
    assert f"instruments.password_variable: {PASSWORD}: holds no password that can" in texts[-1]

    for text in (*texts, caplog.text):
        assert SECRET not in text
        assert encoded not in text
        assert "observer-of-power" not in text


@pytest.mark.parametrize(("variable", "value"), [(USER, None), (PASSWORD, None), (USER, "a:b")])
def test_a_variable_without_a_value_is_a_reason_that_names_it(
    bmc: Controller,
    login: Login,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str | None,
) -> None:
    monkeypatch.delenv(variable)
    if value is not None:
        monkeypatch.setenv(variable, value)

    assert variable in reason(bmc, "/p", login)


def test_a_password_is_not_sent_over_plain_http_to_another_machine(login: Login) -> None:
    with pytest.raises(RedfishUnavailable, match=r"would not be encrypted.*Use https"):
        RedfishMeter("http://bmc.example/redfish/v1/Chassis/1", login)


def test_over_tls_a_trusted_controller_is_read_and_a_stranger_is_not(
    bmc: Controller, login: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    bmc.serve({"/p": power(100)})
    with tls_before(bmc.url, authority.server_context()) as url:
        with pytest.raises(RedfishUnavailable, match=r"certificate is not accepted.*SSL_CERT_FILE"):
            RedfishMeter(f"{url}/p", login)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))

        assert RedfishMeter(f"{url}/p", login).read(clock(0, 0))[0].power_mw == 100_000
