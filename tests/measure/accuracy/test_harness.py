from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tokenwatt_site.canonical import digest
from tokenwatt_site.measure.accuracy import harness, local

pytest.importorskip("lm_eval")

REPLIES = ["She makes #### 18", "It takes 3 bolts.", "#### 18"]


def request(**changes: Any) -> dict[str, Any]:
    return {
        "job": "plan",
        "task": "gsm8k",
        "shots": 5,
        "questions": 3,
        "api": "completions",
        "metric": None,
        "filter": None,
        "max_tokens": None,
        "rows": None,
        "folder": None,
        **changes,
    }


def written(folder: Path, **splits: list[dict[str, Any]] | str) -> str:
    folder.mkdir()
    for name, rows in splits.items():
        text = rows if isinstance(rows, str) else "".join(f"{json.dumps(row)}\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    return str(folder)


def arc(number: int) -> dict[str, Any]:
    return {
        "id": f"{number}",
        "question": f"What is {number} and 1?",
        "choices": {"text": [f"{number}", f"{number + 1}"], "label": ["A", "B"]},
        "answerKey": "B",
    }


LOCAL = [{"question": f"What is {n} plus 1?", "answer": str(n + 1)} for n in range(6)]


def requests_of(folder: Path, gsm8k: str) -> dict[str, dict[str, Any]]:
    mrpc = [{"sentence1": "a", "sentence2": "b", "label": 1, "idx": n} for n in range(3)]
    choices = written(folder / "arc", train=[arc(1)], test=[arc(1)], validation=[arc(1)])
    rows = (folder / "gsm8k" / "test.jsonl").read_text().splitlines(keepends=True)
    return {
        "gsm8k": request(folder=gsm8k),
        "chat": request(folder=gsm8k, api="chat", max_tokens=77),
        "flexible": request(folder=gsm8k, filter="flexible-extract"),
        "local": request(task="sums", rows=LOCAL, shots=2, questions=4),
        "choices": request(task="arc_easy", folder=choices, shots=0, questions=1),
        "chat of choices": request(
            task="arc_easy", folder=choices, shots=0, questions=1, api="chat"
        ),
        "pairs": request(
            task="mrpc",
            metric="f1",
            shots=0,
            questions=2,
            folder=written(folder / "mrpc", train=mrpc, validation=mrpc, test=mrpc),
        ),
        "unknown": request(task="gsm8kk"),
        "group": request(task="mmlu"),
        "tag": request(task="math_word_problems"),
        "code": request(task="humaneval"),
        "several": request(task="gsm8k_cot_self_consistency"),
        "perplexity": request(task="wikitext"),
        "hub": request(),
        "few": request(folder=gsm8k, questions=1320),
        "shots": request(folder=gsm8k, shots=201),
        "metric": request(folder=gsm8k, metric="f1"),
        "filter": request(folder=gsm8k, filter="lenient"),
        "no split": request(folder=written(folder / "half", test=rows[0])),
        "bad line": request(
            folder=written(folder / "bad", test="".join(rows[:2]) + "{\n", train=rows[0])
        ),
        "mixed": request(
            folder=written(
                folder / "mixed",
                test=[{"question": "q", "answer": 1}, {"question": "q", "answer": "b"}],
                train=rows[0],
            )
        ),
        "all rows are examples": request(task="sums", rows=LOCAL, shots=6, questions=1),
    }


def child(requests: dict[str, Any], gsm8k: str, folder: Path) -> dict[str, Any]:
    files = {split: f"{gsm8k}/{split}.jsonl" for split in ("train", "test")}
    oracle = {"files": files, "shots": 5, "replies": REPLIES}
    given = {"requests": requests, "oracle": oracle, "answer": str(folder / "answers.json")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.harness_child"],
        input=json.dumps(given),
        env={**os.environ, "HF_HOME": str(folder), "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads((folder / "answers.json").read_text())
    return result


@pytest.fixture(scope="module")
def told(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("harness")
    (folder / "gsm8k").mkdir()
    for found, split in (("test", "test"), ("train-head200", "train")):
        shutil.copy(test_data / "gsm8k" / f"{found}.jsonl", folder / "gsm8k" / f"{split}.jsonl")
    gsm8k = str(folder / "gsm8k")
    requests = requests_of(folder, gsm8k)
    replies = {str(number): text for number, text in enumerate(REPLIES)}
    # What is scored has the digests of what was planned before it, which the child puts there.
    for name in ("gsm8k", "flexible"):
        requests[f"{name} scored"] = {
            **requests[name],
            "job": "score",
            "replies": replies,
            "digests": name,
        }
    requests["choices scored"] = {
        **requests["choices"],
        "job": "score",
        "replies": {"0": "[[-2.5,false],[-0.5,true]]"},
        "digests": "choices",
    }
    requests["changed"] = {
        **requests["gsm8k scored"],
        "digests": {"data": "0" * 64, "prompts": "0" * 64},
    }
    return child(requests, gsm8k, folder)


def task(told: dict[str, Any], name: str) -> dict[str, Any]:
    answer = told["answers"][name]
    assert "task" in answer, answer
    found: dict[str, Any] = answer["task"]
    return found


def test_prompts_are_those_that_lm_eval_itself_sends(told: dict[str, Any]) -> None:
    ours = [question["prompt"] for question in task(told, "gsm8k")["questions"]]
    assert ours == [row[0] for row in told["oracle"]]
    assert [prompt.count("Question:") for prompt in ours] == [6, 6, 6]


def test_what_a_task_asks_is_lm_evals_own(told: dict[str, Any]) -> None:
    asked = task(told, "gsm8k")["asked"]
    assert asked["harness"].startswith("lm-eval 0.4.")
    assert (asked["task_version"], asked["api"]) == ("3.0", "completions")
    assert (asked["metric"], asked["filter"]) == ("exact_match", "strict-match")
    assert (asked["max_tokens"], asked["stop"]) == (256, ["Question:", "</s>", "<|im_end|>"])


def test_a_question_is_known_by_its_row_and_by_what_is_sent(
    told: dict[str, Any], test_data: Path
) -> None:
    first = (test_data / "gsm8k" / "test.jsonl").read_text().splitlines()[0]
    question = task(told, "gsm8k")["questions"][0]
    assert question["data"] == digest(json.loads(first))
    assert question["prompt_digest"] == digest(question["prompt"])


def test_of_a_chat_each_example_is_a_turn_of_its_own(told: dict[str, Any]) -> None:
    chat, text = task(told, "chat"), task(told, "gsm8k")
    messages = chat["questions"][0]["prompt"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 5 + ["user"]
    assert messages[-1]["content"] in text["questions"][0]["prompt"]
    assert chat["asked"]["max_tokens"] == 77
    assert chat["asked"]["data"] == text["asked"]["data"]
    assert chat["asked"]["prompts"] != text["asked"]["prompts"]


@pytest.mark.parametrize(("name", "place"), [("gsm8k", 1), ("flexible", 2)])
def test_scores_are_those_that_lm_eval_itself_gives(
    told: dict[str, Any], name: str, place: int
) -> None:
    ours = told["answers"][f"{name} scored"]["scores"]
    theirs = [row[place] for row in told["oracle"]]
    assert [[n, float(right)] for n, _, right in ours] == [
        [n, score] for n, (_, _, score) in enumerate(theirs)
    ]
    assert [found or "[invalid]" for _, found, _ in ours] == [found for _, found, _ in theirs]


def test_a_strict_filter_takes_less_out_than_a_flexible_one(told: dict[str, Any]) -> None:
    assert told["answers"]["gsm8k scored"]["scores"][:2] == [[0, "18", True], [1, None, False]]
    assert told["answers"]["flexible scored"]["scores"][:2] == [[0, "18", True], [1, "3", True]]


def test_examples_of_a_local_task_are_its_first_rows_and_are_not_asked(
    told: dict[str, Any],
) -> None:
    found = task(told, "local")
    assert found["questions"][0]["prompt"] == (
        "Question: What is 0 plus 1?\nAnswer: 1\n\nQuestion: What is 1 plus 1?\nAnswer: 2\n\n"
        "Question: What is 2 plus 1?\nAnswer:"
    )
    assert [q["data"] for q in found["questions"]] == [digest(row) for row in LOCAL[2:]]
    assert found["asked"]["task_version"] == local.VERSION


def test_choices_are_weighed_by_their_continuations(told: dict[str, Any]) -> None:
    found = task(told, "choices")
    (question,) = found["questions"]
    assert (found["kind"], found["asked"]["metric"], found["asked"]["stop"]) == (
        "choices",
        "acc",
        [],
    )
    assert [continuation for _, continuation in question["choices"]] == [" 1", " 2"]
    assert question["prompt"] == question["choices"][0][0]
    assert question["prompt_digest"] == digest(question["choices"])
    assert told["answers"]["choices scored"]["scores"] == [[0, "2", True]]


@pytest.mark.parametrize(
    ("name", "field", "words"),
    [
        ("unknown", "task", "is no task of lm-eval; found gsm8kk; expected gsm8k or "),
        ("group", "task", "is a group of tasks; found mmlu; expected one task"),
        ("tag", "task", "expected one task, such as "),
        ("code", "task", "runs the code that is answered"),
        ("several", "task", "draws several answers"),
        ("perplexity", "task", "loglikelihood_rolling, which is not right or wrong"),
        ("chat of choices", "task", "Ask it with endpoint.api: completions."),
        ("pairs", "metric", "is not right or wrong for each question by its metric f1"),
        ("hub", "task", "openai/gsm8k on the hub, which cannot be read"),
        ("few", "questions", "found 1,320; expected at most 1,319"),
        ("shots", "task", "cannot be asked with 201 shots"),
        ("metric", "asked.metric", "found f1; expected exact_match"),
        ("filter", "asked.filter", "expected strict-match or flexible-extract"),
        ("no split", "accuracy.data", "train.jsonl"),
        ("mixed", "accuracy.data", "is not of one type in all rows"),
        ("changed", "accuracy.data", "has changed since its questions were asked"),
        ("all rows are examples", "shots", "found 6 shots, 6 rows"),
    ],
)
def test_what_cannot_be_asked_is_named_with_the_field(
    told: dict[str, Any], name: str, field: str, words: str
) -> None:
    problem = harness.Problem(**told["answers"][name]["problem"])
    assert (problem.field or "").endswith(field)
    assert words in str(problem)


def test_a_bad_row_is_named_by_file_and_line(told: dict[str, Any]) -> None:
    problem = harness.Problem(**told["answers"]["bad line"]["problem"])
    assert (Path(problem.file or "").name, problem.line) == ("test.jsonl", 3)
    assert "is not valid JSON" in problem.what


def test_without_lm_eval_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    problem = harness.respond(request())["problem"]
    assert problem["remedy"] == "pip install 'tokenwatt-site[accuracy]'"
