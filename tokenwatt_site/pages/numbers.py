"""The numbers of a report: the strip of key figures and the table of all of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import (
    answers,
    factors,
    figures,
    headline,
    instruments,
    limits,
    outcomes,
    text,
)
from tokenwatt_site.pages.factors import NO_FACTORS, Factors
from tokenwatt_site.pages.number_row import NumberRow
from tokenwatt_site.run import Claims, MetricClaim, SelfTest

_CARDS = "Cards for equal goodput"
_CARDS_NOTE = f"{_CARDS} = 64 × reference goodput ÷ configuration goodput, rounded up."

_ENERGY = "Energy and power"
_BESIDE = "Other instruments, never added"

_GROUPS = {
    "long_run_goodput": "Throughput",
    "long_run_rate": "Throughput",
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
    "cached_prompt_share": "Prompt cache",
    "tokens_per_joule": _ENERGY,
    "joules_per_token": _ENERGY,
    "joules_per_token_above_idle": _ENERGY,
    "joules_per_any_token": _ENERGY,
    "joules_per_slo_token": _ENERGY,
    "board_power": _ENERGY,
    "idle_power": _ENERGY,
    "cpu_power": _BESIDE,
    "host_power": _BESIDE,
    "mbu": "Memory bandwidth",
    "mbu_bus": "Memory bandwidth",
    "mbu_measured": "Memory bandwidth",
    "mbu_measured_bus": "Memory bandwidth",
    "mbu_engine": "Memory bandwidth",
    "bus_bandwidth": "Memory bandwidth",
    "decode_batch": "Engine steps in the window",
    "step_rate": "Engine steps in the window",
    "step_read": "Engine steps in the window",
    "bandwidth_limit_rate": "Distance to the limits",
    "compute_share": "Distance to the limits",
    "power_limit_share": "Distance to the limits",
    "dram_energy_share": "Distance to the limits",
    "accuracy": answers.SCORES,
    "accuracy_drop": answers.SCORES,
    "load_difference": answers.UNDER_LOAD,
}


@dataclass(frozen=True, slots=True)
class KeyFigure:
    label: str
    value: str | None
    unit: str
    lines: tuple[str, ...]
    share: float | None = None
    key: str = ""


def key_figures(configuration: Configuration) -> Iterator[KeyFigure]:
    """The figures that a reader asks for first."""
    claims = configuration.claims
    scope, shown = configuration.setup.power.scope, headline.goodput(claims)
    yield _key_figure(claims, shown, _at_boundary(claims, shown))
    yield _key_figure(claims, claims.metric("tokens_per_joule"), instruments.ONLY[scope])
    score = claims.metric("accuracy").model_copy(
        update={"label": answers.label(configuration.setup.accuracy_gate)}
    )
    yield _key_figure(claims, score, answers.verdict(configuration))
    yield from _tightest(configuration)
    yield _key_traffic(configuration)
    yield _key_figure(claims, claims.metric("board_power"), instruments.ONLY[scope])


def _at_boundary(claims: Claims, shown: MetricClaim) -> str:
    """Say at which rate a goodput is, and what the other one, measured or long-run, is."""
    rate = headline.rate(claims)
    if shown.value is None or rate.value is None:
        return ""
    words = f"at {text.amount(rate.value, METRICS[rate.key])} requests/s"
    measured = claims.metric("goodput")
    if shown.key == measured.key:
        return f"{words}; {headline.UNCORRECTED}"
    if measured.value is None:
        return words
    return f"{words}; on short windows {text.amount(measured.value, METRICS['goodput'])}"


def _key_traffic(configuration: Configuration) -> KeyFigure:
    """MBU, modelled; where the model gives none, what the boards measured in its place."""
    claims = configuration.claims
    ours, boards = claims.metric("mbu"), outcomes.find(claims, "mbu_measured")
    if ours.value is None and boards.value is not None:
        return _key_figure(claims, boards, limits.how(boards))
    words = limits.how(ours)
    if boards.value is not None:
        measured = text.amount(boards.value, METRICS["mbu_measured"])
        words += f"; {limits.how(boards)}: {measured}%"
    named = ours.model_copy(update={"label": METRICS["mbu"].label})
    return _key_figure(claims, named, words)


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
        yield _key_figure(configuration.claims, claim, words, min(1.0, share))


def _key_figure(
    claims: Claims, claim: MetricClaim, line: str, share: float | None = None
) -> KeyFigure:
    metric = METRICS[claim.key]
    if claim.value is None:
        return KeyFigure(claim.label, None, "", (outcomes.why(claims, claim),), key=claim.key)
    marks = [f"{words}: see below" for words in outcomes.marks(claims, claim.key)]
    lines = tuple(part for part in (_sureness(claims, claim), line, *marks) if part)
    value = text.amount(claim.value, metric)
    return KeyFigure(claim.label, value, metric.unit, lines, share, claim.key)


def _sureness(claims: Claims, claim: MetricClaim) -> str:
    of_answers = claim.key in text.OF_ANSWERS
    return answers.sureness(claims, claim) if of_answers else text.sureness(claim)


def results_note(claims: Claims) -> str:
    """Say what each value is over the repeats, and of which windows."""
    n = len(claims.repeats)
    if n <= 1:
        words = "Each value is from 1 repeat: there is no spread to show."
    elif n == 2:
        words = "Each value is the median of 2 repeats."
    else:
        words = f"Each value is the mean of {n} repeats (geometric; shares and watts arithmetic)."
    where = claims.window_rates
    return words if where is None else f"{words} Latency, power and bandwidth are those {where}."


def held(claims: Claims) -> str | None:
    """Write the highest passing rate with its unit; None where no trial passed."""
    claim, metric = claims.metric("highest_pass_rate"), METRICS["highest_pass_rate"]
    if claim.value is None:
        return None
    known, n = len(claim.repeats), len(claims.repeats)
    where = f" in {known} of {n} repeats" if known < n else ""
    return f"{text.amount(claim.value, metric)} {metric.unit}{where}"


def number_rows(
    configuration: Configuration, named: Factors = NO_FACTORS, apart: Sequence[NumberRow] = ()
) -> Iterator[NumberRow]:
    """Every number of the run, grouped, with its unit from the registry.

    A reason that several numbers are missing for is written once.

    Args:
        configuration: whose numbers.
        named: what the site multiplies energy with.
        apart: what each kind of token takes, of this run and others together.
    """
    first: dict[str, str] = {}
    places: set[str] = set()
    for plain in _rows(configuration, named, apart):
        row = replace(plain, place=_place(plain, places))
        label = first.setdefault(row.value, row.label) if row.kind == "missing" else row.label
        again = f"{row.value.partition(':')[0]}: as for {label}"
        shorter = label != row.label and len(again) < len(row.value)
        yield replace(row, value=again) if shorter else row


def _place(row: NumberRow, taken: set[str]) -> str | None:
    """Name the place of a line; the first of a metric, the SLO's own, has the key alone."""
    if row.anchor is None:
        return None
    place = f"metric-{row.anchor}"
    if place in taken:
        place += "-" + re.sub(r"[^a-z0-9]+", "-", row.label.lower()).strip("-")
    taken.add(place)
    return place


def _rows(
    configuration: Configuration, named: Factors, apart: Sequence[NumberRow]
) -> Iterator[NumberRow]:
    claims, config = configuration.claims, configuration.setup
    head = "Configuration"
    build = f"{text.engine(config.engine)} · {text.quantization(config.quantization)[1]}"
    yield NumberRow(head, None, "Engine build", build, kind="words")
    met = "yes" if claims.slo_met else "no"
    yield NumberRow(head, None, "SLO met", met, against=text.slo(config.slo), kind="words")
    timed = [claim for claim in claims.metrics if claim.key not in text.OF_ANSWERS]
    for claim in sorted(timed, key=lambda c: list(_GROUPS).index(c.key)):
        yield _number_row(configuration, claim)
        if claim.key == "goodput":
            yield _cards(configuration, claim)
        if claim.key == "joules_per_token":
            for label, value, unit, how in factors.rows(claim, named):
                group = energy_group(configuration)
                yield NumberRow(group, None, label, value, unit, how)
        if claim.key == "joules_per_any_token":
            yield from apart
    yield from answers.rows(configuration)
    yield from _client_rows(configuration.headline.run.conditions.self_test)


_LIMITED_BY = {
    "client": "the next step was not held",
    "emitter": "at least; the server of the test fell behind",
    "asked": "at least; twice what the spec may ask was held",
}


def _client_rows(test: SelfTest) -> Iterator[NumberRow]:
    """What the client could hold, and with what error, by its self-test before the load."""
    group, label = "Client, before the load", "What the client could hold"
    events, limited = f"{test.events_per_s:,}", _LIMITED_BY[test.limited_by]
    yield NumberRow(group, None, label, events, "events/s", limited)
    requests = text.number(test.requests_urps / 1e6, 1)
    yield NumberRow(group, None, "The same in requests", requests, "requests/s", limited)
    stamped = f"{test.stamps} stamps" if test.stamps == "kernel" else "stamps in user space"
    for name, found, how in (
        ("Error of its first token p99", test.first_token_error_p99_ns, stamped),
        ("Its dispatch lag p99", test.dispatch_lag_p99_ns, ""),
    ):
        if found is None:
            why = f"{text.NOT_MEASURED}: no request was answered in time"
            yield NumberRow(group, None, name, why, kind="missing")
        else:
            yield NumberRow(group, None, name, text.number(found / 1e6, 3), "ms", how)


def _number_row(configuration: Configuration, claim: MetricClaim) -> NumberRow:
    metric, label = METRICS[claim.key], claim.label
    group, against = _group(configuration, claim.key), _against(configuration, claim)
    marks = outcomes.marks(configuration.claims, claim.key)
    if claim.value is None:
        why = outcomes.why(configuration.claims, claim)
        return NumberRow(group, claim.key, label, why, against=against, kind="missing", marks=marks)
    value, sure = text.amount(claim.value, metric), text.sureness(claim)
    return NumberRow(group, claim.key, label, value, metric.unit, sure, against, marks=marks)


def _group(configuration: Configuration, key: str) -> str:
    return energy_group(configuration) if _GROUPS[key] == _ENERGY else _GROUPS[key]


def energy_group(configuration: Configuration) -> str:
    """Name the group of the energy, with its boundary and gain error."""
    power = configuration.setup.power
    words = (instruments.ONLY[power.scope], instruments.gain(power.sensor))
    told = ", ".join(part for part in words if part)
    return f"{_ENERGY}: {told}" if told else _ENERGY


_TRAFFIC = {
    "mbu": "mbu",
    "mbu_bus": "mbu",
    "step_read": "mbu",
    "mbu_measured": "mbu_measured",
    "mbu_measured_bus": "mbu_measured",
}
"""A share of the bandwidth -> the one that says how both were come by."""


def _against(configuration: Configuration, claim: MetricClaim) -> str:
    """What a number is to be read against: its limit, how it was come by."""
    setup = configuration.setup
    if claim.key in _TRAFFIC and claim.value is not None:
        return limits.how(outcomes.find(configuration.claims, _TRAFFIC[claim.key]))
    return "".join(
        f"limit {text.milliseconds(o.limit_ms)}"
        for o in setup.slo
        if (o.metric, o.label) == (claim.key, claim.label)
    )


def cards_note(configuration: Configuration) -> str:
    """The formula of the cards, where there are any to count."""
    return _CARDS_NOTE if _no_cards(configuration) is None else ""


def _no_cards(configuration: Configuration) -> str | None:
    """Say why no cards can be counted, or None."""
    accelerator = configuration.setup.accelerator
    if configuration.claims.metric("goodput").value is None:
        return "no goodput"
    if configuration.setup.is_cpu:
        return "there is no accelerator card"
    if not text.recorded(accelerator.model) or accelerator.count == 0:
        return "the accelerator was not recorded"
    return None


def _cards(configuration: Configuration, goodput: MetricClaim) -> NumberRow:
    group = _GROUPS[goodput.key]
    if why := _no_cards(configuration):
        return NumberRow(group, None, _CARDS, f"{text.NOT_MEASURED}: {why}", kind="missing")
    own = "its own reference"
    return NumberRow(group, None, _CARDS, str(cards(1.0)), "cards", against=own)


def cards(goodput_per_card_ratio: float) -> int:
    """Cards that give the goodput of 64 reference cards (DESIGN 6), rounded up.

    Args:
        goodput_per_card_ratio: goodput per card of the reference / of the configuration.
    """
    return math.ceil(64 * goodput_per_card_ratio)
