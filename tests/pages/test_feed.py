from __future__ import annotations

from datetime import datetime
from xml.etree import ElementTree as ET

import pytest

from tests.pages.conftest import HOSTILE
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.pages import feed
from tokenwatt_site.pages.dataset import Publisher

Configurations = tuple[Configuration, ...]
A = f"{{{feed.ATOM}}}"


@pytest.fixture(scope="module")
def feeds(published: Configurations, publisher: Publisher) -> dict[str, str]:
    return made(published, publisher)


def made(published: Configurations, publisher: Publisher) -> dict[str, str]:
    return feed.feeds(published, publisher)


def text(element: ET.Element, name: str) -> str:
    (found,) = element.findall(A + name)
    return found.text or ""


def test_h19_there_is_one_of_all_one_per_engine_and_one_per_accelerator(
    feeds: dict[str, str],
) -> None:
    assert set(feeds) == {"feed.xml", "feeds/engine-toy.xml", "feeds/accelerator-cpu.xml"}


def test_every_feed_and_entry_has_what_atom_asks_for(feeds: dict[str, str]) -> None:
    for content in feeds.values():
        root = ET.fromstring(content)
        assert root.tag == f"{A}feed"
        entries = root.findall(f"{A}entry")
        assert len(entries) == 4
        for each in (root, *entries):
            assert text(each, "id").startswith("tag:example.org,")
            assert text(each, "title")
            assert datetime.fromisoformat(text(each, "updated")).tzinfo is not None
            assert len(each.findall(f"{A}author")) == 1
            links = each.findall(f"{A}link")
            assert all(link.attrib["href"].startswith("https://") for link in links)
            assert [link.attrib["rel"] for link in links].count("alternate") == 1
        ids = [text(each, "id") for each in (root, *entries)]
        assert len(set(ids)) == len(ids)
        updated = [text(each, "updated") for each in entries]
        assert updated == sorted(updated, reverse=True)
        assert text(root, "updated") == updated[0]


def test_a_withdrawal_is_an_entry_and_moves_that_of_its_run(
    feeds: dict[str, str], published: Configurations
) -> None:
    (run,) = [r for c in published for r in c.runs if r.standing.retracted]
    entries = ET.fromstring(feeds["feed.xml"]).findall(f"{A}entry")
    change, own = [each for each in entries if run.run_id in text(each, "id")]
    assert text(change, "title") == "Withdrawn: Toy model on a CPU"
    assert "the driver was another one" in text(change, "summary")
    assert text(own, "title").startswith("[withdrawn] Toy model on a CPU: ")
    assert text(own, "updated") == text(change, "updated") == "2026-02-01T10:00:00Z"
    assert text(own, "published") < text(own, "updated")
    (link,) = own.findall(f"{A}link")
    assert link.attrib["href"] == f"https://example.org/bench/runs/{run.run_id}/"


def test_an_entry_has_the_headline_with_n_and_says_when_it_is_simulated(
    feeds: dict[str, str],
) -> None:
    entries = ET.fromstring(feeds["feed.xml"]).findall(f"{A}entry")
    titles = [text(each, "title") for each in entries if "/statement/" not in text(each, "id")]
    assert all("output tok/s (n = 1, no interval)" in title for title in titles)
    assert [HOSTILE in title for title in titles if title.startswith("[simulated]")] == [True]


def test_the_same_runs_give_the_same_bytes(
    feeds: dict[str, str], published: Configurations, publisher: Publisher
) -> None:
    assert made(published, publisher) == feeds


def test_a_feed_of_nothing_is_valid_and_has_no_time_of_today(publisher: Publisher) -> None:
    (content,) = feed.feeds([], publisher).values()
    assert text(ET.fromstring(content), "updated") == "1970-01-01T00:00:00Z"


def test_without_an_address_there_is_none(published: Configurations) -> None:
    assert made(published, Publisher("A bench", None, None)) == {}
