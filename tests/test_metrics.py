from __future__ import annotations

import pytest

from tokenwatt_site.metrics import METRICS, Metric


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_every_metric_says_what_it_is(metric: Metric) -> None:
    assert METRICS[metric.key] is metric
    assert metric.key.replace("_", "a").isalnum()
    assert metric.key == metric.key.lower()
    assert metric.label
    assert metric.unit
    assert metric.definition.endswith(".")
    assert 0 <= metric.decimals <= 3


def test_no_two_metrics_share_a_label() -> None:
    assert len({metric.label for metric in METRICS.values()}) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_shares_are_pooled_by_their_arithmetic_mean(metric: Metric) -> None:
    if metric.unit.startswith("%"):
        assert metric.pooling == "arithmetic"


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("mbu", "Decode bandwidth utilization (MBU)"),
        ("board_power", "GPU board power"),
        ("goodput", "SLO goodput"),
        ("tokens_per_joule", "Tokens per joule"),
    ],
)
def test_the_published_example_finds_its_words_here(key: str, label: str) -> None:
    assert METRICS[key].label == label
