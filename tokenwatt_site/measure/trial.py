"""One realisation offered at one rate: bodies built before, verdict watched during."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenwatt_site.evidence import RequestRecord, Status
from tokenwatt_site.goodput import Outcome, decide, judge, order_statistic
from tokenwatt_site.measure.client import Offered, PlannedRequest, Target, offer
from tokenwatt_site.measure.endpoint import request_body
from tokenwatt_site.spec import Objective, Spec
from tokenwatt_site.workload import Realisation, prompt, trial_key


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
    spec: Spec, realisation: Realisation, rate_urps: int, key: bytes, chat_overhead: int
) -> tuple[PlannedRequest, ...]:
    """Return the requests of a trial with their bodies.

    Args:
        spec: says which API and model.
        realisation: rows and their lengths.
        rate_urps: offered rate in 1e-6 requests/s.
        key: `workload.trial_key` of this trial.
        chat_overhead: tokens that the chat template adds to a message; 0 for completions.
    """
    endpoint = spec.endpoint
    planned = []
    shared, talks = realisation.shared_prefix, spec.setup.conversation is not None
    for number, (row, due_ns) in enumerate(
        zip(realisation.rows, realisation.due_ns(rate_urps), strict=True)
    ):
        # A prompt shorter than the template's own tokens cannot be asked for.
        tokens = max(1, row.input_tokens - chat_overhead)
        words = prompt(endpoint, key, row.stream, tokens, shared)
        body = request_body(
            endpoint.api, endpoint.model, words, row.output_tokens, may_be_cached=talks
        )
        planned.append(PlannedRequest(number, due_ns, body, row.input_tokens, row.output_tokens))
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
    chat_overhead: int,
    trials_left: int,
    alive: Callable[[], bool],
    report: Callable[[Progress], None],
    keep: Callable[[tuple[RequestRecord, ...]], None],
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
        chat_overhead: see `plan_requests`.
        trials_left: for the progress display.
        alive: tells at once whether the engine's process is there; called while requests run.
        report: takes the progress, about twice a second; must return at once.
        keep: takes what was seen, at most half a second ago, of a trial that is broken off.
    """
    key = trial_key(nonce, spec.configuration_id, repeat, trial)
    plan = plan_requests(spec, realisation, rate_urps, key, chat_overhead)
    scored_rows = realisation.scored_rows
    scored_end_ns = plan[scored_rows[-1]].due_ns

    latest: Sequence[RequestRecord] = ()

    def watch(now_ns: int, records: Sequence[RequestRecord]) -> bool:
        nonlocal latest
        latest = records
        scored = [r for r in records if r.row in scored_rows]
        judgements = [judge(o, scored, realisation.scored - len(scored)) for o in spec.setup.slo]
        outcome = decide(judgements)
        done = sum(r.status is not Status.CENSORED for r in scored)
        finished = done == realisation.scored
        in_flight = sum(r.status is Status.CENSORED for r in records)
        ended = [r for r in scored if r.status is not Status.CENSORED]
        report(
            Progress(
                repeat=repeat,
                trial=trial,
                trials_left=trials_left,
                rate_urps=rate_urps,
                now_ns=now_ns,
                scored_end_ns=scored_end_ns,
                sent=len(records),
                in_flight=in_flight,
                scored=realisation.scored,
                scored_done=done,
                objectives=tuple(
                    (o.label, _running_ms(o, ended), o.limit_ms) for o in spec.setup.slo
                ),
                outcome=outcome,
            )
        )
        return finished or outcome == "FAIL" or not alive()

    try:
        offered = offer(
            plan,
            target,
            repeat=repeat,
            trial=trial,
            request_timeout_ns=round(spec.protocol.request_timeout_s * 1e9),
            watch=watch,
        )
    except KeyboardInterrupt:
        keep(tuple(latest))
        raise
    # A trial shorter than the watcher's interval was not looked at yet.
    watch(max((r.end_ns for r in offered.records), default=0), offered.records)
    return offered


def _running_ms(objective: Objective, ended: Sequence[RequestRecord]) -> float | None:
    value = order_statistic(objective.metric, ended, objective.quantile)
    return None if value is None else value / 1e6
