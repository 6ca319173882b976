"""Tests of pages.listing: lists say the same of what was kept as of what is at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenwatt_site.cache import Cache
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.leaderboard import rank
from tokenwatt_site.pages import api, feed
from tokenwatt_site.pages.catalogue import catalogue
from tokenwatt_site.pages.dataset import Publisher
from tokenwatt_site.pages.kept import KeptPages
from tokenwatt_site.pages.listing import Listing

Configurations = tuple[Configuration, ...]


@pytest.fixture
def found(published: Configurations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Listing:
    """What a build finds that an earlier one made: nothing is made in it."""
    Listing(published, KeptPages(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(Cache, "keep", None)
        return Listing(published, KeptPages(tmp_path))


def test_lists_of_what_was_kept_are_those_of_the_runs(
    found: Listing, published: Configurations, publisher: Publisher
) -> None:
    board, known = rank(published), {each.id: each for each in published}
    urls = {each: f"reports/{each}.html" for each in known}
    assert rank(published, found.cells) == board
    assert catalogue(board, known, urls, found.row) == catalogue(board, known, urls)
    given = (published, board, [], publisher)
    assert api.index(*given, found.runs) == api.index(*given)
    assert feed.feeds(published, publisher, found.entries) == feed.feeds(published, publisher)
