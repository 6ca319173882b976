"""A page as one file that opens from disk: style, charts and script inside, nothing fetched."""

from __future__ import annotations

import base64
import hashlib

from markupsafe import Markup

from tokenwatt_site.pages.drawing import draw
from tokenwatt_site.pages.page import Page, asset, fill, render_template

_SCHEME_SCRIPT = (
    'if(matchMedia("(prefers-color-scheme: dark)").matches)'
    'document.body.dataset.mdColorScheme="slate"'
)


def document(page: Page) -> str:
    """Return the whole HTML document of a page."""
    script = asset("tokenwatt.js")
    policy = "; ".join(
        (
            "default-src 'none'",
            "style-src 'unsafe-inline'",
            f"script-src {script_hash(_SCHEME_SCRIPT)} {script_hash(script)}",
            "base-uri 'none'",
        )
    )
    # S704 four times: our own assets and a page whose renderer escaped all text of a run.
    return render_template(
        "standalone.html.j2",
        page=page,
        policy=policy,
        css=Markup(asset("standalone.css") + asset("tokenwatt.css")),  # noqa: S704
        scheme_script=Markup(_SCHEME_SCRIPT),  # noqa: S704
        script=Markup(script),  # noqa: S704
        body=Markup(fill(page.html, page.charts, draw)),  # noqa: S704
    )


def script_hash(script: str) -> str:
    """The source expression that lets exactly this inline script run (CSP level 2)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
