from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tokenwatt_site.errors import InputError
from tokenwatt_site.measure.accuracy.local import MAX_ANSWER_CHARS, Row, config, parse

texts = st.text('abc é?.[]{}\\"', min_size=1, max_size=9).map(str.strip).filter(bool)
ROWS = st.lists(
    st.fixed_dictionaries({"question": texts, "answer": texts}),
    min_size=1,
    max_size=6,
    unique_by=lambda row: row["question"],
)
GOOD = '{"question": "What is 1 plus 1?", "answer": "2"}\n'


@given(ROWS)
def test_rows_come_back_as_they_were_written(rows: list[Row]) -> None:
    data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    assert list(parse(data, source="x.jsonl")) == rows


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(InputError):
        assert len(parse(data, source="x.jsonl")) == data.count(b"\n")


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ("", "x.jsonl:2"),
        ("[]", "does not have the fields of a question; found list"),
        ('{"question": "q"}', "found question; expected"),
        ('{"question": "q", "answer": "a", "id": 1}', "found answer, id, question"),
        ('{"question": 1, "answer": "a"}', "question: is not valid; found 1"),
        ('{"question": "q", "answer": ""}', "answer: is not valid; found ''"),
        ('{"question": "q", "answer": " a"}', "without blanks around it"),
        ('{"question": "q", "answer": "a\\nb"}', "expected one line"),
        ('{"question": "q", "answer": "%s"}' % ("a" * (MAX_ANSWER_CHARS + 1)), "1 to 1,000"),
        ('{"question": "e\\u0301", "answer": "a"}', "normalisation form C"),
        (GOOD.strip(), "is asked twice: an example might give it away; found the question of line"),
    ],
)
def test_a_row_that_is_not_one_is_named_by_its_line(second: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(f"{GOOD}{second}\n".encode(), source="x.jsonl")
    assert str(caught.value).startswith("x.jsonl:2")
    assert words in str(caught.value)


def test_a_file_that_is_cut_or_too_long_is_refused() -> None:
    with pytest.raises(InputError, match="it may be cut"):
        parse(GOOD.strip().encode(), source="x.jsonl")
    with pytest.raises(InputError, match="more rows than are read; found 100,001"):
        parse(b"\n" * 100_001, source="x.jsonl")


def test_the_configuration_holds_the_examples_and_writes_answers_as_they_are() -> None:
    rows = [{"question": "Which list?", "answer": "[1]"}]
    found = config("lists", rows)
    assert found["fewshot_config"]["samples"] == rows
    assert found["doc_to_text"](rows[0]) == "Question: Which list?\nAnswer:"
    assert found["doc_to_target"](rows[0]) == "[1]"


@pytest.mark.parametrize("name", ["sums", "capitals"])
def test_the_projects_own_tasks_have_sixty_questions_beside_eight_examples(name: str) -> None:
    rows = parse((ROOT / "specs" / "tasks" / f"{name}.jsonl").read_bytes(), source=name)
    assert len(rows) >= 68


def test_the_sums_are_right() -> None:
    for row in parse((ROOT / "specs" / "tasks" / "sums.jsonl").read_bytes(), source="sums"):
        _, _, first, _, second = row["question"].strip("?").split()
        assert int(first) + int(second) == int(row["answer"])
