"""What an earlier build wrote, left where it is where this one would write the same.

MkDocs empties the folder of a site before it writes it. To make thousands of files anew costs more
than to make sure that they need not be; and who copies a site elsewhere copies what changed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Container, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

_ASIDE: Final = ".tokenwatt"
"""MkDocs leaves hidden names alone."""


def set_aside(site: Path) -> None:
    """Hide all that a site holds, where that can be done; what remains, MkDocs removes."""
    aside = site / _ASIDE
    with suppress(OSError):
        # One that is there is what a build left that failed: what has been written since is less.
        aside.mkdir()
        for entry in list(os.scandir(site)):
            if not entry.name.startswith("."):
                Path(entry.path).rename(aside / entry.name)


def bring_back(site: Path, wanted: Container[str]) -> None:
    """Put back what was set aside of the files that are wanted, and remove all else of it.

    Args:
        site: the folder of the site.
        wanted: their paths from there, with `/`.
    """
    aside = site / _ASIDE
    with suppress(OSError):
        _drop_others(str(aside), "", wanted)
        for entry in list(os.scandir(aside)):
            with suppress(OSError):  # it is there already: somebody wrote it in this build
                Path(entry.path).rename(site / entry.name)
    shutil.rmtree(aside, ignore_errors=True)


def place(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file of these pieces; what is there already is left as far as it is the same."""
    try:
        file = path.open("r+b")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w+b")
    with file:
        length, same = 0, True
        for piece in pieces:
            if same and file.read(len(piece)) != piece:
                same = False
                file.seek(length)
                file.truncate()
            if not same:
                file.write(piece)
            length += len(piece)
        if same and file.read(1):
            file.truncate(length)


def _drop_others(folder: str, inside: str, wanted: Container[str]) -> bool:
    """Remove what is not wanted from a folder; tell whether that is all there was."""
    empty = True
    with os.scandir(folder) as entries:
        for entry in entries:
            name = inside + entry.name
            if entry.is_dir(follow_symlinks=False):
                if _drop_others(entry.path, f"{name}/", wanted):
                    Path(entry.path).rmdir()
                else:
                    empty = False
            elif name in wanted and _is_only_here(entry):
                empty = False
            else:
                Path(entry.path).unlink()
    return empty


def _is_only_here(entry: os.DirEntry[str]) -> bool:
    """Tell whether to write into a file changes nothing elsewhere, as a link would."""
    return entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_nlink == 1
