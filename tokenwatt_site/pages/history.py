"""The runs of a configuration beside its headline: the table, and one line about the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import headline, numbers, statements, text
from tokenwatt_site.pages.page import Links
from tokenwatt_site.trust.verify import ValidatedRun

STATEMENTS_FILE = "run.att.jsonl"
"""The name of a file of statements on the site, beside the run's."""

COMMITMENT_FILE = "run.commit.json"
COMMITMENT_STATEMENTS_FILE = "run.commit.att.jsonl"
"""Those of what the run was committed to before, and of who saw that."""

MAX_LISTED = 4
"""Of so many other runs each value is told; of more, their range."""


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One run. `scored` is per trial; `missing` stands in place of a goodput that there is not.

    `goodput` is the measured one, that every run may have; `long_run` None: not corrected. `marks`
    is what stands against the run, and it is `struck` through where its publisher took it back.
    `evidence` has the files of its statements and its commitment too.
    """

    started: str
    run_id: str
    signer: str
    mode: str
    repeats: int
    scored: int
    goodput: str | None
    missing: str
    long_run: str | None
    folder: str | None
    marks: tuple[str, ...]
    struck: bool
    evidence: tuple[tuple[str, str], ...]


def rows(configuration: Configuration, links: Links) -> tuple[HistoryRow, ...]:
    """Return one row per run, in the order of the configuration."""
    return tuple(
        _row(run, links.runs.get(run.run_id), statements.marks(run, configuration.unpublished))
        for run in configuration.runs
    )


def _row(run: ValidatedRun, folder: str | None, marks: tuple[str, ...]) -> HistoryRow:
    claim, held = run.claims.metric("goodput"), numbers.held(run.claims)
    lasting = run.claims.metric(headline.LONG_RUN)
    interrupted = ", interrupted" if run.run.status == "interrupted" else ""
    return HistoryRow(
        started=run.run.conditions.started[:16].replace("T", " "),
        run_id=run.run_id,
        signer=run.signer or f"unknown key {run.keyid}",
        mode=f"{run.run.spec.protocol.mode}{interrupted}",
        repeats=len(run.claims.repeats),
        scored=run.claims.repeats[0].scored if run.claims.repeats else 0,
        goodput=None if claim.value is None else text.amount(claim.value, METRICS["goodput"]),
        long_run=None
        if lasting.value is None
        else text.amount(lasting.value, METRICS[lasting.key]),
        missing=text.reason(claim) + ("" if held is None else f"; {held} held"),
        folder=folder,
        marks=marks,
        struck=run.standing.retracted,
        evidence=tuple((name, f"{folder}/{path}") for name, path in files(run) if folder),
    )


def files(run: ValidatedRun) -> Iterator[tuple[str, str]]:
    """Yield (what it is, path beside the run file) of everything that is published with a run."""
    yield from ((e.role, e.path) for e in run.run.evidence)
    if run.standing.told:
        yield "statements", STATEMENTS_FILE
    if (promise := run.promised.commitment) is not None:
        yield "commitment", COMMITMENT_FILE
        if promise.statements:
            yield "statements about the commitment", COMMITMENT_STATEMENTS_FILE


def order(configuration: Configuration) -> str:
    """Say how the rows are ordered."""
    started = [run.run.conditions.started for run in configuration.runs]
    if started == sorted(started, reverse=True):
        return "Newest first; the first is the headline."
    return "The first is the headline; then full before quick before demo, newest first."


def others(configuration: Configuration) -> str:
    """Say what the runs beside the headline gave; empty where there are none."""
    head, hidden = configuration.headline, configuration.unpublished
    rest = [r for r in configuration.runs[1:] if configuration.preview or r.run_id not in hidden]
    metric = METRICS["goodput"]
    found = [run.claims.metric("goodput").value for run in rest]
    known = [value for value in found if value is not None]
    earlier = all(run.run.conditions.started < head.run.conditions.started for run in rest)
    kind = "earlier run" if earlier else "other run"
    parts = []
    if known:
        values = text.joined(text.amount(value, metric) for value in known)
        if len(known) > MAX_LISTED:
            values = f"{text.amount(min(known), metric)} to {text.amount(max(known), metric)}"
        parts.append(f"{text.counted(len(known), kind)} gave {values} {metric.unit}, measured")
    if missing := len(found) - len(known):
        parts.append(f"{missing if known else text.counted(missing, kind)} gave no goodput")
    return "; ".join(parts)
