"""The numbers of a report: the strip of key figures and the table of all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import figures, text
from tokenwatt_site.run import Claims, MetricClaim

CARDS_NOTE = "Cards for equal goodput = 64 × reference goodput ÷ configuration goodput, rounded up."

_GROUPS = {
    "goodput": "Throughput",
    "boundary_rate": "Throughput",
    "highest_pass_rate": "Throughput",
    "input_throughput": "Throughput",
    "ttft": "Latency at the highest passing rate",
    "tpot": "Latency at the highest passing rate",
    "e2e": "Latency at the highest passing rate",
    "ttft_from_send": "Latency at the highest passing rate",
    "attainment": "Latency at the highest passing rate",
    "complete": "Latency at the highest passing rate",
    "tokens_per_joule": "Energy and power",
    "joules_per_token": "Energy and power",
    "board_power": "Energy and power",
    "mbu": "Memory bandwidth",
    "accuracy": "Accuracy",
}


@dataclass(frozen=True, slots=True)
class NumberRow:
    """One line of All numbers; `missing`, where set, stands in place of value and unit."""

    group: str
    anchor: str | None
    label: str
    value: str
    unit: str
    sureness: str
    against: str
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class KeyFigure:
    label: str
    value: str | None
    unit: str
    lines: tuple[str, ...]
    share: float | None = None


def key_figures(configuration: Configuration) -> Iterator[KeyFigure]:
    """The figures that a reader asks for first."""
    claims = configuration.claims
    boundary = claims.metric("boundary_rate")
    at = (
        ""
        if boundary.value is None
        else f"at {text.amount(boundary.value, METRICS['boundary_rate'])} requests/s, the boundary"
    )
    yield _key_figure(claims.metric("goodput"), at)
    yield _key_figure(claims.metric("tokens_per_joule"), "GPU boards only")
    gate = configuration.setup.accuracy_gate
    yield _key_figure(claims.metric("accuracy"), f"gate: max drop {gate.max_drop_points:.1f} pts")
    yield from _tightest(configuration)
    yield _key_figure(claims.metric("mbu"), "")
    yield _key_figure(claims.metric("board_power"), figures.POWER_CAPTION.split(" — ")[0])


def _tightest(configuration: Configuration) -> Iterator[KeyFigure]:
    """Yield the latency that is nearest to its limit; all of them stand under All numbers."""
    near = []
    for objective in configuration.setup.slo:
        claim = figures.claim_of(configuration.claims, objective)
        if claim is not None:
            share = 0.0 if claim.value is None else claim.value / objective.limit_ms
            near.append((share, f"limit {text.milliseconds(objective.limit_ms)}", claim))
    if near:
        share, words, claim = max(near, key=lambda item: item[0])
        yield _key_figure(claim, words, min(1.0, share))


def _key_figure(claim: MetricClaim, line: str, share: float | None = None) -> KeyFigure:
    metric = METRICS[claim.key]
    if claim.value is None:
        return KeyFigure(claim.label, None, "", (text.reason(claim),))
    lines = tuple(part for part in (text.sureness(claim), line) if part)
    return KeyFigure(claim.label, text.amount(claim.value, metric), metric.unit, lines, share)


def results_note(claims: Claims) -> str:
    """Say what each value is over the repeats."""
    n = len(claims.repeats)
    if n <= 1:
        return "Each value is from 1 run: there is no spread to show."
    if n == 2:
        return "Each value is the median of 2 runs."
    return f"Each value is the mean of {n} runs (geometric; shares and watts arithmetic)."


def number_rows(configuration: Configuration) -> Iterator[NumberRow]:
    """Every number of the run, grouped, with its unit from the registry."""
    claims, config = configuration.claims, configuration.setup
    head = "Configuration"
    build = f"{config.engine.name} {config.engine.version} · KV {config.quantization.kv_cache}"
    yield NumberRow(head, None, "Engine build", build, "", "", "")
    met = "yes" if claims.slo_met else "no"
    yield NumberRow(head, None, "SLO met", met, "", "", text.slo(config.slo))
    for claim in sorted(claims.metrics, key=lambda c: list(_GROUPS).index(c.key)):
        yield _number_row(configuration, claim)
        if claim.key == "goodput":
            yield _cards(configuration, claim)
    reference = "the accuracy gate was not run"
    if claims.metric("accuracy").value is not None:
        yield NumberRow("Accuracy", None, "Accuracy Δ vs. reference", "reference", "", "", "")
    else:
        yield NumberRow(
            "Accuracy",
            None,
            "Accuracy Δ vs. reference",
            "",
            "",
            "",
            "",
            f"{text.NOT_MEASURED}: {reference}",
        )


def _number_row(configuration: Configuration, claim: MetricClaim) -> NumberRow:
    metric, gate = METRICS[claim.key], configuration.setup.accuracy_gate
    label = claim.label
    if claim.key == "accuracy" and gate.task != "none":
        label = f"{label} ({gate.task}-{gate.shots}shot)"
    limits = [
        f"limit {text.milliseconds(o.limit_ms)}"
        for o in configuration.setup.slo
        if (o.metric, o.label) == (claim.key, claim.label)
    ]
    group = _GROUPS[claim.key]
    if claim.value is None:
        return NumberRow(group, claim.key, label, "", "", "", "".join(limits), text.reason(claim))
    value = text.amount(claim.value, metric)
    return NumberRow(
        group, claim.key, label, value, metric.unit, text.sureness(claim), "".join(limits)
    )


def _cards(configuration: Configuration, goodput: MetricClaim) -> NumberRow:
    label = "Cards for equal goodput"
    if goodput.value is None or configuration.setup.is_cpu:
        why = "no goodput" if goodput.value is None else "there is no accelerator card"
        return NumberRow("Throughput", None, label, "", "", "", "", f"{text.NOT_MEASURED}: {why}")
    return NumberRow("Throughput", None, label, str(cards(1.0)), "cards", "", "its own reference")


def cards(goodput_per_card_ratio: float) -> int:
    """Cards that give the goodput of 64 reference cards (DESIGN 6), rounded up.

    Args:
        goodput_per_card_ratio: goodput per card of the reference / of the configuration.
    """
    return math.ceil(64 * goodput_per_card_ratio)
