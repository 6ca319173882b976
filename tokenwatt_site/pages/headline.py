"""Which goodput is the headline: that of the long run where there is one, else the measured one."""

from __future__ import annotations

from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import text
from tokenwatt_site.run import Claims, MetricClaim

LONG_RUN = "long_run_goodput"
UNCORRECTED = "measured on short windows, not corrected to the long run"


def goodput(claims: Claims) -> MetricClaim:
    """Return the goodput that stands for the configuration; its key tells which it is."""
    corrected = claims.metric(LONG_RUN)
    return claims.metric("goodput") if corrected.value is None else corrected


def rate(claims: Claims) -> MetricClaim:
    """Return the boundary that belongs to `goodput`."""
    is_corrected = claims.metric(LONG_RUN).value is not None
    return claims.metric("long_run_rate" if is_corrected else "boundary_rate")


def difference(claims: Claims) -> str:
    """Say in a sentence how long run and measured boundary differ, or why no long run is told."""
    corrected, measured = claims.metric("long_run_rate"), claims.metric("boundary_rate")
    if measured.value is None:
        return ""
    if corrected.value is None:
        return (
            f"The boundary is {UNCORRECTED}: {claims.long_run.text}. Misses cluster, so a short"
            " window can pass at rates that the long run does not keep."
        )
    percent = 100 * (measured.value / corrected.value - 1)
    metric = METRICS["long_run_rate"]
    told = f"{text.amount(corrected.value, metric)} {metric.unit}"
    seen = text.amount(measured.value, METRICS["boundary_rate"])
    if abs(percent) < 0.05:
        return f"In the long run it keeps {told}, as on the measured windows."
    way = "more" if percent > 0 else "less"
    return (
        f"In the long run it keeps {told}; on the measured windows it kept {seen},"
        f" {abs(percent):.1f}% {way}."
    )
