"""What is wrong with an answer's text on sight: nothing in it, one piece over and over, markers."""

from __future__ import annotations

from typing import Literal, TypeAlias

Flag: TypeAlias = Literal["empty", "repetitive", "markers"]


def flags_of(text: str) -> tuple[Flag, ...]:
    """Return what is wrong with `text` on sight, in the order of `Flag`.

    empty: nothing but white space. repetitive: it ends in one piece that comes again and again.
    markers: it holds what only a chat template writes, so the engine's template is not the model's.
    """
    raise NotImplementedError
