"""Writing the file that a command was asked for, with errors that a user can act on."""

from __future__ import annotations

from pathlib import Path

from tokenwatt_site.errors import EnvironmentProblem, Problem, UsageError
from tokenwatt_site.files import put_new


def require_absent(out: Path) -> None:
    """See that nothing has this name, before work is done for it.

    Raises:
        UsageError: something has.
    """
    if out.exists() or out.is_symlink():
        raise UsageError(
            Problem("is there already", file=str(out), remedy="Name another file with --out.")
        )


def write_new(out: Path, data: bytes) -> None:
    """Write a file that was not there, whole or not at all.

    Raises:
        UsageError: somebody made it meanwhile.
        EnvironmentProblem: it cannot be written.
    """
    try:
        put_new(out, data)
    except FileExistsError:
        require_absent(out)
    except OSError as error:
        raise not_written(out, error) from error


def not_written(out: Path, error: OSError, remedy: str | None = None) -> EnvironmentProblem:
    """Return what to raise where `out` cannot be written."""
    return EnvironmentProblem(
        Problem(f"cannot be written ({error.strerror})", file=str(out), remedy=remedy)
    )
