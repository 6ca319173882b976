from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pages.test_chart import rows_of
from tests.pages.test_report import HOSTILE, Parsed
from tokenwatt_site.errors import InputError
from tokenwatt_site.pages import goodput_bench
from tokenwatt_site.pages.drawing import draw
from tokenwatt_site.pages.page import fill

FIGURES = {
    "corrected_abs_bias_pct_chunked": 0.2,
    "corrected_spread_pct_chunked": 1.4,
    "coverage_pct_chunked": 96.7,
    "refused_pct_chunked": 1.7,
    "measurements_chunked": 60,
    "window_abs_bias_pct_chunked": 10.3,
    "window_spread_pct_chunked": 6.1,
    "refused_pct_prefill_first": 95.0,
    "window_abs_bias_pct_prefill_first": 9.0,
    "engine_time_ratio": 41.2,
    "wrong_refused_pct": 94.3,
}
MACHINE = "x86_64, 2 processors"


def written(folder: Path, figures: Any = FIGURES, **more: Any) -> Path:
    path = folder / "goodput-bench.json"
    told = {"machine": MACHINE, "commit": "abc", "figures": figures, **more}
    path.write_text(json.dumps(told), encoding="utf-8")
    return path


def test_before_the_first_run_the_page_says_so(tmp_path: Path) -> None:
    shown = goodput_bench.section(tmp_path / "goodput-bench.json", "data.json")
    assert "Not run yet" in shown.html
    assert "data.json" not in shown.html
    assert shown.charts == ()


def test_each_family_is_a_row_and_what_is_not_told_is_no_zero(tmp_path: Path) -> None:
    shown = goodput_bench.section(written(tmp_path), "data.json")
    chunked, first = shown.html.split("<tbody>")[1].split("</tr>")[:2]
    assert [c.partition("<")[0] for c in chunked.split("<td>")[1:]] == [
        "0.2",
        "1.4",
        "10.3",
        "6.1",
        "96.7",
        "1.7",
        "60",
    ]
    assert ">prefill first</th>" in first
    assert [c.partition("<")[0] for c in first.split("<td>")[1:]] == [
        "–",
        "–",
        "9.0",
        "–",
        "–",
        "95.0",
        "–",
    ]
    assert "take the engine 41.2 times as long" in shown.html
    assert "wrong on purpose 94% were refused" in shown.html
    assert 'href="data.json"' in shown.html


def test_the_charts_have_a_mark_for_each_known_figure_and_none_for_others(tmp_path: Path) -> None:
    bias, spread = goodput_bench.section(written(tmp_path), "").charts
    assert sorted(r["v"] for r in rows_of(bias.specs[0]) if "v" in r) == [0.2, 9.0, 10.3]
    assert sorted(r["v"] for r in rows_of(spread.specs[0]) if "v" in r) == [1.4, 6.1]
    assert "chunked: 0.2% against 10.3%" in bias.description
    assert "prefill first: not told against 9.0%" in bias.description


def test_the_charts_fill_their_holes_with_title_and_description(tmp_path: Path) -> None:
    shown = goodput_bench.section(written(tmp_path), "")
    parsed = Parsed(fill(shown.html, shown.charts, draw))
    assert len([tag for tag, _ in parsed.tags if tag == "desc"]) == 4
    assert len(parsed.ids) == len(set(parsed.ids))


def test_without_figures_of_bias_the_chart_gives_way_to_a_reason(tmp_path: Path) -> None:
    shown = goodput_bench.section(written(tmp_path, {"refused_pct_wrong": 93.0}), "")
    assert shown.charts == ()
    assert "Not told by the benchmark" in shown.html


def test_what_a_file_says_of_its_machine_is_text(tmp_path: Path) -> None:
    path = written(tmp_path, machine=HOSTILE, figures={f"refused_pct_{HOSTILE}": 1.0})
    assert "<img" not in goodput_bench.section(path, "").html


@pytest.mark.parametrize(
    ("figures", "field"),
    [
        (None, "figures"),
        ([1], "figures"),
        ({"refused_pct_x": "97"}, "figures.refused_pct_x"),
        ({"refused_pct_x": True}, "figures.refused_pct_x"),
    ],
)
def test_a_file_that_is_not_the_benchmarks_is_an_error_with_its_field(
    tmp_path: Path, figures: Any, field: str
) -> None:
    with pytest.raises(InputError) as raised:
        goodput_bench.read(written(tmp_path, figures))
    (problem,) = raised.value.problems
    assert problem.field == field
    assert problem.remedy is not None
