"""The MkDocs plugin: hooks only. What a page says is in `pages`, what is true in `trust`."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from jinja2 import Environment
from mkdocs.config import config_options as opt
from mkdocs.config.base import Config
from mkdocs.exceptions import PluginError
from mkdocs.plugins import BasePlugin, event_priority, get_plugin_logger
from mkdocs.structure.files import File
from mkdocs.structure.toc import get_toc
from mkdocs.utils import get_relative_url
from pydantic import ValidationError

from tokenwatt_site.errors import TokenwattError
from tokenwatt_site.frame import Frames
from tokenwatt_site.in_place import bring_back, set_aside
from tokenwatt_site.later import Later, PlacedFile
from tokenwatt_site.pages import (
    data_page,
    goodput_bench,
    goodput_proof,
    not_found,
    text,
)
from tokenwatt_site.pages.dataset import Licence, Publisher
from tokenwatt_site.pages.drawing import Chart, draw
from tokenwatt_site.pages.factors import NO_FACTORS, Factors
from tokenwatt_site.pages.kept import KeptPages
from tokenwatt_site.pages.page import Page, fill
from tokenwatt_site.pages.policy import KnownScripts, inline_scripts, with_policy
from tokenwatt_site.preview import OPTION, published
from tokenwatt_site.schema import Model, validation_problems
from tokenwatt_site.site import GENERATED, SCRIPT, STYLE, Around, Site, lines, with_simulator
from tokenwatt_site.trust.checked import Checked
from tokenwatt_site.trust.folder import listing
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import Tree, read_tree

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page as MkDocsPage
    from mkdocs.structure.toc import TableOfContents
    from mkdocs.utils.templates import TemplateContext

log = get_plugin_logger("tokenwatt")

SECTIONS = (
    (goodput_bench.HOLE, "data/goodput-bench.json", goodput_bench.section),
    (goodput_proof.HOLE, "data/goodput-proof.json", goodput_proof.section),
)
"""A hole in the prose, the data in the folder of the prose, and what makes a section of it."""


class TokenwattConfig(Config):
    """Options; folders are relative to mkdocs.yml."""

    runs_dir = opt.Type(str, default="runs")
    """Where the run files are."""

    keys_dir = opt.Type(str, default="site_src/keys")
    """Where the registered keys are."""

    on_invalid = opt.Choice(("fail", "drop"), default="fail")
    """Whether a file that fails verification fails the build or is left out and listed."""

    data_licence = opt.Type(dict, default={})
    """Under which licence the data are: `name` and `url`. Without it pages say that none is."""

    published_from = opt.Type((str, list), default=[])
    """A git ref, or several: a run file that none of them has is a preview, told from the rest."""

    energy = opt.Type(dict, default={})
    """What pages multiply energy with, each with its name: see `pages.factors.Factors`."""


class TokenwattPlugin(BasePlugin[TokenwattConfig]):
    """Verifies every run, recomputes it, and adds a page per configuration and the ranking."""

    def on_startup(self, **_: Any) -> None:
        # A hook of this name keeps the plugin object between the rebuilds of `serve`.
        self._pages: dict[str, Page | Later] = {}
        self._prose: dict[str, tuple[str, ...]] = {}
        self._theme = KnownScripts(())
        self._factors = NO_FACTORS
        self._around = Around()
        self._cache = Path()
        self._docs = Path()
        self._tabs = False

    def on_config(self, config: MkDocsConfig) -> MkDocsConfig:
        root = Path(config.config_file_path or ".").parent.absolute()
        self._runs, self._keys = root / self.config.runs_dir, root / self.config.keys_dir
        for option in ("runs_dir", "keys_dir"):
            if not self.config[option].strip():
                raise PluginError(f"{option}: is empty; name a folder, or take the option out")
        _expect_folder("runs_dir", self._runs)
        if self._keys.exists():  # where there is none, no key is registered yet
            _expect_folder("keys_dir", self._keys)
        self._factors = _option(Factors, "energy", self.config.energy)
        licence = self.config.data_licence
        self._publisher = Publisher(
            name=config.site_name,
            address=_address(config.site_url),
            licence=_option(Licence, "data_licence", licence) if licence else None,
        )
        self._theme = KnownScripts.of(_templates(config.theme.dirs))
        self._cache = root / ".cache" / "tokenwatt"
        self._docs = Path(config.docs_dir)
        self._tabs = "navigation.tabs" in config.theme.get("features", ())
        config.extra_css.insert(0, STYLE)
        config.extra_javascript.insert(0, SCRIPT)
        config.watch.extend(str(p) for p in (self._runs, self._keys) if p.is_dir())
        return config

    def on_pre_build(self, *, config: MkDocsConfig) -> None:
        set_aside(Path(config.site_dir))

    def on_files(self, files: Files, *, config: MkDocsConfig) -> Files:
        own = {File.generated(config, uri, content="").dest_uri for uri in GENERATED}
        if taken := [file.src_uri for file in files if file.dest_uri in own]:
            raise PluginError(
                f"{', '.join(taken)}: has the address of a page that the plugin makes (the home"
                " page is the ranking); give this page another name"
            )
        keyring, tree = self._read()
        self._pages = {}
        self._kept = KeptPages(self._cache)
        site = Site(
            config,
            files,
            self._pages,
            runs=self._runs,
            named=self._factors,
            kept=self._kept,
        )
        public = self._public(keyring, tree)
        try:
            site.add(tree, public)
        except TokenwattError as error:
            raise PluginError(lines(error)) from error
        site.add_checker(keyring)
        self._around = site.add_for_machines(public, self._publisher, self._why_hidden())
        if self._around.feed is None:
            log.info("no feed and no permanent addresses: mkdocs.yml has no site_url")
        self._root = urlsplit(config.site_url or "/").path
        return files

    def _public(self, keyring: Keyring, tree: Tree) -> Tree:
        """Return what is published of a tree, read as if there were nothing else."""
        refs = self._refs()
        if not refs:
            return tree
        if not all(isinstance(ref, str) and ref for ref in refs):
            raise PluginError(f"{OPTION}: {refs!r} is no name of a git ref, nor a list of them")
        try:
            there = published(self._runs, refs)
        except TokenwattError as error:
            raise PluginError(lines(error)) from error
        listed = listing(self._runs)
        if there.issuperset((*listed.documents, *listed.statements)):
            return tree
        return read_tree(self._runs, keyring, self._checked, there)

    def _refs(self) -> list[str]:
        told = self.config.published_from
        return [told] if isinstance(told, str) and told else list(told)

    def _why_hidden(self) -> str:
        """Return the words for a page with a run that is not published."""
        return f"not on {' or '.join(self._refs())} yet; in no feed, no badge, no API and no CSV."

    def on_env(self, env: Environment, *, config: MkDocsConfig, files: Files) -> Environment:
        placed = {file.dest_uri for file in files if isinstance(file, PlacedFile)}
        bring_back(Path(config.site_dir), placed)
        # Lines that hold only what the theme decides would be a tenth of a page, all blank.
        env.trim_blocks = env.lstrip_blocks = True
        self._frames = Frames(env)
        return env

    def on_page_content(self, html: str, *, page: MkDocsPage, **_: Any) -> str:
        uri = page.file.src_uri
        page.update_date = self._around.updated.get(uri, page.update_date)
        if uri in self._around.banner:  # the sitemap has the pages that have an address
            page.canonical_url = page.abs_url = None
        ours = self._pages.get(uri)
        if ours is None:
            self._prose[uri] = tuple(inline_scripts(html))
            html = html.replace(data_page.HOLE, self._around.data, 1)
            return with_simulator(html, page.file.url, self._kept)
        if isinstance(ours, Later):
            return ""
        page.toc = _toc(ours)
        return ours.html

    @event_priority(100)  # before the search reads the page: of these, title and summary alone
    def on_page_context(
        self, context: TemplateContext, *, page: MkDocsPage, **_: Any
    ) -> TemplateContext:
        if self._tabs and page.parent is None:  # a tab of its own: a sidebar would be empty
            page.meta["hide"] = [*page.meta.get("hide", ()), "navigation"]
        later = self._pages.get(page.file.src_uri)
        if isinstance(later, Later):
            try:
                self._made = later.make()
            except TokenwattError as error:
                raise PluginError(lines(error)) from error
            page.meta["description"] = html.escape(self._made.description, quote=True)
            page.toc = _toc(self._made)
            page.content = _summary(self._made)
            self._frames.offer(context, page)
        return context

    def on_post_page(self, output: str, *, page: MkDocsPage, **_: Any) -> str:
        ours = self._pages.get(page.file.src_uri)
        if isinstance(ours, Later):
            before, there, after = output.partition(_summary(self._made))
            if not there:
                raise PluginError(f"{page.file.src_uri}: another plugin or the theme changed it")
            output = f"{before}{self._made.html}{after}"
            # MkDocs keeps its pages to the end.
            page.toc, page.content = get_toc([]), ""
        elif ours is not None:
            output = fill(output, ours.charts, self._draw)
        else:
            output = self._with_sections(output, page.file.url)
        output = self._with_surroundings(output, page.file.src_uri, page.file.url)
        return self._finished(output, page.file.src_uri)

    def on_post_template(self, output_content: str, *, template_name: str, **_: Any) -> str:
        if not template_name.endswith(".html"):
            return output_content
        if template_name == "404.html":
            lost = not_found.html(self._root)
            output_content = output_content.replace(not_found.HOLE, lost, 1)
        return self._finished(output_content, template_name)

    @event_priority(-100)
    def on_post_build(self, *, config: MkDocsConfig) -> None:
        self._checked.drop_unused()
        self._kept.drop_unused()
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
                raise PluginError(lines(error)) from error
            output = fill(output.replace(hole, shown.html, 1), shown.charts, self._draw)
        return output

    def _with_surroundings(self, output: str, uri: str, url: str) -> str:
        """Add what a page has in its head for machines, and a banner where it is a preview."""
        head, around = "", self._around
        if around.feed is not None:
            address = html.escape(get_relative_url(around.feed, url), quote=True)
            head += f'<link rel="alternate" type="application/atom+xml" href="{address}">'
        if uri in around.banner:
            head += '<meta name="robots" content="noindex">'
            banner = data_page.banner(around.banner[uri])
            output = output.replace('<div class="tw', f'{banner}<div class="tw', 1)
        elif uri in around.linked:
            head += around.linked[uri]()
        return output.replace("</head>", f"{head}</head>", 1) if head else output

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
            log.error(lines(unread))
            wrong.append(f"{text.counted(len(unread.problems), 'problem')} with {self._keys}")
        self._checked = Checked(self._cache)
        tree = read_tree(self._runs, keyring, self._checked)
        for path, why in tree.refused:
            told = f"{text.printable(str(path))}: {lines(why)}"
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


def _expect_folder(option: str, folder: Path) -> None:
    try:
        os.scandir(folder).close()
    except OSError as error:
        raise PluginError(
            f"{option}: {text.printable(str(folder))} cannot be read as a folder"
            f" ({error.strerror}). Make it, or name another one in mkdocs.yml."
        ) from error


M = TypeVar("M", bound=Model)


def _option(model: type[M], name: str, value: dict[str, Any]) -> M:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        told = validation_problems(error, source=f"mkdocs.yml, plugins.tokenwatt.{name}")
        raise PluginError("\n".join(str(problem) for problem in told)) from error


def _summary(page: Page) -> str:
    return f"<h1>{html.escape(page.title)}</h1>\n<p>{html.escape(page.description)}</p>"


def _toc(page: Page) -> TableOfContents:
    return get_toc([_toc_token(anchor, words) for anchor, words in page.toc])


def _address(site_url: str | None) -> str | None:
    """Return where the site begins; None: it does not say, or not as an address of the web."""
    if not site_url or not site_url.startswith(("https://", "http://")):
        return None
    return site_url if site_url.endswith("/") else f"{site_url}/"


def _toc_token(anchor: str, words: str) -> Any:
    return {"level": 2, "id": anchor, "name": html.escape(words), "children": []}


def _templates(folders: Iterable[str]) -> Iterator[str]:
    """Yield the templates of a theme; its icons, thousands of files, are none."""
    for folder in folders:
        for where, inside, files in os.walk(folder):
            inside[:] = [name for name in inside if name not in {".icons", "assets"}]
            for name in files:
                if name.endswith(".html"):
                    yield Path(where, name).read_text(encoding="utf-8")
