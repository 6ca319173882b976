"""The process that a worker is, on whatever machine."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing.connection import Connection

from tokenwatt_site.errors import EnvironmentProblem, Problem

STOP_S = 2.0


def spawned(link: Connection) -> subprocess.Popen[bytes]:
    """Start a worker that talks over `link`, a socket, which it alone has then.

    Raises:
        EnvironmentProblem: it cannot be started.
    """
    try:
        # A session of its own: Ctrl-C is for us, who close its socket then.
        return subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker", str(link.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(link.fileno(),),
            start_new_session=True,
        )
    except OSError as error:
        raise EnvironmentProblem(
            Problem(
                f"a client process did not start ({error.strerror})",
                remedy="Is there memory, and may this user start processes?",
            )
        ) from error
    finally:
        link.close()


def how_it_ended(process: subprocess.Popen[bytes]) -> str | None:
    """Say how a worker ended, after its name, waiting a moment for it; None: it has not."""
    try:
        code = process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        return None
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def see_it_end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a worker whose socket is closed; one that stays is killed."""
    if how_it_ended(process) is None:
        process.kill()
        process.wait()
