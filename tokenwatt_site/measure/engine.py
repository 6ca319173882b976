"""Life of the engine process: started by us and ended with all its descendants, or attached to.

The process that we start is `guardian.py`, the parent of the engine; see there why.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from tokenwatt_site.canonical import clean_text
from tokenwatt_site.errors import EngineError, Problem
from tokenwatt_site.measure import guardian
from tokenwatt_site.measure.clock import utc_now
from tokenwatt_site.measure.endpoint import answers
from tokenwatt_site.measure.processes import below, serving
from tokenwatt_site.measure.roster import read_back_all

GRACE_S = 10.0
"""How long the engine may take to end after SIGTERM, before SIGKILL."""

_POLL_S = 0.1
_LOG_LINES = 12


class RunningEngine:
    """An engine that answers at `urls`: one, or one of each of its replicas.

    Attributes:
        urls: the bases, without a path and without a slash at the end.
        pid: its process, None when attached.
        starts: when the process of each started, UTC; None: it does not tell.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        pid: int | None,
        starts: Sequence[str | None],
        process: _Process | None,
    ) -> None:
        self.urls = tuple(urls)
        self.pid = pid
        self.starts = tuple(starts)
        self._process = process

    @property
    def url(self) -> str:
        """Where the engine is asked outside of trials: of replicas, the first."""
        return self.urls[0]

    @property
    def started(self) -> str | None:
        """When its process started, of several each; None: one of them does not tell."""
        told = [start for start in self.starts if start is not None]
        return ", ".join(told) if len(told) == len(self.starts) else None

    def alive(self) -> bool:
        """Tell whether the engine still runs.

        Launched: whether its process runs (no wait). Attached: whether its port accepts a
        connection within 1 s; of replicas, the port of each.
        """
        if self._process is not None:
            return self._process.exit_text() is None
        return all(map(_accepts, self.urls))

    def processes(self) -> tuple[int, ...]:
        """Return the ids of the engine's processes; of an attached one those that are seen here."""
        if self._process is not None:
            return tuple(sorted(self._process.descendants()))
        return tuple(sorted(frozenset().union(*map(serving, self.urls))))

    def exit_text(self) -> str | None:
        """Say how the launched engine ended, with the last lines of its log; None: it did not."""
        if self._process is None or (text := self._process.exit_text()) is None:
            return None
        return f"{text}{self._process.log_tail()}"


@contextmanager
def launch(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    log: Path,
    ready_timeout_s: float,
    models_path: str = "/v1/models",
) -> Iterator[RunningEngine]:
    """Start an engine, wait until it answers, and end its whole process group afterwards.

    Args:
        argv: the command; `{python}` becomes this interpreter, `{port}` a free loopback port.
        environment: variables on top of our own.
        log: file for its standard output and error; appended to, its folder must exist.
        ready_timeout_s: how long it may take until it answers.
        models_path: asked for readiness where there is no /health.

    Raises:
        EngineError: no such command, no `{port}`, the port is taken, it ends or does not answer
            in time; with exit code and the last lines of its log.
    """
    if not any("{port}" in part for part in argv):
        raise EngineError(
            Problem(
                "does not say where to listen",
                field="setup.engine.argv",
                expected="{port} in one argument",
                remedy="The port is chosen at each launch.",
            )
        )
    port = free_port()
    _require_free(port)
    command = [
        part.replace("{python}", sys.executable).replace("{port}", str(port)) for part in argv
    ]
    variables = {**os.environ, **environment}
    require_command(command[0], variables, field="setup.engine.argv[0]")
    started = utc_now()
    with _Process(command, variables, log) as process:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(process, url, models_path, ready_timeout_s)
        yield RunningEngine([url], pid=process.pid, starts=[started], process=process)


@contextmanager
def attach(*urls: str, api_key_variable: str | None = None) -> Iterator[RunningEngine]:
    """Use an engine that somebody else started, or its replicas; it is left running.

    Raises:
        UsageError: see `endpoint.read_back`.
        EngineError: nothing answers there.
    """
    bases = [url.rstrip("/") for url in urls]
    facts = read_back_all(bases, api_key_variable)
    starts = [each.process_started for each in facts]
    yield RunningEngine(bases, pid=None, starts=starts, process=None)


def _accepts(url: str) -> bool:
    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname or "", port), timeout=1):
            return True
    except OSError:
        return False


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _Process:
    """The guardian with the engine under it, from start to the end of both."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._command = command
        self._environment = environment
        self.log_path = log
        self._log_start = 0
        self._exit_text: str | None = None
        self._pending = b""
        self._control = -1
        self.pid = 0

    def __enter__(self) -> Self:
        control_read, self._control = os.pipe()  # not inheritable: only we hold the write end
        self._status, status_write = os.pipe()
        try:
            with self.log_path.open("ab") as handle:
                self._log_start = handle.tell()
                self._guardian = subprocess.Popen(
                    [
                        sys.executable,
                        "-I",
                        guardian.__file__,
                        str(control_read),
                        str(status_write),
                        str(GRACE_S),
                        "--",
                        *self._command,
                    ],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=handle,
                    stderr=handle,
                    pass_fds=(control_read, status_write),
                    start_new_session=True,
                )
        except OSError as error:
            os.close(self._control)
            os.close(self._status)
            raise EngineError(
                Problem(f"engine log cannot be written ({error.strerror})", file=str(self.log_path))
            ) from error
        finally:
            os.close(control_read)
            os.close(status_write)
        try:
            self._wait_for_start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._control)
        self._guardian.wait()
        self.exit_text()
        if self._exit_text == _GUARDIAN_GONE and self.pid:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        os.close(self._status)

    def _wait_for_start(self) -> None:
        line = self._next_line(timeout_s=60)
        word, _, rest = (line or "").partition(" ")
        if word != "started":
            raise EngineError(
                Problem(
                    f"the engine did not start: {rest or 'no answer from its guardian'}",
                    field="setup.engine.argv",
                    found=self._command[0],
                )
            )
        self.pid = int(rest)

    def exit_text(self) -> str | None:
        """Say how the engine ended, or None while it runs; does not wait."""
        if self._exit_text is None and (line := self._next_line(timeout_s=0)) is not None:
            word, _, rest = line.partition(" ")
            if word != "exited":
                self._exit_text = _GUARDIAN_GONE
            elif int(rest) < 0:
                self._exit_text = f"was ended by {signal.Signals(-int(rest)).name}"
            else:
                self._exit_text = f"ended with exit code {rest}"
        return self._exit_text

    def descendants(self) -> frozenset[int]:
        """Return the ids of all processes below the guardian."""
        return below({self._guardian.pid}) - {self._guardian.pid}

    def _next_line(self, *, timeout_s: float) -> str | None:
        """Return the next status line, "" at the end of them, None when there is none yet."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([self._status], [], [], left_s)[0]:
                return None
            if not (data := os.read(self._status, 4096)):
                return ""
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode("utf-8", "replace")

    def log_tail(self) -> str:
        """Return the last lines that the engine wrote, as the end of a message."""
        return log_tail(self.log_path, self._log_start) or "; its log is empty"


_GUARDIAN_GONE = "lost its guardian process"


def log_tail(path: Path, start: int) -> str:
    """Return the last lines of a log from a byte on, as the end of a message; empty: none."""
    with path.open("rb") as handle:
        size = handle.seek(0, os.SEEK_END)
        handle.seek(max(start, size - 8192))
        lines = handle.read().decode("utf-8", "replace").splitlines()
    shown = [cleaned for line in lines[-_LOG_LINES:] if (cleaned := clean_text(line))]
    return "".join(f"\n  | {line}" for line in shown)


def _wait_until_ready(
    process: _Process, url: str, models_path: str, ready_timeout_s: float
) -> None:
    deadline = time.monotonic() + ready_timeout_s
    ready = False
    while (ended := process.exit_text()) is None and not ready:
        if time.monotonic() > deadline:
            raise EngineError(
                Problem(
                    f"the engine did not answer within {ready_timeout_s:g} s"
                    f" (its log: {process.log_path}){process.log_tail()}",
                    field="endpoint.ready_timeout_s",
                )
            )
        ready = answers(url, models_path)
        if not ready:
            time.sleep(_POLL_S)
    # Asked once more after the answer: it may have come from another program on a taken port.
    if ended or (ended := process.exit_text()):
        raise EngineError(
            Problem(
                f"the engine {ended} before it answered"
                f" (its log: {process.log_path}){process.log_tail()}",
                field="setup.engine.argv",
            )
        )


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise EngineError(
                Problem(
                    f"port {port} is taken ({error.strerror})",
                    remedy="End the program that listens there, or start again.",
                )
            ) from error


def require_command(command: str, environment: Mapping[str, str], *, field: str) -> None:
    """See that a command can be run here.

    Raises:
        EngineError: it cannot; names the field that holds it.
    """
    if shutil.which(command, path=environment.get("PATH")) is None:
        raise EngineError(
            Problem(
                "is not a command that can be run here",
                field=field,
                found=command,
                remedy="Install it, or name its full path.",
            )
        )
