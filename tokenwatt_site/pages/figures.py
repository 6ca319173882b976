"""Which charts a report has, what their headings say, and the data beside each as a table.

A heading says what to see, by a fixed template; where the data do not carry the sentence it falls
back to a neutral one. What was not measured is a frame with the reason, never a bar of length 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import chart, headline, instruments, limits, outcomes, over_time, text
from tokenwatt_site.pages.figure import Figure, Table
from tokenwatt_site.pages.windows import tops
from tokenwatt_site.run import Claims, MetricClaim, TrialClaim
from tokenwatt_site.spec import Objective


def bar_figures(configuration: Configuration) -> tuple[Figure, ...]:
    """The four figures of one bar per configuration; that of memory traffic has one per source."""
    scope = configuration.setup.power.scope
    only = instruments.ONLY[scope]
    energy = f"{only[:1].upper()}{only[1:]}." if only else ""
    return (
        _goodput_bar(configuration),
        _bar(configuration, "tokens_per_joule", energy),
        limits.traffic(configuration),
        _bar(configuration, "board_power", instruments.BOUNDARY[scope]),
    )


def _goodput_bar(configuration: Configuration) -> Figure:
    shown = headline.goodput(configuration.claims)
    uncorrected = shown.key != headline.LONG_RUN and shown.value is not None
    said = f"{headline.UNCORRECTED[0].upper()}{headline.UNCORRECTED[1:]}."
    return _bar(configuration, shown.key, said if uncorrected else "")


def detail_figures(configuration: Configuration) -> tuple[Figure, ...]:
    """Trials against rate, latencies, distance to the limits, what instruments read over time."""
    claims, slo = configuration.claims, configuration.setup.slo
    figures = [_attainment(claims, slo), _delivered(claims)]
    figures += _distributions(claims, slo)
    figures.append(limits.distance(configuration))
    figures += over_time.figures(configuration)
    return tuple(figures)


def _bar(configuration: Configuration, key: str, caption: str) -> Figure:
    claims, metric = configuration.claims, METRICS[key]
    claim = claims.metric(key)
    heading = claim.label
    figure_id = f"bar-{key.replace('_', '-')}"
    drawn, missing = None, None
    if claim.value is None:
        missing = outcomes.why(claims, claim)
    else:
        shown = f"{text.amount(claim.value, metric)} {metric.unit}"
        row = (configuration.title, claim.value, shown)
        drawn = chart.bars(figure_id, heading, [row], metric.unit)
    said = outcomes.noted(claims, key)
    return Figure(
        id=figure_id,
        heading=heading,
        lead="",
        chart=drawn,
        missing=missing,
        note=" ".join(part for part in (caption, said) if part) if drawn else "",
        table=None,
    )


def _attainment(claims: Claims, slo: Sequence[Objective]) -> Figure:
    trials = claims.trials
    quantiles = {objective.quantile for objective in slo}
    points = [_point(trial) for trial in trials]
    line = quantiles.pop() if len(quantiles) == 1 else None
    drawn = chart.attainment(points, bracket(claims), line) if points else None
    lead = (
        "Each mark is one trial: a dot passed, a cross failed, a dashed square is invalid and does"
        " not count. The boundary lies in the shaded bracket."
    )
    if line is not None:
        lead += f" The dashed line is the share that the SLO asks for, {100 * line:g}%."
    early = sum(trial.stopped_early for trial in trials)
    note = (
        "Share of scored requests within the limit, of the objective that fared worst; nines scale."
    )
    if early:
        was, are = ("was", "is") if early == 1 else ("were", "are")
        note += (
            f" {early} of {text.counted(len(trials), 'trial')} {was} stopped as soon as the verdict"
            f" was certain and {are} shown at the share known then."
        )
    note += _failure_words(trials)
    return Figure(
        id="chart-attainment",
        heading=rate_heading(claims),
        lead=lead,
        chart=drawn,
        missing=None if drawn else f"{text.NOT_MEASURED}: no trial was completed",
        note=note,
        table=_trial_table(trials) if trials else None,
        whole=True,
    )


def _failure_words(trials: Sequence[TrialClaim]) -> str:
    """Say how many requests of the trials that count ended badly; nothing where none did."""
    counting = [trial for trial in trials if trial.verdict != "INVALID"]
    failed = [trial for trial in counting if trial.failures]
    if not failed:
        return ""
    total: Counter[str] = Counter()
    for trial in failed:
        total.update(trial.failures)
    return (
        f" Requests failed in {len(failed)} of {text.counted(len(counting), 'trial')}:"
        f" {text.failures(total)}."
        " A failed request misses every limit."
    )


def _delivered(claims: Claims) -> Figure:
    points = [_point(trial) for trial in claims.trials if trial.output_tokens_per_s is not None]
    early = len(claims.trials) - len(points)
    note = (
        "Output tokens that arrived in the scored window, per second. The table above has the data."
    )
    if early:
        have = "trial stopped early has" if early == 1 else "trials stopped early have"
        note += f" {early} {have} no whole window and {'is' if early == 1 else 'are'} not shown."
    lead = "Delivered output tokens per second of every trial that ran its whole window."
    rate, goodput = claims.metric("boundary_rate").value, claims.metric("goodput").value
    computed = None if rate is None or goodput is None else (rate, goodput)
    if computed:
        lead += " The hollow diamond is the goodput computed at the boundary, where no trial ran."
    return Figure(
        id="chart-goodput",
        heading="Goodput against offered rate",
        lead=lead,
        chart=chart.goodput(points, bracket(claims), computed) if points else None,
        missing=None if points else f"{text.NOT_MEASURED}: no trial ran its whole window",
        note=note,
        table=None,
    )


def bracket(claims: Claims) -> tuple[float, float] | None:
    """The span that holds every repeat's boundary, in requests/s, or None while one is open."""
    low = [r.highest_pass_urps for r in claims.repeats if r.highest_pass_urps is not None]
    high = [r.lowest_fail_urps for r in claims.repeats if r.lowest_fail_urps is not None]
    if not low or len(low) < len(claims.repeats) or len(high) < len(claims.repeats):
        return None
    return min(low) / 1e6, max(high) / 1e6


def rate_heading(claims: Claims) -> str:
    """Say where the SLO stops to hold, as far as the trials carry the sentence."""
    passed = sorted(
        {r.highest_pass_urps for r in claims.repeats if r.highest_pass_urps is not None}
    )
    failed = sorted({r.lowest_fail_urps for r in claims.repeats if r.lowest_fail_urps is not None})
    if not claims.repeats or (not passed and not failed):
        return "Requests within their limits against offered rate"
    if not passed:
        return (
            f"The SLO did not hold at any rate offered, down to {text.rate(failed[0])} requests/s"
        )
    if not failed:
        return f"The SLO held at every rate offered, up to {text.rate(passed[-1])} requests/s"
    if len(claims.repeats) == 1 and passed[0] < failed[0]:
        return (
            f"The SLO holds up to {text.rate(passed[0])} requests/s"
            f" and fails at {text.rate(failed[0])}"
        )
    if bracket(claims) is not None:
        return (
            f"Every repeat holds the SLO up to {text.rate(passed[0])} requests/s;"
            f" none holds it at {text.rate(failed[-1])}"
        )
    return "Requests within their limits against offered rate"


def _point(trial: TrialClaim) -> chart.Trial:
    shares = [1 - o.misses / o.n for o in trial.objectives if o.n]
    return chart.Trial(
        rate=trial.rate_urps / 1e6,
        verdict=trial.verdict,
        tokens_per_s=trial.output_tokens_per_s,
        share=min(shares) if shares else None,
    )


def _trial_table(trials: Sequence[TrialClaim]) -> Table:
    objectives = [o.label for o in trials[0].objectives]
    head = (
        "Repeat",
        "Trial",
        "Rate, requests/s",
        "Verdict",
        "Why",
        "Scored",
        "Complete",
        "Failed requests",
        *(f"{label}: misses / allowed" for label in objectives),
        "Output tok/s",
        "Energy of the window, J",
        "Dispatch lag p99, ms",
        "Stamp uncertainty p99, ms",
        "Client, % of a processor",
    )
    rows = tuple(
        (
            str(t.repeat),
            str(t.trial),
            text.rate(t.rate_urps),
            t.verdict + (", stopped early" if t.stopped_early else ""),
            t.reason or "every objective held",
            f"{t.scored:,}",
            f"{t.complete:,}",
            text.failures(t.failures),
            *(f"{o.misses} / {o.allowed}" for o in t.objectives),
            "not known: stopped early"
            if t.output_tokens_per_s is None
            else text.number(t.output_tokens_per_s, 1),
            _known(t.energy_j, 0),
            _known(t.lag_p99_ms, 3),
            _known(t.uncertainty_p99_ms, 3),
            text.number(t.client_cpu_percent, 0),
        )
        for t in trials
    )
    return head, rows


def _known(value: float | None, decimals: int) -> str:
    return text.NOT_MEASURED if value is None else text.number(value, decimals)


def _distributions(claims: Claims, slo: Sequence[Objective]) -> Iterator[Figure]:
    known = {d.key: d for d in claims.distributions}
    failed = _failed_at_the_top(claims)
    for key in dict.fromkeys(objective.metric for objective in slo):
        name = METRICS[key].label
        own = [o for o in slo if o.metric == key]
        found = known.get(key)
        yield Figure(
            id=f"chart-{key}",
            heading=_limit_heading(claims, own) or f"{name} distribution",
            lead=f"{METRICS[key].definition} The dashed line is the limit; the diamond marks the"
            " quantile that has to lie left of it.",
            chart=None
            if found is None
            else chart.distribution(
                f"chart-{key}",
                name,
                [(value, i + 1.0) for i, value in enumerate(found.values_ms)],
                [
                    (f"{o.label} ≤ {text.milliseconds(o.limit_ms)}", o.limit_ms, 100 * o.quantile)
                    for o in own
                ],
            ),
            missing=None if found else f"{text.NOT_MEASURED}: no trial met the SLO",
            note=""
            if found is None
            else f"Order statistics of {found.n:,} scored requests at the highest passing rates."
            + _pooled_words(claims, own)
            + (
                f" {failed:,} of {found.n:,} requests did not end well and stand above the top of"
                " this curve."
                if failed
                else ""
            ),
            table=None
            if found is None
            else (("Quantile", f"{name}, ms"), tuple(text.quantiles(found))),
        )


def _pooled_words(claims: Claims, objectives: Sequence[Objective]) -> str:
    """Say that the curve is of all repeats together, and what the heading is of them."""
    n = len(tops(claims))
    if n < 2:
        return ""
    together = "Both repeats together" if n == 2 else f"All {n} repeats together"
    claim = claim_of(claims, objectives[0]) if len(objectives) == 1 else None
    if claim is None or claim.value is None:
        return f" {together}."
    quantile = f"p{100 * objectives[0].quantile:g}"
    if n > 2:
        return f" {together}; the heading is the geometric mean of the repeats' {quantile}."
    a, b = (text.amount(value, METRICS[claim.key]) for value in claim.repeats)
    return f" {together}; the heading is the median of the repeats' {quantile} ({a} and {b} ms)."


def _failed_at_the_top(claims: Claims) -> int:
    """Count the scored requests behind the distributions that did not end well.

    E2E is defined for every request that did, so its n has the others beside the complete ones.
    """
    looked_at = sum(d.n for d in claims.distributions if d.key == "e2e")
    return looked_at - sum(trial.complete for trial in tops(claims)) if looked_at else 0


def _limit_heading(claims: Claims, objectives: Sequence[Objective]) -> str | None:
    if len(objectives) != 1:
        return None
    objective = objectives[0]
    claim = claim_of(claims, objective)
    if claim is None or claim.value is None:
        return None
    share = 100 * claim.value / objective.limit_ms
    value = f"{text.amount(claim.value, METRICS[claim.key])} ms"
    return (
        f"{objective.label} is {value}, {share:.0f}% of the limit of"
        f" {text.milliseconds(objective.limit_ms)}"
    )


def claim_of(claims: Claims, objective: Objective) -> MetricClaim | None:
    """The latency at the highest passing rate that this objective limits."""
    for claim in claims.metrics:
        if claim.key == objective.metric and claim.label == objective.label:
            return claim
    return None
