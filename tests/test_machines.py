"""A whole site as programs meet it, and one with runs that are not published yet."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from mkdocs.config import load_config
from mkdocs.exceptions import Abort, PluginError

from tests.pages.test_report import Parsed
from tests.support.runs import RunBuilder, a_key, keyring_of, small_spec
from tests.support.site import ROOT, build_site, make_project
from tests.support.statements import run_id_of, state
from tests.test_preview import git

SITEMAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"


def with_address(folder: Path) -> None:
    config = folder / "mkdocs.yml"
    told = config.read_text(encoding="utf-8") + "\nsite_url: https://example.org/bench/\n"
    config.write_text(told, encoding="utf-8")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A site of two published runs, one withdrawn, and their ids.

    On no branch are another setup, and a rerun of the first run, which supersedes it.
    """
    folder = tmp_path_factory.mktemp("preview")
    runs = make_project(folder, published_from="main")
    with_address(folder)
    one = RunBuilder(simulated=False).write(runs / "one")
    taken = RunBuilder(spec=small_spec(setup__host_kind="other"), simulated=False, key=a_key(2))
    two = taken.write(runs / "two")
    state(two, "withdrawn", a_key(2))
    keyring_of(folder / "site_src" / "keys", a_key(), a_key(2))
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    new = RunBuilder(spec=small_spec(title="Not yet", setup__host_kind="new"), simulated=False)
    paths = {"one": one, "two": two, "new": new.write(runs / "new")}
    paths["again"] = RunBuilder(simulated=False, day=3).write(runs / "again")
    ids = {name: run_id_of(path) for name, path in paths.items()}
    state(one, "superseded", a_key(), by=ids["again"], reason="a warmer room")
    return build_site(folder), ids


def test_a_run_that_is_not_published_has_pages_with_a_banner_and_nothing_else(
    built: tuple[Path, dict[str, str]],
) -> None:
    site, ids = built
    banner = "<b>Not published.</b> not on main yet; in no feed, no badge, no API and no CSV."
    (report,) = [p for p in (site / "reports").glob("*.html") if banner in p.read_text()]
    for page in (site / "runs" / ids["new"] / "index.html", report):
        html = page.read_text(encoding="utf-8")
        assert "Not yet" in html
        assert banner in html
        assert '<meta name="robots" content="noindex">' in html
        assert "ld+json" not in html
    home = (site / "index.html").read_text(encoding="utf-8")
    assert "<b>Not published.</b> 2 runs here: " in home
    told = [
        site / "ranking.csv",
        *(site / "api").rglob("*.json"),
        *site.rglob("*.xml"),
        *(site / "badges").iterdir(),
    ]
    assert len(told) >= 10
    for path in told:
        text = path.read_text(encoding="utf-8")
        assert ids["new"] not in text, path
        assert ids["again"][:12] not in text, path
        assert report.stem not in text + path.name, path


def test_a_published_report_says_of_each_run_that_is_not_published_that_it_is_not(
    built: tuple[Path, dict[str, str]],
) -> None:
    site, ids = built
    index = json.loads((site / "api/v1/index.json").read_text(encoding="utf-8"))
    (own,) = [each for each in index["results"] if each["run"] == ids["one"]]
    page = (site / own["report"]).read_text(encoding="utf-8")
    tag = '<span class="tw-tag">not published</span>'
    assert f"Not yet</a> {tag}" in page.partition('id="related"')[2]
    assert f"{ids['again'][:12]}</code> {tag}" in page.partition('id="history"')[2]
    assert f"by run {ids['again'][:12]} (not published): a warmer room (not published)" in page
    assert "Not published." not in page
    assert page.count("tw-preview") == 0
    block = page.partition('type="application/ld+json">')[2].partition("</script>")[0]
    assert ids["again"] not in block
    home = (site / "index.html").read_text(encoding="utf-8")
    assert '<span class="tw-tag" title="it is not published yet">not published</span>' in home
    assert "<li>not published: 1</li>" in home


def test_published_runs_have_no_banner_and_are_in_feed_api_and_sitemap(
    built: tuple[Path, dict[str, str]],
) -> None:
    site, ids = built
    index = json.loads((site / "api/v1/index.json").read_text(encoding="utf-8"))
    assert {run["run"]: run["state"] for run in index["runs"]} == {
        ids["one"]: "stands",
        ids["two"]: "withdrawn",
    }
    feed = (site / "feed.xml").read_text(encoding="utf-8")
    dates = {
        url.findtext(f"{SITEMAP}loc"): url.findtext(f"{SITEMAP}lastmod")
        for url in ET.parse(site / "sitemap.xml").getroot()
    }
    for name, day in (("one", "2026-01-01"), ("two", "2026-02-01")):
        page = site / "runs" / ids[name] / "index.html"
        assert "Not published." not in page.read_text(encoding="utf-8")
        assert f"https://example.org/bench/runs/{ids[name]}/" in feed
        assert dates[f"https://example.org/bench/runs/{ids[name]}/index.html"] == day
    for each in index["results"]:
        for link in (each["result"], each["report"], each["badge"]):
            assert (site / link).is_file()
    for link in (each[kind] for each in index["runs"] for kind in ("page", "file")):
        assert (site / link).is_file()


def test_a_report_and_the_data_page_carry_one_block_that_is_json(
    built: tuple[Path, dict[str, str]],
) -> None:
    site, _ = built
    index = json.loads((site / "api/v1/index.json").read_text(encoding="utf-8"))
    for name in ("data.html", *(each["report"] for each in index["results"])):
        html = (site / name).read_text(encoding="utf-8")
        head = html.partition("</head>")[0]
        (block,) = re.findall(r'<script type="application/ld\+json">(.*?)</script>', html)
        assert block in head
        assert json.loads(block)["@type"] == "Dataset"
        (feed,) = [
            a["href"] for t, a in Parsed(head).tags if a.get("type") == "application/atom+xml"
        ]
        assert ((site / name).parent / str(feed)).resolve() == (site / "feed.xml").resolve()
    data = Parsed((site / "data.html").read_text(encoding="utf-8")).text
    assert "No licence stated: ask the publisher" in data
    assert "feeds/engine-toy.xml" in data


def test_two_builds_of_one_input_are_the_same_for_programs(
    built: tuple[Path, dict[str, str]],
) -> None:
    site, _ = built
    files = [*(site / "api").rglob("*.json"), *(site / "badges").iterdir()]
    files += [site / "feed.xml", *(site / "feeds").iterdir()]
    before = {path: path.read_bytes() for path in files}
    build_site(site.parent)
    assert {path: path.read_bytes() for path in files} == before


def test_without_an_address_there_is_no_feed_and_the_data_page_says_why(tmp_path: Path) -> None:
    make_project(tmp_path, data_licence="{name: ODbL, url: 'https://example.org/odbl'}")
    site = build_site(tmp_path)
    assert not (site / "feed.xml").exists()
    html = (site / "data.html").read_text(encoding="utf-8")
    assert "this site does not say at which address it is" in html
    assert '<a href="https://example.org/odbl" rel="license noopener">ODbL</a>' in html


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("published_from", "nowhere", "published_from"),
        ("published_from", "[1]", "published_from"),
        ("data_licence", "{name: CC}", "data_licence: url: is missing"),
        ("data_licence", "{name: CC, url: 'javascript:x()'}", "data_licence: url: is not valid"),
    ],
)
def test_an_option_that_cannot_be_is_told_by_name(
    tmp_path: Path, option: str, value: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_project(tmp_path, **{option: value})
    with caplog.at_level(logging.ERROR), pytest.raises((Abort, PluginError)) as caught:
        build_site(tmp_path)
    assert words in caplog.text + str(caught.value)


def test_our_own_site_states_its_licence_and_how_to_quote_the_software() -> None:
    config = load_config(str(ROOT / "mkdocs.yml"))
    licence = config.plugins["tokenwatt"].config["data_licence"]
    assert licence["name"] == "CC BY 4.0"
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cff)
    assert cff["license"] == "Apache-2.0"
