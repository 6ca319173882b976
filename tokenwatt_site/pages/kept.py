"""Finished pages that an earlier build made, so that a rebuild makes only those that changed.

A page follows from what its renderer is given and from our own code. So it is kept, its charts
drawn, under the digest of both; runs count by their own digests and by how they stand.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from tokenwatt_site.cache import CODE, Cache, code_digest
from tokenwatt_site.canonical import JsonValue, sha256_hex
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.lineage import Kin
from tokenwatt_site.mixes import Mixes
from tokenwatt_site.pages.drawing import draw
from tokenwatt_site.pages.page import Page, fill
from tokenwatt_site.trust.verify import ValidatedRun

T = TypeVar("T")

_TEMPLATES: Final = CODE | {".j2"}
_RENDERS: Final = (
    *("altair", "jinja2", "markupsafe", "numba", "numpy", "pydantic", "vl-convert-python"),
)


class KeptPages:
    """Pages with their charts in them, and other texts of which there is one for each page."""

    def __init__(self, folder: Path) -> None:
        """Keep them in `folder`, which is made with the first of them."""
        self._folder = folder
        self._cache = Cache(folder, "page")
        self._told: dict[int, tuple[object, str]] = {}

    def get(self, render: Callable[..., Page], *given: object) -> Page:
        """Return what `render(*given)` does, its charts drawn.

        Args:
            render: a function of a module, which looks at nothing but what it is given.
            given: for it; what tells two of them apart is in their `repr`.
        """

        def finished() -> str:
            page = render(*given)
            html = fill(page.html, page.charts, lambda chart: draw(chart, self._folder))
            # As it is: to quote and unquote so many quotation marks takes as long as all the rest.
            return f"{json.dumps([page.title, page.description, page.toc])}\n{html}"

        head, _, html = self._kept(finished, render, given).partition("\n")
        title, description, toc = json.loads(head)
        contents = tuple((anchor, words) for anchor, words in toc)
        return Page(title, description, contents, html, charts=())

    def text(self, render: Callable[..., str], *given: object) -> str:
        """Return what `render(*given)` does, as `get` does for a page."""
        return self._kept(lambda: render(*given), render, given)

    def _kept(self, make: Callable[[], str], render: Callable[..., object], given: object) -> str:
        code = code_digest(_TEMPLATES, _RENDERS)
        told = [code, render.__module__, render.__qualname__, self._seen(given)]
        key = sha256_hex(json.dumps(told).encode())
        if (entry := self._cache.find(key)) is not None:
            return zlib.decompress(entry).decode()
        made = make()
        self._cache.keep(key, zlib.compress(made.encode(), 3))
        return made

    def drop_unused(self) -> None:
        """Remove what nobody asked for."""
        self._cache.drop_unused()

    def _seen(self, value: object) -> JsonValue:
        """Return what a page can show of a value."""
        match value:
            case Configuration():
                return self._once(value, self._of_configuration)
            case ValidatedRun():
                return self._once(value, _of_run)
            case Kin():
                alike = [[each.field, each.count, self._seen(each.nearest)] for each in value.alike]
                return [alike, self._seen(value.versions), value.earlier, value.later]
            case Mapping():
                return [[self._seen(key), self._seen(item)] for key, item in value.items()]
            case Mixes(configurations=items) | (tuple() as items) | (list() as items):
                return [self._seen(item) for item in items]
            case _:
                return repr(value)

    def _of_configuration(self, value: Configuration) -> JsonValue:
        runs, reference = self._seen(value.runs), self._seen(value.reference)
        apart = [repr(value.exclusions), sorted(value.unpublished)]
        return [value.id, value.title, runs, reference, apart]

    def _once(self, value: T, told: Callable[[T], JsonValue]) -> str:
        """Return the digest of what is told of a value, which many pages are given."""
        known = self._told.get(id(value))
        if known is None:
            # Held with it, so that no other value has its id.
            known = value, sha256_hex(json.dumps(told(value)).encode())
            self._told[id(value)] = known
        return known[1]


def _of_run(value: ValidatedRun) -> JsonValue:
    # The run itself, its evidence too, is what its digest is of.
    standing, promised = repr(value.standing), repr(value.promised)
    return [value.run_id, str(value.path), value.level, value.keyid, standing, promised]
