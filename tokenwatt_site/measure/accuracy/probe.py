"""Before any load: whether the engine can answer this task at all."""

from __future__ import annotations

import time
from collections.abc import Callable

from tokenwatt_site.endpoint import Api
from tokenwatt_site.errors import EngineError, Problem
from tokenwatt_site.measure.accuracy.asker import Asker, require_api
from tokenwatt_site.measure.accuracy.completion import Said
from tokenwatt_site.measure.accuracy.task import Choice, Question, Task

DEADLINE_S = 300.0
"""For one token after a long prompt, on an engine that does nothing else."""

_FIELD = "setup.accuracy_gate"
_ECHO = "Choices need an engine that echoes a prompt with log-probabilities (vLLM, SGLang). "
_MORE_CONTEXT = (
    "give each sequence more context (vLLM: --max-model-len; SGLang: --context-length; llama.cpp:"
    " --ctx-size, which its --parallel slots share), or ask with fewer shots"
)


def require_answerable(
    task: Task,
    url: str,
    model: str,
    api: Api,
    *,
    api_key_variable: str | None,
    context_tokens: int | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Ask the task's longest question for one token; of choices, for its log-probabilities.

    The longest is that of most characters; which has the most tokens, only the engine knows. Where
    answers are generated, the longest prompt and an answer of `max_tokens` must fit into the
    context: llama.cpp ends an answer there, and calls it "length" like any other.

    Args:
        task: what will be asked.
        url: the engine's base.
        model: its name there.
        api: completions or chat.
        api_key_variable: the environment variable with the key; None sends none.
        context_tokens: what one sequence may hold, prompt and answer; None: the engine does not
            tell, and answers that reach an unknown end are cut there.
        sleep: waits between two tries.

    Raises:
        UsageError: the API cannot answer this task, or the variable with the key is not set.
        EngineError: what the engine refuses, in its own words.
    """
    require_api(task, api)
    asker = Asker(url, model, api, api_key_variable, DEADLINE_S, sleep)
    question = max(task.questions, key=_characters)
    try:
        said = _first(asker, task, question)
    except EngineError as error:
        raise EngineError(
            Problem(
                f"the engine does not answer the longest question of {task.name}:"
                f" {error.problems[0].what}",
                field=_FIELD,
                found=f"question {question.number}, {_characters(question):,} characters",
                remedy=(_ECHO if task.kind == "choices" else "")
                + f"Where it is too long, {_MORE_CONTEXT}.",
            )
        ) from error
    if task.kind == "generate":
        _require_context(task, question, said.prompt_tokens, context_tokens)


def _first(asker: Asker, task: Task, question: Question) -> Said:
    if task.kind == "choices":
        return asker.weigh([max(question.choices, key=_length)])
    return asker.text(question.prompt, 1, ())


def _characters(question: Question) -> int:
    """Return the length of the longest text that a question sends."""
    if question.choices:
        return max(map(_length, question.choices))
    if isinstance(question.prompt, str):
        return len(question.prompt)
    return sum(len(message["content"]) for message in question.prompt)


def _length(choice: Choice) -> int:
    return len(choice.context) + len(choice.continuation)


def _require_context(
    task: Task, question: Question, prompt_tokens: int | None, context_tokens: int | None
) -> None:
    if prompt_tokens is None or context_tokens is None:
        return
    if prompt_tokens + task.asked.max_tokens > context_tokens:
        raise EngineError(
            Problem(
                f"an answer to the longest question of {task.name} may be cut at the engine's"
                " context",
                field=_FIELD,
                found=f"{prompt_tokens:,} tokens of question {question.number} and"
                f" {task.asked.max_tokens:,} of the answer",
                expected=f"at most {context_tokens:,} tokens",
                remedy=f"Correct it: {_MORE_CONTEXT}.",
            )
        )
