"""What the site adds to its prose: pages and files, put into MkDocs' list of files."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

from mkdocs.structure.files import File, InclusionLevel
from mkdocs.utils import get_relative_url

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.configuration import Configuration, group, led_by
from tokenwatt_site.errors import TokenwattError, VerificationError
from tokenwatt_site.later import Later, LaterFile, LaterPage, PlacedFile, RunFile, StaticFile
from tokenwatt_site.leaderboard import Leaderboard, rank
from tokenwatt_site.lineage import NO_KIN, Kin, kin
from tokenwatt_site.mixes import Mixes, other_mixes
from tokenwatt_site.pages import (
    api,
    badge,
    catalogue,
    cite,
    compare,
    data_page,
    dataset,
    detail,
    feed,
    glossary,
    history,
    not_found,
    packed_catalogue,
    plan_page,
    quoted,
    ranking,
    ranking_csv,
    report,
    run_page,
    simulator,
    text,
    verification,
)
from tokenwatt_site.pages.dataset import Publisher
from tokenwatt_site.pages.factors import Factors
from tokenwatt_site.pages.kept import KeptPages
from tokenwatt_site.pages.listing import Listing
from tokenwatt_site.pages.named import FOLDER as NAMED
from tokenwatt_site.pages.named import load_named
from tokenwatt_site.pages.page import Links, Page, asset
from tokenwatt_site.pages.quoted_detail import quoted_detail
from tokenwatt_site.run import ClaimsOnlyRecord
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import Tree, ValidatedRun

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

HOME: Final = "index.md"
GLOSSARY: Final = "glossary.md"
VERIFY: Final = "verify.md"
PLAN: Final = "plan.md"
METHOD: Final = "method.md"
DATA: Final = "data.md"
COMPARE: Final = "compare.md"
GENERATED: Final = (HOME, COMPARE, PLAN, GLOSSARY, VERIFY)
"""The pages that may stand in the navigation; none of the prose has their names."""

ASSETS: Final = "assets"
STYLE: Final = "assets/tokenwatt.css"
SCRIPT: Final = "assets/tokenwatt.js"

SIMULATOR: Final = "<!--tw:simulator-->"
"""Where the simulator stands in the prose of METHOD."""


MAX_SEARCHED: Final = 2_000
"""Of so many reports the search knows title and summary; of more, whose index would be many
megabytes, nothing: the leaderboard filters all of them."""

NOT_SEARCHED: Final = MappingProxyType({"search": {"exclude": True}})


@dataclass
class Around:
    """What stands around the content of pages, by their source; made when they are written.

    `linked` is JSON-LD as an element, `updated` the day of the newest that is told, `banner` that a
    run on the page is not published. `feed` is the path of the feed, `data` the section of the data
    page.
    """

    linked: dict[str, Callable[[], str]] = field(default_factory=dict)
    updated: dict[str, str] = field(default_factory=dict)
    banner: dict[str, str] = field(default_factory=dict)
    feed: str | None = None
    data: str = ""


class Site:
    """Adds the generated pages and files to MkDocs' list of files."""

    def __init__(
        self,
        config: MkDocsConfig,
        files: Files,
        pages: dict[str, Page | Later],
        *,
        runs: Path,
        named: Factors,
        kept: KeptPages,
    ) -> None:
        self._config, self._files, self._pages, self._runs = config, files, pages, runs
        self._named, self._kept = named, kept
        self._verify, self._compare = self._reserve(VERIFY), self._reserve(COMPARE)

    def add(self, tree: Tree, public: Tree) -> None:
        """Add the pages of all runs in `tree`; what is not in `public` is told from the rest."""
        self._hidden = {run.run_id for run in tree.valid} - {run.run_id for run in public.valid}
        configurations = group(tree.valid, self._hidden | (_stated(tree) - _stated(public)))
        home, words = self._reserve(HOME), self._reserve(GLOSSARY)
        reports = [(c, self._reserve(f"reports/{c.id}.md")) for c in configurations]
        quotes = [(r, path, self._reserve(f"quoted/{r.id}.md")) for path, r in tree.quoted]
        told = Listing(configurations, self._kept)
        searched, board = len(reports) <= MAX_SEARCHED, rank(configurations, told.cells)
        known = {c.id: c for c in configurations}
        self._places = {c.id: file for c, file in reports}
        self._run_files = {run.run_id: self._add_run(run) for run in tree.valid}
        self._home, self._words = home, words
        beside, mixes = kin(board, known), other_mixes(configurations)
        for each, file in reports:
            own = beside.get(each.id, NO_KIN)
            page = partial(self._report, each, file, own, mixes.get(each.id))
            self._place_later(file, each.title, page, searched=searched)
        for record, path, file in quotes:
            self._add_quote(record, path, file, self._links(file, home, words, {}))
        self._place(words, glossary.render(self._prose_urls(words)))
        self._add_comparisons(reports, quotes, home, words)
        self._tree = tree
        listed = self._catalogue(board, configurations, told)
        self._add_leaderboard(listed)
        self._add_plan(listed)
        self._whole = configurations, told, board, listed
        self._place(
            home,
            ranking.render(
                listed,
                [(r, get_relative_url(f.url, home.url)) for r, _, f in quotes],
                [self._left_out(path, error) for path, error in tree.refused],
            ),
        )
        self._add_texts((uri, asset(uri.rpartition("/")[2])) for uri in (STYLE, SCRIPT))
        method = self._files.get_file_from_path(METHOD)
        if method is not None and SIMULATOR in method.content_string:
            self._add_simulator()

    def _report(
        self, configuration: Configuration, file: File, own: Kin, mixes: Mixes | None
    ) -> Page:
        links = self._links(file, self._home, self._words, _own(configuration, self._run_files))
        links = replace(links, reports=_urls(own.others, self._places, file))
        given = (configuration, links, self._named, own, mixes)
        return self._kept.get(report.render, *given)

    def _catalogue(
        self, board: Leaderboard, configurations: Sequence[Configuration], told: Listing
    ) -> dict[str, JsonValue]:
        known = {c.id: c for c in configurations}
        urls = {i: self._places[i].url for i in known}
        return catalogue.catalogue(board, known, urls, told.row)

    def _add_leaderboard(self, known: dict[str, JsonValue]) -> None:
        names = (packed_catalogue.READER, *ranking.SCRIPTS)
        self._add_scripts(names, packed_catalogue.DATA, packed_catalogue.script(known))

    def _add_comparisons(
        self,
        reports: Sequence[tuple[Configuration, File]],
        quotes: Sequence[tuple[ClaimsOnlyRecord, Path, File]],
        home: File,
        words: File,
    ) -> None:
        """Add each result as a script, the page that compares them, and those that are named."""
        # Each is made when it is needed: all together they take gigabytes.
        sides = {c.id: (partial(detail.detail, c), file) for c, file in reports}
        told = {str((q := quoted_detail(r))["id"]): (q, file) for r, _, file in quotes}
        for c, file in reports:
            self._add_later(f"{compare.DETAILS}/{c.id}.js", detail.measured_script, c, file.url)
        for name, (value, file) in told.items():
            self._add_later(f"{compare.DETAILS}/{name}.js", detail.script, value, file.url)
            sides[name] = (partial(dict, value), file)
        page = self._compare
        named = []
        for each in load_named(Path(self._config.docs_dir) / NAMED, sides):
            file = self._reserve(f"{NAMED}/{each.name}.md")
            urls = {i: get_relative_url(sides[i][1].url, file.url) for i in each.sides}
            shown = compare.render(
                [sides[i][0]() for i in each.sides],
                urls,
                title=each.title,
                why=each.why,
                glossary=get_relative_url(words.url, file.url),
                live=get_relative_url(page.url, file.url),
            )
            self._place(file, shown)
            named.append((each.title, each.why, get_relative_url(file.url, page.url)))
        root = get_relative_url(ASSETS, page.url).removesuffix(ASSETS)
        known = (packed_catalogue.DATA, packed_catalogue.READER)
        links = [get_relative_url(file.url, page.url) for file in (home, words)]
        self._place(page, compare.picker(root, known, named, *links))
        published = [(name, str(q["title"])) for name, (q, _) in told.items()]
        self._add_scripts(compare.SCRIPTS, compare.DATA, compare.script_data(published))

    def _add_plan(self, known: dict[str, JsonValue]) -> None:
        file = self._reserve(PLAN)
        folder = get_relative_url(ASSETS, file.url)
        names = (packed_catalogue.DATA, packed_catalogue.READER, *plan_page.SCRIPTS)
        scripts = [f"{folder}/{name}" for name in names]
        root = get_relative_url(".", file.url)
        self._place(file, plan_page.render(known, scripts, root, self._named))
        self._add_assets(plan_page.SCRIPTS)

    def add_for_machines(self, public: Tree, publisher: Publisher, why_hidden: str) -> Around:
        """Add a page per run, and what programs read; say what goes around the pages.

        Args:
            public: what is published.
            publisher: what the site says of itself.
            why_hidden: said on the pages of other runs.
        """
        around, known = Around(), {run.run_id: run for run in self._tree.valid}
        everything, told, board, listed = self._whole
        for each in everything:
            self._add_run_pages(each, known, publisher, around)
            if each.preview:
                around.banner[f"reports/{each.id}.md"] = why_hidden
        shown = everything
        if public is not self._tree:
            shown, known = group(public.valid), {run.run_id: run for run in public.valid}
            told = Listing(shown, self._kept)
            board = rank(shown, told.cells)
            listed = self._catalogue(board, shown, told)
            around.updated |= {
                f"{cite.FOLDER}/{run.run_id}/index.md": _updated(led_by(each, run, known))
                for each in shown
                for run in each.runs
            }
        around.updated |= {f"reports/{c.id}.md": _updated(c) for c in shown}
        if self._hidden:
            words = f"{text.counted(len(self._hidden), 'run')} here: {why_hidden}"
            around.banner |= dict.fromkeys((HOME, COMPARE, PLAN), words)
            own = (f"{cite.FOLDER}/{run_id}/index.md" for run_id in self._hidden)
            around.banner |= dict.fromkeys(own, why_hidden)
        urls = {c.id: self._places[c.id].url for c in shown}
        self._add_pieces(ranking_csv.NAME, ranking_csv.pieces, board, urls)
        left_out = [self._left_out(path, error) for path, error in public.refused]
        index = api.index(shown, board, left_out, publisher, told.runs)
        for uri, document in api.files(index, listed, publisher):
            self._add_pieces(uri, api.pieces, document)
        for each in shown:
            self._add_later(api.path(each), api.result, each, publisher)
            self._add_later(f"{badge.FOLDER}/{each.id}.svg", badge.render, each)
        feeds = feed.feeds(shown, publisher, told.entries)
        self._add_texts(feeds.items())
        around.feed = feed.NAME if feeds else None
        around.data = data_page.section(index["counts"], sorted(feeds), publisher)
        around.linked |= {
            f"reports/{c.id}.md": partial(self._kept.text, dataset.block_of_report, c, publisher)
            for c in shown
        }
        whole = dataset.block(dataset.of_site(shown, publisher))
        around.linked |= {uri: lambda: whole for uri in (HOME, DATA)}
        self._add_assets((not_found.SCRIPT,))
        return around

    def _add_run_pages(
        self,
        configuration: Configuration,
        known: Mapping[str, ValidatedRun],
        publisher: Publisher,
        around: Around,
    ) -> None:
        about = self._places[configuration.id]
        for run in configuration.runs:
            file = self._reserve(f"{cite.FOLDER}/{run.run_id}/index.md")
            view = led_by(configuration, run, known)
            page = partial(self._run_page, view, file, configuration.headline, about, publisher)
            self._place_later(file, run_page.title(view), page, searched=False)
            around.updated[file.src_uri] = _updated(view)

    def _run_page(
        self, view: Configuration, file: File, leads: ValidatedRun, about: File, of: Publisher
    ) -> Page:
        links = self._links(file, self._home, self._words, {})
        given = (view, links, leads.run_id, get_relative_url(about.url, file.url), of.address)
        return self._kept.get(run_page.render, *given)

    def _add_texts(self, texts: Iterable[tuple[str, str]]) -> None:
        for uri, content in texts:
            self._add_file(uri, content=content)

    def _add_file(self, uri: str, **source: Any) -> File:
        """Add a file from its `content` or its `abs_src_path`; it is no page."""
        # Said, for MkDocs would else match each against what the site excludes of its prose.
        file = StaticFile.generated(self._config, uri, inclusion=InclusionLevel.INCLUDED, **source)
        self._files.append(file)
        return file

    def _add_simulator(self) -> None:
        self._add_scripts(simulator.SCRIPTS, simulator.DATA, self._kept.text(simulator.data))

    def add_checker(self, keyring: Keyring) -> None:
        """Add the page on which runs are checked, its scripts, and the register as they know it."""
        self._place(self._verify, verification.render(get_relative_url(ASSETS, self._verify.url)))
        self._add_scripts(verification.SCRIPTS, verification.DATA, verification.data(keyring))

    def _add_later(self, uri: str, render: Callable[..., str], *given: object) -> None:
        """Add a file for each of thousands, which is made when it is written."""
        self._add_pieces(uri, self._whole_text, render, *given)

    def _whole_text(self, render: Callable[..., str], *given: object) -> tuple[str]:
        return (self._kept.text(render, *given),)

    def _add_pieces(self, uri: str, make: Callable[..., Iterable[str]], *given: object) -> None:
        """Add a file which is made in pieces when it is written."""
        places = self._config.site_dir, self._config.use_directory_urls
        file = LaterFile(uri, None, *places, inclusion=InclusionLevel.INCLUDED)
        file.make = partial(make, *given)
        self._files.append(file)

    def _add_scripts(self, names: Sequence[str], data: str, content: str) -> None:
        self._add_assets(names)
        self._add_file(f"{ASSETS}/{data}", content=content)

    def _add_assets(self, names: Sequence[str]) -> None:
        for name in names:
            uri = f"{ASSETS}/{name}"
            if self._files.get_file_from_path(uri) is None:
                self._add_file(uri, content=asset(name))

    def _left_out(self, path: Path, error: TokenwattError) -> tuple[str, str]:
        # Readers of the site have no use for where the builder keeps its files.
        folder = text.printable(str(self._runs))
        why = lines(error).replace(f"{folder}{os.sep}", "").replace(folder, "the runs folder")
        name = path.relative_to(self._runs).as_posix()
        return text.printable(name), why

    def _reserve(self, uri: str) -> File:
        in_nav = uri in GENERATED
        inclusion = InclusionLevel.INCLUDED if in_nav else InclusionLevel.NOT_IN_NAV
        return PlacedFile.generated(self._config, uri, content="", inclusion=inclusion)

    def _place(self, file: File, page: Page) -> None:
        meta: dict[str, Any] = {"description": html.escape(page.description, quote=True)}
        if file.src_uri == HOME:
            meta["hide"] = ["toc"]
        file.content_string = front_matter(page.title, meta)
        self._pages[file.src_uri] = page
        self._files.append(file)

    def _place_later(
        self, file: File, title: str, make: Callable[[], Page], *, searched: bool
    ) -> None:
        meta: dict[str, Any] = {"title": shown_title(title)}
        LaterPage(meta if searched else meta | NOT_SEARCHED, file, self._config)
        self._pages[file.src_uri] = Later(make)
        self._files.append(file)

    def _add_run(self, run: ValidatedRun) -> File:
        folder = f"runs/{run.run_id}"
        document = self._add_file(f"{folder}/{report.RUN_FILE}", abs_src_path=str(run.path))
        places, beside = (self._config.site_dir, self._config.use_directory_urls), run.path.parent
        for path in run.held.files:
            file = RunFile(f"{folder}/{path}", None, *places, inclusion=InclusionLevel.INCLUDED)
            file.folder = beside
            self._files.append(file)
        if run.standing.told:
            lines = b"".join(told.signed.line + b"\n" for told in run.standing.told)
            self._add_file(f"{folder}/{history.STATEMENTS_FILE}", content=lines)
        if (promise := run.promised.commitment) is not None:
            uri = f"{folder}/{history.COMMITMENT_FILE}"
            self._add_file(uri, abs_src_path=str(promise.path))
            if promise.statements:
                lines = b"".join(signed.line + b"\n" for signed in promise.statements)
                self._add_file(f"{folder}/{history.COMMITMENT_STATEMENTS_FILE}", content=lines)
        return document

    def _add_quote(self, record: ClaimsOnlyRecord, path: Path, file: File, links: Links) -> None:
        document = self._add_file(f"quoted/{record.id}.json", abs_src_path=str(path))
        url = get_relative_url(document.url, file.url)
        self._place(file, quoted.render(record, links, url))

    def _prose_urls(self, file: File) -> dict[str, str]:
        there = {uri: self._files.get_file_from_path(uri) for uri in sorted(glossary.SOURCES)}
        return {uri: get_relative_url(f.url, file.url) for uri, f in there.items() if f}

    def _links(self, file: File, home: File, words: File, runs: dict[str, File]) -> Links:
        method = self._files.get_file_from_path(METHOD)
        base = self._config.site_url or ""
        return Links(
            home=get_relative_url(home.url, file.url),
            glossary=get_relative_url(words.url, file.url),
            method=get_relative_url(method.url, file.url) if method else None,
            address=urljoin(base, file.url) if base.startswith("https://") else None,
            runs={
                run_id: get_relative_url(document.url, file.url).removesuffix(f"/{report.RUN_FILE}")
                for run_id, document in runs.items()
            },
            verify=get_relative_url(self._verify.url, file.url),
            assets=get_relative_url(ASSETS, file.url),
            compare=get_relative_url(self._compare.url, file.url),
        )


def _urls(
    configurations: Iterable[Configuration], places: Mapping[str, File], page: File
) -> dict[str, str]:
    """Return id -> its report, relative to a page."""
    return {c.id: get_relative_url(places[c.id].url, page.url) for c in configurations}


def _stated(tree: Tree) -> set[str]:
    """Return the digests of what is stated about the runs of a tree."""
    return {told.signed.digest for run in tree.valid for told in run.standing.told}


def _own(configuration: Configuration, runs: Mapping[str, File]) -> dict[str, File]:
    """Return the files of the runs that a report links to: all would be read for each."""
    reference = configuration.reference
    own = configuration.runs if reference is None else (*configuration.runs, reference)
    return {run.run_id: runs[run.run_id] for run in own}


def _updated(configuration: Configuration) -> str:
    """Return the day of the newest that is told."""
    return dataset.latest(configuration)[:10]


def front_matter(title: str, meta: Mapping[str, Any]) -> str:
    """Write title and description for MkDocs, whose templates print both raw."""
    told = {"title": shown_title(title), **meta}
    # JSON is YAML: every value quoted, nothing retyped.
    lines = [f"{key}: {json.dumps(value)}" for key, value in told.items()]
    return "---\n" + "\n".join(lines) + "\n---\n"


def shown_title(title: str) -> str:
    """Return a title for MkDocs, whose templates print it raw.

    Material also unescapes entities in `<title>` (striptags), so no `<` may come back from it:
    angle brackets become quotation marks there. The page's own h1 has the exact text. And a site's
    other plugins may take a title with a brace for a template, as that for macros does.
    """
    shown = html.escape(title.replace("<", "‹").replace(">", "›"), quote=True)
    return shown.replace("{", "&#123;")


def lines(error: TokenwattError) -> str:
    """Say all that is wrong, a line each; the names of files are foreign text."""
    number = f"check {error.check}: " if isinstance(error, VerificationError) else ""
    return "\n".join(number + text.printable(str(problem)) for problem in error.problems)


def with_simulator(content: str, url: str, kept: KeptPages) -> str:
    """Put the simulator into its hole in prose that has one."""
    if SIMULATOR not in content:
        return content
    # Kept, so that a rebuild does without the compiler of its engine: 130 MB.
    drawn = kept.text(simulator.html, get_relative_url(ASSETS, url))
    return content.replace(SIMULATOR, drawn, 1)
