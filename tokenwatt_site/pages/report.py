"""The report page of one configuration."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from urllib.parse import urljoin

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.field_words import in_words
from tokenwatt_site.lineage import NO_KIN, Kin
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.mixes import Mixes
from tokenwatt_site.pages import (
    accuracy,
    answers,
    boards,
    cite,
    facts,
    figures,
    headline,
    history,
    instruments,
    long_run,
    numbers,
    outcomes,
    related,
    replicas,
    setup,
    statements,
    text,
    token_energy,
    verification,
)
from tokenwatt_site.pages.factors import NO_FACTORS, Factors
from tokenwatt_site.pages.page import Links, Page, render_template
from tokenwatt_site.run import Claims, GateOutcome
from tokenwatt_site.spec import Engine
from tokenwatt_site.statistics import SAME
from tokenwatt_site.trust.verify import ValidatedRun

ACCURACY = "accuracy"
LONG_RUN = "long-run"
STATEMENTS = "statements"
RELATED = "related"

TOC = (
    ("key-figures", "Key figures"),
    ("facts", "Facts"),
    ("results", "Results"),
    ("charts", "Evidence in charts"),
    (LONG_RUN, "In the long run"),
    (ACCURACY, "Accuracy"),
    ("numbers", "All numbers"),
    ("setup", "Setup"),
    ("not-covered", "Not covered"),
    ("reproduce", "Reproduce"),
    ("cite", "Cite"),
    ("history", "History"),
    (RELATED, "Related configurations"),
    (STATEMENTS, "Statements"),
)

RUN_FILE = "run.json"
"""The name of a run file on the site, in a folder of its own."""


def render(
    configuration: Configuration,
    links: Links,
    named: Factors = NO_FACTORS,
    kin: Kin = NO_KIN,
    mixes: Mixes | None = None,
) -> Page:
    """Make the page of one configuration; every number on it comes from recomputed claims.

    Args:
        configuration: what the page is about.
        links: where its neighbours are.
        named: prices and factors of the site, by which energy is multiplied as it is shown.
        kin: what the configuration stands next to on the site.
        mixes: those that differ from it in lengths alone, itself too; None: there are none.
    """
    head = configuration.headline
    spec, claims = head.run.spec, configuration.claims
    bars = figures.bar_figures(configuration)
    details = figures.detail_figures(configuration)
    answered, lasting = accuracy.section(configuration), long_run.section(configuration)
    drop = () if answered is None or answered.drop is None else (answered.drop,)
    lines = () if lasting is None else lasting.figures
    without = {ACCURACY} if answered is None else set()
    without |= {LONG_RUN} if lasting is None else set()
    stated, beside = statements.rows(configuration), related.section(configuration, kin, links)
    without |= set() if stated else {STATEMENTS}
    without |= {RELATED} if beside is None else set()
    group = numbers.energy_group(configuration)
    apart, not_apart = token_energy.section(configuration, mixes, group)
    folder = links.runs.get(head.run_id)
    run_file = RUN_FILE if folder else head.path.name
    source = (
        urljoin(links.address, f"{folder}/{RUN_FILE}") if folder and links.address else run_file
    )
    summary = tuple(summary_parts(configuration))
    root = urljoin(links.address, "../") if links.address else None
    permanent = cite.address(root, head.run_id)
    html = render_template(
        "report.html.j2",
        title=configuration.title,
        eyebrow=_eyebrow(head),
        summary=summary,
        notices=tuple(notices(configuration)),
        key_figures=tuple(numbers.key_figures(configuration)),
        facts=facts.facts(configuration),
        check=verification.control(links.assets, head.run_id, folder),
        bars=bars,
        details=details,
        accuracy=answered,
        long_run=lasting,
        results_note=numbers.results_note(claims),
        cards_note=numbers.cards_note(configuration),
        numbers=tuple(numbers.number_rows(configuration, named, apart)),
        # What is INVALID stands above the key figures.
        checks=[told for told in outcomes.listed(claims) if told[0] != outcomes.WORDS["INVALID"]],
        boards=boards.table(claims),
        roles=boards.roles(claims),
        replicas=replicas.table(claims),
        column=configuration.title,
        definitions=[METRICS[key] for key in dict.fromkeys(c.key for c in claims.metrics)],
        setup=setup.rows(configuration.setup, head.run.conditions.read_back, _seen(configuration)),
        board_names=_board_names(head),
        runs_per_config=len(claims.repeats),
        conditions=head.run.conditions,
        endpoint=spec.endpoint,
        not_covered=(*not_covered(claims), *not_apart),
        commands=commands(head, source),
        fetched=source != run_file,
        engine_command=engine_command(spec.setup.engine),
        outcomes=OUTCOMES,
        run_file=run_file,
        expected=expected(claims),
        cost=cost(head),
        digests=_digests(head),
        cite=cite.plain(configuration, permanent),
        bibtex=cite.bibtex(configuration, permanent),
        others=history.others(configuration),
        history=history.rows(configuration, links),
        history_order=history.order(configuration),
        related=beside,
        statements=stated,
        unheard=statements.unheard(configuration),
        struck=head.standing.retracted,
        note=spec.note,
        links=links,
        folder=folder,
    )
    return Page(
        title=configuration.title,
        description=" ".join(part for part, _ in summary)[:300],
        toc=tuple(entry for entry in TOC if entry[0] not in without),
        html=html,
        charts=tuple(f.chart for f in (*bars, *details, *lines, *drop) if f.chart is not None),
    )


def summary_parts(configuration: Configuration) -> Iterator[tuple[str, bool]]:
    """Yield (words, is a number to stress); joined by spaces they are the summary sentence."""
    claims, config = configuration.claims, configuration.setup
    where = f"on {text.boards(config.accelerator)} with {text.engine(config.engine)}"
    yield f"Within {text.slo(config.slo)}, {config.model.name} {where}", False
    rate, goodput = headline.rate(claims), headline.goodput(claims)
    if rate.value is None or goodput.value is None:
        if (held := numbers.held(claims)) is not None:
            yield "held", False
            yield held, True
            yield f"as its {METRICS['highest_pass_rate'].label.lower()} and", False
        yield f"has no goodput to report ({in_words(goodput.reason or rate.reason or '')}).", False
    else:
        passed = [r.highest_pass_urps for r in claims.repeats if r.highest_pass_urps is not None]
        failed = [r.lowest_fail_urps for r in claims.repeats if r.lowest_fail_urps is not None]
        if goodput.key == headline.LONG_RUN:
            yield "keeps", False
            yield f"{text.rate(round(rate.value * 1e6))} requests/s", True
            held = f"holds {_span(passed)} and fails at {_span(failed)} on short windows"
            yield f"in the long run (it {held}),", False
        else:
            yield "holds", False
            yield f"{_span(passed)} requests/s", True
            yield f"and fails at {_span(failed)}: at the boundary between them,", False
            yield f"{text.rate(round(rate.value * 1e6))} requests/s,", True
        yield "that is", False
        yield f"{text.amount(goodput.value, METRICS['goodput'])} output", True
        inputs = claims.metric("input_throughput")
        # It is of the measured boundary.
        if inputs.value is not None and goodput.key != headline.LONG_RUN:
            amount = text.amount(inputs.value, METRICS["input_throughput"])
            yield f"and about {amount} input tokens per second.", False
        else:
            yield "tokens per second.", False
    yield from _power_parts(configuration)
    score = claims.metric("accuracy")
    if score.value is not None:
        gate = config.accuracy_gate
        yield f"{text.amount(score.value, METRICS['accuracy'])}%", True
        yield f"right on {gate.label}, {answers.word(claims.gate, gate)}.", False
    elif claims.gate.outcome == "none":
        yield "Accuracy was not measured.", False
    else:
        yield f"Accuracy was not measured: {claims.gate.text}.", False
    n = len(claims.repeats)
    mode = configuration.headline.run.spec.protocol.mode
    yield f"{mode.capitalize()} mode, {text.counted(n, 'repeat')}.", False


def _power_parts(configuration: Configuration) -> Iterator[tuple[str, bool]]:
    claims = configuration.claims
    power, energy = claims.metric("board_power"), claims.metric("tokens_per_joule")
    if power.value is None:
        measured = outcomes.of(claims, "board_power") or outcomes.of(claims, "joules_per_token")
        told = "Power has no number to report" if measured else "Power was not measured"
        yield f"{told}.", False
        return
    watts = f"{text.amount(power.value, METRICS['board_power'])} W"
    yield instruments.DREW[configuration.setup.power.scope], False
    if energy.value is None:
        yield f"{watts}.", True
    else:
        yield f"{watts},", True
        yield f"{text.amount(energy.value, METRICS['tokens_per_joule'])} tokens per joule.", True


def _seen(configuration: Configuration) -> setup.Seen:
    windows = [r.window_s for r in configuration.claims.repeats if r.window_s is not None]
    bus = outcomes.find(configuration.claims, "bus_bandwidth").value
    return setup.Seen(min(windows, default=None), bus)


_CHOSEN = {
    "by process": "the engine's processes were seen on it",
    "by name": "named by the publisher",
    "all there are": "all that the instrument has",
}


def _board_names(head: ValidatedRun) -> tuple[str, ...]:
    """Each board of the energy, and how it came to be one of them; else what was read before."""
    log = head.evidence.power
    if log is None or not log.boards:
        return head.run.conditions.board_uuids
    return tuple(f"{board.uuid} ({_CHOSEN[board.chosen]})" for board in log.boards)


def _span(rates_urps: Sequence[int]) -> str:
    """One rate, or "a to b" of several repeats."""
    ends = dict.fromkeys(text.rate(end) for end in (min(rates_urps), max(rates_urps)))
    return " to ".join(ends)


def _eyebrow(head: ValidatedRun) -> str:
    workload = head.run.spec.setup.workload
    day = head.run.conditions.started[:10]
    return f"Report · {workload.name} v{workload.version} · measured {day}"


_GATE_NOTICES: Mapping[GateOutcome, str] = MappingProxyType(
    {
        "failed": "Accuracy gate failed.",
        "inconclusive": "Accuracy gate inconclusive.",
        "not run": "Accuracy gate not run.",
    }
)


def notices(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """Yield (lead, rest) of what a reader has to know before any number of the headline."""
    head, exclusions = configuration.headline, configuration.exclusions
    yield from statements.notices(head.standing, configuration.unpublished)
    gate = head.claims.gate
    lead = _GATE_NOTICES.get(gate.outcome)
    if lead is not None and gate.outcome == "failed":
        yield lead, answers.sentence(head.claims)
    for level, label, words in outcomes.listed(head.claims):
        if level == outcomes.WORDS["INVALID"]:
            yield f"{level}.", f"{label}: {words}."
    if head.run.simulated:
        yield (
            "Simulated.",
            "The engine was a simulator: these numbers say nothing about any product.",
        )
    if lead is not None and gate.outcome != "failed":
        yield lead, answers.sentence(head.claims)
    mode = head.run.spec.protocol.mode
    rank = "Listed, unranked." if exclusions else ""
    if mode != "full":
        lead, _, rest = facts.MODE_WORDS[mode].partition(". ")
        yield f"{lead}.", f"{rest} {rank}".strip()
    elif rank:
        # What a notice of the gate has said in full needs its name alone here.
        short = f"the {lead[0].lower()}{lead[1:-1]}" if lead else gate.text
        words = "; ".join(short if e.text == gate.text else e.text for e in exclusions)
        yield rank, f"{words[0].upper()}{words[1:]}."
    if head.run.status == "interrupted":
        yield "Interrupted.", "Stopped before the plan was done; what was measured is shown."


def not_covered(claims: Claims) -> tuple[tuple[str, str], ...]:
    """(what is not covered, why); what is not for one and the same reason stands together."""
    found: dict[str, list[str]] = {}
    for item in claims.not_covered:
        found.setdefault(in_words(item.why), []).append(item.what)
    return tuple(("; ".join(what), why) for why, what in found.items())


def commands(head: ValidatedRun, source: str) -> tuple[tuple[str, str], ...]:
    """(what it does, the command to type), each argument quoted for a POSIX shell.

    Args:
        head: the run to do again.
        source: its file as the reader has it, or its address.
    """
    spec = head.run.spec
    out = f"runs/{spec.label}-again.json"
    # Not the publisher's own address, which would be another engine or none.
    url = ["--url", "http://127.0.0.1:8000"] if spec.endpoint.start == "attach" else []
    lines = (
        ("1. Measure again and compare", ["reproduce", source, *url, "--out", out]),
        ("2. Verify and recompute what came out", ["verify", out]),
        ("3. Make its report", ["report", out, "--title", spec.title]),
    )
    return tuple((does, shlex.join(["tokenwatt-site", *words])) for does, words in lines)


def engine_command(engine: Engine) -> str | None:
    """Return how the engine was started, as a shell takes it; None: that is not recorded."""
    if not isinstance(engine.argv, tuple):
        return None
    return shlex.join([*(f"{k}={v}" for k, v in sorted(engine.environment.items())), *engine.argv])


_PERCENT = f"{100 * (SAME - 1):.0f}%"
OUTCOMES = (
    ("Reproduced, exit code 0", f"The 90% interval of new / original lies within {_PERCENT}."),
    ("Contradicted, 11", f"All of it lies beyond {_PERCENT}."),
    ("Inconclusive, 10", "Neither, or fewer than 3 launches on a side."),
    ("Not comparable, 12", "Another setup; every field that differs is listed."),
)
"""What a rerun may come to, and when."""


def expected(claims: Claims) -> str:
    """Say where a rerun should fall, or why that cannot be said."""
    claim = headline.goodput(claims)
    metric = METRICS[claim.key]
    n = len(claim.repeats)
    if claim.value is None:
        return f"Nothing can be expected: goodput was {text.reason(claim)}."
    if claim.new_launch_low is None or claim.new_launch_high is None:
        words = f"No band can be stated: n = {n}."
        if n == 2:
            words += (
                f" The two repeats gave {text.amount(claim.repeats[0], metric)} and"
                f" {text.amount(claim.repeats[1], metric)} {metric.unit}. A third equal one would"
                " fall between them with a chance of only 1 in 3."
            )
        return words
    return (
        f"{claim.label} of one new launch falls between"
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
    spec, promise = head.run.spec, head.promised.commitment
    return (
        ("Configuration", head.run.configuration),
        ("Run", f"sha256:{head.run_id}"),
        ("Workload", f"sha256:{spec.setup.workload.hash}"),
        ("Image", spec.setup.engine.image_digest),
        ("Model", spec.setup.model.digest),
        ("Journal head", f"sha256:{head.run.journal_head}"),
        *(() if promise is None else (("Commitment", f"sha256:{promise.committed.digest}"),)),
        *((f"Evidence: {e.role}", f"sha256:{e.sha256}") for e in head.run.evidence),
    )
