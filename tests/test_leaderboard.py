"""Tests of leaderboard."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import RunBuilder, ToyEngine, small_spec
from tokenwatt_site.configuration import Configuration, group
from tokenwatt_site.eligibility import Exclusion
from tokenwatt_site.leaderboard import COLUMNS, Row, rank
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.run import MetricClaim
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import verify_run

Interval = tuple[float, float] | None


def stub(
    name: str,
    value: float | None,
    interval: Interval = None,
    key: str = "long_run_goodput",
    excluded: tuple[Exclusion, ...] = (),
    **setup_changes: Any,
) -> Configuration:
    """Return what the leaderboard reads of a configuration, with any goodput of this key."""
    low, high = interval or (None, None)

    def metric(asked: str) -> MetricClaim:
        if asked != key:
            return MetricClaim(key=asked, label=asked, value=None, repeats=(), reason="not there")
        repeats = () if value is None else (value,) * 3
        return MetricClaim(key=key, label=key, value=value, repeats=repeats, low=low, high=high)

    return cast(
        "Configuration",
        SimpleNamespace(
            id=f"{name.lower()}-id",
            title=name,
            simulated=False,
            exclusions=excluded,
            setup=small_spec(**setup_changes).setup,
            claims=SimpleNamespace(metric=metric),
        ),
    )


def rows(configurations: list[Configuration]) -> dict[str, Row]:
    (section,) = rank(configurations).sections
    return {row.title: row for row in section.rows}


def ranges(intervals: list[Interval]) -> list[tuple[int, int]]:
    """Rank configurations with these intervals."""
    found = rows([stub(f"C{i}", 1.0, interval) for i, interval in enumerate(intervals)])
    ranks = [found[f"C{i}"].rank for i in range(len(intervals))]
    return [(r.best, r.worst) for r in ranks if r is not None]


def test_nothing_makes_an_empty_leaderboard() -> None:
    assert rank([]).sections == ()


def test_rank_ranges_are_those_of_the_design() -> None:
    intervals: list[Interval] = [(98, 102), (95, 99), (90, 94), (93, 96), (80, 84)]
    assert ranges(intervals) == [(1, 2), (1, 3), (3, 4), (2, 4), (5, 5)]


INTERVALS = st.lists(
    st.none()
    | st.tuples(st.integers(0, 12), st.integers(0, 5)).map(
        lambda pair: (float(pair[0]), float(pair[0] + pair[1]))
    ),
    min_size=1,
    max_size=6,
)


@given(INTERVALS)
def test_rank_ranges_agree_with_counting_pair_by_pair(intervals: list[Interval]) -> None:
    expected = []
    for mine in intervals:
        better = worse = 0
        for other in intervals:
            if mine is not None and other is not None:
                better += other[0] > mine[1]
                worse += other[1] < mine[0]
        expected.append((1 + better, len(intervals) - worse))
    assert ranges(intervals) == expected


def test_a_missing_interval_cannot_be_separated() -> None:
    assert ranges([(98, 102), None, (1, 2)]) == [(1, 2), (1, 3), (2, 3)]


def test_an_equal_best_rank_is_a_tie_ordered_by_name() -> None:
    found = rows(
        [stub("zeta", 100, (98, 102)), stub("Alpha", 97, (95, 99)), stub("mid", 50, (49, 51))]
    )
    assert list(found) == ["Alpha", "zeta", "mid"]
    ranks = [row.rank for row in found.values()]
    assert [r.tied for r in ranks if r is not None] == [True, True, False]


def test_every_row_is_listed_ranked_ones_first_and_those_without_goodput_last() -> None:
    excluded = (Exclusion("mode", "demo mode"),)
    found = rows(
        [
            stub("none b", None, excluded=excluded),
            stub("slow", 10, excluded=excluded),
            stub("ranked 2", 50, (49, 51)),
            stub("none a", None, excluded=excluded),
            stub("fast", 1000, excluded=excluded),
            stub("ranked 1", 99, (98, 100)),
        ]
    )
    assert list(found) == ["ranked 1", "ranked 2", "fast", "slow", "none a", "none b"]
    assert [row.rank is None for row in found.values()] == [False, False, True, True, True, True]
    assert [bool(row.excluded) for row in found.values()] == [False, False, True, True, True, True]


def test_unranked_rows_that_were_only_measured_stand_below_corrected_ones() -> None:
    quick = (Exclusion("mode", "quick mode"),)
    found = rows(
        [
            stub("none", None, excluded=quick),
            stub("measured low", 500, key="goodput", excluded=quick),
            stub("measured", 9000, key="goodput", excluded=quick),
            stub("corrected", 10, excluded=quick),
        ]
    )
    assert list(found) == ["corrected", "measured", "measured low", "none"]


def test_a_row_that_may_not_rank_moves_no_rank() -> None:
    excluded = (Exclusion("key", "unknown"),)
    found = rows([stub("best", 1000, (999, 1001), excluded=excluded), stub("other", 10, (9, 11))])
    ranks = [row.rank for row in found.values()]
    assert ranks[0] is not None
    assert (ranks[0].best, ranks[0].worst, ranks[1]) == (1, 1, None)


@pytest.mark.parametrize(
    "changes",
    [
        {
            "setup__workload": {"name": "other", "version": 1, "hash": "2" * 64},
        },
        {"setup__workload__hash": "3" * 64},
        {"setup__slo": [{"metric": "ttft", "quantile": 0.8, "limit_ms": 1500.0}]},
        {"setup__slo": [{"metric": "ttft", "quantile": 0.9, "limit_ms": 1400.0}]},
        {"setup__power": {"sensor": "nvml", "scope": "gpu", "rate_hz": 1.0}},
        {"setup__accelerator__model": "NVIDIA H200"},
    ],
    ids=["workload", "hash", "quantile", "limit", "power scope", "CPU class"],
)
def test_what_answers_another_question_stands_in_another_section(changes: dict[str, Any]) -> None:
    sections = rank([stub("a", 2, (1, 3)), stub("b", 8, (7, 9), **changes)]).sections
    assert len(sections) == 2
    assert [section.ranked for section in sections] == [1, 1]
    for section in sections:
        assert section.rows[0].rank is not None
        assert section.rows[0].rank.worst == 1


def test_a_section_in_which_no_row_has_a_goodput_comes_after_one_in_which_one_has() -> None:
    why = (Exclusion("mode", "not full mode"),)
    told = stub("z", 3, (2, 4), key="goodput", excluded=why)
    others = [
        stub(name, None, excluded=why, setup__workload__name="a-mix-v1") for name in ("a", "b")
    ]
    first, second = rank([*others, told]).sections
    assert [row.title for row in first.rows] == ["z"]
    assert len(second.rows) == 2


def test_what_differs_in_hardware_or_engine_shares_a_section() -> None:
    sections = rank([stub("a", 2), stub("b", 8, setup__engine__name="other")]).sections
    assert len(sections) == 1
    assert sections[0].ranked == 2


def test_the_columns_are_metrics_of_the_registry() -> None:
    assert set(COLUMNS) <= METRICS.keys()
    assert COLUMNS[:2] == ("long_run_goodput", "goodput")


def test_measured_goodput_is_in_nobody_s_rank(tmp_path: Path) -> None:
    found = []
    for name, corrected in (("corrected", True), ("measured", False)):
        folder = tmp_path / name
        builder = RunBuilder(
            small_spec(protocol__repeats=3, setup__driver=name), simulated=False, long_run=corrected
        )
        run = verify_run(builder.write(folder), root=folder, keyring=Keyring())
        found += group([run])
    (section,) = rank(found).sections
    cells = {row.configuration: row.cells[0] for row in section.rows}
    values = [cells[c.id].value for c in found]
    assert values[0] is not None
    assert values[1] is None
    assert cells[found[1].id].reason == "no engine model was fitted"
    assert all(c.claims.metric("goodput").value for c in found)


def test_a_real_configuration_has_cells_with_intervals_and_reasons(tmp_path: Path) -> None:
    builder = RunBuilder(spec=small_spec(protocol__repeats=3), engine=ToyEngine(slots=3))
    run = verify_run(builder.write(tmp_path), root=tmp_path, keyring=Keyring())
    (section,) = rank(group([run])).sections
    (row,) = section.rows
    cells = {cell.key: cell for cell in row.cells}
    assert tuple(cells) == COLUMNS
    goodput = cells["goodput"]
    assert goodput.low is not None
    assert goodput.value is not None
    assert goodput.high is not None
    assert goodput.low <= goodput.value <= goodput.high
    assert (goodput.n, goodput.reason) == (3, None)
    assert cells["ttft"].label == "TTFT p90"
    assert (cells["mbu"].value, cells["mbu"].n) == (None, 0)
    assert cells["mbu"].reason
    assert (row.simulated, row.rank) == (True, None)
    assert section.slo == ("TTFT p90 at most 1500 ms", "TPOT p90 at most 150 ms")
    assert (section.workload, section.power_scope, section.cpu) == ("demo-mix-v1", "none", True)
