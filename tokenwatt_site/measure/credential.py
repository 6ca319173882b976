"""Key of an endpoint, user and password of an instrument: read where they are sent, kept nowhere.

Everything else carries the name of the variable only, so no value that is printed, written or
compared holds them. What the other side says may repeat them, and passes `hide` before it is kept.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Login:
    """Names of the environment variables that hold user and password; safe to show."""

    user_variable: str
    password_variable: str

    def header(self) -> str:
        """Return the value of the header `Authorization` (RFC 7617).

        Raises:
            UsageError: a variable is not set or cannot be sent; names it, and not what it holds.
        """
        user, password = self._value("user"), self._value("password")
        return "Basic " + b64encode(f"{user}:{password}".encode()).decode("ascii")

    def _value(self, which: str) -> str:
        variable = self.user_variable if which == "user" else self.password_variable
        value = os.environ.get(variable, "")
        unsendable = not value.isprintable() or (which == "user" and ":" in value)
        if not value or unsendable:
            raise UsageError(
                Problem(
                    f"holds no {which} that can be sent" if value else "is not set",
                    field=f"instruments.{which}_variable: {variable}",
                    remedy=f"Set the environment variable {variable} to the {which}.",
                )
            )
        return value


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
