"""From a spec with a gate to a signed run: planned before, asked after, resumed, and judged."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from tests.conftest import ROOT
from tests.measure.stub_engine import StubEngine, as_json, serving
from tests.measure.test_session import Lab, lab  # noqa: F401  # a fixture
from tests.measure.test_session_answers import Desk, desk, interrupted_at  # noqa: F401
from tests.support.answering import Answering, prompt_of
from tests.support.runs import HELD, as_written, small_spec
from tests.support.sums import scored, summing, sums
from tokenwatt_site import cli
from tokenwatt_site.canonical import load_json
from tokenwatt_site.commands import questions
from tokenwatt_site.commands.verify import verify
from tokenwatt_site.errors import EnvironmentProblem, Problem, SpecError, UsageError
from tokenwatt_site.measure import session
from tokenwatt_site.measure.accuracy.task import Reply, Scores, Task
from tokenwatt_site.spec import Spec

TASK = sums(60)
DATA = "tasks/sums.jsonl"
runner = CliRunner()


class Harness:
    """Stands in for the harness: makes the sums where their data is, and scores them.

    `wrong` are the questions whose answers are scored as wrong.
    """

    def __init__(self) -> None:
        self.planned: list[tuple[Path, ...]] = []
        self.wrong: set[int] = set()
        self.refuses: Exception | None = None

    def plan_task(self, _gate: Any, plan: Any, _api: Any, *, folders: Sequence[Path]) -> Task:
        self._require_data(plan, folders)
        self.planned.append(tuple(folders))
        return TASK

    def require_asked(self, _gate: Any, _task: Task) -> None:
        if self.refuses is not None:
            raise self.refuses

    def score(
        self,
        _gate: Any,
        plan: Any,
        _api: Any,
        _task: Task,
        replies: Sequence[Reply],
        *,
        folders: Sequence[Path],
    ) -> Scores:
        self._require_data(plan, folders)
        return tuple(
            replace(each, correct=each.correct and each.question not in self.wrong)
            for each in scored(replies)
        )

    @staticmethod
    def _require_data(plan: Any, folders: Sequence[Path]) -> None:
        if not any((folder / plan.data).is_file() for folder in folders):
            raise UsageError(Problem("is not there", field="accuracy.data", found=plan.data))


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Harness:
    harness = Harness()
    for name in ("plan_task", "require_asked", "score"):
        monkeypatch.setattr(questions, name, getattr(harness, name))
    return harness


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(tmp_path / "keys"))
    write(tmp_path / "theirs" / "a.spec.yaml", gated())
    (tmp_path / "theirs/tasks").mkdir()
    (tmp_path / "theirs" / DATA).write_text("the sums", encoding="utf-8")
    return tmp_path


def gated(**changes: Any) -> Spec:
    return summing(TASK, **{"accuracy": {"data": DATA}, **changes})


def write(path: Path, spec: Spec) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_written(spec), encoding="utf-8")
    return path


def call(*words: object) -> Result:
    return runner.invoke(cli.app, [str(word) for word in words])


def run_of(done: Result) -> Path:
    assert done.exit_code in {0, 4}, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture
def measured(
    here: Path,
    desk: Desk,  # noqa: F811
    harness: Harness,
) -> Callable[..., Result]:
    """Measure the spec in `theirs`, as a baseline or a candidate."""

    def measure(role: str, *words: object, wrong: Sequence[int] = ()) -> Result:
        harness.wrong = set(wrong)
        return call("measure", "--spec", here / "theirs/a.spec.yaml", "--role", role, *words)

    return measure


def test_a_run_is_judged_against_the_baseline_that_was_found_before(
    measured: Callable[..., Result],
) -> None:
    baseline = verify(run_of(first := measured("baseline")))
    assert "accuracy: sums-0shot, 60 questions, this run is a reference" in first.stderr
    assert baseline.claims.gate.outcome == "reference"

    done = measured("candidate")
    checked = verify(run_of(done))
    told = f"accuracy: sums-0shot, 60 questions, reference run {baseline.run_id[:12]} (100.0%)"
    assert told in done.stderr
    assert done.exit_code == 0
    assert {entry.role for entry in checked.run.evidence} == {
        *("requests", "journal", "accuracy", "reference", "under-load")
    }
    assert checked.evidence.journal[0].data["reference"]["run"] == baseline.run_id
    assert checked.evidence.reference == baseline.evidence.accuracy
    gate = checked.claims.gate
    assert (gate.outcome, gate.reference_run) == ("inconclusive", baseline.run_id)
    assert "answers of repeat 1: 100.0% of 60 right (95% interval 94.0 to 100.0)" in done.stderr
    assert done.stderr.splitlines()[-1] == f"  {gate.text}"


def test_a_gate_that_failed_ends_with_4_after_its_run_was_written(
    measured: Callable[..., Result],
) -> None:
    measured("baseline")
    done = measured("candidate", wrong=range(20))
    assert done.exit_code == 4
    checked = verify(run_of(done))
    gate = checked.claims.gate
    assert (gate.outcome, gate.worse, gate.better) == ("failed", 20, 0)
    assert done.stderr.splitlines()[-1] == f"error: {gate.text}"


def test_without_a_reference_the_score_stands_alone_and_is_said_to(
    measured: Callable[..., Result],
) -> None:
    done = measured("candidate")
    assert "60 questions, no reference, so the score stands alone" in done.stderr
    checked = verify(run_of(done))
    assert checked.claims.gate.outcome == "no reference"
    assert checked.evidence.journal[0].data["reference"] is None


@pytest.mark.parametrize(
    "refuses",
    [
        SpecError(Problem("is missing", field="setup.accuracy_gate.asked", remedy="Paste: ...")),
        SpecError(Problem("is another", field="setup.accuracy_gate.asked.prompts")),
    ],
)
def test_a_spec_that_does_not_say_what_is_asked_is_refused_before_any_launch(
    measured: Callable[..., Result],
    desk: Desk,  # noqa: F811
    harness: Harness,
    here: Path,
    refuses: SpecError,
) -> None:
    harness.refuses = refuses
    done = measured("candidate")
    assert done.exit_code == 2
    assert str(refuses) in done.stderr
    assert desk.lab.launches == 0
    assert not (here / ".tokenwatt").exists()


def test_an_engine_that_died_while_it_was_asked_is_asked_the_rest_when_resumed(
    measured: Callable[..., Result],
    desk: Desk,  # noqa: F811
    here: Path,
) -> None:
    def die(question: int) -> None:
        desk.lab.dead = question == 40

    measured("baseline")
    desk.before, desk.asked = die, []
    broken = measured("candidate")
    assert broken.exit_code == 3
    assert "the engine ended while it was asked" in broken.stderr
    assert "what was measured is kept" in broken.stderr
    *_, folder = sorted((here / ".tokenwatt").iterdir())
    assert not (folder / "run.json").exists()

    desk.before, desk.lab.dead = lambda _: None, False
    checked = verify(run_of(call("measure", "--resume", folder)))
    assert desk.asked == list(range(60))
    (answers,) = checked.claims.accuracy
    assert (answers.questions, answers.parts, answers.same_launch) == (60, 2, False)
    assert checked.claims.gate.outcome == "inconclusive"


def test_ctrl_c_in_a_sitting_leaves_a_run_that_verifies_and_can_be_gone_on_with(
    measured: Callable[..., Result],
    desk: Desk,  # noqa: F811
    here: Path,
) -> None:
    desk.before = interrupted_at(40)
    broken = measured("candidate")
    assert broken.exit_code == 130
    (folder,) = (here / ".tokenwatt").iterdir()
    partial = verify(folder / "run.json")
    assert (partial.run.status, partial.claims.gate.outcome) == ("interrupted", "not run")

    desk.before = lambda _: None
    checked = verify(run_of(call("measure", "--resume", folder)))
    assert checked.run.status == "complete"
    assert desk.asked == list(range(60))


def test_data_that_is_gone_is_named_and_loses_nothing(
    measured: Callable[..., Result],
    desk: Desk,  # noqa: F811
    here: Path,
) -> None:
    desk.before = interrupted_at(40)
    measured("candidate")
    (folder,) = (here / ".tokenwatt").iterdir()
    launches = desk.lab.launches
    (here / "theirs" / DATA).rename(here / "elsewhere")
    gone = call("measure", "--resume", folder)
    assert gone.exit_code == 2
    assert f"accuracy.data: is not there; found {DATA}" in gone.stderr
    assert f"measure --resume {folder}" in gone.stderr
    assert desk.lab.launches == launches

    desk.before = lambda _: None
    (here / "elsewhere").rename(here / "theirs" / DATA)
    assert verify(run_of(call("measure", "--resume", folder))).run.status == "complete"
    assert desk.asked == list(range(60))


def test_a_harness_that_fails_to_score_is_tried_again_without_an_engine(
    measured: Callable[..., Result],
    desk: Desk,  # noqa: F811
    harness: Harness,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any, **__: Any) -> Scores:
        raise EnvironmentProblem("the harness ended with exit code 1")

    monkeypatch.setattr(questions, "score", fails)
    assert measured("candidate").exit_code == 3
    (folder,) = (here / ".tokenwatt").iterdir()
    monkeypatch.setattr(questions, "score", harness.score)
    assert verify(run_of(call("measure", "--resume", folder))).claims.accuracy[0].parts == 1
    assert desk.lab.launches == 1


def test_a_finished_measurement_that_is_resumed_needs_no_harness(
    measured: Callable[..., Result], harness: Harness, here: Path
) -> None:
    path = run_of(measured("candidate"))
    (folder,) = (here / ".tokenwatt").iterdir()
    harness.planned.clear()
    assert run_of(call("measure", "--resume", folder)) == path
    assert harness.planned == []


def test_a_run_file_with_a_gate_can_be_measured_again_where_its_data_is(
    measured: Callable[..., Result], here: Path
) -> None:
    path = run_of(measured("candidate"))
    told = call("measure", "--spec", path)
    assert told.exit_code == 2
    assert "accuracy.data" in told.stderr
    (here / "tasks").mkdir()
    (here / DATA).write_text("the sums", encoding="utf-8")
    again = verify(run_of(call("measure", "--spec", path, "--label", "again")))
    assert again.run.configuration == load_json(path.read_bytes(), source="x")["configuration"]


def test_data_is_looked_for_beside_the_spec_then_here_then_where_specs_are(
    measured: Callable[..., Result], harness: Harness, here: Path
) -> None:
    measured("candidate")
    ((beside, *others, packaged),) = harness.planned
    assert beside == here / "theirs"
    assert others == [Path(), Path("specs")]
    assert packaged.name == "specs"


def test_a_spec_without_a_gate_needs_no_harness(
    here: Path,
    lab: Lab,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def called(*_: Any, **__: Any) -> None:
        raise AssertionError

    for name in ("plan_task", "require_asked", "score", "find_reference"):
        monkeypatch.setattr(questions, name, called)
    none = {"task": "none", "shots": 0, "questions": 0, "max_drop_points": 0.0}
    path = write(here / "a.spec.yaml", summing(TASK, setup__accuracy_gate=none))
    done = call("measure", "--spec", path)
    assert done.stderr.count("accuracy gate") == done.stderr.count("no accuracy gate was asked for")
    assert verify(run_of(done)).claims.gate.outcome == "none"


def add_up(prompt: str) -> str:
    """Answer as an engine that can add, but for sums of 9."""
    numbers = re.findall(r"[0-9]+", prompt.rsplit("Question:", 1)[-1])
    return f" {sum(map(int, numbers)) - ('9' in numbers)}\n"


def test_an_engine_over_http_is_refused_without_the_block_then_loaded_asked_and_scored(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is stood in for but the model."""
    pytest.importorskip("lm_eval")
    monkeypatch.setattr(session, "self_test", lambda *_: HELD)
    shutil.copy(ROOT / "specs" / DATA, here / "theirs" / DATA)
    answering = Answering(text=add_up)
    models = as_json({"data": [{"id": "toy-135m"}]})
    engine = StubEngine(
        get={"/v1/models": models, "/metrics": (200, {}, b"")}, models=(), plain=answering
    )
    gate = {"task": "sums", "shots": 2, "questions": 20, "max_drop_points": 5.0}
    with serving(engine) as url:
        changes = {
            "accuracy": {"data": DATA},
            "endpoint__start": "attach",
            "endpoint__url": url,
            # A busy machine makes no trial INVALID: 0.5% of this are 300 ms.
            "setup__slo": [{"metric": "ttft", "quantile": 0.9, "limit_ms": 60_000.0}],
            "protocol__start_rate": 100.0,
            "protocol__max_rate": 200.0,
        }
        path = write(here / "theirs/a.spec.yaml", small_spec(setup__accuracy_gate=gate, **changes))
        refused = call("measure", "--spec", path)
        assert refused.exit_code == 2
        block = refused.stderr[refused.stderr.index("    asked:") :]
        gate |= yaml.safe_load(textwrap.dedent(block))
        write(path, small_spec(setup__accuracy_gate=gate, **changes))
        checked = verify(run_of(call("measure", "--spec", path)))
    (answers,) = checked.claims.accuracy
    nines = sum(
        "9" in prompt_of(body).rsplit("Question:", 1)[-1] for body in answering.bodies[-20:]
    )
    assert (answers.questions, answers.correct, answers.unanswered) == (20, 20 - nines, 0)
    assert 0 < nines < 10
    (under_load,) = checked.claims.under_load
    assert (under_load.compared, under_load.differing, under_load.differing_alone) == (6, 0, 0)
