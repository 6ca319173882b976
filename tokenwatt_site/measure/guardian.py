"""Parent of the engine, so that no engine outlives us, not even when we are killed.

A killed process cannot clean up, so another one must: this one is started as
`guardian.py CONTROL_FD STATUS_FD GRACE_S -- ARGV...`, runs the engine as a child in a session of
its own, and reads a pipe whose write end only the measuring process holds. End of file there means
"stop, or my parent is gone": the whole group of the engine gets SIGTERM, `GRACE_S` later SIGKILL.

On the status pipe it writes one line per event: `started PID`, `failed REASON`, `exited CODE`
(negative: the signal). Imports nothing of this project: it must start fast and alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02


class Guardian:
    """The engine's process, what is known of its end, and the two pipes."""

    def __init__(self, control: int, status: int, grace_s: float) -> None:
        self._control = control
        self._status = status
        self._grace_s = grace_s
        self._pid = 0
        self._ended = False

    def run(self, argv: list[str]) -> None:
        """Start the engine and return when it and all its descendants are gone."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        # Handlers, not SIG_IGN: what is ignored stays ignored in the engine after exec.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._forget_parent)
        _adopt_orphans()
        try:
            process = subprocess.Popen(argv, start_new_session=True, stdin=subprocess.DEVNULL)
        except OSError as error:
            self._tell(f"failed {error.strerror}")
            return
        self._pid = process.pid
        self._tell(f"started {self._pid}")
        while not self._ended and self._control >= 0:
            ready, _, _ = select.select([self._control, wake_read], [], [])
            if wake_read in ready:
                os.read(wake_read, 4096)
            self._reap()
            if self._control in ready:
                break
        self._end_group()
        process.returncode = 0  # reaped here, not by subprocess

    def _forget_parent(self, *_: object) -> None:
        self._control = -1

    def _tell(self, line: str) -> None:
        try:
            os.write(self._status, f"{line}\n".encode())
        except OSError:
            return  # nobody is left to read it

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._ended = True
                self._tell(f"exited {os.waitstatus_to_exitcode(status)}")

    def _end_group(self) -> None:
        for number, patience_s in ((signal.SIGTERM, self._grace_s), (signal.SIGKILL, 5.0)):
            deadline = time.monotonic() + patience_s
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)
            told: set[int] = set()
            while time.monotonic() < deadline:
                self._reap()
                if not self._anyone_left():
                    return
                # Those that left the group become our children when their parent ends.
                for pid in set(_children()) - told - {self._pid}:
                    os.kill(pid, number)
                    told.add(pid)
                time.sleep(_POLL_S)

    def _anyone_left(self) -> bool:
        if _children():
            return True
        try:
            os.killpg(self._pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def _adopt_orphans() -> None:
    # Linux: a grandchild whose parent ended becomes ours, so it can be ended and reaped.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children() -> list[int]:
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii")
    except OSError:
        return []
    return [int(pid) for pid in text.split()]


if __name__ == "__main__":
    Guardian(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])).run(sys.argv[5:])
