"""One realisation offered at one rate: bodies built before, verdict watched during."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.goodput import Outcome, Tally, decide
from tokenwatt_site.measure.client import Client, Offered, PlannedRequest, Target, offer
from tokenwatt_site.measure.endpoint import request_body
from tokenwatt_site.prompts import Prompts, trial_key
from tokenwatt_site.spec import Objective, Spec
from tokenwatt_site.workload import Realisation


@dataclass(frozen=True, slots=True)
class Progress:
    """What a trial looks like while it runs. Times in ns from its start."""

    repeat: int
    trial: int
    trials_left: int
    """Estimate, this one included."""
    rate_urps: int
    now_ns: int
    scored_end_ns: int
    sent: int
    in_flight: int
    scored: int
    scored_done: int
    objectives: tuple[tuple[str, float | None, float], ...]
    """Label, running quantile in ms of the scored requests that ended, limit in ms."""
    outcome: Outcome


def plan_requests(
    spec: Spec,
    realisation: Realisation,
    rate_urps: int,
    *,
    key: bytes,
    prompts: Prompts,
    chat_overhead: int,
    texts_of: Container[int] = (),
) -> tuple[PlannedRequest, ...]:
    """Return the requests of a trial with their bodies.

    Args:
        spec: says which API and model.
        realisation: rows and their lengths.
        rate_urps: offered rate in 1e-6 requests/s.
        key: `prompts.trial_key` of this trial.
        prompts: what is asked with.
        chat_overhead: tokens that the engine adds to a text; 0 for token ids.
        texts_of: the rows whose answers are kept as text.

    Raises:
        EnvironmentProblem: a prompt that the tokenizer counts otherwise.
    """
    endpoint = spec.endpoint
    planned = []
    shared, talks = realisation.shared_prefix, spec.setup.conversation is not None
    for number, (row, due_ns) in enumerate(
        zip(realisation.rows, realisation.due_ns(rate_urps), strict=True)
    ):
        # A prompt shorter than what the engine adds to it cannot be asked for.
        tokens = max(1, row.input_tokens - chat_overhead)
        prompt = prompts.prompt(key, row.stream, tokens, shared)
        body = request_body(
            endpoint.api, endpoint.model, prompt, row.output_tokens, may_be_cached=talks
        )
        planned.append(
            PlannedRequest(
                number,
                due_ns,
                body,
                row.input_tokens,
                row.output_tokens,
                keep_text=number in texts_of,
            )
        )
    return tuple(planned)


def run_trial(
    spec: Spec,
    realisation: Realisation,
    target: Target,
    *,
    repeat: int,
    trial: int,
    rate_urps: int,
    nonce: str,
    prompts: Prompts,
    chat_overhead: int,
    trials_left: int,
    alive: Callable[[], bool],
    report: Callable[[Progress], None],
    keep: Callable[[Sequence[RequestRecord]], None],
    window: Callable[[int, int], None],
    folder: Path,
    texts_of: Container[int] = (),
    client: Client = offer,
) -> Offered:
    """Offer `realisation` at `rate_urps` until the verdict is certain.

    A trial that passes goes on until its last scored request ends; one that fails is stopped as
    soon as no remaining request could save it, or the engine is gone.

    Args:
        spec: SLO, endpoint and deadlines.
        realisation: the rows to offer.
        target: where to send them.
        repeat: number of the repeat, from 1.
        trial: number of the trial within the run, from 1.
        rate_urps: offered rate in 1e-6 requests/s.
        nonce: hex; with repeat and trial it decides the prompts.
        prompts: see `plan_requests`.
        chat_overhead: see `plan_requests`.
        trials_left: for the progress display.
        alive: tells at once whether the engine's process is there; called while requests run.
        report: takes the progress, about twice a second; must return at once.
        keep: takes records as their requests end, about twice a second, and of a trial that is
            broken off also those of the requests that were open.
        window: told start and end of the scored window on the clock of `time.monotonic_ns`, a
            moment before the load begins; must return at once.
        folder: see `offer`.
        texts_of: see `plan_requests`.
        client: what sends them.

    Raises:
        EnvironmentProblem: see `plan_requests` and `offer`.
    """
    key = trial_key(nonce, spec.configuration_id, repeat, trial)
    plan = plan_requests(
        spec,
        realisation,
        rate_urps,
        key=key,
        prompts=prompts,
        chat_overhead=chat_overhead,
        texts_of=texts_of,
    )
    standing = _Standing(spec.setup.slo, realisation)
    scored_rows = realisation.scored_rows

    def watch(now_ns: int, ended: Sequence[RequestRecord], still: Sequence[RequestRecord]) -> bool:
        keep(ended)
        standing.see(ended, still)
        report(
            Progress(
                repeat=repeat,
                trial=trial,
                trials_left=trials_left,
                rate_urps=rate_urps,
                now_ns=now_ns,
                scored_end_ns=plan[realisation.scored_rows[-1]].due_ns,
                sent=standing.ended + len(still),
                in_flight=len(still),
                scored=realisation.scored,
                scored_done=standing.scored_done,
                objectives=standing.running(),
                outcome=standing.outcome,
            )
        )
        finished = standing.scored_done == realisation.scored
        return finished or standing.outcome == "FAIL" or not alive()

    try:
        offered = client(
            plan,
            target,
            repeat=repeat,
            trial=trial,
            request_timeout_ns=round(spec.protocol.request_timeout_s * 1e9),
            watch=watch,
            folder=folder,
            begins=lambda epoch_ns: window(
                epoch_ns + plan[scored_rows.start].due_ns,
                epoch_ns + plan[scored_rows.stop - 1].due_ns,
            ),
        )
    except KeyboardInterrupt:
        keep(standing.still)
        raise
    # What ended since the watcher last looked.
    final = [r for r in offered.records if r.status is not Status.CENSORED]
    now_ns = max((r.end_ns for r in offered.records), default=0)
    still = [r for r in offered.records if r.status is Status.CENSORED]
    watch(now_ns, [r for r in final if r.row not in standing.rows], still)
    return offered


class _Standing:
    """How a trial stands: counted as requests end, so that looking at it costs what is new.

    Attributes:
        ended: how many requests ended.
        rows: of these.
        scored_done: how many of them are scored.
        still: the requests that are open.
        outcome: of all objectives so far.
    """

    def __init__(self, slo: Sequence[Objective], realisation: Realisation) -> None:
        self._slo = slo
        self._scored_rows = realisation.scored_rows
        self._tallies = [Tally(objective) for objective in slo]
        self.rows: set[int] = set()
        self.scored_done = 0
        self.still: Sequence[RequestRecord] = ()
        self.outcome: Outcome = "UNDECIDED"

    @property
    def ended(self) -> int:
        return len(self.rows)

    def see(self, ended: Sequence[RequestRecord], still: Sequence[RequestRecord]) -> None:
        """Take the records that became final since the last call, and those of the open ones."""
        for record in ended:
            self.rows.add(record.row)
            if record.row in self._scored_rows:
                self.scored_done += 1
                for tally in self._tallies:
                    tally.add(record)
        self.still = still
        scored = [record for record in still if record.row in self._scored_rows]
        pending = len(self._scored_rows) - self.scored_done - len(scored)
        self.outcome = decide([tally.judgement(scored, pending) for tally in self._tallies])

    def running(self) -> tuple[tuple[str, float | None, float], ...]:
        """Return of each objective its label, its running quantile and its limit, in ms."""
        values = [tally.running_ns() for tally in self._tallies]
        return tuple(
            (objective.label, None if value is None else value / 1e6, objective.limit_ms)
            for objective, value in zip(self._slo, values, strict=True)
        )
