"""The report page of one configuration."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import yaml

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.eligibility import Exclusion, reasons
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import facts, figures, numbers, setup, text
from tokenwatt_site.pages.page import Links, Page, render_template
from tokenwatt_site.run import Claims
from tokenwatt_site.spec import Spec
from tokenwatt_site.trust.verify import ValidatedRun

TOC = (
    ("key-figures", "Key figures"),
    ("facts", "Facts"),
    ("results", "Results"),
    ("charts", "Evidence in charts"),
    ("numbers", "All numbers"),
    ("setup", "Setup"),
    ("not-covered", "Not covered"),
    ("reproduce", "Reproduce"),
    ("cite", "Cite"),
    ("history", "History"),
)


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One run. `missing` stands in place of a goodput that there is not."""

    date: str
    run_id: str
    signer: str
    mode: str
    repeats: int
    goodput: str | None
    missing: str
    folder: str | None
    evidence: tuple[tuple[str, str], ...]


def render(configuration: Configuration, links: Links) -> Page:
    """Make the page of one configuration; every number on it comes from recomputed claims."""
    head = configuration.headline
    spec, claims = head.run.spec, configuration.claims
    exclusions = reasons(configuration)
    bars = figures.bar_figures(configuration)
    details = figures.detail_figures(configuration)
    summary = tuple(summary_parts(configuration))
    html = render_template(
        "report.html.j2",
        title=configuration.title,
        eyebrow=_eyebrow(head),
        summary=summary,
        notices=tuple(_notices(head, exclusions)),
        key_figures=tuple(numbers.key_figures(configuration)),
        facts=facts.facts(configuration, exclusions),
        bars=bars,
        details=details,
        results_note=numbers.results_note(claims),
        cards_note=numbers.CARDS_NOTE,
        numbers=tuple(numbers.number_rows(configuration)),
        column=configuration.title,
        definitions=[METRICS[key] for key in dict.fromkeys(c.key for c in claims.metrics)],
        setup=setup.rows(configuration.setup, head.run.conditions.read_back),
        runs_per_config=len(claims.repeats),
        conditions=head.run.conditions,
        endpoint=spec.endpoint,
        not_covered=claims.not_covered,
        commands=commands(spec),
        expected=expected(claims),
        cost=cost(head),
        digests=_digests(head),
        spec_file=spec_file(spec),
        cite=citation(configuration),
        history=tuple(_history(configuration, links)),
        note=spec.note,
        links=links,
        folder=links.runs.get(head.run_id),
    )
    return Page(
        title=configuration.title,
        description=" ".join(part for part, _ in summary)[:300],
        toc=TOC,
        html=html,
        charts=tuple(f.chart for f in (*bars, *details) if f.chart is not None),
    )


def summary_parts(configuration: Configuration) -> Iterator[tuple[str, bool]]:
    """Yield (words, is a number to stress); joined by spaces they are the summary sentence."""
    claims, config = configuration.claims, configuration.setup
    where = f"{config.model.name} on {text.boards(config.accelerator)} with {config.engine.name}"
    yield f"Within {text.slo(config.slo)}, {where} {config.engine.version}", False
    rate, goodput = claims.metric("boundary_rate"), claims.metric("goodput")
    if rate.value is None or goodput.value is None:
        if (held := _held(claims)) is not None:
            yield "held", False
            yield held, True
            yield f"as its {METRICS['highest_pass_rate'].label.lower()} and", False
        yield f"has no goodput to report ({goodput.reason or rate.reason}).", False
    else:
        yield "served", False
        yield f"{text.amount(rate.value, METRICS['boundary_rate'])} requests/s:", True
        yield f"{text.amount(goodput.value, METRICS['goodput'])} output", True
        inputs = claims.metric("input_throughput")
        if inputs.value is not None:
            amount = text.amount(inputs.value, METRICS["input_throughput"])
            yield f"and about {amount} input tokens per second.", False
        else:
            yield "tokens per second.", False
    power, energy = claims.metric("board_power"), claims.metric("tokens_per_joule")
    if power.value is not None and energy.value is not None:
        yield "The boards drew", False
        yield f"{text.amount(power.value, METRICS['board_power'])} W,", True
        yield f"{text.amount(energy.value, METRICS['tokens_per_joule'])} tokens per joule.", True
    else:
        yield "Power was not measured.", False
    accuracy = claims.metric("accuracy")
    if accuracy.value is not None:
        gate = config.accuracy_gate
        yield f"{text.amount(accuracy.value, METRICS['accuracy'])}%", True
        yield f"on the {gate.task} check.", False
    else:
        yield "Accuracy was not measured.", False
    n = len(claims.repeats)
    mode = configuration.headline.run.spec.protocol.mode
    yield f"{mode.capitalize()} mode, {n} repeat{'s' if n != 1 else ''}.", False


def _held(claims: Claims) -> str | None:
    """The highest passing rate with its unit; None where no trial passed."""
    claim, metric = claims.metric("highest_pass_rate"), METRICS["highest_pass_rate"]
    if claim.value is None:
        return None
    held, n = len(claim.repeats), len(claims.repeats)
    where = f" in {held} of {n} repeats" if held < n else ""
    return f"{text.amount(claim.value, metric)} {metric.unit}{where}"


def _eyebrow(head: ValidatedRun) -> str:
    workload = head.run.spec.setup.workload
    day = head.run.conditions.started[:10]
    return f"Report · {workload.name} v{workload.version} · measured {day}"


def _notices(head: ValidatedRun, exclusions: tuple[Exclusion, ...]) -> Iterator[tuple[str, str]]:
    if head.run.simulated:
        yield (
            "Simulated.",
            "The engine was a simulator: these numbers say nothing about any product.",
        )
    mode = head.run.spec.protocol.mode
    rank = "Listed, unranked." if exclusions else ""
    if mode != "full":
        lead, _, rest = facts.MODE_WORDS[mode].partition(". ")
        yield f"{lead}.", f"{rest} {rank}".strip()
    elif rank:
        words = "; ".join(e.text for e in exclusions)
        yield rank, f"{words[0].upper()}{words[1:]}."
    if head.run.status == "interrupted":
        yield "Interrupted.", "Stopped before the plan was done; what was measured is shown."


def spec_file(spec: Spec) -> str:
    return f"{spec.label}.spec.yaml"


def spec_yaml(spec: Spec) -> str:
    """Write a spec as the YAML that `spec.load_spec` reads back to the same value."""
    # Our YAML has no null: a field that is None is left out.
    value = spec.model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)


def commands(spec: Spec) -> tuple[tuple[str, str], ...]:
    """(what it does, the command to type), each argument quoted for a POSIX shell."""
    out = f"runs/{spec.label}-again.json"
    measure = ["tokenwatt-site", "measure", "--spec", spec_file(spec), "--label", spec.label]
    if spec.role:
        measure += ["--role", spec.role]
    return (
        ("1. Measure", shlex.join([*measure, "--out", out])),
        ("2. Verify and recompute", shlex.join(["tokenwatt-site", "verify", out])),
        (
            "3. Make the report",
            shlex.join(["tokenwatt-site", "report", out, "--title", spec.title]),
        ),
    )


def expected(claims: Claims) -> str:
    """Say where a rerun should fall, or why that cannot be said."""
    claim = claims.metric("goodput")
    metric = METRICS["goodput"]
    n = len(claim.repeats)
    if claim.value is None:
        return f"Nothing can be expected: goodput was {text.reason(claim)}."
    if claim.new_launch_low is None or claim.new_launch_high is None:
        words = f"No band can be stated: n = {n}."
        if n == 2:
            words += (
                f" The two runs gave {text.amount(claim.repeats[0], metric)} and"
                f" {text.amount(claim.repeats[1], metric)} {metric.unit}. A third equal run would"
                " fall between them with a chance of only 1 in 3."
            )
        return words
    return (
        "SLO goodput of one new launch falls between"
        f" {text.amount(claim.new_launch_low, metric)} and"
        f" {text.amount(claim.new_launch_high, metric)} {metric.unit} with 95% (n = {n})."
    )


def cost(head: ValidatedRun) -> str:
    """Say what this run took, by its own clock."""
    conditions = head.run.conditions
    took = datetime.fromisoformat(conditions.ended) - datetime.fromisoformat(conditions.started)
    seconds = took.total_seconds()
    unit, amount = ("minute", seconds / 60) if seconds >= 120 else ("second", seconds)
    measured = head.run.spec.setup
    count = 0 if measured.is_cpu else measured.accelerator.count
    words = f"{text.number(amount, 0 if amount >= 10 else 1)} {unit}s"
    boards = f", {text.number(count * amount, 0)} board-{unit}s" if count else ""
    return f"This run took {words}{boards}."


def _digests(head: ValidatedRun) -> tuple[tuple[str, str], ...]:
    spec = head.run.spec
    return (
        ("Configuration", head.run.configuration),
        ("Run", f"sha256:{head.run_id}"),
        ("Workload", f"sha256:{spec.setup.workload.hash}"),
        ("Image", spec.setup.engine.image_digest),
        ("Model", spec.setup.model.digest),
        ("Journal head", f"sha256:{head.run.journal_head}"),
        *((f"Evidence: {e.role}", f"sha256:{e.sha256}") for e in head.run.evidence),
    )


def citation(configuration: Configuration) -> str:
    """One line that quotes the headline with its label, n and mode."""
    head = configuration.headline
    claim = configuration.claims.metric("goodput")
    metric = METRICS["goodput"]
    value = (
        "no goodput"
        if claim.value is None
        else f"{text.amount(claim.value, metric)} {metric.unit} within the SLO"
    )
    n = f"n = {len(configuration.claims.repeats)}"
    sure = n if claim.value is None else text.sureness(claim)
    kind = "simulated, " if head.run.simulated else ""
    day = head.run.conditions.started[:10]
    return (
        f"{head.signer or head.keyid} ({day[:4]}). {configuration.title}: {value},"
        f" {kind}{head.run.spec.protocol.mode} mode, {sure}."
        f" tokenwatt run {head.run_id[:12]}, {day}."
    )


def _history(configuration: Configuration, links: Links) -> Iterator[HistoryRow]:
    for run in configuration.runs:
        claim = run.claims.metric("goodput")
        folder = links.runs.get(run.run_id)
        held = _held(run.claims)
        interrupted = ", interrupted" if run.run.status == "interrupted" else ""
        yield HistoryRow(
            date=run.run.conditions.started[:10],
            run_id=run.run_id,
            signer=run.signer or f"unknown key {run.keyid}",
            mode=f"{run.run.spec.protocol.mode}{interrupted}",
            repeats=len(run.claims.repeats),
            goodput=None if claim.value is None else text.amount(claim.value, METRICS["goodput"]),
            missing=text.reason(claim) + ("" if held is None else f"; {held} held"),
            folder=folder,
            evidence=tuple(
                (entry.role, f"{folder}/{entry.path}") for entry in run.run.evidence if folder
            ),
        )
