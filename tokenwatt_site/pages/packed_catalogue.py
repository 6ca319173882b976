"""The catalogue as a script, packed: ten thousand rows are to be there at once.

Each field is a column, a text stands once and is named by its number, a column in which all rows
are equal is one value, an address has * where the row's id stands, and a number has only the digits
that any page shows.
`assets/catalogue-reader.js` unpacks it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.pages import text

DATA, READER = "catalogue.js", "catalogue-reader.js"
"""Names of the two scripts, in the order in which a page needs them."""

_PLAIN = ("id", "title", "section", "rank", "n", "cards")
_FLAGS = ("tied", "simulated", "retracted")
_TEXTS = ("under", "mode", "measured", "key_state")
_NAMED = ("schema", "columns", "facets", "sections")


def script(catalogue: Mapping[str, JsonValue]) -> str:
    """Return the script. A script, because a page opened from disk may fetch nothing."""
    return f"globalThis.TokenwattCatalogueData = {_literal(_packed(catalogue))};\n"


def _literal(value: JsonValue) -> str:
    """Write JSON as a string to be parsed, which is faster than a literal, in ASCII.

    Nothing in it could end a script element.
    """
    written = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return f"JSON.parse({json.dumps(written)})".replace("<", "\\u003c")


class _Texts:
    """Numbers texts in the order in which they are first seen."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, words: str | None) -> int | None:
        return None if words is None else self._numbers.setdefault(words, len(self._numbers))

    @property
    def in_order(self) -> list[str]:
        return list(self._numbers)


def _packed(catalogue: Mapping[str, Any]) -> dict[str, Any]:
    rows, texts = catalogue["rows"], _Texts()
    fields: dict[str, Any] = {name: _same([row[name] for row in rows]) for name in _PLAIN}
    fields["url"] = _same([row["url"].replace(row["id"], "*") for row in rows])
    fields |= {name: _same([int(row[name]) for row in rows]) for name in _FLAGS}
    fields |= {name: _same([texts(row[name]) for row in rows]) for name in _TEXTS}
    fields["excluded"] = _same([[list(map(texts, why)) for why in r["excluded"]] for r in rows])
    values = {
        facet["key"]: _same([_numbered(texts, row["facets"][facet["key"]]) for row in rows])
        for facet in catalogue["facets"]
    }
    cells = {
        column["key"]: _cells(texts, column["digits"], [r["cells"][column["key"]] for r in rows])
        for column in catalogue["columns"]
    }
    kept = {name: catalogue[name] for name in _NAMED}
    packed = {"count": len(rows), "rows": fields, "values": values, "cells": cells}
    return kept | packed | {"texts": texts.in_order}


def _numbered(texts: _Texts, value: str | list[str]) -> int | list[int | None] | None:
    return texts(value) if isinstance(value, str) else [texts(each) for each in value]


def _cells(texts: _Texts, decimals: int, cells: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    cells = list(cells)
    packed: dict[str, Any] = {
        name: _same([_short(cell[name], decimals) for cell in cells])
        for name in ("value", "low", "high")
    }
    packed["n"] = _same([cell["n"] for cell in cells])
    packed["reason"] = _same([texts(cell["reason"]) for cell in cells])
    return packed


def _same(column: list[Any]) -> Any:
    """Return the column, or {"all": value} where every row has the same."""
    if column and all(value == column[0] for value in column):
        return {"all": column[0]}
    return column


def _short(value: float | None, decimals: int) -> float | None:
    """Leave out digits, unless it would then be shown as another number."""
    if value is None:
        return None
    short = float(f"{value:.6g}")
    same = text.rounded(short, decimals) == text.rounded(value, decimals)
    return short if same else value
