"""Trials of one launch around its boundary: which rates, what is kept of each, when it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tokenwatt_site.errors import EngineError, InvalidMeasurement, Problem
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.journal import Entry
from tokenwatt_site.measure import search
from tokenwatt_site.measure.begun import Begun
from tokenwatt_site.measure.client import Target
from tokenwatt_site.measure.engine import RunningEngine
from tokenwatt_site.measure.instruments import Instruments
from tokenwatt_site.measure.trial import Progress, run_trial
from tokenwatt_site.measure.workfolder import WorkFolder
from tokenwatt_site.prompts import Prompts
from tokenwatt_site.run import SelfTest
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Trial, read_trials
from tokenwatt_site.validity import Fault, fault, highest_passing, highest_rate_urps, verdict
from tokenwatt_site.windows import Band
from tokenwatt_site.workload import Realisation

MAX_INVALID = 3
"""How often one rate is tried: a moment of other load on the machine is no verdict."""

MAX_SILENT = 2
"""After so many trials without one whole answer the engine is at fault, not the rate."""

RESTARTED = "its counters fell: it was started again in the middle of a launch"


@dataclass(frozen=True, slots=True)
class Launched:
    """One launch of the engine, ready for trials."""

    line: Entry
    repeat: int
    engine: RunningEngine
    band: Band
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


@dataclass(frozen=True, slots=True)
class Trials:
    """Offers rates to launches, and keeps what came.

    Attributes:
        spec: what is measured.
        work: where trials are kept.
        begun: what the run committed to.
        report: takes the progress of a trial.
        say: takes a line for each.
    """

    spec: Spec
    work: WorkFolder
    begun: Begun
    report: Callable[[Progress], None]
    say: Callable[[str], None]

    def run(self, launched: Launched) -> None:
        """Offer rates until the boundary of this repeat is enclosed.

        Raises:
            EngineError: it ended, or answers nothing in full.
            InvalidMeasurement: the same rate was INVALID MAX_INVALID times.
            EnvironmentProblem: see `run_trial`.
        """
        protocol = self.spec.protocol
        previous = self.top(launched.repeat - 1) if launched.repeat > 1 else None
        start = previous.rate_urps if previous else round(protocol.start_rate * 1e6)
        seen: list[tuple[int, Literal["PASS", "FAIL"]]] = []
        invalid: Counter[int] = Counter()
        silent = 0
        while (
            rate := search.next_rate(
                seen,
                start_urps=start,
                max_urps=highest_rate_urps(self.spec, launched.realisation, launched.self_test),
                ratio=protocol.bracket_ratio,
                predicted=previous is not None,
            )
        ) is not None:
            left = search.trials_left(seen, protocol.bracket_ratio)
            trial, errors = self._trial(launched, rate, left)
            outcome, reason = verdict(self.spec, trial)
            self.say(_trial_line(trial, outcome, reason))
            for message in errors:
                self.say(f"  {message}")
            if not trial.engine_alive:
                ended = launched.engine.exit_text() or "nothing answers there"
                if launched.instruments.restarted():
                    ended = RESTARTED
                raise EngineError(f"the engine ended in trial {trial.number} ({ended})")
            if outcome != "INVALID":
                seen.append((rate, outcome))
                silent = silent + 1 if is_silent(trial) else 0
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
        found = fault(self.spec, trial)
        if found is not None and found.transient and times < MAX_INVALID:
            return True
        if self.spec.protocol.mode == "demo":
            self.say("the search ends here, with what there is")
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
        self, launched: Launched, rate_urps: int, trials_left: int
    ) -> tuple[Trial, tuple[str, ...]]:
        """Offer one rate; return the trial and the commonest error messages."""
        spec = self.spec
        engine = launched.engine
        number = 1 + sum(line.event == "trial_start" for line in self.work.journal.lines)
        start = self.work.journal.append(
            "trial_start",
            repeat=launched.repeat,
            trial=number,
            rate_urps=rate_urps,
            band=launched.band.low_urps,
            realisation=launched.realisation.number,
            realisation_hash=launched.realisation.hash,
        )
        offered = run_trial(
            spec,
            launched.realisation,
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
            texts_of=launched.sampled,
        )
        launched.texts[number] = offered.texts
        launched.instruments.no_window()
        self.work.keep_requests(number, offered.records)
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
        )
        trial = Trial.from_journal(
            launched.line, start, end, launched.realisation, offered.records, band=launched.band
        )
        return trial, offered.errors

    def top(self, repeat: int) -> Trial | None:
        """Return the trial at the highest passing rate of a repeat; None: none passed."""
        trials = read_trials(self.spec, self.work.evidence())
        return highest_passing(self.spec, [trial for trial in trials if trial.repeat == repeat])


def target_of(spec: Spec, engine: RunningEngine) -> Target:
    """Return where the requests of `spec` go."""
    endpoint = spec.endpoint
    return Target.from_url(engine.url, endpoint.api, endpoint.api_key_variable)


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
