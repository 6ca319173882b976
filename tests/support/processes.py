"""Waits for processes that are not the test's own children."""

from __future__ import annotations

import os
import select


def ended(pid: int) -> bool:
    """Wait until a process of anybody has ended; False when it has not after half a minute."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 30)[0])
    finally:
        os.close(handle)
