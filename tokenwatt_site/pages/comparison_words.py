"""How parts of a comparison are written: blocks and cells, ratios, changes, names of fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.statistics import Ratio

Block: TypeAlias = dict[str, JsonValue]
"""Plain data with its `kind`: a template writes it, and compare-view.js makes the same."""

Parts: TypeAlias = list[list[str]]
"""Words and how they are set: "" or "b"."""

MARKS: Mapping[str, tuple[str, str, str]] = {
    "better": ("better", "check", "circle"),
    "worse": ("worse", "warn", "square"),
    "different": ("different", "unranked", "slot"),
    "same within 3%": ("same", "recomputed", "diamond"),
    "no difference shown": ("none", "unranked", "ring"),
}
"""Verdict -> class, icon and shape of its mark."""

MINUS = "\u2212"


def head(words: str, cls: str = "", axis: Block | None = None) -> Block:
    return {"text": words, "class": cls, "axis": axis}


def cell(parts: Parts, cls: str = "", small: str = "", **more: JsonValue) -> Block:
    """`key` links to a definition; a `bar` or a `verdict` stands behind the words."""
    empty = {"key": None, "verdict": None, "bar": None, "span": None}
    return {"parts": parts, "class": cls, "small": small, **empty, **more}


def change(ratio: float) -> str:
    change = 100 * (ratio - 1)
    return f"{abs(change):.1f}% {'more' if change >= 0 else 'less'}"


def percent(ratio: float) -> str:
    change = 100 * (ratio - 1)
    return f"{MINUS if change < 0 else '+'}{abs(change):.1f}%"


def interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return "no interval"
    return f"{ratio.low:.3f} to {ratio.high:.3f}"


def points(value: float) -> str:
    shown = f"{abs(value):.2f}"
    return shown if float(shown) == 0 else f"{MINUS if value < 0 else '+'}{shown}"
