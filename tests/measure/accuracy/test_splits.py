from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.errors import InputError
from tokenwatt_site.measure.accuracy.splits import read_split


def written(folder: Path, text: str) -> Path:
    path = folder / "test.jsonl"
    path.write_text(text, encoding="utf-8")
    return path


@given(
    rows=st.lists(st.fixed_dictionaries({"a": st.text(max_size=9), "b": st.integers()}), min_size=1)
)
def test_rows_come_back_whatever_their_text_holds(
    rows: list[dict[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    assert read_split(written(tmp_path_factory.getbasetemp(), text)) == rows


def test_a_line_separator_within_a_text_ends_no_row(tmp_path: Path) -> None:
    assert read_split(written(tmp_path, '{"a": "x\u2028y"}')) == [{"a": "x\u2028y"}]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "is not valid JSON"),
        ('{"a": 1}\n{\n', 2, "is not valid JSON"),
        ('{"a": NaN}\n', 1, "NaN is no JSON number"),
        ("[" * 100_000, 1, "is not valid JSON"),
        ("[]\n", 1, "is no object with fields"),
        ('{"a": 1}\n\n{"a": 1}\n', 2, "is not valid JSON"),
        ('{"a": 1}\n{"b": 1}\n', 2, "has other fields than line 1"),
    ],
)
def test_what_is_no_row_is_named_by_its_line(
    text: str, line: int, words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        read_split(written(tmp_path, text))
    (problem,) = caught.value.problems
    assert problem.line == line
    assert words in problem.what


def test_a_split_that_is_not_there_or_a_link_is_named_with_what_is_needed(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").symlink_to(written(tmp_path, '{"a": 1}\n'))
    for name in ("none.jsonl", "train.jsonl"):
        with pytest.raises(InputError, match=r"accuracy\.data: .*SPLIT\.jsonl") as caught:
            read_split(tmp_path / name)
        assert name in str(caught.value)
