"""Tests of frame: what is shown is what the theme would have rendered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jinja2
import pytest

from tokenwatt_site.frame import Frames
from tokenwatt_site.later import TEMPLATE

PLAIN = "<title>{{ page.meta.title }}</title>{{ page.canonical_url }}{{ page.content }}"


def shown(theme: str, titles: list[str]) -> tuple[list[str], int]:
    """Return the pages of so many titles, and how often the theme was rendered."""
    times: list[int] = []
    env = jinja2.Environment(loader=jinja2.DictLoader({"main.html": "{{ count() }}" + theme}))  # noqa: S701
    frames, pages = Frames(env), []
    for number, title in enumerate(titles):
        page: Any = SimpleNamespace(
            meta={"title": title, "description": ""},
            canonical_url="https://x.example/",
            content=f"<h1>{number}</h1>",
            toc=[],
            url=str(number),
        )
        context = {"page": page, "base_url": "..", "count": lambda: times.append(1) or ""}
        frames.offer(context, page)
        pages.append(env.get_template(TEMPLATE).render(context))
    return pages, len(times)


@pytest.mark.parametrize("theme", [PLAIN, PLAIN + "{{ page.url }}"], ids=["plain", "with more"])
def test_each_page_is_as_the_theme_renders_it(theme: str) -> None:
    titles = ["a", "b", "c", "d &lt; e", "tw-sign-of-the-title"]
    pages, times = shown(theme, titles)
    for number, (title, page) in enumerate(zip(titles, pages, strict=True)):
        more = str(number) if theme != PLAIN else ""
        assert page == f"<title>{title}</title>https://x.example/<h1>{number}</h1>{more}"
    # One with signs and two to compare, and those whose titles are not plain.
    assert times == 3 + 2 + (theme != PLAIN)
