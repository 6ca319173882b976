from __future__ import annotations

from typing import Any, get_args

import pytest

from tokenwatt_site.meters import PowerScope, PowerSource
from tokenwatt_site.pages import instruments


def test_every_scope_has_its_words() -> None:
    for words in (
        instruments.POWER,
        instruments.ONLY,
        instruments.BOUNDARY,
        instruments.DREW,
        instruments.ONE,
    ):
        assert set(words) == set(get_args(PowerScope))


def source(sensor: str, scope: str) -> PowerSource:
    value: Any = {"sensor": sensor, "scope": scope, "rate_hz": 0.0 if sensor == "none" else 1.0}
    return PowerSource.model_validate(value)


@pytest.mark.parametrize(
    ("sensor", "scope", "words"),
    [
        ("nvml", "gpu", "GPU board power sum (NVIDIA) · 1 Hz"),
        ("dcgm", "gpu", "GPU board power sum (NVIDIA DCGM) · 1 Hz"),
        ("nvml", "module", "Module power sum (NVIDIA) · 1 Hz"),
        ("rapl", "cpu", "Processor package power sum (RAPL) · 1 Hz"),
        ("redfish", "host", "Host power sum (Redfish) · 1 Hz"),
        ("none", "none", "none: power is not measured"),
    ],
)
def test_the_source_of_power_is_written_as_in_the_example(
    sensor: str, scope: str, words: str
) -> None:
    assert instruments.source(source(sensor, scope)) == words


def test_the_window_joins_the_source_where_it_is_known() -> None:
    assert instruments.source(source("nvml", "gpu"), 120.4).endswith("1 Hz · windows of 120 s")


def test_b9_what_a_module_covers_is_not_called_a_board() -> None:
    assert instruments.POWER["module"] == "Module power"
    assert "GPU board" not in instruments.BOUNDARY["module"]


def test_the_gain_error_is_told_where_it_is_known() -> None:
    assert instruments.gain("dcgm") == "±5% systematic"
    assert instruments.gain("redfish") == ""
