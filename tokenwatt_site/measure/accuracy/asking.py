"""Asks all questions of a task, several at a time, and hands on each answer as it comes.

Threads: `concurrency` threads ask. Each takes the next question in order, waits for its answer, and
puts it into a queue. The thread that called `ask` takes from the queue, and it alone calls `keep`,
`alive` and `say`; `sleep` is called by the threads that ask. They are daemons: one that hangs in a
request when all is over is left to its deadline.

What no engine answered is not the same as a wrong answer. A question that got none after its tries
is held back until the engine answers another one, and only then is it a failure; if none is
answered, the engine is gone, and those questions are asked again after it is back.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from tokenwatt_site.canonical import clean_text
from tokenwatt_site.endpoint import Api
from tokenwatt_site.errors import EngineError, Problem
from tokenwatt_site.measure.accuracy.asker import Asker, require_api
from tokenwatt_site.measure.accuracy.task import Question, Reply, Task
from tokenwatt_site.measure.control import Unanswered

_LOOK_S = 0.5
"""How often the engine is looked at while no answer comes."""

MOST_SILENT = 8
"""So many questions in a row without any answer, or twice as many as are open: no engine there."""

_END_S = 2.0
"""How long threads may take to end."""

_PARTS_SAID = 10
_MAX_FAILURE_CHARS = 1000


@dataclass(frozen=True, slots=True)
class _Came:
    """What a thread has to tell; `silent`: the engine gave no answer."""

    reply: Reply
    silent: bool = False


_Told: TypeAlias = "_Came | Exception"


def ask(
    task: Task,
    url: str,
    model: str,
    api: Api,
    *,
    api_key_variable: str | None,
    concurrency: int,
    timeout_s: float,
    part: int,
    done: Mapping[int, Reply],
    keep: Callable[[Reply], None],
    alive: Callable[[], bool],
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Reply, ...]:
    """Ask the questions that are not in `done`; return all replies in order of the questions.

    Args:
        task: what to ask.
        url: the engine's base.
        model: its name there.
        api: completions or chat.
        api_key_variable: the environment variable with the key; None sends none.
        concurrency: how many questions are open at once.
        timeout_s: when the whole answer to one try must be there.
        part: which sitting this is.
        done: replies of earlier sittings, by the number of the question; kept as they are.
        keep: takes each new reply at once.
        alive: whether the engine's process still runs.
        say: takes a line of progress about each tenth.
        sleep: waits between two tries.

    Raises:
        UsageError: the API cannot answer this task, or the variable with the key is not set.
        EngineError: the engine is gone: it ended, or gave no answer to `MOST_SILENT` questions in
            a row. What came before was kept.
        KeyboardInterrupt: as it came; what came before was kept.
    """
    require_api(task, api)
    left = [question for question in task.questions if question.number not in done]
    replies = {q.number: done[q.number] for q in task.questions if q.number in done}
    progress = _Progress(say, len(task.questions), len(replies))

    def take(reply: Reply) -> None:
        replies[reply.question] = reply
        keep(reply)
        progress.one_more(failed=reply.failure is not None)

    workers = _Workers(task, left, part, sleep)
    asker = Asker(url, model, api, api_key_variable, timeout_s, workers.pause)
    most_silent = max(MOST_SILENT, 2 * concurrency)
    try:
        workers.start(asker, min(concurrency, len(left)))
        _take_all(workers, asker, take, alive, most_silent=most_silent, count=len(left))
    except (EngineError, KeyboardInterrupt):
        workers.stop()
        for came in workers.rest():
            if not came.silent:
                take(came.reply)
        say(f"{len(replies)} of {len(task.questions)} questions are answered, and kept")
        raise
    finally:
        workers.stop()
    return tuple(replies[question.number] for question in task.questions)


def _take_all(
    workers: _Workers,
    asker: Asker,
    take: Callable[[Reply], None],
    alive: Callable[[], bool],
    *,
    most_silent: int,
    count: int,
) -> None:
    """Take `count` replies, and none from an engine that is gone."""
    silent: list[Reply] = []
    taken = 0

    def gone(what: str) -> EngineError:
        return EngineError(
            Problem(
                what,
                field="endpoint.url",
                found=(silent[-1].failure if silent else None) or f"nothing at {asker.url}",
                remedy="Its log may say why.",
            )
        )

    while taken + len(silent) < count:
        came = workers.next(_LOOK_S)
        if came is not None and not came.silent:
            for reply in (*silent, came.reply):
                take(reply)
                taken += 1
            silent.clear()
            continue
        if came is not None:
            silent.append(came.reply)
        if not alive():
            raise gone("the engine ended while it was asked")
        if len(silent) >= most_silent:
            raise gone(f"the engine gave no answer to {len(silent)} questions in a row")
    if silent and not (alive() and asker.is_there()):
        raise gone("the engine does not answer any more")
    for reply in silent:
        take(reply)


class _Workers:
    """The threads that ask."""

    def __init__(
        self, task: Task, left: Sequence[Question], part: int, sleep: Callable[[float], None]
    ) -> None:
        self._task, self._part, self._sleep = task, part, sleep
        self._left: queue.SimpleQueue[Question] = queue.SimpleQueue()
        for question in left:
            self._left.put(question)
        self._came: queue.SimpleQueue[_Told] = queue.SimpleQueue()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, asker: Asker, count: int) -> None:
        for number in range(count):
            thread = threading.Thread(
                target=self._run, args=(asker,), name=f"asking-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def next(self, timeout_s: float) -> _Came | None:
        """Return what came next, or None if nothing did in time; raise what a thread could not."""
        try:
            told = self._came.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(told, Exception):
            raise told
        return told

    def stop(self) -> None:
        """Ask nothing more, and wait a little for what is under way."""
        if self._over.is_set():
            return
        self._over.set()
        end = time.monotonic() + _END_S
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def rest(self) -> Iterator[_Came]:
        """Yield what came and was not taken."""
        with suppress(queue.Empty):
            while True:
                told = self._came.get_nowait()
                if isinstance(told, _Came):
                    yield told

    def pause(self, seconds: float) -> None:
        """Wait before another try, which there is none of when all is over."""
        self._sleep(seconds)
        if self._over.is_set():
            raise _Over

    def _run(self, asker: Asker) -> None:
        with suppress(queue.Empty, _Over):
            while not self._over.is_set():
                question = self._left.get_nowait()
                try:
                    self._came.put(self._one(asker, question))
                except _Over:
                    raise
                except Exception as error:  # noqa: BLE001 - raised by the thread that waits for it
                    self._came.put(error)

    def _one(self, asker: Asker, question: Question) -> _Came:
        try:
            said = asker.ask(self._task, question)
        except EngineError as error:
            # Without the address, which is nobody's business on a page.
            what = "; ".join(problem.what for problem in error.problems)
            failure = clean_text(what, limit=_MAX_FAILURE_CHARS)
            reply = Reply(question.number, None, None, None, None, failure, self._part)
            return _Came(reply, silent=isinstance(error, Unanswered))
        return _Came(
            Reply(
                question.number,
                said.text,
                said.prompt_tokens,
                said.tokens,
                said.finish,
                None,
                self._part,
            )
        )


class _Over(Exception):
    """Ends a thread."""


class _Progress:
    """Says about each tenth of the questions."""

    def __init__(self, say: Callable[[str], None], total: int, done: int) -> None:
        self._say, self._total, self._done = say, total, done
        self._failed = 0
        self._step = max(1, -(-total // _PARTS_SAID))

    def one_more(self, *, failed: bool) -> None:
        self._done += 1
        self._failed += failed
        if self._done % self._step == 0 or self._done == self._total:
            without = f", {self._failed} of them without an answer" if self._failed else ""
            self._say(f"asked {self._done} of {self._total} questions{without}")
