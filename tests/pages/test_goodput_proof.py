from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pages.test_chart import rows_of
from tests.pages.test_report import HOSTILE, Parsed
from tokenwatt_site.errors import InputError
from tokenwatt_site.pages import goodput_proof
from tokenwatt_site.pages.drawing import draw
from tokenwatt_site.pages.page import fill


def objective(percent: float, **more: Any) -> dict[str, Any]:
    told = {
        "objective": "TTFT p90",
        "allowed_percent": 10.0,
        "misses": round(20 * percent),
        "n": 2000,
        "percent": percent,
        "model_percent": 6.0,
        "band_percent": [4.0, 9.0],
        "long_run_percent": 6.5,
        "blocks": [{"misses": 30, "n": 500, "model_misses": 25}],
    }
    return told | more


def document(low: float = 5.0, high: float = 24.0, **more: Any) -> dict[str, Any]:
    told = {
        "name": "goodput-proof",
        "machine": "Linux x86_64",
        "engine": "an engine",
        "estimate": {
            "run": "a" * 64,
            "rate": 6.1,
            "new_launch": [5.8, 6.4],
            "corrected": True,
            "text": "within 1.1%",
        },
        "checks": [
            {"share": 0.93, "rate": 5.673, "run": "b" * 64, "objectives": [objective(low)]},
            {
                "share": 1.1,
                "rate": 6.71,
                "run": "c" * 64,
                "objectives": [objective(high, model_percent=20.0, band_percent=[12.0, 30.0])],
            },
        ],
    }
    return told | more


def written(folder: Path, value: Any) -> Path:
    path = folder / "goodput-proof.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_before_the_first_proof_the_page_says_so(tmp_path: Path) -> None:
    shown = goodput_proof.section(tmp_path / "goodput-proof.json", "data.json")
    assert "Not run yet" in shown.html
    assert shown.charts == ()


def test_a_rate_is_kept_or_not_and_inside_what_the_model_says_or_not(tmp_path: Path) -> None:
    html = goodput_proof.section(written(tmp_path, document()), "data.json").html
    below, above = (part.split("</li>")[0] for part in html.split("<li>")[1:])
    assert "At 0.93 × (5.673 requests/s) the SLO was kept" in below
    assert "At 1.1 × (6.710 requests/s) the SLO was not kept" in above
    assert "missed by 24.0% of 2,000, where 10% may" in above
    assert "all within what the model says" in below
    assert 'href="data.json"' in html


def test_what_lies_outside_the_model_is_named(tmp_path: Path) -> None:
    html = goodput_proof.section(written(tmp_path, document(low=9.5)), "").html
    assert "the SLO was kept: TTFT p90 missed by 9.5%" in html
    assert "outside what the model says: TTFT p90" in html


def test_a_refused_model_is_not_called_long_run(tmp_path: Path) -> None:
    told = document()
    told["estimate"] |= {"corrected": False, "text": "drift"}
    html = goodput_proof.section(written(tmp_path, told), "").html
    assert "Measured boundary (the model was refused)" in html
    assert "Long-run boundary:" not in html


def test_the_chart_has_what_missed_the_bars_of_the_model_and_the_limits(tmp_path: Path) -> None:
    (chart,) = goodput_proof.section(written(tmp_path, document()), "").charts
    rows = rows_of(chart.specs[0])
    assert {r["hi"] for r in rows if "hi" in r} == {9.0, 30.0}
    assert {5.0, 24.0, 6.0, 20.0, 10.0} <= {r["v"] for r in rows if "v" in r}
    assert "1.1 ×, TTFT p90: 24.0% missed, the model says 12.0 to 30.0%, 10% may" in (
        chart.description
    )


def test_the_chart_fills_its_hole(tmp_path: Path) -> None:
    shown = goodput_proof.section(written(tmp_path, document()), "")
    parsed = Parsed(fill(shown.html, shown.charts, draw))
    assert len([tag for tag, _ in parsed.tags if tag == "desc"]) == 2
    assert len(parsed.ids) == len(set(parsed.ids))


def test_what_the_file_says_of_its_machine_is_text(tmp_path: Path) -> None:
    html = goodput_proof.section(written(tmp_path, document(machine=HOSTILE)), "").html
    assert "<img" not in html


@pytest.mark.parametrize("value", [[], {}, document(name="another"), document(checks=[])])
def test_a_file_that_is_not_the_proofs_is_an_error(tmp_path: Path, value: Any) -> None:
    with pytest.raises(InputError):
        goodput_proof.read(written(tmp_path, value))
