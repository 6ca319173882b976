"""Tests of trust.consistency; what it refuses in whole runs is in test_verify."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import KEYID, JournalPlan, RunBuilder, small_spec
from tokenwatt_site.errors import InputError
from tokenwatt_site.journal import GENESIS, Entry
from tokenwatt_site.run import Run
from tokenwatt_site.trust import consistency
from tokenwatt_site.trust.consistency import check_journal
from tokenwatt_site.windows import windows_of

BUILDER = RunBuilder(spec=small_spec(protocol__repeats=2), rates_urps=(1_000_000, 2_000_000))
PLAN = BUILDER.journal_plan()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = BUILDER.write(tmp_path_factory.mktemp("run"))
    return Run.model_validate_json(path.read_bytes())


def entries(plan: JournalPlan) -> list[Entry]:
    return [
        Entry(seq=seq, at="2026-01-01T00:00:00Z", event=event, prev=GENESIS, data=data)
        for seq, (event, data) in enumerate(plan)
    ]


def fits(run: Run, plan: JournalPlan) -> bool:
    try:
        check_journal(run, entries(plan), windows_of(run.spec), KEYID)
    except InputError:
        return False
    return True


def naive_fits(plan: JournalPlan, repeats: int) -> bool:
    """Whether a complete run may have these lines of `PLAN` in this order, pair by pair."""
    events = [event for event, _ in plan]
    starts = [(data["repeat"], data["trial"]) for event, data in plan if event == "trial_start"]
    of_repeat = [
        [event for event, data in plan if data.get("repeat") == number]
        for number in range(1, repeats + 1)
    ]
    return (
        events[0] == "open"
        and events[-1] == "close"
        and len(set(starts)) == len(starts)
        and all("trial_end" in own and "repeat_end" in own for own in of_repeat)
        and all(may_follow(plan[:at], plan[at]) for at in range(1, len(plan)))
    )


def may_follow(before: JournalPlan, line: tuple[str, dict[str, Any]]) -> bool:
    (last, told), (event, data) = before[-1], line
    if last == "trial_start" or event == "trial_end":
        ends = event == "trial_end" and last == "trial_start" and told["trial"] == data["trial"]
        return ends or (last == "trial_start" and event == "launch")
    if event in {"trial_start", "repeat_end"}:
        marks = [(e, d["repeat"]) for e, d in before if e in {"launch", "repeat_end"}]
        return marks[-1:] == [("launch", data["repeat"])]
    return True


LINES = st.lists(st.integers(1, len(PLAN) - 2), max_size=14)


@given(order=LINES | st.permutations(range(1, len(PLAN) - 1)), swap=st.integers(1, len(PLAN) - 3))
def test_the_lines_fit_exactly_in_the_orders_that_a_slow_comparison_accepts(
    run: Run, order: list[int], swap: int
) -> None:
    shuffled = [PLAN[0], *(PLAN[i] for i in order), PLAN[-1]]
    swapped = [*PLAN[:swap], PLAN[swap + 1], PLAN[swap], *PLAN[swap + 2 :]]
    for plan in (shuffled, swapped):
        assert fits(run, plan) == naive_fits(plan, 2)


def test_the_lines_of_a_complete_run_fit(run: Run) -> None:
    assert fits(run, PLAN)
    assert naive_fits(PLAN, 2)


def test_a_repeat_that_ended_may_not_have_ended_again(run: Run) -> None:
    at = next(i for i, (event, _) in enumerate(PLAN) if event == "repeat_end")
    assert not fits(run, [*PLAN[: at + 1], PLAN[at], *PLAN[at + 1 :]])


def test_an_interrupted_repeat_goes_on_only_with_a_new_launch(run: Run) -> None:
    interrupted: JournalPlan = [("interrupted", {})]
    assert not fits(run, [*PLAN[:4], *interrupted, *PLAN[4:]])
    again: JournalPlan = [PLAN[1]]
    assert fits(run, [*PLAN[:4], *interrupted, *again, *PLAN[4:]])


IDLE = replace(BUILDER, idle_s=12).journal_plan()


def test_a_launch_may_be_idle_before_its_trials_and_after_them(run: Run) -> None:
    assert [event for event, _ in IDLE].count("idle") == 4
    assert fits(run, IDLE)
    for at, (event, _) in enumerate(IDLE):
        if event == "idle":
            assert fits(run, [*IDLE[:at], *IDLE[at + 1 :]])


def test_idle_lines_stand_nowhere_else(run: Run) -> None:
    lines = [line for line in IDLE if line[0] == "idle"]
    others = [line for line in IDLE if line[0] != "idle"]
    for line in lines:
        places = [
            at for at in range(1, len(others) + 1) if fits(run, [*others[:at], line, *others[at:]])
        ]
        repeat, when = line[1]["repeat"], line[1]["when"]
        own = [at for at, (_, data) in enumerate(others) if data.get("repeat") == repeat]
        assert others[own[0]][0] == "launch"
        ended = max(at for at in own if others[at][0] == "trial_end")
        assert places == [own[0] + 1 if when == "before" else ended + 1]


def test_a_launch_is_idle_once_before_and_once_after(run: Run) -> None:
    for at, (event, _) in enumerate(IDLE):
        if event == "idle":
            assert not fits(run, [*IDLE[: at + 1], IDLE[at], *IDLE[at + 1 :]])


def test_an_idle_line_that_is_no_span_is_refused(run: Run) -> None:
    at = next(at for at, (event, _) in enumerate(IDLE) if event == "idle")
    event, data = IDLE[at]
    for change in ({"when": "during"}, {"end_ns": 0}, {"start_ns": "1"}, {"repeat": 2}):
        assert not fits(run, [*IDLE[:at], (event, data | change), *IDLE[at + 1 :]])


def test_b15_planned_rows_of_all_trials_together_are_bounded(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol = run.spec.protocol
    planned = 4 * (protocol.lead_in + protocol.scored + protocol.tail)
    monkeypatch.setattr(consistency, "MAX_PLANNED_ROWS", planned)
    assert fits(run, PLAN)
    monkeypatch.setattr(consistency, "MAX_PLANNED_ROWS", planned - 1)
    assert not fits(run, PLAN)


def test_b15_a_journal_of_as_many_trials_as_are_read_is_looked_at_line_by_line(run: Run) -> None:
    class Counted(dict[str, Any]):
        reads = 0

        def get(self, key: str, default: Any = None) -> Any:
            Counted.reads += 1
            return super().get(key, default)

    reads = []
    for trials in (200, 400):
        Counted.reads = 0
        events = [*PLAN[:2], *(PLAN[2:4] * trials), *PLAN[2:]]
        number = itertools.accumulate(event == "trial_start" for event, _ in events)
        plan = [
            (event, data | {"trial": n} if "trial" in data else data)
            for (event, data), n in zip(events, number, strict=True)
        ]
        lines = entries(plan)
        check_journal(
            run,
            [line.model_copy(update={"data": Counted(line.data)}) for line in lines],
            windows_of(run.spec),
            KEYID,
        )
        reads.append(Counted.reads)
    assert reads[1] < 2.1 * reads[0]


def test_the_builder_makes_the_same_bytes_from_the_same_settings(tmp_path: Path) -> None:
    first = RunBuilder().write(tmp_path / "a")
    second = RunBuilder().write(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
