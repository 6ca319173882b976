"""What must hold between a run, its journal and the answers of its engine. Pure.

Of check 6 of `trust.verify` what an answer says of itself, of check 7 when it was asked, of check 8
which answers under load are held against those alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field, ValidationError

from tokenwatt_site.accuracy_spec import AccuracyGate
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.answer_flags import flags_of
from tokenwatt_site.evidence.answers import (
    Answer,
    digest_of_digests,
    original_text,
    text_digest,
)
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.evidence.under_load import Compared, sampled_rows
from tokenwatt_site.journal import Entry
from tokenwatt_site.prompts import nonce_of
from tokenwatt_site.run import Run
from tokenwatt_site.schema import Model, Sha256
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Evidence, Trial
from tokenwatt_site.trust.difference import expect_equal
from tokenwatt_site.trust.sittings import AnswersTold, answers_told
from tokenwatt_site.validity import highest_passing


def check_answers(spec: Spec, evidence: Evidence) -> None:
    """Check that answers, the run's own and the reference's, are to what the setup asks.

    A text is kept where the spec has it kept, and has the digest and the flags beside it. The
    reference answers every question once, at least in its first repeat. How many tokens an answer
    has is not held against `max_tokens`: an engine may not keep to it, and that is a fact of it.

    Raises:
        InputError: naming the field of the header, or the answer.
    """
    gate = spec.setup.accuracy_gate
    for name, log in (("accuracy", evidence.accuracy), ("reference", evidence.reference)):
        if log is None:
            continue
        what = "is not what setup.accuracy_gate asks"
        header, asked = log.header.to_json(), gate.to_json()
        for key in ("task", "shots", "asked"):
            expect_equal(f"evidence.{name}.{key}", header[key], asked[key], what)
        for answer in log.answers:
            if answer.text is not None:
                _check_text(name, answer, answer.text, kept=log.header.texts)
    if evidence.accuracy is not None:
        what = "is not what accuracy.keep_answers says"
        texts = evidence.accuracy.header.texts
        expect_equal("evidence.accuracy.texts", texts, spec.accuracy.keep_answers, what)
    if evidence.reference is not None:
        _check_whole("reference", gate, 1, evidence.reference.of_repeat(1))


def _check_text(name: str, answer: Answer, text: str, *, kept: bool) -> None:
    if not kept:
        what = "has a text, and the header says that none is kept"
        raise InputError(Problem(what, field=_place(name, answer)))
    written = original_text(text)
    found, expected = (answer.answer, answer.flags), (text_digest(written), flags_of(written))
    if found != expected:
        raise InputError(
            Problem(
                "does not have the digest and the flags of the text beside it",
                field=_place(name, answer),
                found=str(found),
                expected=str(expected),
            )
        )


def _check_whole(name: str, gate: AccuracyGate, repeat: int, answers: Sequence[Answer]) -> None:
    """Check that these are to all questions of the gate, in their order."""
    found = [answer.question for answer in answers]
    if gate.asked is None or found != list(range(len(found))) or len(found) != gate.questions:
        raise InputError(
            Problem(
                "does not answer every question once",
                field=f"evidence.{name}: repeat {repeat}",
                found=f"{len(found):,} answers",
                expected=f"{gate.questions} questions, in their order from 0",
            )
        )
    for key, expected, digests in (
        ("data", gate.asked.data, [answer.data for answer in answers]),
        ("prompts", gate.asked.prompts, [answer.prompt for answer in answers]),
    ):
        what = f"is not setup.accuracy_gate.asked.{key}"
        place = f"evidence.{name}: repeat {repeat}, {key} of all questions"
        expect_equal(place, digest_of_digests(digests), expected, what)


def _place(name: str, answer: Answer) -> str:
    return f"evidence.{name}: repeat {answer.repeat}, question {answer.question}"


def check_asked(run: Run, evidence: Evidence) -> AnswersTold:
    """Check that the journal tells of all that was asked, and the evidence has all of that.

    A repeat that was asked to its end has every answer; a complete run has each repeat so in which
    its spec asks. The reference is the one that the first line names.

    Raises:
        InputError: naming the repeat, the answer or the line.
    """
    spec, log = run.spec, evidence.accuracy
    told = answers_told(spec, evidence.journal)
    planned = range(1, spec.accuracy.repeats + 1)
    if (
        run.status == "complete"
        and spec.setup.accuracy_gate.asked is not None
        and told.whole != set(planned)
    ):
        raise InputError(
            Problem(
                "says complete, and the gate's task was not asked to its end",
                field="status",
                found=f"accuracy_end of repeats {sorted(told.whole)}",
                expected=f"of repeats 1 to {spec.accuracy.repeats}",
            )
        )
    for repeat in sorted(told.whole):
        own = log.of_repeat(repeat) if log is not None else ()
        _check_whole("accuracy", spec.setup.accuracy_gate, repeat, own)
    for answer in log.answers if log is not None else ():
        if answer.part > (sittings := told.sittings.get(answer.repeat, 0)):
            raise InputError(
                Problem(
                    "is of a sitting that the journal does not start",
                    field=_place("accuracy", answer),
                    found=f"part {answer.part}",
                    expected=f"at most {sittings}",
                )
            )
    _check_reference(run, evidence.journal[0])
    return told


class _Named(Model):
    """How the first line names a reference."""

    run: Sha256
    configuration: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,200}$")]
    accuracy: Sha256


def _check_reference(run: Run, opening: Entry) -> None:
    named, place = opening.data.get("reference"), f"journal line {opening.seq}.reference"
    found = [entry.sha256 for entry in run.evidence if entry.role == "reference"]
    try:
        expected = [] if named is None else [_Named.model_validate(named).accuracy]
    except ValidationError as error:
        raise InputError(
            Problem(
                "names no reference",
                field=place,
                found=repr(named)[:200],
                expected="a run, its configuration and the digest of its answers, or null",
            )
        ) from error
    expect_equal("evidence.reference", found, expected, f"is not what {place} names")


def check_under_load(
    spec: Spec, evidence: Evidence, trials: Sequence[Trial], told: Mapping[int, int]
) -> None:
    """Check that what was compared is what nobody could choose.

    Of each repeat that the journal tells of, the answers of its highest passing trial are, to the
    rows that the nonce draws; an answer under load is there only where its request ended well.

    Args:
        spec: of the run.
        evidence: of the run.
        trials: all of them.
        told: the trial that was compared, by its repeat.

    Raises:
        InputError: naming the repeat, trial and row.
    """
    log, nonce = evidence.under_load, nonce_of(evidence.journal[0])
    own: dict[tuple[int, int], list[Compared]] = {}
    for each in log.compared if log is not None else ():
        own.setdefault((each.repeat, each.trial), []).append(each)
    what = "is not of the trials that the journal tells of"
    expect_equal(
        "evidence.under-load", sorted(map(list, own)), sorted(map(list, told.items())), what
    )
    for (repeat, number), compared in own.items():
        place = f"evidence.under-load: repeat {repeat}, trial {number}"
        top = highest_passing(spec, [trial for trial in trials if trial.repeat == repeat])
        if top is None or top.number != number:
            highest = "none passed" if top is None else f"trial {top.number}"
            raise InputError(
                Problem("is not the highest passing trial", field=place, expected=highest)
            )
        rows = sampled_rows(nonce, repeat, top.realisation.scored_rows, spec.protocol.mode)
        what = "is not of the rows that the nonce draws"
        expect_equal(place, [each.row for each in compared], list(rows), what)
        whole = {record.row for record in top.records if record.status is Status.OK}
        for each in compared:
            if each.loaded is not None and each.row not in whole:
                raise InputError(
                    Problem(
                        "has an answer to a request that did not end well",
                        field=f"{place}, row {each.row}",
                    )
                )
