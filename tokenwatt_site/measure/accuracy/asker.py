"""One question over HTTP, with as many tries as an engine that is busy deserves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenwatt_site.endpoint import API_PATHS, Api
from tokenwatt_site.errors import EngineError, Problem, UsageError
from tokenwatt_site.measure.accuracy.completion import (
    Said,
    answer_of,
    count,
    read_text,
    refused,
    text_body,
)
from tokenwatt_site.measure.accuracy.logprobs import choice_body, read_choice, weighed
from tokenwatt_site.measure.accuracy.task import Choice, Prompt, Question, Task
from tokenwatt_site.measure.control import MAX_BYTES, Answer, Unanswered, request

TRIES = 3
"""How often a request is sent that the engine does not answer, or is too busy for."""

BUSY = frozenset({429, 500, 502, 503, 504})
"""What an engine may answer in one moment and not in the next."""

FIRST_PAUSE_S = 1.0
"""The pause before the second try; each later one is twice as long."""

MAX_PAUSE_S = 30.0
"""The longest pause before another try, whatever the engine's Retry-After says."""

_CHOICE_BYTES = 32 << 20  # each token of the prompt comes back with its text, up to three times
_MODELS_DEADLINE_S = 10.0


def require_api(task: Task, api: Api) -> None:
    """Refuse a task that the API cannot answer.

    Raises:
        UsageError: a chat tells no log-probabilities of what it is given.
    """
    if task.kind == "choices" and api == "chat":
        raise UsageError(
            Problem(
                f"{task.name} weighs choices by the log-probabilities of its prompts, which a chat"
                " does not tell",
                field="endpoint.api",
                found=api,
                expected="completions",
                remedy="Or take a task that has text generated.",
            )
        )


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks one engine.

    Attributes:
        url: its base.
        model, api, api_key_variable: as the spec has them.
        timeout_s: when the whole answer to one try must be there.
        pause: waits between two tries, for the seconds it is given.
    """

    url: str
    model: str
    api: Api
    api_key_variable: str | None
    timeout_s: float
    pause: Callable[[float], None]

    def ask(self, task: Task, question: Question) -> Said:
        """Ask one question of a task.

        Raises:
            UsageError: the variable with the key is not set.
            Unanswered: no answer, or a busy engine's, to any try.
            EngineError: refused, or an answer that is none, in the engine's words.
        """
        if task.kind == "choices":
            return self.weigh(question.choices)
        return self.text(question.prompt, task.asked.max_tokens, task.asked.stop)

    def text(self, prompt: Prompt, max_tokens: int, stop: Sequence[str]) -> Said:
        """Ask for the greedy answer to a prompt; raises as `ask` does."""
        body = text_body(self.api, self.model, prompt, max_tokens, stop)
        return read_text(self._answer(body, MAX_BYTES), self.api, stop)

    def weigh(self, choices: Sequence[Choice]) -> Said:
        """Ask for the log-probabilities of choices, one after the other; raises as `ask` does.

        The counts are sums over them. They end after one token that nobody asked for, so there is
        no finish reason.
        """
        weights: list[tuple[float, bool]] = []
        prompt: int | None = 0
        generated: int | None = 0
        for choice in choices:
            body = self._answer(choice_body(self.model, choice), _CHOICE_BYTES)
            weights.append(read_choice(body, choice))
            answer = answer_of(body)
            prompt = _sum(prompt, count(answer, "prompt_tokens"))
            generated = _sum(generated, count(answer, "completion_tokens"))
        return Said(weighed(weights), prompt, generated, None)

    def is_there(self) -> bool:
        """Tell whether something answers at all, and is not too busy to."""
        try:
            answer = request(
                f"{self.url}/v1/models",
                deadline_s=_MODELS_DEADLINE_S,
                api_key_variable=self.api_key_variable,
            )
        except EngineError:
            return False
        return answer.status not in BUSY

    def _answer(self, content: bytes, max_bytes: int) -> bytes:
        """Return the body of an answer 200."""
        fault, pause_s = "", 0.0
        for number in range(TRIES):
            if number:
                self.pause(pause_s)
            pause_s = FIRST_PAUSE_S * 2**number
            try:
                answer = request(
                    f"{self.url}{API_PATHS[self.api]}",
                    deadline_s=self.timeout_s,
                    content=content,
                    max_bytes=max_bytes,
                    api_key_variable=self.api_key_variable,
                )
            except Unanswered as error:
                fault = error.problems[0].what
                continue
            if answer.status == 200:
                return answer.body
            fault = refused(answer.status, answer.body)
            if answer.status not in BUSY:
                raise EngineError(fault)
            pause_s = _pause(answer, pause_s)
        raise Unanswered(f"{fault} (tried {TRIES} times)")


def _sum(before: int | None, more: int | None) -> int | None:
    return None if before is None or more is None else before + more


def _pause(answer: Answer, otherwise: float) -> float:
    """Return how long an engine says to wait, in seconds; a date is not read."""
    told = answer.retry_after
    if not (told.isascii() and told.isdecimal()):
        return otherwise
    return min(float(told[:9]), MAX_PAUSE_S)
