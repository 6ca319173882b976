"""Tests of pages.kept: a page is made again exactly when what it shows may have changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import RunBuilder, a_key, keyring_of, small_spec
from tokenwatt_site.configuration import Configuration, group
from tokenwatt_site.lineage import Alike, Kin
from tokenwatt_site.pages import kept as kept_module
from tokenwatt_site.pages.drawing import Chart
from tokenwatt_site.pages.kept import KeptPages
from tokenwatt_site.pages.page import NO_LINKS, Page, hole
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import read_tree

MADE: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    MADE.clear()


def a_page(configuration: Configuration, *_: Any) -> Page:
    MADE.append(configuration.id)
    chart = Chart("c", "Title", "Words", ({"mark": "bar", "data": {"values": [{"a": 1}]}},))
    return Page("<Ti>", "De", (("a", "A"),), f"<h1>x</h1>{hole('c')}", (chart,))


def another_page(configuration: Configuration, *_: Any) -> Page:
    return a_page(configuration)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    RunBuilder().write(tmp_path / "runs" / "one")
    return tmp_path / "runs"


def only(runs: Path, keyring: Keyring | None = None) -> Configuration:
    [configuration] = group(read_tree(runs, keyring or Keyring()).valid)
    return configuration


def test_a_page_that_was_made_is_not_made_again_and_has_its_charts(
    runs: Path, tmp_path: Path
) -> None:
    first = KeptPages(tmp_path / "cache").get(a_page, only(runs), NO_LINKS)
    again = KeptPages(tmp_path / "cache").get(a_page, only(runs), NO_LINKS)
    assert first == again
    assert len(MADE) == 1
    assert (again.title, again.description, again.toc) == ("<Ti>", "De", (("a", "A"),))
    assert (again.charts, hole("c") in again.html, "<svg" in again.html) == ((), False, True)


CHANGES: dict[str, Callable[[Configuration], tuple[Any, ...]]] = {
    "another renderer": lambda c: (another_page, c, NO_LINKS),
    "another argument": lambda c: (a_page, c, NO_LINKS, "more"),
    "other links": lambda c: (a_page, c, replace(NO_LINKS, home="../")),
    "another title": lambda c: (a_page, replace(c, title="Another"), NO_LINKS),
    "other exclusions": lambda c: (a_page, replace(c, exclusions=()), NO_LINKS),
    "a reference": lambda c: (a_page, replace(c, reference=c.headline), NO_LINKS),
    "one run more": lambda c: (a_page, replace(c, runs=(*c.runs, c.headline)), NO_LINKS),
    "a neighbour": lambda c: (a_page, c, NO_LINKS, [replace(c, id="another")]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_page_that_is_given_something_else_is_made(
    runs: Path, tmp_path: Path, change: Callable[[Configuration], tuple[Any, ...]]
) -> None:
    configuration = only(runs)
    pages = KeptPages(tmp_path / "cache")
    pages.get(a_page, configuration, NO_LINKS)
    pages.get(*change(configuration))
    assert len(MADE) == 2


def test_a_page_is_made_anew_when_its_runs_stand_otherwise(runs: Path, tmp_path: Path) -> None:
    pages = KeptPages(tmp_path / "cache")
    pages.get(a_page, only(runs), NO_LINKS)
    pages.get(a_page, only(runs, keyring_of(tmp_path / "keys", a_key())), NO_LINKS)
    assert len(MADE) == 2


def test_other_code_makes_every_page(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KeptPages(tmp_path / "cache").get(a_page, only(runs), NO_LINKS)
    monkeypatch.setattr(kept_module, "code_digest", lambda *_: "0" * 64)
    KeptPages(tmp_path / "cache").get(a_page, only(runs), NO_LINKS)
    assert len(MADE) == 2


def test_pages_that_nobody_asked_for_are_dropped(runs: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    KeptPages(cache).get(a_page, only(runs), NO_LINKS)
    pages = KeptPages(cache)
    pages.get(another_page, only(runs), NO_LINKS)
    pages.drop_unused()
    assert len(list(cache.glob("*.page"))) == 1
    pages.get(a_page, only(runs), NO_LINKS)
    assert len(MADE) == 3


def test_what_a_run_holds_is_told_apart_by_its_digest(tmp_path: Path) -> None:
    pages = KeptPages(tmp_path / "cache")
    for number in (1, 2):
        spec = small_spec(note=f"note {number}")
        RunBuilder(spec=spec).write(tmp_path / f"runs-{number}" / "one")
        pages.get(a_page, only(tmp_path / f"runs-{number}"), NO_LINKS)
    assert len(MADE) == 2


def test_a_page_is_made_again_when_what_it_stands_next_to_has_changed(
    runs: Path, tmp_path: Path
) -> None:
    kept, own = KeptPages(tmp_path / "cache"), only(runs)
    ones, others = (replace(own, id="b"),), (replace(own, id="c"),)
    for kin in (
        Kin((Alike("driver", ones, 1),)),
        Kin((Alike("driver", ones, 1),)),
        Kin((Alike("driver", ones, 2),)),
        Kin((Alike("driver", others, 1),)),
        Kin((), (own, *ones)),
        Kin((), (own, *ones), later=1),
    ):
        kept.get(a_page, own, NO_LINKS, kin)
    assert len(MADE) == 5
