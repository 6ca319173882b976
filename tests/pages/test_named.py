from __future__ import annotations

from pathlib import Path

import pytest

from tokenwatt_site.errors import SpecError
from tokenwatt_site.pages.named import load_named

GOOD = """\
name: new-against-old
title: The new release
why: Whether to update.
baseline: old-000000000000
others:
  - new-000000000000
"""
KNOWN = ("old-000000000000", "new-000000000000")


def write(folder: Path, *texts: str) -> Path:
    for i, text in enumerate(texts):
        (folder / f"{i}.yml").write_text(text, encoding="utf-8")
    return folder


def test_a_comparison_names_its_sides(tmp_path: Path) -> None:
    (named,) = load_named(write(tmp_path, GOOD), KNOWN)
    assert named.sides == KNOWN
    assert named.title == "The new release"


def test_without_a_folder_there_are_none(tmp_path: Path) -> None:
    assert load_named(tmp_path / "none", KNOWN) == ()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (GOOD.replace("why: Whether to update.\n", ""), "why"),
        (GOOD + "color: red\n", "color"),
        (GOOD.replace("new-against-old", "../x"), "name"),
        (GOOD.replace("  - new-000000000000\n", "  []\n"), "others"),
        (GOOD.replace("The new release", "''"), "title"),
        (GOOD.replace("- new", "- old"), "others.0"),
        (GOOD.replace("baseline: old", "baseline: gone"), "baseline"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_field(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_named(write(tmp_path, text), KNOWN)
    (problem,) = caught.value.problems
    assert problem.field == field
    assert problem.file == str(tmp_path / "0.yml")


def test_a_file_with_another_ending_is_told_and_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GOOD, encoding="utf-8")
    with pytest.raises(SpecError, match=r"mine\.yaml"):
        load_named(tmp_path, KNOWN)


def test_all_files_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load_named(write(tmp_path, "- 1\n", GOOD, GOOD, "a: [\n"), KNOWN)
    assert [Path(p.file or "").name for p in caught.value.problems] == ["0.yml", "3.yml", "2.yml"]
