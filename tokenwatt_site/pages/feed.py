"""Atom feeds of results: an entry for each run, and one for each change of what it stands for.

Ids are tag: URIs of the site's host and never change; what a run stands for is in its entry, whose
`updated` is then the statement's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.field_words import in_words
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import cite, headline, statements, text
from tokenwatt_site.pages.dataset import Publisher
from tokenwatt_site.run import Claims
from tokenwatt_site.trust.predicates import Kind
from tokenwatt_site.trust.registration import utc
from tokenwatt_site.trust.standing import Told
from tokenwatt_site.trust.verify import ValidatedRun

NAME = "feed.xml"
MAX_ENTRIES = 200
"""A feed has the newest; all results are in the API."""

ATOM = "http://www.w3.org/2005/Atom"
_NEVER = "1970-01-01T00:00:00Z"
_KINDS: tuple[Kind, ...] = (*statements.AGAINST, "settled", "reproduced")
_NOT_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry before it is written.

    `id` is what follows the host in its tag, and `path` is of its page, from the root of the site.
    """

    id: str
    title: str
    published: str
    updated: str
    path: str
    author: str
    summary: str
    categories: tuple[str, ...]


def entries(configuration: Configuration) -> list[Entry]:
    """Return the entries of the runs of a configuration, in no order that means anything."""
    return list(_entries(configuration))


def feeds(
    configurations: Sequence[Configuration],
    publisher: Publisher,
    told: Callable[[Configuration], Sequence[Entry]] = entries,
) -> dict[str, str]:
    """Return the feeds by path: one of all results, one per engine and one per accelerator.

    Empty where the site has no address: an entry's id and link are made of it.

    Args:
        configurations: what is published.
        publisher: whose feeds they are.
        told: gives what `entries` does, as whoever has thousands of them kept it.
    """
    host = urlsplit(publisher.address or "").hostname
    if host is None:
        return {}
    members: dict[str, tuple[str, list[Entry]]] = {NAME: (f"{publisher.name}: results", [])}
    for configuration in configurations:
        own = told(configuration)
        members[NAME][1].extend(own)
        setup = configuration.setup
        for kind, name in (("engine", setup.engine.name), ("accelerator", setup.accelerator.model)):
            slug = "-".join(re.findall(r"[a-z0-9]+", name.lower()))[:60]
            if slug and text.recorded(name):
                title = f"{publisher.name}: results of {kind} {name}"
                members.setdefault(f"feeds/{kind}-{slug}.xml", (title, []))[1].extend(own)
    return {
        path: _written(path, title, found, publisher, host)
        for path, (title, found) in members.items()
    }


def _entries(configuration: Configuration) -> Iterator[Entry]:
    for run in configuration.runs:
        stated = [told for kind in _KINDS for told in run.standing.counting(kind)]
        witness = run.standing.witness
        published = utc(run.ended if witness is None else witness.signed.made)
        path = f"{cite.FOLDER}/{run.run_id}/"
        marks = (*statements.marks(run), *(["simulated"] if run.run.simulated else []))
        lead = "".join(f"[{mark}] " for mark in marks)
        value, spec = _value(run.claims), run.run.spec
        setup = spec.setup
        kinds = (setup.workload.name, setup.engine.name, setup.accelerator.model, *marks)
        base = f"{run.ended:%Y-%m-%d}:run/{run.run_id}"
        author = run.signer or run.keyid
        against = " ".join(f"{a} {b}" for a, b in statements.notices(run.standing))
        yield Entry(
            base,
            f"{lead}{spec.title}: {value}",
            published,
            max([published, *(utc(told.signed.made) for told in stated)]),
            path,
            author,
            f"{against} {value}; {spec.protocol.mode} mode,"
            f" {text.boards(setup.accelerator)}, {text.engine(setup.engine)},"
            f" {setup.model.name}, {setup.workload.name}, {text.slo(setup.slo)}.".strip(),
            kinds,
        )
        yield from (_change(run, told, base, path, kinds) for told in stated)


def _change(
    run: ValidatedRun, told: Told, base: str, path: str, categories: tuple[str, ...]
) -> Entry:
    made = utc(told.signed.made)
    return Entry(
        f"{base}/statement/{told.signed.digest}",
        f"{told.signed.kind.capitalize()}: {run.run.spec.title}",
        made,
        made,
        path,
        statements.signer(told),
        f"{statements.signer(told)}: {statements.says(told)}. It is about: {_value(run.claims)}.",
        categories,
    )


def _value(claims: Claims) -> str:
    """The headline with its interval and n, or that there is none."""
    claim = headline.goodput(claims)
    if claim.value is None:
        return f"no goodput ({in_words(claim.reason or '')})"
    metric = METRICS[claim.key]
    kept = "" if claim.key == headline.LONG_RUN else f", {headline.UNCORRECTED}"
    return f"{text.amount(claim.value, metric)} {metric.unit} ({text.sureness(claim)}){kept}"


def _written(
    path: str, title: str, entries: Iterable[Entry], publisher: Publisher, host: str
) -> str:
    newest = sorted(entries, key=lambda e: (e.updated, e.id), reverse=True)[:MAX_ENTRIES]
    root = ET.Element("feed", xmlns=ATOM)
    _add(root, "id", f"tag:{host},2026:{path}")
    _add(root, "title", title)
    _add(root, "updated", max((e.updated for e in newest), default=_NEVER))
    ET.SubElement(root, "link", rel="self", href=publisher.url(path), type="application/atom+xml")
    ET.SubElement(root, "link", rel="alternate", href=publisher.url("index.html"), type="text/html")
    _add(ET.SubElement(root, "author"), "name", publisher.name)
    if publisher.licence is not None:
        ET.SubElement(root, "link", rel="license", href=publisher.licence.url)
        _add(root, "rights", publisher.licence.name)
    for each in newest:
        entry = ET.SubElement(root, "entry")
        _add(entry, "id", f"tag:{host},{each.id}")
        _add(entry, "title", each.title)
        _add(entry, "published", each.published)
        _add(entry, "updated", each.updated)
        ET.SubElement(entry, "link", rel="alternate", href=publisher.url(each.path))
        _add(ET.SubElement(entry, "author"), "name", each.author)
        for term in dict.fromkeys(each.categories):
            ET.SubElement(entry, "category", term=_NOT_XML.sub("\ufffd", term))
        _add(entry, "summary", each.summary)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _add(parent: ET.Element, name: str, words: str) -> None:
    ET.SubElement(parent, name).text = _NOT_XML.sub("\ufffd", words)
