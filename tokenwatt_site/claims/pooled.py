"""One number over all repeats, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Sequence

from tokenwatt_site import statistics
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.run import MetricClaim


def pooled(
    key: str, values: Sequence[float], label: str | None = None, *, systematic: float = 0.0
) -> MetricClaim:
    if not values or (METRICS[key].pooling == "geometric" and min(values) <= 0):
        return absent(key, "nothing above zero was measured", label)
    over = statistics.pool(values, METRICS[key].pooling, systematic)
    return MetricClaim(
        key=key,
        label=label or METRICS[key].label,
        value=over.value,
        repeats=tuple(values),
        low=over.low,
        high=over.high,
        new_launch_low=over.new_launch_low,
        new_launch_high=over.new_launch_high,
    )


def absent(key: str, reason: str, label: str | None = None) -> MetricClaim:
    return MetricClaim(
        key=key, label=label or METRICS[key].label, value=None, repeats=(), reason=reason
    )
