"""Sittings: the questions of the gate's task, asked of the engine that was loaded before.

Each repeat in which they are asked has one sitting, and another after each interruption, which asks
what has no answer yet. Scoring needs no engine; a repeat is done when its answers are scored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tokenwatt_site.errors import EngineError
from tokenwatt_site.evidence.answer_flags import flags_of
from tokenwatt_site.evidence.answers import (
    FORMAT,
    AccuracyLog,
    Answer,
    Header,
    kept_text,
    text_digest,
)
from tokenwatt_site.journal import Entry, Journal
from tokenwatt_site.measure.accuracy.asking import ask
from tokenwatt_site.measure.accuracy.probe import require_answerable
from tokenwatt_site.measure.accuracy.replies import KeptReplies
from tokenwatt_site.measure.accuracy.task import Reply, Scores, Task
from tokenwatt_site.measure.engine import RunningEngine
from tokenwatt_site.spec import Spec

Scorer: TypeAlias = Callable[[Sequence[Reply]], Scores]
"""Scores all replies of a repeat, in order of their questions."""

ANSWER_TIMEOUT_S = 600.0
"""How long an answer may take at least: one that comes late is not wrong, and a long one on a slow
engine with others beside it takes minutes."""

_MAX_EXTRACTED_CHARS = 4000
_BEGINNING_CHARS = 400
"""What is kept of a longer one; spelt out, a character is at most nine."""


def repeats_due(spec: Spec, lines: Sequence[Entry]) -> tuple[int, ...]:
    """Return the repeats whose answers are asked for and, by the journal's `lines`, not there."""
    if spec.setup.accuracy_gate.asked is None:
        return ()
    done = {line.data["repeat"] for line in lines if line.event == "accuracy_end"}
    return tuple(n for n in range(1, spec.accuracy.repeats + 1) if n not in done)


def same_launch(
    spec: Spec, lines: Sequence[Entry], repeat: int, started: str | None
) -> bool | None:
    """Tell whether an engine that is asked later is the one of a repeat's trials.

    Args:
        spec: says who starts it.
        lines: of the journal.
        repeat: whose trials.
        started: when its process started, as it tells.

    Returns:
        None where one of the two did not tell when it started.
    """
    if spec.endpoint.start == "launch":
        return False
    launches = [n for n in lines if n.event == "launch" and n.data["repeat"] == repeat]
    loaded = launches[-1].data["engine_started"]
    return None if loaded is None or started is None else bool(started == loaded)


@dataclass(frozen=True, slots=True)
class Sittings:
    """Asks, keeps and scores the answers of one run.

    Attributes:
        spec: whose gate asks.
        task: the questions.
        scorer: scores the replies.
        folder: for replies as they come.
        journal: is told when a sitting begins, and when the answers of a repeat are scored.
        keep: keeps the answers of a repeat as evidence.
        say: where a line of progress goes.
    """

    spec: Spec
    task: Task
    scorer: Scorer
    folder: Path
    journal: Journal
    keep: Callable[[int, AccuracyLog], None]
    say: Callable[[str], None]

    def is_due(self, repeat: int) -> bool:
        """Tell whether answers of this repeat are asked for and not there, or not scored."""
        return repeat in repeats_due(self.spec, self.journal.lines)

    def is_whole(self, repeat: int) -> bool:
        """Tell whether every question has its reply, so that no engine is needed."""
        return self._replies(repeat).replies.keys() >= {q.number for q in self.task.questions}

    def require_answerable(self, engine: RunningEngine, context_tokens: int | None) -> None:
        """See before the load that the engine takes what will be asked after it.

        Args:
            engine: who will be asked.
            context_tokens: what one sequence may hold, as the engine tells.

        Raises:
            EngineError: naming what it refuses.
        """
        endpoint = self.spec.endpoint
        require_answerable(
            self.task,
            engine.url,
            endpoint.model,
            endpoint.api,
            api_key_variable=endpoint.api_key_variable,
            context_tokens=context_tokens,
        )

    def sit(self, repeat: int, engine: RunningEngine, *, same_launch: bool | None) -> None:
        """Ask what has no answer yet; what failed in an earlier sitting is asked again.

        Args:
            repeat: whose answers these are.
            engine: who is asked.
            same_launch: whether it is the process that was loaded in this repeat; None: it does
                not tell.

        Raises:
            EngineError: it is gone; the replies until then are kept.
        """
        endpoint, kept = self.spec.endpoint, self._replies(repeat)
        answered = {n: reply for n, reply in kept.replies.items() if reply.text is not None}
        part = 1 + self._parts(repeat)
        self.say(
            f"asking the {len(self.task.questions)} questions of"
            f" {self.spec.setup.accuracy_gate.label}"
            + (f"; {len(answered)} have their answer" if answered else "")
        )
        self.journal.append(
            "accuracy_start",
            repeat=repeat,
            part=part,
            same_launch=same_launch,
            engine_started=engine.started,
        )
        try:
            ask(
                self.task,
                engine.url,
                endpoint.model,
                endpoint.api,
                api_key_variable=endpoint.api_key_variable,
                concurrency=self.spec.accuracy.concurrency,
                timeout_s=max(ANSWER_TIMEOUT_S, self.spec.protocol.request_timeout_s),
                part=part,
                done=answered,
                keep=kept.keep,
                alive=engine.alive,
                say=self.say,
            )
        except EngineError as error:
            if (ended := engine.exit_text()) is None:
                raise
            raise EngineError(*error.problems, f"the engine {ended}") from error

    def score(self, repeat: int) -> None:
        """Score the replies of a repeat that has them all, and keep the answers as evidence.

        Raises:
            TokenwattError: whatever the scorer raises; the replies stay, and can be scored again.
        """
        task, kept = self.task, self._replies(repeat).replies
        replies = tuple(kept[question.number] for question in task.questions)
        texts = self.spec.accuracy.keep_answers
        answers = answers_of(task, replies, self.scorer(replies), repeat=repeat, texts=texts)
        header = Header(
            format=FORMAT, task=task.name, shots=task.shots, asked=task.asked, texts=texts
        )
        self.keep(repeat, AccuracyLog(header, answers))
        self.journal.append("accuracy_end", repeat=repeat, part=self._parts(repeat))
        correct = sum(answer.correct for answer in answers)
        self.say(f"repeat {repeat}: {correct} of {len(answers)} questions were answered right")

    def _replies(self, repeat: int) -> KeptReplies:
        return KeptReplies(self.folder / f"accuracy-{repeat:04d}.replies.jsonl")

    def _parts(self, repeat: int) -> int:
        return sum(
            line.event == "accuracy_start" and line.data["repeat"] == repeat
            for line in self.journal.lines
        )


def answers_of(
    task: Task, replies: Sequence[Reply], scores: Scores, *, repeat: int, texts: bool
) -> tuple[Answer, ...]:
    """Join questions, replies and scores, all in the same order, into the rows of the evidence.

    Raises:
        ValueError: they are not of the same questions.
    """
    answers = []
    for question, reply, score in zip(task.questions, replies, scores, strict=True):
        if not question.number == reply.question == score.question:
            raise ValueError(f"question {question.number} has the score of {score.question}")
        text = reply.text
        answers.append(
            Answer(
                repeat=repeat,
                question=question.number,
                data=question.data,
                prompt=question.prompt_digest,
                answer=None if text is None else text_digest(text),
                text=kept_text(text) if texts and text is not None else None,
                # No answer is wrong, whatever a scorer makes of it.
                extracted=None if text is None else _kept_extract(score.extracted),
                correct=text is not None and score.correct,
                prompt_tokens=reply.prompt_tokens,
                tokens=reply.tokens,
                finish=reply.finish,
                failure=reply.failure,
                flags=() if text is None else flags_of(text),
                part=reply.part,
            )
        )
    return tuple(answers)


def _kept_extract(extracted: str | None) -> str | None:
    kept = None if extracted is None else kept_text(extracted)
    if extracted is None or (kept is not None and len(kept) <= _MAX_EXTRACTED_CHARS):
        return kept
    return f"{kept_text(extracted[:_BEGINNING_CHARS])}…"
