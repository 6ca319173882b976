"""The trials of a run as its journal tells them: checked against the plan, judged, or refused.

A verdict is a fact about one trial on one realisation: PASS, FAIL, or INVALID with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence import PowerLog, RequestRecord
from tokenwatt_site.goodput import Judgement, decide, judge, quantile
from tokenwatt_site.journal import Line
from tokenwatt_site.run import Verdict
from tokenwatt_site.spec import MIN_WINDOW_S, Objective, Spec
from tokenwatt_site.workload import Realisation, workload_of

MAX_LAG_NS = 1_000_000
LIMIT_SHARE = Fraction(5, 1000)
MIN_SENT_SHARE = Fraction(995, 1000)
MAX_LAST_SEND_SHARE = Fraction(1, 100)
MAX_CACHED_SHARE = Fraction(1, 100)


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a run is derived from, decoded. `power` is None where no board was read."""

    journal: tuple[Line, ...]
    requests: tuple[RequestRecord, ...]
    power: PowerLog | None


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial as the journal tells it, with its requests and the realisation it offered."""

    repeat: int
    number: int
    rate_urps: int
    started: str
    epoch_ns: int
    stopped_early: bool
    engine_alive: bool
    tail_ran_out: bool
    abandoned: bool
    realisation: Realisation
    records: tuple[RequestRecord, ...]

    @classmethod
    def from_journal(
        cls,
        start: Line,
        end: Line,
        realisation: Realisation,
        records: tuple[RequestRecord, ...],
        *,
        abandoned: bool = False,
    ) -> Trial:
        """Join the two lines of a trial with its requests.

        `abandoned`: the repeat was launched again later, so this trial is of another launch.
        """
        return cls(
            repeat=_integer(start, "repeat"),
            number=_integer(start, "trial"),
            rate_urps=_integer(start, "rate_urps"),
            started=start.at,
            epoch_ns=_integer(end, "epoch_ns"),
            stopped_early=end.data.get("stopped_early") is True,
            engine_alive=end.data.get("engine_alive") is True,
            tail_ran_out=end.data.get("tail_ran_out") is True,
            abandoned=abandoned,
            realisation=realisation,
            records=records,
        )

    @property
    def scored(self) -> tuple[RequestRecord, ...]:
        wanted = self.realisation.scored_rows
        return tuple(r for r in self.records if r.row in wanted)

    @property
    def window_ns(self) -> tuple[int, int]:
        """From the first to the last scored arrival, since the start of the trial."""
        due = self.realisation.due_ns(self.rate_urps)
        return due[self.realisation.scored_rows[0]], due[self.realisation.scored_rows[-1]]

    def judgements(self, slo: Sequence[Objective]) -> tuple[Judgement, ...]:
        pending = self.realisation.scored - len(self.scored)
        return tuple(judge(objective, self.scored, pending) for objective in slo)


def read_trials(spec: Spec, evidence: Evidence) -> tuple[Trial, ...]:
    """Join journal and requests, and check both against the realisation that the spec draws.

    Every planned row that came due is there once, in order, at its time and with its lengths; no
    request belongs to a trial that the journal does not name.

    Raises:
        InputError: naming the trial and what differs.
    """
    if not evidence.journal or evidence.journal[0].event != "open":
        raise InputError(Problem("does not begin with an open line", field="journal"))
    if (found := evidence.journal[0].data.get("configuration")) != spec.configuration_id:
        raise InputError(
            Problem(
                "was opened for another configuration",
                field="journal",
                found=str(found),
                expected=spec.configuration_id,
            )
        )
    grouped: dict[tuple[int, int], list[RequestRecord]] = {}
    for record in evidence.requests:
        grouped.setdefault((record.repeat, record.trial), []).append(record)
    ends = {_key(line): line for line in evidence.journal if line.event == "trial_end"}
    workload, protocol = workload_of(spec.setup), spec.protocol
    launched = {
        _integer(line, "repeat"): line.seq for line in evidence.journal if line.event == "launch"
    }
    drawn: dict[int, Realisation] = {}
    trials = []
    for line in evidence.journal:
        if line.event != "trial_start" or _key(line) not in ends:
            continue
        repeat, number = _key(line)
        if repeat not in drawn:
            drawn[repeat] = workload.realisation(
                repeat, lead_in=protocol.lead_in, scored=protocol.scored, tail=protocol.tail
            )
        trial = Trial.from_journal(
            line,
            ends[repeat, number],
            drawn[repeat],
            tuple(grouped.pop((repeat, number), ())),
            abandoned=line.seq < launched.get(repeat, 0),
        )
        _check_plan(trial)
        trials.append(trial)
    if grouped:
        raise InputError(
            Problem(
                "belong to trials that the journal does not name",
                field="requests",
                found=str(sorted(grouped)[:5]),
            )
        )
    return tuple(trials)


def _key(line: Line) -> tuple[int, int]:
    return _integer(line, "repeat"), _integer(line, "trial")


def _integer(line: Line, name: str) -> int:
    value = line.data.get(name)
    if type(value) is not int or value < 0:
        raise InputError(
            Problem("is no count", field=f"journal line {line.seq}.{name}", found=repr(value))
        )
    return value


def _check_plan(trial: Trial) -> None:
    due = trial.realisation.due_ns(trial.rate_urps)
    for position, record in enumerate(trial.records):
        row = trial.realisation.rows[position] if position < len(due) else None
        planned = row and (position, due[position], row.input_tokens, row.output_tokens)
        found = (record.row, record.due_ns, record.prompt_asked, record.output_asked)
        if planned != found:
            raise InputError(
                Problem(
                    f"row {position} is not the one that was planned",
                    field=f"requests of repeat {trial.repeat}, trial {trial.number}",
                    found=str(found),
                    expected=f"{planned} (row, due_ns, input, output)",
                )
            )
    if not trial.stopped_early and len(trial.records) <= trial.realisation.scored_rows[-1]:
        raise InputError(
            Problem(
                "scored rows are missing, and the trial was not stopped early",
                field=f"requests of repeat {trial.repeat}, trial {trial.number}",
                found=f"{len(trial.records)} rows",
                expected=f"at least {trial.realisation.scored_rows[-1] + 1}",
            )
        )


def invalid_reason(spec: Spec, trial: Trial) -> str | None:
    """Say why this trial is no measurement of the engine, or None. DESIGN 4 lists the limits."""
    records = trial.records
    if trial.abandoned:
        return "its launch was broken off; the repeat was done again on another"
    if not trial.engine_alive:
        return "the engine died"
    ttft_limits = [o.limit_ns for o in spec.setup.slo if o.metric == "ttft"]
    share = math.floor(LIMIT_SHARE * min(ttft_limits)) if ttft_limits else MAX_LAG_NS
    lags = [r.sent_ns - r.due_ns for r in records if r.sent_ns is not None]
    if 1000 * len(lags) < MIN_SENT_SHARE * 1000 * len(records):
        return f"only {len(lags)} of {len(records)} requests were sent"
    start, end = trial.window_ns
    checks: list[tuple[str, int, int]] = []
    if lags:
        checks.append(("p99 dispatch lag", quantile(lags, 0.99), max(MAX_LAG_NS, share)))
        latest = math.floor(MAX_LAST_SEND_SHARE * (end - start))
        checks.append(("lateness of the last send", lags[-1], max(latest, MAX_LAG_NS)))
    stamps = [r.uncertainty_ns for r in records if r.first_ns is not None]
    if stamps:
        checks.append(("p99 stamp uncertainty", quantile(stamps, 0.99), share))
    for what, found, limit in checks:
        if found > limit:
            return f"{what} {found / 1e6:.2f} ms, limit {limit / 1e6:.2f} ms"
    return _invalid_tokens(records) or _invalid_window(spec, trial)


def _invalid_tokens(records: Sequence[RequestRecord]) -> str | None:
    told = [(r.prompt_tokens, r) for r in records if r.prompt_tokens is not None]
    off = [
        (tokens, r.prompt_asked)
        for tokens, r in told
        if abs(tokens - r.prompt_asked) > max(2, r.prompt_asked // 100)
    ]
    if off:
        found, asked = off[0]
        return f"{len(off)} prompts had another length (asked {asked} tokens, engine saw {found})"
    cached = sum(r.cached_tokens or 0 for r in records)
    prompted = sum(tokens for tokens, _ in told)
    if cached > MAX_CACHED_SHARE * prompted:
        return f"{cached} of {prompted} prompt tokens came from the engine's cache"
    return None


def _invalid_window(spec: Spec, trial: Trial) -> str | None:
    start, end = trial.window_ns
    if spec.protocol.mode != "demo" and end - start < MIN_WINDOW_S * 10**9:
        return f"window of {(end - start) / 1e9:.0f} s, at least {MIN_WINDOW_S} s are needed"
    if trial.tail_ran_out and decide(trial.judgements(spec.setup.slo)) != "FAIL":
        return "the tail ended before the last scored request; raise protocol.tail"
    return None


def verdict(spec: Spec, trial: Trial) -> tuple[Verdict, str | None]:
    """Return (PASS | FAIL | INVALID, reason)."""
    if reason := invalid_reason(spec, trial):
        return "INVALID", reason
    judgements = trial.judgements(spec.setup.slo)
    outcome = decide(judgements)
    if outcome == "UNDECIDED":
        return "INVALID", "ended before its verdict was certain"
    failed = [
        f"{j.objective.label}: {j.misses} of {j.n} miss, {j.allowed} may"
        for j in judgements
        if j.outcome == "FAIL"
    ]
    return outcome, "; ".join(failed) or None
