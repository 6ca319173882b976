"""What was answered under load, asked again of the engine alone.

The bodies are those of the trial, byte for byte, and the client is the one that offered it. Only
what else the engine does at the time is another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from tokenwatt_site.errors import EngineError, Problem
from tokenwatt_site.evidence.answers import text_digest
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.evidence.under_load import Compared, sampled_rows
from tokenwatt_site.measure.client import PlannedRequest, Target, offer
from tokenwatt_site.measure.trial import plan_requests
from tokenwatt_site.prompts import Prompts, trial_key
from tokenwatt_site.spec import Spec
from tokenwatt_site.workload import Realisation

MAX_TRIES = 2
"""After so many without an end, one after the other, the engine is at fault, not the request."""

_NO_ANSWER = frozenset({Status.NOT_SENT, Status.DISCONNECTED, Status.TIMED_OUT})


def compare_alone(
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
    texts: Mapping[int, str],
    folder: Path | None,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Compared, ...]:
    """Ask the sampled rows of a trial again, one at a time, twice; return what came, row by row.

    All are asked once before any is asked again: so both times other prompts came since the last
    time, and the second answer is not made from what the engine still holds of the first. What
    the trial left open may still be computed when this begins, so a row that is not sampled is
    asked before the others, and its answer dropped.

    Args:
        spec: says which API, model and deadline.
        realisation: what the trial offered.
        target: where to ask.
        repeat: of the trial.
        trial: its number.
        rate_urps: its rate, in 1e-6 requests/s.
        nonce: hex; draws the rows, and with repeat and trial decides the prompts.
        prompts: see `plan_requests`.
        chat_overhead: see `plan_requests`.
        texts: `Offered.texts` of the trial; a sampled row that has none did not end well.
        folder: see `offer`.
        say: told what begins, in words.

    Raises:
        EngineError: no answer came to an end, MAX_TRIES times in a row.
        EnvironmentProblem: see `plan_requests` and `offer`.
    """
    rows = sampled_rows(nonce, repeat, realisation.scored_rows, spec.protocol.mode)
    plan = plan_requests(
        spec,
        realisation,
        rate_urps,
        key=trial_key(nonce, spec.configuration_id, repeat, trial),
        prompts=prompts,
        chat_overhead=chat_overhead,
    )
    engine = _Alone(target, repeat, trial, round(spec.protocol.request_timeout_s * 1e9), folder)
    say(f"asking {len(rows)} prompts of trial {trial} again, one at a time, twice")
    engine.ask(next((each for each in plan if each.row not in rows), plan[0]))
    first = {row: engine.ask(plan[row]) for row in rows}
    second = {row: engine.ask(plan[row]) for row in rows}
    compared = []
    for row in rows:
        loaded, alone = texts.get(row), first[row].text
        compared.append(
            Compared(
                repeat=repeat,
                trial=trial,
                row=row,
                loaded=_digest(loaded),
                alone=_digest(alone),
                again=_digest(second[row].text),
                same_chars=_same_chars(loaded, alone),
                chars=len(alone or ""),
                cached_tokens=first[row].cached_tokens,
            )
        )
    return tuple(compared)


class _Answer(NamedTuple):
    """The text of a whole answer, and prompt tokens that the engine had in its cache."""

    text: str | None
    cached_tokens: int | None


class _Alone:
    """An engine that is asked one thing at a time."""

    def __init__(
        self, target: Target, repeat: int, trial: int, timeout_ns: int, folder: Path | None
    ) -> None:
        self._target = target
        self._repeat, self._trial = repeat, trial
        self._timeout_ns = timeout_ns
        self._folder = folder

    def ask(self, planned: PlannedRequest) -> _Answer:
        """Ask for the answer to a request of the trial, at once.

        Raises:
            EngineError: see `compare_alone`.
        """
        for _ in range(MAX_TRIES):
            offered = offer(
                [replace(planned, due_ns=0, keep_text=True)],
                self._target,
                repeat=self._repeat,
                trial=self._trial,
                request_timeout_ns=self._timeout_ns,
                watch=lambda *_: False,
                folder=self._folder,
            )
            (record,) = offered.records
            if record.status not in _NO_ANSWER:
                return _Answer(offered.texts.get(planned.row), record.cached_tokens)
        raise EngineError(
            Problem(
                f"the engine gave no answer to row {planned.row} of trial {self._trial}, asked"
                f" alone {MAX_TRIES} times",
                found="; ".join(offered.errors),
                remedy="Look at the engine's own log.",
            )
        )


def _digest(text: str | None) -> str | None:
    return None if text is None else text_digest(text)


def _same_chars(one: str | None, other: str | None) -> int:
    """Count the characters that both begin with; none where one is missing."""
    pairs = zip(one or "", other or "", strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
