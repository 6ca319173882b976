"""What a report says of what its configuration stands next to, and by how much that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.comparison.ratios import goodput
from tokenwatt_site.comparison.result import Detail
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.field_words import field_words
from tokenwatt_site.lineage import RELEASED, Alike, Kin, field
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import headline, statements, text
from tokenwatt_site.pages.comparison_blocks import PAGE, address, value_words
from tokenwatt_site.pages.comparison_words import MARKS, interval
from tokenwatt_site.pages.detail import status, without_answers
from tokenwatt_site.pages.page import Links

_GRAVE = frozenset({*statements.AGAINST, "interrupted"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """A ratio of goodputs in words; `ratio` None: there is none, and `sure` says why."""

    ratio: str | None
    sure: str
    word: str = ""
    mark: str = ""
    icon: str = ""


@dataclass(frozen=True, slots=True)
class AlikeRow:
    """Another configuration; `url` and `compare` None: there is no such page.

    `tag` is what stands against it.
    """

    there: str
    title: str
    tag: str
    url: str | None
    verdict: Verdict
    compare: str | None


@dataclass(frozen=True, slots=True)
class AlikeGroup:
    """Configurations that differ in one field; `left` is how many are not listed."""

    field: str
    here: str
    rows: tuple[AlikeRow, ...]
    left: int


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A release; `own`: it is that of the page. The last three are against the row above it."""

    version: str
    tag: str
    own: bool
    url: str | None
    measured: str
    goodput: str | None
    sureness: str
    changed: str = ""
    step: Verdict | None = None
    compare: str | None = None


@dataclass(frozen=True, slots=True)
class Related:
    """The parts of the section; of `versions` there are so many `earlier` and `later` ones more."""

    alike: tuple[AlikeGroup, ...]
    versions: tuple[VersionRow, ...]
    earlier: int
    later: int


def section(configuration: Configuration, kin: Kin, links: Links) -> Related | None:
    """Return what stands next to a configuration; None: it stands alone."""
    if not kin.others:
        return None
    own = without_answers(configuration)
    alike = tuple(_alike(configuration, own, each, links) for each in kin.alike)
    return Related(alike, _versions(configuration, kin, links), kin.earlier, kin.later)


def _alike(configuration: Configuration, own: Detail, alike: Alike, links: Links) -> AlikeGroup:
    here = field(configuration, alike.field)
    values = [field(other, alike.field) for other in alike.nearest]
    rows = tuple(
        AlikeRow(
            there=_value(there, here),
            title=other.title,
            tag=_tag(other),
            url=links.reports.get(other.id),
            verdict=_verdict(own, without_answers(other)),
            compare=_compare(configuration, other, links),
        )
        for there, other in zip(values, alike.nearest, strict=True)
    )
    words = field_words(alike.field)
    return AlikeGroup(words, _value(here, *values), rows, alike.count - len(rows))


def _value(value: JsonValue, *others: JsonValue) -> str:
    """Write a value; of a list what some other list has not, with the option it belongs to."""
    if not isinstance(value, list):
        return value_words(value)
    parts = _options(value)
    lists = [_options(other) for other in others if isinstance(other, list)]
    told = [part for part in parts if any(part not in other for other in lists)]
    return " ".join(told if lists else parts) or "without it"


def _options(items: Sequence[JsonValue]) -> list[str]:
    """Join an option of a command line with the word behind it, which is its value."""
    parts: list[str] = []
    for item in map(value_words, items):
        if parts and parts[-1].startswith("-") and " " not in parts[-1] and item[:1] != "-":
            parts[-1] = f"{parts[-1]} {item}"
        else:
            parts.append(item)
    return parts


def _versions(configuration: Configuration, kin: Kin, links: Links) -> tuple[VersionRow, ...]:
    rows: list[VersionRow] = []
    details = [without_answers(each) for each in kin.versions]
    for i, each in enumerate(kin.versions):
        own, claim = each.id == configuration.id, headline.goodput(each.claims)
        metric = METRICS[claim.key]
        row = VersionRow(
            version=each.setup.engine.version,
            tag=_tag(each),
            own=own,
            url=None if own else links.reports.get(each.id),
            measured=each.headline.run.conditions.started[:10],
            goodput=None if claim.value is None else text.amount(claim.value, metric),
            sureness=text.reason(claim) if claim.value is None else text.sureness(claim),
        )
        if i:
            before = kin.versions[i - 1]
            row = replace(
                row,
                changed=_changed(before, each),
                step=_verdict(details[i - 1], details[i]),
                compare=_compare(before, each, links),
            )
        rows.append(row)
    return tuple(rows)


def _tag(configuration: Configuration) -> str:
    told = status(configuration.exclusions)
    hidden = statements.hidden(configuration.headline.run_id, configuration.unpublished)
    return ", ".join((*hidden, *([told] if told in _GRAVE else [])))


def _changed(before: Configuration, after: Configuration) -> str:
    paths = [path for path in sorted(RELEASED) if field(before, path) != field(after, path)]
    return ", ".join(field_words(path) for path in paths)


def _verdict(a: Detail, b: Detail) -> Verdict:
    row = goodput(a, b)
    if row.ratio is None or row.word is None:
        return Verdict(None, f"not compared: {row.reason}")
    mark, icon, _ = MARKS[row.word]
    level = "" if row.level is None else f"{row.level}% "
    return Verdict(f"{row.ratio.value:.3f}", f"{level}{interval(row.ratio)}", row.word, mark, icon)


def _compare(a: Configuration, b: Configuration, links: Links) -> str | None:
    if links.compare is None:
        return None
    return f"{links.compare}{address((a.id, b.id)).removeprefix(PAGE)}"
