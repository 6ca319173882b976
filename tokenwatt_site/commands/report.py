"""`report`: a configuration, or several compared, as a single HTML file that opens from disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tokenwatt_site.canonical import text_fault
from tokenwatt_site.commands.output import not_written
from tokenwatt_site.commands.verify import KEYS_FOLDER, verify
from tokenwatt_site.commands.verify import quoted as read_quoted
from tokenwatt_site.configuration import Configuration, group
from tokenwatt_site.errors import Problem, UsageError
from tokenwatt_site.files import put
from tokenwatt_site.pages import compare, detail, quoted, standalone
from tokenwatt_site.pages import report as report_page
from tokenwatt_site.pages.page import NO_LINKS, Page
from tokenwatt_site.pages.quoted_detail import quoted_detail
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import ValidatedRun, settle

MAX_TITLE = 300


def report(
    paths: Sequence[Path], title: str | None, out: Path | None, *, keys: Path = KEYS_FOLDER
) -> Path:
    """Verify and recompute the runs, then write their report, or how they compare.

    Args:
        paths: run files, each with its evidence beside it. Those of one configuration are a report;
            of several, a comparison with the first one's. One claims-only record is a page of its
            own; before runs it is what they are compared with.
        title: heading of the page; the run's own title when None.
        out: the file to write; beside the first run, with the ending .html, when None.
        keys: folder of registered keys; where there is none, every key is unknown.

    Returns:
        The file written.

    Raises:
        UsageError: no file was named, too many configurations are, or a record is not the first.
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
    records = [read_quoted(path) for path in paths]
    for path, record in zip(paths[1:], records[1:], strict=True):
        if record is not None:
            raise UsageError(
                Problem(
                    "is an earlier publication, which can only be the baseline",
                    file=str(path),
                    remedy="Name it first, and no other beside it.",
                )
            )
    record, rest = records[0], list(paths if records[0] is None else paths[1:])
    if record is not None and not rest:
        if title is not None:
            record = record.model_copy(update={"title": title})
        return quoted.render(record, NO_LINKS, None)
    configurations = _in_order(settle([verify(p, keys) for p in rest], Keyring.load(keys)))
    if record is None and len(configurations) == 1:
        (configuration,) = configurations
        if title is not None:
            configuration = replace(configuration, title=title)
        return report_page.render(configuration, NO_LINKS)
    sides = [] if record is None else [quoted_detail(record)]
    sides += [detail.detail(configuration) for configuration in configurations]
    if len(sides) > compare.MOST_SIDES:
        raise UsageError(
            Problem(
                "names too many configurations for one comparison",
                field="report",
                found=str(len(sides)),
                expected=f"at most {compare.MOST_SIDES}",
            )
        )
    return compare.render(sides, {}, title=title)


def _in_order(runs: Sequence[ValidatedRun]) -> list[Configuration]:
    """Group runs; whose run was named first is first."""
    places = {run.run_id: i for i, run in enumerate(reversed(runs))}
    return sorted(group(runs), key=lambda c: -max(places[run.run_id] for run in c.runs))
