"""The MkDocs plugin: hooks only. What a page says is in `pages`, what is true in `trust`."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from mkdocs.config import config_options as opt
from mkdocs.config.base import Config
from mkdocs.exceptions import PluginError
from mkdocs.plugins import BasePlugin, event_priority, get_plugin_logger
from mkdocs.structure.files import File, InclusionLevel
from mkdocs.structure.toc import get_toc
from mkdocs.utils import get_relative_url
from pydantic import ValidationError

from tokenwatt_site.configuration import group
from tokenwatt_site.errors import TokenwattError, VerificationError
from tokenwatt_site.leaderboard import rank
from tokenwatt_site.pages import (
    glossary,
    goodput_bench,
    goodput_proof,
    history,
    quoted,
    ranking,
    ranking_csv,
    report,
    simulator,
    text,
    verification,
)
from tokenwatt_site.pages.drawing import Chart, draw
from tokenwatt_site.pages.factors import NO_FACTORS, Factors
from tokenwatt_site.pages.page import Links, Page, asset, fill
from tokenwatt_site.pages.policy import KnownScripts, inline_scripts, with_policy
from tokenwatt_site.run import ClaimsOnlyRecord
from tokenwatt_site.schema import validation_problems
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.replays import Replays
from tokenwatt_site.trust.verify import Tree, ValidatedRun, read_tree

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page as MkDocsPage

log = get_plugin_logger("tokenwatt")

HOME = "index.md"
GLOSSARY = "glossary.md"
VERIFY = "verify.md"
ASSETS = "assets"
METHOD = "method.md"
STYLE = "assets/tokenwatt.css"
SCRIPT = "assets/tokenwatt.js"
SECTIONS = (
    (goodput_bench.HOLE, "data/goodput-bench.json", goodput_bench.section),
    (goodput_proof.HOLE, "data/goodput-proof.json", goodput_proof.section),
)
"""A hole in the prose, the data in the folder of the prose, and what makes a section of it."""

SIMULATOR = "<!--tw:simulator-->"
"""Where the simulator stands in the prose of METHOD."""


class TokenwattConfig(Config):
    """Options; folders are relative to mkdocs.yml."""

    runs_dir = opt.Type(str, default="runs")
    """Where the run files are."""

    keys_dir = opt.Type(str, default="site_src/keys")
    """Where the registered keys are."""

    on_invalid = opt.Choice(("fail", "drop"), default="fail")
    """Whether a file that fails verification fails the build or is left out and listed."""

    energy = opt.Type(dict, default={})
    """What pages multiply energy with, each with its name: see `pages.factors.Factors`."""


class TokenwattPlugin(BasePlugin[TokenwattConfig]):
    """Verifies every run, recomputes it, and adds a page per configuration and the ranking."""

    def on_startup(self, **_: Any) -> None:
        # A hook of this name keeps the plugin object between the rebuilds of `serve`.
        self._pages: dict[str, Page] = {}
        self._prose: dict[str, tuple[str, ...]] = {}
        self._theme = KnownScripts(())
        self._factors = NO_FACTORS
        self._cache = Path()
        self._docs = Path()

    def on_config(self, config: MkDocsConfig) -> MkDocsConfig:
        root = Path(config.config_file_path or ".").parent.absolute()
        self._runs, self._keys = root / self.config.runs_dir, root / self.config.keys_dir
        _expect_folder("runs_dir", self._runs)
        if self._keys.exists():  # where there is none, no key is registered yet
            _expect_folder("keys_dir", self._keys)
        self._factors = _factors(self.config.energy)
        self._theme = KnownScripts.of(_templates(config.theme.dirs))
        self._cache = root / ".cache" / "tokenwatt"
        self._docs = Path(config.docs_dir)
        config.extra_css.insert(0, STYLE)
        config.extra_javascript.insert(0, SCRIPT)
        config.watch.extend(str(p) for p in (self._runs, self._keys) if p.is_dir())
        return config

    def on_files(self, files: Files, *, config: MkDocsConfig) -> Files:
        if files.get_file_from_path(HOME):
            raise PluginError(f"{HOME}: the ranking is the home page; give this page another name")
        keyring, tree = self._read()
        self._pages = {}
        site = _Site(config, files, self._pages, self._runs, self._factors)
        site.add(tree)
        site.add_checker(keyring)
        return files

    def on_page_content(self, html: str, *, page: MkDocsPage, **_: Any) -> str:
        ours = self._pages.get(page.file.src_uri)
        if ours is None:
            self._prose[page.file.src_uri] = tuple(inline_scripts(html))
            return _with_simulator(html, page.file.url)
        page.toc = get_toc([_toc_token(anchor, words) for anchor, words in ours.toc])
        return ours.html

    def on_post_page(self, output: str, *, page: MkDocsPage, **_: Any) -> str:
        ours = self._pages.get(page.file.src_uri)
        if ours is not None:
            output = fill(output, ours.charts, self._draw)
        else:
            output = self._with_sections(output, page.file.url)
        return self._finished(output, page.file.src_uri)

    def on_post_template(self, output_content: str, *, template_name: str, **_: Any) -> str:
        if not template_name.endswith(".html"):
            return output_content
        return self._finished(output_content, template_name)

    @event_priority(-100)
    def on_post_build(self, *, config: MkDocsConfig) -> None:
        # Pages opened from disk may not fetch JSON; there Material loads this script instead.
        index = Path(config.site_dir) / "search" / "search_index.json"
        if index.is_file():
            script = f"var __index = {index.read_text(encoding='utf-8')}"
            index.with_suffix(".js").write_text(script, encoding="utf-8")

    def _with_sections(self, output: str, url: str) -> str:
        for hole, name, section in SECTIONS:
            if hole not in output:
                continue
            try:
                shown = section(self._docs / name, get_relative_url(name, url))
            except TokenwattError as error:
                raise PluginError(_lines(error)) from error
            output = fill(output.replace(hole, shown.html, 1), shown.charts, self._draw)
        return output

    def _draw(self, chart: Chart) -> str:
        return draw(chart, self._cache)

    def _finished(self, output: str, name: str) -> str:
        """Return a whole page with its policy, and what its theme leaves out."""
        scripts, prose = tuple(inline_scripts(output)), self._prose.get(name, ())
        for script in scripts:
            if script not in self._theme and script not in prose:
                raise PluginError(
                    f"{name}: a script is in this page that neither the theme nor its prose has:"
                    f" {text.printable(script[:80])!r}"
                )
        # Material leaves its search dialog without a name, which screen readers announce it by.
        nameless = '<div class="md-search" data-md-component="search" role="dialog">'
        named = nameless.replace(">", ' aria-label="Search">')
        finished = with_policy(output.replace(nameless, named, 1), scripts)
        if finished is None:
            raise PluginError(f'{name}: has no <meta charset="utf-8">, which the policy goes after')
        return finished

    def _read(self) -> tuple[Keyring, Tree]:
        """Read keys and runs, and tell all that is wrong with any of them in one list."""
        wrong: list[str] = []
        keyring, unread = Keyring(), None
        try:
            keyring = Keyring.load(self._keys)
        except TokenwattError as error:
            unread = error
        if unread is not None:  # also with drop: else known runs would be published as unknown
            log.error(_lines(unread))
            wrong.append(f"{text.counted(len(unread.problems), 'problem')} with {self._keys}")
        tree = read_tree(self._runs, keyring, Replays(self._cache))
        for path, why in tree.refused:
            told = f"{text.printable(str(path))}: {_lines(why)}"
            if self.config.on_invalid == "fail":
                log.error(told)
            else:
                log.info(f"left out {told}")
        if tree.refused and self.config.on_invalid == "fail":
            count = text.counted(len(tree.refused), "file")
            wrong.append(f"{count} under {self._runs} failed verification")
        if wrong:
            raise PluginError(f"{', and '.join(wrong)}; all listed above")
        return keyring, tree


class _Site:
    """Adds the generated pages and files to MkDocs' list of files."""

    def __init__(
        self,
        config: MkDocsConfig,
        files: Files,
        pages: dict[str, Page],
        runs: Path,
        named: Factors,
    ) -> None:
        self._config, self._files, self._pages, self._runs = config, files, pages, runs
        self._named = named
        self._verify = self._reserve(VERIFY)

    def add(self, tree: Tree) -> None:
        configurations = group(tree.valid)
        home, words = self._reserve(HOME), self._reserve(GLOSSARY)
        runs = {run.run_id: self._add_run(run) for run in tree.valid}
        reports = [(c, self._reserve(f"reports/{c.id}.md")) for c in configurations]
        quotes = [(r, path, self._reserve(f"quoted/{r.id}.md")) for path, r in tree.quoted]
        for configuration, file in reports:
            links = self._links(file, home, words, runs)
            self._place(file, report.render(configuration, links, self._named))
        for record, path, file in quotes:
            self._add_quote(record, path, file, self._links(file, home, words, {}))
        self._place(words, glossary.render())
        board = rank(configurations)
        urls = {c.id: get_relative_url(f.url, home.url) for c, f in reports}
        table = ranking_csv.ranking(board, urls)
        self._files.append(File.generated(self._config, ranking_csv.NAME, content=table))
        self._place(
            home,
            ranking.render(
                board,
                {c.id: c for c in configurations},
                urls,
                [(r, get_relative_url(f.url, home.url)) for r, _, f in quotes],
                [self._left_out(path, error) for path, error in tree.refused],
            ),
        )
        for uri, name in ((STYLE, "tokenwatt.css"), (SCRIPT, "tokenwatt.js")):
            self._files.append(File.generated(self._config, uri, content=asset(name)))
        method = self._files.get_file_from_path(METHOD)
        if method is not None and SIMULATOR in method.content_string:
            self._add_simulator()

    def _add_simulator(self) -> None:
        self._add_scripts(simulator.SCRIPTS, simulator.DATA, simulator.data())

    def add_checker(self, keyring: Keyring) -> None:
        """Add the page on which runs are checked, its scripts, and the register as they know it."""
        self._place(self._verify, verification.render(get_relative_url(ASSETS, self._verify.url)))
        self._add_scripts(verification.SCRIPTS, verification.DATA, verification.data(keyring))

    def _add_scripts(self, names: Sequence[str], data: str, content: str) -> None:
        for name in names:
            uri = f"{ASSETS}/{name}"
            if self._files.get_file_from_path(uri) is None:
                self._files.append(File.generated(self._config, uri, content=asset(name)))
        uri = f"{ASSETS}/{data}"
        self._files.append(File.generated(self._config, uri, content=content))

    def _left_out(self, path: Path, error: TokenwattError) -> tuple[str, str]:
        # Readers of the site have no use for where the builder keeps its files.
        folder = text.printable(str(self._runs))
        why = _lines(error).replace(f"{folder}{os.sep}", "").replace(folder, "the runs folder")
        name = path.relative_to(self._runs).as_posix()
        return text.printable(name), why

    def _reserve(self, uri: str) -> File:
        in_nav = uri in {HOME, GLOSSARY, VERIFY}
        inclusion = InclusionLevel.INCLUDED if in_nav else InclusionLevel.NOT_IN_NAV
        return File.generated(self._config, uri, content="", inclusion=inclusion)

    def _place(self, file: File, page: Page) -> None:
        file.content_string = front_matter(page, toc=file.src_uri != HOME)
        self._pages[file.src_uri] = page
        self._files.append(file)

    def _add_run(self, run: ValidatedRun) -> File:
        folder = f"runs/{run.run_id}"
        uri = f"{folder}/{report.RUN_FILE}"
        document = File.generated(self._config, uri, abs_src_path=str(run.path))
        self._files.append(document)
        for entry in run.run.evidence:
            source = str(run.path.parent / entry.path)
            self._files.append(
                File.generated(self._config, f"{folder}/{entry.path}", abs_src_path=source)
            )
        if run.standing.told:
            lines = b"".join(told.signed.line + b"\n" for told in run.standing.told)
            uri = f"{folder}/{history.STATEMENTS_FILE}"
            self._files.append(File.generated(self._config, uri, content=lines))
        if (promise := run.promised.commitment) is not None:
            uri, source = f"{folder}/{history.COMMITMENT_FILE}", str(promise.path)
            self._files.append(File.generated(self._config, uri, abs_src_path=source))
            if promise.statements:
                lines = b"".join(signed.line + b"\n" for signed in promise.statements)
                uri = f"{folder}/{history.COMMITMENT_STATEMENTS_FILE}"
                self._files.append(File.generated(self._config, uri, content=lines))
        return document

    def _add_quote(self, record: ClaimsOnlyRecord, path: Path, file: File, links: Links) -> None:
        document = File.generated(self._config, f"quoted/{record.id}.json", abs_src_path=str(path))
        self._files.append(document)
        url = get_relative_url(document.url, file.url)
        self._place(file, quoted.render(record, links, url))

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
        )


def front_matter(page: Page, *, toc: bool) -> str:
    """Write title and description for MkDocs, whose templates print both raw.

    Material also unescapes entities in `<title>` (striptags), so no `<` may come back from it:
    angle brackets become quotation marks there. The page's own h1 has the exact text.
    """
    plain = page.title.replace("<", "‹").replace(">", "›")
    meta: dict[str, Any] = {
        "title": html.escape(plain, quote=True),
        "description": html.escape(page.description, quote=True),
        "hide": ["navigation"] if toc else ["navigation", "toc"],
    }
    # JSON is YAML: every value quoted, nothing retyped.
    lines = [f"{key}: {json.dumps(value)}" for key, value in meta.items()]
    return "---\n" + "\n".join(lines) + "\n---\n"


def _expect_folder(option: str, folder: Path) -> None:
    try:
        os.scandir(folder).close()
    except OSError as error:
        raise PluginError(
            f"{option}: {text.printable(str(folder))} cannot be read as a folder"
            f" ({error.strerror}). Make it, or name another one in mkdocs.yml."
        ) from error


def _factors(value: dict[str, Any]) -> Factors:
    try:
        return Factors.model_validate(value)
    except ValidationError as error:
        told = validation_problems(error, source="mkdocs.yml, plugins.tokenwatt.energy")
        raise PluginError("\n".join(str(problem) for problem in told)) from error


def _lines(error: TokenwattError) -> str:
    """Say all that is wrong, a line each; the names of files are foreign text."""
    number = f"check {error.check}: " if isinstance(error, VerificationError) else ""
    return "\n".join(number + text.printable(str(problem)) for problem in error.problems)


def _toc_token(anchor: str, words: str) -> Any:
    return {"level": 2, "id": anchor, "name": html.escape(words), "children": []}


def _with_simulator(content: str, url: str) -> str:
    if SIMULATOR not in content:
        return content
    return content.replace(SIMULATOR, simulator.html(get_relative_url("assets", url)), 1)


def _templates(folders: Iterable[str]) -> Iterator[str]:
    """Yield the templates of a theme; its icons, thousands of files, are none."""
    for folder in folders:
        for where, inside, files in os.walk(folder):
            inside[:] = [name for name in inside if name not in {".icons", "assets"}]
            for name in files:
                if name.endswith(".html"):
                    yield Path(where, name).read_text(encoding="utf-8")
