"""The warm-up of an engine before its first trial. Nothing of it is scored (A16)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tokenwatt_site.errors import EngineError, Problem
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.measure.client import Offered, PlannedRequest, Target, offer
from tokenwatt_site.measure.endpoint import request_body
from tokenwatt_site.measure.settling import (
    AT_ONCE,
    MOST_BURSTS,
    MOST_TOKENS,
    Burst,
    WarmUp,
    settle,
)
from tokenwatt_site.prompts import Prompts
from tokenwatt_site.spec import Spec
from tokenwatt_site.workload import Realisation

FIRST_STREAM = 1 << 32
"""The streams of these prompts begin here, so that none was asked in the preflight."""

MAX_SILENT = 2
"""After so many bursts without one whole answer the engine is at fault."""


def warm_up(
    spec: Spec,
    realisation: Realisation,
    target: Target,
    *,
    key: bytes,
    prompts: Prompts,
    chat_overhead: int,
    folder: Path | None,
) -> WarmUp:
    """Warm an engine up with a few fresh prompts at a time, of the workload's median lengths.

    Args:
        spec: says which API, model, mode and deadline.
        realisation: what the first trial will offer, for its lengths.
        target: where to ask.
        key: `prompts.trial_key` of this launch: no engine has seen what it makes.
        prompts: what is asked with.
        chat_overhead: tokens that the engine adds to a text; 0 for token ids.
        folder: see `client.offer`.

    Raises:
        EngineError: no whole answer came in MAX_SILENT bursts in a row.
        EnvironmentProblem: see `client.offer`, or a prompt that the tokenizer counts otherwise.
    """
    rows = [realisation.rows[number] for number in realisation.scored_rows]
    given = max(1, round(median(row.input_tokens for row in rows)) - chat_overhead)
    tokens = min(MOST_TOKENS, max(1, round(median(row.output_tokens for row in rows))))
    silent, at_once = 0, AT_ONCE * len(target.replicas)

    def ask(number: int) -> Burst:
        nonlocal silent
        streams = range(FIRST_STREAM + number * at_once, FIRST_STREAM + (number + 1) * at_once)
        offered = offer(
            [
                _planned(spec, row, prompts.prompt(key, stream, given), given, tokens)
                for row, stream in enumerate(streams)
            ],
            target,
            repeat=0,
            trial=0,
            request_timeout_ns=round(spec.protocol.request_timeout_s * 1e9),
            watch=lambda *_: False,
            folder=folder,
        )
        burst = _burst(offered)
        silent = silent + 1 if burst.first_ns is None else 0
        if silent == MAX_SILENT:
            raise EngineError(
                Problem(
                    f"the engine gave no whole answer to {MAX_SILENT} bursts of its warm-up",
                    found="; ".join(offered.errors),
                    remedy="Look at the engine's own log.",
                )
            )
        return burst

    settled, bursts = settle(ask, most=MOST_BURSTS[spec.protocol.mode])
    return WarmUp(settled, tokens, bursts)


def _planned(
    spec: Spec, row: int, prompt: Sequence[int] | str, given: int, tokens: int
) -> PlannedRequest:
    endpoint = spec.endpoint
    body = request_body(endpoint.api, endpoint.model, prompt, tokens, may_be_cached=False)
    return PlannedRequest(row, 0, body, given, tokens)


def _burst(offered: Offered) -> Burst:
    records = offered.records
    times = [
        (r.first_ns - r.due_ns, r.last_ns - r.first_ns)
        for r in records
        if r.status is Status.OK and r.first_ns is not None and r.last_ns is not None
    ]
    return Burst(
        took_ns=max(r.end_ns for r in records),
        first_ns=round(median(first for first, _ in times)) if times else None,
        rest_ns=round(median(rest for _, rest in times)) if times else None,
    )
