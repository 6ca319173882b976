"""A new launch of an attached engine, by the command that its spec names."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tokenwatt_site.errors import EngineError, Problem
from tokenwatt_site.measure.endpoint import answers, read_back
from tokenwatt_site.measure.engine import log_tail, require_command

_FIELD = "endpoint.restart"
_POLL_S = 0.1


def restart(
    argv: Sequence[str],
    url: str,
    *,
    started: str | None,
    log: Path,
    timeout_s: float,
    api_key_variable: str | None = None,
) -> str | None:
    """Run the command, and wait until the engine answers as another process than before.

    The command runs without a shell, in a session of its own, so that what it starts outlives us,
    and with our environment. Where the engine does not tell when it started, that it answers after
    the command has ended is all that is seen.

    Args:
        argv: `endpoint.restart`.
        url: base of the engine.
        started: when its process started so far, as it tells; None: it does not.
        log: file for what the command prints; appended to, its folder must exist.
        timeout_s: how long the command and the engine may take together.
        api_key_variable: the environment variable with the engine's key; None sends no key.

    Returns:
        When the new process started; None: it does not tell.

    Raises:
        EngineError: the command cannot be run, fails or does not end, or no new process of the
            engine answers in time; with what the command printed last.
    """
    require_command(argv[0], os.environ, field=f"{_FIELD}[0]")
    deadline = time.monotonic() + timeout_s
    start = _run(argv, log, timeout_s)
    base = url.rstrip("/")
    last: EngineError | None = None
    while True:
        try:
            if answers(base, api_key_variable=api_key_variable):
                now = read_back(base, api_key_variable).process_started
                if now is None or now != started:
                    return now
                last = EngineError(f"it is the process that started {now}, as before")
        except EngineError as error:
            last = error
        if time.monotonic() > deadline:
            raise EngineError(
                Problem(
                    f"no new engine answers within endpoint.ready_timeout_s, {timeout_s:g} s"
                    f" ({last or 'nothing answers there'}; its log: {log}){log_tail(log, start)}",
                    field=_FIELD,
                )
            )
        time.sleep(_POLL_S)


def _run(argv: Sequence[str], log: Path, timeout_s: float) -> int:
    """Run the command to its end; return where in the log it began to print."""
    start = 0
    try:
        with log.open("ab") as handle:
            start = handle.tell()
            # Not a pipe: an engine that it starts would hold that open, and be cut off with us.
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=handle,
                start_new_session=True,
            )
    except OSError as error:
        raise EngineError(
            Problem(f"cannot be run ({error.strerror})", field=_FIELD, found=argv[0])
        ) from error
    try:
        code = process.wait(timeout_s)
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        raise EngineError(
            Problem(
                f"did not end within {timeout_s:g} s (its log: {log}){log_tail(log, start)}",
                field=_FIELD,
                expected="a command that returns while the engine starts",
            )
        ) from error
    if code != 0:
        how = f"exit code {code}" if code > 0 else signal.Signals(-code).name
        raise EngineError(
            Problem(f"ended with {how} (its log: {log}){log_tail(log, start)}", field=_FIELD)
        )
    return start
