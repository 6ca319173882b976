"""Pages and files that MkDocs has by thousands: made when they are written, one at a time.

What is there already as it would be written is left there; see `in_place`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from mkdocs.structure.files import File
from mkdocs.structure.pages import Page as MkDocsPage
from mkdocs.structure.toc import get_toc

from tokenwatt_site.in_place import place
from tokenwatt_site.pages.page import Page

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

TEMPLATE: Final = "tokenwatt/later.html"
"""Of a page that is made later; see `frame`."""


@dataclass(frozen=True, slots=True)
class Later:
    """A page that is made when it is written, so that there is one at a time."""

    make: Callable[[], Page]


class PlacedFile(File):
    """A file that is written only where it is not there yet."""

    def copy_file(self, dirty: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002  # MkDocs' own
        place(Path(self.dest_dir, self.dest_uri), self.pieces())

    def pieces(self) -> Iterable[bytes]:
        """Return what is written."""
        return (self.content_bytes,)


class StaticFile(PlacedFile):
    """A file that is no page, so that nothing about where it goes has to be worked out and kept."""

    @property
    def dest_uri(self) -> str:  # type: ignore[override]  # kept of each by MkDocs
        return self.src_uri

    @property
    def url(self) -> str:  # type: ignore[override]
        return quote(self.src_uri)


class RunFile(StaticFile):
    """A file of a run, from `folder`, where it has the name that it has below `runs/<id>/`."""

    folder: Path

    @property
    def abs_src_path(self) -> str:
        return str(self.folder / self.src_uri.split("/", 2)[2])


class LaterFile(StaticFile):
    """A file whose text is made when it is written, in pieces, so that there is one at a time."""

    make: Callable[[], Iterable[str]]

    def pieces(self) -> Iterable[bytes]:
        """Make what is written."""
        return (piece.encode() for piece in self.make())

    @property  # type: ignore[misc]  # there is nothing to set
    def content_string(self) -> str:
        return "".join(self.make())

    @property  # type: ignore[misc]
    def content_bytes(self) -> bytes:
        return b"".join(self.pieces())


class LaterPage(MkDocsPage):
    """A page without prose: there is nothing in it to read as Markdown, nor above it as YAML."""

    def __init__(self, meta: Mapping[str, Any], file: File, config: MkDocsConfig) -> None:
        super().__init__(None, file, config)
        self._told = {**meta, "template": TEMPLATE}

    def read_source(self, config: MkDocsConfig) -> None:  # noqa: ARG002  # MkDocs' own
        self.markdown, self.meta = "", self._told

    def render(self, config: MkDocsConfig, files: Files) -> None:  # noqa: ARG002  # MkDocs' own
        self.content, self.toc, self.present_anchor_ids = "", get_toc([]), set()
