from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from pydantic import ValidationError

from tests.pages.conftest import HOSTILE
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.pages import dataset
from tokenwatt_site.pages.dataset import Licence, Publisher
from tokenwatt_site.pages.policy import inline_scripts

Configurations = tuple[Configuration, ...]


class Blocks(HTMLParser):
    """The bodies of script elements, as a browser takes them, and all other elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.inside, self.bodies, self.others = False, [""], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.inside = tag == "script"
        if not self.inside:
            self.others.append(tag)

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.bodies[0] += data


def test_a_report_is_a_dataset_with_its_files_numbers_and_licence(
    published: Configurations, publisher: Publisher
) -> None:
    (each,) = [c for c in published if not c.simulated]
    told = dataset.of_report(each, publisher)
    assert told["@type"] == "Dataset"
    assert told["license"] == "https://creativecommons.org/licenses/by/4.0/"
    assert told["url"] == f"https://example.org/bench/reports/{each.id}.html"
    assert told["dateModified"] == "2026-02-01"
    assert all(f["contentUrl"].startswith("https://example.org/") for f in told["distribution"])
    measured = {claim.key: claim.value for claim in each.claims.metrics if claim.value is not None}
    assert {v["propertyID"]: v["value"] for v in told["variableMeasured"]} == measured
    assert all(v["unitText"] for v in told["variableMeasured"])


@pytest.mark.parametrize(
    "title", [HOSTILE, "</SCRIPT ><script>x()</script>", "<!--<script>", "\u2028"]
)
def test_no_title_ends_the_block_and_all_of_it_comes_back(title: str) -> None:
    html = f"<head>{dataset.block({'name': title})}</head>"
    found = Blocks(html)
    assert json.loads(found.bodies[0]) == {"name": title}
    assert found.others == ["head"]
    assert list(inline_scripts(html)) == []


def test_without_licence_and_address_neither_is_made_up(published: Configurations) -> None:
    bare = Publisher("A bench", None, None)
    for told in (dataset.of_report(published[0], bare), dataset.of_site(published, bare)):
        assert "license" not in told
        assert not str(told["url"]).startswith("http")


def test_the_site_is_one_dataset_that_knows_its_newest_change(
    published: Configurations, publisher: Publisher
) -> None:
    assert dataset.of_site(published, publisher)["dateModified"] == "2026-02-01"
    assert "dateModified" not in dataset.of_site([], publisher)


@pytest.mark.parametrize("url", ["javascript:alert(1)", "http://x.org/", "https://a b"])
def test_a_licence_has_an_address_that_a_page_may_carry(url: str) -> None:
    with pytest.raises(ValidationError):
        Licence(name="x", url=url)
