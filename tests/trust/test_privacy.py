from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.runs import (
    JournalPlan,
    RunBuilder,
    a_failure,
    an_answer,
    answers_of,
    gated_spec,
    gpu_spec,
    played_counters,
    played_power,
    small_spec,
    with_answers,
    write_signed,
)
from tests.trust.test_verify import check, document, record, refused, write
from tokenwatt_site.errors import InputError, VerificationError
from tokenwatt_site.model_shape.document import ModelDocument
from tokenwatt_site.trust.predicates import Disputed
from tokenwatt_site.trust.privacy import refuse_private
from tokenwatt_site.trust.verify import load_claims_only

TOKEN = "hf_abcdefghijklmnopqrst"  # noqa: S105  # of nobody
HOME = "/home/alice/models"
PRIVATE = pytest.mark.parametrize("text", [TOKEN, HOME], ids=["token", "home"])


def unsaid(path: Path, number: int, *words: str) -> None:
    """Expect a refusal that names the place, and does not repeat what stands there."""
    refused(path, number, *words)
    with pytest.raises(VerificationError) as caught:
        check(path)
    assert TOKEN not in str(caught.value)
    assert "alice" not in str(caught.value)


@PRIVATE
@pytest.mark.parametrize(
    ("place", "field"),
    [
        (("spec", "title"), "spec.title"),
        (("spec", "note"), "spec.note"),
        (("conditions", "platform"), "conditions.platform"),
        (("claims", "gate", "text"), "claims.gate.text"),
    ],
)
def test_f27_a_signed_run_with_something_private_is_refused_by_its_field(
    tmp_path: Path, text: str, place: tuple[str, ...], field: str
) -> None:
    def change(value: dict[str, Any]) -> None:
        for key in place[:-1]:
            value = value[key]
        value[place[-1]] = f"it is {text}"

    unsaid(RunBuilder(edit_document=change).write(tmp_path), 5, field)


@PRIVATE
def test_f27_a_journal_with_something_private_is_refused_by_its_line(
    tmp_path: Path, text: str
) -> None:
    def tell(plan: JournalPlan) -> JournalPlan:
        return [
            (event, data | {"errors": ["x", text]} if event == "trial_end" else data)
            for event, data in plan
        ]

    unsaid(RunBuilder(edit_journal=tell).write(tmp_path), 7, "line 3 (trial_end).errors.1")


@PRIVATE
def test_f27_a_failure_of_an_answer_that_repeats_something_private_is_refused(
    tmp_path: Path, text: str
) -> None:
    spec = gated_spec(2)
    log = answers_of(spec, [True, False])
    told = with_answers(log, a_failure(1, 1, f"HTTP 500: {text}"))
    path = RunBuilder(spec=spec, accuracy=log, published={"accuracy": told}).write(tmp_path)
    unsaid(path, 6, "question 1 of repeat 1.failure")


def test_f27_what_a_model_wrote_is_its_own(tmp_path: Path) -> None:
    spec = gated_spec(2)
    wrote = an_answer(1, 0, right=True, text=f"cd {HOME}; export HF_TOKEN={TOKEN}")
    log = with_answers(answers_of(spec, [True, True]), wrote)
    run = check(RunBuilder(spec=spec, accuracy=log).write(tmp_path))
    assert run.evidence.accuracy is not None
    assert run.evidence.accuracy.answers[0] == wrote


@PRIVATE
def test_f27_model_files_boards_and_counters_are_looked_at_too(tmp_path: Path, text: str) -> None:
    spec = gpu_spec(endpoint__model_files="models/toy", setup__model__digest="not recorded")
    builder = RunBuilder(spec=spec, idle_s=60)
    builder = replace(builder, power=played_power(builder), counters=played_counters(builder))
    model = ModelDocument({"model_type": "llama", "_name_or_path": text})
    path = replace(builder, published={"model": model}).write(tmp_path / "model")
    unsaid(path, 6, "evidence.model.0._name_or_path")


@PRIVATE
def test_f27_a_board_with_a_private_name_is_refused(tmp_path: Path, text: str) -> None:
    builder = RunBuilder(spec=gpu_spec())
    power = played_power(builder)
    boards = (power.boards[0].model_copy(update={"name": text}), *power.boards[1:])
    builder = replace(builder, power=power, published={"power": replace(power, boards=boards)})
    with pytest.raises(VerificationError, match="check 6"):
        check(builder.write(tmp_path))


@PRIVATE
def test_f27_a_quoted_record_with_something_private_is_refused(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "x.json", record(summary=f"from {text}"))
    with pytest.raises(InputError, match=r"x\.json: summary") as caught:
        load_claims_only(path)
    assert text not in str(caught.value)


def test_no_more_places_are_named_than_a_reader_reads() -> None:
    with pytest.raises(InputError) as caught:
        refuse_private([TOKEN] * 1000)
    assert len(caught.value.problems) == 20


def test_a_run_that_is_not_private_is_read_as_before(tmp_path: Path) -> None:
    path = RunBuilder(spec=small_spec(note="see https://example.org/home/page")).write(tmp_path)
    assert check(path).run.spec.note == "see https://example.org/home/page"
    again = write_signed(path, document(path), RunBuilder().key)
    assert check(again).run_id == check(path).run_id


@PRIVATE
def test_f27_a_statement_with_a_private_reason_is_refused(text: str) -> None:
    said = {"public_key": "0" * 64, "made": "2026-12-01T00:00:00Z", "url": None}
    with pytest.raises(ValidationError, match="may be published"):
        Disputed.model_validate(said | {"reason": f"see {text}"})
