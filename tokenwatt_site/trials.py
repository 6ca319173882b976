"""The trials of a run as its journal tells them: checked against the plan, judged, or refused.

A verdict is a fact about one trial on one realisation: PASS, FAIL, or INVALID with the reason.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ValidationError

from tokenwatt_site.canonical import JsonValue, canonical_bytes
from tokenwatt_site.engine_model.document import ModelFit
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.answers import AccuracyLog
from tokenwatt_site.evidence.engine import EngineLog
from tokenwatt_site.evidence.power import PowerLog
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.evidence.under_load import UnderLoadLog
from tokenwatt_site.goodput import Judgement, decide, judge
from tokenwatt_site.journal import Entry
from tokenwatt_site.model_shape.document import ModelDocument
from tokenwatt_site.replicas import after_trial, at_launch, changed_replica
from tokenwatt_site.run import SIMULATED_ENGINE, SelfTest
from tokenwatt_site.spec import Objective, Spec
from tokenwatt_site.trace import Trace
from tokenwatt_site.windows import Band, Windows, windows_of
from tokenwatt_site.workload import Realisation


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a run is derived from, decoded.

    Attributes:
        journal: every line.
        requests: every record.
        power: what `setup.power.sensor` read; None where it read nothing.
        trace: what the workload plays; None where it plays none.
        beside: what other instruments read, each with its own scope.
        engine: the engine's own counters; None where it exports none.
        model: the model's own files; None where the spec names none.
        accuracy: answers to the gate's task; None where none were asked for.
        reference: those of the run that they are compared with; None where there is none.
        under_load: answers under load held against the same alone; None where none were.
        model_fit: the engine model that was fitted to the trials; None where none was.
    """

    journal: tuple[Entry, ...]
    requests: tuple[RequestRecord, ...]
    power: PowerLog | None
    trace: Trace | None = None
    beside: tuple[PowerLog, ...] = ()
    engine: EngineLog | None = None
    model: ModelDocument | None = None
    accuracy: AccuracyLog | None = None
    reference: AccuracyLog | None = None
    under_load: UnderLoadLog | None = None
    model_fit: ModelFit | None = None


MAX_WORKERS = 1024
"""Client processes of one trial."""

_NO_FAILURE = frozenset({Status.OK, Status.CENSORED})


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial as the journal tells it, with its requests and the realisation it offered.

    `abandoned`: the repeat was launched again later, so this trial is of another launch.
    `chat_overhead` is how many tokens the engine adds to a text: of the chat template, or of what
    begins a completion's prompt; 0 for token ids. `client_cpu_ppm` is the processor time of the
    thread that sent, in 1e-6 of the time that the trial took, `clock_step_ns` by how much the wall
    clock was set in that time, and `self_test` what the client held before. Where several processes
    sent, `client_cpu_ppm` is of the busiest, `offset_bounds_ns` of each how far its clock may have
    been off, and `lost` names one that ended in the trial; else they are empty and None. `changed`
    names a replica that was not there any more after it, or was another; then the engine is not
    alive.
    """

    repeat: int
    number: int
    rate_urps: int
    started: str
    epoch_ns: int
    engine_alive: bool
    abandoned: bool
    chat_overhead: int
    stamps: Literal["kernel", "user space"]
    client_cpu_ppm: int
    clock_step_ns: int
    self_test: SelfTest
    band: Band
    realisation: Realisation
    due_ns: tuple[int, ...]
    records: tuple[RequestRecord, ...]
    offset_bounds_ns: tuple[int, ...] = ()
    lost: str | None = None
    changed: str | None = None
    _judged: dict[tuple[Objective, ...], tuple[Judgement, ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    @classmethod
    def from_journal(
        cls,
        launch: Entry,
        start: Entry,
        end: Entry,
        realisation: Realisation,
        records: tuple[RequestRecord, ...],
        *,
        band: Band,
        abandoned: bool = False,
        replicas: int = 1,
    ) -> Trial:
        """Join the entries of a trial with its requests; `replicas` are asked apart."""
        rate_urps = _integer(start, "rate_urps", least=1)
        changed = changed_replica(at_launch(launch, replicas), after_trial(end, replicas))
        return cls(
            repeat=_integer(start, "repeat"),
            number=_integer(start, "trial"),
            rate_urps=rate_urps,
            started=start.at,
            epoch_ns=_integer(end, "epoch_ns"),
            engine_alive=end.data.get("engine_alive") is True and changed is None,
            abandoned=abandoned,
            chat_overhead=_integer(launch, "chat_overhead"),
            stamps="kernel" if end.data.get("stamps") == "kernel" else "user space",
            client_cpu_ppm=_integer(end, "client_cpu_ppm"),
            clock_step_ns=_integer(end, "clock_step_ns"),
            self_test=self_test_of(launch),
            band=band,
            realisation=realisation,
            due_ns=realisation.due_ns(rate_urps),
            records=records,
            offset_bounds_ns=_offset_bounds(end),
            lost=_lost(end),
            changed=changed,
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
    def window_ns_of_run(self) -> tuple[int, int]:
        """The window on the clock of `epoch_ns`, which is that of all instruments."""
        start_ns, end_ns = self.window_ns
        return self.epoch_ns + start_ns, self.epoch_ns + end_ns

    @property
    def length_ns(self) -> int:
        """Of the window."""
        start_ns, end_ns = self.window_ns
        return end_ns - start_ns

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
        """Judge each objective over the scored requests; verdict and claims both ask, so once."""
        asked = tuple(slo)
        if asked not in self._judged:
            scored = self.scored
            pending = self.realisation.scored - len(scored)
            self._judged[asked] = tuple(judge(objective, scored, pending) for objective in asked)
        return self._judged[asked]


@dataclass(frozen=True, slots=True)
class Told:
    """What a journal tells of engine and instruments; a run's conditions say the same.

    `self_test` is that of the launch whose client held least, of those that count, `workers` how
    many client processes the trial had that had most; None: one alone in all of them.
    """

    simulated: bool
    stamps: Literal["kernel", "user space"]
    read_back: JsonValue
    self_test: SelfTest
    workers: int | None

    @classmethod
    def by(cls, journal: Sequence[Entry]) -> Told:
        """Read it from a journal.

        Raises:
            InputError: there is no launch, or one that counts has no self-test, or a trial tells no
                bounds of clocks where it should.
        """
        lines = [entry for entry in journal if entry.event == "launch"]
        if not lines:
            raise InputError(Problem("tells of no launch", field="journal"))
        launches = [entry.data for entry in lines]
        tests = [self_test_of(entry) for own in launches_of(journal).values() for entry in own]
        ends = [entry for entry in journal if entry.event == "trial_end"]
        stamps = [entry.data.get("stamps") for entry in ends]
        return cls(
            simulated=any(launch.get("engine") == SIMULATED_ENGINE for launch in launches),
            stamps="kernel" if stamps and set(stamps) == {"kernel"} else "user space",
            read_back=launches[-1].get("read_back"),
            self_test=min(tests, key=lambda test: test.events_per_s),
            workers=max((len(_offset_bounds(end)) for end in ends), default=0) or None,
        )


def launches_of(journal: Sequence[Entry]) -> dict[int, tuple[Entry, ...]]:
    """Return by repeat the launch lines that count: the last, and those that it goes on from.

    A session that finds the attached process of a repeat that was broken off goes on with it.
    """
    found: dict[int, tuple[Entry, ...]] = {}
    for line in journal:
        if line.event == "launch":
            repeat = _integer(line, "repeat")
            before = found.get(repeat, ()) if line.data.get("continues") is True else ()
            found[repeat] = (*before, line)
    return found


def self_test_of(launch: Entry) -> SelfTest:
    """Return what the client held before the trials of a launch.

    Raises:
        InputError: what stands there is no self-test, or nothing does.
    """
    try:
        return SelfTest.model_validate_json(canonical_bytes(launch.data.get("self_test")))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(
            Problem(
                f"is no self-test: {first['msg']}",
                field=".".join((f"journal line {launch.seq}.self_test", *map(str, first["loc"]))),
                found=repr(first["input"])[:80],
            )
        ) from error


def read_trials(spec: Spec, evidence: Evidence) -> tuple[Trial, ...]:
    """Join journal and requests, and check both against the realisation that the spec draws.

    Every planned row that came due is there once, in order, at its time and with its lengths; no
    request belongs to a trial that the journal does not name.

    Raises:
        InputError: naming the trial and what differs.
        SpecError: the workload cannot be drawn; see `workload.workload_of`.
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
    windows = windows_of(spec, evidence.trace)
    launches = launches_of(evidence.journal)
    trials = []
    for line in evidence.journal:
        if line.event != "trial_start" or _key(line) not in ends:
            continue
        repeat, number = _key(line)
        if repeat not in launches:
            raise InputError(
                Problem("has no launch", field="journal", found=f"repeat {repeat} of a trial")
            )
        band, own = band_of(windows, line), launches[repeat]
        trial = Trial.from_journal(
            next((launch for launch in reversed(own) if launch.seq < line.seq), own[-1]),
            line,
            ends[repeat, number],
            windows.realisation(repeat, band),
            tuple(grouped.pop((repeat, number), ())),
            band=band,
            abandoned=line.seq < own[0].seq,
            replicas=spec.endpoint.replicas,
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


def band_of(windows: Windows, start: Entry) -> Band:
    """Return the band of which a trial offered the rows, by the line of its start.

    Raises:
        InputError: no band begins where the line says.
    """
    low_urps = _integer(start, "band")
    if (band := windows.band_from(low_urps)) is not None:
        return band
    raise InputError(
        Problem(
            "is where no band of rates begins",
            field=f"journal line {start.seq}.band",
            found=str(low_urps),
            expected="one of " + ", ".join(str(band.low_urps) for band in windows.bands),
        )
    )


def tokens_in_window(records: Sequence[RequestRecord], start_ns: int, end_ns: int) -> float:
    """Return the output tokens that arrived in [start_ns, end_ns].

    The first event's tokens arrive at first_ns, the others evenly from there to last_ns.
    """
    parts = []
    for r in records:
        if r.first_ns is None or r.last_ns is None or r.output_tokens is None:
            continue
        first = r.first_tokens or 1
        span = r.last_ns - r.first_ns
        at_first = first if span > 0 else r.output_tokens
        parts.append(float(at_first) if start_ns <= r.first_ns <= end_ns else 0.0)
        inside = min(r.last_ns, end_ns) - max(r.first_ns, start_ns)
        if span > 0 and inside > 0:
            parts.append((r.output_tokens - first) * inside / span)
    return math.fsum(parts)


def prompt_length(r: RequestRecord) -> int:
    """Return the tokens of a prompt: as the engine tells them, else as they were asked for."""
    return r.prompt_asked if r.prompt_tokens is None else r.prompt_tokens


def prompt_tokens_in_window(records: Sequence[RequestRecord], start_ns: int, end_ns: int) -> int:
    """Return the prompt tokens that were done with in [start_ns, end_ns]: whose answer began."""
    return sum(
        prompt_length(r)
        for r in records
        if r.first_ns is not None and start_ns <= r.first_ns <= end_ns
    )


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


def _offset_bounds(end: Entry) -> tuple[int, ...]:
    """Return how far the clocks of several client processes were off; empty: one sent alone."""
    found = end.data.get("offset_bounds_ns", [])
    plain = isinstance(found, list) and all(type(bound) is int and bound >= 0 for bound in found)
    if not plain or len(found) == 1 or len(found) > MAX_WORKERS:
        raise InputError(
            Problem(
                "is no list of bounds",
                field=f"journal line {end.seq}.offset_bounds_ns",
                found=repr(found)[:80],
                expected=f"2 to {MAX_WORKERS} integers of at least 0, or no such field",
            )
        )
    return tuple(found)


def _lost(end: Entry) -> str | None:
    found = end.data.get("lost")
    if found is None or isinstance(found, str):
        return found
    raise InputError(
        Problem(
            "is no text",
            field=f"journal line {end.seq}.lost",
            found=repr(found)[:80],
            expected="how a client process was lost, or null",
        )
    )


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
    """A trial goes on until its verdict is certain; requests cannot be left out to hide one.

    One whose engine or client process was lost has no verdict that they could hide.
    """
    if (
        trial.engine_alive
        and trial.lost is None
        and decide(trial.judgements(spec.setup.slo)) == "UNDECIDED"
    ):
        raise InputError(
            Problem(
                "stop before the verdict was certain, and the engine lived",
                field=f"requests of repeat {trial.repeat}, trial {trial.number}",
                found=f"{len(trial.records)} rows",
            )
        )
