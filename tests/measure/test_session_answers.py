"""Sessions whose gate asks a task: in which launch, in what order, and after what broke it off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.measure.test_session import ATTACH, Lab, lab  # noqa: F401  # a fixture
from tests.support.runs import KEYID, answers_of, small_spec
from tests.support.sums import added, scored, summing, sums
from tokenwatt_site.canonical import sha256_hex
from tokenwatt_site.claims.derive import derive
from tokenwatt_site.errors import (
    EngineError,
    EnvironmentProblem,
    Interrupted,
    ReadBackError,
    UsageError,
)
from tokenwatt_site.evidence.answers import encode_accuracy
from tokenwatt_site.measure import session
from tokenwatt_site.measure.accuracy import sitting
from tokenwatt_site.measure.accuracy.reference_run import Reference
from tokenwatt_site.measure.accuracy.task import Reply, Task
from tokenwatt_site.measure.endpoint import EngineFacts
from tokenwatt_site.measure.session import Events, kept, measure
from tokenwatt_site.measure.workfolder import Measured
from tokenwatt_site.spec import Spec

TASK = sums(10)


class Desk:
    """Stands in for asking: every question is answered right, one after the other.

    `before` is called with the number of each question that is about to be asked.
    """

    def __init__(self, lab: Lab) -> None:  # noqa: F811
        self.lab = lab
        self.before: Callable[[int], None] = lambda _: None
        self.asked: list[int] = []
        self.probed: list[tuple[int, int | None]] = []

    def require_answerable(self, *_: Any, context_tokens: int | None, **__: Any) -> None:
        self.probed.append((self.lab.trials, context_tokens))

    def ask(
        self,
        task: Task,
        *_: Any,
        part: int,
        done: Mapping[int, Reply],
        keep: Callable[[Reply], None],
        alive: Callable[[], bool],
        **__: Any,
    ) -> None:
        for question in task.questions:
            if question.number in done:
                continue
            self.before(question.number)
            if not alive():
                raise EngineError("the engine ended while it was asked")
            self.asked.append(question.number)
            keep(Reply(question.number, added(str(question.prompt)), 5, 1, "stop", None, part))


@pytest.fixture
def desk(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Desk:  # noqa: F811
    desk = Desk(lab)
    monkeypatch.setattr(sitting, "ask", desk.ask)
    monkeypatch.setattr(sitting, "require_answerable", desk.require_answerable)
    return desk


def run(desk: Desk, spec: Spec, folder: Path, reference: Reference | None = None) -> Measured:
    events = Events(lambda _: None, desk.lab.said.append)
    return measure(spec, folder, events, keyid=KEYID, task=TASK, scorer=scored, reference=reference)


def told(measured: Measured) -> list[str]:
    return [line.event for line in measured.evidence.journal if "trial" not in line.event]


def starts(measured: Measured) -> list[tuple[int, int, bool | None]]:
    return [
        (line.data["repeat"], line.data["part"], line.data["same_launch"])
        for line in measured.evidence.journal
        if line.event == "accuracy_start"
    ]


def interrupted_at(number: int) -> Callable[[int], None]:
    def before(question: int) -> None:
        if question == number:
            raise KeyboardInterrupt

    return before


def test_the_launch_that_was_loaded_is_asked_after_its_trials(desk: Desk, tmp_path: Path) -> None:
    measured = run(desk, summing(TASK), tmp_path / "work")
    assert told(measured) == [
        *("open", "launch", "repeat_end"),
        *("under_load", "accuracy_start", "accuracy_end", "close"),
    ]
    assert starts(measured) == [(1, 1, True)]
    assert desk.probed == [(0, 4096)]
    assert desk.lab.launches == 1
    claims = derive(measured.spec, measured.evidence)
    assert (claims.accuracy[0].correct, claims.accuracy[0].same_launch) == (10, True)
    assert claims.gate.outcome == "no reference"
    (top,) = [r.highest_pass_urps for r in claims.repeats]
    (under_load,) = claims.under_load
    assert (under_load.rate_urps, under_load.compared, under_load.differing) == (top, 6, 0)


def test_a_spec_without_a_gate_asks_nothing_and_still_compares_under_load(
    desk: Desk, tmp_path: Path
) -> None:
    events = Events(lambda _: None, desk.lab.said.append)
    measured = measure(small_spec(protocol__repeats=2), tmp_path / "work", events, keyid=KEYID)
    assert desk.asked == desk.probed == []
    assert measured.evidence.accuracy is None
    assert measured.evidence.journal[0].data["reference"] is None
    assert [repeat for repeat, _ in desk.lab.asked_alone] == [1]


def test_where_no_trial_passed_nothing_is_compared_and_all_is_asked(
    desk: Desk, tmp_path: Path
) -> None:
    slo = [{"metric": "ttft", "quantile": 0.9, "limit_ms": 1.0}]
    measured = run(desk, summing(TASK, setup__slo=slo), tmp_path / "work")
    assert "under_load" not in told(measured)
    assert measured.evidence.under_load is None
    assert desk.asked == list(range(10))


def test_as_many_repeats_are_asked_as_the_spec_says(desk: Desk, tmp_path: Path) -> None:
    spec = summing(TASK, protocol__repeats=3, accuracy={"repeats": 2})
    measured = run(desk, spec, tmp_path / "work")
    assert starts(measured) == [(1, 1, True), (2, 1, True)]
    assert [repeat for repeat, _ in desk.lab.asked_alone] == [1, 2]
    assert measured.evidence.accuracy is not None
    answers = [(a.repeat, a.question) for a in measured.evidence.accuracy.answers]
    assert answers == [(repeat, question) for repeat in (1, 2) for question in range(10)]


def test_an_engine_that_cannot_be_asked_is_offered_no_load(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise EngineError("the engine refuses long prompts")

    monkeypatch.setattr(sitting, "require_answerable", refuses)
    with pytest.raises(EngineError, match="refuses long prompts"):
        run(desk, summing(TASK), tmp_path / "work")
    assert desk.lab.trials == 0


def test_an_engine_that_dies_while_it_is_asked_is_launched_again_for_the_rest(
    desk: Desk, tmp_path: Path
) -> None:
    def die(question: int) -> None:
        desk.lab.dead = question == 4

    desk.before = die
    with pytest.raises(EngineError, match=r"while it was asked\n.*ended with exit code 7"):
        run(desk, summing(TASK), tmp_path / "work")
    trials = desk.lab.trials
    desk.before = lambda _: None
    desk.lab.dead = False
    measured = run(desk, summing(TASK), tmp_path / "work")

    assert desk.asked == list(range(10))
    assert (desk.lab.launches, desk.lab.trials) == (2, trials)
    assert starts(measured) == [(1, 1, True), (1, 2, False)]
    assert told(measured).count("launch") == told(measured).count("under_load") == 1
    (claim,) = derive(measured.spec, measured.evidence).accuracy
    assert (claim.correct, claim.parts, claim.same_launch) == (10, 2, False)


def test_ctrl_c_in_a_sitting_keeps_what_was_answered(desk: Desk, tmp_path: Path) -> None:
    desk.before = interrupted_at(7)
    with pytest.raises(Interrupted):
        run(desk, summing(TASK), tmp_path / "work")
    partial = kept(summing(TASK), tmp_path / "work")
    assert partial.interrupted
    assert partial.evidence.accuracy is None
    assert derive(partial.spec, partial.evidence).gate.outcome == "not run"

    desk.before = lambda _: None
    measured = run(desk, summing(TASK), tmp_path / "work")
    assert desk.asked == list(range(10))
    assert not measured.interrupted
    assert told(measured)[-4:] == ["interrupted", "accuracy_start", "accuracy_end", "close"]


def test_a_comparison_that_was_broken_off_is_missing_and_not_made_with_another_launch(
    desk: Desk, tmp_path: Path
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    desk.lab.before_alone = interrupt
    with pytest.raises(Interrupted):
        run(desk, summing(TASK), tmp_path / "work")
    measured = run(desk, summing(TASK), tmp_path / "work")
    assert measured.evidence.under_load is None
    assert starts(measured) == [(1, 1, False)]
    assert desk.asked == list(range(10))


def test_an_engine_launched_again_is_held_against_the_spec_before_it_is_asked(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.before = interrupted_at(3)
    with pytest.raises(Interrupted):
        run(desk, summing(TASK), tmp_path / "work")
    other = EngineFacts("toy", "1.0", "test", ("another-model",), 4096, 32000, None)
    monkeypatch.setattr(session, "read_back_all", lambda *_: (other,))
    with pytest.raises(ReadBackError, match="another-model"):
        run(desk, summing(TASK), tmp_path / "work")
    assert desk.asked == [0, 1, 2]


@pytest.mark.parametrize("restarts", [False, True])
def test_an_attached_engine_is_asked_on_and_tells_whether_it_is_the_one_that_was_loaded(
    desk: Desk, tmp_path: Path, restarts: bool
) -> None:
    spec = summing(TASK, **ATTACH)
    desk.before = interrupted_at(3)
    with pytest.raises(Interrupted):
        run(desk, spec, tmp_path / "work")
    desk.before = lambda _: None
    desk.lab.restarts = restarts
    assert starts(run(desk, spec, tmp_path / "work")) == [(1, 1, True), (1, 2, not restarts)]


def test_an_attached_engine_that_answered_the_rest_is_restarted_before_the_next_repeat(
    desk: Desk, tmp_path: Path
) -> None:
    spec = summing(TASK, protocol__repeats=2, **ATTACH)
    desk.before = interrupted_at(3)
    with pytest.raises(Interrupted):
        run(desk, spec, tmp_path / "work")
    desk.before, desk.lab.restarts = lambda _: None, False
    with pytest.raises(EnvironmentProblem, match=r"repeat 1 of 2 is done.*Restart the engine"):
        run(desk, spec, tmp_path / "work")
    desk.lab.restarts = True
    assert told(run(desk, spec, tmp_path / "work"))[-2:] == ["repeat_end", "close"]


def test_one_that_was_restarted_for_the_rest_goes_on_with_the_next_repeat(
    desk: Desk, tmp_path: Path
) -> None:
    spec = summing(TASK, protocol__repeats=2, **ATTACH)
    desk.before = interrupted_at(3)
    with pytest.raises(Interrupted):
        run(desk, spec, tmp_path / "work")
    desk.before = lambda _: None
    measured = run(desk, spec, tmp_path / "work")
    assert len(derive(spec, measured.evidence).repeats) == 2


def test_the_reference_is_named_before_any_load_and_kept_with_the_run(
    desk: Desk, tmp_path: Path
) -> None:
    spec = summing(TASK)
    log = answers_of(spec, [True] * 9 + [False])
    digest = sha256_hex(encode_accuracy(log))
    desk.before = interrupted_at(3)
    with pytest.raises(Interrupted):
        run(desk, spec, tmp_path / "work", Reference("a" * 64, "toy-000000000000", digest, log))
    desk.before = lambda _: None
    evidence = run(desk, spec, tmp_path / "work").evidence
    assert evidence.journal[0].data["reference"] == {
        "run": "a" * 64,
        "configuration": "toy-000000000000",
        "accuracy": digest,
    }
    assert evidence.reference is not None
    assert sha256_hex(encode_accuracy(evidence.reference)) == digest


def test_a_task_that_is_due_and_not_given_is_refused_before_anything_begins(
    desk: Desk, tmp_path: Path
) -> None:
    events = Events(lambda _: None, desk.lab.said.append)
    with pytest.raises(UsageError, match=r"setup\.accuracy_gate\.task: asks a task"):
        measure(summing(TASK), tmp_path / "work", events, keyid=KEYID)
    assert desk.lab.launches == 0
    done = run(desk, summing(TASK), tmp_path / "work")
    again = measure(summing(TASK), tmp_path / "work", events, keyid=KEYID)
    assert again.journal_bytes == done.journal_bytes
