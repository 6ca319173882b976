"""The gate's task: found, made and scored by the harness in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from tokenwatt_site.accuracy_spec import NO_TASK, AccuracyGate, AccuracyPlan, AskedTask
from tokenwatt_site.canonical import clean_text, read_file
from tokenwatt_site.errors import EnvironmentProblem, Problem, SpecError, UsageError
from tokenwatt_site.measure.accuracy import local
from tokenwatt_site.measure.accuracy.task import Choice, Question, Reply, Score, Task
from tokenwatt_site.schema import is_secret_variable, validation_problems

_HARNESS = "tokenwatt_site.measure.accuracy.harness"
_LOCAL_S = 180
_HUB_S = 600
"""Deadlines of the harness: it is slow to start, and the hub slow to bring a data set."""

_LAST_LINES = 5


def plan_task(
    gate: AccuracyGate,
    plan: AccuracyPlan,
    api: Literal["completions", "chat"],
    *,
    folders: Sequence[Path],
) -> Task:
    """Make the questions of a gate's task; nothing is asked.

    Metric, filter and the limit of tokens are those of `gate.asked`, where it is there, or the
    task's first and its own.

    Args:
        gate: which task.
        plan: where its data are.
        api: how it will be asked.
        folders: where `plan.data` is looked for, the first that has it.

    Raises:
        UsageError: no such task or data, or none that tells right from wrong.
        EnvironmentProblem: the harness failed or took too long.
    """
    if gate.task == NO_TASK:
        raise UsageError(Problem("names no task to ask", field="setup.accuracy_gate.task"))
    if not isinstance(gate.questions, int) or gate.questions < 1:
        raise UsageError(
            Problem(
                "is no number of questions to ask",
                field="setup.accuracy_gate.questions",
                found=str(gate.questions),
                expected="1 or more",
            )
        )
    answer = _called("plan", gate, api, _data(gate, plan, folders), {})
    return _task(answer["task"])


def require_asked(gate: AccuracyGate, task: Task) -> None:
    """Refuse a gate that does not say, word for word, what the task asks.

    Raises:
        SpecError: naming each field that differs, or with the lines to paste.
    """
    if gate.asked is None:
        raise SpecError(
            Problem(
                "is missing: without it no one can tell what was asked",
                field="setup.accuracy_gate.asked",
                remedy=f"Paste these lines below accuracy_gate:\n{asked_block(task)}",
            )
        )
    said, found = gate.asked.to_json(), task.asked.to_json()
    if problems := tuple(
        Problem(
            "is not what the task asks now",
            field=f"setup.accuracy_gate.asked.{name}",
            found=json.dumps(said[name], ensure_ascii=False),
            expected=json.dumps(found[name], ensure_ascii=False),
            remedy="`tokenwatt-site spec check` prints it; it is another gate then.",
        )
        for name in AskedTask.model_fields
        if said[name] != found[name]
    ):
        raise SpecError(*problems)


def score(
    gate: AccuracyGate,
    plan: AccuracyPlan,
    api: Literal["completions", "chat"],
    task: Task,
    replies: Sequence[Reply],
    *,
    folders: Sequence[Path],
) -> tuple[Score, ...]:
    """Return what the harness makes of each reply; one without text is wrong.

    Raises:
        UsageError: the data have changed since `task` was made of them.
        EnvironmentProblem: the harness failed or took too long.
    """
    texts = {str(reply.question): reply.text for reply in replies if reply.text is not None}
    scored: dict[int, Score] = {}
    if texts:
        digests = {"data": task.asked.data, "prompts": task.asked.prompts}
        # Metric and filter are the task's, where the gate has none yet.
        asked = gate.model_copy(update={"asked": task.asked})
        more = {"replies": texts, "digests": digests}
        answer = _called("score", asked, api, _data(gate, plan, folders), more)
        scored = {number: Score(number, found, right) for number, found, right in answer["scores"]}
    return tuple(
        scored[reply.question]
        if reply.text is not None
        else Score(reply.question, extracted=None, correct=False)
        for reply in replies
    )


def asked_block(task: Task) -> str:
    """Return the lines of a spec that say what a task asks, as they stand below `accuracy_gate`."""
    lines = (
        f"      {name}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in task.asked.to_json().items()
    )
    return "\n".join(("    asked:", *lines))


@dataclass(frozen=True, slots=True)
class _Data:
    """Rows of a local task, a folder with a named task's splits, or neither: the hub."""

    rows: tuple[local.Row, ...] | None = None
    folder: Path | None = None

    @property
    def on_hub(self) -> bool:
        return self.rows is None and self.folder is None


def _data(gate: AccuracyGate, plan: AccuracyPlan, folders: Sequence[Path]) -> _Data:
    if plan.data is None:
        return _Data()
    path = _found(plan.data, folders)
    if path.is_dir():
        return _Data(folder=path)
    if path.suffix != ".jsonl":
        raise _of_data("is not a .jsonl file or a folder with some", str(path))
    if path.stem != gate.task:
        raise UsageError(
            Problem(
                "is not the task of accuracy.data",
                field="setup.accuracy_gate.task",
                found=gate.task,
                expected=f"{path.stem}, as {path.name} is called",
                remedy="The data of a named task are a folder with a .jsonl for each split.",
            )
        )
    data = read_file(path, limit=local.MAX_FILE_BYTES)
    return _Data(rows=local.parse(data, source=str(path)))


def _found(name: str, folders: Sequence[Path]) -> Path:
    for folder in folders:
        path = folder / name
        if not path.exists():
            continue
        if not path.resolve().is_relative_to(folder.resolve()):
            raise _of_data(
                f"leads out of {folder}", str(path), "Put the data there; no links are followed."
            )
        return path
    places = ", ".join(str(folder) for folder in folders)
    raise _of_data("is not there", name, f"Looked for in {places}.")


def _of_data(what: str, found: str, remedy: str | None = None) -> UsageError:
    return UsageError(Problem(what, field="accuracy.data", found=found, remedy=remedy))


def _called(
    job: Literal["plan", "score"],
    gate: AccuracyGate,
    api: Literal["completions", "chat"],
    data: _Data,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    asked = gate.asked
    request = {
        "job": job,
        "task": gate.task,
        "shots": gate.shots,
        "questions": gate.questions,
        "api": api,
        "metric": asked and asked.metric,
        "filter": asked and asked.filter,
        "max_tokens": asked and asked.max_tokens,
        "rows": data.rows,
        "folder": str(data.folder.resolve()) if data.folder else None,
        **more,
    }
    with tempfile.TemporaryDirectory(prefix="tokenwatt-") as name:
        folder = Path(name)
        request["answer"] = str(folder / "answer.json")
        environment = _environment(os.environ, None if data.on_hub else folder)
        _run(request, folder, environment, _HUB_S if data.on_hub else _LOCAL_S)
        answer: dict[str, Any] = json.loads((folder / "answer.json").read_bytes())
    if (problem := answer.get("problem")) is not None:
        raise UsageError(Problem(**problem))
    return answer


def _run(
    request: Mapping[str, Any], folder: Path, environment: Mapping[str, str], deadline_s: float
) -> None:
    """Run the harness to its end.

    Raises:
        EnvironmentProblem: it did not start, failed, or took longer than `deadline_s`.
    """
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    output = folder / "output"
    # -P: a file of the user's such as datasets.py is none of the harness's modules.
    argv = [sys.executable, "-P", "-m", _HARNESS]
    with (folder / "request.json").open("rb") as asked, output.open("wb") as said:
        try:
            process = subprocess.Popen(
                argv,
                stdin=asked,
                stdout=said,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise _failed(f"did not start ({error.strerror})") from error
        with _ended(process):
            try:
                status = process.wait(deadline_s)
            except subprocess.TimeoutExpired as error:
                raise _failed(f"took longer than {deadline_s:g} s", _last(output)) from error
    if status != 0 or not (folder / "answer.json").is_file():
        raise _failed(f"ended with status {status}", _last(output))


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Let no process of its group outlive what is done here, Ctrl-C included."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(given: Mapping[str, str], private: Path | None) -> dict[str, str]:
    """Return the harness's environment: none of our secrets, and no network where none is needed.

    Args:
        given: ours.
        private: a folder for all that libraries keep; None: the hub is needed, and the caches and
            the token that the user has for it.
    """
    kept = {k: v for k, v in given.items() if not is_secret_variable(k)}
    quiet = {
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "TQDM_DISABLE": "1",
        "DO_NOT_TRACK": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if private is None:
        token = {"HF_TOKEN": given["HF_TOKEN"]} if "HF_TOKEN" in given else {}
        return {**kept, **quiet, **token}
    kept = {k: v for k, v in kept.items() if not k.startswith(("HF_", "HUGGINGFACE_"))}
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    places = {name: str(private) for name in ("HF_HOME", "XDG_CACHE_HOME", "TMPDIR")}
    return {**kept, **quiet, **offline, **places}


def _failed(what: str, said: str = "") -> EnvironmentProblem:
    return EnvironmentProblem(Problem(f"the accuracy harness {what}", found=said or None))


def _last(output: Path) -> str:
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    return clean_text(" | ".join(line for line in lines[-_LAST_LINES:] if line.strip()), limit=800)


def _task(value: Mapping[str, Any]) -> Task:
    try:
        asked = AskedTask.model_validate_json(json.dumps(value["asked"]))
    except ValidationError as error:
        raise UsageError(*validation_problems(error, source=f"the task {value['name']}")) from error
    questions = (
        Question(
            each["number"],
            each["data"],
            each["prompt"] if isinstance(each["prompt"], str) else tuple(each["prompt"]),
            each["prompt_digest"],
            tuple(Choice(*pair) for pair in each["choices"]),
        )
        for each in value["questions"]
    )
    return Task(value["name"], value["shots"], asked, value["kind"], tuple(questions))
