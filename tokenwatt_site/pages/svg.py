"""SVG made shorter: what it draws stays the same, to a tenth of a pixel.

Vega writes each mark with its whole outline, and each piece in three groups that say nothing. A
report has some twenty drawings, so that this is half of its page.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from itertools import pairwise

_DEFAULTS = {
    "opacity": "1",
    "stroke-width": "1",
    "font-weight": "normal",
    "text-anchor": "start",
    "transform": "translate(0,0)",
    "x2": "0",
    "y2": "0",
}
"""What an attribute means where it is left out."""

_GIVEN = {"font-size": "12px"}
"""What the style sheet gives every drawing."""

_NUMBER = re.compile(r"-?\d+\.\d+")
_MOVED = re.compile(r"translate\((-?[\d.]+),(-?[\d.]+)\)")
_LINES = re.compile(r"M[\d.-]+,[\d.-]+(?:L[\d.-]+,[\d.-]+)+")

_INHERITED = ("class", "stroke-width", "stroke-dasharray", "font-size", "text-anchor")
"""What parts take over from the group that they are in."""

_FEWEST = 3
"""Of fewer, what they share takes more room than it saves."""


def shorten(root: ET.Element, prefix: str) -> None:
    """Shorten a drawing.

    Args:
        root: its `<svg>`, without the namespace in its tags.
        prefix: what the ids of new elements begin with.
    """
    for element in root.iter():
        _without_noise(element)
    _without_empty_groups(root)
    _share(root)
    for number, group in enumerate(list(root.iter("g"))):
        _join_lines(group)
        _join_marks(group, f"{prefix}-{number}")


def _without_noise(element: ET.Element) -> None:
    for name in ("transform", "d"):
        if (value := element.get(name)) is not None:
            element.set(name, _NUMBER.sub(lambda m: _short(float(m[0])), value))
    if _LINES.fullmatch(found := element.get("d", "")):
        element.set("d", _steps(found))
    for name, meaning in (_DEFAULTS | _GIVEN).items():
        if element.get(name) == meaning and (name != "text-anchor" or element.tag == "text"):
            del element.attrib[name]
    moved = _MOVED.fullmatch(element.get("transform", ""))
    if moved is not None and element.tag == "text" and len(element) == 0:
        del element.attrib["transform"]
        element.attrib.update((k, v) for k, v in zip("xy", moved.groups(), strict=True) if v != "0")
    for child in list(element):
        if child.get("d") == "" and child.get("display") == "none":
            element.remove(child)


def _short(value: float) -> str:
    told = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if told == "-0" else told


def _steps(path: str) -> str:
    """Write a line by the steps between its points, in tenths of a pixel; none adds to another."""
    points = [
        tuple(round(10 * float(number)) for number in point.split(","))
        for point in path[1:].split("L")
    ]
    written, last = [f"M{_tenths(points[0][0])},{_tenths(points[0][1])}"], ""
    for (x0, y0), (x, y) in pairwise(points):
        dx, dy = x - x0, y - y0
        if not dx and not dy:
            continue
        way = "l" if dx and dy else "h" if dx else "v"
        # A command that goes on needs no letter.
        written.append(_joined(_tenths(dx or dy)) if way == last else way + _tenths(dx or dy))
        written.append(_joined(_tenths(dy)) if way == "l" else "")
        last = way
    return "".join(written)


def _joined(number: str) -> str:
    """A minus parts two numbers as a space does."""
    return number if number.startswith("-") else f" {number}"


def _tenths(value: int) -> str:
    return f"{value / 10:g}".replace("0.", ".") if abs(value) < 10 else f"{value / 10:g}"


def _without_empty_groups(parent: ET.Element) -> None:
    """Put what is in a group that says nothing in its place."""
    for child in list(parent):
        _without_empty_groups(child)
        if child.tag == "g" and not child.attrib:
            at = list(parent).index(child)
            parent[at : at + 1] = list(child)


def _share(element: ET.Element) -> None:
    """Say once, in their group, what all its parts say."""
    children = list(element)
    for child in children:
        _share(child)
    if element.tag != "g" or len(children) < 2:
        return
    for name in _INHERITED:
        values = {child.get(name) for child in children}
        if len(values) == 1 and None not in values and element.get(name) is None:
            element.set(name, values.pop() or "")
            for child in children:
                del child.attrib[name]


def _join_lines(group: ET.Element) -> None:
    """Draw lines that differ in their place alone, one after another, as one path."""
    for run in _runs(group, "line", frozenset({"transform", "x2", "y2"})):
        parts = []
        for line in run:
            x, y = _place(line)
            dx, dy = line.get("x2", "0"), line.get("y2", "0")
            way = f"h{dx}" if dy == "0" else f"v{dy}" if dx == "0" else f"l{dx},{dy}"
            parts.append(f"M{x},{y}{way}")
        _replace(group, run, [ET.Element("path", _rest(run[0]) | {"d": "".join(parts)})])


def _join_marks(group: ET.Element, prefix: str) -> None:
    """Draw marks of one shape as one line that has the shape at each of its points."""
    for number, run in enumerate(_runs(group, "path", frozenset({"transform"}))):
        mark = f"{prefix}-{number}"
        marker = ET.Element("marker", {"id": mark, "markerUnits": "userSpaceOnUse"})
        marker.set("overflow", "visible")
        marker.append(ET.Element("path", _rest(run[0])))
        points = "L".join(",".join(_place(path)) for path in run)
        unseen = {"fill": "none", "stroke": "none", "style": f"marker:url(#{mark})"}
        _replace(group, run, [marker, ET.Element("path", {"d": f"M{points}"} | unseen)])


def _runs(group: ET.Element, tag: str, own: frozenset[str]) -> list[list[ET.Element]]:
    """Return neighbours with this tag that are alike but for some attributes, and only moved."""
    runs: list[list[ET.Element]] = [[]]
    for child in group:
        fits = child.tag == tag and len(child) == 0 and _MOVED.fullmatch(_transform(child))
        if not fits or (runs[-1] and _apart(runs[-1][0], own) != _apart(child, own)):
            runs.append([])
        if fits:
            runs[-1].append(child)
    return [run for run in runs if len(run) >= _FEWEST]


def _apart(element: ET.Element, own: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in element.attrib.items() if name not in own}


def _rest(element: ET.Element) -> dict[str, str]:
    return _apart(element, frozenset({"transform", "x2", "y2"}))


def _transform(element: ET.Element) -> str:
    return element.get("transform", "translate(0,0)")


def _place(element: ET.Element) -> Sequence[str]:
    moved = _MOVED.fullmatch(_transform(element))
    assert moved is not None  # noqa: S101  # those of `_runs` have a place
    return moved.groups()


def _replace(group: ET.Element, run: Sequence[ET.Element], made: Sequence[ET.Element]) -> None:
    at = list(group).index(run[0])
    group[at : at + len(run)] = list(made)
