from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tokenwatt_site.accuracy_spec import AccuracyGate, AccuracyPlan, AskedTask
from tokenwatt_site.canonical import digest, load_yaml, text_fault
from tokenwatt_site.errors import EnvironmentProblem, SpecError, UsageError
from tokenwatt_site.measure.accuracy import tasks
from tokenwatt_site.measure.accuracy.task import Reply, Task
from tokenwatt_site.measure.accuracy.tasks import asked_block, plan_task, require_asked, score

ASKED = AskedTask(
    harness="lm-eval 0.4.13",
    task_version="3.0",
    api="chat",
    metric="exact_match",
    filter="strict-match",
    max_tokens=256,
    stop=("\n", "</s>"),
    data="a" * 64,
    prompts="b" * 64,
)
TASK = Task("sums", 4, ASKED, "generate", ())
GATE = AccuracyGate(task="sums", shots=4, questions=60, max_drop_points=1.0)
PLAN = AccuracyPlan(data="tasks/sums.jsonl")
SPECS = (ROOT / "specs",)

stops = st.text(min_size=1, max_size=20).filter(lambda text: text_fault(text) is None)


@given(st.lists(stops, max_size=16), st.sampled_from(["3.0", "0", "true", "not recorded", "1e3"]))
def test_the_lines_to_paste_read_back_as_what_is_asked(stop: list[str], version: str) -> None:
    asked = ASKED.model_copy(update={"stop": tuple(stop), "task_version": version})
    block = asked_block(replace(TASK, asked=asked))
    value, _ = load_yaml(f"setup:\n  accuracy_gate:\n    shots: 4\n{block}\n".encode(), source="x")
    found = value["setup"]["accuracy_gate"]["asked"]
    assert AskedTask.model_validate(found | {"stop": tuple(found["stop"])}) == asked


def test_a_gate_without_its_words_is_refused_with_the_lines_to_paste() -> None:
    with pytest.raises(SpecError) as caught:
        require_asked(GATE, TASK)
    assert asked_block(TASK) in str(caught.value)


def test_each_field_that_differs_is_named() -> None:
    other = ASKED.model_copy(update={"max_tokens": 16, "stop": ()})
    with pytest.raises(SpecError) as caught:
        require_asked(GATE.model_copy(update={"asked": other}), TASK)
    fields = [problem.field for problem in caught.value.problems]
    assert fields == ["setup.accuracy_gate.asked.max_tokens", "setup.accuracy_gate.asked.stop"]
    assert "found 16; expected 256" in str(caught.value)


def test_a_gate_that_says_what_is_asked_is_accepted() -> None:
    require_asked(GATE.model_copy(update={"asked": ASKED}), TASK)


@pytest.mark.parametrize(
    ("gate", "data", "words"),
    [
        (GATE.model_copy(update={"task": "none"}), None, "names no task to ask"),
        (GATE.model_copy(update={"questions": "not recorded"}), None, "is no number of questions"),
        (GATE, "tasks/none.jsonl", "accuracy.data: is not there; found tasks/none.jsonl"),
        (GATE, "demo.spec.yaml", "is not a .jsonl file or a folder"),
        (GATE, "tasks/capitals.jsonl", "found sums; expected capitals, as capitals.jsonl is"),
    ],
)
def test_a_gate_that_cannot_be_asked_is_refused_before_the_harness_starts(
    gate: AccuracyGate, data: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_run", pytest.fail)
    with pytest.raises(UsageError) as caught:
        plan_task(gate, AccuracyPlan(data=data), "completions", folders=SPECS)
    assert words in str(caught.value)


def test_data_are_of_the_first_folder_that_has_them_and_no_link_leads_out(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "sums.jsonl").write_text("not a row\n")
    folders = (tmp_path / "a", tmp_path / "b")
    plan = AccuracyPlan(data="sums.jsonl")
    with pytest.raises(UsageError, match=r"b/sums\.jsonl:1"):
        plan_task(GATE, plan, "completions", folders=folders)
    (tmp_path / "a" / "sums.jsonl").symlink_to(ROOT / "specs" / "tasks" / "sums.jsonl")
    with pytest.raises(UsageError, match="leads out of"):
        plan_task(GATE, plan, "completions", folders=folders)


def test_no_secret_of_ours_reaches_the_harness_and_local_data_need_no_network() -> None:
    given = {"PATH": "/bin", "API_KEY": "k", "HF_TOKEN": "t", "HF_HOME": "/h", "HTTP_PROXY": "p"}
    local = tasks._environment(given, Path("/private"))
    assert not {"API_KEY", "HF_TOKEN"} & set(local)
    assert (local["PATH"], local["HF_HOME"], local["HF_HUB_OFFLINE"]) == ("/bin", "/private", "1")
    hub = tasks._environment(given, None)
    assert "API_KEY" not in hub
    assert (hub["HF_TOKEN"], hub["HF_HOME"], hub.get("HF_HUB_OFFLINE")) == ("t", "/h", None)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another module in the harness's place."""
    monkeypatch.setattr(tasks, "_HARNESS", "stand_in")
    return tmp_path / "stand_in.py"


def run(script: Path, deadline_s: float = 60) -> None:
    environment = {**os.environ, "PYTHONPATH": str(script.parent)}
    tasks._run({}, script.parent, environment, deadline_s)


def test_a_harness_that_fails_is_told_with_its_last_words(script: Path) -> None:
    script.write_text("print('first')\nraise SystemExit('no luck')\n")
    with pytest.raises(EnvironmentProblem, match=r"ended with status 1; found first \| no luck"):
        run(script)


def test_a_harness_that_says_nothing_is_no_answer(script: Path) -> None:
    script.write_text("")
    with pytest.raises(EnvironmentProblem, match="ended with status 0"):
        run(script)


def test_a_harness_that_takes_too_long_ends_with_all_that_it_started(
    script: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "held")
    reader = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    script.write_text(
        f"import os, signal\nheld = open({str(tmp_path / 'held')!r}, 'w')\n"
        "os.fork()\nsignal.pause()\n"
    )
    with pytest.raises(EnvironmentProblem, match="took longer than 1 s"):
        run(script, deadline_s=1)
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""  # when no process has it open any more
    os.close(reader)


def test_ctrl_c_ends_the_harness(script: Path, tmp_path: Path) -> None:
    script.write_text(
        "import os, pathlib, signal\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpgrp()))\n"
        "os.kill(os.getppid(), signal.SIGINT)\n"
        "signal.pause()\n"
    )
    with pytest.raises(KeyboardInterrupt):
        run(script)
    with pytest.raises(ProcessLookupError):
        os.killpg(int((tmp_path / "pid").read_text()), 0)


def test_a_python_that_is_not_there_is_told(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(script.parent / "python"))
    with pytest.raises(EnvironmentProblem, match="did not start"):
        run(script)


def reply(question: int, text: str | None) -> Reply:
    failure = "refused" if text is None else None
    return Reply(question, text, None, None, None, failure, 1)


def test_a_question_without_an_answer_is_wrong_and_needs_no_harness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "_run", pytest.fail)
    (found,) = score(GATE, PLAN, "chat", TASK, [reply(3, None)], folders=SPECS)
    assert (found.question, found.extracted, found.correct) == (3, None, False)


def test_a_local_task_is_planned_and_scored_by_the_harness(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("lm_eval")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    task = plan_task(GATE, PLAN, "chat", folders=(ROOT, *SPECS))
    assert (task.name, task.kind, len(task.questions)) == ("sums", "generate", 60)
    assert [len(question.prompt) for question in task.questions] == [9] * 60
    assert task.questions[0].prompt_digest == digest(list(task.questions[0].prompt))
    right = str(sum(int(w) for w in str(task.questions[0].prompt[-1]["content"]) if w.isdigit()))
    replies = [reply(0, f"\n {right}. \n{right}0"), reply(1, "x"), reply(2, None), reply(3, "")]
    found = score(GATE, PLAN, "chat", task, replies, folders=SPECS)
    assert [(each.extracted, each.correct) for each in found] == [
        (f"{right}.", True),
        ("x", False),
        (None, False),
        (None, False),
    ]
    assert not list(tmp_path.iterdir())
