"""The protocol from the first launch to the last trial, on disk as it happens.

Everything needed to go on after an interruption is in the journal and beside it, so a session is
resumed by opening the same folder again. A repeat is one launch: one that was broken off is done
again from its start, and its trials stay in the journal. When its trials are done, the same launch
is asked what the accuracy gate asks; what is missing of that is asked later, without the trials.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tokenwatt_site.errors import (
    EngineError,
    EnvironmentProblem,
    Interrupted,
    InvalidMeasurement,
    Problem,
    UsageError,
)
from tokenwatt_site.goodput import bracket
from tokenwatt_site.journal import Entry
from tokenwatt_site.measure import search
from tokenwatt_site.measure.accuracy.loaded import compare_alone
from tokenwatt_site.measure.accuracy.reference_run import Reference
from tokenwatt_site.measure.accuracy.sitting import Scorer, Sittings, repeats_due
from tokenwatt_site.measure.accuracy.task import Task
from tokenwatt_site.measure.begun import begin
from tokenwatt_site.measure.client import Target
from tokenwatt_site.measure.clock import utc_now
from tokenwatt_site.measure.credential import authorisation
from tokenwatt_site.measure.endpoint import EngineFacts, read_back
from tokenwatt_site.measure.engine import RunningEngine, attach, launch
from tokenwatt_site.measure.headroom import held_text, require_start
from tokenwatt_site.measure.instruments import Instruments
from tokenwatt_site.measure.preflight import compare, preflight, require_new_launch
from tokenwatt_site.measure.selftest import self_test
from tokenwatt_site.measure.tokenizer import prompts_for
from tokenwatt_site.measure.trial import Progress, run_trial
from tokenwatt_site.measure.workfolder import Measured, WorkFolder, require_same_boards
from tokenwatt_site.model_shape.document import ModelDocument, headers_digest
from tokenwatt_site.prompts import Prompts, Words, trial_key
from tokenwatt_site.records import Status
from tokenwatt_site.run import ReadBack, SelfTest
from tokenwatt_site.spec import Spec
from tokenwatt_site.trace import Trace
from tokenwatt_site.trials import Trial, read_trials
from tokenwatt_site.under_load_log import sampled_rows
from tokenwatt_site.validity import Fault, fault, highest_rate_urps, require_playable, verdict
from tokenwatt_site.workload import Realisation, workload_of

MAX_INVALID = 3
"""How often one rate is tried: a moment of other load on the machine is no verdict."""


@dataclass(frozen=True, slots=True)
class Events:
    """Where a session tells what it does: progress of a trial, and one line per step."""

    progress: Callable[[Progress], None]
    say: Callable[[str], None]


_RESTARTED = "its counters fell: it was started again in the middle of a launch"

MAX_SILENT = 2
"""After so many trials without one whole answer the engine is at fault, not the rate."""


def measure(
    spec: Spec,
    folder: Path,
    events: Events,
    trace: Trace | None = None,
    *,
    model: ModelDocument | None = None,
    gpus: Sequence[str] = (),
    task: Task | None = None,
    scorer: Scorer | None = None,
    reference: Reference | None = None,
) -> Measured:
    """Run the protocol of `spec`, or what is missing of it, in `folder`.

    Args:
        spec: what to measure.
        folder: work in progress; what is there is kept.
        events: where progress goes.
        trace: the trace that `spec` plays; may be left out where `folder` has it already.
        model: the files of `endpoint.model_files`; as `trace`.
        gpus: boards of the engine, by UUID; left out where `folder` has a measurement.
        task: what the accuracy gate asks; left out where it asks nothing, or all answers are there.
        scorer: scores the replies to `task`, and goes with it.
        reference: whose answers they are compared with; as `gpus`.

    Raises:
        UsageError: the variable of a key, user or password is not set, no board has such a name, or
            the trace is not the one of the spec or too short, or a task is due and not given; nothing
            is begun.
        EnvironmentProblem: engine, disk or machine; what was measured is kept in `folder`.
        InvalidMeasurement: the same rate was INVALID MAX_INVALID times.
        Interrupted: by the user.
    """
    authorisation(spec.endpoint.api_key_variable)
    with WorkFolder(folder, utc_now) as work:
        if trace is not None:
            work.keep_trace(trace)
        if model is not None:
            work.keep_model(model)
        if task is not None and scorer is not None:
            keep, say = work.keep_answers, events.say
            sittings = Sittings(spec, task, scorer, work.path, work.journal, keep, say)
        elif repeats_due(spec, work.journal.lines):
            raise UsageError(Problem("asks a task, which is not given", field=_GATE))
        else:
            sittings = None
        _Session(spec, work, events, gpus, sittings, reference).run()
        return work.measured(spec)


def kept(spec: Spec, folder: Path) -> Measured:
    """Return what an interrupted session left in `folder`."""
    with WorkFolder(folder, utc_now) as work:
        return work.measured(spec)


@dataclass(frozen=True, slots=True)
class _Launched:
    """One launch of the engine, ready for trials."""

    line: Entry
    repeat: int
    engine: RunningEngine
    realisation: Realisation
    self_test: SelfTest
    prompts: Prompts
    instruments: Instruments
    sampled: tuple[int, ...]
    """Rows whose answers are held against the same asked alone."""
    texts: dict[int, Mapping[int, str]] = field(default_factory=dict)
    """These answers under load, by trial and row: only the same launch can be asked alone."""

    @property
    def chat_overhead(self) -> int:
        return int(self.line.data["chat_overhead"])


class _Session:
    def __init__(
        self,
        spec: Spec,
        work: WorkFolder,
        events: Events,
        gpus: Sequence[str],
        sittings: Sittings | None,
        reference: Reference | None,
    ) -> None:
        self._spec = spec
        self._events = events
        self._workload = workload_of(spec.setup, work.trace())
        require_playable(spec, self._workload)
        self.work = work
        self._journal = work.journal
        self._sittings = sittings
        self._begun = begin(spec, work, gpus, reference, events.say)

    def run(self) -> None:
        """Do the repeats that have no end line yet, and ask what has no answer yet."""
        done = self._ended_repeats()
        try:
            for repeat in range(1, self._spec.protocol.repeats + 1):
                sittings = self._due(repeat)
                if repeat not in done:
                    self._repeat(repeat, sittings)
                elif sittings is not None:
                    self._sit_again(repeat, sittings)
                else:
                    continue
                if sittings is not None:
                    sittings.score(repeat)
                self._require_restart(repeat)
        except KeyboardInterrupt:
            self._journal.append("interrupted", why="by the user")
            raise Interrupted("interrupted") from None
        if self._journal.lines[-1].event != "close":
            self._journal.append("close")

    def _due(self, repeat: int) -> Sittings | None:
        """Return what asks in this repeat; None: nothing is asked in it, or all is answered."""
        if self._sittings is None or not self._sittings.is_due(repeat):
            return None
        return self._sittings

    def _repeat(self, repeat: int, sittings: Sittings | None) -> None:
        """Do one repeat on a launch of its own: its trials, then what is asked of the same."""
        with self._engine() as engine:
            with self._instruments(engine) as instruments, self._reading(instruments) as hung:
                launched = self._launched(repeat, engine, instruments, sittings)
                self._idle(launched, "before")
                self._search(launched)
                self._idle(launched, "after")
            self._journal.append("repeat_end", repeat=repeat, hung=hung, notes=instruments.notes)
            if repeat <= self._spec.accuracy.repeats:
                self._under_load(launched)
            if sittings is not None:
                sittings.sit(repeat, engine, same_launch=True)

    def _under_load(self, launched: _Launched) -> None:
        """Ask alone what was answered in the highest passing trial; nothing where none passed."""
        top = self._top(launched.repeat)
        if top is None:
            return
        texts = launched.texts[top.number]
        self._events.say(f"asking {len(launched.sampled)} prompts of trial {top.number} alone")
        compared = compare_alone(
            self._spec,
            launched.realisation,
            self._target(launched.engine),
            repeat=launched.repeat,
            trial=top.number,
            rate_urps=top.rate_urps,
            nonce=self._begun.nonce,
            prompts=launched.prompts,
            chat_overhead=launched.chat_overhead,
            texts=texts,
            folder=self.work.path,
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
            same = self._same_launch(repeat, engine)
            sittings.sit(repeat, engine, same_launch=same)

    def _same_launch(self, repeat: int, engine: RunningEngine) -> bool | None:
        """Tell whether an engine is the one of a repeat's trials; None: it does not tell."""
        if self._spec.endpoint.start == "launch":
            return False
        loaded = [
            line.data["engine_started"]
            for line in self._journal.lines
            if line.event == "launch" and line.data["repeat"] == repeat
        ][-1]
        if loaded is None or engine.started is None:
            return None
        return bool(engine.started == loaded)

    def _require_restart(self, repeat: int) -> None:
        """See that the next repeat, if there is one, gets its own launch.

        Raises:
            EnvironmentProblem: the engine is attached, and may be the one of this repeat.
        """
        spec, lines = self._spec, self._journal.lines
        sat = [
            line.data["same_launch"]
            for line in lines
            if line.event == "accuracy_start" and line.data["repeat"] == repeat
        ]
        last = repeat == spec.protocol.repeats
        if spec.endpoint.start == "launch" or last or sat[-1:] == [False]:
            return
        raise EnvironmentProblem(
            Problem(
                f"repeat {repeat} of {spec.protocol.repeats} is done; every repeat needs its"
                " own launch, and an attached engine is not ours to restart",
                file=str(self.work.path),
                remedy="Restart the engine, then go on.",
            )
        )

    def _ended_repeats(self) -> set[int]:
        return {n.data["repeat"] for n in self._journal.lines if n.event == "repeat_end"}

    def _engine(self) -> AbstractContextManager[RunningEngine]:
        spec = self._spec
        if spec.endpoint.start == "attach":
            return attach(spec.endpoint.url or "", spec.endpoint.api_key_variable)
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
    ) -> tuple[EngineFacts, tuple[ReadBack, ...]]:
        """Compare engine and boards with the spec and with earlier launches."""
        if (before := self.work.boards()) is not None:
            require_same_boards(before, instruments.boards)
        facts = read_back(engine.url, self._spec.endpoint.api_key_variable)
        model = self.work.model()
        digest = headers_digest(model) if model is not None else None
        return facts, compare(self._spec, facts, instruments.primary, digest)

    def _launched(
        self,
        repeat: int,
        engine: RunningEngine,
        instruments: Instruments,
        sittings: Sittings | None,
    ) -> _Launched:
        """Compare the engine with the spec, and do all that goes before its trials."""
        spec, protocol = self._spec, self._spec.protocol
        require_new_launch(self._journal.lines, repeat, engine.started)
        facts, read_back_rows = self._compared(engine, instruments)
        # Fresh for every launch: an attached engine may still hold what an earlier one asked.
        key = trial_key(self._begun.nonce, spec.configuration_id, repeat, -self._launches())
        if spec.endpoint.prompt_kind == "text" and spec.endpoint.tokenizer is None:
            self._events.say("asking the engine's /tokenize which words are one token each")
        prompts = prompts_for(spec.endpoint, engine.url)
        ready = preflight(
            spec,
            engine.url,
            facts,
            lambda stream, tokens: prompts.prompt(key, stream, tokens),
            counted_by=prompts.tokenizer if isinstance(prompts, Words) else None,
        )
        if sittings is not None:
            sittings.require_answerable(engine)
        realisation = self._workload.realisation(
            repeat, lead_in=protocol.lead_in, scored=protocol.scored, tail=protocol.tail
        )
        name = facts.name or "the engine"
        self._events.say(f"repeat {repeat} of {protocol.repeats}: {name} passed the preflight")
        if isinstance(prompts, Words):
            self._events.say(f"prompts are words: {prompts}")
        held = self_test(spec, realisation)
        launch_line = self._journal.append(
            "launch",
            repeat=repeat,
            start=spec.endpoint.start,
            engine_started=engine.started,
            engine=facts.name,
            read_back=[item.to_json() for item in read_back_rows],
            prompts=prompts.to_json(),
            chat_overhead=ready.chat_overhead_tokens,
            accepts_unknown_model=ready.accepts_unknown_model,
            repeat_cached_tokens=ready.repeat_cached_tokens,
            longest_asked=ready.longest_asked,
            self_test=held.to_json(),
        )
        require_start(spec, realisation, held)
        self._events.say(held_text(spec, realisation, held))
        if engine.started is None and repeat > 1:
            self._events.say(
                "this engine does not tell when it started: whether it was restarted since the"
                " last repeat is your word, and the page says so"
            )
        broken_off = sum(
            line.event == "trial_end" and line.data["repeat"] == repeat
            for line in self._journal.lines
        )
        if broken_off:
            self._events.say(
                f"repeat {repeat} starts again, on one launch: {broken_off} earlier trials stay,"
                " INVALID"
            )
        sampled = sampled_rows(
            self._begun.nonce, repeat, realisation.scored_rows, protocol.mode
        )
        return _Launched(
            launch_line, repeat, engine, realisation, held, prompts, instruments, sampled
        )

    def _launches(self) -> int:
        return sum(line.event == "launch" for line in self._journal.lines)

    def _idle(self, launched: _Launched, when: Literal["before", "after"]) -> None:
        """Read what the engine draws with its model loaded and no request."""
        instruments = launched.instruments
        if not instruments.has_power:
            return
        self._events.say(f"reading the power of the idle engine, {when} the trials")
        span = instruments.idle()
        if instruments.restarted():
            raise EngineError(f"{_RESTARTED}, while it was idle")
        if span is None:
            self._events.say("the engine goes on computing without a request, so it is never idle")
            return
        self._journal.append(
            "idle", repeat=launched.repeat, when=when, start_ns=span[0], end_ns=span[1]
        )

    def _search(self, launched: _Launched) -> None:
        protocol = self._spec.protocol
        previous = self._top(launched.repeat - 1)
        start = previous.rate_urps if previous else round(protocol.start_rate * 1e6)
        seen: list[tuple[int, Literal["PASS", "FAIL"]]] = []
        invalid: Counter[int] = Counter()
        silent = 0
        while (
            rate := search.next_rate(
                seen,
                start_urps=start,
                max_urps=highest_rate_urps(self._spec, launched.realisation, launched.self_test),
                ratio=protocol.bracket_ratio,
                predicted=previous is not None,
            )
        ) is not None:
            left = search.trials_left(seen, protocol.bracket_ratio)
            trial, errors = self._trial(launched, rate, left)
            outcome, reason = verdict(self._spec, trial)
            self._events.say(_trial_line(trial, outcome, reason))
            for message in errors:
                self._events.say(f"  {message}")
            if not trial.engine_alive:
                ended = launched.engine.exit_text() or "nothing answers there"
                if launched.instruments.restarted():
                    ended = _RESTARTED
                raise EngineError(f"the engine ended in trial {trial.number} ({ended})")
            if outcome != "INVALID":
                seen.append((rate, outcome))
                silent = silent + 1 if _is_silent(trial) else 0
                if silent == MAX_SILENT:
                    raise EngineError(
                        Problem(
                            f"no request of {MAX_SILENT} trials in a row was answered in full",
                            found=reason,
                            remedy="Look at the engine's own log.",
                        )
                    )
                continue
            invalid[rate] += 1
            if not self._may_try_again(trial, invalid[rate]):
                return

    def _may_try_again(self, trial: Trial, times: int) -> bool:
        """Tell whether a rate that was INVALID `times` times is offered again.

        Demo mode ends its search there and publishes what it has; the others end with an error.
        """
        found = fault(self._spec, trial)
        if found is not None and found.transient and times < MAX_INVALID:
            return True
        if self._spec.protocol.mode == "demo":
            self._events.say("the search ends here, with what there is")
            return False
        raise InvalidMeasurement(
            Problem(
                f"INVALID {times} times at {trial.rate_urps / 1e6:g} requests/s:"
                f" {found.reason if found else ''}",
                remedy=f"{_mended(found)} tokenwatt-site measure --resume {self.work.path}"
                if found is not None and found.transient
                else "Correct the spec, and start a new measurement.",
            )
        )

    def _trial(
        self, launched: _Launched, rate_urps: int, trials_left: int
    ) -> tuple[Trial, tuple[str, ...]]:
        """Offer one rate; return the trial and the commonest error messages."""
        spec = self._spec
        engine = launched.engine
        number = 1 + sum(line.event == "trial_start" for line in self._journal.lines)
        start = self._journal.append(
            "trial_start",
            repeat=launched.repeat,
            trial=number,
            rate_urps=rate_urps,
            realisation=launched.realisation.number,
            realisation_hash=launched.realisation.hash,
        )
        offered = run_trial(
            spec,
            launched.realisation,
            self._target(engine),
            repeat=launched.repeat,
            trial=number,
            rate_urps=rate_urps,
            nonce=self._begun.nonce,
            prompts=launched.prompts,
            chat_overhead=launched.chat_overhead,
            trials_left=trials_left,
            # Asking an attached engine takes a connection; the hot path must not wait for it.
            alive=engine.alive if spec.endpoint.start == "launch" else lambda: True,
            report=self._events.progress,
            keep=self.work.begin_requests(number),
            window=lambda start_ns, end_ns: launched.instruments.window(
                start_ns - self._begun.origin_ns, end_ns - self._begun.origin_ns
            ),
            folder=self.work.path,
            texts_of=launched.sampled,
        )
        launched.texts[number] = offered.texts
        launched.instruments.no_window()
        self.work.keep_requests(number, offered.records)
        end = self._journal.append(
            "trial_end",
            repeat=launched.repeat,
            trial=number,
            epoch_ns=offered.epoch_ns - self._begun.origin_ns,
            engine_alive=engine.alive() and not launched.instruments.restarted(),
            stamps=offered.stamps,
            errors=list(offered.errors),
            client_cpu_ppm=offered.cpu_ns * 1_000_000 // max(1, offered.wall_ns),
            clock_step_ns=offered.clock_step_ns,
        )
        trial = Trial.from_journal(launched.line, start, end, launched.realisation, offered.records)
        return trial, offered.errors

    def _target(self, engine: RunningEngine) -> Target:
        endpoint = self._spec.endpoint
        return Target.from_url(engine.url, endpoint.api, endpoint.api_key_variable)

    def _top(self, repeat: int) -> Trial | None:
        """Return the trial at the highest passing rate of a repeat; None: none passed."""
        rates: dict[str, list[int]] = {"PASS": [], "FAIL": [], "INVALID": []}
        passed: dict[int, Trial] = {}
        for trial in read_trials(self._spec, self.work.evidence()):
            if trial.repeat == repeat:
                outcome, _ = verdict(self._spec, trial)
                rates[outcome].append(trial.rate_urps)
                if outcome == "PASS":
                    passed.setdefault(trial.rate_urps, trial)
        highest, _ = bracket(rates["PASS"], rates["FAIL"])
        return None if highest is None else passed[highest]

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


def _mended(found: Fault) -> str:
    if "client" in found.causes:
        return "The client needs a processor core to itself. When other load has ended:"
    return "When the way to the engine is free:"


def _is_silent(trial: Trial) -> bool:
    """Tell whether nothing was answered in full; of a trial stopped early, whether anything was."""
    ended = [r.status for r in trial.records if r.status is not Status.CENSORED]
    if ended:
        return Status.OK not in ended
    return all(r.first_ns is None for r in trial.records)


def _trial_line(trial: Trial, outcome: str, reason: str | None) -> str:
    text = f"trial {trial.number}: {trial.rate_urps / 1e6:.3f} requests/s {outcome}"
    return f"{text} ({reason})" if reason else text
