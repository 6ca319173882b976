"""The key of an endpoint: read from the environment where it is sent, and kept nowhere.

Everything else carries the name of the variable only, so no value that is printed, written or
compared holds the key. What an engine says may repeat it, and passes `hide` before it is kept.
"""

from __future__ import annotations

import os
import re

from tokenwatt_site.errors import Problem, UsageError

HIDDEN = "(key)"

_KEY = re.compile(r"[\x21-\x7e]{1,4096}")
_LEAST_HIDDEN = 8  # shorter ones ("EMPTY", "none") are no secrets, and words of honest answers


def authorisation(variable: str | None) -> str | None:
    """Return the value of the header `Authorization`; None where no variable is named.

    Raises:
        UsageError: the variable is not set, or holds no key; names it, and not what it holds.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "")
    if not _KEY.fullmatch(key):
        raise UsageError(
            Problem(
                "holds no key that can be sent" if key else "is not set",
                field=f"endpoint.api_key_variable: {variable}",
                expected="the key of the engine, in ASCII without blanks" if key else None,
                remedy=f"Set the environment variable {variable} to the key of the engine.",
            )
        )
    return f"Bearer {key}"


def hide(text: str, variable: str | None) -> str:
    """Return `text` without the key, nor a part of it at the end where the text was cut."""
    key = os.environ.get(variable, "") if variable else ""
    if len(key) < _LEAST_HIDDEN:
        return text
    text = text.replace(key, HIDDEN)
    for length in range(len(key) - 1, _LEAST_HIDDEN // 2 - 1, -1):
        if text.endswith(key[:length]):
            return text[:-length] + HIDDEN
    return text
