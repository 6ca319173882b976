"""A local task: questions with one right answer each, in a file of one's own. Pure.

A file is JSONL of {"question": TEXT, "answer": ONE LINE}. The first `shots` rows are the examples
that stand before each question and are not asked; the rows after them are the questions, from the
first. What the harness makes of them is `config`, for every local task the same: change it, and
change `VERSION`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tokenwatt_site.accuracy_spec import MAX_QUESTIONS
from tokenwatt_site.canonical import JsonValue, load_json
from tokenwatt_site.errors import InputError, Problem

VERSION = "1"
MAX_FILE_BYTES = 64 << 20
MAX_QUESTION_CHARS = 20_000
MAX_ANSWER_CHARS = 1_000

_MAX_LINE_BYTES = 256 << 10
_LIMITS = {"question": MAX_QUESTION_CHARS, "answer": MAX_ANSWER_CHARS}

Row = Mapping[str, str]
"""A question and its answer."""


def parse(data: bytes, *, source: str) -> tuple[Row, ...]:
    """Read the rows of a local task.

    Raises:
        InputError: naming the line, the field, what was found and what was expected.
    """
    if not data.endswith(b"\n"):
        raise InputError(Problem("does not end with a line feed; it may be cut", file=source))
    if (count := data.count(b"\n")) > 2 * MAX_QUESTIONS:
        raise InputError(
            Problem(
                "has more rows than are read",
                file=source,
                found=f"{count:,}",
                expected=f"at most {2 * MAX_QUESTIONS:,}",
            )
        )
    rows: list[Row] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(data[:-1].split(b"\n"), start=1):
        row = _row(line, source, number)
        first = lines.setdefault(row["question"], number)
        if first != number:
            raise InputError(
                Problem(
                    "is asked twice: an example might give it away",
                    file=source,
                    line=number,
                    field="question",
                    found=f"the question of line {first}",
                )
            )
        rows.append(row)
    return tuple(rows)


def config(name: str, examples: Sequence[Row]) -> dict[str, JsonValue]:
    """Return the harness's configuration of a local task, all but the questions' place.

    The answer is the first line that is not blank, without the blanks around it. It is right where
    it is the row's, in any case of letters, with or without a full stop at the end.
    """
    return {
        "task": name,
        "output_type": "generate_until",
        "test_split": "test",
        # Functions: a template would read an answer such as [1] as a list.
        "doc_to_text": _prompt,
        "doc_to_target": _answer,
        "target_delimiter": " ",
        "fewshot_delimiter": "\n\n",
        "fewshot_config": {"sampler": "first_n", "samples": [dict(row) for row in examples]},
        "num_fewshot": len(examples),
        "generation_kwargs": {"until": ["\n"], "do_sample": False},
        "filter_list": [
            {
                "name": "first-line",
                "filter": [
                    {"function": "regex", "regex_pattern": r"(\S(?:[^\n]*\S)?)"},
                    {"function": "take_first"},
                ],
            }
        ],
        "metric_list": [
            {
                "metric": "exact_match",
                "aggregation": "mean",
                "higher_is_better": True,
                "ignore_case": True,
                "regexes_to_ignore": [r"\.$"],
            }
        ],
        "metadata": {"version": VERSION},
    }


def _prompt(row: Row) -> str:
    return f"Question: {row['question']}\nAnswer:"


def _answer(row: Row) -> str:
    return row["answer"]


def _row(line: bytes, source: str, number: int) -> Row:
    try:
        value = load_json(line, source=source, limit=_MAX_LINE_BYTES)
    except InputError as error:
        raise InputError(*(replace(p, line=number) for p in error.problems)) from error
    if not isinstance(value, dict) or set(value) != set(_LIMITS):
        found = ", ".join(sorted(value))[:200] if isinstance(value, dict) else type(value).__name__
        raise InputError(
            Problem(
                "does not have the fields of a question",
                file=source,
                line=number,
                found=found or "no fields",
                expected='an object with "question" and "answer", and no more',
            )
        )
    for field, limit in _LIMITS.items():
        text = value[field]
        whole = isinstance(text, str) and text == text.strip() and 0 < len(text) <= limit
        if not whole or (field == "answer" and "\n" in text):
            raise InputError(
                Problem(
                    "is not valid",
                    file=source,
                    line=number,
                    field=field,
                    found=repr(text)[:80],
                    expected=f"{'one line' if field == 'answer' else 'text'} of 1 to {limit:,}"
                    " characters, without blanks around it",
                )
            )
    return value
