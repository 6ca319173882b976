from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.pages.conftest import number, told, with_metrics
from tests.support.runs import RunBuilder, a_key, spec_in_mode
from tokenwatt_site.configuration import Configuration, group
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import history, report, text
from tokenwatt_site.pages.page import NO_LINKS
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import verify_run

NEWEST_FIRST = "Newest first; the first is the headline."


def several(folder: Path, *builders: RunBuilder) -> Configuration:
    paths = [b.write(folder / str(number)) for number, b in enumerate(builders)]
    return group([verify_run(p, root=folder, keyring=Keyring()) for p in paths])[0]


def values(configuration: Configuration) -> list[str]:
    found = (r.claims.metric("goodput").value for r in configuration.runs[1:])
    return [text.amount(value, METRICS["goodput"]) for value in found if value is not None]


def test_one_run_has_no_others(demo: Configuration) -> None:
    assert history.others(demo) == ""
    assert history.order(demo) == NEWEST_FIRST


def test_a10_a_row_has_the_minute_and_the_scored_requests(demo: Configuration) -> None:
    row = history.rows(demo, NO_LINKS)[0]
    assert (row.started, row.scored) == ("2026-01-01 00:00", 20)


def test_a10_earlier_runs_are_told_near_the_top(tmp_path: Path) -> None:
    found = several(
        tmp_path, *(RunBuilder(day=d, spread=(s,)) for d, s in enumerate((1.0, 0.8, 1.4), 1))
    )
    second, first = values(found)
    told = f"2 earlier runs gave {second} and {first} output tok/s, measured"
    assert history.others(found) == told
    html = report.render(found, NO_LINKS).html
    assert html.index(told) < html.index('id="key-figures"')
    assert history.order(found) == NEWEST_FIRST
    assert [row.started[:10] for row in history.rows(found, NO_LINKS)] == [
        "2026-01-03",
        "2026-01-02",
        "2026-01-01",
    ]


def test_a_run_without_goodput_is_counted_apart(tmp_path: Path) -> None:
    nothing = RunBuilder(day=1, rates_urps=(500_000,))
    alone = several(tmp_path / "a", nothing, RunBuilder(day=2))
    assert history.others(alone) == "1 earlier run gave no goodput"
    both = several(tmp_path / "b", nothing, RunBuilder(day=2), RunBuilder(day=3))
    told = f"1 earlier run gave {values(both)[0]} output tok/s, measured; 1 gave no goodput"
    assert history.others(both) == told


def test_a_run_that_came_later_is_not_called_earlier(tmp_path: Path) -> None:
    found = several(tmp_path, RunBuilder(day=1), RunBuilder(day=2, key=a_key(2)))
    assert history.others(found).startswith("1 other run gave ")
    assert history.order(found) == (
        "The first is the headline; then full before quick before demo, newest first."
    )


def test_of_many_runs_the_range_is_told(tmp_path: Path) -> None:
    builders = [RunBuilder(day=d, spread=(1 + d / 10,)) for d in range(1, 7)]
    found = several(tmp_path, *builders)
    known = sorted(values(found), key=float)
    assert history.others(found) == (
        f"5 earlier runs gave {known[0]} to {known[-1]} output tok/s, measured"
    )


@pytest.mark.parametrize("mode", ["quick", "full"])
def test_the_scored_requests_are_those_of_a_trial(tmp_path: Path, mode: str) -> None:
    found = several(tmp_path, RunBuilder(spec=spec_in_mode(mode)))
    assert history.rows(found, NO_LINKS)[0].scored == 600


def test_the_long_run_stands_beside_what_was_measured_or_is_said_to_be_missing(
    full: Configuration,
) -> None:
    assert history.rows(full, NO_LINKS)[0].long_run is None
    assert '<td class="tw-none">not corrected</td>' in report.render(full, NO_LINKS).html
    metrics = with_metrics(full.claims, number("long_run_goodput", 1954.0))
    run = told(full, metrics=metrics).headline
    row = history.rows(replace(full, headline=run, runs=(run,)), NO_LINKS)[0]
    assert row.long_run == "1,954"
    assert row.goodput is not None
