"""Trials of one launch around its boundary: which rates, what is kept of each, when it ends."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.engine_model.load import Load
from tokenwatt_site.errors import EngineError, Interrupted, InvalidMeasurement, Problem
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.evidence.under_load import sampled_rows
from tokenwatt_site.journal import Entry
from tokenwatt_site.measure.begun import Begun
from tokenwatt_site.measure.client import Client, Offered, Target, offer
from tokenwatt_site.measure.engine import RunningEngine
from tokenwatt_site.measure.instruments import Instruments
from tokenwatt_site.measure.modelling import predicted
from tokenwatt_site.measure.preflight import require_descriptors
from tokenwatt_site.measure.rehearsal import trial_seconds
from tokenwatt_site.measure.roster import who_answers
from tokenwatt_site.measure.search import Done, Offer, RepeatSearch
from tokenwatt_site.measure.trial import Progress, run_trial
from tokenwatt_site.measure.workfolder import WorkFolder
from tokenwatt_site.prompts import Prompts
from tokenwatt_site.run import SelfTest
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Trial, read_trials
from tokenwatt_site.validity import Fault, fault, highest_passing, highest_rate_urps, verdict
from tokenwatt_site.windows import Band, Windows

MAX_INVALID = 3
"""How often one rate is tried: a moment of other load on the machine is no verdict."""

MAX_SILENT = 2
"""After so many trials without one whole answer the engine is at fault, not the rate."""

RESTARTED = "its counters fell: it was started again in the middle of a launch"


class Stopped(Exception):
    """Trials of a repeat ended before its boundary was enclosed.

    `error` is what it would be on its own, `elsewhere` whether another repeat may do better.
    """

    def __init__(self, error: EngineError | InvalidMeasurement, *, elsewhere: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.elsewhere = elsewhere


@dataclass(frozen=True, slots=True)
class Launched:
    """One launch of the engine, ready for trials."""

    line: Entry
    repeat: int
    engine: RunningEngine
    self_test: SelfTest
    prompts: Prompts
    instruments: Instruments
    texts: dict[int, Mapping[int, str]] = field(default_factory=dict)
    """Answers under load, by trial and row: only the same launch can be asked alone."""

    @property
    def continues(self) -> bool:
        """Whether its process had trials of this repeat before, which count."""
        return self.line.data["continues"] is True

    @property
    def chat_overhead(self) -> int:
        return int(self.line.data["chat_overhead"])


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a session may take from now on, by a clock that is never set; None: as it takes."""

    seconds: float | None
    now_s: Callable[[], float] = time.monotonic
    begun_s: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "begun_s", self.now_s())

    def require(self, needed_s: float, what: str) -> None:
        """See that there is time for something.

        Raises:
            Interrupted: there is not.
        """
        if self.seconds is None:
            return
        left_s = self.begun_s + self.seconds - self.now_s()
        if needed_s > left_s:
            raise Interrupted(
                Problem(
                    f"the budget of {self.seconds / 60:g} min has no time left for {what}",
                    found=f"{max(0.0, left_s) / 60:.1f} min",
                    expected=f"{needed_s / 60:.1f} min",
                )
            )


@dataclass(frozen=True, slots=True)
class Trials:
    """Offers rates to launches, and keeps what came.

    Attributes:
        spec: what is measured.
        windows: what it is measured on.
        work: where trials are kept.
        begun: what the run committed to.
        report: takes the progress of a trial.
        say: takes a line for each.
        budget: no trial begins that would end beyond it.
        client: what sends their requests.
        known: the trials of all repeats so far, but those of launches that were given up.
    """

    spec: Spec
    windows: Windows
    work: WorkFolder
    begun: Begun
    report: Callable[[Progress], None]
    say: Callable[[str], None]
    budget: Budget
    client: Client = offer
    known: list[Trial] = field(default_factory=list)

    def recall(self) -> None:
        """Read the trials of earlier sessions."""
        if any(line.event == "trial_end" for line in self.work.journal.lines):
            trials = read_trials(self.spec, self.work.evidence())
            self.known[:] = [trial for trial in trials if not trial.abandoned]

    def run(self, launched: Launched) -> str | None:
        """Offer rates until the boundary of this repeat is enclosed, and then beside it.

        A rate that stays INVALID is given up: beside the boundary it is left out.

        Returns:
            Why the engine cannot be asked any more, where that was after its boundary was enclosed.

        Raises:
            Stopped: the engine ended, or answers nothing in full, or a rate stays INVALID that the
                bracket needs. Demo mode ends its search at such a rate, with what it has.
            Interrupted: the budget has no time for the next trial.
            EnvironmentProblem: see `run_trial` and `require_descriptors`.
        """
        if not launched.continues:
            self.known[:] = [trial for trial in self.known if trial.repeat != launched.repeat]
        search = self._search(launched.repeat, launched.self_test)
        self._retell(search, launched.repeat)
        invalid: Counter[Offer] = Counter()
        silent = 0
        while (offer := search.next()) is not None:
            trial, errors = self._trial(launched, offer, search.left())
            self.known.append(trial)
            outcome, reason = verdict(self.spec, trial)
            search.saw(offer, outcome)
            self.say(_trial_line(trial, outcome, reason))
            for message in errors:
                self.say(f"  {message}")
            if outcome != "INVALID":
                silent = silent + 1 if is_silent(trial) else 0
            if (error := self._engine_error(launched, trial, silent, reason)) is not None:
                if search.boundary_urps is None:
                    raise Stopped(error, elsewhere=True)
                self.say(f"{error}; the boundary of repeat {launched.repeat} was enclosed before")
                return str(error)
            if outcome == "INVALID":
                invalid[offer] += 1
                self._judge_invalid(search, offer, trial, invalid[offer])
        return None

    def done(self, repeat: int) -> Done:
        """Return what the search of a repeat came to."""
        protocol, windows = self.spec.protocol, self.windows
        search = RepeatSearch(protocol, windows, repeat, ceiling_urps=lambda b: b.highest_urps)
        self._retell(search, repeat)
        return search.done()

    def _retell(self, search: RepeatSearch, repeat: int) -> None:
        for trial in self.known:
            if trial.repeat == repeat:
                outcome, _ = verdict(self.spec, trial)
                search.saw(Offer(trial.rate_urps, trial.band), outcome)

    def valid(self) -> list[Trial]:
        """Return the trials so far that are measurements of the engine."""
        return [trial for trial in self.known if fault(self.spec, trial) is None]

    def top(self, repeat: int) -> Trial | None:
        """Return the trial at the highest passing rate of a repeat; None: none passed."""
        return highest_passing(self.spec, [trial for trial in self.known if trial.repeat == repeat])

    def _search(self, repeat: int, test: SelfTest) -> RepeatSearch:
        def ceiling_urps(band: Band) -> int:
            return highest_rate_urps(self.spec, self.windows.realisation(repeat, band), test)

        def predict(band: Band, near_urps: int) -> int | None:
            load = Load.of(self.windows.realisation(repeat, band))
            return predicted(self.spec, self.valid(), load, near_urps, self.say)

        return RepeatSearch(
            self.spec.protocol,
            self.windows,
            repeat,
            earlier=[self.done(n) for n in self._repeats() if n < repeat],
            ceiling_urps=ceiling_urps,
            predict=None if self.spec.protocol.mode == "demo" else predict,
        )

    def _repeats(self) -> list[int]:
        return sorted({trial.repeat for trial in self.known})

    def _engine_error(
        self, launched: Launched, trial: Trial, silent: int, reason: str | None
    ) -> EngineError | None:
        """Say what keeps this engine from being asked any more, or None."""
        if not trial.engine_alive:
            ended = launched.engine.exit_text() or trial.changed or "nothing answers there"
            if launched.instruments.restarted():
                ended = RESTARTED
            return EngineError(f"the engine ended in trial {trial.number} ({ended})")
        if silent == MAX_SILENT:
            return EngineError(
                Problem(
                    f"no request of {MAX_SILENT} trials in a row was answered in full",
                    found=reason,
                    remedy="Look at the engine's own log.",
                )
            )
        return None

    def _judge_invalid(self, search: RepeatSearch, offer: Offer, trial: Trial, times: int) -> None:
        """Have a rate that was INVALID `times` times offered again, or give it up.

        Raises:
            Stopped: the bracket cannot do without it.
        """
        found = fault(self.spec, trial)
        transient = found is not None and found.transient
        if transient and times < MAX_INVALID:
            return
        search.give_up(offer)
        if search.boundary_urps is not None:
            self.say(f"{offer.rate_urps / 1e6:g} requests/s is left out beside the boundary")
            return
        if self.spec.protocol.mode == "demo" and self.valid():
            self.say("the search ends here, with what there is")
            return
        raise Stopped(
            InvalidMeasurement(
                Problem(
                    f"INVALID {times} times at {offer.rate_urps / 1e6:g} requests/s:"
                    f" {found.reason if found else ''}",
                    remedy=f"{_mended(found)} tokenwatt-site measure --resume {self.work.path}"
                    if found is not None and transient
                    else "Correct the spec, and start a new measurement.",
                )
            ),
            elsewhere=transient,
        )

    def _trial(
        self, launched: Launched, offer: Offer, trials_left: int
    ) -> tuple[Trial, tuple[str, ...]]:
        """Offer one rate; return the trial and the commonest error messages."""
        spec, engine, (rate_urps, band) = self.spec, launched.engine, offer
        # A higher band than the first asks for more.
        require_descriptors(spec.protocol, band, spec.endpoint.replicas)
        realisation = self.windows.realisation(launched.repeat, band)
        longest_s = trial_seconds(spec.setup.slo, realisation, rate_urps, passes=True).high
        self.budget.require(longest_s, f"a trial at {rate_urps / 1e6:.3f} requests/s")
        number = 1 + sum(line.event == "trial_start" for line in self.work.journal.lines)
        start = self.work.journal.append(
            "trial_start",
            repeat=launched.repeat,
            trial=number,
            rate_urps=rate_urps,
            band=band.low_urps,
            realisation=realisation.number,
            realisation_hash=realisation.hash,
        )
        offered = run_trial(
            spec,
            realisation,
            target_of(spec, engine),
            repeat=launched.repeat,
            trial=number,
            rate_urps=rate_urps,
            nonce=self.begun.nonce,
            prompts=launched.prompts,
            chat_overhead=launched.chat_overhead,
            trials_left=trials_left,
            # Asking an attached engine takes a connection; the hot path must not wait for it.
            alive=engine.alive if spec.endpoint.start == "launch" else lambda: True,
            report=self.report,
            keep=self.work.begin_requests(number),
            window=lambda start_ns, end_ns: launched.instruments.window(
                start_ns - self.begun.origin_ns, end_ns - self.begun.origin_ns
            ),
            folder=self.work.path,
            texts_of=sampled_rows(
                self.begun.nonce, launched.repeat, realisation.scored_rows, spec.protocol.mode
            ),
            client=self.client,
        )
        launched.texts[number] = offered.texts
        launched.instruments.no_window()
        self.work.keep_requests(number, offered.records)
        replicas = _replicas_after(spec, engine)
        end = self.work.journal.append(
            "trial_end",
            repeat=launched.repeat,
            trial=number,
            epoch_ns=offered.epoch_ns - self.begun.origin_ns,
            engine_alive=engine.alive() and not launched.instruments.restarted(),
            stamps=offered.stamps,
            errors=list(offered.errors),
            client_cpu_ppm=offered.cpu_ns * 1_000_000 // max(1, offered.wall_ns),
            clock_step_ns=offered.clock_step_ns,
            **_of_workers(offered),
            **replicas,
        )
        trial = Trial.from_journal(
            launched.line,
            start,
            end,
            realisation,
            offered.records,
            band=band,
            replicas=spec.endpoint.replicas,
        )
        return trial, offered.errors


def _of_workers(offered: Offered) -> dict[str, JsonValue]:
    """Return what a line tells of several client processes; nothing where there was one."""
    if not offered.offset_bounds_ns:
        return {}
    return {"offset_bounds_ns": list(offered.offset_bounds_ns), "lost": offered.lost}


def _replicas_after(spec: Spec, engine: RunningEngine) -> dict[str, JsonValue]:
    """Return what a line tells of the replicas now; nothing where there is one engine."""
    if spec.endpoint.replicas == 1:
        return {}
    found = who_answers(engine.urls, spec.endpoint.api_key_variable)
    return {"replicas": [None if each is None else each.to_json() for each in found]}


def target_of(spec: Spec, engine: RunningEngine) -> Target:
    """Return where the requests of `spec` go."""
    endpoint = spec.endpoint
    return Target.from_urls(engine.urls, endpoint.api, endpoint.api_key_variable)


def _mended(found: Fault) -> str:
    if "client" in found.causes:
        return "The client needs a processor core to itself. When other load has ended:"
    return "When the way to the engine is free:"


def is_silent(trial: Trial) -> bool:
    """Tell whether nothing was answered in full; of a trial stopped early, whether anything was."""
    ended = [r.status for r in trial.records if r.status is not Status.CENSORED]
    if ended:
        return Status.OK not in ended
    return all(r.first_ns is None for r in trial.records)


def _trial_line(trial: Trial, outcome: str, reason: str | None) -> str:
    text = f"trial {trial.number}: {trial.rate_urps / 1e6:.3f} requests/s {outcome}"
    return f"{text} ({reason})" if reason else text
