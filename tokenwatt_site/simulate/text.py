"""The text of an answer: which characters its tokens carry.

It is the same whatever else is answered, and whoever asks; unless it is garbled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from tokenwatt_site.simulate.script import Script

_WORD = b" token"
_GARBLED = b" taken"
_OPEN, _CLOSE = b"<think>", b"</think>"
_PARTS = (b"\xf0\x9f", b"\x98\x80", _WORD, b"\xe3", b"\x81", b"\x82")
"""Characters of two, of one and of three tokens, over and over."""


def text(script: Script, begin: int, end: int, *, garbled: bool = False) -> str:
    """Return what the tokens from `begin` to before `end` say: whole characters only."""
    carried = b"".join(_token(script, number) for number in range(begin, end))
    if garbled:
        carried = carried.replace(_WORD, _GARBLED)
    return carried.decode("utf-8", "ignore")


def before(said: str, stop: Sequence[str]) -> str:
    """Return what an answer says before the first of the texts that end it."""
    return said[: min((at for mark in stop if (at := said.find(mark)) >= 0), default=len(said))]


def stopped(script: Script, begin: int, end: int, stop: Sequence[str]) -> int | None:
    """Return after how many tokens what they say from `begin` on holds one of `stop`, if ever."""

    def holds(after: int) -> bool:
        said = text(script, begin, after)
        return any(mark in said for mark in stop)

    found = bisect_left(range(end + 1), 1, begin, key=holds)
    return found if found <= end else None


def is_whole(script: Script, end: int) -> bool:
    """Tell whether no character is unfinished after `end` tokens."""
    after = end - _words(script)
    return not script.held_text or after <= 0 or after % len(_PARTS) in (0, 2, 3)


def _words(script: Script) -> int:
    """Return how many tokens at the start are whole in any case: those of reasoning."""
    return max(script.marked_tokens, script.reasoning_tokens)


def _token(script: Script, number: int) -> bytes:
    if number < script.marked_tokens:
        return {0: _OPEN, script.marked_tokens - 1: _CLOSE}.get(number, _WORD)
    after = number - _words(script)
    return _PARTS[after % len(_PARTS)] if script.held_text and after >= 0 else _WORD
