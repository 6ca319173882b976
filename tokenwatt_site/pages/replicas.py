"""The table of replicas that were asked apart: the share of each, its version, how it did."""

from __future__ import annotations

from tokenwatt_site.goodput import fewest
from tokenwatt_site.pages import text
from tokenwatt_site.pages.figure import Table
from tokenwatt_site.run import Claims, ReplicaClaim

_FEWEST = fewest(0.99)


def table(claims: Claims) -> Table | None:
    """Return a row per replica; None where one address was asked."""
    if claims.replicas is None:
        return None
    head = (
        "Replica",
        "Share of scored requests, %",
        "Scored requests",
        "Failed",
        "TTFT p99, ms",
        "TPOT p99, ms",
        "Version it told",
    )
    return head, tuple(map(_row, claims.replicas))


def _row(replica: ReplicaClaim) -> tuple[str, ...]:
    return (
        str(replica.number),
        "–" if replica.percent is None else text.number(replica.percent, 1),
        f"{replica.requests:,}",
        f"{replica.failed:,}",
        _p99(replica, replica.ttft_p99_ms, 0),
        _p99(replica, replica.tpot_p99_ms, 1),
        replica.version or "not told",
    )


def _p99(replica: ReplicaClaim, value: float | None, decimals: int) -> str:
    if value is not None:
        return text.rounded(value, decimals)
    if replica.requests < _FEWEST:
        return f"needs {_FEWEST} requests"
    return "undefined, or beyond what was seen to end"
