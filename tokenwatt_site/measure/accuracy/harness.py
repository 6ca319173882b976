"""The harness (lm-eval) in a process of its own: makes a task's questions, and scores its answers.

`python -m tokenwatt_site.measure.accuracy.harness` reads one JSON request from its standard input
and writes one JSON answer to the file that it names: {"task": ...}, {"scores": ...} or, where the
user can mend it, {"problem": ...}. What libraries print is noise. No other module imports lm-eval.

Prompts are what lm-eval's own command would send: its seeds, and of a chat the examples as turns of
their own. Sampling is greedy. Of a chat, the engine puts its template around the messages.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import json
import random
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from tokenwatt_site.canonical import JsonValue, canonical_bytes, digest, text_fault
from tokenwatt_site.errors import Problem, UsageError
from tokenwatt_site.evidence.answers import digest_of_digests
from tokenwatt_site.measure.accuracy import local
from tokenwatt_site.measure.accuracy.splits import read_split

# lm-eval's own defaults (lm_eval/defaults.py), by which its published scores were made.
_SEED = 1234
_MAX_TOKENS = 256

_MAX_EXTRACTED_CHARS = 4000
_NO_MATCH = "[invalid]"
"""What lm-eval's regular expressions give where they match nothing."""

_INERT = frozenset({"top_p", "top_k", "min_p"})
"""What greedy sampling makes meaningless."""

_TEXT, _CHOICES = "generate_until", ("multiple_choice", "loglikelihood")


def main() -> int:
    request = json.load(sys.stdin)
    Path(request["answer"]).write_text(json.dumps(respond(request)), encoding="utf-8")
    return 0


def respond(request: Mapping[str, Any]) -> JsonValue:
    """Return the answer to one request."""
    try:
        return _answer(request)
    except UsageError as error:
        (problem,) = error.problems
        return {"problem": {k: v for k, v in vars(problem).items() if v is not None}}


def _answer(request: Mapping[str, Any]) -> JsonValue:
    try:
        import lm_eval  # noqa: F401, PLC0415 - seconds, and an extra
    except ImportError as error:
        refuse(
            f"needs lm-eval, which cannot be imported ({error})",
            remedy="pip install 'tokenwatt-site[accuracy]'",
        )
    planned = _Planned(request)
    if request["job"] == "plan":
        return {"task": planned.task}
    for name in ("data", "prompts"):
        if planned.task["asked"][name] != request["digests"][name]:
            refuse("has changed since its questions were asked", field="accuracy.data")
    return {"scores": planned.scores(request["replies"])}


def refuse(
    what: str,
    *,
    field: str = "setup.accuracy_gate.task",
    found: str | None = None,
    expected: str | None = None,
    remedy: str | None = None,
) -> NoReturn:
    """Raise what the user can mend; the process that started this one says which spec it is."""
    raise UsageError(
        Problem(what, field=field, found=found, expected=expected, remedy=remedy),
    )


class _Planned:
    """A task with its requests built, and what it is for the gate."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._name: str = request["task"]
        chat, wanted = request["api"] == "chat", request["questions"]
        self._task = _load(request)
        count = len(self._task.eval_docs)
        if count < wanted:
            refuse(
                "has fewer questions than are asked for",
                field="setup.accuracy_gate.questions",
                found=f"{wanted:,}",
                expected=f"at most {count:,}",
            )
        self._set_shots(request["shots"])
        try:
            self._task.build_all_requests(
                limit=wanted,
                rank=0,
                world_size=1,
                apply_chat_template=chat,
                fewshot_as_multiturn=chat,
                chat_template=_messages if chat else None,
            )
        except (AssertionError, AttributeError, ValueError, KeyError, TypeError) as error:
            refuse(f"cannot be asked with {request['shots']} shots ({_said(error)})")
        self._by_question: dict[int, list[Any]] = {}
        for instance in self._task.instances:
            self._by_question.setdefault(instance.doc_id, []).append(instance)
        for instances in self._by_question.values():
            instances.sort(key=lambda instance: instance.idx)
        self._generated = self._task.OUTPUT_TYPE == _TEXT
        self.task = self._described(request, chat=chat)

    def _set_shots(self, shots: int) -> None:
        if self._task.get_config("num_fewshot") == 0 and shots:
            refuse("is defined without examples", field="setup.accuracy_gate.shots", expected="0")
        self._task.set_config("num_fewshot", shots)
        self._task.set_fewshot_seed(_SEED)

    def _described(self, request: Mapping[str, Any], *, chat: bool) -> dict[str, JsonValue]:
        self._metric = self._named(request["metric"], list(self._task.aggregation()), "metric")
        self._reply("")
        filters = list(self._task.instances[0].filtered_resps)
        self._filter = self._named(request["filter"], filters, "filter")
        self._require_right_or_wrong()
        stop, max_tokens = self._decoding()
        questions = [self._question(number, chat=chat) for number in range(request["questions"])]
        metadata = self._task.get_config("metadata")
        version = metadata.get("version") if isinstance(metadata, dict) else None
        return {
            "name": self._name,
            "shots": request["shots"],
            "asked": {
                "harness": f"lm-eval {importlib.metadata.version('lm_eval')}",
                "task_version": str(version) if version is not None else "not recorded",
                "api": request["api"],
                "metric": self._metric,
                "filter": self._filter,
                "max_tokens": request["max_tokens"] or max_tokens,
                "stop": stop,
                "data": digest_of_digests([q["data"] for q in questions]),
                "prompts": digest_of_digests([q["prompt_digest"] for q in questions]),
            },
            "kind": "generate" if self._generated else "choices",
            "questions": questions,
        }

    def _named(self, asked: str | None, known: Sequence[str], what: str) -> str:
        if asked is not None and asked not in known:
            refuse(
                f"has no such {what}",
                field=f"setup.accuracy_gate.asked.{what}",
                found=asked,
                expected=" or ".join(known),
            )
        return asked or known[0]

    def _require_right_or_wrong(self) -> None:
        """Try what a metric makes of replies that are wrong, right and half right."""
        if not self._task.higher_is_better().get(self._metric, True):
            self._refuse_metric("one where less is better")
        target = str(self._task.doc_to_target(self._by_question[0][0].doc))
        for reply in ("", target, f"{target} and more"):
            self._reply(reply)
            self._result(0)

    def _reply(self, text: str) -> None:
        for instance in self._task.instances:
            instance.resps = [text if self._generated else (-1.0 - instance.idx, False)]
        self._task.apply_filters()

    def _result(self, number: int) -> bool:
        instances = self._by_question[number]
        replies = [instance.filtered_resps[self._filter] for instance in instances]
        try:
            results = self._task.process_results(instances[0].doc, replies)
        except Exception as error:  # noqa: BLE001 - each task has code of its own
            refuse(f"cannot score an answer of question {number} ({_said(error)})")
        value = results.get(self._metric)
        if getattr(value, "shape", None) == ():
            value = value.item()  # of numpy
        if not isinstance(value, bool | int | float) or value not in (0, 1):
            self._refuse_metric(repr(value)[:80])
        return bool(value)

    def _refuse_metric(self, found: str) -> NoReturn:
        refuse(
            f"is not right or wrong for each question by its metric {self._metric}",
            field="setup.accuracy_gate.asked.metric",
            found=found,
            expected="0 or 1",
            remedy="Name another metric of the task, or another task.",
        )

    def _decoding(self) -> tuple[list[str], int]:
        if not self._generated:
            return [], 1
        told = dict(self._task.get_config("generation_kwargs"))
        until = told.pop("until")
        # A stop string that is empty would end every answer before it began.
        stop = [each for each in ([until] if isinstance(until, str) else until) if each]
        limits = [told.pop(key, None) for key in ("max_gen_toks", "max_tokens", "max_new_tokens")]
        if told.pop("do_sample", False) or told.pop("temperature", 0):
            refuse("samples its answers", expected="a task that is asked greedily")
        told.pop("temperature", None)
        if unknown := sorted(set(told) - _INERT):
            refuse("has settings of decoding that are not known here", found=", ".join(unknown))
        if any(text_fault(each) for each in stop):
            refuse("stops at text that a spec cannot hold", found=repr(stop)[:200])
        return stop, next((int(limit) for limit in limits if limit), _MAX_TOKENS)

    def _question(self, number: int, *, chat: bool) -> dict[str, JsonValue]:
        instances = self._by_question[number]
        arguments = [instance.args for instance in instances]
        choices: list[list[str]] = []
        if self._generated:
            prompt = json.loads(arguments[0][0]) if chat else arguments[0][0]
            if chat and prompt[-1]["role"] != "user":
                refuse(
                    "begins the answer itself, which a chat does not let it",
                    remedy="Ask it with endpoint.api: completions.",
                )
            sent = prompt
        else:
            sent = choices = [list(pair) for pair in arguments]
            prompt = choices[0][0]
            if not all(context for context, _ in choices):
                refuse("weighs choices without a question before them, which no engine does")
        return {
            "number": number,
            "data": digest(_plain(instances[0].doc)),
            "prompt": prompt,
            "prompt_digest": digest(sent),
            "choices": choices,
        }

    def scores(self, replies: Mapping[str, str]) -> list[JsonValue]:
        """Return [question, extracted, correct] of each question that has a reply."""
        self._reply("")
        for number, instances in self._by_question.items():
            if (text := replies.get(str(number))) is None:
                continue
            if self._generated:
                instances[0].resps = [text]
                continue
            for instance, (log_probability, greedy) in zip(
                instances, json.loads(text), strict=True
            ):
                instance.resps = [(log_probability, greedy)]
        self._task.apply_filters()
        return [
            [number, self._extracted(number), self._result(number)]
            for number in self._by_question
            if str(number) in replies
        ]

    def _extracted(self, number: int) -> str | None:
        instances = self._by_question[number]
        if self._generated:
            text = instances[0].filtered_resps[self._filter]
            if isinstance(text, list | tuple):
                text = ", ".join(map(str, text))
        elif self._metric == "acc" and len(instances) > 1:
            best = max(instances, key=lambda instance: instance.filtered_resps[self._filter][0])
            text = best.args[1].strip()
        else:
            return None
        text = str(text)
        held = text_fault(text) is None and len(text) <= _MAX_EXTRACTED_CHARS
        return text if held and text != _NO_MATCH else None


def _load(request: Mapping[str, Any]) -> Any:
    # The seeds of lm-eval's command: some tasks shuffle when they load.
    import numpy as np  # noqa: PLC0415 - comes with lm-eval

    random.seed(0)
    np.random.seed(_SEED)  # the generator that tasks use
    if (rows := request["rows"]) is not None:
        return _local(request, rows)
    config = _registered(request["task"], chat=request["api"] == "chat")
    if request["folder"] is not None:
        if config.get("custom_dataset") is not None:
            refuse("makes its data set itself and takes none", field="accuracy.data")
        config |= {"custom_dataset": _from_folder(Path(request["folder"]), config)}
    return _configured(config, hub=request["folder"] is None)


def _local(request: Mapping[str, Any], rows: Sequence[local.Row]) -> Any:
    shots = request["shots"]
    if len(rows) <= shots:
        refuse(
            "has no question left beside the examples",
            field="setup.accuracy_gate.shots",
            found=f"{shots} shots, {len(rows)} rows",
        )
    data = _data_set({"test": [dict(row) for row in rows[shots:]]})
    config = local.config(request["task"], rows[:shots])
    return _configured(config | {"custom_dataset": lambda **_: data}, hub=False)


@cache
def _index() -> Mapping[str, Any]:
    """Return every task of lm-eval by its name; it reads 14,000 files, for about 9 s."""
    from lm_eval.tasks import TaskManager  # noqa: PLC0415

    index: Mapping[str, Any] = TaskManager().task_index
    return index


def _registered(name: str, *, chat: bool) -> dict[str, Any]:
    from lm_eval.tasks._index import Kind  # noqa: PLC0415
    from lm_eval.tasks._yaml_loader import load_yaml  # noqa: PLC0415

    index = _index()
    entry = index.get(name)
    if entry is None:
        close = difflib.get_close_matches(name, index, n=5)
        refuse("is no task of lm-eval", found=name, expected=" or ".join(close) or None)
    if entry.kind in (Kind.GROUP, Kind.TAG):
        members = ", ".join(sorted(entry.tags)[:5])
        refuse(
            "is a group of tasks",
            found=name,
            expected="one task" + (f", such as {members}" if members else ""),
        )
    if entry.kind is not Kind.TASK or entry.yaml_path is None:
        refuse("is a task in Python, whose prompts no configuration tells", found=name)
    # Before its functions are there: some bring code that is run or fetched.
    _require_measurable(load_yaml(entry.yaml_path, resolve_func=False), chat=chat)
    try:
        config = load_yaml(entry.yaml_path)
    except Exception as error:  # noqa: BLE001 - the task's own modules
        refuse(f"cannot be loaded ({_said(error)})", found=name)
    return {k: v for k, v in config.items() if k not in ("tag", "group", "task_list")}


def _configured(config: dict[str, Any], *, hub: bool) -> Any:
    from lm_eval.api.task import ConfigurableTask  # noqa: PLC0415

    config = {"metadata": {}} | config
    try:
        return ConfigurableTask(config=config)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - of lm-eval, datasets, the hub and the task
        if not hub:
            refuse(f"cannot be made of this data ({_said(error)})", field="accuracy.data")
        refuse(
            f"has its data set {config.get('dataset_path')} on the hub, which cannot be read"
            f" ({_said(error)})",
            remedy="Name a folder with its .jsonl files in accuracy.data.",
        )


def _require_measurable(config: Mapping[str, Any], *, chat: bool) -> None:
    kind = config.get("output_type", _TEXT)
    for unfit, what in (
        (kind not in (_TEXT, *_CHOICES), f"asks for {kind}, which is not right or wrong"),
        (int(config.get("repeats") or 1) > 1, "draws several answers to each question"),
        (config.get("unsafe_code"), "runs the code that is answered"),
        (config.get("doc_to_image") or config.get("doc_to_audio"), "asks with more than text"),
    ):
        if unfit:
            refuse(what, remedy="Name another task.")
    if chat and kind in _CHOICES:
        refuse(
            "weighs choices by log-probabilities of a prompt, which a chat does not tell",
            remedy="Ask it with endpoint.api: completions.",
        )


def _from_folder(folder: Path, config: Mapping[str, Any]) -> Any:
    fewshot = config.get("fewshot_config") or {}
    examples = fewshot.get("split") or config.get("fewshot_split")
    needed = {config.get("test_split") or config.get("validation_split"), examples}
    others = {config.get(f"{each}_split") for each in ("validation", "training")}
    splits: dict[str, list[dict[str, JsonValue]]] = {}
    for name in filter(None, needed | others):
        path = folder / f"{name}.jsonl"
        if name in needed or path.exists():
            splits[name] = read_split(path)
    data = _data_set(splits)
    return lambda **_: data


def _data_set(splits: Mapping[str, list[dict[str, JsonValue]]]) -> Any:
    from datasets import Dataset, DatasetDict  # noqa: PLC0415

    try:
        return DatasetDict({name: Dataset.from_list(rows) for name, rows in splits.items()})
    except (ValueError, TypeError, OverflowError) as error:  # pyarrow's errors are among them
        refuse(
            f"has a field that is not of one type in all rows ({_said(error)})",
            field="accuracy.data",
        )


def _messages(messages: Sequence[Mapping[str, str]], **_: object) -> str:
    return json.dumps(messages)


def _plain(value: object) -> JsonValue:
    """Return a row as JSON, what JSON lacks (dates, bytes, large numbers) in its own spelling."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    try:
        canonical_bytes(value)
    except UsageError:
        return repr(value)
    return value


def _said(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


if __name__ == "__main__":
    sys.exit(main())
