"""`report`: the runs of one configuration as a single HTML file that opens from disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tokenwatt_site.canonical import text_fault
from tokenwatt_site.commands.output import not_written
from tokenwatt_site.commands.verify import KEYS_FOLDER, verify
from tokenwatt_site.commands.verify import quoted as read_quoted
from tokenwatt_site.configuration import group
from tokenwatt_site.errors import Problem, UsageError
from tokenwatt_site.files import put
from tokenwatt_site.pages import quoted, standalone
from tokenwatt_site.pages import report as report_page
from tokenwatt_site.pages.page import NO_LINKS, Page
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import settle

MAX_TITLE = 300


def report(
    paths: Sequence[Path], title: str | None, out: Path | None, *, keys: Path = KEYS_FOLDER
) -> Path:
    """Verify and recompute the runs, then write their report.

    Args:
        paths: run files of one configuration, each with its evidence beside it; or one claims-only
            record.
        title: heading of the page; the run's own title when None.
        out: the file to write; beside the first run, with the ending .html, when None.
        keys: folder of registered keys; where there is none, every key is unknown.

    Returns:
        The file written.

    Raises:
        UsageError: no file was named, or they are of several configurations.
        InputError, VerificationError: a file does not prove what it says.
        EnvironmentProblem: the page cannot be written.
    """
    if not paths:
        raise UsageError(Problem("names no run file", field="report"))
    target = out or paths[0].with_suffix(".html")
    if target.resolve() in {path.resolve() for path in paths}:
        raise UsageError(
            Problem("is one of the runs, and would be replaced by the page", file=str(target))
        )
    if title is not None and (fault := text_fault(title) or _line_fault(title)):
        raise UsageError(Problem(fault, field="--title"))
    html = standalone.document(_page(paths, title, keys))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        put(target, html.encode())
    except OSError as error:
        raise not_written(target, error) from error
    return target


def _line_fault(title: str) -> str | None:
    if not title.strip() or "\n" in title or len(title) > MAX_TITLE:
        return f"must be one line of 1 to {MAX_TITLE} characters"
    return None


def _page(paths: Sequence[Path], title: str | None, keys: Path) -> Page:
    if len(paths) == 1 and (record := read_quoted(paths[0])) is not None:
        if title is not None:
            record = record.model_copy(update={"title": title})
        return quoted.render(record, NO_LINKS, None)
    runs = settle([verify(path, keys) for path in paths], Keyring.load(keys))
    configurations = group(runs)
    if len(configurations) != 1:
        raise UsageError(
            Problem(
                "these runs are of several configurations; a report is about one",
                found=", ".join(c.id for c in configurations),
                remedy="Name the runs of one, or build the site to see them side by side.",
            )
        )
    configuration = configurations[0]
    if title is not None:
        configuration = replace(configuration, title=title)
    return report_page.render(configuration, NO_LINKS)
