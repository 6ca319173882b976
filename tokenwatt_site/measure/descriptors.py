"""How many files and connections this process, and those it starts, may have open."""

from __future__ import annotations

import resource
import sys


def allow(count: int) -> int:
    """Raise the soft limit to `count` where it is lower and the hard limit lets it.

    Returns:
        How many may be open now: `count` or more, or the hard limit where that is less.
    """
    told = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in told)
    if soft < count:
        soft = min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, told[1]))
    return soft
