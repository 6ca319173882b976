"""A page before it is placed: finished HTML with a hole for each chart. Knows no MkDocs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

import jinja2
from markupsafe import Markup

from tokenwatt_site.pages.drawing import Chart


@dataclass(frozen=True, slots=True)
class Page:
    """What a renderer returns.

    `title` and `description` are plain text, not escaped. `html` is finished and safe; each of
    `charts` has one hole in it, which `fill` closes. `toc` lists (anchor, words) in page order.
    """

    title: str
    description: str
    toc: tuple[tuple[str, str], ...]
    html: str
    charts: tuple[Chart, ...]


@dataclass(frozen=True, slots=True)
class Links:
    """Where a page finds its neighbours, as URLs relative to itself; None where there are none.

    `runs` maps a run id to the URL of the folder that holds its `run.json` and its evidence.
    `address` is the page's own on the web, where the site says what that is.
    `verify` is the page on which a run is checked, and `assets` the folder of its scripts.
    `compare` is the page on which configurations are compared, and `reports` maps the ids of those
    that the page names to their pages.
    """

    home: str | None
    glossary: str | None
    method: str | None
    runs: dict[str, str]
    address: str | None = None
    verify: str | None = None
    assets: str | None = None
    compare: str | None = None
    reports: dict[str, str] = field(default_factory=dict)


NO_LINKS = Links(home=None, glossary=None, method=None, runs={})


def hole(chart_id: str) -> str:
    """The comment that stands where a chart will be."""
    return f"<!--tw:{chart_id}-->"


def fill(html: str, charts: tuple[Chart, ...], draw: Callable[[Chart], str]) -> str:
    """Put each chart into its hole. `draw` turns a chart into SVG markup."""
    for chart in charts:
        html = html.replace(hole(chart.id), draw(chart), 1)
    return html


def render_template(name: str, **values: object) -> str:
    """Render a template of this package; everything that is not Markup is escaped."""
    return _environment().get_template(name).render(**values)


def asset(name: str) -> str:
    """Return the text of a file in `assets/`."""
    return files("tokenwatt_site.pages").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tokenwatt_site.pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
    )
    # S704: a constant comment around an id that this package chose.
    environment.filters["hole"] = lambda chart: Markup(hole(chart.id))  # noqa: S704
    return environment
