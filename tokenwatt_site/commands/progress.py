"""How a measurement stands, in words: for the line and the table that `measure` shows."""

from __future__ import annotations

from tokenwatt_site.measure.trial import Progress


def cells(p: Progress) -> list[tuple[str, str]]:
    """Return pairs of a name and what stands beside it."""
    # Half of the trials still to come fail, and those stop early, on average half way.
    left_s = max(0, p.scored_end_ns - p.now_ns) / 1e9
    left_s += max(0, p.trials_left - 1) * 0.75 * p.scored_end_ns / 1e9
    shown = [
        ("trial", f"{p.trial} (repeat {p.repeat})"),
        ("offered", f"{p.rate_urps / 1e6:.3f} requests/s"),
        ("in flight", str(p.in_flight)),
        ("scored", f"{p.scored_done}/{p.scored}"),
    ]
    for label, value, limit in p.objectives:
        # A limit of 3.5 ms and 3.3 of it are not "3 of 4 ms".
        decimals = 0 if limit >= 100 else 1
        now = "-" if value is None else f"{value:,.{decimals}f}"
        shown.append((label, f"{now} of {limit:,.{decimals}f} ms"))
    return [
        *shown,
        ("verdict so far", p.outcome.lower()),
        ("about", f"{left_s:.0f} s left in this repeat"),
    ]


def line(p: Progress) -> str:
    """Return all of it as one line."""
    return "  " + ", ".join(f"{name} {value}" for name, value in cells(p))
