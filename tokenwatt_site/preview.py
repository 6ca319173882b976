"""Which files of runs are on the branch that is published: the rest is shown as a preview."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tokenwatt_site.errors import EnvironmentProblem, Problem

OPTION = "published_from"


def published(folder: Path, refs: Iterable[str]) -> frozenset[Path]:
    """Return the files below `folder` that one of the refs has at the same place, byte for byte.

    Nothing is fetched and nothing in the repository changes.

    Args:
        folder: of the runs, in a git repository.
        refs: branches, tags or commits.

    Raises:
        EnvironmentProblem: there is no git, no repository, or no such ref.
    """
    same: set[Path] = set()
    for ref in refs:
        name = f"{ref}^{{commit}}"
        told = _git(folder, ref, "rev-parse", "--verify", "--quiet", "--end-of-options", name)
        found = told.decode().strip()
        listed = _names(_git(folder, ref, "ls-tree", "-r", "-z", "--name-only", found))
        changed = _names(
            _git(
                folder,
                ref,
                "diff",
                "--name-only",
                "--relative",
                "-z",
                "--no-renames",
                "--no-ext-diff",
                "--no-textconv",
                found,
                "--",
                ".",
            )
        )
        same |= {folder / name for name in listed - changed}
    return frozenset(same)


def _names(told: bytes) -> set[str]:
    return {os.fsdecode(name) for name in told.split(b"\0") if name}


def _git(folder: Path, ref: str, *words: str) -> bytes:
    # No lock: a build beside an editor must not make either of them fail.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, check=False, env=environment
        )
    except OSError as error:
        raise EnvironmentProblem(
            Problem(
                f"git could not be started ({error.strerror}), which tells published from not",
                file="mkdocs.yml",
                field=OPTION,
                found=ref,
                remedy="Install git, or take the option out.",
            )
        ) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise EnvironmentProblem(
            Problem(
                f"{'; '.join(said) or 'is no commit of the repository that holds the runs'}",
                file="mkdocs.yml",
                field=OPTION,
                found=ref,
                expected="a branch, tag or commit that is here",
                remedy="Fetch it first (a shallow clone has one branch only), or take the option"
                " out.",
            )
        )
    return done.stdout
