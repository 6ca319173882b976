"""How far a result is from what the boards can do: shares of bandwidth, compute, power, DRAM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import chart, outcomes, text
from tokenwatt_site.pages.drawing import Chart
from tokenwatt_site.pages.figure import Figure
from tokenwatt_site.run import Claims, MetricClaim

AXIS_CAPTION = "Axis runs to 100% of rated bandwidth."

_HOW = {"mbu": "modelled", "mbu_measured": "measured by the boards"}


def how(claim: MetricClaim) -> str:
    """How a share of the bandwidth was come by, such as "modelled, upper" for an MoE's."""
    particular = claim.label.removeprefix(METRICS[claim.key].label).strip(" ,")
    known = _HOW[claim.key]
    if not particular or particular.startswith(known):
        return particular or known
    return f"{known}, {particular}"


@dataclass(frozen=True, slots=True)
class Limit:
    """One line of the distance to the limit. `bound` says what passing 100% would mean."""

    key: str
    name: str
    of: str
    bound: str


def lines(claims: Claims) -> tuple[Limit, ...]:
    """Return what is compared with what, in the order of the page."""
    hard = "hard bound: more than bus × clock, or 105% of rated, is withheld or INVALID"
    return (
        *(
            Limit(key, f"Bandwidth, {how(outcomes.find(claims, key))}", _RATED, hard)
            for key in ("mbu", "mbu_measured")
        ),
        Limit(
            "compute_share",
            "Compute",
            "of the dense bf16 peak",
            "hard bound: 100%, of weights half or a quarter as wide 200% or 400%; more is INVALID",
        ),
        Limit(
            "power_limit_share",
            "Power",
            "of the enforced limit",
            "enforced by the driver: a warning above 105%, INVALID above 120%",
        ),
        Limit(
            "dram_energy_share",
            "DRAM reads alone (a reference)",
            "of the energy",
            "a reference, no proven bound: 3.9 pJ/bit is a published figure of HBM2",
        ),
    )


_REFERENCE = "dram_energy_share"
_BOUNDS = (
    "Bus × clock and the dense peak are hard bounds (the peak of weights narrower than bf16 is"
    " higher); the power limit is what the driver enforces; DRAM reads at 3.9 pJ/bit are a"
    " reference and no bound."
)
_RATED = "of rated"


def distance(configuration: Configuration) -> Figure:
    """The figure that is on every report: what is nearest, what is known, why the rest is not."""
    claims = configuration.claims
    all_lines = lines(claims)
    found = [(line, outcomes.find(claims, line.key)) for line in all_lines]
    known = [(line, claim) for line, claim in found if claim.value is not None]
    keys = [line.key for line in all_lines]
    rows = tuple(
        (
            line.name,
            _why(claims, claim) if claim.value is None else f"{_share(claim)} {line.of}",
            "" if claim.value is None else text.sureness(claim),
            line.bound,
        )
        for line, claim in found
    )
    return Figure(
        id="chart-limits",
        heading=nearest(configuration),
        lead="What the boards did in the windows at the highest passing rates, of what they can."
        " The dashed line is 100%."
        if known
        else "",
        chart=_drawn("chart-limits", "Distance to the limits", known) if known else None,
        missing=None if known else f"{text.NOT_MEASURED}: no share of any limit is known",
        note=" ".join(
            part for part in (_BOUNDS, _rate(claims), outcomes.noted(claims, *keys)) if part
        ),
        table=(("Limit", "Share", "How sure", "Kind of limit"), rows),
        absent=tuple(_frames(claims, found)),
    )


def _frames(claims: Claims, found: Sequence[tuple[Limit, MetricClaim]]) -> Iterator[str]:
    """Yield why shares are not known, once for all that lack the same."""
    lacking: dict[str, list[str]] = {}
    for line, claim in found:
        if claim.value is None:
            lacking.setdefault(_why(claims, claim), []).append(line.name)
    for why, names in lacking.items():
        yield f"{'; '.join(names)}: {why}"


def _why(claims: Claims, claim: MetricClaim) -> str:
    # Shares are worked out as often as they are measured; the reason itself says which.
    return outcomes.why(claims, claim).removeprefix(f"{text.NOT_MEASURED}: ")


def nearest(configuration: Configuration) -> str:
    """Name the limit that the result is nearest to, as far as limits are known."""
    shares = [
        (claim.value, line, claim)
        for line in lines(configuration.claims)
        if line.key != _REFERENCE
        and (claim := outcomes.find(configuration.claims, line.key)).value is not None
    ]
    if not shares:
        return "Distance to the limits"
    _, line, claim = max(shares, key=lambda item: item[0])
    others = "" if len(shares) > 1 else ", the only one that is known"
    name = line.name[0].lower() + line.name[1:]
    return f"Nearest limit: {name}, at {_share(claim)} {line.of}{others}"


def _share(claim: MetricClaim) -> str:
    return f"{text.amount(claim.value or 0.0, METRICS[claim.key])}%"


def _rate(claims: Claims) -> str:
    claim = outcomes.find(claims, "bandwidth_limit_rate")
    if claim.value is None:
        return ""
    rate = text.amount(claim.value, METRICS[claim.key])
    return f"At the rated bandwidth these steps would deliver {rate} output tok/s."


def _drawn(chart_id: str, title: str, known: list[tuple[Limit, MetricClaim]]) -> Chart:
    rows = [(line.name, claim.value or 0.0, f"{_share(claim)} {line.of}") for line, claim in known]
    return chart.shares(chart_id, title, rows, "% of the limit")


def traffic(configuration: Configuration) -> Figure:
    """MBU on an axis to 100% of rated: modelled, measured, and by the engine's own estimate."""
    claims, metric = configuration.claims, METRICS["mbu"]
    main, boards, engine = (outcomes.find(claims, key) for key in _SOURCES)
    named = ((main, how(main)), (boards, how(boards)), (engine, "estimated by the engine"))
    rows = [
        (f"{name[0].upper()}{name[1:]}", claim.value, f"{_share(claim)} of rated")
        for claim, name in named
        if claim.value is not None
    ]
    missing = outcomes.why(claims, main)
    over = any(value > 100 / 1.04 for _, value, _ in rows)
    caption = "The dashed line is 100% of rated bandwidth." if over else AXIS_CAPTION
    said = outcomes.noted(claims, "mbu", "mbu_measured", "mbu_bus", "mbu_measured_bus")
    return Figure(
        id="bar-mbu",
        heading=metric.label,
        lead="",
        chart=chart.shares("bar-mbu", metric.label, rows, metric.unit) if rows else None,
        missing=None if rows else missing,
        note=" ".join(p for p in (caption, *_of_the_bus(claims), said) if p) if rows else "",
        table=None,
        absent=(f"Modelled: {_why(claims, main)}",) if rows and main.value is None else (),
    )


_SOURCES = ("mbu", "mbu_measured", "mbu_engine")


def _of_the_bus(claims: Claims) -> Iterator[str]:
    """Yield what the same traffic is of bus × clock, and what the two sides leave between them."""
    found = {
        word: outcomes.find(claims, key)
        for word, key in (("modelled", "mbu_bus"), ("measured", "mbu_measured_bus"))
    }
    shares = [f"{word} {_share(c)}" for word, c in found.items() if c.value is not None]
    if shares:
        bus = outcomes.find(claims, "bus_bandwidth").value
        words = "" if bus is None else f" ({bus / 1e3:.3f} TB/s per board)"
        yield f"Of bus × clock{words}: {text.joined(shares)}."
    ours, boards = claims.metric("mbu"), outcomes.find(claims, "mbu_measured")
    if ours.value is not None and boards.value is not None:
        points = boards.value - ours.value
        yield (
            f"Measured minus modelled is {points:+.0f} points: activations, writes, prefill and"
            " traffic between boards, or a wrong model."
        )
