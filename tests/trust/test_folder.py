"""Tests of trust.folder; what becomes of the files is in test_verify."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tokenwatt_site.trust.folder import MAX_DEPTH, listing


def test_documents_and_statements_are_listed_wherever_they_lie(tmp_path: Path) -> None:
    for name in ("b.json", "a/x.json", "a/x.att.jsonl", "a/x.jsonl", "c.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    found = listing(tmp_path)
    names = [path.relative_to(tmp_path).as_posix() for path in found.documents]
    assert names == ["a/x.json", "b.json", "link"]
    assert [path.name for path in found.statements] == ["x.att.jsonl"]
    assert found.refused == ()


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    found = listing(tmp_path / "none")
    assert (found.documents, found.statements, found.refused) == ((), (), ())


def test_folders_that_lie_too_deep_are_named_and_the_others_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").touch()
    deep = tmp_path
    for _ in range(1_100):  # deeper than Python calls itself
        if len(str(deep)) < 3_000:
            deep = deep / "d"
            deep.mkdir()
    found = listing(tmp_path)
    os.removedirs(deep)  # pytest's own way to take it away is one call in another
    assert [path.name for path in found.documents] == ["a.json"]
    ((path, why),) = found.refused
    assert len(path.relative_to(tmp_path).parts) == MAX_DEPTH + 1
    assert f"more than {MAX_DEPTH} folders" in str(why)


def test_a_folder_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "a.json").touch()
    scandir = os.scandir

    def guarded(path: Path):  # type: ignore[no-untyped-def]  # root may read everything
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    found = listing(tmp_path)
    assert [path.name for path in found.documents] == ["a.json"]
    assert [(path.name, "Permission denied" in str(why)) for path, why in found.refused] == [
        ("closed", True)
    ]
