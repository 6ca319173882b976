"""A page as one file that opens from disk: style, charts and script inside, nothing fetched."""

from __future__ import annotations

import re

from markupsafe import Markup

from tokenwatt_site.pages.drawing import draw
from tokenwatt_site.pages.page import Page, asset, fill, render_template
from tokenwatt_site.pages.policy import ALONE, policy

_SCHEME_SCRIPT = (
    'if(matchMedia("(prefers-color-scheme: dark)").matches)'
    'document.body.dataset.mdColorScheme="slate"'
)


def document(page: Page) -> str:
    """Return the whole HTML document of a page."""
    script = asset("tokenwatt.js")
    # S704 four times: our own assets and a page whose renderer escaped all text of a run.
    return render_template(
        "standalone.html.j2",
        page=page,
        policy=policy(ALONE, (_SCHEME_SCRIPT, script), own_files=False),
        css=Markup(_short(asset("standalone.css") + asset("tokenwatt.css"))),  # noqa: S704
        scheme_script=Markup(_SCHEME_SCRIPT),  # noqa: S704
        script=Markup(script),  # noqa: S704
        body=Markup(fill(page.html, page.charts, draw)),  # noqa: S704
    )


def _short(css: str) -> str:
    """Leave out comments and blanks that mean nothing: the style is a quarter of the file."""
    return re.sub(r"\s*([{};])\s*", r"\1", re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL))
