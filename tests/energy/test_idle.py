"""Loaded-idle watts: from spans that the journal names, before and after the load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.energy.idle import IdleSpan, idle_by_repeat, idle_spans
from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence.power import Board, PowerLog, PowerSample
from tokenwatt_site.journal import GENESIS, Entry, Event

S = 10**9


def journal(*lines: tuple[Event, dict[str, Any]]) -> list[Entry]:
    return [
        Entry(seq=seq, at="now", event=event, prev=GENESIS, data=data)
        for seq, (event, data) in enumerate(lines)
    ]


def idle(repeat: int, when: str, start_s: float, end_s: float) -> tuple[Event, dict[str, Any]]:
    data = {"when": when, "start_ns": round(start_s * S), "end_ns": round(end_s * S)}
    return "idle", {"repeat": repeat, **data}


LAUNCH: tuple[Event, dict[str, Any]] = ("launch", {"repeat": 1})


def log(*watts: list[int | None], counter: bool = True) -> PowerLog:
    """Each board: what it drew in the second that ends at 0, 1, 2 ..."""
    samples = []
    for board, rows in enumerate(watts):
        total = 0
        for second, watt in enumerate(rows):
            total += (watt or 0) * 1000
            told = None if watt is None else total
            power = None if watt is None else watt * 1000
            samples.append(PowerSample(second * S, board, power, told if counter else None))
    boards = tuple(Board(uuid=f"GPU-{n}", name="Toy") for n in range(len(watts)))
    return PowerLog("nvml", "gpu", S, None, boards, tuple(samples))


def test_idle_is_the_mean_of_before_and_after_over_all_boards() -> None:
    read = log([100] * 20 + [300] * 20 + [106] * 20, [80] * 20 + [300] * 20 + [80] * 20)
    lines = journal(LAUNCH, idle(1, "before", 5, 15), idle(1, "after", 45, 55))
    found = idle_by_repeat(lines, read)[1]
    assert found.power_mw == pytest.approx((180_000 + 186_000) / 2)
    assert found.least_mw == pytest.approx((100_000, 80_000))
    assert found.findings == ()


def test_idle_that_changed_by_more_than_a_tenth_is_told() -> None:
    read = log([100] * 30 + [112] * 30)
    lines = journal(LAUNCH, idle(1, "before", 5, 15), idle(1, "after", 40, 50))
    (said,) = idle_by_repeat(lines, read)[1].findings
    assert (said.level, said.text) == (
        "warn",
        "idle was 100 W before the load and 112 W after it, +12%",
    )


def test_one_span_alone_is_used_and_told() -> None:
    found = idle_by_repeat(journal(LAUNCH, idle(1, "before", 5, 15)), log([100] * 30))[1]
    assert found.power_mw == pytest.approx(100_000)
    assert [f.text for f in found.findings] == ["idle watts were measured before the load alone"]


def test_a_span_that_was_not_read_leaves_the_other_and_is_told() -> None:
    read = log([100] * 30 + [None] * 30)
    lines = journal(LAUNCH, idle(1, "before", 5, 15), idle(1, "after", 40, 50))
    found = idle_by_repeat(lines, read)[1]
    assert found.power_mw == pytest.approx(100_000)
    # A number that is shown is not called withheld.
    assert [f.level for f in found.findings] == ["warn", "warn"]
    assert found.findings[0].text.startswith("after the load, board 0 (Toy): samples do not")


def test_b14_nothing_read_is_no_idle_and_a_reason() -> None:
    found = idle_by_repeat(journal(LAUNCH, idle(1, "before", 5, 15)), log([None] * 30))[1]
    assert found.power_mw is None
    assert found.reason.startswith("before the load, board 0 (Toy): samples do not enclose")


def test_b8_a_counter_that_runs_backwards_while_idle_is_invalid() -> None:
    read = log([100] * 8 + [-300] + [100] * 20)
    found = idle_by_repeat(journal(LAUNCH, idle(1, "before", 5, 15)), read)[1]
    assert (found.power_mw, found.least_mw) == (None, ())
    assert [f.level for f in found.findings] == ["INVALID"]


def test_b1_idle_counter_and_watts_that_disagree_are_both_told() -> None:
    # 187 J by the counter where the watts make 327 J, over the same 5 s.
    samples = tuple(PowerSample(n * S, 0, 65_400, 37_400 * n) for n in range(12))
    read = PowerLog("nvml", "gpu", S, None, (Board(uuid="GPU-0", name="Toy"),), samples)
    found = idle_by_repeat(journal(LAUNCH, idle(1, "before", 3, 8)), read)[1]
    assert found.power_mw == pytest.approx(37_400)
    assert found.findings[0].level == "not reconciled"
    assert "differ by -42.8%" in found.findings[0].text


def test_only_the_last_launch_of_a_repeat_counts() -> None:
    lines = journal(
        LAUNCH,
        idle(1, "before", 5, 15),
        LAUNCH,
        idle(1, "before", 20, 30),
        ("launch", {"repeat": 2}),
        idle(2, "before", 40, 50),
    )
    assert [(s.repeat, s.start_ns // S) for s in idle_spans(lines)] == [(1, 20), (2, 40)]


@pytest.mark.parametrize(
    "change",
    [
        {"when": "during"},
        {"start_ns": -1},
        {"start_ns": 5.5},
        {"end_ns": 5 * S},
        {"end_ns": None},
        {"repeat": 0},
        {"more": 1},
    ],
)
def test_a_line_that_is_no_span_is_refused_by_its_number(change: dict[str, Any]) -> None:
    event, data = idle(1, "before", 5, 15)
    with pytest.raises(InputError, match=r"journal line 1"):
        idle_spans(journal(LAUNCH, (event, data | change)))


@given(
    st.lists(st.integers(1, 900), min_size=30, max_size=40),
    st.integers(10, 100),
    st.integers(1, 100),
)
def test_idle_watts_equal_a_sum_over_thin_slices(watts: list[int], start: int, length: int) -> None:
    read = log(list(watts))
    span = IdleSpan(
        repeat=1, when="before", start_ns=start * S // 10, end_ns=(start + length) * S // 10
    )
    found = idle_by_repeat(journal(LAUNCH, ("idle", span.to_json())), read)[1]
    # The second that ends at n draws watts[n].
    naive = sum(watts[n // 10 + 1] for n in range(start, start + length)) / length
    assert found.power_mw == pytest.approx(naive * 1000, rel=1e-9)


@pytest.mark.parametrize(
    ("scope", "averaging_s", "counter", "said"),
    [
        ("host", None, False, True),
        ("host", 1, False, False),
        ("host", None, True, False),
        ("gpu", None, False, False),
    ],
)
def test_b12_a_host_that_does_not_tell_its_averaging_time_is_told_of(
    scope: Any, averaging_s: int | None, counter: bool, said: bool
) -> None:
    averaging_ns = None if averaging_s is None else averaging_s * S
    read = replace(log([100] * 60, counter=counter), scope=scope, averaging_ns=averaging_ns)
    lines = journal(LAUNCH, idle(1, "before", 5, 15), idle(1, "after", 40, 50))
    found = idle_by_repeat(lines, read)[1]
    assert found.power_mw == pytest.approx(100_000)
    assert [(f.level, "does not tell over how long" in f.text) for f in found.findings] == (
        [("warn", True)] * said
    )


def test_b12_an_idle_of_seconds_is_withheld_from_a_mean_over_a_minute() -> None:
    # 2 s after the load such a mean is still of the load: 300 W where the host draws 100.
    read = replace(log([300] * 62 + [100] * 200, counter=False), scope="host", averaging_ns=60 * S)
    found = idle_by_repeat(journal(LAUNCH, idle(1, "after", 64, 74)), read)[1]
    assert found.power_mw is None
    assert [f.level for f in found.findings] == ["withheld"]
    assert "means over 60 s, too slow for a window of 10 s" in found.reason
