"""The page for an address that leads nowhere: it searches the ids of runs and configurations."""

from __future__ import annotations

from tokenwatt_site.pages.page import render_template

SCRIPT = "not-found.js"
HOLE = "<h1>404 - Not found</h1>"
"""What stands on the theme's own page, which knows nothing of runs."""


def html(root: str) -> str:
    """Return what stands in HOLE's place.

    Args:
        root: where the site begins, as a path on its server: the page is shown at any depth.
    """
    return render_template("not_found.html.j2", root=root if root.endswith("/") else f"{root}/")
