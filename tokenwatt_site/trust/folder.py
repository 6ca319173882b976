"""What lies in a folder of runs: every file is listed or named as refused, none is passed over."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.trust.beside import ENDING

MAX_DEPTH = 32
"""Of folders in folders."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a folder and of those in it, in the order of their paths.

    Attributes:
        documents: `*.json`, and links to folders, which whoever reads them refuses.
        statements: files of statements.
        refused: folders that cannot be looked into, or lie too deep.
    """

    documents: tuple[Path, ...]
    statements: tuple[Path, ...]
    refused: tuple[tuple[Path, InputError], ...]


def listing(folder: Path, only: Collection[Path] | None = None) -> Listing:
    """List a folder of runs; one that is not there is empty. No link is followed.

    Args:
        folder: of runs.
        only: the files that are listed; None: all.
    """
    documents: list[Path] = []
    statements: list[Path] = []
    refused: list[tuple[Path, InputError]] = []
    # os.walk passes over what it may not read, and goes as deep as the stack of Python.
    waiting = [(folder, 0)] if folder.exists() else []
    while waiting:
        where, depth = waiting.pop()
        if depth > MAX_DEPTH:
            refused.append((where, _problem(where, f"lies in more than {MAX_DEPTH} folders")))
            continue
        try:
            with os.scandir(where) as entries:
                found = list(entries)
        except OSError as error:
            refused.append((where, _problem(where, f"cannot be read ({error.strerror})")))
            continue
        for entry in found:
            path = where / entry.name
            if entry.is_dir(follow_symlinks=False):
                waiting.append((path, depth + 1))
            elif only is not None and path not in only:
                continue
            elif entry.name.endswith(ENDING):
                statements.append(path)
            elif entry.name.endswith(".json") or (entry.is_symlink() and entry.is_dir()):
                documents.append(path)
    return Listing(tuple(sorted(documents)), tuple(sorted(statements)), tuple(refused))


def _problem(where: Path, what: str) -> InputError:
    return InputError(Problem(what, file=str(where), remedy="Move it, or take it out."))
