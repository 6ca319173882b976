from __future__ import annotations

from tests.pages.test_report import Parsed
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import glossary


def test_every_metric_has_an_anchor_a_unit_and_a_definition() -> None:
    page = glossary.render()
    parsed = Parsed(page.html)
    for metric in METRICS.values():
        assert metric.key in parsed.ids
        assert metric.definition in parsed.text
        assert f"Unit: {metric.unit}" in parsed.text
