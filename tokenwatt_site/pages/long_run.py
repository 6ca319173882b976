"""The section on the long run: whether the engine model is believed, and what it says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.pages import headline, long_run_chart, text
from tokenwatt_site.pages.boards import UNTOLD
from tokenwatt_site.pages.figure import Figure, Table
from tokenwatt_site.pages.figures import bracket
from tokenwatt_site.run import Claims, LongRunClaim, TrialClaim

_AROUND = (("2% below", 0.98), ("at", 1.0), ("2% above", 1.02))
_NEAR = 0.005
"""How near a rate has to be to one of those, as a share of it."""

_UNITS = (("base_ps", "a step"), ("sequence_ps", "a decoding sequence"))
_FINE_UNITS = (("prompt_token_ps", "a prompt token"), ("context_token_ps", "a token of context"))


@dataclass(frozen=True, slots=True)
class Section:
    """What the section holds. Tables and figures are there where a model was fitted."""

    lead: str
    verdict: str
    feels: tuple[str, ...]
    repeats: Table | None
    prices: tuple[tuple[str, str], ...]
    figures: tuple[Figure, ...]


def section(configuration: Configuration) -> Section | None:
    """Return the section; None where no boundary was measured, so that there is nothing to say."""
    claims = configuration.claims
    told = claims.long_run
    if claims.metric("boundary_rate").value is None and not told.repeats:
        return None
    fitted = bool(told.repeats)
    return Section(
        lead=headline.difference(claims),
        verdict=_verdict(told),
        feels=tuple(_feels(configuration)) if told.outcome == "accepted" else (),
        repeats=_repeats(told) if fitted else None,
        prices=tuple(_prices(told)) if fitted else (),
        figures=tuple(f for f in (_shares(configuration), _residuals(claims)) if f is not None),
    )


def _verdict(told: LongRunClaim) -> str:
    words = {
        "accepted": "The engine model is accepted",
        "refused": "The engine model is refused",
        "none": "There is no engine model",
    }
    return f"{words[told.outcome]}: {told.text}."


def _feels(configuration: Configuration) -> list[str]:
    told, found = configuration.claims.long_run, []
    if told.windows_kept_percent is not None:
        words = f"At this rate {told.windows_kept_percent:.0f}% of 10-minute windows keep the SLO"
        if told.hours_kept_percent is not None:
            words += f", and {told.hours_kept_percent:.0f}% of hours"
        found.append(f"{words}.")
    if told.windows_95_urps is not None:
        found.append(
            f"95% of 10-minute windows keep it at {text.rate(told.windows_95_urps)} requests/s."
        )
    return [*found, *_around(configuration)]


def _around(configuration: Configuration) -> list[str]:
    """Say what misses just below the boundary, at it and just above; other rates are a curve."""
    claims = configuration.claims
    boundary = claims.metric("long_run_rate").value
    if boundary is None:
        return []
    # Rates are whole numbers and the boundary a mean: they meet within far less than a step.
    at = {
        words: share.percent
        for words, factor in _AROUND
        for share in claims.long_run.misses
        if abs(share.rate_urps / 1e6 / boundary / factor - 1) <= _NEAR
    }
    if len(at) < len(_AROUND):
        return []
    return [
        f"Of {objective.label}, {at['2% below'][i]:.2g}% of requests miss at 2% below the boundary,"
        f" {at['at'][i]:.2g}% at it and {at['2% above'][i]:.2g}% at 2% above;"
        f" {100 * (1 - objective.quantile):.3g}% may."
        for i, objective in enumerate(configuration.setup.slo)
    ]


def _repeats(told: LongRunClaim) -> Table:
    head = (
        "Repeat",
        "Measured, requests/s",
        "Model on the same rows",
        "Model fitted without it",
        "Error, %",
    )
    rows = tuple(
        (
            str(r.repeat),
            text.rate(r.measured_urps),
            text.rate(r.model_urps),
            UNTOLD if r.left_out_urps is None else text.rate(r.left_out_urps),
            UNTOLD if r.error_percent is None else f"{r.error_percent:+.2f}",
        )
        for r in told.repeats
    )
    return head, rows


def _misses(configuration: Configuration) -> Table:
    head = ("Rate, requests/s", *(f"{o.label}: misses, %" for o in configuration.setup.slo))
    rows = tuple(
        (text.rate(at.rate_urps), *(f"{p:.3g}" for p in at.percent))
        for at in configuration.claims.long_run.misses
    )
    return head, rows


def _prices(told: LongRunClaim) -> list[tuple[str, str]]:
    rows = [("Scheduler", told.family or UNTOLD)]
    for fields, divisor, unit in ((_UNITS, 1e9, "ms"), (_FINE_UNITS, 1e6, "µs")):
        for field, what in fields:
            price = getattr(told, field)
            shown = UNTOLD if price is None else f"{price / divisor:.4g} {unit}"
            rows.append((f"For {what}", shown))
    return rows


def _shares(configuration: Configuration) -> Figure | None:
    claims, slo = configuration.claims, configuration.setup.slo
    told = claims.long_run
    if not told.misses:
        return None
    curves = [
        long_run_chart.Curve(
            o.label,
            100 * (1 - o.quantile),
            tuple((at.rate_urps / 1e6, at.percent[i]) for at in told.misses),
        )
        for i, o in enumerate(slo)
    ]
    points = [
        long_run_chart.Point(trial.rate_urps / 1e6, percent, trial.verdict)
        for trial in claims.trials
        if (percent := _worst(trial)) is not None
    ]
    corrected = claims.metric("long_run_rate").value
    drawn = long_run_chart.misses(curves, points, bracket(claims), corrected)
    return Figure(
        id="long-run-misses",
        heading="Misses against rate: the long run, and each trial",
        lead=(
            "Lines are the model's long run of 200,000 requests. Each mark is a trial on its own"
            " short window, by the objective that fared worst: a dot passed, a cross failed. The"
            " dashed level is what the SLO allows."
        ),
        chart=drawn,
        missing=None,
        note="Where marks lie below the lines, short windows flatter the engine.",
        table=_misses(configuration),
    )


def _worst(trial: TrialClaim) -> float | None:
    """Return the greatest share of misses of a whole trial, in per cent."""
    if trial.stopped_early or trial.verdict == "INVALID":
        return None
    shares = [100 * o.misses / o.n for o in trial.objectives if o.n]
    return max(shares, default=None)


def _residuals(claims: Claims) -> Figure | None:
    told = claims.long_run
    # Trials are told apart by their repeat too, as everywhere.
    started = {(t.repeat, t.trial): datetime.fromisoformat(t.started) for t in claims.trials}
    trials = [trial for trial in told.trials if (trial.repeat, trial.trial) in started]
    if not trials:
        return None
    begin = min(started.values())
    minutes = {at: (began - begin).total_seconds() / 60 for at, began in started.items()}
    points = [
        (minutes[trial.repeat, trial.trial], percent, name)
        for trial in trials
        for name, percent in (("TTFT", trial.ttft_percent), ("TPOT", trial.tpot_percent))
        if percent is not None and math.isfinite(percent)
    ]
    if not points:
        return None
    drift = (
        "" if told.drift_percent is None else f" Drift over the run: {told.drift_percent:+.1f}%."
    )
    head = ("Trial", "Repeat", "Minute", "Rate, requests/s", "Requests", "TTFT, %", "TPOT, %")
    rows = tuple(
        (
            str(t.trial),
            str(t.repeat),
            f"{minutes[t.repeat, t.trial]:.0f}",
            text.rate(t.rate_urps),
            f"{t.requests:,}",
            UNTOLD if t.ttft_percent is None else f"{t.ttft_percent:+.1f}",
            UNTOLD if t.tpot_percent is None else f"{t.tpot_percent:+.1f}",
        )
        for t in trials
    )
    return Figure(
        id="long-run-residuals",
        heading="What the model does not tell, trial by trial",
        lead=(
            "Median of seen over modelled, as a difference in per cent: dots are TTFT, hollow"
            " diamonds TPOT. A slope would be an engine that changes with time."
        ),
        chart=long_run_chart.residuals(points),
        missing=None,
        note=f"Zero is a trial that the model tells exactly.{drift}",
        table=(head, rows),
    )
