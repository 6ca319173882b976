"""A badge of a configuration: one self-contained SVG with workload, date and value."""

from __future__ import annotations

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import headline, statements, text
from tokenwatt_site.pages.page import render_template

FOLDER = "badges"

_SIGN = 6.4
"""Width of a sign in 11 px, more than a mean one; `textLength` makes the words fit exactly."""


def render(configuration: Configuration) -> str:
    """Return the badge of the run that leads; grey where something was stated against it."""
    head, claims = configuration.headline, configuration.claims
    left = head.run.spec.setup.workload.name
    against = statements.marks(head)
    claim = headline.goodput(claims)
    words = [*against, *(["simulated"] if head.run.simulated else [])]
    if claim.value is None:
        words.append("no goodput")
    else:
        metric = METRICS[claim.key]
        words.append(f"{text.amount(claim.value, metric)} {metric.unit}")
        words.append(f"n = {len(claim.repeats)}")
        if claim.key != headline.LONG_RUN:
            words.append(text.NOT_CORRECTED)
    words += [f"{head.run.spec.protocol.mode} mode", head.run.conditions.started[:10]]
    right = " · ".join(words)
    plain = not against and not head.run.simulated and claim.value is not None
    return render_template(
        "badge.svg.j2",
        left=left,
        right=right,
        left_width=_width(left),
        right_width=_width(right),
        ground="#0b5fa5" if plain else "#5f6670",
    )


def _width(words: str) -> int:
    return round(_SIGN * len(words)) + 12
