"""How a run is quoted: its permanent address, a line of text, an entry of BibTeX."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urljoin

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import headline, statements, text

FOLDER = "runs"
"""The folder of the site that holds a folder per run: page, run file and evidence."""


def address(base: str | None, run_id: str) -> str | None:
    """Return where a run stays for good; None where the site does not say where it is.

    Args:
        base: address of the site.
        run_id: of the run.
    """
    return urljoin(base, f"{FOLDER}/{run_id}/") if base else None


def plain(configuration: Configuration, url: str | None = None) -> str:
    """One line that quotes the headline with its label, n and mode.

    Args:
        configuration: led by the run that is quoted.
        url: the permanent address of that run.
    """
    head = configuration.headline
    kind = "simulated, " if head.run.simulated else ""
    day = _day(configuration)
    against = "".join(f"{word.capitalize()}. " for word in _against(configuration))
    words = (
        f"{against}{_author(configuration)} ({day[:4]}). {configuration.title}:"
        f" {_value(configuration)}, {kind}{head.run.spec.protocol.mode} mode,"
        f" {_sureness(configuration)}. tokenwatt run {head.run_id[:12]}, {day}."
    )
    return f"{words} {url}" if url else words


def bibtex(configuration: Configuration, url: str | None = None) -> str:
    """The same as an entry of BibTeX; what has a meaning there is escaped.

    Args:
        configuration: led by the run that is quoted.
        url: the permanent address of that run.
    """
    head = configuration.headline
    day = _day(configuration)
    kind = "simulated, " if head.run.simulated else ""
    against = "".join(f"{word}; " for word in _against(configuration))
    note = (
        f"{against}{_value(configuration)}, {kind}{head.run.spec.protocol.mode} mode,"
        f" {_sureness(configuration)}; tokenwatt run {head.run_id}"
    )
    fields = {
        "author": f"{{{_escaped(_author(configuration))}}}",
        "title": f"{{{_escaped(configuration.title)}}}",
        "year": day[:4],
        "month": str(int(day[5:7])),
        "note": _escaped(note),
    }
    # The argument of \url is taken as it is, and an address of ours has no brace.
    fields |= {"howpublished": f"\\url{{{url}}}"} if url else {}
    lines = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
    return f"@misc{{tokenwatt-{head.run_id[:12]},\n{lines}}}"


def _against(configuration: Configuration) -> tuple[str, ...]:
    """What was stated against the run: nobody may quote it without."""
    standing = configuration.headline.standing
    return tuple(kind for kind in statements.AGAINST if standing.counting(kind))


def _author(configuration: Configuration) -> str:
    head = configuration.headline
    return head.signer or head.keyid


def _day(configuration: Configuration) -> str:
    return configuration.headline.run.conditions.started[:10]


def _value(configuration: Configuration) -> str:
    claim = headline.goodput(configuration.claims)
    if claim.value is None:
        return "no goodput"
    metric = METRICS[claim.key]
    kept = "in the long run" if claim.key == headline.LONG_RUN else "on short windows"
    return f"{text.amount(claim.value, metric)} {metric.unit} within the SLO {kept}"


def _sureness(configuration: Configuration) -> str:
    claim = headline.goodput(configuration.claims)
    if claim.value is None:
        return f"n = {len(configuration.claims.repeats)}"
    return text.sureness(claim)


_ESCAPES: Mapping[str, str] = MappingProxyType(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{sign: f"\\{sign}" for sign in "&%$#_"},
        # BibTeX counts braces before TeX sees that they are escaped.
        "{": r"\textbraceleft{}",
        "}": r"\textbraceright{}",
    }
)
_SPECIAL = re.compile(r"[\\~^&%$#_{}]")


def _escaped(words: str) -> str:
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], words)
