"""What strangers write: no page, file or build may take any of it for more than words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.pages.test_report import Parsed
from tests.support.hostile import (
    FILE_NAME,
    HARMLESS,
    HOSTILE,
    labelled_project,
    labelled_record,
    labelled_run,
)
from tests.support.runs import small_spec
from tests.support.site import build_site
from tests.trust.test_verify import NO_KEYS, record, write
from tokenwatt_site.commands.report import report
from tokenwatt_site.errors import InputError, SpecError
from tokenwatt_site.pages.ranking_csv import NAME
from tokenwatt_site.trust.verify import load_claims_only, read_tree

LIVE = re.compile(r"on.*|(xlink:)?href|src|style")
"""Attributes of a drawing that do something; the others follow from the length of words in it."""


class Structure(HTMLParser):
    """The elements of a page with the names of their attributes, in drawings those in LIVE."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, ...]] = []
        self.links: list[str] = []
        self.drawings = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.drawings += tag == "svg"
        names = (name for name, _ in attrs if not self.drawings or LIVE.fullmatch(name))
        self.elements.append((tag, *names))
        self.links += [value or "" for name, value in attrs if name in {"href", "src", "action"}]

    def handle_endtag(self, tag: str) -> None:
        self.drawings -= tag == "svg"
        self.elements.append((f"/{tag}",))

    def handle_comment(self, data: str) -> None:  # whatever it says
        self.elements.append(("comment",))


def kinds(site: Path) -> Iterator[tuple[str, str]]:
    """Yield what each page of a site is, and the page; ids of configurations are left out."""
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).as_posix()
        html = path.read_text(encoding="utf-8")
        kind, _, rest = name.partition("/")
        if kind in {"reports", "runs"} and rest:
            name = f"{kind}/{'plain' if '<h1>Toy model on a CPU</h1>' in html else 'labelled'}"
        yield name, html


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The hostile site and its harmless twin."""
    folder = tmp_path_factory.mktemp("twins")
    (folder / "hostile").mkdir()
    (folder / "harmless").mkdir()
    return (
        build_site(labelled_project(folder / "hostile", HOSTILE, FILE_NAME)),
        build_site(labelled_project(folder / "harmless", HARMLESS, "plain.json")),
    )


def test_f5_f6_f7_f8_f29_hostile_words_add_no_element_to_any_page(
    sites: tuple[Path, Path],
) -> None:
    hostile, harmless = (dict(kinds(site)) for site in sites)
    assert hostile.keys() == harmless.keys()
    assert {"index.html", "404.html", "reports/labelled", "quoted/some-report.html"} <= set(hostile)
    for name, html in hostile.items():
        assert Structure(html).elements == Structure(harmless[name]).elements, name
    for name, least in (
        ("index.html", 5),
        ("reports/labelled", 25),
        ("quoted/some-report.html", 15),
    ):
        shown = Parsed(hostile[name]).text
        assert shown.count(HOSTILE) >= least, name


def test_f17_no_link_of_any_page_comes_from_a_run(sites: tuple[Path, Path]) -> None:
    hostile, harmless = (dict(kinds(site)) for site in sites)
    schemes = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
    for name, html in hostile.items():
        outside = [link for link in Structure(html).links if schemes.match(link)]
        assert outside == [x for x in Structure(harmless[name]).links if schemes.match(x)], name
        assert all(link.startswith(("https://", "data:image/")) for link in outside), name


def test_f8_no_file_of_the_site_holds_words_that_end_a_script(sites: tuple[Path, Path]) -> None:
    for path in sites[0].rglob("*.html"):
        assert "pwned=1</script>" not in path.read_text(encoding="utf-8"), path
    index = json.loads((sites[0] / "search" / "search_index.json").read_text(encoding="utf-8"))
    for document in index["docs"]:
        for field in ("title", "text"):
            assert "<script>document" not in document[field], document["location"]


def test_f16_hostile_words_are_one_cell_of_the_csv(sites: tuple[Path, Path]) -> None:
    hostile, harmless = ((site / NAME).read_text(encoding="utf-8") for site in sites)
    assert hostile.count("\n") == harmless.count("\n")
    assert f'"{HOSTILE}"'.replace('"', '""')[1:-1] in hostile


def test_f5_a_report_in_one_file_has_the_elements_of_its_twin(tmp_path: Path) -> None:
    found = []
    for number, words in enumerate((HOSTILE, HARMLESS)):
        path = labelled_run(words).write(tmp_path / str(number))
        page = report([path], title=words, out=tmp_path / f"{number}.html")
        found.append(Structure(page.read_text(encoding="utf-8")).elements)
    assert found[0] == found[1]


IDS = ["../../x", "/etc/x", "C:\\x", "a%2fb", ".git", "CON", "con", "nul", "a" * 65, "é", "a/b", ""]


@pytest.mark.parametrize("name", IDS)
def test_f9_an_id_that_could_be_a_path_or_a_device_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"x\.json: id"):
        load_claims_only(write(tmp_path / "x.json", record(id=name)))
    with pytest.raises(SpecError, match="label"):
        small_spec(label=name)


LOOKALIKES = {
    "Cyrillic a": "Ll\u0430ma-3",
    "Greek omicron": "M\u03bfdel",
    "full-width L": "\uff2clama",
    "mathematical L": "\U0001d40blama",
}


@pytest.mark.parametrize("words", LOOKALIKES.values(), ids=LOOKALIKES)
def test_f13_a_word_of_two_scripts_is_refused_and_the_letter_named(words: str) -> None:
    with pytest.raises(SpecError, match=r"words of one script: .*U\+[0-9A-F]{4,5} only looks"):
        small_spec(setup__model__name=words)


@pytest.mark.parametrize(
    "words",
    ["Модель Llama", "λ=5 μs", "naïve Größe", "東京 H200", "\u03bd_max", "Σ tokens"],
)
def test_f13_words_of_several_languages_are_words(words: str) -> None:
    assert small_spec(title=words).title == words


def test_f23_a_label_of_100000_characters_is_refused_by_its_field() -> None:
    with pytest.raises(SpecError, match=r"title: is not valid.*300") as caught:
        small_spec(title="a" * 100_000)
    assert len(str(caught.value)) < 500


def test_f23_every_one_of_many_bad_files_is_listed_in_bounded_time(tmp_path: Path) -> None:
    for number in range(2_000):
        (tmp_path / f"{number:05}.json").write_bytes(b'{"run_schema": "x"}')
    tree = read_tree(tmp_path, NO_KEYS)
    assert len(tree.refused) == 2_000
    assert all("check 2" in str(error) for _, error in tree.refused)


def test_a_record_of_hostile_words_is_a_record(tmp_path: Path) -> None:
    quoted = load_claims_only(write(tmp_path / "x.json", labelled_record(HOSTILE)))
    assert quoted.title == HOSTILE
