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
    urls: Sequence[str],
    *,
    starts: Sequence[str | None],
    log: Path,
    timeout_s: float,
    api_key_variable: str | None = None,
) -> tuple[str | None, ...]:
    """Run the command, and wait until the engine answers as another process than before.

    Of replicas each has to.

    The command runs without a shell, in a session of its own, so that what it starts outlives us,
    and with our environment. Where the engine does not tell when it started, that it answers after
    the command has ended is all that is seen.

    Args:
        argv: `endpoint.restart`.
        urls: base of the engine, or of each of its replicas.
        starts: when the process of each started so far, as it tells; None: it does not.
        log: file for what the command prints; appended to, its folder must exist.
        timeout_s: how long the command and the engine may take together.
        api_key_variable: the environment variable with the engine's key; None sends no key.

    Returns:
        When each new process started; None: it does not tell.

    Raises:
        EngineError: the command cannot be run, fails or does not end, or no new process of the
            engine answers in time; with what the command printed last.
    """
    require_command(argv[0], os.environ, field=f"{_FIELD}[0]")
    deadline = time.monotonic() + timeout_s
    start = _run(argv, log, timeout_s)
    found = []
    for url, before in zip(urls, starts, strict=True):
        while True:
            now, why = _new_start(url.rstrip("/"), before, api_key_variable)
            if why is None:
                break
            if time.monotonic() > deadline:
                raise EngineError(
                    Problem(
                        "no new engine answers within endpoint.ready_timeout_s,"
                        f" {timeout_s:g} s ({why}; its log: {log}){log_tail(log, start)}",
                        field=_FIELD,
                    )
                )
            time.sleep(_POLL_S)
        found.append(now)
    return tuple(found)


def _new_start(
    base: str, before: str | None, api_key_variable: str | None
) -> tuple[str | None, str | None]:
    """Return when a new process started, as it tells, and why there is none yet."""
    try:
        if not answers(base, api_key_variable=api_key_variable):
            return None, "nothing answers there"
        now = read_back(base, api_key_variable).process_started
    except EngineError as error:
        return None, str(error)
    same = now is not None and now == before
    return now, f"it is the process that started {now}, as before" if same else None


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
