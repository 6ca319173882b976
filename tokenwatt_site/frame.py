"""What the theme puts around pages that are made later: for all that lie alike it is the same.

So it is rendered once, with signs in the place of title, description, address and content. Before
it is used, a second page is rendered whole and compared; where a theme or another plugin shows more
of a page than these four, they differ, and every page is rendered.
"""

from __future__ import annotations

import html
from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import jinja2

from tokenwatt_site.later import TEMPLATE

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page as MkDocsPage

_WHOLE: Final = "main.html"

_SIGNS: Final = {
    "title": "tw-sign-of-the-title",
    "description": "tw-sign-of-the-description",
    "address": "tw-sign-of-the-address",
    "content": "<h1>tw-sign-of-the-content</h1>",
}


class Frames:
    """The frames of one build."""

    def __init__(self, env: jinja2.Environment) -> None:
        """Render with the templates of `env`, to which TEMPLATE is added."""
        self._env = env
        ours = jinja2.DictLoader({TEMPLATE: "{{ tokenwatt_framed() }}"})
        env.loader = jinja2.ChoiceLoader([ours, *([env.loader] if env.loader else [])])
        self._frames: dict[Hashable, str] = {}
        self._proven: set[Hashable] = set()
        self._differ: set[Hashable] = set()

    def offer(self, context: Any, page: MkDocsPage) -> None:
        """Let TEMPLATE show the page, as it then is."""
        context["tokenwatt_framed"] = partial(self._framed, context, page)

    def _framed(self, context: Any, page: MkDocsPage) -> str:
        values = {
            "title": str(page.meta["title"]),
            "description": str(page.meta["description"]),
            "address": page.canonical_url or "",
            "content": page.content or "",
        }
        key = _alike(context, page)
        # A theme may read entities in a title, and a sign of ours in a value is not one.
        plain = html.unescape(values["title"]) == values["title"] and "<" not in values["title"]
        own = all(sign not in value for sign in _SIGNS.values() for value in values.values())
        if not (plain and own) or key in self._differ:
            return self._rendered(context)
        if key not in self._frames:
            self._frames[key] = self._with_signs(context, page)
            return self._rendered(context)
        filled = self._frames[key]
        for name, sign in _SIGNS.items():
            filled = filled.replace(sign, values[name])
        if key not in self._proven:
            whole = self._rendered(context)
            (self._proven if whole == filled else self._differ).add(key)
            return whole
        return filled

    def _rendered(self, context: Any) -> str:
        return self._env.get_template(_WHOLE).render(context)

    def _with_signs(self, context: Any, page: MkDocsPage) -> str:
        kept = page.meta, page.canonical_url, page.content
        page.meta = {k: v for k, v in page.meta.items() if k != "template"}
        page.meta |= {"title": _SIGNS["title"], "description": _SIGNS["description"]}
        page.canonical_url = page.canonical_url and _SIGNS["address"]
        page.content = _SIGNS["content"]
        try:
            return self._rendered(context)
        finally:
            page.meta, page.canonical_url, page.content = kept


def _alike(context: Any, page: MkDocsPage) -> Hashable:
    toc = tuple((item.url, item.title) for item in page.toc)
    return context["base_url"], toc, page.canonical_url is None, repr(page.meta.get("hide"))
