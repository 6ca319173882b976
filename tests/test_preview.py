from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tokenwatt_site.errors import EnvironmentProblem
from tokenwatt_site.preview import published


def git(folder: Path, *words: str) -> None:
    name = {
        f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    plain = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(
        ["git", *words], cwd=folder, check=True, capture_output=True, env=os.environ | name | plain
    )


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder in a repository whose branch `main` has three files."""
    folder = tmp_path / "runs"
    (folder / "sub").mkdir(parents=True)
    for name in ("kept.json", "changed.json", "sub/ünï code.json"):
        (folder / name).write_text(f"{name}\n", encoding="utf-8")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return folder


def names(runs: Path, *refs: str) -> set[str]:
    return {path.relative_to(runs).as_posix() for path in published(runs, refs)}


def test_a_file_is_published_where_the_ref_has_its_bytes_at_its_place(runs: Path) -> None:
    assert names(runs, "main") == {"kept.json", "changed.json", "sub/ünï code.json"}
    (runs / "changed.json").write_text("other\n", encoding="utf-8")
    (runs / "new.json").write_text("new\n", encoding="utf-8")
    (runs / "kept.json").rename(runs / "moved.json")
    assert names(runs, "main") == {"sub/ünï code.json"}


def test_what_is_committed_elsewhere_or_staged_is_not_published(runs: Path) -> None:
    git(runs, "checkout", "-q", "-b", "proposal")
    (runs / "new.json").write_text("new\n", encoding="utf-8")
    git(runs, "add", ".")
    assert "new.json" not in names(runs, "main")
    git(runs, "commit", "-q", "-m", "second")
    assert "new.json" not in names(runs, "main")
    assert "new.json" in names(runs, "proposal")
    assert "new.json" in names(runs, "main", "proposal")


@pytest.mark.parametrize("ref", ["origin/main", "--output=x", "main:runs", ""])
def test_a_ref_that_is_none_is_told_with_what_to_do(runs: Path, ref: str) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        published(runs, [ref])
    told = str(caught.value)
    assert "mkdocs.yml: published_from: " in told
    assert f"found {ref}" in told
    assert "Fetch it first" in told


def test_a_folder_in_no_repository_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(EnvironmentProblem, match="not a git repository"):
        published(tmp_path, ["main"])


def test_a_machine_without_git_is_told(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentProblem, match="git could not be started"):
        published(runs, ["main"])
