"""How long a measurement may take, as a user writes it."""

from __future__ import annotations

import re

from tokenwatt_site.errors import Problem, UsageError

MAX_HOURS = 1_000

_FORM = re.compile(r"(?:([0-9]{1,4})h)?(?:([0-9]{1,5})m)?")


def budget_s(text: str) -> int:
    """Return the seconds of a budget such as 45m, 2h or 1h30m.

    Raises:
        UsageError: it is written otherwise, is nothing, or more than MAX_HOURS.
    """
    found = _FORM.fullmatch(text.strip())
    seconds = 0
    if found is not None:
        hours, minutes = (int(part or 0) for part in found.groups())
        seconds = 3600 * hours + 60 * minutes
    if not 0 < seconds <= 3600 * MAX_HOURS:
        raise UsageError(
            Problem(
                "is no budget",
                field="--budget",
                found=repr(text)[:80],
                expected=f"minutes or hours, such as 45m, 2h or 1h30m; at most {MAX_HOURS}h",
            )
        )
    return seconds
