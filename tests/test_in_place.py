"""What is written again as it is stays where it is; nothing else of an earlier build does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mkdocs.utils import clean_directory

from tests.support.runs import RunBuilder, small_spec
from tests.support.site import build_site, make_project
from tokenwatt_site.in_place import bring_back, place, set_aside


def _write(folder: Path, *names: str) -> None:
    for name in names:
        place(folder / name, [name.encode()])


def _names(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}


def _rebuilt(site: Path, *wanted: str) -> set[str]:
    """Return what is left after a build that wants these files and has not written any."""
    set_aside(site)
    clean_directory(str(site))
    bring_back(site, set(wanted))
    return _names(site)


def test_what_is_wanted_stays_and_nothing_else_does(tmp_path: Path) -> None:
    _write(tmp_path, "runs/1/run.json", "runs/2/run.json", "runs/2/evidence/a", "old/page", "top")
    before = (tmp_path / "runs/1/run.json").stat()
    assert _rebuilt(tmp_path, "runs/1/run.json", "top", "new") == {"runs/1/run.json", "top"}
    assert (tmp_path / "runs/1/run.json").stat().st_ino == before.st_ino
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "top"}


def test_what_a_failed_build_set_aside_is_there_for_the_next(tmp_path: Path) -> None:
    _write(tmp_path, "runs/1", "runs/2")
    set_aside(tmp_path)
    _write(tmp_path, "half")
    assert _rebuilt(tmp_path, "runs/1", "half") == {"runs/1"}


def test_what_this_build_wrote_is_not_replaced_by_what_an_earlier_one_did(tmp_path: Path) -> None:
    _write(tmp_path, "runs/1")
    set_aside(tmp_path)
    _write(tmp_path, "runs/2")
    bring_back(tmp_path, {"runs/1", "runs/2"})
    assert _names(tmp_path) == {"runs/2"}


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_nothing_is_written_through_a_link_to_a_file_elsewhere(tmp_path: Path, link) -> None:
    site, backup = tmp_path / "site", tmp_path / "backup"
    _write(tmp_path, "backup")
    site.mkdir()
    link(backup, site / "page")
    assert _rebuilt(site, "page") == set()
    _write(site, "page")
    assert backup.read_bytes() == b"backup"


def test_links_to_folders_are_removed_and_what_they_lead_to_is_not(tmp_path: Path) -> None:
    site = tmp_path / "site"
    _write(tmp_path, "elsewhere/file")
    site.mkdir()
    (site / "folder").symlink_to(tmp_path / "elsewhere")
    assert _rebuilt(site, "folder/file") == set()
    assert _names(tmp_path / "elsewhere") == {"file"}


def test_a_site_that_is_not_there_yet_has_nothing_to_set_aside(tmp_path: Path) -> None:
    set_aside(tmp_path / "site")
    bring_back(tmp_path / "site", {"page"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("before", [b"", b"va", b"vague", b"other", b"value of before"])
def test_a_file_is_written_where_its_content_differs(tmp_path: Path, before: bytes) -> None:
    (tmp_path / "file").write_bytes(before)
    place(tmp_path / "file", [b"va", b"", b"lue"])
    assert (tmp_path / "file").read_bytes() == b"value"


def test_a_rebuild_touches_no_file_of_a_run_that_did_not_change_and_drops_one_that_went(
    tmp_path: Path,
) -> None:
    runs, site = make_project(tmp_path), tmp_path / "site"
    RunBuilder().write(runs / "one")
    RunBuilder(spec=small_spec(setup__driver="other"), day=2).write(runs / "two")
    build_site(tmp_path)
    first = {path: path.stat() for path in site.rglob("*") if path.is_file()}
    for path in (runs / "two").rglob("*"):
        if path.is_file():
            path.unlink()
    build_site(tmp_path)
    ours = [
        p for p in first if {"runs", "details", "badges"} & set(p.parts) and p.suffix != ".html"
    ]
    left = {p for p in ours if p.exists()}
    assert left
    assert len(ours) == 2 * len(left)
    assert all(p.stat().st_mtime_ns == first[p].st_mtime_ns for p in left)
    names = _names(site)
    fresh = tmp_path / "fresh"
    (tmp_path / "site").rename(fresh)
    build_site(tmp_path)
    assert names == _names(site)
