"""The protocol from the first launch to the last trial, on disk as it happens.

Everything needed to go on after an interruption is in the journal and beside it, so a session is
resumed by opening the same folder again. A repeat is one launch: one that was broken off goes on
where its process is still the one that is attached, and else is done again from its start, and its
trials stay in the journal. When its trials are done, the same launch
is asked what the accuracy gate asks; what is missing of that is asked later, without the trials.
A repeat whose trials fail is left for later, and the others are done. After the last, an engine
model is fitted to all trials.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tokenwatt_site.errors import (
    EngineError,
    EnvironmentProblem,
    Interrupted,
    InvalidMeasurement,
    Problem,
    TokenwattError,
    UsageError,
)
from tokenwatt_site.journal import Entry
from tokenwatt_site.measure.accuracy.loaded import compare_alone
from tokenwatt_site.measure.accuracy.reference_run import Reference
from tokenwatt_site.measure.accuracy.sitting import (
    Scorer,
    Sittings,
    repeats_due,
    same_launch,
)
from tokenwatt_site.measure.accuracy.task import Task
from tokenwatt_site.measure.begun import begin
from tokenwatt_site.measure.clock import utc_now
from tokenwatt_site.measure.credential import authorisation
from tokenwatt_site.measure.endpoint import EngineFacts
from tokenwatt_site.measure.engine import RunningEngine, attach, launch
from tokenwatt_site.measure.fleet.senders import ALONE, Senders, Workers, senders
from tokenwatt_site.measure.headroom import held_text, highest_asked_urps, require_start
from tokenwatt_site.measure.instruments import Instruments
from tokenwatt_site.measure.modelling import fitted
from tokenwatt_site.measure.planning import plan
from tokenwatt_site.measure.preflight import (
    PROMPTS,
    Preflight,
    as_one,
    compare,
    preflight,
    require_descriptors,
    require_new_launch,
    require_restart,
)
from tokenwatt_site.measure.restart import restart
from tokenwatt_site.measure.roster import as_told, read_back_all, require_alike
from tokenwatt_site.measure.searching import (
    RESTARTED,
    Budget,
    Launched,
    Stopped,
    Trials,
    is_silent,
    target_of,
)
from tokenwatt_site.measure.selftest import self_test
from tokenwatt_site.measure.surroundings import surroundings
from tokenwatt_site.measure.tokenizer import prompts_for
from tokenwatt_site.measure.trial import Progress
from tokenwatt_site.measure.warmup import warm_up
from tokenwatt_site.measure.workfolder import Measured, WorkFolder, require_same_boards
from tokenwatt_site.model_shape.document import ModelDocument, headers_digest
from tokenwatt_site.prompts import Prompts, Words, trial_key
from tokenwatt_site.replicas import starts
from tokenwatt_site.run import ReadBack
from tokenwatt_site.spec import Spec
from tokenwatt_site.trace import Trace
from tokenwatt_site.trials import launches_of
from tokenwatt_site.validity import require_playable
from tokenwatt_site.windows import windows_of


@dataclass(frozen=True, slots=True)
class Events:
    """Where a session tells what it does: progress of a trial, and one line per step."""

    progress: Callable[[Progress], None]
    say: Callable[[str], None]


def measure(
    spec: Spec,
    folder: Path,
    events: Events,
    trace: Trace | None = None,
    *,
    keyid: str,
    model: ModelDocument | None = None,
    gpus: Sequence[str] = (),
    task: Task | None = None,
    scorer: Scorer | None = None,
    reference: Reference | None = None,
    budget_s: float | None = None,
    publisher_nonce: str | None = None,
    opened: Callable[[Entry], None] | None = None,
    workers: Workers = ALONE,
) -> Measured:
    """Run the protocol of `spec`, or what is missing of it, in `folder`.

    Args:
        spec: what to measure.
        folder: work in progress; what is there is kept.
        events: where progress goes.
        trace: the trace that `spec` plays; may be left out where `folder` has it already.
        keyid: of the key that is going to sign it; as `gpus`.
        model: the files of `endpoint.model_files`; as `trace`.
        gpus: boards of the engine, by UUID; left out where `folder` has a measurement.
        task: what the accuracy gate asks; left out where it asks nothing, or all answers are there.
        scorer: scores the replies to `task`, and goes with it.
        reference: whose answers they are compared with; as `gpus`.
        budget_s: how long it may take: nothing begins that would end later; None: as it takes.
        publisher_nonce: hex that a publisher gave, from which prompts are drawn too; as `gpus`.
        opened: gets the first line of a new measurement, when it is on disk and nothing is begun.
        workers: which processes send; alone: this one.

    Raises:
        UsageError: the variable of a key, user or password is not set, no board has such a name,
            the trace is not the one of the spec or too short, or a task is due and not given;
            nothing is begun.
        EnvironmentProblem: engine, disk or machine, or a repeat is missing whose trials failed;
            what was measured is kept in `folder`.
        InvalidMeasurement: the same rate was INVALID MAX_INVALID times, and no trial is valid.
        Interrupted: by the user, or the budget is spent.
    """
    budget = Budget(budget_s)
    authorisation(spec.endpoint.api_key_variable)
    private = surroundings(spec, os.environ)
    with (
        senders(workers, spec.endpoint.addresses, events.say) as sending,
        WorkFolder(folder, utc_now, replace(private, hosts=private.hosts | sending.hosts)) as work,
    ):
        if trace is not None:
            work.keep_trace(trace)
        if model is not None:
            work.keep_model(model)
        if task is not None and scorer is not None:
            keep, say = work.keep_answers, events.say
            sittings = Sittings(spec, task, scorer, work.path, work.journal, keep, say)
        elif repeats_due(spec, work.journal.lines):
            raise UsageError(
                Problem("asks a task, which is not given", field="setup.accuracy_gate.task")
            )
        else:
            sittings = None
        fresh = not work.journal.lines
        session = _Session(
            spec,
            work,
            events,
            gpus=gpus,
            sittings=sittings,
            reference=reference,
            keyid=keyid,
            publisher_nonce=publisher_nonce,
            budget=budget,
            sending=sending,
        )
        if fresh and opened is not None:
            opened(work.journal.lines[0])
        session.run()
        return work.measured(spec)


def kept(spec: Spec, folder: Path) -> Measured:
    """Return what an interrupted session left in `folder`."""
    with WorkFolder(folder, utc_now) as work:
        return work.measured(spec)


class _Session:
    def __init__(
        self,
        spec: Spec,
        work: WorkFolder,
        events: Events,
        *,
        gpus: Sequence[str],
        sittings: Sittings | None,
        reference: Reference | None,
        keyid: str,
        publisher_nonce: str | None,
        budget: Budget,
        sending: Senders,
    ) -> None:
        self._spec = spec
        self._events = events
        self._windows = windows_of(spec, work.trace())
        require_playable(spec, self._windows)
        self.work = work
        self._journal = work.journal
        self._sittings = sittings
        self._begun = begin(
            spec,
            work,
            gpus,
            reference,
            events.say,
            keyid=keyid,
            publisher_nonce=publisher_nonce,
        )
        self._budget = budget
        self._sending = sending
        self._trials = Trials(
            spec,
            self._windows,
            work,
            self._begun,
            events.progress,
            events.say,
            budget,
            sending.client,
        )
        self._trials.recall()

    def run(self) -> None:
        """Do the repeats that have no end line yet, and ask what has no answer yet."""
        failed: dict[int, TokenwattError] = {}
        try:
            for repeat in range(1, self._spec.protocol.repeats + 1):
                try:
                    self._missing_of(repeat)
                except Stopped as stopped:
                    self._leave(repeat, stopped)
                    failed[repeat] = stopped.error
            if failed:
                engine = all(isinstance(error, EngineError) for error in failed.values())
                raise (EngineError if engine else EnvironmentProblem)(
                    *(
                        Problem(f"repeat {repeat} is not measured: {error}")
                        for repeat, error in failed.items()
                    )
                )
            self._fit()
        except KeyboardInterrupt:
            if self._journal.lines[-1].event != "close":  # all was measured, and fitted again
                self._journal.append("interrupted", why="by the user")
            raise Interrupted("interrupted") from None
        except Interrupted as spent:
            self._journal.append("interrupted", why=str(spent))
            raise
        if self._journal.lines[-1].event != "close":
            self._journal.append("close")

    def _missing_of(self, repeat: int) -> None:
        """Do what is missing of a repeat."""
        sittings = self._due(repeat)
        done = repeat in self._ended_repeats()
        if done and sittings is None:
            return
        if not done:
            self._require_time(repeat)
            self._repeat(repeat, sittings)
        if sittings is not None:
            if not sittings.is_whole(repeat):
                self._sit_again(repeat, sittings)
            sittings.score(repeat)
        require_restart(self._spec, self._journal.lines, repeat, self.work.path)

    def _leave(self, repeat: int, stopped: Stopped) -> None:
        """Leave a repeat whose trials failed for later, and tell why, where the next can be done.

        Raises:
            TokenwattError: why it failed, where no other repeat would do better.
        """
        spec = self._spec
        measured = any(not is_silent(trial) for trial in self._trials.valid())
        anew = spec.endpoint.start == "launch" or spec.endpoint.restart is not None
        if not (measured and anew and spec.protocol.repeats > 1 and stopped.elsewhere):
            if measured and isinstance(stopped.error, InvalidMeasurement):
                raise EnvironmentProblem(*stopped.error.problems) from stopped
            raise stopped.error from stopped
        self._journal.append("interrupted", repeat=repeat, why=str(stopped.error))
        self._events.say(f"repeat {repeat} is left for later: {stopped.error}")

    def _require_time(self, repeat: int) -> None:
        """See that the budget has the time that a whole repeat takes at least."""
        if self._budget.seconds is None:
            return
        tops = [top.rate_urps for n in range(1, repeat) if (top := self._trials.top(n))]
        planned = plan(self._spec, self._windows, rate_urps=tops[-1] if tops else None)
        self._budget.require(planned.repeats[repeat - 1].seconds.low, f"repeat {repeat}")

    def _fit(self) -> None:
        """Fit an engine model to the trials of full mode, and keep it; once."""
        protocol, trials = self._spec.protocol, self._trials
        if protocol.mode != "full" or self.work.model_fit() is not None:
            return
        done = [trials.done(repeat) for repeat in range(1, protocol.repeats + 1)]
        fit = fitted(self._spec, self._windows, trials.valid(), done, self._events.say)
        if fit is not None:
            self.work.keep_model_fit(fit)

    def _due(self, repeat: int) -> Sittings | None:
        """Return what asks in this repeat; None: nothing is asked in it, or all is answered."""
        if self._sittings is None or not self._sittings.is_due(repeat):
            return None
        return self._sittings

    def _repeat(self, repeat: int, sittings: Sittings | None) -> None:
        """Do one repeat on a launch of its own: its trials, then what is asked of the same."""
        self._restart()
        with self._engine() as engine:
            with self._instruments(engine) as instruments, self._reading(instruments) as hung:
                launched = self._launched(repeat, engine, instruments, sittings)
                self._idle(launched, "before")
                gone = self._trials.run(launched)
                if gone is None:
                    self._idle(launched, "after")
            within = instruments.read_within_ns
            self._journal.append(
                "repeat_end",
                repeat=repeat,
                hung=hung,
                notes=instruments.notes,
                gone=gone,
                **({"read_within_ns": within} if within else {}),
            )
            if gone is not None:
                return
            if repeat <= self._spec.accuracy.repeats:
                self._under_load(launched)
            if sittings is not None:
                sittings.sit(repeat, engine, same_launch=True)

    def _under_load(self, launched: Launched) -> None:
        """Ask alone what was answered in the highest passing trial; nothing where none passed."""
        top = self._trials.top(launched.repeat)
        if top is None:
            return
        if top.number not in launched.texts:
            self._events.say(
                f"the answers of trial {top.number} were not kept when the repeat was broken off,"
                " so that none is asked again alone"
            )
            return
        compared = compare_alone(
            self._spec,
            top.realisation,
            target_of(self._spec, launched.engine),
            repeat=launched.repeat,
            trial=top.number,
            rate_urps=top.rate_urps,
            nonce=self._begun.nonce,
            prompts=launched.prompts,
            chat_overhead=launched.chat_overhead,
            texts=launched.texts[top.number],
            folder=self.work.path,
            say=self._events.say,
        )
        self.work.keep_under_load(launched.repeat, compared)
        self._journal.append("under_load", repeat=launched.repeat, trial=top.number)

    def _sit_again(self, repeat: int, sittings: Sittings) -> None:
        """Ask what has no answer yet, of the engine that was loaded or of another launch of it."""
        if sittings.is_whole(repeat):
            return
        with self._engine() as engine:
            with self._instruments(engine) as instruments:
                self._compared(engine, instruments)
            same = same_launch(self._spec, self._journal.lines, repeat, engine.started)
            sittings.sit(repeat, engine, same_launch=same)

    def _ended_repeats(self) -> set[int]:
        return {n.data["repeat"] for n in self._journal.lines if n.event == "repeat_end"}

    def _restart(self) -> None:
        """Have the command of the spec start an attached engine anew, once it was measured."""
        endpoint = self._spec.endpoint
        launches = [line for line in self._journal.lines if line.event == "launch"]
        if endpoint.restart is None or not launches:
            return
        self._events.say(f"restarting the engine: {shlex.join(endpoint.restart)}")
        restart(
            endpoint.restart,
            endpoint.addresses,
            starts=starts(launches[-1], endpoint.replicas),
            log=self.work.path / "restart.log",
            timeout_s=endpoint.ready_timeout_s,
            api_key_variable=endpoint.api_key_variable,
        )

    def _engine(self) -> AbstractContextManager[RunningEngine]:
        spec = self._spec
        if spec.endpoint.start == "attach":
            return attach(*spec.endpoint.addresses, api_key_variable=spec.endpoint.api_key_variable)
        argv = spec.setup.engine.argv
        return launch(
            argv if isinstance(argv, tuple) else (),
            spec.setup.engine.environment,
            log=self.work.path / "engine.log",
            ready_timeout_s=spec.endpoint.ready_timeout_s,
        )

    def _instruments(self, engine: RunningEngine) -> AbstractContextManager[Instruments]:
        return closing(self._begun.instruments(self._spec, engine))

    def _compared(
        self, engine: RunningEngine, instruments: Instruments
    ) -> tuple[tuple[EngineFacts, ...], tuple[ReadBack, ...]]:
        """Compare engine and boards with the spec and with earlier launches."""
        if (before := self.work.boards()) is not None:
            require_same_boards(before, instruments.boards)
        facts = read_back_all(engine.urls, self._spec.endpoint.api_key_variable)
        require_alike(self._spec, facts)
        model = self.work.model()
        digest = headers_digest(model) if model is not None else None
        return facts, compare(self._spec, facts[0], instruments.primary, digest)

    def _launched(
        self,
        repeat: int,
        engine: RunningEngine,
        instruments: Instruments,
        sittings: Sittings | None,
    ) -> Launched:
        """Compare the engine with the spec, and do all that goes before its trials."""
        spec, protocol = self._spec, self._spec.protocol
        require_new_launch(self._journal.lines, repeat, engine.starts)
        continues = self._continues(repeat, engine)
        facts, read_back_rows = self._compared(engine, instruments)
        # Fresh for every launch: an attached engine may still hold what an earlier one asked.
        key = trial_key(self._begun.nonce, spec.configuration_id, repeat, -self._launches())
        if spec.endpoint.prompt_kind == "text" and spec.endpoint.tokenizer is None:
            self._events.say("asking the engine's /tokenize which words are one token each")
        prompts = prompts_for(spec.endpoint, engine.url)
        # What the first pilot offers, or near it: for its lengths.
        band = self._windows.band_at(protocol.start_urps)
        require_descriptors(protocol, band, len(engine.urls))
        ready = self._preflight(engine, facts, prompts, key)
        if sittings is not None:
            sittings.require_answerable(engine, facts[0].context_tokens)
        realisation = self._windows.realisation(repeat, band)
        name = facts[0].name or "the engine"
        each = f", each of {len(facts)} replicas," if len(facts) > 1 else ""
        self._events.say(
            f"repeat {repeat} of {protocol.repeats}: {name}{each} passed the preflight"
        )
        if isinstance(prompts, Words):
            self._events.say(f"prompts are words: {prompts}")
        warm = warm_up(
            spec,
            realisation,
            target_of(spec, engine),
            key=key,
            prompts=prompts,
            chat_overhead=ready.chat_overhead_tokens,
            folder=self.work.path,
        )
        self._events.say(str(warm))
        most_urps = highest_asked_urps(spec, self._windows, repeat)
        held = self_test(spec, realisation, most_urps, self._sending)
        launch_line = self._journal.append(
            "launch",
            repeat=repeat,
            start=spec.endpoint.start,
            continues=continues,
            engine_started=engine.started,
            engine=facts[0].name,
            read_back=[item.to_json() for item in read_back_rows],
            prompts=prompts.to_json(),
            chat_overhead=ready.chat_overhead_tokens,
            accepts_unknown_model=ready.accepts_unknown_model,
            repeat_cached_tokens=ready.repeat_cached_tokens,
            longest_asked=ready.longest_asked,
            warm_up=warm.to_json(),
            self_test=held.to_json(),
            **({"replicas": [as_told(f).to_json() for f in facts]} if len(facts) > 1 else {}),
        )
        require_start(spec, realisation, held)
        self._events.say(held_text(realisation, held, most_urps))
        if engine.started is None and repeat > 1:
            self._events.say(
                "this engine does not tell when it started: whether it was restarted since the"
                " last repeat is your word, and the page says so"
            )
        broken_off = sum(
            line.event == "trial_end" and line.data["repeat"] == repeat
            for line in self._journal.lines
        )
        if continues:
            self._events.say(f"repeat {repeat} goes on, on the launch that it had trials on")
        elif broken_off:
            self._events.say(
                f"repeat {repeat} starts again, on one launch: {broken_off} earlier trials stay,"
                " INVALID"
            )
        return Launched(launch_line, repeat, engine, held, prompts, instruments)

    def _preflight(
        self, engine: RunningEngine, facts: Sequence[EngineFacts], prompts: Prompts, key: bytes
    ) -> Preflight:
        """Probe the engine, or each of its replicas, with prompts that none was asked before."""

        def probed(place: int) -> Preflight:
            def prompt(stream: int, tokens: int) -> Sequence[int] | str:
                return prompts.prompt(key, place * PROMPTS + stream, tokens)

            counted_by = prompts.tokenizer if isinstance(prompts, Words) else None
            return preflight(
                self._spec, engine.urls[place], facts[place], prompt, counted_by=counted_by
            )

        return as_one([probed(place) for place in range(len(facts))])

    def _continues(self, repeat: int, engine: RunningEngine) -> bool:
        """Tell whether this is the process on which the repeat was broken off, as far as it says.

        Not where it was at fault in a trial: then the repeat needs another.
        """
        own = launches_of(self._journal.lines).get(repeat)
        if self._spec.endpoint.start != "attach" or engine.started is None or own is None:
            return False
        ends = [n.data for n in self._journal.lines[own[0].seq :] if n.event == "trial_end"]
        alive = bool(ends) and all(end["engine_alive"] for end in ends)
        return alive and own[-1].data["engine_started"] == engine.started

    def _launches(self) -> int:
        return sum(line.event == "launch" for line in self._journal.lines)

    def _idle(self, launched: Launched, when: Literal["before", "after"]) -> None:
        """Read what the engine draws with its model loaded and no request."""
        instruments = launched.instruments
        if not instruments.has_power:
            return
        self._events.say(f"reading the power of the idle engine, {when} the trials")
        span = instruments.idle()
        if instruments.restarted():
            raise EngineError(f"{RESTARTED}, while it was idle")
        if span is None:
            self._events.say("the engine goes on computing without a request, so it is never idle")
            return
        self._journal.append(
            "idle", repeat=launched.repeat, when=when, start_ns=span[0], end_ns=span[1]
        )

    @contextmanager
    def _reading(self, instruments: Instruments) -> Iterator[list[str]]:
        """Read the instruments, and keep what they read of a launch that came to its trials.

        They run through its self-test too, so that it tests the client as it is in the trials. The
        list names in the end those that hung: their logs end before.
        """
        hung: list[str] = []
        before = self._launches()
        try:
            with instruments.running(hung.extend):
                yield hung
        finally:
            if self._launches() > before:
                self.work.keep_recorded(instruments.recorded())
            for name in hung:
                self._events.say(f"{name} does not answer any more; what was read of it is kept")
