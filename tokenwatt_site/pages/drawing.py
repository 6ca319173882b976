"""Drawing: from a chart's Vega-Lite documents to static SVG that follows the colours of the page.

vl-convert draws once at build time. The result is rewritten so that colours are classes (light and
dark come from the style sheet), ids are unique on the page, and a screen reader meets one image
with a title and a description.
"""

from __future__ import annotations

import html
import json
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import vl_convert

from tokenwatt_site.canonical import canonical_bytes, sha256_hex
from tokenwatt_site.files import put
from tokenwatt_site.pages.svg import shorten

# Part of the cache key: raise it when the rewriting below changes.
_REWRITING = "5"

BLUE = "#0b5fa5"
BLUE_SOFT = "#cfe2f4"
ORANGE = "#b54708"
INK = "#1a1f26"
INK_2 = "#55606d"
RULE = "#dfe3e8"
RULE_STRONG = "#84909d"
WINDOW = "#e9eef4"
BACKGROUND = "#fefefe"

_CLASSES = {
    BLUE: "blue",
    BLUE_SOFT: "soft",
    ORANGE: "orange",
    INK: "ink",
    INK_2: "ink2",
    RULE: "rule",
    RULE_STRONG: "strong",
    WINDOW: "window",
    BACKGROUND: "bg",
}
"""Colour given to Vega -> suffix of the class that replaces it (`tw-f-` fill, `tw-s-` stroke)."""

_NAMESPACE = "{http://www.w3.org/2000/svg}"
"""Not written: a page of HTML knows the elements of SVG."""


@dataclass(frozen=True, slots=True)
class Chart:
    """`specs` holds one Vega-Lite document per width: wide and narrow, or a single one.

    Of a chart in panels it holds one for each, of which `panels` has (name, what it shows).
    """

    id: str
    title: str
    description: str
    specs: tuple[Mapping[str, Any], ...]
    panels: tuple[tuple[str, str], ...] = ()


MOST_HALVES = 4
"""Of so many panels each takes half of the page; of more a quarter."""


def draw(chart: Chart, folder: Path | None = None) -> str:
    """Return the SVG markup of a chart: one `<svg>`, a wide and a narrow one, or one per panel.

    Args:
        chart: what to draw.
        folder: where results lie under the digest of all that they depend on; None
            draws anew.
    """
    if chart.panels:
        return _draw_panels(chart, folder)
    kinds = ("wide", "narrow") if len(chart.specs) == 2 else ("only",)
    return "".join(
        _draw_one(chart, spec, kind, folder) for kind, spec in zip(kinds, chart.specs, strict=True)
    )


def _draw_panels(chart: Chart, folder: Path | None) -> str:
    """Draw each panel once; the style sheet places them in the width that there is."""
    panels = enumerate(zip(chart.panels, chart.specs, strict=True))
    drawn = "".join(
        _draw_one(Chart(f"{chart.id}-{number}", name, shows, (spec,)), spec, "only", folder)
        for number, ((name, shows), spec) in panels
    )
    size = "" if len(chart.panels) <= MOST_HALVES else " tw-panels--small"
    said = html.escape(f"{chart.title}. {chart.description}", quote=True)
    return f'<div class="tw-panels{size}" role="group" aria-label="{said}">{drawn}</div>'


def _draw_one(chart: Chart, spec: Mapping[str, Any], kind: str, folder: Path | None) -> str:
    key = sha256_hex(
        canonical_bytes([_REWRITING, _converter(), chart.id, chart.title, chart.description, kind])
        + json.dumps(spec, sort_keys=True).encode()
    )
    entry = folder / f"{key}.svg" if folder else None
    if entry and entry.is_file():
        return entry.read_text(encoding="utf-8")
    svg = rewrite(_to_svg(spec), chart, kind)
    if entry:
        entry.parent.mkdir(parents=True, exist_ok=True)
        put(entry, svg.encode())
    return svg


def _to_svg(spec: Mapping[str, Any]) -> str:
    rows, values = (spec.get(name, empty) for name, empty in (("datasets", {}), ("params", [])))
    form = {**spec, "params": [{"name": param["name"], "value": 0} for param in values]}
    form.pop("datasets", None)
    compiled = _compiled(json.dumps(form))
    told = {param["name"]: param["value"] for param in values}
    filled = {
        **compiled,
        "data": [_with(source, "values", rows) for source in compiled.get("data", [])],
        "signals": [_with(signal, "value", told) for signal in compiled.get("signals", [])],
    }
    drawn: str = vl_convert.vega_to_svg(json.dumps(filled))
    return drawn


def _with(named: Mapping[str, Any], key: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**named, key: values[named["name"]]} if named["name"] in values else named


@lru_cache(maxsize=256)
def _compiled(form: str) -> Mapping[str, Any]:
    """Compile to Vega what many charts have in common: all but rows and spans.

    A report has few forms that none before it had.
    """
    vega: Mapping[str, Any] = vl_convert.vegalite_to_vega(form)
    return vega


def rewrite(svg: str, chart: Chart, kind: str) -> str:
    """Make Vega's SVG part of a page: classes for colours, own ids, title and description."""
    root = ET.fromstring(svg)  # noqa: S314  # vl-convert wrote it in this process
    prefix = f"tw-{chart.id}-{kind}"
    for element in root.iter():
        element.tag = element.tag.removeprefix(_NAMESPACE)
    _drop_background(root)
    for element in root.iter():
        _colour(element)
        _own_ids(element, prefix)
    shorten(root, prefix)
    for name in ("width", "height", "style", "class", "version"):
        root.attrib.pop(name, None)
    root.set("class", f"tw-svg tw-{kind}")
    root.set("role", "img")
    root.set("aria-labelledby", f"{prefix}-t")
    root.set("aria-describedby", f"{prefix}-d")
    title = ET.Element("title", {"id": f"{prefix}-t"})
    title.text = chart.title
    described = ET.Element("desc", {"id": f"{prefix}-d"})
    described.text = chart.description
    root.insert(0, title)
    root.insert(1, described)
    return ET.tostring(root, encoding="unicode").replace(" />", "/>")


@cache
def _converter() -> str:
    return version("vl-convert-python")


def _drop_background(root: ET.Element) -> None:
    # The page shows through: Vega's background rectangles would stay white in the dark.
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == "path" and child.get("class") == "background":
                parent.remove(child)


def _own_ids(element: ET.Element, prefix: str) -> None:
    for name, value in list(element.attrib.items()):
        if name.startswith("aria-") or name in {"role", "font-family", "pointer-events"}:
            del element.attrib[name]
        elif name == "id":
            element.set(name, f"{prefix}-{value}")
        elif value.startswith("url(#"):
            element.set(name, f"url(#{prefix}-{value[5:]}")


def _colour(element: ET.Element) -> None:
    classes = []
    for name, letter in (("fill", "f"), ("stroke", "s")):
        colour = element.get(name)
        if colour in _CLASSES:
            del element.attrib[name]
            classes.append(f"tw-{letter}-{_CLASSES[colour]}")
    # Vega's own class names (mark-rule role-mark) mean nothing here.
    element.attrib.pop("class", None)
    if classes:
        element.set("class", " ".join(classes))
