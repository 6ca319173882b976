"""Measured use of the memory buses, against pairs and chains written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.bandwidth.dram import BusUse, bus_use, counts_traffic
from tokenwatt_site.bandwidth.step import NoFigure
from tokenwatt_site.evidence.power import Board, DramSpan, PowerLog, PowerSample

S = 10**9


def log(*chains: list[tuple[float, int | None]], spans: tuple[DramSpan, ...] = ()) -> PowerLog:
    """Each board: a list of (second, ppm since the sample before)."""
    return PowerLog(
        sensor="nvml",
        scope="gpu",
        period_ns=S,
        averaging_ns=S,
        boards=tuple(Board(uuid=f"GPU-{i}", name=f"Board {i}") for i in range(len(chains))),
        samples=tuple(
            PowerSample(round(at * S), i, None, None, dram_ppm=ppm)
            for i, rows in enumerate(chains)
            for at, ppm in rows
        ),
        spans=spans,
    )


def span(board: int, start: float, end: float, ppm: int) -> DramSpan:
    return DramSpan(board=board, start_ns=round(start * S), end_ns=round(end * S), ppm=ppm)


FLAT: list[tuple[float, int | None]] = [(second, 500_000) for second in range(20)]


def test_a_pair_at_the_edges_is_taken_before_the_chain() -> None:
    pairs = (span(0, 5, 15, 620_000), span(1, 5.1, 15.1, 640_000), span(0, 1, 4, 100_000))

    found = bus_use(log(FLAT, FLAT, spans=pairs), 5 * S, 15 * S)
    assert found == BusUse((620_000, 640_000), chained=False)


@pytest.mark.parametrize(
    "pairs",
    [
        (span(0, 5, 15, 620_000),),
        (span(0, 5, 15, 620_000), span(1, 5, 15.3, 640_000)),
        (span(0, 5, 15, 620_000), span(1, 4, 15, 640_000)),
        (),
    ],
)
def test_where_a_board_has_no_pair_at_the_edges_all_are_taken_from_samples(
    pairs: tuple[DramSpan, ...],
) -> None:
    found = bus_use(log(FLAT, FLAT, spans=pairs), 5 * S, 15 * S)

    assert found == BusUse((500_000, 500_000), chained=True)


def test_samples_count_by_the_time_they_cover_inside_the_window() -> None:
    rows: list[tuple[float, int | None]] = [(0, 900_000), (2, 100_000), (4, 300_000), (5, 700_000)]

    found = bus_use(log(rows), 1 * S, 9 * S // 2)
    # 1 s of the second, 2 s of the third, half a second of the last.
    assert found.ppm[0] == pytest.approx((100_000 + 2 * 300_000 + 0.5 * 700_000) / 3.5)


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 1_000_000)), min_size=2, max_size=12),
    st.data(),
)
def test_the_chain_equals_a_look_at_every_tenth_of_a_second(
    gaps: list[tuple[int, int]], data: st.DataObject
) -> None:
    at, rows, ticks = 0, [(0.0, 0)], []
    for gap, ppm in gaps:
        at += gap
        rows.append((at / 10, ppm))
        ticks += [ppm] * gap
    start = data.draw(st.integers(0, at - 1))
    end = data.draw(st.integers(start + 1, at))

    found = bus_use(log(rows), start * S // 10, end * S // 10)
    assert found.ppm[0] == pytest.approx(sum(ticks[start:end]) / (end - start), abs=1e-6)


@pytest.mark.parametrize(
    "rows",
    [
        [(second, 500_000) for second in range(9)],
        [(second, 500_000) for second in range(6, 20)],
        [(second, None if second == 8 else 500_000) for second in range(20)],
        [(second, 500_000) for second in (0, 1, 2, 3, 4, 5, 9, 14, 15, 16)],
        [],
    ],
    ids=["ends early", "begins late", "one is missing", "a long gap", "nothing"],
)
def test_b14_a_board_that_is_not_known_all_over_the_window_leaves_no_number(
    rows: list[tuple[float, int | None]],
) -> None:
    with pytest.raises(NoFigure, match="Board 1: its readings of memory traffic do not enclose"):
        bus_use(log(FLAT, rows), 5 * S, 15 * S)


def test_only_readings_of_memory_traffic_make_a_log_of_it() -> None:
    silent = log([(0, None), (1, None)])

    assert not counts_traffic(silent)
    assert counts_traffic(replace(silent, spans=(span(0, 0, 1, 5),)))
    assert counts_traffic(log(FLAT))
