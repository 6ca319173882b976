"""What the benchmark of the site counts, and that what it builds is whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.benchmarks import _many, site
from tests.support.site import build_site, make_project

FIXED_S, COLD_S, MADE_S, WARM_S, VERIFY_S = 2.0, 0.25, 0.05, 0.005, 0.08


class Machine:
    """Takes the same time for each configuration, whatever it is asked to do."""

    def __init__(self) -> None:
        self.size = self.verified = self.built = 0

    def write_runs(self, folder: Path, start: int, stop: int) -> None:
        assert start == self.size
        self.size = stop

    def child(self, action: str, folder: Path) -> dict[str, float]:
        if action == "read":
            took_s = VERIFY_S * (self.size - self.verified)
            self.verified = self.size
        else:
            each_s = MADE_S if self.built else COLD_S
            took_s = FIXED_S + WARM_S * self.built + each_s * (self.size - self.built)
            self.built = self.size
        return {"cpu_s": took_s, "peak_mb": 100 + self.size / 100}


def test_figures_are_of_a_configuration_and_without_what_a_site_costs_anyway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine()
    monkeypatch.setattr(site, "write_runs", machine.write_runs)
    monkeypatch.setattr(site, "_child", machine.child)
    monkeypatch.setattr(site, "_pages", lambda _: {"report_kb": 1.0})
    told = site.figures(tmp_path, (100, 1_000, 10_000))
    assert told["configurations"] == 10_000
    assert told["chart_sets"] == 100
    assert told["ms_per_report_warm"] == pytest.approx(1e3 * WARM_S)
    assert told["ratio_10000_to_1000"] == pytest.approx(1)
    assert told["ms_per_report_cold"] == pytest.approx(1e3 * (COLD_S + FIXED_S / 100))
    assert told["ms_per_report_made@1000"] == pytest.approx(1e3 * MADE_S)
    assert told["ms_per_report_made@10000"] == pytest.approx(1e3 * MADE_S)
    assert told["verify_ms_per_run@10000"] == pytest.approx(1e3 * VERIFY_S)
    assert told["build_rss_mb"] == 200
    assert told["site_without_runs_s"] == FIXED_S


def test_every_made_up_configuration_has_its_pages_and_says_that_it_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_many, "SETS", 1)
    _many.write_runs(make_project(tmp_path), 0, 2)
    built = build_site(tmp_path)
    for pattern in ("reports/*.html", "runs/*/index.html", "api/v1/results/*.json", "badges/*.svg"):
        assert len(list(built.glob(pattern))) == 2, pattern
    charts = []
    for page in built.glob("reports/*.html"):
        html = page.read_text(encoding="utf-8")
        assert "The engine was a simulator" in html
        assert len(html.encode()) < 160_000
        charts.append(re.findall(r"<svg[^>]*tw-svg.*?</svg>", html))
    assert charts[0] == charts[1] != []
