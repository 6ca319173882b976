"""What a run does not cover is said, with the reason, and nothing else is."""

import pytest

from tests.support.runs import small_spec, spec_in_mode
from tokenwatt_site.caveats import caveats, not_recorded
from tokenwatt_site.run import MetricClaim, RepeatClaim


def repeat(number=1, window_s=130.0):
    return RepeatClaim(
        repeat=number,
        highest_pass_urps=1,
        lowest_fail_urps=2,
        boundary_urps=1,
        window_s=window_s,
    )


ONE = (repeat(),)


def said(spec, repeats=ONE, metrics=()):
    return {item.what: item.why for item in caveats(spec, repeats, metrics)}


def test_demo_and_quick_modes_say_what_they_are():
    assert "Anything but a demonstration" in said(small_spec())
    quick = said(spec_in_mode("quick"), (repeat(1), repeat(2)))
    assert any("validation only, not for publishing" in what for what in quick)
    full = said(spec_in_mode("full"), tuple(repeat(i) for i in (1, 2, 3)))
    assert not any("mode" in what or "demonstration" in what for what in full)


def test_a_metric_without_a_value_is_named_once_with_its_reason():
    absent = MetricClaim(key="mbu", label="MBU", value=None, repeats=(), reason="no model")
    found = said(small_spec(), metrics=(absent, absent))
    assert found["Decode bandwidth utilization (MBU)"] == "Not measured: no model."


def test_a_measured_metric_is_no_caveat():
    there = MetricClaim(key="mbu", label="MBU", value=61.0, repeats=(61.0,))
    assert "Decode bandwidth utilization (MBU)" not in said(small_spec(), metrics=(there,))


@pytest.mark.parametrize(("window_s", "scored", "short"), [(119.0, 600, True), (130.0, 600, False)])
def test_short_windows_are_said_with_their_length(window_s, scored, short):
    spec = small_spec(protocol__scored=scored)
    assert ("Long windows" in said(spec, (repeat(window_s=window_s),))) == short


def test_board_power_does_not_cover_the_node():
    gpu = small_spec(setup__power={"sensor": "nvml", "scope": "gpu", "rate_hz": 1})
    assert "Whole-node power" in said(gpu)
    assert "Whole-node power" not in said(small_spec())


def test_fewer_than_three_launches_leave_their_spread_uncovered():
    assert "1 launch measured" in said(small_spec())["Spread between launches"]
    three = tuple(repeat(i) for i in (1, 2, 3))
    assert "Spread between launches" not in said(spec_in_mode("full"), three)


def test_fields_not_recorded_are_found_at_any_depth():
    setup = {"a": "not recorded", "b": [1, {"c": "not recorded"}], "d": {"e": "recorded"}}
    assert not_recorded(setup) == ("a", "b.1.c")
    found = said(small_spec())["Setup fields that were not recorded"]
    assert "accelerator.power_limit_w" in found
