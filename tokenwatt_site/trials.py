"""The trials of a run as its journal tells them: checked against the plan, judged, or refused.

A verdict is a fact about one trial on one realisation: PASS, FAIL, or INVALID with the reason.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence import PowerLog, RequestRecord, Status
from tokenwatt_site.goodput import Judgement, decide, judge, quantile
from tokenwatt_site.journal import Entry
from tokenwatt_site.run import SIMULATED_ENGINE, Verdict
from tokenwatt_site.spec import MIN_WINDOW_S, Objective, Spec
from tokenwatt_site.workload import Realisation, workload_of

MAX_LAG_NS = 1_000_000
LIMIT_SHARE = Fraction(5, 1000)
MIN_SENT_SHARE = Fraction(995, 1000)
MAX_LAST_SEND_SHARE = Fraction(1, 100)
MAX_CACHED_SHARE = Fraction(1, 100)
MAX_UNSCORED_FAILED_SHARE = Fraction(1, 100)


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a run is derived from, decoded. `power` is None where no board was read."""

    journal: tuple[Entry, ...]
    requests: tuple[RequestRecord, ...]
    power: PowerLog | None


_NO_FAILURE = frozenset({Status.OK, Status.CENSORED})


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a trial is no measurement. `transient`: another try may do better."""

    reason: str
    transient: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial as the journal tells it, with its requests and the realisation it offered.

    `abandoned`: the repeat was launched again later, so this trial is of another launch.
    `chat_overhead` is how many tokens the chat template adds; 0 for completions.
    """

    repeat: int
    number: int
    rate_urps: int
    started: str
    epoch_ns: int
    engine_alive: bool
    abandoned: bool
    chat_overhead: int
    realisation: Realisation
    due_ns: tuple[int, ...]
    records: tuple[RequestRecord, ...]

    @classmethod
    def from_journal(
        cls,
        launch: Entry,
        start: Entry,
        end: Entry,
        realisation: Realisation,
        records: tuple[RequestRecord, ...],
        *,
        abandoned: bool = False,
    ) -> Trial:
        """Join the entries of a trial with its requests."""
        rate_urps = _integer(start, "rate_urps", least=1)
        return cls(
            repeat=_integer(start, "repeat"),
            number=_integer(start, "trial"),
            rate_urps=rate_urps,
            started=start.at,
            epoch_ns=_integer(end, "epoch_ns"),
            engine_alive=end.data.get("engine_alive") is True,
            abandoned=abandoned,
            chat_overhead=_integer(launch, "chat_overhead"),
            realisation=realisation,
            due_ns=realisation.due_ns(rate_urps),
            records=records,
        )

    @property
    def scored(self) -> tuple[RequestRecord, ...]:
        rows = self.realisation.scored_rows
        return self.records[rows.start : rows.stop]

    @property
    def window_ns(self) -> tuple[int, int]:
        """From the first to the last scored arrival, since the start of the trial."""
        rows = self.realisation.scored_rows
        return self.due_ns[rows.start], self.due_ns[rows.stop - 1]

    @property
    def stopped_early(self) -> bool:
        """Whether it ended before its last scored request did."""
        scored = self.scored
        return len(scored) < self.realisation.scored or any(
            r.status is Status.CENSORED for r in scored
        )

    @property
    def scored_end_ns(self) -> int:
        """When the last scored request ended, or was looked at last."""
        return max((r.end_ns for r in self.scored), default=0)

    @property
    def complete(self) -> int:
        """How many scored requests ended with all their tokens."""
        return sum(r.status is Status.OK for r in self.scored)

    @property
    def failures(self) -> dict[str, int]:
        """How many of all requests ended badly, by status in lower case."""
        ended = Counter(r.status for r in self.records)
        return {s.name.lower(): n for s, n in sorted(ended.items()) if s not in _NO_FAILURE}

    def judgements(self, slo: Sequence[Objective]) -> tuple[Judgement, ...]:
        scored = self.scored
        pending = self.realisation.scored - len(scored)
        return tuple(judge(objective, scored, pending) for objective in slo)


@dataclass(frozen=True, slots=True)
class Told:
    """What a journal tells of engine and instruments; a run's conditions say the same."""

    simulated: bool
    stamps: Literal["kernel", "user space"]
    read_back: JsonValue

    @classmethod
    def by(cls, journal: Sequence[Entry]) -> Told:
        launches = [entry.data for entry in journal if entry.event == "launch"]
        stamps = [entry.data.get("stamps") for entry in journal if entry.event == "trial_end"]
        return cls(
            simulated=any(launch.get("engine") == SIMULATED_ENGINE for launch in launches),
            stamps="kernel" if stamps and set(stamps) == {"kernel"} else "user space",
            read_back=launches[-1].get("read_back") if launches else [],
        )


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
    launches = {
        _integer(line, "repeat"): line for line in evidence.journal if line.event == "launch"
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
        if repeat not in launches:
            raise InputError(
                Problem("has no launch", field="journal", found=f"repeat {repeat} of a trial")
            )
        trial = Trial.from_journal(
            launches[repeat],
            line,
            ends[repeat, number],
            drawn[repeat],
            tuple(grouped.pop((repeat, number), ())),
            abandoned=line.seq < launches[repeat].seq,
        )
        _check_plan(trial)
        _check_decided(spec, trial)
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


def _key(line: Entry) -> tuple[int, int]:
    return _integer(line, "repeat"), _integer(line, "trial")


def _integer(line: Entry, name: str, least: int = 0) -> int:
    value = line.data.get(name)
    if type(value) is not int or value < least:
        raise InputError(
            Problem(
                "is no such number",
                field=f"journal line {line.seq}.{name}",
                found=repr(value),
                expected=f"an integer of at least {least}",
            )
        )
    return value


def _check_plan(trial: Trial) -> None:
    rows = trial.realisation.rows
    field = f"requests of repeat {trial.repeat}, trial {trial.number}"
    for position, record in enumerate(trial.records):
        row = rows[position] if position < len(rows) else None
        planned = row and (
            position,
            trial.due_ns[position],
            row.input_tokens,
            row.output_tokens,
        )
        found = (record.row, record.due_ns, record.prompt_asked, record.output_asked)
        if planned != found:
            raise InputError(
                Problem(
                    f"row {position} is not the one that was planned",
                    field=field,
                    found=str(found),
                    expected=f"{planned} (row, due_ns, input, output)",
                )
            )
    # The load goes on until the last scored request ends: what came due by then was sent.
    wanted = bisect_left(trial.due_ns, trial.scored_end_ns)
    if len(trial.records) < wanted:
        raise InputError(
            Problem(
                "rows are missing that came due before the trial ended",
                field=field,
                found=f"{len(trial.records)} rows",
                expected=f"at least {wanted}",
            )
        )


def _check_decided(spec: Spec, trial: Trial) -> None:
    """A trial goes on until its verdict is certain; requests cannot be left out to hide one."""
    if trial.engine_alive and decide(trial.judgements(spec.setup.slo)) == "UNDECIDED":
        raise InputError(
            Problem(
                "stop before the verdict was certain, and the engine lived",
                field=f"requests of repeat {trial.repeat}, trial {trial.number}",
                found=f"{len(trial.records)} rows",
            )
        )


def highest_rate_urps(spec: Spec, realisation: Realisation) -> int:
    """Return the highest rate at which this realisation fills engine and window as its mode asks.

    Rows are fixed, so a higher rate makes a shorter window. Demo mode asks for nothing.
    """
    if spec.protocol.mode == "demo":
        return round(spec.protocol.max_rate * 1e6)
    rows, base_urps = realisation.scored_rows, 1_000_000
    due = realisation.due_ns(base_urps)
    ratios = [Fraction(due[rows.stop - 1] - due[rows.start], MIN_WINDOW_S * 10**9)]
    if (lead_ns := fill_ns(spec)) > 0:
        ratios.append(Fraction(due[rows.start], lead_ns))
    # 1e-6 below: due times are rounded down.
    return min(math.floor(min(ratios) * base_urps) - 1, round(spec.protocol.max_rate * 1e6))


def fill_ns(spec: Spec) -> int:
    """Return how long a lead-in must load the engine: 2 x longest answer x TPOT limit."""
    limits = [o.limit_ns for o in spec.setup.slo if o.metric == "tpot"]
    return 2 * spec.setup.output_tokens.longest * min(limits, default=0)


def fault(spec: Spec, trial: Trial) -> Fault | None:
    """Say why this trial is no measurement of the engine, or None. `method` lists the limits."""
    if trial.abandoned:
        return Fault("the measurement was broken off; the repeat was done again from its start")
    if not trial.engine_alive:
        return Fault("the engine died")
    return (
        _client_fault(spec, trial)
        or _token_fault(trial)
        or _window_fault(spec, trial)
        or _load_fault(spec, trial)
    )


def _client_fault(spec: Spec, trial: Trial) -> Fault | None:
    records = trial.records
    unsent = sum(r.status is Status.NOT_SENT for r in records)
    if len(records) - unsent < MIN_SENT_SHARE * len(records):
        return Fault(f"{unsent} of {len(records)} requests could not be sent", transient=True)
    ttft_limits = [o.limit_ns for o in spec.setup.slo if o.metric == "ttft"]
    share = math.floor(LIMIT_SHARE * min(ttft_limits)) if ttft_limits else MAX_LAG_NS
    lags = [r.sent_ns - r.due_ns for r in records if r.sent_ns is not None]
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
            text = f"{what} {found / 1e6:.2f} ms, limit {limit / 1e6:.2f} ms"
            return Fault(text, transient=True)
    return None


def _token_fault(trial: Trial) -> Fault | None:
    # A chat template alone may be longer than a short prompt; preflight measured it.
    least = trial.chat_overhead + 1 if trial.chat_overhead else 0
    told = [(r.prompt_tokens, max(r.prompt_asked, least)) for r in trial.records if r.prompt_tokens]
    off = [(found, asked) for found, asked in told if abs(found - asked) > max(2, asked // 100)]
    if off:
        found, asked = off[0]
        return Fault(
            f"{len(off)} prompts had another length (asked {asked} tokens, engine saw {found})"
        )
    more = sum((r.output_tokens or 0) > r.output_asked for r in trial.records)
    if more:
        return Fault(f"{more} answers had more tokens than were asked for")
    cached = sum(r.cached_tokens or 0 for r in trial.records)
    prompted = sum(found for found, _ in told)
    if cached > MAX_CACHED_SHARE * prompted:
        return Fault(f"{cached} of {prompted} prompt tokens came from the engine's cache")
    return None


def _window_fault(spec: Spec, trial: Trial) -> Fault | None:
    if spec.protocol.mode == "demo":
        return None
    start, end = trial.window_ns
    if end - start < MIN_WINDOW_S * 10**9:
        return Fault(f"window of {(end - start) / 1e9:.0f} s, at least {MIN_WINDOW_S} s are needed")
    if start < fill_ns(spec):
        return Fault(
            f"lead-in of {start / 1e9:.0f} s, at least {fill_ns(spec) / 1e9:.0f} s are needed"
        )
    return None


def _load_fault(spec: Spec, trial: Trial) -> Fault | None:
    """Say why a trial that did not fail was not under the load that was planned."""
    judgements = trial.judgements(spec.setup.slo)
    if unmeasured := [j.objective.label for j in judgements if not j.measured]:
        return Fault(f"{', '.join(unmeasured)} was measured on no request")
    if decide(judgements) == "FAIL":
        return None
    if trial.due_ns[-1] < trial.scored_end_ns:
        return Fault("the tail ended before the last scored request; raise protocol.tail")
    rows = trial.realisation.scored_rows
    others = [r for r in trial.records if r.row not in rows and r.status is not Status.CENSORED]
    failed = sum(r.status is not Status.OK for r in others)
    if failed > MAX_UNSCORED_FAILED_SHARE * len(others):
        return Fault(f"{failed} of {len(others)} lead-in and tail requests failed")
    return None


def verdict(spec: Spec, trial: Trial) -> tuple[Verdict, str | None]:
    """Return (PASS | FAIL | INVALID, reason)."""
    if found := fault(spec, trial):
        return "INVALID", found.reason
    failed = [
        f"{j.objective.label}: {j.misses} of {j.n} miss, {j.allowed} may"
        for j in trial.judgements(spec.setup.slo)
        if j.outcome == "FAIL"
    ]
    if not failed:
        return "PASS", None
    failed += [f"{n} {name.replace('_', ' ')}" for name, n in trial.failures.items()]
    return "FAIL", "; ".join(failed)
