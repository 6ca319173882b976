"""Forgery tests of trust.accuracy: whole runs whose answers are not what they are said to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import (
    JournalPlan,
    RunBuilder,
    ToyEngine,
    a_failure,
    an_answer,
    answers_of,
    gated_spec,
    small_spec,
    under_load_of,
    with_answers,
)
from tokenwatt_site.errors import VerificationError
from tokenwatt_site.evidence.answers import AccuracyLog, text_digest
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.evidence.under_load import Compared, UnderLoadLog
from tokenwatt_site.spec import Spec
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import ValidatedRun, verify_run
from tokenwatt_site.workload import Realisation

N = 6
SPEC = gated_spec(N)
LOG = answers_of(SPEC, [True, True, False, True, True, False])
BEST = answers_of(SPEC, [True] * N)
PLAIN = RunBuilder(spec=SPEC, accuracy=LOG, reference=BEST)
LOADED = under_load_of(PLAIN, differing=1)
HONEST = replace(PLAIN, under_load=LOADED)


def check(path: Path) -> ValidatedRun:
    return verify_run(path, root=path.parent, keyring=Keyring())


def refused(builder: RunBuilder, folder: Path, number: int, *words: str) -> None:
    """Expect that what `builder` writes is refused by this check, in words that contain these."""
    path = builder.write(folder)
    with pytest.raises(VerificationError) as caught:
        check(path)
    assert caught.value.check == number, str(caught.value)
    for word in words:
        assert word in str(caught.value)


def best_of(spec: Spec) -> AccuracyLog:
    return answers_of(spec, [True] * N)


def forged(builder: RunBuilder = HONEST, **published: Any) -> RunBuilder:
    """Return a builder that publishes other evidence than its claims were derived from."""
    return replace(builder, published=published)


# --- honest runs


def test_a_run_with_answers_a_reference_and_answers_under_load_is_valid(tmp_path: Path) -> None:
    run = check(HONEST.write(tmp_path))
    assert run.evidence.accuracy == LOG
    assert run.evidence.reference == BEST
    assert run.evidence.under_load == LOADED
    (score,) = run.claims.accuracy
    assert (score.correct, score.questions) == (4, N)
    assert run.claims.gate.reference_run == HONEST.reference_run
    assert [claim.differing for claim in run.claims.under_load] == [1]


def test_what_load_does_may_be_there_without_a_gate(tmp_path: Path) -> None:
    builder = RunBuilder()
    run = check(replace(builder, under_load=under_load_of(builder)).write(tmp_path))
    assert [claim.differing for claim in run.claims.under_load] == [0]


ODD: dict[str, str | None] = {
    "a failure": None,
    "nothing": "",
    "a loop": "and so on, " * 60,
    "markers": "<|im_start|>assistant 4",
    "controls": "a\tb\0\u202e\ud83d",
    "not in normal form": "e\u0301",
    "backslashes": r"\frac{1}{2}\{9}",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_whatever_an_engine_wrote_is_no_fault_of_the_run(tmp_path: Path, text: str | None) -> None:
    odd = a_failure(1, 2) if text is None else an_answer(1, 2, right=False, text=text)
    builder = replace(HONEST, accuracy=with_answers(LOG, odd))
    assert check(builder.write(tmp_path)).evidence.accuracy == builder.accuracy


def test_answers_of_two_repeats_and_of_two_sittings_are_valid(tmp_path: Path) -> None:
    spec = gated_spec(N, protocol__repeats=2, accuracy={"repeats": 2})
    log = answers_of(spec, [True] * N, [True] * N)
    late = [log.answers[n].model_copy(update={"part": 2}) for n in (3, 5, N + 1)]
    builder = RunBuilder(spec=spec, accuracy=with_answers(log, *late), reference=best_of(spec))
    run = check(builder.write(tmp_path))
    assert [(score.parts, score.same_launch) for score in run.claims.accuracy] == [(2, False)] * 2


def test_a_run_whose_texts_are_not_kept_is_valid(tmp_path: Path) -> None:
    spec = gated_spec(N, accuracy={"keep_answers": False})
    log = answers_of(spec, [True] * N, texts=False)
    check(RunBuilder(spec=spec, accuracy=log, reference=best_of(spec)).write(tmp_path))


def drop(*events: str) -> Callable[[JournalPlan], JournalPlan]:
    return lambda plan: [line for line in plan if line[0] not in events]


def test_an_interrupted_run_may_have_some_answers_or_none(tmp_path: Path) -> None:
    class Broken(RunBuilder):
        def journal_plan(self) -> JournalPlan:
            return drop("accuracy_end")(super().journal_plan())

    some = replace(LOG, answers=(LOG.answers[1], LOG.answers[4]))
    builder = Broken(spec=SPEC, accuracy=some, reference=BEST, status="interrupted")
    assert check(builder.write(tmp_path / "some")).claims.gate.outcome == "not run"
    builder = Broken(spec=SPEC, reference=BEST, status="interrupted")
    assert check(builder.write(tmp_path / "none")).claims.gate.outcome == "not run"


# --- (6) what answers say of themselves


def header(log: AccuracyLog, **changes: Any) -> AccuracyLog:
    return replace(log, header=log.header.model_copy(update=changes))


def asked(log: AccuracyLog, **changes: Any) -> AccuracyLog:
    return header(log, asked=log.header.asked.model_copy(update=changes))


OTHER_TASKS: dict[str, tuple[Callable[[AccuracyLog], AccuracyLog], str]] = {
    "an easier task": (lambda log: header(log, task="capitals"), "task"),
    "more examples": (lambda log: header(log, shots=8), "shots"),
    "another filter": (lambda log: asked(log, filter="flexible"), "asked.filter"),
    "longer answers": (lambda log: asked(log, max_tokens=4096), "asked.max_tokens"),
    "other questions": (lambda log: asked(log, data="0" * 64), "asked.data"),
    "other prompts": (lambda log: asked(log, prompts="0" * 64), "asked.prompts"),
}


@pytest.mark.parametrize("role", ["accuracy", "reference"])
@pytest.mark.parametrize(("change", "field"), OTHER_TASKS.values(), ids=OTHER_TASKS)
def test_answers_to_another_task_are_refused(
    tmp_path: Path, change: Callable[[AccuracyLog], AccuracyLog], field: str, role: str
) -> None:
    builder = forged(**{role: change(LOG if role == "accuracy" else BEST)})
    words = f"evidence.{role}.{field}: is not what setup.accuracy_gate asks"
    refused(builder, tmp_path, 6, words)


def test_a_question_without_an_answer_is_not_right(tmp_path: Path) -> None:
    right = a_failure(1, 0).model_copy(update={"correct": True})
    refused(forged(accuracy=with_answers(LOG, right)), tmp_path, 6, "where no answer came")


@pytest.mark.parametrize(
    "changes",
    [
        {"answer": text_digest("another")},
        {"text": "another"},
        {"flags": ("markers",)},
        {"text": r"It is 0\{2e}\{9}"},
    ],
)
def test_a_text_that_is_not_the_one_of_its_digest_and_flags_is_refused(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    other = LOG.answers[0].model_copy(update=changes)
    refused(
        forged(accuracy=with_answers(LOG, other)),
        tmp_path,
        6,
        "evidence.accuracy: repeat 1, question 0: does not have the digest and the flags",
    )


def test_a_flag_that_was_taken_away_is_missed(tmp_path: Path) -> None:
    odd = an_answer(1, 0, right=True, text="<|im_end|>").model_copy(update={"flags": ()})
    refused(forged(accuracy=with_answers(LOG, odd)), tmp_path, 6, "markers")


def test_texts_are_kept_as_the_spec_and_the_header_say(tmp_path: Path) -> None:
    hidden = answers_of(SPEC, [True] * N, texts=False)
    refused(forged(accuracy=hidden), tmp_path / "a", 6, "accuracy.keep_answers")
    shown = header(LOG, texts=False)
    refused(forged(accuracy=shown), tmp_path / "b", 6, "the header says that none is kept")


@pytest.mark.parametrize("kept", [N - 1, 0])
def test_a_reference_answers_every_question(tmp_path: Path, kept: int) -> None:
    short = replace(BEST, answers=BEST.answers[:kept])
    words = f"evidence.reference: repeat 1: does not answer every question once; found {kept}"
    refused(forged(reference=short), tmp_path, 6, words)


def test_a_reference_to_other_prompts_is_refused(tmp_path: Path) -> None:
    other = BEST.answers[3].model_copy(update={"prompt": "0" * 64})
    words = "evidence.reference: repeat 1, prompts of all questions: is not"
    refused(forged(reference=with_answers(BEST, other)), tmp_path, 6, words)


@pytest.mark.parametrize("role", ["accuracy", "reference"])
def test_answers_of_a_gate_that_asks_nothing_are_refused(tmp_path: Path, role: str) -> None:
    builder = forged(RunBuilder(spec=small_spec()), **{role: LOG})
    refused(builder, tmp_path, 6, "does not have the roles that are read", role)


# --- (7) when they were asked, and of whom


@pytest.mark.parametrize("name", ["data", "prompt"])
def test_answers_to_other_questions_than_the_gate_names_are_refused(
    tmp_path: Path, name: str
) -> None:
    other = LOG.answers[2].model_copy(update={name: "0" * 64})
    words = "evidence.accuracy: repeat 1, "
    refused(forged(accuracy=with_answers(LOG, other)), tmp_path, 7, words, "asked.")


def test_questions_in_another_order_are_others(tmp_path: Path) -> None:
    a, b = LOG.answers[0], LOG.answers[1]
    swapped = [a.model_copy(update={"question": 1}), b.model_copy(update={"question": 0})]
    words = "data of all questions: is not setup.accuracy_gate.asked.data"
    refused(forged(accuracy=with_answers(LOG, *swapped)), tmp_path, 7, words)


@pytest.mark.parametrize("gone", [0, 2, 5])
def test_a_question_that_was_left_out_is_missed(tmp_path: Path, gone: int) -> None:
    short = replace(LOG, answers=tuple(a for a in LOG.answers if a.question != gone))
    refused(forged(accuracy=short), tmp_path, 7, "does not answer every question once; found 5")


def test_a_question_more_than_the_gate_has_is_refused(tmp_path: Path) -> None:
    more = replace(LOG, answers=(*LOG.answers, an_answer(1, N, right=True)))
    refused(forged(accuracy=more), tmp_path, 7, "does not answer every question once; found 7")


def test_answers_that_were_told_of_cannot_be_left_out(tmp_path: Path) -> None:
    refused(forged(accuracy=None), tmp_path, 7, "does not answer every question once; found 0")


def test_a_complete_run_was_asked_in_each_repeat_of_its_plan(tmp_path: Path) -> None:
    spec = gated_spec(N, protocol__repeats=2, accuracy={"repeats": 2})
    both = answers_of(spec, [True] * N, [True] * N)
    builder = RunBuilder(spec=spec, accuracy=both, reference=best_of(spec))
    one = replace(both, answers=both.answers[:N])

    def first_only(plan: JournalPlan) -> JournalPlan:
        return [(e, d) for e, d in plan if not (e.startswith("accuracy") and d["repeat"] == 2)]

    lie = replace(builder, edit_journal=first_only)
    refused(forged(lie, accuracy=one), tmp_path, 7, "accuracy_end of repeats [1]")


def test_a_complete_run_of_a_gate_has_answers(tmp_path: Path) -> None:
    edit = drop("accuracy_start", "accuracy_end")
    builder = forged(replace(HONEST, edit_journal=edit), accuracy=None)
    refused(builder, tmp_path, 7, "the gate's task was not asked to its end")


def test_answers_of_a_sitting_that_nobody_started_are_refused(tmp_path: Path) -> None:
    late = LOG.answers[4].model_copy(update={"part": 2})
    words = "evidence.accuracy: repeat 1, question 4: is of a sitting that the journal does not"
    refused(forged(accuracy=with_answers(LOG, late)), tmp_path, 7, words)
    other = replace(LOG, answers=(*LOG.answers, an_answer(2, 0, right=True)))
    refused(forged(accuracy=other), tmp_path, 7, "repeat 2, question 0: is of a sitting")


def test_answers_from_before_the_load_are_refused(tmp_path: Path) -> None:
    def early(plan: JournalPlan) -> JournalPlan:
        lines = [line for line in plan if line[0].startswith("accuracy")]
        others = drop("accuracy_start", "accuracy_end")(plan)
        return [others[0], *lines, *others[1:]]

    refused(replace(HONEST, edit_journal=early), tmp_path, 7, "which has not ended")


def test_a_line_of_answers_in_the_middle_of_a_trial_is_refused(tmp_path: Path) -> None:
    def amid(plan: JournalPlan) -> JournalPlan:
        line = next(line for line in plan if line[0] == "under_load")
        return [*plan[:3], line, *plan[3:]]

    refused(replace(HONEST, edit_journal=amid), tmp_path, 7, "which has no end")


def opening(**changes: Any) -> Callable[[JournalPlan], JournalPlan]:
    return lambda plan: [(plan[0][0], plan[0][1] | changes), *plan[1:]]


NAMED = HONEST.journal_plan()[0][1]["reference"]

OTHER_REFERENCES: dict[str, tuple[Any, str]] = {
    "none": (None, "is not what journal line 0.reference names"),
    "other answers": (NAMED | {"accuracy": "0" * 64}, "is not what journal line 0.reference"),
    "a word": ("baseline", "names no reference"),
    "a run that has no id": (NAMED | {"run": "latest"}, "names no reference"),
    "no configuration": (NAMED | {"configuration": "<b>"}, "names no reference"),
    "more": (NAMED | {"label": "x"}, "names no reference"),
}


@pytest.mark.parametrize(("named", "words"), OTHER_REFERENCES.values(), ids=OTHER_REFERENCES)
def test_the_reference_is_the_one_that_the_run_began_with(
    tmp_path: Path, named: Any, words: str
) -> None:
    refused(replace(HONEST, edit_journal=opening(reference=named)), tmp_path, 7, words)


def test_a_reference_that_was_swapped_for_a_worse_one_is_refused(tmp_path: Path) -> None:
    worse = answers_of(SPEC, [False] * N)
    refused(forged(reference=worse), tmp_path, 7, "evidence.reference.0: is not what journal line")


def test_a_reference_that_was_named_cannot_be_left_out(tmp_path: Path) -> None:
    refused(forged(reference=None), tmp_path, 7, "evidence.reference.length: is not what")


# --- (8) which answers under load are compared


def compared(**changes: Any) -> UnderLoadLog:
    first, *rest = LOADED.compared
    return UnderLoadLog((first.model_copy(update=changes), *rest))


def moved(change: Callable[[Compared], dict[str, Any]]) -> UnderLoadLog:
    return UnderLoadLog(tuple(c.model_copy(update=change(c)) for c in LOADED.compared))


ROWS = {each.row for each in LOADED.compared}
BEFORE = next(row for row in range(LOADED.compared[0].row) if row not in ROWS)

CHOSEN: dict[str, tuple[UnderLoadLog | None, str]] = {
    "another row": (compared(row=BEFORE), "is not of the rows that the nonce draws"),
    "a row less": (UnderLoadLog(LOADED.compared[1:]), "is not of the rows that the nonce draws"),
    "nothing": (UnderLoadLog(()), "is not of the trials that the journal tells of"),
    "no evidence": (None, "is not of the trials that the journal tells of"),
    "an easier trial": (moved(lambda _: {"trial": 1}), "is not of the trials that the journal"),
    "another repeat": (moved(lambda _: {"repeat": 2}), "is not of the trials that the journal"),
}


@pytest.mark.parametrize(("log", "words"), CHOSEN.values(), ids=CHOSEN)
def test_nobody_chooses_which_answers_under_load_are_compared(
    tmp_path: Path, log: UnderLoadLog | None, words: str
) -> None:
    refused(forged(under_load=log), tmp_path, 8, words)


@pytest.mark.parametrize("trial", [1, 3, 9])
def test_what_is_compared_is_the_highest_passing_trial(tmp_path: Path, trial: int) -> None:
    def other(plan: JournalPlan) -> JournalPlan:
        return [(e, d | {"trial": trial}) if e == "under_load" else (e, d) for e, d in plan]

    builder = replace(HONEST, edit_journal=other)
    log = moved(lambda _: {"trial": trial})
    refused(forged(builder, under_load=log), tmp_path, 8, "is not the highest passing trial")


@dataclass(frozen=True)
class Refusing(ToyEngine):
    """Refuses one row of trial 2."""

    row: int = 0

    def serve(
        self, realisation: Realisation, rate_urps: int, *, repeat: int, trial: int
    ) -> Iterator[RequestRecord]:
        for record in super().serve(realisation, rate_urps, repeat=repeat, trial=trial):
            bad = (record.row, trial) == (self.row, 2)
            yield replace(record, status=Status.HTTP_ERROR) if bad else record


def test_an_answer_under_load_is_of_a_request_that_ended_well(tmp_path: Path) -> None:
    row = LOADED.compared[-1].row
    refused_row = f"trial 2, row {row}: has an answer to a request that did not end well"

    rates = [data["rate_urps"] for e, data in HONEST.journal_plan() if e == "trial_start"]
    builder = replace(HONEST, engine=Refusing(row=row), rates_urps=tuple(rates))
    refused(builder, tmp_path, 8, refused_row)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"same_chars": 101}, "no more characters alike"),
        ({"loaded": LOADED.compared[0].alone, "same_chars": 1}, "where the digests are equal"),
    ],
)
def test_a_comparison_that_contradicts_itself_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    refused(forged(under_load=compared(**changes)), tmp_path, 6, words)
