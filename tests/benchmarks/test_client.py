from __future__ import annotations

import json
import math
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks import _client_page as page
from tests.benchmarks import client as bench
from tests.benchmarks.client import Cost, Told, compare, highest_held, p99, plan
from tokenwatt_site.measure.client import PlannedRequest

MS = 1_000_000
COST = Cost(0.0, 0.0, 0.0, 50.0)


def test_a_plan_is_the_same_again_and_has_the_rate_that_was_asked() -> None:
    planned, scored = plan(20_000)
    assert (planned, scored) == plan(20_000)
    full = [planned[row] for row in scored]
    span_ns = full[-1].due_ns - full[0].due_ns
    assert all(request.output_asked == bench.TOKENS for request in full)
    assert len(full) * bench.TOKENS / (span_ns / 1e9) == pytest.approx(20_000, rel=0.1)


def test_the_load_of_a_plan_is_full_while_it_is_scored_and_ends_at_once() -> None:
    planned, scored = plan(20_000)
    assert planned[scored[0]].due_ns >= bench.FULL_NS
    ends = [r.due_ns + bench.FIRST_NS + (r.output_asked - 1) * bench.INTERVAL_NS for r in planned]
    assert max(ends) - max(ends[row] for row in scored) < bench.FULL_NS


def test_a_plan_has_as_many_events_as_are_asked() -> None:
    planned, _ = plan(80_000, 2_000_000)
    assert sum(r.output_asked for r in planned) == pytest.approx(2_000_000, rel=0.02)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=300))
def test_the_99th_percentile_is_the_least_value_that_99_of_100_do_not_exceed(
    values: list[float],
) -> None:
    enough = [v for v in values if 100 * sum(w <= v for w in values) >= 99 * len(values)]
    assert p99(values) == min(enough)


@given(st.integers(0, len(bench.RATES)), st.integers(0, len(bench.RATES) - 1))
def test_the_highest_rate_held_is_found_from_wherever_the_search_starts(
    held: int, start: int
) -> None:
    tried: list[int] = []

    def holds(rate: int) -> bool:
        tried.append(rate)
        return bench.RATES.index(rate) < held

    best, lowest = highest_held(holds, bench.RATES[start])
    assert best == (bench.RATES[held - 1] if held else 0)
    assert lowest == min(tried) or best > 0
    assert len(set(tried)) == len(tried)


def told(planned: list[PlannedRequest], late_ms: float = 0, rows: int | None = None) -> Told:
    tokens = {r.row: (r.due_ns + 200 * MS, r.due_ns + 500 * MS) for r in planned[:rows]}
    sent = {r.row: r.due_ns + round(late_ms * MS) for r in planned[:rows]}
    return Told(0, tokens, sent, COST, Cost(9.0, 2.0, 0.0, 60.0))


def truth(planned: list[PlannedRequest], late_ms: float = 0, off_ms: float = 0) -> dict[int, list]:
    off = round(off_ms * MS)
    return {
        r.row: [r.due_ns + round(late_ms * MS), r.due_ns + 200 * MS - off, r.due_ns + 500 * MS]
        for r in planned
    }


def trial(**changes: float) -> bench.Trial:
    planned = [PlannedRequest(row, row * 10 * MS, b"", 3, 100) for row in range(200)]
    late, rows = changes.get("late_ms", 0), changes.get("rows")
    return compare(
        (planned, range(200)),
        told(planned, late, None if rows is None else int(rows)),
        truth(planned, late, changes.get("off_ms", 0)),
        changes.get("server_lag_us", 0),
        0.0,
    )


def test_a_client_that_tells_the_truth_in_time_holds_the_rate() -> None:
    found = trial()
    assert found.held
    assert (found.first_error_p99_us, found.last_error_p99_us) == (0, 0)
    assert found.us_per_event == 1e6 * 2.0 / (200 * 100)
    assert found.rss_mb == 60.0


@pytest.mark.parametrize(
    "changes", [{"late_ms": 5.1}, {"off_ms": 5.1}, {"rows": 190}, {"server_lag_us": 5_001}]
)
def test_a_rate_is_not_held_with(changes: dict[str, float]) -> None:
    assert not trial(**changes).held


def test_a_request_that_did_not_end_well_has_an_error_without_end() -> None:
    found = trial(rows=190)
    assert found.first_error_p99_us == math.inf
    assert found.dispatch_lag_p99_us == math.inf


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
def test_what_our_client_tells_is_never_before_what_the_server_did() -> None:
    planned = []
    for row in range(20):
        request = {"model": "simulated", "max_tokens": 5, "seed": row, "stream": True}
        planned.append(PlannedRequest(row, row * MS, json.dumps(request).encode(), 3, 5))
    with subprocess.Popen(
        [str(bench.build_emitter()), "2000", "1000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        seen = bench.ours(planned, int(server.stdout.readline()))
        lines = server.communicate()[0].splitlines()[:-1]
    truths = {row: times for row, *times in (map(int, line.split()) for line in lines)}
    assert truths.keys() == seen.tokens_ns.keys() == set(range(20))
    for row, (received_ns, first_ns, last_ns) in truths.items():
        assert seen.sent_ns[row] <= received_ns
        # The two clocks are aligned to within some microseconds.
        assert seen.tokens_ns[row][0] >= first_ns - 20_000
        assert seen.tokens_ns[row][1] >= last_ns - 20_000


FIGURES = {
    "events_per_s": 100_000,
    "aiohttp_events_per_s": 20_000,
    "httpx_events_per_s": "< 250",
    "ratio_to_aiohttp": 2.9,
    "ratio_to_httpx": "> 400.0",
    "kernel_stamp_error_p99_us": 4.2,
    "user_stamp_error_p99_us": 310.0,
    "dispatch_lag_p99_us": 900.0,
    "most_events": 10_000_000,
    "most_events_rss_mb": 400.0,
    "httpx@250 held": 0.0,
    "httpx@250 us_per_event": 200.0,
    "httpx@250 rss_mb": 40.0,
    "httpx@250 waited_share": 0.0,
    "ours@80000 held": 1.0,
    "ours@80000 first_error_p99_us": 4.2,
    "ours@80000 us_per_event": 12.34,
    "ours@80000 rss_mb": 230.0,
    "ours@80000 waited_share": 0.0071,
}


def test_the_page_says_less_than_and_more_than_where_nothing_was_held() -> None:
    text = page.tables({"figures": FIGURES, "machine": "m", "commit": "c"})
    assert "| httpx2 | < 250 | > 400.0 |" in text
    assert "| aiohttp | 20,000 | 2.9 |" in text


def test_the_page_has_a_row_for_each_trial_and_says_what_had_no_end() -> None:
    text = page.tables({"figures": FIGURES, "machine": "m", "commit": "c"})
    assert "| tokenwatt | 80,000 | yes | 4 | no end | no end | 12.3 | 230 | 0.71 |" in text
    assert "| httpx2 | 250 | no | no end |" in text


def test_the_page_says_of_each_goal_whether_it_was_reached() -> None:
    rows = page.goals(FIGURES).splitlines()[2:]
    assert [row.rpartition("| ")[2] for row in rows] == [
        *("yes |", "no |", "yes |", "yes |", "no |", "yes |", "yes |")
    ]
    assert "| at least 20 | > 400.0 | yes |" in page.goals(FIGURES)


def test_a_client_that_held_nothing_is_below_what_was_tried() -> None:
    assert bench.held_figure(0, 250) == "< 250"
    assert bench.held_figure(2_000, 1_000) == 2_000
    assert bench.ratio_figure(100_000, 0, 250) == "> 400.0"
    assert bench.ratio_figure(100_000, 2_000, 1_000) == 50
