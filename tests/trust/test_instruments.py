"""Tests of trust.instruments; what it decides for whole runs is in test_verify too."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.claims.test_derive import evidence_of
from tests.support.runs import RunBuilder, gpu_spec, played_counters, steady_power
from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence.engine import EngineLog, EngineSample
from tokenwatt_site.evidence.power import DramSpan, PowerLog, PowerSample
from tokenwatt_site.trials import Evidence, read_trials
from tokenwatt_site.trust.instruments import check_engine, check_idle, check_log

GOOD = steady_power(20)
S = 10**9


def refused(log: PowerLog, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_log("power", log)


def edited(position: int, **changes: Any) -> PowerLog:
    samples = list(GOOD.samples)
    samples[position] = replace(samples[position], **changes)
    return replace(GOOD, samples=tuple(samples))


def test_a_sound_log_is_plausible() -> None:
    check_log("power", GOOD)
    check_log("power", replace(GOOD, sensor="dcgm"))
    check_log("power", replace(GOOD, scope="module"))


@given(st.lists(st.integers(0, 10**6), max_size=10))
def test_what_boards_read_may_be_missing_anywhere(at: list[int]) -> None:
    samples = tuple(PowerSample(when, 0, None, None) for when in sorted(at))
    check_log("power", replace(GOOD, samples=samples))


@pytest.mark.parametrize(
    ("sensor", "scope"), [("rapl", "gpu"), ("nvml", "host"), ("redfish", "cpu"), ("none", "none")]
)
def test_a_scope_that_the_sensor_does_not_have_is_refused(sensor: Any, scope: Any) -> None:
    refused(replace(GOOD, sensor=sensor, scope=scope), f"of scope {scope}")


def test_b2_a_board_that_is_there_twice_is_refused() -> None:
    twice = replace(GOOD, boards=(GOOD.boards[0], GOOD.boards[0]))
    refused(twice, "has 2 boards, of which 1 are different")
    refused(replace(GOOD, boards=(), samples=()), "has 0 boards")


BEYOND: dict[str, tuple[dict[str, Any], str]] = {
    "negative power": ({"power_mw": -1}, r"power\.7\.power_mw"),
    "b7 watts as microwatts": ({"power_mw": 300_000_000}, r"power\.7\.power_mw"),
    "negative instant": ({"instant_mw": -5}, r"power\.7\.instant_mw"),
    "negative counter": ({"energy_mj": -1}, r"power\.7\.energy_mj"),
    "b15 traffic far over the bus": ({"dram_ppm": 20_000_000}, r"power\.7\.dram_ppm"),
    "a clock of terahertz": ({"sm_mhz": 1_000_000}, r"power\.7\.sm_mhz"),
    "hotter than solder": ({"celsius": 400}, r"power\.7\.celsius"),
    "negative reasons": ({"reasons": -1}, r"power\.7\.reasons"),
    "earlier than before": ({"at_ns": 1}, r"power\.7: goes back in time"),
    "b19 later than all clocks": ({"at_ns": 2**53}, r"power\.7: .* beyond all clocks"),
}


@pytest.mark.parametrize(("changes", "words"), BEYOND.values(), ids=BEYOND)
def test_a_reading_that_no_instrument_gives_is_refused(changes: dict[str, Any], words: str) -> None:
    refused(edited(7, **changes), words)


def test_a_host_may_draw_what_no_board_can() -> None:
    host = replace(edited(7, power_mw=80_000_000), sensor="redfish", scope="host")
    check_log("power-beside-1", host)


@pytest.mark.parametrize(
    ("start_s", "end_s", "valid"), [(2, 8, True), (8, 2, False), (5, 5, False), (2, 30, False)]
)
def test_a_span_lies_between_the_readings_of_its_board(
    start_s: int, end_s: int, valid: bool
) -> None:
    span = DramSpan(board=1, start_ns=start_s * S, end_ns=end_s * S, ppm=1)
    log = replace(GOOD, spans=(span,))
    if valid:
        check_log("power", log)
    else:
        refused(log, r"power\.spans\.0: does not lie between")


# --- idle spans and counters beside trials

BUILDER = RunBuilder(spec=gpu_spec(protocol__repeats=2), idle_s=12)


EVIDENCE = evidence_of(BUILDER)
TRIALS = read_trials(BUILDER.spec, EVIDENCE)


def with_idle(number: int, changes: dict[str, Any]) -> Evidence:
    """The evidence with one idle span elsewhere."""
    lines = list(EVIDENCE.journal)
    found = [line.seq for line in lines if line.event == "idle"][number]
    data = lines[found].data
    lines[found] = lines[found].model_copy(update={"data": data | changes})
    return replace(EVIDENCE, journal=tuple(lines))


def test_spans_beside_their_trials_are_plausible() -> None:
    check_idle(EVIDENCE.journal, TRIALS)


MISPLACED: dict[str, tuple[int, dict[str, Any]]] = {
    "into the first trial": (0, {"end_ns": 10**12 + 1}),
    "within a trial": (0, {"start_ns": 10**12 + 5, "end_ns": 10**12 + 6}),
    "before the last trial ended": (1, {"start_ns": 3 * 10**12 + 5}),
    "after the next launch's trials": (1, {"start_ns": 9 * 10**12, "end_ns": 9 * 10**12 + 5}),
    "over the span before": (2, {"start_ns": 1, "end_ns": 2}),
}


@pytest.mark.parametrize(("number", "changes"), MISPLACED.values(), ids=MISPLACED)
def test_a_span_that_overlaps_or_is_out_of_order_is_refused(
    number: int, changes: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match="had ended"):
        check_idle(with_idle(number, changes).journal, TRIALS)


COUNTERS = played_counters(BUILDER)


def counters(position: int, **changes: Any) -> EngineLog:
    samples = list(COUNTERS.samples)
    samples[position] = replace(samples[position], **changes)
    return replace(COUNTERS, samples=tuple(samples))


def test_counters_may_start_again_with_each_launch() -> None:
    steps = [sample.steps or 0 for sample in COUNTERS.samples]
    assert any(b < a for a, b in pairwise(steps))
    check_engine(EVIDENCE.journal, TRIALS, COUNTERS)
    check_engine(EVIDENCE.journal, TRIALS, None)


@pytest.mark.parametrize("name", ["steps", "prompt_tokens", "output_tokens"])
def test_b8_a_counter_that_runs_backwards_in_one_launch_is_refused(name: str) -> None:
    log = counters(10, **{name: 1})
    with pytest.raises(InputError, match=rf"engine\.10\.{name}: runs backwards"):
        check_engine(EVIDENCE.journal, TRIALS, log)


def test_counters_that_are_not_exported_run_nowhere() -> None:
    silent = tuple(EngineSample(sample.at_ns) for sample in COUNTERS.samples)
    check_engine(EVIDENCE.journal, TRIALS, EngineLog({}, silent))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"at_ns": 5}, r"engine\.10: goes back"),
        ({"at_ns": 2**53}, r"engine\.10: .* beyond all clocks"),
        ({"running": -1}, r"engine\.10\.running"),
    ],
)
def test_counters_of_no_engine_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_engine(EVIDENCE.journal, TRIALS, counters(10, **changes))
