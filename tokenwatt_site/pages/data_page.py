"""What is published where, under which terms: what of the data page is of this site alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.pages.dataset import NO_LICENCE, Publisher
from tokenwatt_site.pages.page import render_template

HOLE = "<!--tw:data-->"
"""Where it stands in the prose."""

NOT_PUBLISHED = "Not published."


def section(counts: Mapping[str, JsonValue], feeds: Sequence[str], publisher: Publisher) -> str:
    """Return licence, counts, and a link to each kind of file.

    Args:
        counts: those of the index of the API.
        feeds: paths of the feeds; empty where the site has no address.
        publisher: what the site says of itself.
    """
    return render_template(
        "data.html.j2",
        counts=counts,
        feeds=feeds,
        licence=publisher.licence,
        unlicensed=NO_LICENCE,
        address=publisher.address,
    )


def banner(words: str) -> str:
    """Return what stands above everything on a page with a run that is not published."""
    return render_template("banner.html.j2", lead=NOT_PUBLISHED, words=words)
